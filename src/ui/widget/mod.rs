//! Pieces of screen that know nothing of patches or servers: lists, tables, curves, bars.

pub mod bar;
pub mod curve;
pub mod list;
pub mod table;
