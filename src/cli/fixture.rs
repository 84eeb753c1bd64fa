//! Hand-built states for the tests of the reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::case::{Case, Gate, LevelValue, Manager, Patch, Role, ServingEngine, Target};
use crate::engine::ids::{BootId, TrialId};
use crate::engine::procedure::{BootProof, ProcessKey};
use crate::engine::state::{Boot, SessionInfo, State, TargetState, TimelineEntry, TrialEntry};
use crate::isolate::verdict::{ArmCount, Finding, Subject, SubjectKind, Symptom, Verdict};
use crate::kernel::report::{CandidateVerdict, Curve, CurveMode, ErrorClass, MicroReport};
use crate::recall::trial::{FailKind, Outcome, ProbeForm, Trial, TrialKey};
use crate::truth::{Claim, Known, Row, RowKind, RowStatus, ServerStatus, TargetTruth};

/// Noon of a fixed day.
pub(crate) fn noon() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

/// A verdict with plausible counts.
pub(crate) fn verdict(id: &str, finding: Finding) -> Verdict {
    Verdict {
        subject: Subject { kind: SubjectKind::Patch, id: id.into() },
        verdict: finding,
        on: ArmCount { fail: 15, n: 24, void: 2, boots: 4 },
        off: ArmCount { fail: 1, n: 24, void: 0, boots: 4 },
        bound: Some(0.0143),
        why: "because of the numbers".into(),
        evidence: vec![7, 8],
    }
}

/// A trial of one cell.
pub(crate) fn trial(id: u64, length: u32, depth: f64, outcome: Outcome) -> TrialEntry {
    let trial = Trial {
        id: TrialId(id),
        at: noon(),
        boots: vec![BootId(1)],
        arm: BTreeMap::new(),
        factors: BTreeMap::new(),
        key: TrialKey { form: ProbeForm::Needle, length, depth, seed: id },
        prompt_tokens: Some(length),
        cached_tokens: Some(0),
        outcome,
        expected: "4711".into(),
        got: "47\u{1b}1".into(),
        first_wrong: Some(2),
        seconds: 0.5,
        transcript: None,
    };
    TrialEntry { seq: id + 10, trial: Arc::new(trial) }
}

/// A claim that was read.
pub(crate) fn claim(value: Option<&str>, source: &str, line: Option<u32>) -> Claim {
    Claim { value: value.map(Into::into), known: Known::Yes, source: source.into(), line, blind_to: None }
}

/// A microtest with a curve that is not finite.
pub(crate) fn micro(class: ErrorClass) -> MicroReport {
    let curve = |candidate: &str, rel_l2: Vec<f64>| Curve {
        candidate: candidate.into(),
        mode: CurveMode::PerSite,
        labels: vec!["layer 0 attention".into(), "layer 0 mlp".into()],
        rel_l2,
        ..Curve::default()
    };
    MicroReport {
        spec: "mhc-mix".into(),
        device: "cpu".into(),
        at: noon(),
        provenance: "weights of the lab".into(),
        shape: "2 sites".into(),
        curves: vec![curve("bf16", vec![1e-3, f64::NAN])],
        floor: vec![curve("stream", vec![2e-3, 2e-3])],
        parts: Vec::new(),
        decisions: Vec::new(),
        controls: Vec::new(),
        verdicts: vec![CandidateVerdict {
            candidate: "bf16".into(),
            class,
            says: "at most 1e-3".into(),
            does_not_show: "what the model makes of it".into(),
        }],
        seconds: 0.25,
        ..MicroReport::default()
    }
}

fn gated(id: &str, name: &str) -> Patch {
    let levels =
        BTreeMap::from([("on".to_owned(), LevelValue::Set("1".into())), ("off".to_owned(), LevelValue::Unset)]);
    Patch {
        id: id.into(),
        title: format!("patch {id}"),
        site: Some("indexer.py".into()),
        targets: vec!["server".into()],
        phases: vec!["extend".into(), "decode".into()],
        layers: None,
        gate: Gate::Env { name: name.into(), levels },
        suspect: "on".into(),
        changes: BTreeMap::new(),
        microtest: None,
        requires: Vec::new(),
        excludes: Vec::new(),
    }
}

fn case() -> Case {
    let target = Target {
        name: "server".into(),
        role: Role::Monolithic,
        engine: ServingEngine::Sglang,
        host: "local".into(),
        become_with: None,
        url: "http://127.0.0.1:30000".into(),
        api_key: None,
        manager: Manager::Script { script: "serve.sh".into(), log: "serve.log".into() },
        launch_script: Some("serve.sh".into()),
        checkpoint: None,
        checkout: None,
        production: false,
        readable_env: false,
    };
    Case {
        name: "loss".into(),
        targets: vec![target],
        patches: vec![gated("triton-indexer", "TRITON"), gated("mhc-bf16", "MHC")],
        ..Case::default()
    }
}

