//! Imported patches in the state: imports, and putting together and dividing what was imported. Pure.
//!
//! What was regrouped is kept, so that an import of the same changes brings it back as it was read. Not responsible for
//! what a patch says; see `patch::inventory`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::case::{Case, Gate};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::event::Happened;
use crate::engine::procedure::Failure;
use crate::engine::state::State;
use crate::engine::update::Turn;
use crate::patch::edit::{self, Edit, Said};
use crate::patch::inventory::{self, By, NotDivided, Regroup};
use crate::patch::of_state;
use crate::patch::risk::Factor;
use crate::patch::types::Entry;
use crate::redact;

/// Patches that others took the place of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regrouping {
    /// The patches as they were.
    pub out: Vec<Arc<Entry>>,
    /// Ids of those that stand in their place.
    pub into: Vec<String>,
}

/// Puts patches together under a title, in the place of the first.
pub(crate) fn merge(turn: &mut Turn, ids: &[String], title: &str) -> Result<(), Failure> {
    let title = redact::text(title.trim());
    let state = &turn.state;
    let chosen = ids.iter().map(|id| imported(state, id)).collect::<Result<Vec<_>, _>>()?;
    let out: Vec<&str> = chosen.iter().map(|e| e.id.as_str()).collect();
    let all: Vec<&Entry> = state.entries.iter().map(|e| &**e).collect();
    let merged = inventory::together(&all, &out, &title).map_err(|why| regroup_failure(&why))?;
    let others = of_state::shown(state).into_iter().filter(|(_, e)| !out.contains(&e.id.as_str()));
    let is_factor = Factor::ALL.iter().any(|f| f.id() == merged.id);
    if is_factor || others.into_iter().any(|(id, _)| id == merged.id) {
        return Err(regroup_failure(&Regroup::Taken(merged.id)));
    }
    let out = out.into_iter().map(str::to_owned).collect();
    turn.record(Happened::PatchesRegrouped { out, entries: vec![Arc::new(merged)] });
    Ok(())
}

/// Divides a patch; the parts stand in its place.
pub(crate) fn split(turn: &mut Turn, id: &str, by: By) -> Result<(), Failure> {
    let state = &turn.state;
    let whole = imported(state, id)?.clone();
    let shown = of_state::shown(state);
    let ids = state.entries.iter().map(|e| e.id.as_str()).chain(shown.keys().map(String::as_str));
    let taken: BTreeSet<&str> =
        ids.filter(|other| *other != whole.id && *other != id).chain(Factor::ALL.iter().map(|f| f.id())).collect();
    let divided = inventory::apart(&whole, by, &taken).map_err(|why| match &why {
        NotDivided::Regroup(why) => regroup_failure(why),
        NotDivided::NoLines(_) => {
            Failure::new(why.to_string()).hint("import a diff of this patch alone, which may fit into a session")
        }
        NotDivided::Loses(_) => Failure::new(why.to_string()).hint("divide the diff itself, and import its parts"),
    })?;
    let entries = divided.entries.into_iter().map(Arc::new).collect();
    turn.record(Happened::PatchesRegrouped { out: vec![whole.id.clone()], entries });
    if !divided.unseen.is_empty() {
        let names = divided.unseen.join(", ");
        let message = format!("no part of `{id}` reads {names} by its own lines: that was read of the whole file");
        let diagnostic = Diagnostic::warning("split-gate", message).hint("import it again to have it as it was read");
        turn.record(Happened::Said { diagnostic });
    }
    Ok(())
}

/// Writes down what a person says of a patch.
pub(crate) fn edit(turn: &mut Turn, id: &str, edit: &Edit) -> Result<(), Failure> {
    let state = &turn.state;
    if Factor::ALL.iter().any(|f| f.id() == id) {
        return Err(Failure::new(format!("`{id}` is a factor, whose phases are its nature"))
            .hint("`believe` writes down what is held of it"));
    }
    let of_case = state.case.as_ref().is_some_and(|c| c.patch(id).is_some());
    if !of_case {
        imported(state, id)?;
    }
    let said = || state.edits.get(id).into_iter().flatten();
    let (edit, nothing) = match edit {
        Edit::Phases { phases } => (edit.clone(), phases.is_empty() && edit::phases(said()).is_none()),
        Edit::Gate { gate, .. } => return regate(turn, id, gate),
        Edit::Note { text } => {
            let text = redact::text(text.trim());
            let nothing = text.is_empty() && edit::note(said()).is_none();
            (Edit::Note { text }, nothing)
        }
    };
    if nothing {
        return Err(Failure::new(format!("nobody said anything else of `{id}`")).hint("it is shown as it was read"));
    }
    turn.record(Happened::PatchEdited { patch: id.to_owned(), edit });
    Ok(())
}

