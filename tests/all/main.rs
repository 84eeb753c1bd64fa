//! The tests from outside, as one program: each would build and link the same libraries once more.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a skip is found in the output")]

mod activations;
mod agreement;
mod artefacts;
mod changes_host;
mod checkpoint;
mod cli;
mod common;
mod containers;
mod decide;
mod e2e;
mod kernels;
#[cfg(feature = "tui")]
mod kernels_pane;
#[cfg(feature = "tui")]
mod keys;
mod lab_source;
mod patches;
#[cfg(feature = "tui")]
mod patches_pane;
mod pd;
#[cfg(feature = "tui")]
mod pty;
mod queue;
mod replay;
#[cfg(feature = "tui")]
mod sample;
#[cfg(feature = "tui")]
mod screens;
mod sglang_wheels;
mod ssh;
mod systemd_host;
mod tidy;
#[cfg(feature = "tui")]
mod workbench;
