use serde_json::json;

use super::*;
use crate::case::LevelValue;
use crate::remote::{proc, script};

fn declared(path: &str, text: &str) -> Declared {
    script::declared(&script::parse(text).unwrap(), path, None)
}

fn layers(text: &str, environ: &[u8], line: &str, observed: &Value) -> Layers {
    let words: Vec<u8> = shlex::split(line).unwrap().iter().flat_map(|w| format!("{w}\0").into_bytes()).collect();
    Layers {
        target: "lab".into(),
        declared: Some(declared("/x/serve.sh", text)),
        replaced: None,
        process: Some((7, proc::environ(environ), proc::cmdline(&words))),
        observed: Some(Ok(("http://h:1/server_info".into(), flags::observed(observed)))),
    }
}

fn check(layers: &Layers, name: &str, status: RowStatus, note: &str) {
    let rows = rows(layers, &[]);
    let row = rows.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("no row {name}: {rows:#?}"));
    assert_eq!((row.status, row.note.as_str()), (status, note), "{row:#?}");
}

const SCRIPT: &str = "export A=1\nexport B=x\nexport B=y\nexport C=1\nexport D=$HOST_D\nexport HF_TOKEN=abc\n\
                      exec srv --tp 4 --mode fp32 --moe auto --gone 1\n";
const ENVIRON: &[u8] = b"A=1\0B=y\0C=2\0D=q\0HF_TOKEN=abc\0OTHER=1\0";
const LINE: &str = "srv --tp=4 --mode fp32 --moe auto --extra";

fn usual() -> Layers {
    let said = json!({"tp_size": 4, "mode": "bf16", "moe": "triton", "page_size": 64, "extra": true, "version": "1", "api_key": "k"});
    layers(SCRIPT, ENVIRON, LINE, &said)
}

#[test]
fn each_status_has_its_ground() {
    for (name, status, note) in [
        ("A", RowStatus::Agrees, ""),
        ("B", RowStatus::GivenTwice, "line 3 counts; line 2: `x`"),
        ("C", RowStatus::Differs, "the process has `2`"),
        ("D", RowStatus::UnknownBecause, "`HOST_D` comes from the host"),
        ("OTHER", RowStatus::OneSource, ""),
        ("--tp", RowStatus::Agrees, ""),
        ("--mode", RowStatus::Differs, "started with `fp32`, the server says `bf16`"),
        ("--moe", RowStatus::OverriddenBy, "the server resolved `auto` to `triton`"),
        ("--gone", RowStatus::Differs, "the process has absent"),
        ("--extra", RowStatus::Agrees, ""),
        ("--page-size", RowStatus::OneSource, "default in effect"),
        ("version", RowStatus::OneSource, ""),
    ] {
        check(&usual(), name, status, note);
    }
}

#[test]
fn disagreements_come_first_and_secrets_never() {
    let rows = rows(&usual(), &[]);
    let trouble = |r: &Row| r.status.min(RowStatus::OneSource);
    assert!(rows.windows(2).all(|w| trouble(&w[0]) <= trouble(&w[1])));
    let json = serde_json::to_string(&rows).unwrap();
    assert!(!json.contains("abc") && !json.contains("\"k\""), "{json}");
}

#[test]
fn an_overwritten_environment_is_never_a_disagreement() {
    let mut layers = usual();
    layers.process = Some((7, proc::environ(&[0; 90]), proc::cmdline(b"sglang::scheduler_TP0\0\0\0\0")));
    for row in rows(&layers, &[]).iter().filter(|r| r.declared.is_some()) {
        assert_eq!(row.status, RowStatus::UnknownBecause, "{row:#?}");
        assert!(row.effective.as_ref().is_some_and(|e| e.value.is_none() && e.known != Known::Yes));
    }
}

#[test]
fn an_override_explains_what_it_changes() {
    let mut layers = layers("export A=1\nsrv --mode fp32 --x 1\n", b"Q=1\0", "srv --mode bf16", &json!({}));
    layers.replaced = Some(("/o.sh".into(), declared("/o.sh", "export A=1\nunset A\nsrv --mode bf16\n")));
    check(&layers, "A", RowStatus::OverriddenBy, "absent by /o.sh line 2");
    check(&layers, "--mode", RowStatus::OverriddenBy, "`bf16` by /o.sh line 3");
    check(&layers, "--x", RowStatus::OverriddenBy, "absent by /o.sh");
}

#[test]
fn a_target_that_is_down_keeps_its_rows() {
    let layers = Layers { process: None, observed: None, ..usual() };
    let rows = rows(&layers, &[]);
    assert!(rows.iter().any(|r| r.name == "A") && rows.iter().all(|r| r.effective.is_none()));
}

#[test]
fn a_patch_has_its_row_even_where_nothing_sets_it() {
    let levels = BTreeMap::from([("on".into(), LevelValue::Set("1".into())), ("off".into(), LevelValue::Unset)]);
    let patch = Patch {
        id: "p".into(),
        title: String::new(),
        site: None,
        targets: Vec::new(),
        phases: Vec::new(),
        layers: None,
        gate: Gate::Env { name: "PB".into(), levels },
        suspect: "on".into(),
        changes: BTreeMap::new(),
        microtest: None,
        requires: Vec::new(),
        excludes: Vec::new(),
    };
    let rows = rows(&usual(), &[&patch]);
    let row = rows.iter().find(|r| r.name == "PB").unwrap();
    assert_eq!((row.status, row.note.as_str()), (RowStatus::OneSource, "not set"));
    assert_eq!(row.effective.as_ref().unwrap().known, Known::Yes);
}
