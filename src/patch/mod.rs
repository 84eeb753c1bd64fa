//! Placeholder, filled by the next change.
