//! Who may do what: every command against a state, with the refusal that its user reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use patchbench::case::{Case, Gate};
use patchbench::engine::command::{Command, EndState, RecallPlan};
use patchbench::engine::effect::{ChangeWish, Effect, JobSpec};
use patchbench::engine::event::{Event, Happened};
use patchbench::engine::fake;
use patchbench::engine::ids::{InputId, JobId, ProcedureId};
use patchbench::engine::input::{Actor, Body, Input, JobOutcome, JobReport};
use patchbench::engine::procedure::{Failure, Load, Phase, Procedure, Purpose};
use patchbench::engine::state::{ProcedureStatus, State};
use patchbench::engine::update::update;
use patchbench::patch::edit::Edit;
use patchbench::patch::import::imported;
use patchbench::patch::risk::Kind;
use patchbench::patch::{belief, of_state};
use patchbench::recall::trial::ProbeForm;

use crate::common::{after, step};

const PATCHES: [&str; 2] = ["triton-indexer", "mhc-bf16"];

/// A case is open and its first probe is over.
fn open(case: Case) -> State {
    after(
        &State::default(),
        [
            Body::Command(Command::OpenCase { case: Box::new(case) }),
            Body::Report(JobReport::Ended { job: JobId(1), outcome: JobOutcome::Done }),
        ],
    )
}

/// The target runs, proven, with every patch at its suspect level.
fn running() -> State {
    let case = crate::common::case(&PATCHES);
    let proof = fake::proof(&case, "lab", &BTreeMap::new(), 7);
    after(&open(case), [Body::Report(JobReport::BootProven { procedure: None, proof: proof.into() })])
}

/// A change was planned and waits.
fn planned(state: &State) -> State {
    let case = state.case.clone().unwrap();
    let levels = BTreeMap::from([("triton-indexer".to_owned(), "off".to_owned())]);
    let change = fake::plan(&case, "lab", &ChangeWish::Running(levels));
    after(state, [Body::Report(JobReport::Planned(change.into()))])
}

fn gate_edit(patch: &str, text: &str) -> Command {
    let gate = patchbench::case::gate::parse(text).unwrap();
    Command::EditPatch { patch: patch.into(), edit: Edit::Gate { gate, read: Gate::None } }
}

const OTHER_GATE: &str = "{ env = \"OTHER\", levels = { on = \"1\", off = { unset = true } } }";

#[test]
fn a_gate_that_a_person_says_counts_and_what_the_old_one_proved_is_unknown() {
    let before = running();
    let state = after(&before, [Body::Command(gate_edit("triton-indexer", OTHER_GATE))]);
    let gate = |state: &State| state.case.as_ref().unwrap().patch("triton-indexer").unwrap().gate.clone();
    assert_eq!(gate(&state).switch(), Some("OTHER"));
    let boot = state.boots.values().next_back().unwrap();
    assert!(!boot.proof.levels.contains_key("triton-indexer") && boot.proof.levels.contains_key("mhc-bf16"));
    assert!(boot.proof.unverified["triton-indexer"].contains("its gate was changed by"));
    // The same file again leaves the edit; one that says something else is the newer word.
    let again = |case: &Case| after(&state, [Body::Command(Command::OpenCase { case: Box::new(case.clone()) })]);
    let file = crate::common::case(&PATCHES);
    assert_eq!(gate(&again(&file)).switch(), Some("OTHER"));
    let mut newer = file.clone();
    newer.patches[0].gate = patchbench::case::gate::parse(&OTHER_GATE.replace("OTHER", "NEWER")).unwrap();
    assert_eq!(gate(&again(&newer)).switch(), Some("NEWER"));
    // And back.
    let read = patchbench::case::gate::spelling(&gate(&before));
    assert_eq!(gate(&after(&state, [Body::Command(gate_edit("triton-indexer", &read))])), gate(&before));
}

