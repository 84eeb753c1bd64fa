//! The lines that work on imported patches: what is left out comes from the marks or the selection, or is asked for.

use std::collections::BTreeSet;

use super::{Context, Screen, split_word};
use crate::case::{Gate, Patch, gate};
use crate::engine::command::Command;
use crate::engine::procedure::Failure;
use crate::patch::edit::{self, Edit};
use crate::patch::inventory::By;
use crate::patch::types::Phase;
use crate::ui::text;

/// What must be typed before a line can run; `None` where it is whole.
pub(super) fn ask(name: &str, rest: &str, context: &Context<'_>) -> Result<Option<Screen>, Failure> {
    match name {
        "merge-patches" if rest.is_empty() => {
            let ids = chosen(context, 2)?;
            let title = format!("Title of these {} patches together; its words become the id", ids.len());
            let lead = format!("merge-patches {}", ids.join(","));
            Ok(Some(Screen::Ask { title, lead, suggestion: String::new() }))
        }
        "split-patch" if rest.is_empty() => {
            let id = one(context)?;
            let title = format!("Divide {id} by: file, function or hunk");
            let lead = format!("split-patch {id}");
            Ok(Some(Screen::Ask { title, lead, suggestion: By::Function.word().to_owned() }))
        }
        "phases" if rest.is_empty() => {
            let ids = chosen(context, 1)?;
            let words = Phase::ALL.map(Phase::word).join(" ");
            let of = if let [id] = &ids[..] { text::cut(id, 20) } else { format!("{} patches", ids.len()) };
            let title = format!("Phases of {of}: {words} none");
            let said = ids.first().and_then(|id| context.state.edits.get(id)).into_iter().flatten();
            let now =
                edit::phases(said).map(|(phases, _)| phases.iter().map(|p| p.word()).collect::<Vec<_>>().join(","));
            let lead = format!("phases {}", ids.join(","));
            Ok(Some(Screen::Ask { title, lead, suggestion: now.unwrap_or_default() }))
        }
        "gate" if rest.is_empty() => {
            let id = one(context)?;
            let title = format!("How {} is switched; as-read takes it back", text::cut(&id, 40));
            let now = case_patch(&id, context)?.gate.clone();
            // A gate that switches nothing is no help where one is to be written.
            let suggestion = match now {
                Gate::None => "{ env = \"\", levels = { on = \"1\", off = { unset = true } } }".to_owned(),
                now => gate::spelling(&now),
            };
            Ok(Some(Screen::Ask { title, lead: format!("gate {id}"), suggestion }))
        }
        "patch-note" if rest.is_empty() => {
            let id = one(context)?;
            let said = context.state.edits.get(&id).into_iter().flatten();
            let now = edit::note(said).map(|(text, _)| text.to_owned()).unwrap_or_default();
            let title = format!("Note on {}; none takes it back", text::cut(&id, 40));
            Ok(Some(Screen::Ask { title, lead: format!("patch-note {id}"), suggestion: now }))
        }
        _ => Ok(None),
    }
}

/// `[ID,ID…] TITLE`.
pub(super) fn merge(rest: &str, context: &Context<'_>) -> Result<Command, Failure> {
    let (first, title) = split_word(rest);
    let (patches, title) = match listed(first, context) {
        Some(ids) => (ids, title),
        None => (chosen(context, 2)?, rest),
    };
    if title.is_empty() {
        return Err(Failure::new("`merge-patches` needs a title").hint("merge-patches ID,ID TITLE"));
    }
    Ok(Command::MergePatches { patches, title: title.to_owned() })
}

/// `[ID] file|function|hunk`.
pub(super) fn split(args: &[&str], context: &Context<'_>) -> Result<Command, Failure> {
    let (patch, word) = match args {
        [id, word] => ((*id).to_owned(), *word),
        [word] => (one(context)?, *word),
        _ => return Err(Failure::new("`split-patch` needs a patch and a division").hint("split-patch ID hunk")),
    };
    let known = By::ALL.map(By::word).join(", ");
    let by = By::parse(word)
        .ok_or_else(|| Failure::new(format!("there is no division `{word}`")).hint(format!("it is one of {known}")))?;
    Ok(Command::SplitPatch { patch, by })
}

