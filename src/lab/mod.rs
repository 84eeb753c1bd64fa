//! The lab: a small real transformer, and a real HTTP server over it that speaks `SGLang`'s endpoints.
//!
//! Responsible for everything that runs in the lab server's process, and for installing a lab.
//! Not responsible for investigating it: the workbench treats it as any other server and never
//! reads a scenario.

pub mod cache;
pub mod install;
mod log;
pub mod model;
pub mod router;
pub mod scenario;
pub mod scheduler;
pub mod server;
pub mod source;
pub mod transfer;

pub use install::{InstallError, Installed, install};
pub use server::{ServeArgs, ServeError, serve};