#[test]
fn a_gate_is_refused_that_could_not_be_trusted() {
    let state = running();
    let edit = |text: &str| gate_edit("triton-indexer", text);
    refused(&state, gate_edit("nobody", "none"), "there is no patch `nobody` | `patchbench patches CASE` lists them");
    refused(
        &state,
        edit("{ env = \"API_TOKEN\", levels = { on = \"1\", off = \"2\" } }"),
        "the values of `API_TOKEN` are secrets by its name | \
         a level is written into the journal, so a secret cannot be one",
    );
    refused(&state, edit("{ reverse = \"x.diff\" }"), "`x.diff` is not a whole path | write it from `/` on");
    refused(
        &state,
        edit("{ env = \"X\", levels = { a = \"1\", b = \"2\" } }"),
        "the suspect level `on` of `triton-indexer` is not among a, b | name one level so",
    );
    let now = state.case.as_ref().unwrap().patch("triton-indexer").unwrap().gate.clone();
    refused(
        &state,
        edit(&patchbench::case::gate::spelling(&now)),
        "`triton-indexer` is switched so already | nothing was changed",
    );
}

#[track_caller]
fn refused(state: &State, command: Command, expect: &str) {
    let outcome = step(state, Body::Command(command));
    let messages: Vec<_> = outcome
        .events
        .iter()
        .filter_map(|e| match &e.what {
            Happened::Refused { failure, .. } => {
                Some(format!("{} | {}", failure.message, failure.hint.clone().unwrap_or_default()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(messages, [expect]);
    assert_eq!(outcome.effects, [], "a refused command starts nothing");
}

#[track_caller]
fn wish(state: &State, command: Command) -> ChangeWish {
    let outcome = step(state, Body::Command(command));
    let [Effect::Start { spec: JobSpec::Change { wish, .. }, .. }] = outcome.effects.as_slice() else {
        panic!("{:?}", outcome.effects)
    };
    wish.clone()
}

fn toggle(patch: &str, level: &str) -> Command {
    Command::Toggle { patch: patch.into(), target: None, level: level.into() }
}

fn recall() -> Command {
    Command::Recall {
        plan: RecallPlan {
            forms: vec![ProbeForm::Needle],
            lengths: vec![1024],
            depths: vec![0.5],
            repeats: 1,
            seed: 1,
            concurrency: 1,
            factors: BTreeMap::new(),
        },
    }
}

fn levels(indexer: &str, mhc: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("triton-indexer".to_owned(), indexer.to_owned()), ("mhc-bf16".to_owned(), mhc.to_owned())])
}

#[test]
fn nothing_can_be_done_without_a_case() {
    let expect = "no case is open | open one with `patchbench CASE`";
    for command in
        [Command::Probe { target: None }, toggle("x", "on"), recall(), Command::Stop { target: "lab".into() }]
    {
        refused(&State::default(), command, expect);
    }
}

#[test]
fn unknown_names_are_told_what_there_is() {
    let state = running();
    refused(&state, toggle("triton", "off"), "the case has no patch `triton` | it has triton-indexer, mhc-bf16");
    refused(&state, toggle("mhc-bf16", "maybe"), "`mhc-bf16` has no level `maybe` | its levels are off, on");
    refused(&state, Command::Probe { target: Some("prefill".into()) }, "the case has no target `prefill` | it has lab");
}

#[test]
fn a_toggle_keeps_the_other_levels() {
    assert_eq!(wish(&running(), toggle("triton-indexer", "off")), ChangeWish::Running(levels("off", "on")));
}

#[test]
fn one_change_at_a_time() {
    let state = planned(&running());
    refused(
        &state,
        toggle("mhc-bf16", "off"),
        "p1 on `lab` is still open: restart lab | `confirm p1` runs it, `discard p1` drops it",
    );
}

#[test]
fn a_planned_change_runs_only_when_it_is_confirmed() {
    let state = planned(&running());
    assert_eq!(state.procedures[&ProcedureId(1)].status, ProcedureStatus::Planned);
    let confirm = Command::Confirm { procedure: ProcedureId(1), typed: None };
    let outcome = step(&state, Body::Command(confirm.clone()));
    assert!(matches!(
        outcome.effects.as_slice(),
        [Effect::Start { spec: JobSpec::RunProcedure { phase: Phase::Do, from: 0, .. }, .. }]
    ));
    refused(&outcome.state, confirm, "p1 does not wait for a confirmation | ");
    let dropped = after(&state, [Body::Command(Command::Discard { procedure: ProcedureId(1) })]);
    assert_eq!(dropped.procedures[&ProcedureId(1)].status, ProcedureStatus::Discarded);
}

fn production(downtime_min: f64) -> State {
    let mut case = crate::common::case(&PATCHES);
    case.targets[0].production = true;
    case.budget.downtime_min = downtime_min;
    open(case)
}

fn elevate(seconds: u32) -> Command {
    Command::Elevate { target: "lab".into(), seconds }
}

#[test]
fn production_is_read_only_until_elevated_for_a_stated_time() {
    let state = production(10.0);
    let hint = "`elevate lab MIN` allows changes for so many minutes; a replica needs none";
    let expect = format!("`lab` is production and read-only | {hint}");
    let changes = [
        toggle("mhc-bf16", "off"),
        Command::Stop { target: "lab".into() },
        Command::Restart { target: "lab".into(), levels: BTreeMap::new() },
    ];
    for command in &changes {
        refused(&state, command.clone(), &expect);
    }
    let may = after(&state, [Body::Command(elevate(60))]);
    for command in &changes {
        wish(&may, command.clone());
    }
    let waiting = planned(&may);
    refused(
        &waiting,
        Command::Confirm { procedure: ProcedureId(1), typed: Some("lob".into()) },
        "`lab` is production and its name was not typed | type `lab` or give `--yes lab`",
    );
    // The leave ends by itself, also for what was planned before, and never for the way back.
    let late = |state: &State, command: Command| {
        let at = Timestamp::from_second(61).unwrap();
        update(state, &Input { id: InputId(1), at, actor: Actor::driver("ann"), body: Body::Command(command) })
    };
    for command in [changes[0].clone(), Command::Confirm { procedure: ProcedureId(1), typed: Some("lab".into()) }] {
        let outcome = late(&waiting, command);
        let Happened::Refused { failure, .. } = &outcome.events[0].what else { panic!("{:?}", outcome.events) };
        assert!(failure.message.starts_with("the leave to change `lab` ended at 1970-01-01T00:01:00Z"), "{failure:?}");
    }
    let outcome = late(&may, Command::Restore { target: Some("lab".into()) });
    assert!(matches!(
        outcome.effects[..],
        [Effect::Start { spec: JobSpec::Change { wish: ChangeWish::Original, .. }, .. }]
    ));
}

#[test]
fn requests_that_run_on_production_are_cut_off_only_when_that_is_typed() {
    let may = after(&production(10.0), [Body::Command(elevate(60))]);
    let with = |running: u32, purpose: Purpose| {
        let case = may.case.clone().unwrap();
        let mut change = fake::plan(&case, "lab", &ChangeWish::Running(BTreeMap::new()));
        change.load = Some(Load { running, waiting: 1 - u32::from(running == 0) });
        change.purpose = purpose;
        after(&may, [Body::Report(JobReport::Planned(change.into()))])
    };
    let typed = |word: &str| Command::Confirm { procedure: ProcedureId(1), typed: Some(word.into()) };
    let runs = |state: &State, word: &str| {
        let effects = step(state, Body::Command(typed(word))).effects;
        matches!(effects[..], [Effect::Start { spec: JobSpec::RunProcedure { .. }, .. }])
    };
    let busy = with(3, Purpose::Restart);
    refused(
        &busy,
        typed("lab"),
        "3 requests run and 1 wait on `lab`, and this change would cut them off | \
         wait and plan it anew, or type `lab anyway` (`--yes \"lab anyway\"`)",
    );
    assert!(runs(&busy, "lab anyway"));
    assert!(runs(&with(0, Purpose::Restart), "lab") && runs(&with(0, Purpose::Restart), "lab anyway"));
    assert!(runs(&with(3, Purpose::Restore), "lab"), "the way back is not held up");
}

#[test]
fn what_was_allowed_to_be_cut_off_is_remembered_with_the_change() {
    let anyway = |state: &State, command: Command| match &step(state, Body::Command(command)).effects[..] {
        [Effect::Start { spec: JobSpec::RunProcedure { anyway, .. }, .. }] => *anyway,
        other => panic!("{other:?}"),
    };
    let confirm = |typed: Option<&str>| Command::Confirm { procedure: ProcedureId(1), typed: typed.map(Into::into) };
    let waiting = planned(&running());
    for (typed, expect) in [(None, false), (Some(""), false), (Some("lab"), false), (Some("lab anyway"), true)] {
        assert_eq!(anyway(&waiting, confirm(typed)), expect, "{typed:?}");
    }
    // Whoever finishes it later allows no more and no less.
    let cut = |typed: Option<&str>| {
        let begun = after(
            &waiting,
            [
                Body::Command(confirm(typed)),
                Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 1, phase: Phase::Do }),
            ],
        );
        let what = Happened::SessionResumed { program: "test".into() };
        let mut state = begun;
        state.apply(&Event { seq: state.seq + 1, at: Timestamp::UNIX_EPOCH, actor: Actor::program(), what });
        state
    };
    let resume = Command::ResumeProcedure { procedure: ProcedureId(1) };
    assert!(anyway(&cut(Some("lab anyway")), resume.clone()) && !anyway(&cut(None), resume));
}

#[test]
fn a_busy_server_that_is_not_production_is_stopped_by_a_plain_yes() {
    let state = running();
    let mut change = fake::plan(&state.case.clone().unwrap(), "lab", &ChangeWish::Running(BTreeMap::new()));
    change.load = Some(Load { running: 3, waiting: 1 });
    assert!(change.cuts_off() && change.word() == "lab anyway");
    let waiting = after(&state, [Body::Report(JobReport::Planned(change.into()))]);
    let effects = step(&waiting, Body::Command(Command::Confirm { procedure: ProcedureId(1), typed: None })).effects;
    assert!(matches!(effects[..], [Effect::Start { spec: JobSpec::RunProcedure { .. }, .. }]), "{effects:?}");
}

#[test]
fn a_leave_is_short_and_for_production_with_stated_downtime_alone() {
    let state = production(10.0);
    let long = "`lab` can be elevated for 1 to 240 minutes | state the minutes that the next steps need";
    refused(&state, elevate(0), long);
    refused(&state, elevate(5 * 3600), long);
    refused(&running(), elevate(60), "`lab` is not production and needs no leave | ");
    let none = after(&production(0.0), [Body::Command(elevate(60))]);
    refused(
        &none,
        toggle("mhc-bf16", "off"),
        "the case allows no downtime of production, and a change of `lab` restarts it | \
         state the minutes as `downtime_min` under `[budget]`",
    );
}

#[test]
fn trials_need_a_proven_boot() {
    let state = open(crate::common::case(&PATCHES));
    refused(
        &state,
        recall(),
        "no proven start of `lab` is running | `restart lab` starts it, `probe lab` looks for a running one",
    );
    let outcome = step(&running(), Body::Command(recall()));
    let [Effect::Start { spec: JobSpec::Recall { arm, boots, .. }, .. }] = outcome.effects.as_slice() else {
        panic!("{:?}", outcome.effects)
    };
    assert_eq!(boots.len(), 1);
    assert_eq!(arm["triton-indexer@lab"], "on");
}

#[test]
fn a_job_that_ends_in_silence_does_not_leave_its_change_running() {
    let state = after(
        &planned(&running()),
        [
            Body::Command(Command::Confirm { procedure: ProcedureId(1), typed: None }),
            Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 1, phase: Phase::Do }),
            Body::Report(JobReport::Ended {
                job: JobId(2),
                outcome: JobOutcome::Failed { failure: Failure::new("the host went away") },
            }),
        ],
    );
    let entry = &state.procedures[&ProcedureId(1)];
    assert_eq!(entry.failed.as_ref().unwrap().failure.message, "the host went away");
    assert!(state.target("lab").unwrap().changed.is_some(), "a half-done change is marked as one");
}

