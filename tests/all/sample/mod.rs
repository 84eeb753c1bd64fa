//! A rich session in the middle of an investigation, and helpers to draw it. For the tests of the screens.

#![allow(dead_code, unreachable_pub, reason = "without the terminal not everything is used")]

pub mod micro;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::{Timestamp, ToSpan};
use patchbench::case::{Budget, Case, Gate, LevelValue, Manager, Patch, RecallSpec, Role, ServingEngine, Target};
use patchbench::engine::command::Command;
use patchbench::engine::diagnostic::Diagnostic;
use patchbench::engine::ids::{BootId, JobId, ProcedureId, ProposalId, TrialId};
use patchbench::engine::input::{Actor, ActorRole, JobOutcome};
use patchbench::engine::live::{LinkState, Live};
use patchbench::engine::procedure::{
    Action, BootExpectation, BootProof, Evidence, Failure, Procedure, ProcessKey, Purpose, Readback, Step,
};
use patchbench::engine::state::{
    Boot, Changed, Job, Mark, NamedPoint, Note, ProcedureState, ProcedureStatus, Proposal, SessionInfo, State,
    StepState, TargetState, TimelineEntry, TrialEntry,
};
use patchbench::isolate::plan::Search;
use patchbench::isolate::verdict::{ArmCount, Finding, Subject, SubjectKind, Symptom, Verdict};
use patchbench::recall::trial::{FailKind, Outcome, ProbeForm, Trial, TrialKey};
use patchbench::truth::{Claim, Known, Row, RowKind, RowStatus, ServerStatus, TargetTruth};
use patchbench::ui::app::{App, Mode, Setup};
use patchbench::ui::keymap::Keymap;
use patchbench::ui::layout::read::built_in;
use patchbench::ui::theme::{Look, Palette, Theme};
use patchbench::untrusted::Untrusted;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

/// The time at which every sample is looked at.
pub fn now() -> Timestamp {
    "2026-03-01T14:20:00Z".parse().unwrap()
}

pub fn ago(seconds: i64) -> Timestamp {
    now().checked_sub(seconds.seconds()).unwrap()
}

pub const UNICODE: Look = Look { theme: Theme::Dark, palette: Palette::Indexed, ascii: false };
pub const ASCII: Look = Look { theme: Theme::Mono, palette: Palette::None, ascii: true };

pub fn setup(look: Look) -> Setup {
    Setup {
        mode: Mode::Live(ActorRole::Driver),
        look,
        keymap: Keymap::from_table(),
        layouts: built_in(),
        remarks: Vec::new(),
    }
}

pub fn app(state: State, look: Look) -> App {
    App::new(setup(look), Arc::new(state), now())
}

fn env(name: &str) -> Gate {
    let levels =
        BTreeMap::from([("on".to_owned(), LevelValue::Set("1".into())), ("off".to_owned(), LevelValue::Unset)]);
    Gate::Env { name: name.into(), levels }
}

fn patch(id: &str, title: &str, gate: Gate, suspect: &str, microtest: Option<&str>) -> Patch {
    Patch {
        id: id.into(),
        title: title.into(),
        site: Some("python/sglang/srt/layers/attention/dsv4/indexer.py:412".into()),
        targets: Vec::new(),
        phases: vec!["extend".into(), "decode".into()],
        layers: Some("c4".into()),
        gate,
        suspect: suspect.into(),
        changes: BTreeMap::from([("kernel".to_owned(), "triton".to_owned())]),
        microtest: microtest.map(str::to_owned),
        requires: Vec::new(),
        excludes: Vec::new(),
    }
}

pub fn target(name: &str, role: Role, production: bool) -> Target {
    Target {
        name: name.into(),
        role,
        engine: ServingEngine::Sglang,
        host: "gpu-box".into(),
        become_with: None,
        url: "http://127.0.0.1:30002".into(),
        api_key: None,
        manager: Manager::Script { script: "serve_decode.sh".into(), log: "decode.log".into() },
        launch_script: Some("serve_decode.sh".into()),
        checkpoint: None,
        checkout: None,
        production,
        readable_env: false,
    }
}

