//! Which patch is guilty: arms, verdicts, and the next step of the search.
//!
//! Pure: it reads trials and boots, and says what to run next or what is proven.

pub mod plan;
pub mod verdict;