#[test]
fn a_start_that_fails_or_is_cancelled_is_taken_back_once() {
    for outcome in [JobOutcome::Failed { failure: Failure::new("it died") }, JobOutcome::Cancelled] {
        let begun = after(
            &planned(&running()),
            [
                Body::Command(Command::Confirm { procedure: ProcedureId(1), typed: None }),
                Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 1, phase: Phase::Do }),
            ],
        );
        let ended = step(&begun, Body::Report(JobReport::Ended { job: JobId(2), outcome: outcome.clone() }));
        let [Effect::Start { spec: JobSpec::RunProcedure { phase, from, .. }, .. }] = ended.effects.as_slice() else {
            panic!("{:?}", ended.effects)
        };
        assert_eq!((*phase, *from), (Phase::Undo, 1));
        // What fails while it is taken back is left for a person.
        let failure = Failure::new("it does not stop");
        let stuck = after(
            &ended.state,
            [Body::Report(JobReport::StepFailed { procedure: ProcedureId(1), step: 1, phase: Phase::Undo, failure })],
        );
        let left = step(&stuck, Body::Report(JobReport::Ended { job: JobId(3), outcome }));
        assert!(
            !left.effects.iter().any(|e| matches!(e, Effect::Start { spec: JobSpec::RunProcedure { .. }, .. })),
            "{:?}",
            left.effects
        );
    }
}

