//! What the model remembers: prompts, grading, running, transcripts.
//!
//! `prompts`, `grade`, `plan`, `matrix`, `window` and `diagnosis` are pure; `fit`, `pause`, `runner` and `watch` speak
//! to a server.

pub mod diagnosis;
mod dice;
pub mod fit;
pub mod grade;
pub mod matrix;
pub mod pause;
pub mod plan;
pub mod prompts;
pub mod runner;
pub mod transcript;
pub mod trial;
pub mod watch;
pub mod window;
mod words;
