//! Tests of symbols and masks, on whole files and on what a hunk shows.

use proptest::prelude::*;

use super::{Language, Source};

fn check_symbol(language: Language, text: &str, symbols: &[(u32, Option<&str>)]) {
    let source = Source::whole(language, text).unwrap();
    for (line, symbol) in symbols {
        assert_eq!(source.symbol(*line).as_deref(), *symbol, "line {line} of\n{text}");
    }
}

fn check_fragment(language: Language, section: &str, first: u32, text: &str, symbols: &[(u32, Option<&str>)]) {
    let lines: Vec<(u32, &str)> = (first..).zip(text.lines()).collect();
    let source = Source::fragment(language, &lines, section).unwrap();
    for (line, symbol) in symbols {
        assert_eq!(source.symbol(*line).as_deref(), *symbol, "line {line} after {section:?} of\n{text}");
    }
}

#[test]
fn languages_by_name() {
    let cases = [
        ("a/b.py", Some(Language::Python)),
        ("csrc/k.cuh", Some(Language::Cuda)),
        ("k.CU", Some(Language::Cuda)),
        ("run dsv4.sh", Some(Language::Bash)),
        ("a.py/readme", None),
        ("py", None),
        ("perf.png", None),
    ];
    for (path, language) in cases {
        assert_eq!(Language::of_path(path), language, "{path}");
    }
}

#[test]
fn symbols_of_whole_files() {
    check_symbol(
        Language::Python,
        "import os\n\nclass A(B):\n    x = 1\n\n    @jit(\n        fast=True)\n    async def f(self):\n        def g():\n            return 1\n        return g\n\ndef h(): pass\n",
        &[
            (1, None),
            (3, Some("A")),
            (4, Some("A")),
            (6, Some("A.f")),
            (7, Some("A.f")),
            (8, Some("A.f")),
            (10, Some("A.f.g")),
            (11, Some("A.f")),
            (13, Some("h")),
            (99, None),
        ],
    );
    check_symbol(
        Language::Cuda,
        "namespace n {\ntemplate <typename T>\n__global__ void k(const T* x) {\n  x[0];\n}\nstruct S {\n  int f() { return 1; }\n};\n}\nvoid S::g() {\n  h();\n}\n#define X 1\n",
        &[(4, Some("k")), (7, Some("S::f")), (11, Some("S::g")), (13, None)],
    );
    check_symbol(
        Language::Bash,
        "a=1\nstart() {\n  run\n}\nfunction stop {\n  halt\n}\n",
        &[(1, None), (3, Some("start")), (6, Some("stop"))],
    );
}

#[test]
fn symbols_of_hunks() {
    let class = "class Layer(nn.Module):";
    check_fragment(
        Language::Python,
        class,
        10,
        "    def f(self):\n        a = 1\n        return a\n",
        &[(10, Some("Layer.f")), (11, Some("Layer.f"))],
    );
    check_fragment(
        Language::Python,
        class,
        10,
        "        a = 1\n        return a\n\n    def f(self):\n        b\n",
        &[(10, Some("Layer")), (14, Some("Layer.f"))],
    );
    check_fragment(Language::Python, "def f(self, x,", 10, "        a = 1\n        b\n", &[(11, Some("f"))]);
    check_fragment(Language::Python, "def f(x):", 10, "    return x\n\n\nA = 1\n", &[(10, Some("f")), (13, None)]);
    check_fragment(Language::Python, "def f(x):", 10, "A = 1\n", &[(10, None)]);
    check_fragment(Language::Python, "", 10, "        a = 1\n", &[(10, None)]);
    check_fragment(Language::Python, "", 1, "@triton.jit\ndef k(x):\n    y = x\n", &[(1, Some("k")), (3, Some("k"))]);
    check_fragment(Language::Cuda, "__global__ void k(float* x)", 5, "  x[0] += 1;\n  if (y) {\n", &[(5, Some("k"))]);
    check_fragment(Language::Cuda, "if (a) {", 5, "  x[0] += 1;\n", &[(5, None)]);
    check_fragment(Language::Bash, "function start {", 5, "  run\n", &[(5, Some("start"))]);
}

#[test]
fn comments_and_strings_are_no_code() {
    let text = "x = a.float()  # .half()\ny = \"topk\"\n\"\"\"mask\nscale\"\"\"\nz = f\"a {w.half()}\"\n";
    let source = Source::whole(Language::Python, text).unwrap();
    assert_eq!(source.code(1).unwrap().trim_end(), "x = a.float()");
    assert_eq!(source.code(2).unwrap(), "y = \"    \"");
    assert_eq!(source.words(2).unwrap(), "y = \"topk\"");
    assert_eq!((source.code(3).unwrap().trim(), source.words(4).unwrap().trim()), ("", ""));
    assert_eq!(source.code(5).unwrap(), "z = f\"  {w.half()}\"");
    let source = Source::whole(Language::Cuda, "int a; // mask\n/* topk\n*/ f(\"scale\");\n").unwrap();
    assert_eq!(source.code(1).unwrap().trim_end(), "int a;");
    assert_eq!(source.code(2).unwrap().trim(), "");
    assert_eq!(source.code(3).unwrap(), "   f(\"     \");");
    let source = Source::whole(Language::Bash, "a=1 # mask\necho 'topk'\n").unwrap();
    assert_eq!((source.code(1).unwrap().trim_end(), source.code(2).unwrap().trim_end()), ("a=1", "echo"));
}

#[test]
fn a_hunk_that_begins_in_a_docstring_is_read_as_one() {
    let lines = [(7, "    read os.environ.get('X') and"), (8, "    more.\"\"\""), (9, "    a = os.environ.get('Y')")];
    let source = Source::fragment(Language::Python, &lines, "def f():").unwrap();
    assert_eq!(source.code(7).unwrap().trim(), "");
    assert!(source.code(9).unwrap().contains("os.environ.get"));
    assert_eq!(source.line(9), Some("a = os.environ.get('Y')"), "without what all lines share");
}

#[test]
fn a_hunk_that_begins_in_brackets_is_mended() {
    let lines = [(7, "        x: int,"), (8, "    ):"), (9, "        os.environ['X'] = str(x)")];
    let source = Source::fragment(Language::Python, &lines, "class A:").unwrap();
    assert!(!source.root().has_error());
    assert_eq!((source.number(0), source.number(1), source.row(9)), (None, Some(7), Some(3)));
    assert_eq!(source.symbol(9).as_deref(), Some("A"), "the opening that was put there is no function of the file");
}

proptest! {
    #[test]
    fn any_text_is_read_and_masks_keep_columns(text in "[ -~\n\té\"'#(){}]{0,120}", first in 1..9_u32) {
        for language in [Language::Python, Language::Cuda, Language::Bash] {
            let source = Source::whole(language, &text).unwrap();
            for (row, line) in text.split('\n').enumerate() {
                let number = row as u32 + 1;
                prop_assert_eq!(source.line(number).unwrap(), line.trim_end_matches('\r'));
                prop_assert_eq!(source.code(number).unwrap().len(), line.trim_end_matches('\r').len());
                source.symbol(number);
            }
            let lines: Vec<(u32, &str)> = (first..).zip(text.split('\n')).collect();
            let source = Source::fragment(language, &lines, "class A:").unwrap();
            for (number, _) in lines {
                prop_assert!(source.line(number).is_some());
                source.symbol(number);
            }
        }
    }
}
