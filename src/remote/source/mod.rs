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

/// The variable that puts a copy in front of what the server would import.
pub(crate) const SEARCH_PATH: &str = "PYTHONPATH";