#[test]
fn a_change_that_ended_in_silence_beside_another_job_was_left_half_done() {
    let begun = after(
        &planned(&running()),
        [
            Body::Command(Command::Confirm { procedure: ProcedureId(1), typed: None }),
            Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 1, phase: Phase::Do }),
            Body::Command(Command::Probe { target: None }),
        ],
    );
    let ended = step(&begun, Body::Report(JobReport::Ended { job: JobId(2), outcome: JobOutcome::Cancelled }));
    let [Effect::Start { spec: JobSpec::RunProcedure { phase, .. }, .. }] = ended.effects.as_slice() else {
        panic!("{:?}", ended.effects)
    };
    assert_eq!(*phase, Phase::Undo);
}

#[test]
fn a_half_done_change_of_production_was_finished_without_leave() {
    let may = planned(&after(&production(10.0), [Body::Command(elevate(60))]));
    let cut = after(
        &may,
        [
            Body::Command(Command::Confirm { procedure: ProcedureId(1), typed: Some("lab".into()) }),
            Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 1, phase: Phase::Do }),
            Body::Report(JobReport::StepFailed {
                procedure: ProcedureId(1),
                step: 1,
                phase: Phase::Undo,
                failure: Failure::new("it does not stop"),
            }),
            Body::Report(JobReport::Ended { job: JobId(2), outcome: JobOutcome::Done }),
        ],
    );
    let at = Timestamp::from_second(61).unwrap();
    let late = |command: Command| {
        update(&cut, &Input { id: InputId(1), at, actor: Actor::driver("ann"), body: Body::Command(command) })
    };
    let finish = late(Command::ResumeProcedure { procedure: ProcedureId(1) });
    let Happened::Refused { failure, .. } = &finish.events[0].what else { panic!("{:?}", finish.events) };
    assert!(failure.message.starts_with("the leave to change `lab` ended"), "{failure:?}");
    // The way back needs none.
    let undo = late(Command::UndoProcedure { procedure: ProcedureId(1) });
    assert!(matches!(undo.effects[..], [Effect::Start { spec: JobSpec::RunProcedure { phase: Phase::Undo, .. }, .. }]));
}

