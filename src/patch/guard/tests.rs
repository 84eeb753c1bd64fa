use super::laws_tests::{NAME, holds};
use super::*;
use crate::patch::diff::read;

/// The hunks of a diff between two texts.
pub(super) fn hunks(old: &str, new: &str) -> Vec<Hunk> {
    let patch = diffy::create_patch(old, new).to_string();
    let diff = read(&patch.replace("--- original", "--- a/a.py").replace("+++ modified", "+++ b/a.py"));
    assert_eq!(diff.remarks, []);
    diff.files.into_iter().flat_map(|file| file.hunks).collect()
}

fn guarded(old: &str, new: &str) -> Result<Guarded, Refusal> {
    guard(new, &hunks(old, new).iter().collect::<Vec<_>>(), NAME)
}

/// Both files are given within a function; what comes out is its body.
fn check(old: &str, new: &str, expect: &str) {
    let file = |body: &str| {
        let body = body.lines().fold(String::new(), |out, row| out + "    " + row + "\n");
        format!("import os\n\n\ndef f(x):\n{body}")
    };
    let (old, new, expect) = (file(old), file(new), file(expect));
    let found = guarded(&old, &new).unwrap_or_else(|refusal| panic!("{refusal}\n{new}"));
    assert_eq!(found.text, expect, "\n{}", found.text);
    holds(&old, &new, &found);
}

#[test]
fn whole_statements_stand_under_the_variable() {
    let on = "if os.environ.get(\"PATCHBENCH_P\", \"1\") == \"1\":";
    let off = "if os.environ.get(\"PATCHBENCH_P\", \"1\") != \"1\":";
    check("a(1)\nb()", "a(2)\nb()", &format!("{on}\n    a(2)\nelse:\n    a(1)\nb()"));
    check("a()\nb()", "a()\nnew()\nb()", &format!("a()\n{on}\n    new()\nb()"));
    check("a()\nold()\nb()", "a()\nb()", &format!("a()\n{off}\n    old()\nb()"));
    // A line within brackets is part of a statement.
    check(
        "a(\n    1,\n    2,\n)",
        "a(\n    1,\n    3,\n)",
        &format!("{on}\n    a(\n        1,\n        3,\n    )\nelse:\n    a(\n        1,\n        2,\n    )"),
    );
    // A condition is part of all that it decides.
    check(
        "if a:\n    b()\nc()",
        "if d:\n    b()\nc()",
        &format!("{on}\n    if d:\n        b()\nelse:\n    if a:\n        b()\nc()"),
    );
    check(
        "if a:\n    b()\nc()",
        "if a:\n    b()\nelse:\n    d()\nc()",
        &format!("{on}\n    if a:\n        b()\n    else:\n        d()\nelse:\n    if a:\n        b()\nc()"),
    );
    // What goes from one block to another is told apart where both are one.
    check(
        "for y in x:\n    a()\n    b()",
        "for y in x:\n    a()\nb()",
        &format!("{on}\n    for y in x:\n        a()\n    b()\nelse:\n    for y in x:\n        a()\n        b()"),
    );
    // The blanks of a string are part of it.
    check(
        "t = '''\n  a\n'''\nb()",
        "t = '''\n  c\n'''\nb()",
        &format!("{on}\n    t = '''\n  c\n'''\nelse:\n    t = '''\n  a\n'''\nb()"),
    );
    // Comments compute nothing.
    check("a()  # x\n# one\nb()", "a()  # x\n# two\nb()", "a()  # x\n# two\nb()");
    check(
        "match x:\n    case 1:\n        a()",
        "match x:\n    case 1:\n        b()",
        &format!("match x:\n    case 1:\n        {on}\n            b()\n        else:\n            a()"),
    );
    check("if a: b()", "if a: c()", &format!("{on}\n    if a: c()\nelse:\n    if a: b()"));
    check("a(); b()\nc()", "a(); d()\nc()", &format!("{on}\n    a(); d()\nelse:\n    a(); b()\nc()"));
    check("return 1", "return 2", &format!("{on}\n    return 2\nelse:\n    return 1"));
}

fn refuses(old: &str, new: &str, expect: &str) {
    let found = guarded(old, new).map(|found| found.text);
    let Err(refusal) = found else { panic!("not refused:\n{}", found.unwrap_or_default()) };
    assert_eq!(refusal.to_string(), expect);
}

#[test]
fn what_a_guard_cannot_keep_is_refused() {
    refuses(
        "def f(a):\n    return a\n",
        "def f(a, b=1):\n    return a\n",
        "line 1: the patch changes how `f` is defined, not only what it does",
    );
    refuses(
        "@cache\ndef f(a):\n    return a\n",
        "def f(a):\n    return a\n",
        "line 1: the patch changes how `f` is defined, not only what it does",
    );
    refuses(
        "@triton.jit\ndef kernel(a):\n    x = a\n    y = x\n",
        "@triton.jit\ndef kernel(a):\n    x = a\n    y = x + 1\n",
        "line 4: `kernel` is a kernel that is compiled, and no variable can be read in it",
    );
    refuses(
        "def body(a, BLOCK: tl.constexpr):\n    x = a\n",
        "def body(a, BLOCK: tl.constexpr):\n    x = 2 * a\n",
        "line 2: `body` is a kernel that is compiled, and no variable can be read in it",
    );
    refuses("a = 1\n", "a = (1\n", "line 1: the patched file does not parse as Python");
    refuses("a = (1\n", "a = 1\n", "line 1: the reversed file does not parse as Python");
    refuses(
        "a = 1\n",
        "from __future__ import annotations\na = 1\n",
        "line 1: an import of `__future__` holds for the whole file",
    );
}

