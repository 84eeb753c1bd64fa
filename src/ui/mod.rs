//! The workbench on the screen: it sends commands and shows the state.
//!
//! Only this module names a terminal library.
//! `App` holds what a person is looking at (focus, filters, open layers); what is known lives in the
//! engine's `State`, and nothing here changes it.

pub mod action;
pub mod app;
pub mod derived;
pub mod keymap;
pub mod layer;
pub mod layout;
pub mod live;
pub mod next;
pub mod pane;
pub mod run;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod widget;