pub fn case(production: bool) -> Case {
    let mhc = Gate::Flag {
        flag: "--mhc-gemm".into(),
        levels: BTreeMap::from([
            ("fp32".to_owned(), LevelValue::Set("fp32".into())),
            ("tf32".to_owned(), LevelValue::Set("tf32".into())),
            ("bf16".to_owned(), LevelValue::Set("bf16".into())),
        ]),
    };
    Case {
        name: "lab-context-loss".into(),
        entry: Some("decode".into()),
        targets: vec![target("prefill", Role::Prefill, false), target("decode", Role::Decode, production)],
        patches: vec![
            patch(
                "triton-indexer",
                "Triton kernel for paged indexer logits",
                env("SGLANG_SM120_TRITON_INDEXER"),
                "on",
                None,
            ),
            patch(
                "mma-decode",
                "split-key decode attention on tensor cores",
                env("SGLANG_SM120_MMA_FLASHMLA"),
                "on",
                None,
            ),
            patch("bf16-indexer", "indexer scores in bf16", env("SGLANG_FP8_PAGED_MQA_LOGITS_TORCH"), "on", None),
            patch("mhc-bf16", "mHC mixing in bf16 instead of fp32", mhc, "bf16", Some("mhc-mix")),
            patch(
                "routed-scaling",
                "routed scaling on the output",
                Gate::Reverse { diff: "patches/routed.diff".into() },
                "on",
                None,
            ),
        ],
        recall: RecallSpec::default(),
        client: patchbench::case::ClientSpec::default(),
        budget: Budget::default(),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "a layer of a row is an option")]
fn claim(value: Option<&str>, source: &str, line: Option<u32>) -> Option<Claim> {
    Some(Claim { value: value.map(Untrusted::from), known: Known::Yes, source: source.into(), line, blind_to: None })
}

#[allow(clippy::unnecessary_wraps, reason = "a layer of a row is an option")]
fn unknown(because: &str, source: &str) -> Option<Claim> {
    Some(Claim {
        value: None,
        known: Known::Unknown { because: because.into() },
        source: source.into(),
        line: None,
        blind_to: Some("values set after the start".into()),
    })
}

fn row(target: &str, name: &str, kind: RowKind, status: RowStatus, claims: [Option<Claim>; 3], note: &str) -> Row {
    let [declared, effective, observed] = claims;
    Row {
        target: target.into(),
        component: "server".into(),
        name: name.into(),
        kind,
        declared,
        effective,
        observed,
        status,
        note: note.into(),
    }
}

fn truth(name: &str, pid: u32, age: i64, rows: Vec<Row>) -> Arc<TargetTruth> {
    let level = |l: &str| Some(l.to_owned());
    let mut levels = BTreeMap::from([
        ("triton-indexer".to_owned(), level("off")),
        ("mma-decode".to_owned(), level("on")),
        ("bf16-indexer".to_owned(), level(if name == "decode" { "on" } else { "off" })),
        ("mhc-bf16".to_owned(), level("bf16")),
    ]);
    levels.insert("routed-scaling".into(), None);
    Arc::new(TargetTruth {
        target: name.into(),
        at: ago(age),
        status: ServerStatus::Ready,
        process: Some(ProcessKey { pid, start_ticks: 99 }),
        processes: Vec::new(),
        rows,
        levels,
        served: patchbench::truth::Served::default(),
        level_sources: BTreeMap::from([
            ("triton-indexer".to_owned(), format!("/proc/{pid}/environ")),
            ("mma-decode".to_owned(), format!("/proc/{pid}/environ")),
            ("routed-scaling".to_owned(), "no gate: a reverse patch cannot be read from the process".to_owned()),
        ]),
        diagnostics: Vec::new(),
    })
}

