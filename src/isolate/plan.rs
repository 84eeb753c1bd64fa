//! The next step of the search, as a pure function of what was seen.
//!
//! The engine calls [`next`] whenever a search is active and nothing runs. Facts are journaled and [`next`] is
//! called again; a command is carried out first. All that the search needs is in the state, so a search can be
//! cut off anywhere and begun again on what is recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::case::Case;
use crate::engine::command::Command;
use crate::engine::event::Happened;
use crate::engine::procedure::Failure;
use crate::engine::state::State;
use crate::isolate::arms;
use crate::isolate::phases::{self, View};
use crate::isolate::run::{self, Progress};
pub use crate::isolate::search::Search;
use crate::isolate::search::{DeadArm, Ending, Rules, Work};

/// What the search wants next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Facts to record.
    Record(Vec<Happened>),
    /// Something to be done.
    Do(Command),
    /// Nothing more.
    Finished,
}

/// The next step of the search.
pub fn next(state: &State) -> Next {
    let (Some(search), Some(case)) = (&state.search, &state.case) else { return Next::Finished };
    if !search.is_active() {
        return Next::Finished;
    }
    let view = View::new(state, case, search);
    let Some(current) = &search.run else { return phases::step(&view) };
    let idle = Search { run: None, ..search.as_ref().clone() };
    match run::step(&view, current) {
        Progress::Do(command) => Next::Do(command),
        Progress::Due(run) => phases::record(&view, Vec::new(), Search { run: Some(run), ..idle }),
        Progress::Complete => phases::step(&View { search: &idle, ..view }),
        Progress::Refused => {
            let why = format!("a command was refused while the search was at this: {}", current.title);
            phases::finish(&view, Vec::new(), idle, Ending::CannotRun { why })
        }
        Progress::Failed(why) => match &current.work {
            Work::Boot { arm, .. } if !arm.is_empty() => {
                let mut search = idle;
                search.dead.push(DeadArm { arm: arm.clone(), why: why.clone() });
                let remark = phases::warning("arm-failed", format!("{}: {why}", current.title));
                phases::record(&view, vec![remark], search)
            }
            Work::Boot { .. } | Work::Probe | Work::Micro { .. } => {
                let why = format!("{}: {why}", current.title);
                phases::finish(&view, Vec::new(), idle, Ending::CannotRun { why })
            }
        },
    }
}

/// A search over these patches, or over all of the case when none is named.
///
/// Patches without a usable gate are set aside; the search says so when it begins.
///
/// # Errors
/// No case is open, the case has no target, a patch is unknown, or a search runs already.
pub fn begin(state: &State, patches: &[String]) -> Result<Search, Failure> {
    let case =
        state.case.as_ref().ok_or_else(|| Failure::new("no case is open").hint("open one with `patchbench CASE`"))?;
    if state.search.as_ref().is_some_and(|s| s.is_active()) {
        return Err(Failure::new("a search runs already").hint("`stop-isolation` ends it"));
    }
    if arms::serving_targets(case).next().is_none() {
        return Err(Failure::new("the case has no target that serves requests")
            .hint("add a `[[target]]` with the role `monolithic`, or `prefill` and `decode`"));
    }
    if case.recall.lengths.is_empty() || case.recall.depths.is_empty() {
        return Err(Failure::new("the case asks for no prompt length or no depth")
            .hint("give `[recall]` `lengths` and `depths`, or leave them out for the defaults"));
    }
    if let Some(unknown) = patches.iter().find(|id| case.patch(id).is_none()) {
        let known: Vec<_> = case.patches.iter().map(|p| p.id.as_str()).collect();
        return Err(
            Failure::new(format!("the case has no patch `{unknown}`")).hint(format!("it has {}", known.join(", ")))
        );
    }
    let (mut tried, mut set_aside) = (Vec::new(), BTreeMap::new());
    for patch in case.patches.iter().filter(|p| patches.is_empty() || patches.contains(&p.id)) {
        match arms::no_gate(case, patch) {
            None => tried.push(patch.id.clone()),
            Some(why) => {
                set_aside.insert(patch.id.clone(), why);
            }
        }
    }
    let targets = searched_targets(case, &tried);
    Ok(Search { patches: tried, set_aside, targets, rules: Rules::default(), ..Search::default() })
}

/// The targets that the patches are in; all that serve where there is no patch.
fn searched_targets(case: &Arc<Case>, patches: &[String]) -> Vec<String> {
    let holds = |target: &str| {
        patches.is_empty()
            || patches.iter().filter_map(|id| case.patch(id)).any(|p| p.targets_in(case).any(|t| t.name == target))
    };
    arms::serving_targets(case).filter(|t| holds(t)).map(str::to_owned).collect()
}
