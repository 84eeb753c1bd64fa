use super::*;
use crate::truth::{RowStatus, ServerStatus};

fn claim(value: Option<&str>) -> Claim {
    Claim { value: value.map(Untrusted::from), known: Known::Yes, source: "s".into(), line: None, blind_to: None }
}

fn unknown(because: &str) -> Claim {
    Claim { known: Known::Unknown { because: because.into() }, ..claim(None) }
}

fn row(kind: RowKind, name: &str, declared: Option<Claim>, effective: Option<Claim>, observed: Option<Claim>) -> Row {
    Row {
        target: "t".into(),
        component: "server".into(),
        name: name.into(),
        kind,
        declared,
        effective,
        observed,
        status: RowStatus::OneSource,
        note: String::new(),
    }
}

fn truth(rows: Vec<Row>) -> TargetTruth {
    TargetTruth {
        target: "t".into(),
        at: "2026-06-18T11:02:15Z".parse().unwrap(),
        status: ServerStatus::Ready,
        process: None,
        rows,
        processes: Vec::new(),
        levels: BTreeMap::new(),
        level_sources: BTreeMap::new(),
        served: crate::truth::Served::default(),
        diagnostics: Vec::new(),
    }
}

fn env(name: &str, value: Option<&str>) -> Row {
    row(RowKind::Env, name, None, Some(claim(value)), None)
}

fn flag(name: &str, value: &str) -> Row {
    row(RowKind::Flag, name, None, Some(claim(Some(value))), Some(claim(Some(value))))
}

fn names(rows: &[DiffRow]) -> Vec<(&str, &Difference)> {
    rows.iter().map(|r| (r.name.as_str(), &r.difference)).collect()
}

#[test]
fn prefill_and_decode_differ_where_they_should_and_where_they_should_not() {
    let prefill = truth(vec![
        env("X", Some("1")),
        env("CUDA_VISIBLE_DEVICES", Some("0,1")),
        env("ONLY", Some("1")),
        flag("--tp", "4"),
        flag("--port", "30001"),
        flag("--disaggregation-mode", "prefill"),
        flag("--moe-runner-backend", "triton"),
    ]);
    let decode = truth(vec![
        env("X", None),
        env("CUDA_VISIBLE_DEVICES", Some("2,3")),
        env("OTHER", Some("1")),
        flag("--tp-size", "4"),
        flag("--port", "30002"),
        flag("--disaggregation-mode", "decode"),
        flag("--moe-runner-backend", "auto"),
    ]);
    let expected = |because: &str| Difference::Expected { because: because.into() };
    let rows = diff(&prefill, &decode);
    assert_eq!(
        names(&rows),
        [
            ("X", &Difference::Differs),
            ("--moe-runner-backend", &Difference::Differs),
            ("ONLY", &Difference::OnlyLeft),
            ("OTHER", &Difference::OnlyRight),
            ("CUDA_VISIBLE_DEVICES", &expected("each server has its own cards")),
            ("--disaggregation-mode", &expected("it is the role")),
            ("--port", &expected("each server has its own port")),
        ]
    );
    assert_eq!((rows[0].left.as_ref().unwrap().raw(), rows[0].right.as_ref()), ("1", None));
    assert_eq!(rows[1].layer, Some(Layer::Observed));
    assert!(diff(&decode, &decode).is_empty());
}

#[test]
fn what_is_unknown_on_a_side_is_no_difference() {
    let because = |why: &str| Difference::Unknown { because: why.into() };
    let read = truth(vec![env("X", Some("1")), env("ONLY", Some("1")), flag("--tp", "4")]);
    let wiped = truth(vec![
        row(RowKind::Env, "X", Some(claim(Some("0"))), Some(unknown("overwritten")), None),
        flag("--tp", "4"),
    ]);
    for rows in [diff(&read, &wiped), diff(&wiped, &read)] {
        let mut names = names(&rows);
        names.sort_by_key(|(name, _)| *name);
        assert_eq!(names, [("ONLY", &because("overwritten")), ("X", &because("overwritten"))]);
    }
}

#[test]
fn like_is_compared_with_like() {
    // One side has only its file, so that the file of the other counts too.
    let up = truth(vec![row(RowKind::Flag, "--a", Some(claim(Some("1"))), Some(claim(Some("2"))), None)]);
    let down = truth(vec![row(RowKind::Flag, "--a", Some(claim(Some("1"))), None, None)]);
    assert!(diff(&up, &down).is_empty());
    let told = truth(vec![row(RowKind::Config, "a", None, None, Some(claim(Some("1"))))]);
    let rows = diff(&down, &told);
    assert_eq!(rows.len(), 1);
    assert!(matches!(rows[0].difference, Difference::Unknown { .. }), "{rows:#?}");
}

#[test]
fn spellings_of_a_value_are_no_difference() {
    let a = truth(vec![flag("--mem", "0.85"), flag("--bs", "{\"a\":1}")]);
    let b = truth(vec![flag("--mem", "0.850"), flag("--bs", "{\"a\": 1}")]);
    assert!(diff(&a, &b).is_empty());
}