#[test]
fn changed_is_said_until_the_original_runs_again() {
    let state = after(
        &planned(&running()),
        [
            Body::Command(Command::Confirm { procedure: ProcedureId(1), typed: None }),
            Body::Report(JobReport::StepStarted { procedure: ProcedureId(1), step: 1, phase: Phase::Do }),
        ],
    );
    assert!(state.current_boot("lab").is_none(), "from the stop step on, no request can meet the old boot");
    assert_eq!(state.target("lab").unwrap().original, levels("on", "on"));
    let case = state.case.clone().unwrap();
    let boot = |levels: &BTreeMap<String, String>, pid| {
        let proof = fake::proof(&case, "lab", levels, pid);
        Body::Report(JobReport::BootProven { procedure: Some(ProcedureId(1)), proof: proof.into() })
    };
    let off = after(&state, [boot(&levels("off", "on"), 8)]);
    assert_eq!(off.target("lab").unwrap().changed.as_ref().unwrap().levels, levels("off", "on"));
    let back = after(&off, [boot(&levels("on", "on"), 9)]);
    assert!(back.target("lab").unwrap().changed.is_none());
}

/// Runs every step of a procedure that was planned just now.
fn ran(state: &State, mut procedure: Procedure, purpose: Purpose) -> State {
    procedure.purpose = purpose;
    let (id, steps) = (ProcedureId(state.counters.procedure + 1), procedure.steps.len());
    let mut bodies = vec![
        Body::Report(JobReport::Planned(procedure.into())),
        Body::Command(Command::Confirm { procedure: id, typed: None }),
    ];
    for step in 0..steps {
        let phase = Phase::Do;
        bodies.push(Body::Report(JobReport::StepStarted { procedure: id, step, phase }));
        bodies.push(Body::Report(JobReport::StepDone { procedure: id, step, phase, evidence: Vec::new() }));
    }
    after(state, bodies)
}

