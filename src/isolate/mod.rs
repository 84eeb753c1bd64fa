//! Which patch is guilty: arms, verdicts, and the next step of the search.
//!
//! Pure: it reads trials and boots, and says what to run next or what is proven.

pub mod arms;
pub mod estimate;
pub mod evidence;
pub mod exit;
pub mod fake;
pub mod judge;
mod phases;
pub mod plan;
mod run;
pub mod search;
pub mod simulate;
pub mod verdict;
mod words;

#[cfg(test)]
mod with_engine;
