//! Hosts and the servers on them: reading processes and scripts, and changing a server with proof.
//!
//! `proc`, `argv` and `script` are pure. `local` reads this machine. `procedures` plans a change as
//! plain data, `execute` runs it, `prove` gathers the evidence of a start.

pub mod argv;
pub mod local;
pub mod proc;
pub mod script;
