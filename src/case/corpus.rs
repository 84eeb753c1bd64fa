//! Runs the corpora of valid and invalid cases under `tests/configs/case`.
//!
//! The first lines of an invalid case say what must be said: `# expect: CODE LINE MESSAGE-PART`.
//! Of a valid case, `# expect: CODE` names a remark that is allowed.

use std::path::{Path, PathBuf};

use super::{Gate, LevelValue, Manager, read, read_file};
use crate::engine::diagnostic::Severity;

fn files(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs/case").join(kind);
    let mut files: Vec<PathBuf> = fs_err::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 3);
    files
}

fn expectations(text: &str) -> Vec<String> {
    text.lines().filter_map(|l| l.strip_prefix("# expect: ")).map(str::to_owned).collect()
}

#[test]
fn valid_cases_are_read() {
    for path in files("valid") {
        let text = fs_err::read_to_string(&path).unwrap();
        let (case, remarks) = read_file(&path);
        assert!(case.is_some(), "{}: {remarks:#?}", path.display());
        let codes: Vec<String> = remarks.iter().map(|d| d.code.clone()).collect();
        assert_eq!(codes, expectations(&text), "{}", path.display());
        let case = case.unwrap();
        let json = serde_json::to_string(&case).unwrap();
        assert_eq!(serde_json::from_str::<super::Case>(&json).unwrap(), case, "{}", path.display());
    }
}

#[test]
fn invalid_cases_are_explained() {
    for path in files("invalid") {
        let bytes = fs_err::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let (case, remarks) = read_file(&path);
        let shown = path.display();
        assert!(case.is_none(), "{shown} was accepted");
        let errors: Vec<_> = remarks.iter().filter(|d| d.severity == Severity::Error).collect();
        let expected = expectations(&text);
        assert_eq!(errors.len(), expected.len(), "{shown}: {errors:#?}");
        for (error, expect) in errors.iter().zip(&expected) {
            let mut parts = expect.splitn(3, ' ');
            let (code, line, part) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            assert_eq!(error.code, code, "{shown}: {error:#?}");
            let place = if line == "-" { format!("{shown}") } else { format!("{shown}:{line}") };
            assert_eq!(error.place.as_deref(), Some(place.as_str()), "{shown}: {error:#?}");
            let said = format!("{} ({})", error.message, error.hint.as_deref().unwrap_or("NO HINT"));
            assert!(said.contains(part), "{shown}: {said}");
            assert!(error.hint.is_some() && !error.message.ends_with('.'), "{shown}: {error:#?}");
        }
    }
}

#[test]
fn missing_and_foreign_files() {
    let folder = tempfile::tempdir().unwrap();
    let (case, remarks) = read_file(&folder.path().join("none.toml"));
    assert!(case.is_none());
    assert_eq!(remarks[0].code, "case-missing");
    fs_err::write(folder.path().join("latin.toml"), b"name = \"x\"\n# caf\xe9\n").unwrap();
    let (case, remarks) = read_file(&folder.path().join("latin.toml"));
    assert!(case.is_none());
    assert_eq!((remarks[0].code.as_str(), remarks[0].message.as_str()), ("case-not-utf8", "line 2 is not UTF-8"));
}

fn one_patch(gate: &str) -> Gate {
    let text = format!(
        "name = \"x\"\n[[target]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\nmanager = {{ docker = \"d\" }}\n\
         [[patch]]\nid = \"p\"\nsuspect = \"a\"\ngate = {gate}\n"
    );
    let (case, remarks) = read(&text, "case.toml");
    case.unwrap_or_else(|| panic!("{remarks:?}")).patches.remove(0).gate
}

#[test]
fn level_values_of_every_form() {
    let set = |s: &str| LevelValue::Set(s.to_owned());
    for (gate, expect) in [
        ("{ env = \"X\", levels = { a = \"1\", b = 0 } }", [set("1"), set("0")]),
        ("{ env = \"X\", levels = { a = true, b = 0.5 } }", [set("true"), set("0.5")]),
        ("{ env = \"X\", levels = { a = { set = \"\" }, b = { unset = true } } }", [set(""), LevelValue::Unset]),
        ("{ flag = \"--x\", levels = { a = true, b = false } }", [set(""), LevelValue::Unset]),
        ("{ flag = \"--x\", levels = { a = \"bf16\", b = \"fp32\" } }", [set("bf16"), set("fp32")]),
    ] {
        let read = one_patch(gate);
        let levels = read.levels().unwrap();
        assert_eq!([levels["a"].clone(), levels["b"].clone()], expect, "{gate}");
    }
    assert_eq!(one_patch("\"none\""), Gate::None);
}

#[test]
fn relative_paths_start_at_the_case() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = \"x\"\n[[target]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n\
                manager = { script = \"run/serve.sh\", log = \"/var/log/s.log\" }\n";
    fs_err::write(folder.path().join("case.toml"), text).unwrap();
    let (case, _) = read_file(&folder.path().join("case.toml"));
    let target = case.unwrap().targets.remove(0);
    let script = folder.path().join("run/serve.sh").display().to_string();
    assert_eq!(target.launch_script.as_deref(), Some(script.as_str()));
    assert_eq!(target.manager, Manager::Script { script, log: "/var/log/s.log".into() });
}