#[test]
fn stopping_what_was_found_down_is_no_change() {
    let case = crate::common::case(&PATCHES);
    let stop = || fake::plan(&case, "lab", &ChangeWish::Stopped);
    let found_up = ran(&running(), stop(), Purpose::Stop);
    assert!(found_up.target("lab").unwrap().changed.is_some(), "it ran when it was met, and is down now");
    let mut start = fake::plan(&case, "lab", &ChangeWish::Running(BTreeMap::new()));
    start.steps.remove(0);
    let started = ran(&open(case.clone()), start, Purpose::Start);
    assert!(started.target("lab").unwrap().found_down);
    let found_down = ran(&started, stop(), Purpose::Stop);
    assert!(found_down.target("lab").unwrap().changed.is_none(), "it is as it was found");
}

#[test]
fn best_known_needs_a_guilty_patch() {
    refused(
        &running(),
        Command::ChooseEndState { end_state: EndState::BestKnown },
        "no patch is guilty yet, so no configuration is known to be better | `isolate` looks for the guilty one, \
         `end-state original` puts everything back",
    );
}

#[test]
fn what_was_believed_stays_with_what_replaced_it_and_why() {
    let believe = |says: &str, why: Option<&str>| Command::Believe {
        subject: "mhc-bf16".into(),
        says: says.into(),
        evidence: "a curve".into(),
        why: why.map(str::to_owned),
    };
    let state = after(&running(), [Body::Command(believe("it is the culprit", None))]);
    refused(
        &state,
        believe("it is innocent", None),
        "you believed something else of `mhc-bf16` before | say why no more: `believe PATCH SAYS; EVIDENCE; WHY`",
    );
    let state = after(&state, [Body::Command(believe("it is innocent", Some("the curve is below its floor")))]);
    let all = belief::history(&state.beliefs, "mhc-bf16");
    let said: Vec<&str> = all.iter().map(|b| b.says.as_str()).collect();
    assert_eq!(said, ["it is the culprit", "it is innocent"]);
    let ended = all[0].ended.as_ref().unwrap();
    assert_eq!((ended.why.as_str(), ended.by), ("the curve is below its floor", Some(all[1].id)));
    assert_eq!(belief::now(&state.beliefs, all[0].id).unwrap().says, "it is innocent");
    refused(
        &state,
        Command::Believe { subject: "nobody".into(), says: "x".into(), evidence: "y".into(), why: None },
        "there is no patch or factor `nobody` | `patchbench patches CASE` lists them",
    );
}

#[test]
fn what_is_imported_twice_stands_once_and_is_the_patch_whose_variable_it_reads() {
    let text: &[u8] = include_bytes!("../artefacts/A38_patch_inventory.diff");
    let entries = imported(text, None, "a.diff").entries;
    let shared: Vec<_> = entries.iter().cloned().map(std::sync::Arc::new).collect();
    let read = || Body::Report(JobReport::PatchesRead { source: "a.diff".into(), entries: shared.clone() });
    let mut case = crate::common::case(&PATCHES);
    let gate = case.patches[0].gate.clone();
    let Gate::Env { levels, .. } = gate else { panic!() };
    case.patches[0].gate = Gate::Env { name: "SGLANG_SM120_TRITON_INDEXER".into(), levels };
    let state = after(&open(case), [read(), read()]);
    assert_eq!(state.entries.len(), entries.len());
    let ranked = of_state::ranked(&state);
    let patches = ranked.iter().filter(|r| r.kind == Kind::Patch).count();
    assert_eq!(patches, entries.len() + 1, "one patch of the case is told by the diff, the other by the case alone");
    assert!(ranked.iter().all(
        |r| r.id != entries.iter().find(|e| e.gates.iter().any(|g| g.name.ends_with("TRITON_INDEXER"))).unwrap().id
    ));
}