/// Changes how a patch of the case is switched; what runs under the old gate is unknown until it is read again.
fn regate(turn: &mut Turn, id: &str, gate: &Gate) -> Result<(), Failure> {
    let state = &turn.state;
    let Some(patch) = state.case.as_ref().and_then(|c| c.patch(id)) else {
        return Err(Failure::new(format!("`{id}` is not in the case, so that it cannot be switched"))
            .hint("`patchbench patches import SOURCE --toml` prints it for the case file"));
    };
    if gate.switch().is_some_and(redact::is_secret_name) {
        return Err(Failure::new(format!("the values of `{}` are secrets by its name", gate.switch_name()))
            .hint("a level is written into the journal, so a secret cannot be one"));
    }
    if let Gate::Reverse { diff } = gate
        && !std::path::Path::new(diff).is_absolute()
    {
        return Err(Failure::new(format!("`{diff}` is not a whole path")).hint("write it from `/` on"));
    }
    if let Some((target, _)) = state.targets.iter().find(|(_, t)| t.changed.is_some()) {
        let failure = Failure::new(format!("`{target}` runs changed, and its way back counts on the gates"));
        return Err(failure.hint(format!("`restore {target}` first")));
    }
    if state.search.as_ref().is_some_and(|s| s.is_active()) {
        return Err(Failure::new("a search runs, and it counts on the gates").hint("`stop-isolation` ends it"));
    }
    if let Some(level) = gate.levels().filter(|levels| !levels.contains_key(&patch.suspect)) {
        let names: Vec<&str> = level.keys().map(String::as_str).collect();
        return Err(Failure::new(format!(
            "the suspect level `{}` of `{id}` is not among {}",
            patch.suspect,
            names.join(", ")
        ))
        .hint("name one level so"));
    }
    if patch.gate == *gate {
        return Err(Failure::new(format!("`{id}` is switched so already")).hint("nothing was changed"));
    }
    let said = state.edits.get(id).into_iter().flatten();
    let read = edit::gate(said).filter(|(now, _, _)| **now == patch.gate).map_or(&patch.gate, |(_, read, _)| read);
    let edit = Edit::Gate { gate: gate.clone(), read: read.clone() };
    turn.record(Happened::PatchEdited { patch: id.to_owned(), edit });
    Ok(())
}

/// The imported patch that is shown under an id.
fn imported<'a>(state: &'a State, id: &str) -> Result<&'a Arc<Entry>, Failure> {
    let all = of_state::imported(state);
    let found = all.into_iter().find(|(patch, entry)| patch.map_or(entry.id.as_str(), |p| &p.id) == id);
    if let Some((_, entry)) = found {
        return Ok(entry);
    }
    let of_case = state.case.as_ref().is_some_and(|c| c.patch(id).is_some());
    Err(match (of_case, Factor::ALL.iter().any(|f| f.id() == id)) {
        (true, _) => Failure::new(format!("`{id}` is told of by the case alone, so that it has no lines"))
            .hint("`import-patches FILE|RANGE` reads the diff that it is in"),
        (_, true) => Failure::new(format!("`{id}` is a factor and has no lines")).hint("choose patches alone"),
        _ => Failure::new(format!("there is no patch `{id}`")).hint("`patchbench patches CASE` lists them"),
    })
}

fn regroup_failure(why: &Regroup) -> Failure {
    match why {
        Regroup::TooFew => Failure::new("one patch cannot be put together with itself")
            .hint("mark at least two, or write `merge-patches ID,ID TITLE`"),
        Regroup::NoWord(title) => {
            Failure::new(format!("the title `{title}` has no letter or digit")).hint("its words become the id")
        }
        Regroup::Taken(id) => Failure::new(format!("`{id}` is there already")).hint("choose another title"),
        Regroup::Whole(id) => Failure::new(format!("`{id}` has one part only"))
            .hint("`file`, `function` and `hunk` divide it differently"),
        Regroup::Unknown(id) => {
            Failure::new(format!("there is no patch `{id}`")).hint("`patchbench patches CASE` lists them")
        }
    }
}