#[test]
fn a_branch_that_is_not_taken_still_decided_what_a_name_is() {
    refuses(
        "import math\ndef f(x):\n    return math.sin(x)\n",
        "import math\ndef f(x):\n    import math\n    return math.sin(x)\n",
        "line 3: `math` is a name of its own in `f` on one side alone, and the other uses it too",
    );
    refuses(
        "def f(x):\n    a()\n",
        "def f(x):\n    a()\n    yield x\n",
        "line 3: `f` is a generator on one side alone",
    );
    refuses(
        "def f(x):\n    a()\n",
        "def f(x):\n    a()\n    global y\n    y = 1\n",
        "line 3: `global y` holds for the whole function, whichever branch it is in",
    );
    refuses(
        "def f(os):\n    a()\n",
        "def f(os):\n    b()\n",
        "line 2: `os` is a name of its own in `f`, so the guard cannot use it",
    );
    refuses(
        "import posix as os\na()\n",
        "import posix as os\nb()\n",
        "line 1: the module calls something else `os`, so a guard cannot use that name",
    );
}

/// The text of a file that is guarded, and what is remarked on.
fn file(old: &str, new: &str, expect: &str, remarks: &[&str]) {
    let found = guarded(old, new).unwrap_or_else(|refusal| panic!("{refusal}\n{new}"));
    assert_eq!(found.text, expect, "\n{}", found.text);
    assert_eq!(found.remarks.iter().map(|note| format!("{} {}", note.line, note.text)).collect::<Vec<_>>(), remarks);
}

#[test]
fn the_module_gets_what_the_guard_needs_behind_what_must_come_first() {
    let guard = "if os.environ.get(\"PATCHBENCH_P\", \"1\") == \"1\":\n    b()\nelse:\n    a()\n";
    let head = "# licence\n\"\"\"What it is.\"\"\"\n\nfrom __future__ import annotations\n\nimport torch\n\n";
    let behind = head.replace("import torch", "import os\nimport torch");
    file(&format!("{head}a()\n"), &format!("{head}b()\n"), &format!("{behind}{guard}"), &[]);
    file("a()\n", "b()\n", &format!("import os\n\n{guard}"), &[]);
    file("import os.path\na()\n", "import os.path\nb()\n", &format!("import os.path\n{guard}"), &[]);
    // One that comes too late is no help.
    file("a()\nimport os\n", "b()\nimport os\n", &format!("import os\n\n{guard}import os\n"), &[]);
    let crlf = |text: &str| text.replace('\n', "\r\n");
    file(&crlf("import os\na()\n"), &crlf("import os\nb()\n"), &crlf(&format!("import os\n{guard}")), &[]);
    let class = "class C:\n\tx = 1\n";
    let expect = "import os\n\nclass C:\n\tif os.environ.get(\"PATCHBENCH_P\", \"1\") == \"1\":\n\t\tx = 2\n\telse:\n\t\tx = 1\n";
    file(class, &class.replace('1', "2"), expect, &[]);
}

#[test]
fn what_nothing_old_can_notice_stays() {
    let old = "import os\n\nfrom a import (\n    b,\n)\n\n\ndef f(x):\n    return b(x)\n";
    let new = "import os\n\nimport math\nfrom a import (\n    b,\n    c,\n)\n\n\n@triton.jit\ndef kernel(x):\n    pass\n\n\n\
        def f(x):\n    return c(x)\n";
    let expect = new.replace(
        "    return c(x)\n",
        "    if os.environ.get(\"PATCHBENCH_P\", \"1\") == \"1\":\n        return c(x)\n    else:\n        return b(x)\n",
    );
    file(
        old,
        new,
        &expect,
        &[
            "3 the import of `math` stays: nothing else had that name",
            "4 the import of `c` stays: nothing else had that name",
            "10 the function `kernel` stays: only what the patch adds can call it",
        ],
    );
    // A name that the old file uses would mean something else.
    file(
        "import os\ndef f(x):\n    return sum(x)\n",
        "import os\nfrom a import sum\ndef f(x):\n    return sum(x)\n",
        "import os\nif os.environ.get(\"PATCHBENCH_P\", \"1\") == \"1\":\n    from a import sum\ndef f(x):\n    return sum(x)\n",
        &[],
    );
    // A method may take the place of an inherited one.
    let class = "import os\nclass C(B):\n    x = 1\n";
    let method = "\n    def f(self):\n        return 1\n";
    let under =
        "\n    if os.environ.get(\"PATCHBENCH_P\", \"1\") == \"1\":\n        def f(self):\n            return 1\n";
    file(class, &format!("{class}{method}"), &format!("{class}{under}"), &[]);
}

#[test]
fn hunks_are_found_where_later_changes_moved_them_and_else_refused() {
    let (old, new) = ("import os\na()\nb()\nc()\n", "import os\na()\nd()\nc()\n");
    let hunks = hunks(old, new);
    let moved = format!("# one\n# two\n{new}");
    let found = guard(&moved, &hunks.iter().collect::<Vec<_>>(), NAME).unwrap();
    holds(old, new, &found);
    let check = |text: &str, expect: &str| {
        assert_eq!(guard(text, &hunks.iter().collect::<Vec<_>>(), NAME).unwrap_err().to_string(), expect);
    };
    check(old, "line 1: the file in the checkout does not have the lines of the hunk, or a later change has");
    check(&format!("#\n{new}{new}"), "line 1: the lines of the hunk stand in several places of the file");
}