fn rows(target: &str) -> Vec<Row> {
    let script = "serve_decode.sh";
    let proc = "/proc/4242/environ";
    vec![
        row(
            target,
            "SGLANG_SM120_TRITON_INDEXER",
            RowKind::Env,
            RowStatus::Differs,
            [claim(Some("1"), script, Some(18)), claim(None, proc, None), None],
            "the script sets it, the process does not have it",
        ),
        row(
            target,
            "--mem-fraction-static",
            RowKind::Flag,
            RowStatus::GivenTwice,
            [claim(Some("0.80"), script, Some(31)), claim(Some("0.85"), "/proc/4242/cmdline", None), None],
            "given twice; the last one counts",
        ),
        row(
            target,
            "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH",
            RowKind::Env,
            RowStatus::UnknownBecause,
            [None, unknown("permission denied", proc), None],
            "",
        ),
        row(
            target,
            "--mhc-gemm",
            RowKind::Flag,
            RowStatus::Agrees,
            [
                claim(Some("bf16"), script, Some(33)),
                claim(Some("bf16"), "/proc/4242/cmdline", None),
                claim(Some("bf16"), "http://127.0.0.1:30002/server_info", None),
            ],
            "",
        ),
        row(
            target,
            "model_path",
            RowKind::Config,
            RowStatus::OneSource,
            [None, None, claim(Some("/models/lab\u{1b}[31m"), "http://127.0.0.1:30002/model_info", None)],
            "",
        ),
    ]
}

fn boot(id: u64, target: &str, age: i64, indexer: &str) -> Arc<Boot> {
    Arc::new(Boot {
        id: BootId(id),
        seq: id * 10,
        // The first two were met as they ran, the others were started here.
        procedure: (id > 2).then_some(ProcedureId(1)),
        proof: Arc::new(BootProof {
            target: target.into(),
            process: ProcessKey { pid: 4000 + id as u32, start_ticks: 99 },
            started_at: ago(age + 14),
            proven_at: ago(age),
            levels: BTreeMap::from([("triton-indexer".to_owned(), indexer.to_owned())]),
            unverified: BTreeMap::new(),
            readable_env: false,
            evidence: Vec::new(),
        }),
    })
}

fn trial(id: u64, boots: [u64; 2], indexer: &str, key: (ProbeForm, u32, f64), outcome: Outcome) -> TrialEntry {
    let expected = "the harbour code is 7431-KITE";
    let (got, first_wrong) = match &outcome {
        Outcome::Pass => (expected.to_owned(), None),
        Outcome::Fail { how: FailKind::NearMiss } => ("the harbour code is 7481-KITE".into(), Some(22)),
        Outcome::Fail { how: FailKind::NoEarlierContext } => {
            ("I have no earlier message\u{1b}[31m to look at".into(), Some(0))
        }
        Outcome::Fail { .. } => ("the harbour code is 日本\u{7}-KITE".into(), Some(20)),
        Outcome::Void { .. } => (String::new(), None),
    };
    let level = |l: &str| l.to_owned();
    TrialEntry {
        seq: 100 + id,
        trial: Arc::new(Trial {
            id: TrialId(id),
            at: ago(900 - id as i64 * 10),
            boots: boots.map(BootId).to_vec(),
            arm: BTreeMap::from([
                ("triton-indexer@prefill".to_owned(), level(indexer)),
                ("triton-indexer@decode".to_owned(), level(indexer)),
                ("mma-decode@decode".to_owned(), level("on")),
                ("mhc-bf16@decode".to_owned(), level("bf16")),
            ]),
            factors: BTreeMap::from([("cache".to_owned(), "cold".to_owned())]),
            key: TrialKey { form: key.0, length: key.1, depth: key.2, seed: 7 + id },
            prompt_tokens: Some(key.1 + 3),
            cached_tokens: Some(0),
            outcome,
            expected: expected.into(),
            got: got.into(),
            first_wrong,
            seconds: 1.4,
            transcript: None,
        }),
    }
}

