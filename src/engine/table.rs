//! The command table: every action of the program stands here once.
//!
//! Keys, palette, help, the README table and the generated docs come from it.
//! Keys are strings here; only `ui` knows what a key is.

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name as it is typed in the palette, in a keymap and in a script: `toggle`, `focus-next`.
    pub name: &'static str,
    /// Arguments, in order, as shown in help: `PATCH[@TARGET]`, `LEVEL`.
    pub args: &'static [&'static str],
    /// One line, lower case, no full stop.
    pub doc: &'static str,
    /// Default keys; a sequence is written with spaces: `g g`.
    pub keys: &'static [&'static str],
    /// Whether it changes something outside this program.
    pub destructive: bool,
    /// Where the keys work.
    pub scope: Scope,
}

/// Where the keys of an action work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere outside a text input.
    Global,
    /// In lists and tables.
    List,
}

/// All actions.
pub const TABLE: &[Entry] = &[
    Entry {
        name: "help",
        args: &[],
        doc: "explain where you are",
        keys: &["?"],
        destructive: false,
        scope: Scope::Global,
    },
    Entry {
        name: "quit",
        args: &[],
        doc: "leave the workbench",
        keys: &["q"],
        destructive: false,
        scope: Scope::Global,
    },
];
