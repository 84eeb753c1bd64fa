//! Patchbench finds which patch, flag or environment variable makes a model server answer wrongly.
//!
//! This file is the map of the modules.
//! The pure core (`engine::{command, event, state, update}`, `stats`, `isolate`, `recall::grade`, …)
//! decides; the modules that touch the world are listed in `tidy.toml`; `ui` and `cli` only send
//! commands and show state.

pub mod case;
pub mod cli;
pub mod config;
pub mod engine;
pub mod isolate;
pub mod keep;
pub mod kernel;
pub mod lab;
pub mod notify;
pub mod patch;
pub mod paths;
pub mod recall;
pub mod redact;
pub mod remote;
pub mod report;
pub mod serving;
pub mod session;
pub mod stats;
pub mod truth;
#[cfg(feature = "tui")]
pub mod ui;
pub mod untrusted;
pub mod world;
