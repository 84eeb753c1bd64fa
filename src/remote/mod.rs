//! Hosts and the servers on them: reading processes and scripts, and changing a server with proof.
//!
//! `proc`, `argv`, `levels`, `script` and `shell_text` are pure. `local` reads this machine, `http` asks
//! the server. `procedures` plans a change as plain data, `execute` runs it, `prove` gathers the
//! evidence of a start. `host` is the way to this machine or another, `probe` one look at it.

pub mod argv;
mod container_options;
mod container_text;
pub mod environment;
pub mod execute;
pub mod ground;
pub mod host;
pub mod http;
pub mod lease;
pub mod leases;
pub mod levels;
pub mod local;
pub mod machine;
pub mod owner;
pub mod probe;
pub mod proc;
pub mod procedures;
pub mod prove;
pub(crate) mod router;
pub mod script;
mod shell_text;
pub(crate) mod source;
mod unit_text;
pub mod watch;

pub use procedures::Folders;
pub use shell_text::MARK;