impl State {
    /// Puts a gate that a person said into the case, and takes the level that was proven by the old one for unknown.
    pub(super) fn regate(&mut self, id: &str, said: &Said) {
        let (Some(case), Edit::Gate { gate, .. }) = (&self.case, &said.edit) else { return };
        let Some(now) = case.patch(id).map(|p| p.gate.clone()) else { return };
        self.case = Some(Arc::new(edit::regated(case, id, gate, &now)));
        let why = format!("its gate was changed by {} after this start; read the target again", said.by);
        let names: Vec<String> = self.targets.keys().cloned().collect();
        for name in names {
            let Some(target) = self.targets.get_mut(&name) else { continue };
            // No target is changed now, so that what is read next is what it had when we met it.
            target.original.clear();
            let Some(boot) = target.boot.and_then(|boot| self.boots.get_mut(&boot)) else { continue };
            let proof = Arc::make_mut(&mut Arc::make_mut(boot).proof);
            if proof.levels.remove(id).is_some() {
                proof.unverified.insert(id.to_owned(), why.clone());
            }
        }
    }

    /// Gates that people said of patches of a case that is opened again, where its file says what it said then.
    pub(super) fn with_said_gates(&self, case: &Arc<Case>) -> Arc<Case> {
        let said = self.edits.iter().filter_map(|(id, said)| Some((id, edit::gate(said.iter())?)));
        said.fold(case.clone(), |case, (id, (gate, read, _))| Arc::new(edit::regated(&case, id, gate, read)))
    }

    /// Takes in patches; one of an id that is there already takes its place, and what was regrouped of them is as it was
    /// read before.
    pub(super) fn import_patches(&mut self, entries: &[Arc<Entry>]) {
        self.take_back_regroupings(&entries.iter().map(|e| e.id.as_str()).collect());
        let mut places: BTreeMap<String, usize> =
            self.entries.iter().enumerate().map(|(place, e)| (e.id.clone(), place)).collect();
        for entry in entries {
            if let Some(place) = places.get(&entry.id) {
                self.entries.set(*place, entry.clone());
            } else {
                places.insert(entry.id.clone(), self.entries.len());
                self.entries.push_back(entry.clone());
            }
        }
    }

    /// Puts `entries` in the place of the first of `out`.
    pub(super) fn regroup_patches(&mut self, out: &[String], entries: &[Arc<Entry>]) {
        let into: Vec<String> = entries.iter().map(|e| e.id.clone()).collect();
        let out = self.exchange(out, entries);
        self.regroupings.push_back(Regrouping { out, into });
    }

    /// Takes entries out by their ids, puts others in the place of the first, and gives those that were taken out.
    fn exchange(&mut self, out: &[String], entries: &[Arc<Entry>]) -> Vec<Arc<Entry>> {
        let is_out = |e: &Arc<Entry>| out.contains(&e.id);
        let place = self.entries.iter().position(is_out).unwrap_or(self.entries.len());
        let gone = self.entries.iter().filter(|e| is_out(e)).cloned().collect();
        self.entries.retain(|e| !is_out(e));
        let mut after = self.entries.split_off(place);
        self.entries.extend(entries.iter().cloned());
        self.entries.append(std::mem::take(&mut after));
        gone
    }

    /// Takes back every regrouping of patches that come again, and those that were made of its results, newest first.
    fn take_back_regroupings(&mut self, again: &BTreeSet<&str>) {
        let mut results: BTreeSet<String> = BTreeSet::new();
        let (mut back, mut kept) = (Vec::new(), imbl::Vector::new());
        for one in std::mem::take(&mut self.regroupings) {
            let of = |id: &str| again.contains(id) || results.contains(id);
            if one.out.iter().any(|e| of(&e.id)) || one.into.iter().any(|id| again.contains(id.as_str())) {
                results.extend(one.into.iter().cloned());
                back.push(one);
            } else {
                kept.push_back(one);
            }
        }
        self.regroupings = kept;
        for one in back.into_iter().rev() {
            self.exchange(&one.into, &one.out);
        }
    }
}
