//! The laws of the journal: replay equals live, a snapshot plus its tail equals the whole, any prefix
//! loads, and nothing acknowledged is ever lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use patchbench::engine::command::{Command, EndState, RecallPlan};
use patchbench::engine::diagnostic::Diagnostic;
use patchbench::engine::effect::{ChangeWish, Effect};
use patchbench::engine::event::{Event, Happened};
use patchbench::engine::fake::{self, FakeWorld};
use patchbench::engine::ids::{InputId, JobId, ProcedureId, ProposalId};
use patchbench::engine::input::{Actor, Body, Input, JobOutcome, JobReport};
use patchbench::engine::procedure::{Failure, Phase};
use patchbench::engine::runtime;
use patchbench::engine::state::{ProcedureStatus, State};
use patchbench::engine::update::update;
use patchbench::patch::edit::Edit;
use patchbench::patch::import::imported;
use patchbench::patch::inventory::By;
use patchbench::patch::types;
use patchbench::recall::trial::{FailKind, Outcome, ProbeForm, TrialKey};
use patchbench::recall::window::{LoadWindow, Series};
use patchbench::session::format::{ChainHash, decode, encode};
use patchbench::session::journal::{Journal, JournalError};
use patchbench::session::replay::replay;
use patchbench::session::storage::fake::Disk;
use patchbench::session::{store, verify};
use proptest::prelude::*;

const PATCHES: [&str; 3] = ["mma-decode", "triton-indexer", "mhc-bf16"];

fn at(second: u64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + second as i64).unwrap()
}

/// Runs inputs through `update`; returns all events and the state.
fn run(bodies: &[(Actor, Body)]) -> (Vec<Event>, State) {
    let mut state = State::default();
    let mut events = Vec::new();
    for (i, (actor, body)) in bodies.iter().enumerate() {
        let input = Input { id: InputId(i as u64), at: at(i as u64), actor: actor.clone(), body: body.clone() };
        let outcome = update(&state, &input);
        events.extend(outcome.events);
        state = outcome.state;
    }
    (events, state)
}

fn journal_text(events: &[Event]) -> Vec<u8> {
    let mut hash = ChainHash::start();
    let mut text = String::new();
    for event in events {
        let (line, next) = encode(event, &hash).unwrap();
        text.push_str(&line);
        hash = next;
    }
    text.into_bytes()
}

fn level() -> impl Strategy<Value = BTreeMap<String, String>> {
    (0..PATCHES.len(), prop::bool::ANY)
        .prop_map(|(patch, on)| BTreeMap::from([(PATCHES[patch].to_owned(), if on { "on" } else { "off" }.to_owned())]))
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        Just(Command::OpenCase { case: Box::new(crate::common::case(&PATCHES)) }),
        Just(Command::Probe { target: None }),
        level().prop_map(|levels| Command::Restart { target: "lab".into(), levels }),
        Just(Command::Stop { target: "lab".into() }),
        Just(Command::Toggle { patch: PATCHES[1].into(), target: None, level: "off".into() }),
        Just(Command::Toggle { patch: "nobody".into(), target: None, level: "off".into() }),
        Just(Command::Restore { target: None }),
        (1u64..4).prop_map(|id| Command::Confirm { procedure: ProcedureId(id), typed: None }),
        (1u64..4).prop_map(|id| Command::Discard { procedure: ProcedureId(id) }),
        (1u64..4).prop_map(|id| Command::ResumeProcedure { procedure: ProcedureId(id) }),
        (1u64..4).prop_map(|id| Command::UndoProcedure { procedure: ProcedureId(id) }),
        Just(Command::Recall { plan: plan() }),
        (1u64..6).prop_map(|id| Command::Cancel { job: JobId(id) }),
        "[a-z\u{0}-\u{20}\"\\\\é]{0,20}".prop_map(|text| Command::Note { text }),
        "[a-z]{1,8}".prop_map(|name| Command::Snapshot { name }),
        Just(Command::Propose { command: Box::new(Command::Probe { target: None }) }),
        (1u64..3).prop_map(|id| Command::Approve { proposal: ProposalId(id) }),
        (1u64..3).prop_map(|id| Command::Reject { proposal: ProposalId(id) }),
        Just(Command::ChooseEndState { end_state: EndState::Original }),
        Just(Command::ChooseEndState { end_state: EndState::BestKnown }),
        Just(Command::MergePatches { patches: vec!["a".into(), "b".into()], title: "both".into() }),
        prop::sample::select(vec!["a", "b", "both"])
            .prop_map(|id| Command::SplitPatch { patch: id.into(), by: By::Hunk }),
        prop::collection::btree_set(prop::sample::select(types::Phase::ALL.to_vec()), 0..3)
            .prop_map(|phases| Command::EditPatch { patch: "a".into(), edit: Edit::Phases { phases } }),
    ]
}

