//! Patches that only their source switches: their diff is taken out of a copy of the package, and one server is told by
//! `PYTHONPATH` to import the copy. The checkout itself is only read.
//!
//! `reversal` reads a diff, `tree` names a copy, `text` builds the shell texts, `look` asks a host how the checkout
//! stands, `imported` whether a process took a file of a copy. The steps of a change are `remote::procedures::source`.
//! Not responsible for sources within a container.

pub(crate) mod imported;
pub(crate) mod look;
pub(crate) mod reversal;
pub(crate) mod text;
pub(crate) mod tree;

use crate::case::{Gate, Manager, Patch, Target};
use crate::engine::procedure::Failure;

/// The variable that puts a copy in front of what the server would import.
pub(crate) const SEARCH_PATH: &str = "PYTHONPATH";
/// The level of a patch whose diff the source has.
pub(crate) const IN: &str = "on";
/// The level of a patch whose diff is taken out.
pub(crate) const OUT: &str = "off";

/// The patches of a target that its source alone switches.
pub(crate) fn of_source<'p>(patches: &[&'p Patch]) -> Vec<&'p Patch> {
    patches.iter().copied().filter(|p| matches!(p.gate, Gate::Reverse { .. })).collect()
}

/// Why the source of a target cannot be switched, as the case alone tells; `None` where it can be tried.
pub(crate) fn obstacle(target: &Target) -> Option<Failure> {
    if matches!(target.manager, Manager::Docker { .. }) {
        return Some(
            Failure::new(format!("`{}` runs in a container, whose source is not switched", target.name))
                .hint("build an image without the patch, or give the patch a variable: `patchbench patches guard`"),
        );
    }
    if target.checkout.is_none() {
        return Some(
            Failure::new(format!("the case names no `checkout` of `{}`", target.name))
                .hint("add `checkout = \"…\"`, the folder on its host that the server imports from"),
        );
    }
    None
}