/// `[ID,…] PHASE,…|none`.
pub(super) fn phases(rest: &str, context: &Context<'_>) -> Result<Vec<Command>, Failure> {
    let (first, words) = split_word(rest);
    // A patch may be called as a phase is.
    let (ids, words) = match known(first, context).filter(|_| !words.is_empty()) {
        Some(ids) => (ids, words),
        None => (chosen(context, 1)?, rest),
    };
    let mut phases = BTreeSet::new();
    for word in words.split([',', '+', ' ']).filter(|word| !word.is_empty() && *word != "none") {
        let unknown = || {
            let all = Phase::ALL.map(Phase::word).join(", ");
            Failure::new(format!("there is no phase `{word}`")).hint(format!("phases are {all}, and none is as read"))
        };
        phases.insert(Phase::parse(word).ok_or_else(unknown)?);
    }
    let edit = Edit::Phases { phases };
    Ok(ids.into_iter().map(|patch| Command::EditPatch { patch, edit: edit.clone() }).collect())
}

/// `[ID] GATE|as-read`.
pub(super) fn gate(rest: &str, context: &Context<'_>) -> Result<Command, Failure> {
    let (first, words) = split_word(rest);
    let (patch, words) = match known(first, context).filter(|ids| ids.len() == 1 && !words.is_empty()) {
        Some(ids) => (ids.concat(), words),
        None => (one(context)?, rest),
    };
    let now = &case_patch(&patch, context)?.gate;
    let said = context.state.edits.get(&patch).into_iter().flatten();
    let read = edit::gate(said).map_or(now, |(_, read, _)| read);
    let gate = if words == "as-read" { read.clone() } else { gate::parse(words)? };
    Ok(Command::EditPatch { patch, edit: Edit::Gate { gate, read: read.clone() } })
}

/// A patch of the case: others have no gate that could be said.
fn case_patch<'a>(id: &str, context: &'a Context<'_>) -> Result<&'a Patch, Failure> {
    context.state.case.as_ref().and_then(|c| c.patch(id)).ok_or_else(|| {
        Failure::new(format!("`{id}` is not in the case, so that it cannot be switched"))
            .hint("`patchbench patches import SOURCE --toml` prints it for the case file")
    })
}

/// `[ID] TEXT|none`.
pub(super) fn note(rest: &str, context: &Context<'_>) -> Result<Command, Failure> {
    let (first, text) = split_word(rest);
    let (patch, text) = match known(first, context).filter(|ids| ids.len() == 1 && !text.is_empty()) {
        Some(ids) => (ids.concat(), text),
        None => (one(context)?, rest),
    };
    let text = if text == "none" { String::new() } else { text.to_owned() };
    Ok(Command::EditPatch { patch, edit: Edit::Note { text } })
}

/// Ids with commas between them, if there are several and all of them are known.
fn listed(word: &str, context: &Context<'_>) -> Option<Vec<String>> {
    known(word, context).filter(|ids| ids.len() > 1)
}

/// Ids with commas between them, if all of them are known.
fn known(word: &str, context: &Context<'_>) -> Option<Vec<String>> {
    let ids: Vec<String> = word.split(',').map(str::to_owned).collect();
    ids.iter().all(|id| context.derived.ranked.iter().any(|r| r.id == *id)).then_some(ids)
}

/// What is marked, else selected: at least so many.
fn chosen(context: &Context<'_>, least: usize) -> Result<Vec<String>, Failure> {
    if context.patches.len() < least {
        return Err(Failure::new("mark the patches first").hint("`space` marks a row of the patches"));
    }
    Ok(context.patches.to_vec())
}

/// The one that is marked, else selected.
fn one(context: &Context<'_>) -> Result<String, Failure> {
    match context.patches {
        [one] => Ok(one.clone()),
        [] => Err(Failure::new("no patch is selected").hint("go to the patches, or write its id")),
        _ => {
            Err(Failure::new("several patches are marked, and this is for one at a time")
                .hint("`esc` takes marks away"))
        }
    }
}