fn trials() -> Vec<TrialEntry> {
    let mut out = Vec::new();
    let mut id = 0;
    for (boots, indexer) in [([1, 2], "on"), ([3, 4], "off")] {
        for form in [ProbeForm::MultiTurn, ProbeForm::Needle] {
            for length in [1024, 2048] {
                for depth in [0.1, 0.5, 0.9] {
                    for repeat in 0..2 {
                        id += 1;
                        let bad = indexer == "on" && (depth < 0.8 || (repeat == 0 && length == 2048));
                        let how = match id % 3 {
                            0 => FailKind::NearMiss,
                            1 => FailKind::NoEarlierContext,
                            _ => FailKind::Wrong,
                        };
                        let outcome = if bad { Outcome::Fail { how } } else { Outcome::Pass };
                        out.push(trial(id, boots, indexer, (form, length, depth), outcome));
                    }
                }
            }
        }
    }
    let void = Outcome::Void { why: "time-out after 60 s".into() };
    out.push(trial(id + 1, [3, 4], "off", (ProbeForm::Needle, 2048, 0.9), void));
    out.push(trial(id + 2, [3, 4], "off", (ProbeForm::Needle, 2048, 0.5), Outcome::Fail { how: FailKind::Wrong }));
    out
}

/// A change of `decode` as the script manager plans it.
pub fn procedure(id: u64, target: &str) -> Procedure {
    let shell = |script: &str| Action::Shell { script: script.into(), timeout_s: 20.0 };
    let step = |name: &str, check: Action, apply: Action, undo: Option<Action>, proof: Action| Step {
        name: name.into(),
        check,
        apply,
        undo,
        undo_proof: None,
        proof,
    };
    Procedure {
        id: ProcedureId(id),
        purpose: Purpose::Restart,
        target: target.into(),
        title: format!("restart {target} with triton-indexer=on"),
        levels: BTreeMap::from([
            ("triton-indexer".to_owned(), "on".to_owned()),
            ("mma-decode".to_owned(), "on".to_owned()),
        ]),
        load: None,
        jobs: None,
        lease: None,
        notes: Vec::new(),
        steps: vec![
            step(
                "write-override",
                shell("test -f ~/.patchbench/decode.env"),
                shell("umask 077\nprintf '%s\\n' 'export SGLANG_SM120_TRITON_INDEXER=1' > ~/.patchbench/decode.env"),
                Some(shell("rm -f ~/.patchbench/decode.env")),
                shell("cat ~/.patchbench/decode.env"),
            ),
            step(
                "stop",
                Action::Nothing,
                shell("kill -TERM 4242"),
                None,
                Action::ProcessGone { pid: 4242, start_ticks: 99, timeout_s: 30.0 },
            ),
            step(
                "start",
                Action::Nothing,
                shell("setsid bash -c '. ~/.patchbench/decode.env; exec ./serve_decode.sh' >> decode.log 2>&1 &"),
                Some(shell("setsid ./serve_decode.sh >> decode.log 2>&1 &")),
                Action::ProveBoot {
                    expect: BootExpectation {
                        old: Some(ProcessKey { pid: 4242, start_ticks: 99 }),
                        port: 30002,
                        url: "http://127.0.0.1:30002".into(),
                        log: "decode.log".into(),
                        log_offset: 0,
                        pid_file: None,
                        unit: None,
                        container: None,
                        readback: vec![Readback {
                            patch: "triton-indexer".into(),
                            level: "on".into(),
                            switch: "SGLANG_SM120_TRITON_INDEXER".into(),
                            value: Some("1".into()),
                        }],
                    },
                    timeout_s: 120.0,
                },
            ),
        ],
    }
}

pub fn with_procedure(state: &mut State, procedure: Procedure, status: ProcedureStatus) {
    let steps = procedure.steps.iter().map(|_| StepState::default()).collect();
    let id = procedure.id;
    state.procedures.insert(
        id,
        ProcedureState {
            procedure: Arc::new(procedure),
            confirmed_by: None,
            anyway: false,
            status,
            steps,
            failed: None,
        },
    );
    state.seq += 1;
}

fn job(id: u64, title: &str, began: i64, ended: Option<i64>, outcome: Option<JobOutcome>) -> Job {
    Job {
        id: JobId(id),
        title: title.into(),
        started_at: ago(began),
        ended_at: ended.map(ago),
        cancelling: false,
        procedure: None,
        outcome,
    }
}

