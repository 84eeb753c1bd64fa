//! Reads the header of a file's diff, in the forms of git, `diff -u`, Subversion and Mercurial.
//!
//! Not responsible for the hunks behind it.

use super::{FileDiff, Form, Tie, path};

/// Whether the diff of a file begins with these lines.
pub(super) fn starts(lines: &[&str]) -> bool {
    let Some(first) = lines.first() else { return false };
    let marks = || first.starts_with("--- ") && lines.get(1).is_some_and(|line| line.starts_with("+++ "));
    let index = || {
        first.starts_with("Index: ")
            && lines.get(1).is_some_and(|line| line.starts_with("======") || line.starts_with("--- "))
    };
    let plain = || first.starts_with("diff -") && first.split_whitespace().count() > 2;
    plain() || marks() || index() || differ(first).is_some()
}

/// Reads the header at the head of these lines and returns it with the number of lines that it takes.
pub(super) fn read(lines: &[&str], number: u32) -> (FileDiff, usize) {
    let mut file = FileDiff {
        old: None,
        new: None,
        tie: Tie::Same,
        form: Form::Text,
        commit: None,
        old_mode: None,
        new_mode: None,
        similarity: None,
        hunks: Vec::new(),
        line: number,
    };
    let mut named = Named::default();
    let mut at = 0;
    while let Some(line) = lines.get(at).map(|line| line.trim_end_matches('\r')) {
        let first = at == 0;
        if first && opening(line, &mut file, &mut named) {
            at += 1;
            if file.form == Form::Binary {
                break;
            }
            continue;
        }
        if line.starts_with("--- ") && lines.get(at + 1).is_some_and(|line| line.starts_with("+++ ")) {
            marks(line, lines.get(at + 1).unwrap_or(&""), &mut named);
            at += 2;
            break;
        }
        if let Some((old, new)) = differ(line) {
            named.marks = Some((old, new));
            file.form = Form::Binary;
            at += 1;
            break;
        }
        if line == "GIT binary patch" {
            file.form = Form::Binary;
            at += 1 + binary(lines.get(at + 1..).unwrap_or_default());
            break;
        }
        if line.starts_with("======") || line.starts_with("Cannot display: file marked as a binary type") {
            file.form = if line.starts_with('C') { Form::Binary } else { file.form };
            at += 1;
            continue;
        }
        if !extended(line, &mut file, &mut named) {
            break;
        }
        at += 1;
    }
    named.settle(&mut file);
    (file, at)
}

/// The paths that a header gives, in several places.
#[derive(Default)]
struct Named {
    git: Option<(String, String)>,
    marks: Option<(String, String)>,
    from: Option<String>,
    to: Option<String>,
    alone: Option<String>,
    created: bool,
    deleted: bool,
}

impl Named {
    /// The lines that belong to one side only are believed before the marks, and the first line last.
    fn settle(self, file: &mut FileDiff) {
        let both = self.marks.or(self.git).or_else(|| self.alone.map(|path| (path.clone(), path)));
        let (old, new) = both.map_or((None, None), |(old, new)| path::stripped(&old, &new));
        file.old = self.from.or(old).filter(|_| !self.created);
        file.new = self.to.or(new).filter(|_| !self.deleted);
    }
}

/// Reads a first line that names the file; false where it is none.
fn opening(line: &str, file: &mut FileDiff, named: &mut Named) -> bool {
    if let Some(rest) = line.strip_prefix("diff --git ") {
        named.git = path::pair(rest);
        return true;
    }
    if let Some(rest) = line.strip_prefix("diff --cc ").or_else(|| line.strip_prefix("diff --combined ")) {
        file.form = Form::Combined;
        named.alone = Some(path::plain(rest));
        return true;
    }
    if let Some(rest) = line.strip_prefix("Index: ") {
        named.alone = Some(rest.to_owned());
        return true;
    }
    if line.starts_with("diff -") {
        named.alone = line.split_whitespace().last().map(str::to_owned);
        return true;
    }
    false
}

/// Reads a line of git's extended header; false where it is none.
fn extended(line: &str, file: &mut FileDiff, named: &mut Named) -> bool {
    const KNOWN: &[&str] = &["index ", "dissimilarity index ", "mode "];
    let after = |word: &str| line.strip_prefix(word).map(str::to_owned);
    if let Some(mode) = after("old mode ") {
        file.old_mode = Some(mode);
    } else if let Some(mode) = after("new mode ") {
        file.new_mode = Some(mode);
    } else if let Some(mode) = after("new file mode ") {
        file.new_mode = Some(mode);
        named.created = true;
    } else if let Some(mode) = after("deleted file mode ") {
        file.old_mode = Some(mode);
        named.deleted = true;
    } else if let Some(from) = after("rename from ").or_else(|| after("rename old ")) {
        (named.from, file.tie) = (Some(path::plain(&from)), Tie::Renamed);
    } else if let Some(to) = after("rename to ").or_else(|| after("rename new ")) {
        (named.to, file.tie) = (Some(path::plain(&to)), Tie::Renamed);
    } else if let Some(from) = after("copy from ") {
        (named.from, file.tie) = (Some(path::plain(&from)), Tie::Copied);
    } else if let Some(to) = after("copy to ") {
        (named.to, file.tie) = (Some(path::plain(&to)), Tie::Copied);
    } else if let Some(percent) = after("similarity index ") {
        file.similarity = percent.trim_end_matches('%').parse().ok();
    } else {
        return KNOWN.iter().any(|known| line.starts_with(known));
    }
    true
}

/// Reads the two lines that name the sides.
fn marks(old: &str, new: &str, named: &mut Named) {
    // `diff -N` gives a file that is not there the time zero.
    let absent = |date: &str| date.starts_with("1970-01-01 ") || date.starts_with("1969-12-31 ");
    let (old, old_date) = path::marked(old.trim_start_matches("--- "));
    let (new, new_date) = path::marked(new.trim_start_matches("+++ ").trim_end_matches('\r'));
    named.created |= absent(old_date);
    named.deleted |= absent(new_date);
    named.marks = Some((old, new));
}

/// The two paths of a line that says only that files differ.
fn differ(line: &str) -> Option<(String, String)> {
    let rest = line.trim_end().strip_suffix(" differ")?;
    let rest = rest.strip_prefix("Binary files ").or_else(|| rest.strip_prefix("Files "))?;
    let (old, new) = rest.split_once(" and ")?;
    Some((path::plain(old), path::plain(new)))
}

/// Number of lines of the data of a binary patch: blocks that begin with a word and end with an empty line.
fn binary(lines: &[&str]) -> usize {
    let mut at = 0;
    while lines.get(at).is_some_and(|line| line.starts_with("literal ") || line.starts_with("delta ")) {
        at += 1;
        let data = |line: &&&str| !line.trim().is_empty() && !line.contains(' ');
        at += lines.get(at..).unwrap_or_default().iter().take_while(data).count();
        at += usize::from(lines.get(at).is_some_and(|line| line.trim().is_empty()));
    }
    at
}