fn plan() -> RecallPlan {
    RecallPlan {
        forms: vec![ProbeForm::MultiTurn],
        lengths: vec![1024],
        depths: vec![0.5],
        repeats: 2,
        seed: 7,
        concurrency: 1,
        factors: BTreeMap::new(),
    }
}

fn window(job: JobId, value: f64) -> LoadWindow {
    let series = Series { min: value / 2.0, mean: value, max: 1.0, samples: vec![value; 3] };
    LoadWindow {
        job,
        target: "lab".into(),
        from: at(0),
        to: at(9),
        source: "http://h:1/metrics".into(),
        readings: 3,
        unread: None,
        values: BTreeMap::from([("kv_usage".into(), series)]),
    }
}

fn report() -> impl Strategy<Value = JobReport> {
    let case = crate::common::case(&PATCHES);
    let planned = fake::plan(&case, "lab", &ChangeWish::Running(BTreeMap::new()));
    let proof = move |levels: BTreeMap<String, String>, pid| {
        Arc::new(fake::proof(&crate::common::case(&PATCHES), "lab", &levels, pid))
    };
    let read = imported(
        b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-a\n+b\n",
        None,
        "d",
    );
    let read: Vec<_> = read.entries.into_iter().map(Arc::new).collect();
    prop_oneof![
        Just(JobReport::PatchesRead { source: "d".into(), entries: read }),
        Just(JobReport::Planned(planned.into())),
        (1u64..4, 0usize..4, prop::bool::ANY).prop_map(|(id, step, undo)| JobReport::StepStarted {
            procedure: ProcedureId(id),
            step,
            phase: if undo { Phase::Undo } else { Phase::Do },
        }),
        (1u64..4, 0usize..4, prop::bool::ANY).prop_map(|(id, step, undo)| JobReport::StepDone {
            procedure: ProcedureId(id),
            step,
            phase: if undo { Phase::Undo } else { Phase::Do },
            evidence: Vec::new(),
        }),
        (1u64..4, 0usize..4).prop_map(|(id, step)| JobReport::StepFailed {
            procedure: ProcedureId(id),
            step,
            phase: Phase::Do,
            failure: Failure::new("the disk is full"),
        }),
        (level(), 1u32..9)
            .prop_map(move |(levels, pid)| JobReport::BootProven { procedure: None, proof: proof(levels, pid) }),
        Just(JobReport::Said(Diagnostic::warning("x", "something"))),
        (1u64..9, 0.0..1.0f64).prop_map(|(job, value)| JobReport::WindowDone(window(JobId(job), value).into())),
        (1u64..9).prop_map(|id| JobReport::Ended { job: JobId(id), outcome: JobOutcome::Done }),
        (1u64..9).prop_map(|id| JobReport::Ended {
            job: JobId(id),
            outcome: JobOutcome::Failed { failure: Failure::new("no").hint("try") },
        }),
    ]
}

