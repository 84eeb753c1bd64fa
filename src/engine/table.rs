//! The command table: every action of the program stands here once.
//!
//! Keys, palette, help, the README table and the generated docs come from it.
//! Keys are strings here; only `ui` knows what a key is.

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name as it is typed in the palette, in a keymap and in a script: `toggle`, `focus-next`.
    pub name: &'static str,
    /// Arguments, in order, as shown in help: `PATCH[@TARGET]`, `[LEVEL]`; square brackets are optional,
    /// `…` repeats. Without arguments, an action works on what is marked, else on what is selected.
    pub args: &'static [&'static str],
    /// One line, lower case, no full stop.
    pub doc: &'static str,
    /// Default keys; a sequence is written with spaces: `g g`. A digit is passed on as the argument.
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

const fn ui(
    name: &'static str,
    args: &'static [&'static str],
    keys: &'static [&'static str],
    doc: &'static str,
) -> Entry {
    Entry { name, args, doc, keys, destructive: false, scope: Scope::Global }
}

const fn list(name: &'static str, keys: &'static [&'static str], doc: &'static str) -> Entry {
    Entry { name, args: &[], doc, keys, destructive: false, scope: Scope::List }
}

const fn in_list(
    name: &'static str,
    args: &'static [&'static str],
    keys: &'static [&'static str],
    doc: &'static str,
) -> Entry {
    Entry { name, args, doc, keys, destructive: false, scope: Scope::List }
}

const fn change(
    name: &'static str,
    args: &'static [&'static str],
    keys: &'static [&'static str],
    doc: &'static str,
) -> Entry {
    Entry { name, args, doc, keys, destructive: true, scope: Scope::Global }
}

/// All actions: first those that reach the engine, then those of the screen.
pub const TABLE: &[Entry] = &[
    change(
        "toggle",
        &["[PATCH[@TARGET]]", "[LEVEL]"],
        &["t"],
        "set a patch to another level by restarting its targets",
    ),
    change("restart", &["[TARGET]", "[PATCH=LEVEL]…"], &["R"], "start or restart a target, with levels if stated"),
    change("stop", &["TARGET"], &[], "stop a target"),
    change("restore", &["[TARGET]"], &["U"], "put a target, or all, back to its own configuration"),
    change("elevate", &["TARGET", "MIN"], &[], "allow changes of a production target for so many minutes"),
    ui("recall", &["[--lengths N,…]", "[--repeats N]"], &["r"], "run recall trials against the servers as they are"),
    ui("import-patches", &["FILE|RANGE", "[TARGET]"], &[], "read a diff, or commits of a checkout, into the patches"),
    in_list(
        "merge-patches",
        &["[ID,ID…]", "TITLE"],
        &["M"],
        "in patches: put the marked imported patches together under a title",
    ),
    in_list(
        "split-patch",
        &["[ID]", "file|function|hunk"],
        &["D"],
        "in patches: divide an imported patch by file, function or hunk",
    ),
    in_list(
        "phases",
        &["[ID]", "PHASE,…|none"],
        &["e"],
        "in patches: say which phases a patch reaches, in place of what was read",
    ),
    in_list("gate", &["[ID]", "GATE|as-read"], &["W"], "in patches: say how a patch of the case is switched"),
    in_list("patch-note", &["[ID]", "TEXT|none"], &["E"], "in patches: write a note on a patch, or take it back"),
    ui("micro", &["[SPEC]", "[--device DEVICE]"], &["m"], "run a microtest of a kernel's arithmetic"),
    ui("micro-cards", &["[SPEC]"], &["K"], "run a microtest with real kernels on every card of this machine"),
    change("isolate", &["[PATCH,…]"], &["i"], "find the guilty patch: anchors, single patches, acquittals"),
    ui("stop-isolation", &[], &[], "stop the search; trials and verdicts so far stay"),
    ui("probe", &["[TARGET]"], &["P"], "read what a target, or each, really runs with"),
    ui(
        "believe",
        &["PATCH", "SAYS;", "EVIDENCE", "[;WHY]"],
        &[],
        "write down what is believed of a patch, on what evidence, and why no more what was believed before",
    ),
    ui("note", &["[TEXT]"], &["N"], "write a note into the journal"),
    ui("snapshot", &["[NAME]"], &["s"], "name this point of the session"),
    ui("cancel", &["[JOB]"], &["c"], "cancel a job: the selected one, else the only one that runs"),
    change(
        "confirm",
        &["PROCEDURE", "[TARGET]"],
        &[],
        "run a planned change; on production the target's name is typed",
    ),
    ui("discard", &["PROCEDURE"], &[], "drop a planned change"),
    change("resume-procedure", &["PROCEDURE"], &[], "finish a half-done change"),
    change("undo-procedure", &["PROCEDURE"], &[], "take a half-done or done change back"),
    change("queue", &["COMMAND…"], &[], "run a command once the change that runs has ended well"),
    ui("unqueue", &["QUEUED"], &[], "take a command out of the queue; `cancel` on it in the jobs does the same"),
    ui("propose", &["COMMAND…"], &[], "ask the driver to run a command"),
    change("approve", &["PROPOSAL"], &[], "do what a watcher proposed"),
    ui("reject", &["PROPOSAL"], &[], "decline what a watcher proposed"),
    change(
        "end-state",
        &["original|best-known|stated PATCH=LEVEL…"],
        &[],
        "choose what stays when the investigation ends",
    ),
    ui("help", &[], &["?"], "explain where you are and what each key does here"),
    ui("palette", &[], &[":"], "type a command"),
    ui("focus", &["NUMBER|PANE"], &["1", "2", "3", "4", "5", "6", "7", "8", "9"], "go to a pane"),
    ui("focus-next", &[], &["tab"], "go to the next pane"),
    ui("focus-previous", &[], &["backtab"], "go to the previous pane"),
    ui("focus-left", &[], &["shift-left"], "go to the pane on the left"),
    ui("focus-right", &[], &["shift-right"], "go to the pane on the right"),
    ui("focus-up", &[], &["shift-up"], "go to the pane above"),
    ui("focus-down", &[], &["shift-down"], "go to the pane below"),
    ui("zoom", &[], &["z"], "give the whole screen to this pane, or take it back"),
    ui("next-layout", &[], &["L"], "show the next layout"),
    ui("layout", &["NAME"], &[], "show a layout"),
    ui("theme", &["[NAME]"], &["T"], "show the next theme, or the named one"),
    ui("freeze", &[], &["p"], "hold the screen still while the engine goes on, or let it go"),
    ui("redraw", &[], &["ctrl-l"], "draw the whole screen again"),
    ui("quit", &[], &["q", "ctrl-c"], "leave the workbench; asks while a server is changed"),
    ui("unfold", &[], &["ctrl-e"], "in the question about a change: show every command, or fold them again"),
    ui("back", &[], &["esc"], "close what is open: layer, zoom, filter, marks"),
    list("down", &["j", "down"], "next row"),
    list("up", &["k", "up"], "previous row"),
    list("left", &["h", "left"], "in kernels: move the cursor to the left"),
    list("right", &["l", "right"], "in kernels: move the cursor to the right"),
    list("page-down", &["pagedown", "ctrl-d"], "one page down"),
    list("page-up", &["pageup", "ctrl-u"], "one page up"),
    list("first", &["home", "g g"], "first row"),
    list("last", &["end", "G"], "last row, and follow new ones"),
    list("open", &["enter"], "show all that is known of the selected row"),
    list("transcript", &["o"], "in recall: show the whole conversation of the selected trial"),
    list("mark", &["space"], "mark or unmark the selected row"),
    list("filter", &["/"], "show matching rows only; a leading ! inverts"),
    list("filter-invert", &["!"], "invert the filter"),
    list("next-match", &["n"], "next row that matches the filter"),
    list("previous-match", &["#"], "previous row that matches the filter"),
    list("copy", &["y"], "copy the marked rows, or all of the selected one, to the clipboard"),
    in_list(
        "sort",
        &["[risk|id|verdict|state]"],
        &["S"],
        "in patches: the next order, or the named one; the title names it",
    ),
    in_list(
        "group",
        &["[none|tier|gate|file]"],
        &["B"],
        "in patches: group rows by tier, by what switches them, by file, or not",
    ),
    in_list(
        "view",
        &["[per-site|compounded|single-injection|histogram|heat|tables]"],
        &["w"],
        "in kernels: the next view of the microtest, or the named one",
    ),
    in_list("candidate", &["[NAME]"], &["a"], "in kernels: choose the next candidate, or the named one"),
    in_list("hide", &["[NAME]"], &["x"], "in kernels: hide the chosen or the named candidate, or show it again"),
    list("show-all", &["X"], "in kernels: show all candidates"),
    list("closer", &["+", "="], "in kernels: show half as many points, around the cursor"),
    list("wider", &["-"], "in kernels: show twice as many points"),
    list("overlay", &["O"], "in kernels: lay other devices and earlier runs over the curves, or take them away"),
    list("scope", &["v"], "in recall: count the trials of the running boots, or all of them"),
];

