//! `patches guard ID`: reads the diff and the patched files, and lets `cli::guard` say what comes of it. Nothing is
//! applied.

use std::path::Path;

use super::pieces::{self, read_diff};
use crate::case::is_variable;
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::GuardArgs;
use crate::cli::guard;
use crate::cli::json::ErrorCode;
use crate::config::nearest;
use crate::patch::diff::{self, Diff};
use crate::patch::guard as made;
use crate::patch::import::{inventory_of, is_within};
use crate::patch::inventory::{Group, Inventory};
use crate::patch::types::Entry;

/// Answers `patches guard ID`.
///
/// # Errors
/// The diff or checkout cannot be read, there is no patch of that id, or the name can be none of a variable.
pub fn guard(args: &GuardArgs) -> Result<Answer, Failed> {
    let variable = args.variable.clone().unwrap_or_else(|| made::variable_of(&args.id));
    if !is_variable(&variable) {
        let message = format!("`{variable}` can be no name of a variable");
        return Err(Failed::usage(ErrorCode::Usage, message).hint("give `--variable NAME` of letters, digits and `_`"));
    }
    let from = pieces::source(&args.of, None, Some(args.checkout.as_path()));
    let text = read_diff(None, &from)?;
    let diff = diff::read_bytes(&text);
    let mut taken = vec![inventory_of(&diff, from.tree())];
    // The id may have been read off without the tree at hand.
    if from.tree().is_some() && patch(&taken[0], &args.id).is_none() {
        taken.push(inventory_of(&diff, None));
    }
    let Some((group, entry)) = taken.iter().find_map(|taken| patch(taken, &args.id)) else {
        let ids = taken.iter().flat_map(|taken| &taken.groups).map(|group| group.id.as_str());
        let failed = Failed::usage(ErrorCode::Usage, format!("`{}` holds no patch `{}`", args.of, args.id));
        return Err(failed.hint(nearest(&args.id, ids).map_or_else(
            || format!("`patchbench patches import {}` lists them", args.of),
            |near| format!("did you mean `{near}`?"),
        )));
    };
    Ok(answer(&args.checkout, &variable, &diff, group, entry))
}

fn patch<'t>(taken: &'t Inventory, id: &str) -> Option<(&'t Group, &'t Entry)> {
    taken.groups.iter().zip(&taken.entries).find(|(group, _)| group.id == id)
}

fn answer(checkout: &Path, variable: &str, diff: &Diff, group: &Group, entry: &Entry) -> Answer {
    let read = |path: &str| {
        if !is_within(path) {
            return Err("the path leads out of the checkout".to_owned());
        }
        fs_err::read_to_string(checkout.join(path)).map_err(|e| format!("the patched file cannot be read: {e}"))
    };
    let mut outcome = made::of_group(diff, group, variable, read);
    let known = entry.gates.iter().filter(|gate| gate.kind.is_variable());
    outcome.remarks.extend(known.map(|gate| made::Shown {
        place: gate.place.path.clone(),
        text: format!("the patch reads `{}` already, which may switch it", gate.name),
    }));
    guard::answer(entry, variable, outcome)
}
