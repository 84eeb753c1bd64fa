//! What was found, as files for people and programs: pictures and tables.
//!
//! Responsible for turning a report into bytes of a format. Not responsible for what a picture shows, which is
//! `kernel::figure`, nor for where a file goes.

pub mod csv;
pub mod plot;