fn truth() -> TargetTruth {
    let row = |name: &str, declared, effective, status, note: &str| Row {
        target: "server".into(),
        component: "server".into(),
        name: name.into(),
        kind: RowKind::Env,
        declared,
        effective,
        observed: None,
        status,
        note: note.into(),
    };
    let unknown =
        Claim { known: Known::Unknown { because: "permission denied".into() }, ..claim(None, "/proc/7/environ", None) };
    TargetTruth {
        target: "server".into(),
        at: noon(),
        status: ServerStatus::Ready,
        process: Some(ProcessKey { pid: 7, start_ticks: 99 }),
        processes: Vec::new(),
        rows: vec![
            row(
                "TRITON",
                Some(claim(Some("0"), "serve.sh", Some(4))),
                Some(claim(Some("1"), "/proc/7/environ", None)),
                RowStatus::Differs,
                "set again by the wrapper",
            ),
            row("MHC", Some(claim(None, "serve.sh", None)), Some(unknown), RowStatus::UnknownBecause, ""),
        ],
        levels: BTreeMap::from([("triton-indexer".to_owned(), Some("on".to_owned())), ("mhc-bf16".to_owned(), None)]),
        served: crate::truth::Served::default(),
        level_sources: BTreeMap::from([
            ("triton-indexer".to_owned(), "/proc/7/environ".to_owned()),
            ("mhc-bf16".to_owned(), "permission denied".to_owned()),
        ]),
        diagnostics: Vec::new(),
    }
}

/// A session in which everything happened once.
pub(crate) fn full_state() -> State {
    let proof = BootProof {
        target: "server".into(),
        process: ProcessKey { pid: 7, start_ticks: 99 },
        started_at: noon(),
        proven_at: noon(),
        levels: BTreeMap::from([("triton-indexer".to_owned(), "on".to_owned())]),
        unverified: BTreeMap::from([("mhc-bf16".to_owned(), "permission denied".to_owned())]),
        readable_env: false,
        evidence: Vec::new(),
    };
    let mut state = State {
        seq: 3,
        session: SessionInfo {
            name: "monday".into(),
            program: "0.1.0".into(),
            seed: 1,
            started_at: Some(noon()),
            ..SessionInfo::default()
        },
        case: Some(Arc::new(case())),
        symptom: Some(Symptom { rate: 0.6, lower: 0.44, trials: 24 }),
        ..State::default()
    };
    state.targets.insert(
        "server".into(),
        TargetState { truth: Some(Arc::new(truth())), boot: Some(BootId(1)), ..TargetState::default() },
    );
    state.boots.insert(BootId(1), Arc::new(Boot { id: BootId(1), seq: 3, procedure: None, proof: Arc::new(proof) }));
    state.trials.push_back(trial(1, 1024, 0.1, Outcome::Pass));
    state.trials.push_back(trial(2, 1024, 0.1, Outcome::Fail { how: FailKind::NearMiss }));
    state.trials.push_back(trial(3, 2048, 0.9, Outcome::Void { why: "time-out".into() }));
    state.micro.push_back(Arc::new(micro(ErrorClass::BelowFloor)));
    state.verdicts.push_back(verdict("triton-indexer", Finding::Guilty).into());
    state.verdicts.push_back(verdict("mhc-bf16", Finding::Acquitted).into());
    state.timeline.push_back(TimelineEntry {
        seq: 1,
        at: noon(),
        by: "ann".into(),
        text: "session began".into(),
        mark: crate::engine::state::Mark::Plain,
    });
    state
}

/// Two hosts: one with a past, one that is gone.
pub(crate) fn asked() -> Vec<crate::cli::changes::Asked> {
    use crate::cli::changes::Asked;
    use crate::remote::probe::types::HostFacts;
    use crate::remote::proc::Unknown;
    use crate::truth::changes::{Change, Gap, History, Kind};
    let change = |minutes: Option<i64>, kind, target: Option<&str>, what: &str| Change {
        at: minutes.map(|m| noon() + jiff::SignedDuration::from_mins(m)),
        kind,
        host: "near".into(),
        target: target.map(str::to_owned),
        what: what.into(),
        source: "/a/file".into(),
    };
    let facts = HostFacts {
        boot_id: Ok("1".into()),
        booted_at: Ok(noon()),
        ticks_per_second: Ok(100),
        time: Ok(noon()),
        ahead: Ok(jiff::SignedDuration::from_secs(-90)),
        kernel: Ok("Linux 6.1".into()),
        name: Ok("near".into()),
        uid: Err(Unknown("not read".into())),
    };
    let history = History {
        facts,
        driver: Ok(None),
        changes: vec![
            change(None, Kind::GpuError, None, "1 error of a card"),
            change(Some(1), Kind::Checkpoint, Some("decode"), "config.json: changed"),
            change(Some(2), Kind::LaunchScript, Some("decode"), "run\u{1b}[31m.sh: changed"),
        ],
        gaps: vec![Gap {
            host: "near".into(),
            target: Some("decode".into()),
            what: "the checkout".into(),
            because: "the case names none".into(),
        }],
        remarks: Vec::new(),
    };
    let gone = Err(crate::engine::procedure::Failure::new("`far` is gone").hint("start it"));
    vec![
        Asked { host: "near".into(), targets: vec!["decode".into()], history: Ok(history) },
        Asked { host: "far".into(), targets: vec!["prefill".into()], history: gone },
    ]
}
