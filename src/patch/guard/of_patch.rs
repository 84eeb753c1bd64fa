//! Guards for all files of a patch, as one diff from the patched files to the guarded ones.
//!
//! Not responsible for one file; see `guard`.

use std::fmt::Write as _;

use super::{Note, guard};
use crate::patch::diff::{Diff, FileDiff, Form, Hunk};
use crate::patch::inventory::Group;
use crate::patch::language::Language;
use crate::patch::types::Touch;

/// What became of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The diff; empty where something was refused.
    pub diff: String,
    /// Number of guards in it.
    pub guards: usize,
    /// What a reviewer should know.
    pub remarks: Vec<Shown>,
    /// Why there is no diff.
    pub refusals: Vec<Shown>,
}

/// A sentence and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Path, and line of the patched file.
    pub place: String,
    /// One clause.
    pub text: String,
}

/// The variable of a patch that has none: `PATCHBENCH_` and its id in capitals.
pub fn variable_of(id: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("PATCHBENCH_{}", id.chars().map(letter).collect::<String>())
}

/// Guards for a patch. `read`: the text of a patched file by its path, or why it cannot be had.
pub fn of_group(diff: &Diff, group: &Group, variable: &str, read: impl Fn(&str) -> Result<String, String>) -> Outcome {
    let mut out = Outcome::default();
    let mut files: Vec<usize> = group.parts.iter().map(|part| part.file).collect();
    files.dedup();
    let mut seen: Vec<&str> = Vec::new();
    for index in files {
        let Some(file) = diff.files.get(index) else { continue };
        let path = file.path();
        let hunks = group.parts.iter().filter(|part| part.file == index).filter_map(|part| part.hunk);
        let hunks: Vec<&Hunk> = hunks.filter_map(|hunk| file.hunks.get(hunk)).collect();
        if seen.contains(&path) {
            out.refuse(path.to_owned(), "several commits of the patch change this file".to_owned());
        } else if let Some(why) = whole_file(file) {
            out.refuse(at(file, &hunks), why);
        } else if let Some(what) = stays(file) {
            out.remarks.push(Shown { place: path.to_owned(), text: what.to_owned() });
        } else {
            one(&mut out, file, &hunks, variable, &read);
        }
        seen.push(path);
    }
    if out.refusals.is_empty() && out.guards == 0 {
        let why = "nothing that the patch changes has to be guarded".to_owned();
        out.refuse(group.title.clone(), why);
    }
    if !out.refusals.is_empty() {
        out.diff.clear();
        out.guards = 0;
    }
    out
}

impl Outcome {
    fn refuse(&mut self, place: String, text: String) {
        self.refusals.push(Shown { place, text });
    }
}

fn at(file: &FileDiff, hunks: &[&Hunk]) -> String {
    let line = hunks.first().map(|hunk| format!(":{}", hunk.new_start)).unwrap_or_default();
    format!("{}{line}", file.path())
}

/// What is no change of statements.
fn whole_file(file: &FileDiff) -> Option<String> {
    let why = match file.touch() {
        Touch::Deleted => "the patch takes the whole file away",
        Touch::Renamed { .. } => "the patch renames the file",
        Touch::Copied { .. } => "the patch makes the file from another",
        Touch::Mode { .. } => "the patch changes the mode of the file",
        Touch::Binary => "the file is not text",
        Touch::Combined => "the changes of a merge against several parents are not read",
        Touch::Modified | Touch::Added => return None,
    };
    Some(why.to_owned())
}

/// What no server runs, or what only new code can ask for.
fn stays(file: &FileDiff) -> Option<&'static str> {
    let name = file.path().rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let special = name.starts_with("__") || name == "conftest.py";
    match (file.touch(), ending) {
        (_, "md" | "rst") => Some("documentation stays as it is"),
        (Touch::Added, "py") if !special => {
            Some("the new file stays: check that nothing loads it merely because it is there")
        }
        _ => None,
    }
}

fn one(
    out: &mut Outcome,
    file: &FileDiff,
    hunks: &[&Hunk],
    variable: &str,
    read: &impl Fn(&str) -> Result<String, String>,
) {
    let path = file.path();
    if Language::of_path(path) != Some(Language::Python) || file.form != Form::Text {
        return out.refuse(at(file, hunks), "the file is not Python".to_owned());
    }
    let text = match read(path) {
        Ok(text) => text,
        Err(why) => return out.refuse(path.to_owned(), why),
    };
    if text.contains(variable) {
        return out.refuse(path.to_owned(), format!("the file has the word `{variable}` already"));
    }
    let guarded = match guard(&text, hunks, variable) {
        Ok(guarded) => guarded,
        Err(refusal) => return out.refuse(format!("{path}:{}", refusal.line), refusal.why),
    };
    let shown = |note: Note| Shown { place: format!("{path}:{}", note.line), text: note.text };
    out.remarks.extend(guarded.remarks.into_iter().map(shown));
    out.guards += guarded.guards;
    if guarded.guards > 0 {
        let (old, new) = (format!("a/{path}"), format!("b/{path}"));
        let mut options = diffy::DiffOptions::new();
        options.set_original_filename(old.clone()).set_modified_filename(new.clone());
        let _ = write!(out.diff, "diff --git {old} {new}\n{}", options.create_patch(&text, &guarded.text));
    }
}
