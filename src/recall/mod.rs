//! What the model remembers: prompts, grading, running, transcripts.

pub mod trial;