/// A session in the middle: the indexer was switched off, the failures are gone.
pub fn rich() -> State {
    let mut state = State {
        seq: 170,
        session: SessionInfo { name: "tuesday".into(), program: "0.1.0".into(), seed: 7, ..SessionInfo::default() },
        case: Some(Arc::new(case(false))),
        ..State::default()
    };
    state.targets.insert(
        "prefill".into(),
        TargetState {
            truth: Some(truth("prefill", 4100, 40, vec![])),
            boot: Some(BootId(3)),
            ..TargetState::default()
        },
    );
    state.targets.insert(
        "decode".into(),
        TargetState {
            truth: Some(truth("decode", 4242, 12, rows("decode"))),
            boot: Some(BootId(4)),
            changed: Some(Changed {
                since: ago(600),
                by: Actor::driver("ana"),
                procedure: ProcedureId(1),
                levels: BTreeMap::from([("triton-indexer".to_owned(), "off".to_owned())]),
            }),
            original: BTreeMap::from([("triton-indexer".to_owned(), "on".to_owned())]),
            ..TargetState::default()
        },
    );
    for (id, target, age, level) in
        [(1, "prefill", 1500, "on"), (2, "decode", 1490, "on"), (3, "prefill", 610, "off"), (4, "decode", 590, "off")]
    {
        state.boots.insert(BootId(id), boot(id, target, age, level));
    }
    state.trials = trials().into_iter().collect();
    state.micro.push_back(Arc::new(micro::report()));
    state.search =
        Some(Arc::new(Search { patches: vec!["triton-indexer".into(), "mhc-bf16".into()], ..Search::default() }));
    state.symptom = Some(Symptom { rate: 0.75, lower: 0.55, trials: 24 });
    let verdict = |id: &str, verdict, on: (u32, u32), off: (u32, u32), bound, why: &str| {
        Arc::new(Verdict {
            subject: Subject { kind: SubjectKind::Patch, id: id.into() },
            verdict,
            on: ArmCount { fail: on.0, n: on.1, void: 0, boots: 2 },
            off: ArmCount { fail: off.0, n: off.1, void: 1, boots: 2 },
            bound,
            why: why.into(),
            evidence: vec![101, 102, 130],
        })
    };
    state.verdicts.push_back(verdict(
        "triton-indexer",
        Finding::Guilty,
        (18, 24),
        (1, 24),
        Some(0.0286),
        "off 1 of 24 fail, on alone 18 of 24 fail, over 4 boots a side (p = 0.0286)",
    ));
    state.verdicts.push_back(verdict(
        "mhc-bf16",
        Finding::Acquitted,
        (1, 24),
        (0, 24),
        Some(0.062),
        "with the indexer off it adds at most 6.2 points of failures",
    ));
    state.verdicts.push_back(verdict(
        "mma-decode",
        Finding::NotShown,
        (18, 24),
        (17, 24),
        None,
        "switching it changed nothing while the symptom stayed; another may mask it",
    ));
    for (id, title, began, ended, outcome) in [
        (1, "read decode", 1600, Some(1599), Some(JobOutcome::Done)),
        (2, "recall, 24 trials", 1400, Some(1370), Some(JobOutcome::Done)),
        (
            3,
            "microtest router-topk on cpu",
            800,
            Some(799),
            Some(JobOutcome::Failed { failure: Failure::new("there is no microtest `router-topk`") }),
        ),
        (4, "recall, 24 trials", 21, None, None),
    ] {
        state.jobs.insert(JobId(id), job(id, title, began, ended, outcome));
    }
    with_procedure(
        &mut state,
        procedure(2, "prefill"),
        ProcedureStatus::Failed {
            failure: Failure::new("the ready line did not come within 120 s").hint("look at the log"),
        },
    );
    if let Some(p) = state.procedures.get_mut(&ProcedureId(2)) {
        p.steps[0] = StepState {
            started: true,
            done: true,
            undone: false,
            evidence: vec![Evidence { about: "file".into(), seen: "export X=1".into(), source: "decode.env".into() }],
        };
        p.steps[1].started = true;
    }
    state.proposals.insert(
        ProposalId(1),
        Proposal {
            id: ProposalId(1),
            by: Actor::watcher("ben"),
            command: Command::Stop { target: "decode".into() },
            approved: None,
        },
    );
    let events = [
        (1, 1700, "session began", Mark::Plain),
        (12, 1600, "decode read: ready, pid 4242, 3 of 5 rows matter", Mark::Plain),
        (61, 1370, "symptom: 75 % fail, at least 55 %", Mark::Plain),
        (80, 620, "p1 begins: restart decode with triton-indexer=off", Mark::Change),
        (88, 590, "b4 proven: decode, pid 4004, triton-indexer off", Mark::Proof),
        (95, 400, "p2 step stop failed: the ready line did not come", Mark::Failure),
        (150, 60, "triton-indexer is guilty: 18 of 24 against 1 of 24", Mark::Verdict),
        (170, 12, "decode read: ready", Mark::Plain),
    ];
    for (seq, age, text, mark) in events {
        state.timeline.push_back(TimelineEntry { seq, at: ago(age), by: "ana".into(), text: text.into(), mark });
    }
    state.notes.push_back(Note {
        at: ago(500),
        by: Actor::driver("ana"),
        text: "customer says it began on Friday".into(),
    });
    state.snapshots.push_back(NamedPoint { name: "before-toggle".into(), seq: 79, at: ago(630) });
    state.diagnostics.push_back(
        Diagnostic::warning("environ-unreadable", "the environment of pid 4100 could not be read")
            .at("/proc/4100/environ")
            .hint("run as the user that owns the server"),
    );
    state
}