/// The action of that name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|e| e.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_keys_are_unique() {
        let names: BTreeSet<_> = TABLE.iter().map(|e| e.name).collect();
        assert_eq!(names.len(), TABLE.len());
        let keys: Vec<_> = TABLE.iter().flat_map(|e| e.keys).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }

    #[test]
    fn docs_are_one_lower_case_line_without_full_stop() {
        for e in TABLE {
            assert!(e.doc.chars().next().is_some_and(char::is_lowercase), "{}", e.name);
            assert!(!e.doc.ends_with('.') && !e.doc.contains('\n'), "{}", e.name);
            assert!(e.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", e.name);
        }
    }

    #[test]
    fn keys_promised_in_the_contract_are_there() {
        let promised = [
            ("?", "help"),
            (":", "palette"),
            ("/", "filter"),
            ("n", "next-match"),
            ("#", "previous-match"),
            ("space", "mark"),
            ("t", "toggle"),
            ("m", "micro"),
            ("r", "recall"),
            ("R", "restart"),
            ("i", "isolate"),
            ("s", "snapshot"),
            ("N", "note"),
            ("y", "copy"),
            ("p", "freeze"),
            ("q", "quit"),
            ("z", "zoom"),
            ("L", "next-layout"),
        ];
        for (key, name) in promised {
            assert!(entry(name).unwrap().keys.contains(&key), "{name} lacks {key}");
        }
    }

    #[test]
    fn what_changes_a_host_is_marked() {
        for name in ["toggle", "restart", "stop", "restore", "isolate", "confirm", "undo-procedure", "end-state"] {
            assert!(entry(name).unwrap().destructive, "{name}");
        }
        assert!(!entry("recall").unwrap().destructive);
    }
}