fn inputs() -> impl Strategy<Value = Vec<(Actor, Body)>> {
    let actor = prop_oneof![3 => Just(Actor::driver("ann")), 1 => Just(Actor::watcher("bob"))];
    let body = prop_oneof![command().prop_map(Body::Command), report().prop_map(Body::Report)];
    prop::collection::vec((actor, body), 1..40).prop_map(|mut inputs| {
        let open = Command::OpenCase { case: Box::new(crate::common::case(&PATCHES)) };
        inputs.insert(0, (Actor::driver("ann"), Body::Command(open)));
        inputs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn replay_equals_live(inputs in inputs()) {
        let (events, live) = run(&inputs);
        let loaded = decode(&journal_text(&events), 0, ChainHash::start()).unwrap();
        prop_assert_eq!(&loaded.events, &events);
        prop_assert_eq!(replay(State::default(), &loaded.events), live);
    }

    #[test]
    fn snapshot_plus_tail_equals_whole(inputs in inputs(), cut in 0.0f64..1.0) {
        let (events, live) = run(&inputs);
        let cut = (events.len() as f64 * cut) as usize;
        let middle = replay(State::default(), &events[..cut]);
        let stored = serde_json::to_vec(&middle).unwrap();
        let restored: State = serde_json::from_slice(&stored).unwrap();
        prop_assert_eq!(&restored, &middle);
        prop_assert_eq!(replay(restored, &events[cut..]), live);
    }

    #[test]
    fn any_prefix_loads(inputs in inputs(), cut in 0.0f64..1.0) {
        let (events, _) = run(&inputs);
        let text = journal_text(&events);
        let cut = (text.len() as f64 * cut) as usize;
        let loaded = decode(&text[..cut], 0, ChainHash::start()).unwrap();
        prop_assert_eq!(loaded.good_bytes + loaded.torn_bytes, cut as u64);
        prop_assert_eq!(&loaded.events[..], &events[..loaded.events.len()]);
        let lines = text[..cut].split(|b| *b == b'\n').count() - 1;
        prop_assert_eq!(loaded.events.len(), lines);
    }

    #[test]
    fn one_changed_byte_is_found(inputs in inputs(), place in 0.0f64..1.0, flip in 1u8..255) {
        let (events, _) = run(&inputs);
        let mut text = journal_text(&events);
        let place = ((text.len() - 1) as f64 * place) as usize;
        text[place] ^= flip;
        let result = decode(&text, 0, ChainHash::start());
        let unharmed = result.as_ref().is_ok_and(|l| l.torn_bytes == 0 && l.events == events);
        prop_assert!(!unharmed, "byte {} changed and nobody noticed", place);
    }

    #[test]
    fn power_loss_keeps_everything_acknowledged(inputs in inputs(), sync_every in 1usize..5, kept in 0usize..400) {
        let (events, _) = run(&inputs);
        let disk = Disk::default();
        let mut journal = Journal::new(Box::new(disk.clone()), 0, ChainHash::start(), 0);
        let mut acknowledged = 0;
        for (i, event) in events.iter().enumerate() {
            journal.append(std::slice::from_ref(event)).unwrap();
            if i % sync_every == 0 {
                acknowledged = journal.sync().unwrap();
            }
        }
        let loaded = decode(&disk.after_power_loss(kept), 0, ChainHash::start()).unwrap();
        prop_assert!(loaded.events.len() as u64 >= acknowledged);
        prop_assert_eq!(&loaded.events[..], &events[..loaded.events.len()]);
    }

    #[test]
    fn full_disk_loses_nothing_recorded(inputs in inputs(), room in 0usize..6000) {
        let (events, _) = run(&inputs);
        let disk = Disk::with_room(room);
        let mut journal = Journal::new(Box::new(disk.clone()), 0, ChainHash::start(), 0);
        let mut written = 0;
        for event in &events {
            match journal.append(std::slice::from_ref(event)) {
                Ok(()) => written += 1,
                Err(error) => {
                    prop_assert!(matches!(error, JournalError::Full));
                    break;
                }
            }
        }
        let loaded = decode(&disk.bytes(), 0, ChainHash::start()).unwrap();
        prop_assert_eq!(loaded.torn_bytes, 0);
        prop_assert_eq!(loaded.events.len(), written);
        // With room again the journal goes on where it was.
        disk.set_room(None);
        journal.append(&events[written..]).unwrap();
        prop_assert_eq!(&decode(&disk.bytes(), 0, ChainHash::start()).unwrap().events, &events);
    }
}

fn judge(arm: &BTreeMap<String, String>, _key: &TrialKey) -> Outcome {
    match arm.get("triton-indexer@lab").map(String::as_str) {
        Some("on") => Outcome::Fail { how: FailKind::NoEarlierContext },
        _ => Outcome::Pass,
    }
}

fn started(name: &str) -> Happened {
    Happened::SessionStarted { id: uuid::Uuid::nil(), name: name.into(), program: "test".into(), seed: 1 }
}

async fn settle(handle: &mut runtime::EngineHandle) -> Arc<State> {
    loop {
        let state = handle.state.borrow_and_update().clone();
        if state.running_jobs().next().is_none() {
            return state;
        }
        tokio::time::timeout(Duration::from_secs(10), handle.state.changed()).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_comes_back_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let ann = Actor::driver("ann");
    let world = Arc::new(FakeWorld::new(judge, Duration::ZERO));
    let session = store::create(root.path(), "one").unwrap();
    let dir = session.dir.clone();
    let engine = runtime::start(session, Some(started("one")), &ann, world.clone()).unwrap();
    let mut handle = engine.handle.clone();
    handle.ask(ann.clone(), Command::OpenCase { case: Box::new(crate::common::case(&PATCHES)) }).await.unwrap();
    settle(&mut handle).await;
    handle.ask(ann.clone(), Command::Restart { target: "lab".into(), levels: BTreeMap::new() }).await.unwrap();
    let state = settle(&mut handle).await;
    let planned = *state.procedures.keys().next().unwrap();
    assert_eq!(state.procedures[&planned].status, ProcedureStatus::Planned);
    handle.ask(ann.clone(), Command::Confirm { procedure: planned, typed: None }).await.unwrap();
    let state = settle(&mut handle).await;
    assert_eq!(state.procedures[&planned].status, ProcedureStatus::Completed);
    assert!(state.current_boot("lab").is_some());
    handle.ask(ann.clone(), Command::Recall { plan: plan() }).await.unwrap();
    let state = settle(&mut handle).await;
    assert_eq!(state.trials.len(), 2);
    handle.close().await;
    engine.ended().await.unwrap();

    let loaded = store::read(&dir).unwrap();
    let replayed = replay(State::default(), &loaded.events);
    assert_eq!(replayed.trials, state.trials);
    assert_eq!(verify::verify(&dir).unwrap().problems, Vec::new());
    let reopened = store::open(&dir).unwrap();
    assert_eq!(reopened.state, replayed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_writer_is_told_who_has_the_session() {
    let root = tempfile::tempdir().unwrap();
    let _first = store::create(root.path(), "one").unwrap();
    let Err(error) = store::open(&root.path().join("one")) else { panic!("two writers") };
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn a_cut_off_change_is_named_at_resume_and_can_be_finished_or_undone() {
    let ann = Actor::driver("ann");
    let case = crate::common::case(&PATCHES);
    let change = fake::plan(&case, "lab", &ChangeWish::Running(BTreeMap::new()));
    let (events, mut state) = run(&[
        (ann.clone(), Body::Command(Command::OpenCase { case: Box::new(case) })),
        (Actor::program(), Body::Report(JobReport::Planned(change.into()))),
        (ann.clone(), Body::Command(Command::Confirm { procedure: ProcedureId(1), typed: None })),
        (
            Actor::program(),
            Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 0, phase: Phase::Do }),
        ),
        (
            Actor::program(),
            Body::Report(JobReport::StepDone {
                procedure: ProcedureId(1),
                step: 0,
                phase: Phase::Do,
                evidence: Vec::new(),
            }),
        ),
        (
            Actor::program(),
            Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 1, phase: Phase::Do }),
        ),
    ]);
    let resumed = Event {
        seq: events.len() as u64 + 1,
        at: at(100),
        actor: ann.clone(),
        what: Happened::SessionResumed { program: "test".into() },
    };
    state.apply(&resumed);
    assert_eq!(state.procedures[&ProcedureId(1)].status, ProcedureStatus::Interrupted { phase: Phase::Do });
    assert!(state.running_jobs().next().is_none());
    for (command, from) in [
        (Command::ResumeProcedure { procedure: ProcedureId(1) }, 1),
        (Command::UndoProcedure { procedure: ProcedureId(1) }, 1),
    ] {
        let input = Input { id: InputId(1), at: at(101), actor: ann.clone(), body: Body::Command(command) };
        let outcome = update(&state, &input);
        let [Effect::Start { spec, .. }] = outcome.effects.as_slice() else { panic!("{:?}", outcome.effects) };
        let patchbench::engine::effect::JobSpec::RunProcedure { from: begins, .. } = spec else { panic!("{spec:?}") };
        assert_eq!(*begins, from);
    }
}

#[test]
fn a_watcher_cannot_act() {
    let bob = Actor::watcher("bob");
    let (events, state) = run(&[
        (Actor::driver("ann"), Body::Command(Command::OpenCase { case: Box::new(crate::common::case(&PATCHES)) })),
        (bob.clone(), Body::Command(Command::Stop { target: "lab".into() })),
        (bob, Body::Command(Command::Propose { command: Box::new(Command::Stop { target: "lab".into() }) })),
    ]);
    assert!(
        events
            .iter()
            .any(|e| matches!(&e.what, Happened::Refused { failure, .. } if failure.message.contains("watcher")))
    );
    assert_eq!(state.proposals.len(), 1);
}

#[test]
fn every_recorded_session_loads_for_ever() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions");
    let mut seen = 0;
    for entry in fs_err::read_dir(folder).unwrap() {
        let dir = entry.unwrap().path();
        if !dir.is_dir() {
            continue;
        }
        let verified = verify::verify(&dir).unwrap();
        assert_eq!(verified.problems, Vec::new(), "{}", dir.display());
        let state = replay(State::default(), &store::read(&dir).unwrap().events);
        assert!(!state.verdicts.is_empty() && verified.blobs > 0, "{}", dir.display());
        seen += 1;
    }
    assert!(seen > 0, "there is no recorded session");
}