/// Live messages that go with it.
pub fn feed(app: &mut App) {
    app.take_live(Live::Link { host: "gpu-box".into(), state: LinkState::Up { since: ago(900) } });
    app.take_live(Live::Progress {
        job: JobId(4),
        done: 9,
        total: Some(24),
        phase: "needle, 1024 tokens".into(),
        eta_s: Some(21.0),
    });
    for i in 0..40 {
        app.take_live(Live::ServerLog {
            target: "decode".into(),
            line: format!(
                "[2026-03-01 14:19:{i:02}] Decode batch, #running-req: {}, gen throughput: {i}.2\u{1b}[0m",
                i % 3
            )
            .into(),
        });
        let values = BTreeMap::from([
            ("kv_usage".to_owned(), f64::from(i) / 50.0),
            ("running".to_owned(), f64::from(i % 3)),
            ("cache_hit_rate".to_owned(), 0.5),
        ]);
        app.take_live(Live::Load { target: "decode".into(), at: now(), values });
    }
}

pub const NEXT: &str = "acquit bf16-indexer: `i`, 2 boots, about 4 min";

/// The screen as text.
pub fn screen(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|f| app.draw(f, now(), NEXT)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += (patchbench::ui::text::width(symbol) as u16).max(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The runs of equal style of each line, where they are not plain: what `TestBackend`'s text leaves out.
pub fn styles(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|f| app.draw(f, now(), NEXT)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..height {
        let mut x = 0;
        while x < width {
            let cell = &buffer[(x, y)];
            let style = (cell.fg, cell.bg, cell.modifier);
            let mut end = x;
            let mut text = String::new();
            while end < width && (buffer[(end, y)].fg, buffer[(end, y)].bg, buffer[(end, y)].modifier) == style {
                text.push_str(buffer[(end, y)].symbol());
                end += 1;
            }
            if style != (Color::Reset, Color::Reset, Modifier::empty()) && !text.trim().is_empty() {
                let _ = write!(out, "{y:>2}:{x:<3} {:?}", text.trim());
                if style.0 != Color::Reset {
                    let _ = write!(out, " fg {}", style.0);
                }
                if style.1 != Color::Reset {
                    let _ = write!(out, " bg {}", style.1);
                }
                if !style.2.is_empty() {
                    let _ = write!(out, " {:?}", style.2);
                }
                out.push('\n');
            }
            x = end;
        }
    }
    out
}
