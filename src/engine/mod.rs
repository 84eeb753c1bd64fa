//! The loop: inputs become events and effects, events change the state, effects become jobs.
//!
//! `command`, `event`, `state`, `update` are pure; `runtime` owns the state, the journal and the jobs.
//! The engine knows no terminal and needs none.

pub mod apply;
pub mod command;
pub mod coupling;
mod decide;
pub mod diagnostic;
pub mod drive;
pub mod effect;
pub mod event;
pub mod fake;
pub mod ids;
pub mod input;
pub mod job;
pub mod live;
pub mod patches;
pub mod procedure;
pub mod queue;
pub mod runtime;
pub mod state;
pub mod table;
pub mod timeline;
pub mod update;
