//! What a session knows, as the rules want it: scene, notes and entries out of the state. Pure.
//!
//! Not responsible for any judgement; see `risk`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context::{
    Bearing, Evidence, Import, Level, Measured, ModelFacts, Notes, Overwrite, Reading, Ruling, Running, Scene, Symptom,
    SymptomKind, Value,
};
use super::declared::{self, Declared};
use super::edit;
use super::risk::{self, Kind, Ranked};
use super::types::{Entry, GateKind, GateRead, Phase, Place};
use crate::case::{Case, Patch, Role, ServingEngine, Target};
use crate::engine::state::State;
use crate::isolate::arms;
use crate::isolate::verdict::SubjectKind;
use crate::recall::matrix::Counts;
use crate::recall::trial::{Outcome, Trial};
use crate::truth::knowledge::{self, Standing};
use crate::truth::{Claim, Known, Row, RowKind, RowStatus, ServerStatus, TargetTruth, flags, imports};

/// Patches and factors of a session, the most suspect first; without a case, what was imported is weighed alone.
pub fn ranked(state: &State) -> Vec<Ranked> {
    weigh(state, &entries(state))
}

/// The same, of entries that are those of this session.
pub fn weigh(state: &State, entries: &[Entry]) -> Vec<Ranked> {
    let Some(case) = state.case.as_deref() else {
        let mut alone = risk::rank(entries, &Scene::default(), &BTreeMap::new());
        alone.retain(|r| r.kind == Kind::Patch);
        return alone;
    };
    let mut scene = scene(state, case);
    read_for(entries, state, &mut scene);
    risk::rank(entries, &scene, &notes(state, case))
}

/// Every entry, without its lines: first those that were imported, in their order, under the id of the case's patch that
/// they are, then one for each patch that only the case tells of.
pub fn entries(state: &State) -> Vec<Entry> {
    let patches = state.case.as_deref().map_or(&[][..], |c| &c.patches);
    let mut out: Vec<Entry> = Vec::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for (patch, entry) in imported(state) {
        told.extend(patch.map(|p| p.id.as_str()));
        let (id, title) = patch.map_or((&entry.id, &entry.title), |p| (&p.id, &p.title));
        out.push(Entry { id: id.clone(), title: title.clone(), ..entry.without_lines() });
    }
    let untold = patches.iter().filter(|p| !told.contains(p.id.as_str()));
    out.extend(untold.map(|patch| declared::entry(&declared_of(patch)).0));
    let edited = |entry: Entry| match state.edits.get(&entry.id) {
        Some(said) => edit::edited(entry, said.iter()),
        None => entry,
    };
    out.into_iter().map(edited).collect()
}

/// The imported changes in their order, each with the patch of the case that it is.
pub fn imported(state: &State) -> Vec<(Option<&Patch>, &Arc<Entry>)> {
    let patches = state.case.as_deref().map_or(&[][..], |c| &c.patches);
    let all = Imported::of(state);
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut of = |entry: &Entry| {
        let same = patches.iter().find(|p| all.is(p, entry) && !told.contains(p.id.as_str()));
        told.extend(same.map(|p| p.id.as_str()));
        same
    };
    state.entries.iter().map(|entry| (of(entry), entry)).collect()
}

/// The imported changes by the id under which they are shown.
pub fn shown(state: &State) -> BTreeMap<String, Arc<Entry>> {
    let id = |patch: Option<&Patch>, entry: &Entry| patch.map_or(&entry.id, |p| &p.id).clone();
    imported(state).into_iter().map(|(patch, entry)| (id(patch, entry), entry.clone())).collect()
}

/// The imported changes by their ids, and how many of them read a name.
struct Imported<'a> {
    ids: BTreeSet<&'a str>,
    readers: BTreeMap<&'a str, usize>,
}

impl<'a> Imported<'a> {
    fn of(state: &'a State) -> Self {
        let mut readers = BTreeMap::new();
        for entry in &state.entries {
            let names: BTreeSet<&str> = entry.gates.iter().map(|g| g.name.as_str()).collect();
            for name in names {
                *readers.entry(name).or_default() += 1;
            }
        }
        Self { ids: state.entries.iter().map(|e| e.id.as_str()).collect(), readers }
    }

    /// Whether an imported change is a patch of the case: by its id, or because it reads the variable that switches the
    /// patch, no other, and no other imported change does.
    fn is(&self, patch: &Patch, entry: &Entry) -> bool {
        if self.ids.contains(patch.id.as_str()) {
            return entry.id == patch.id;
        }
        patch.gate.variable().is_some_and(|name| {
            let other = |g: &GateRead| g.name != name && !matches!(g.kind, GateKind::Arch | GateKind::Constant);
            self.readers.get(name) == Some(&1)
                && entry.gates.iter().any(|g| g.name == name)
                && !entry.gates.iter().any(other)
        })
    }
}

fn declared_of(patch: &Patch) -> Declared {
    Declared {
        id: patch.id.clone(),
        title: patch.title.clone(),
        site: patch.site.clone(),
        phases: patch.phases.clone(),
        switch: patch.gate.switch().map(str::to_owned),
        changes: patch.changes.clone(),
        place: Place { path: "the case".into(), line: None },
    }
}

/// What does not belong to one patch.
pub fn scene(state: &State, case: &Case) -> Scene {
    let computing = || case.targets.iter().filter(|t| t.role != Role::Router);
    let truths = || computing().filter_map(|t| state.targets.get(&t.name)?.truth.as_deref());
    let model =
        truths().find_map(|t| t.served.checkpoint.clone()).map_or_else(ModelFacts::default, |facts| ModelFacts {
            layers: facts.layers,
            hash_layers: facts.hash_layers,
            compress_ratios: facts.compress_ratios,
            hyper_streams: facts.hyper_streams,
            source: facts.path,
        });
    let running = computing().map(|target| {
        let truth = state.targets.get(&target.name).and_then(|t| t.truth.as_deref());
        let unread = |why: &str| Running::unknown(&target.name, target.role, why);
        match truth {
            None => unread("the server was not read"),
            Some(truth) if truth.process.is_none() => match truth.status {
                ServerStatus::Down => unread("no server runs"),
                _ => unread("no process of the server could be read"),
            },
            Some(truth) => running(target, truth),
        }
    });
    Scene { symptom: symptom(state, case), model, running: running.collect() }
}

/// The variables that entries read and no row names: a whole environment that was read has them not.
fn read_for(entries: &[Entry], state: &State, scene: &mut Scene) {
    let names: BTreeSet<&str> =
        entries.iter().flat_map(|e| &e.gates).filter(|g| g.kind.is_variable()).map(|g| g.name.as_str()).collect();
    for running in &mut scene.running {
        let truth = state.targets.get(&running.target).and_then(|t| t.truth.as_deref());
        // Every variable of a process has a row, so that one row tells whether its environment could be read.
        let claim =
            truth.and_then(|t| t.rows.iter().filter(|r| r.kind == RowKind::Env).find_map(|r| r.effective.as_ref()));
        let Some(claim) = claim else { continue };
        for name in &names {
            let absent = Reading {
                value: match &claim.known {
                    Known::Yes => Value::Unset,
                    Known::Unknown { because } => Value::Unknown(because.clone()),
                },
                source: claim.source.clone(),
                blind_to: claim.blind_to.clone().filter(|_| !is_local(name)),
            };
            running.variables.entry((*name).to_owned()).or_insert(absent);
        }
    }
}

/// Whether the engine leaves a variable alone: it does not know it, or only a patch reads it.
fn is_local(name: &str) -> bool {
    let known = knowledge::by_prefix(name).and_then(|(_, tables)| tables.variables.get(name));
    known.is_none_or(|v| v.standing == Standing::Local)
}

/// Whether the trials of the deployment as found fail more often than real models do, by themselves.
fn seen_in_trials(state: &State, case: &Case) -> bool {
    let found = arms::originals(state);
    let is_found = |t: &Trial| t.arm.iter().all(|(key, level)| found.get(key).is_none_or(|l| l == level));
    let mut counts = Counts::default();
    state.trials.iter().filter(|t| is_found(&t.trial)).for_each(|t| counts.add(&t.trial.outcome));
    counts.interval().is_some_and(|(lower, _)| lower > case.recall.floor)
}

/// A fact that is planted in a prompt and not found again is context that was lost.
fn symptom(state: &State, case: &Case) -> Symptom {
    let failed = |o: &Outcome| matches!(o, Outcome::Fail { .. });
    let longest = state.trials.iter().filter(|t| failed(&t.trial.outcome)).filter_map(|t| t.trial.prompt_tokens).max();
    let shown = state.symptom.as_ref().is_some_and(|s| s.lower > case.recall.floor) || seen_in_trials(state, case);
    let mut out = Symptom { prompt_tokens: longest.map(u64::from), ..Symptom::default() };
    if !shown {
        return out;
    }
    out.kind = SymptomKind::LosesContext;
    let cached = |warm: bool| {
        let mut of = state.trials.iter().filter(|t| failed(&t.trial.outcome));
        of.find(|t| t.trial.cached_tokens.map(|n| n > 0) == Some(warm)).map(|t| t.seq)
    };
    if let Some(seq) = cached(false) {
        // What fails on a cold cache needs no cache to fail: the prompt itself, computed anew, is lost.
        let fact = "a prompt that came from no cache was lost".to_owned();
        let evidence = Evidence { fact, source: format!("trial at journal line {seq}") };
        out.met.insert("warm-cache".into(), (false, evidence.clone()));
        out.phases.insert(Phase::Extend, (Bearing::Possible, evidence));
    }
    out
}

fn running(target: &Target, truth: &TargetTruth) -> Running {
    let mut out = Running::unread(&target.name, target.role);
    for row in &truth.rows {
        match row.kind {
            RowKind::Env => {
                if let Some(reading) = variable(row) {
                    out.variables.insert(row.name.clone(), reading);
                }
            }
            RowKind::Config if row.component == imports::COMPONENT => {
                let path = row.name.split(':').next().unwrap_or(&row.name);
                out.imports.insert(path.to_owned(), import(row));
            }
            RowKind::Flag | RowKind::Config => {
                let claims = [&row.observed, &row.effective, &row.declared];
                if let Some(reading) = claims.into_iter().flatten().map(reading).find(is_known) {
                    out.settings.insert(flags::key(&row.name), reading);
                }
            }
        }
    }
    let served = &truth.served;
    let mut say = |key: &str, value: Option<String>, source: &str| {
        if let Some(text) = value {
            let reading = Reading { value: Value::Set(text), source: source.to_owned(), blind_to: None };
            out.settings.insert(key.to_owned(), reading);
        }
    };
    if let Some(facts) = &served.checkpoint {
        say("architecture", facts.architecture.clone(), &facts.path);
        say("moe_quantization", facts.quantization.as_ref().map(|q| q.to_lowercase()), &facts.path);
    }
    say("capability", served.capability.map(|c| c.to_string()), "the cards of the host");
    if let Some(said) = out_architecture(truth) {
        out.settings.entry("architecture".into()).or_insert(said);
    }
    if target.engine == ServingEngine::Sglang {
        out.overwritten = overwritten(target, truth);
    }
    out
}

/// The first architecture that the server itself names, as `["X"]` or `X`.
fn out_architecture(truth: &TargetTruth) -> Option<Reading> {
    let row =
        truth.rows.iter().find(|r| r.kind != RowKind::Env && r.name.trim_start_matches('-') == "architectures")?;
    let said = reading(row.observed.as_ref()?);
    let Value::Set(text) = &said.value else { return None };
    let first = text.trim_matches(['[', ']', ' ']).split(',').next()?.trim_matches(['"', '\'', ' ']).to_owned();
    (!first.is_empty()).then_some(Reading { value: Value::Set(first), ..said })
}

/// What the process has, else what its files say, which the process may not have.
fn variable(row: &Row) -> Option<Reading> {
    let mut reading = match (&row.effective, &row.declared) {
        (Some(claim), _) => reading(claim),
        (None, Some(claim)) => {
            let blind_to = Some("what the process really has".to_owned());
            Reading { blind_to, ..reading(claim) }
        }
        (None, None) => return None,
    };
    if is_local(&row.name) && row.effective.is_some() {
        // The engine leaves a variable alone that it does not know.
        reading.blind_to = None;
    }
    Some(reading)
}

fn is_known(reading: &Reading) -> bool {
    !matches!(reading.value, Value::Unknown(_))
}

fn reading(claim: &Claim) -> Reading {
    let value = match (&claim.known, &claim.value) {
        (Known::Unknown { because }, _) => Value::Unknown(because.clone()),
        (Known::Yes, Some(text)) => Value::Set(text.raw().to_owned()),
        (Known::Yes, None) => Value::Unset,
    };
    let line = claim.line.map(|l| format!(":{l}")).unwrap_or_default();
    Reading { value, source: format!("{}{line}", claim.source), blind_to: claim.blind_to.clone() }
}

fn import(row: &Row) -> Import {
    let source = row.effective.as_ref().map_or_else(|| row.component.clone(), |c| c.source.clone());
    match row.status {
        // In a copy of ours every other patch is as in the checkout; those that it lacks have the level that says so.
        RowStatus::Agrees | RowStatus::OverriddenBy => Import::Imported { source },
        RowStatus::Differs => Import::Other { why: row.note.clone(), source },
        _ => Import::Unknown { why: row.note.clone() },
    }
}

/// Variables that the engine sets by itself, with whether it does so on this target.
fn overwritten(target: &Target, truth: &TargetTruth) -> BTreeMap<String, Overwrite> {
    let served = &truth.served;
    let architecture = served.checkpoint.as_ref().and_then(|c| c.architecture.as_deref());
    let one = |o: &knowledge::Overwrite| {
        let card = served.capability.map(|c| knowledge::is_family(c, o.capability));
        let parts = o.fits(architecture, card, served.version.as_deref());
        let applies = if parts.contains(&Some(false)) {
            Some(false)
        } else if parts.contains(&None) {
            None
        } else {
            Some(true)
        };
        (o.variable.clone(), Overwrite { value: o.value.clone(), applies, source: o.source.clone() })
    };
    knowledge::of(target.engine).overwrites.iter().map(one).collect()
}

/// What is known of each patch and factor beside its source.
pub fn notes(state: &State, case: &Case) -> BTreeMap<String, Notes> {
    let mut out: BTreeMap<String, Notes> = BTreeMap::new();
    for patch in &case.patches {
        out.insert(patch.id.clone(), notes_of(state, case, patch));
    }
    for verdict in state.verdicts.iter().filter(|v| v.subject.kind == SubjectKind::Factor) {
        out.entry(verdict.subject.id.clone()).or_default().ruling = Some(ruling(verdict));
    }
    out
}

fn notes_of(state: &State, case: &Case, patch: &Patch) -> Notes {
    let switch = patch.gate.switch().map(str::to_owned);
    let level = |target: &Target| {
        let truth = state.targets.get(&target.name)?.truth.as_deref()?;
        let source = truth.level_sources.get(&patch.id).cloned().unwrap_or_else(|| "not read".into());
        let mut read = truth.levels.get(&patch.id).cloned().flatten();
        let mut source = source;
        // The symptom is that of the deployment as found: what this session switched off is no less suspect for that.
        let entry = state.targets.get(&target.name)?;
        if let Some(found) =
            entry.original.get(&patch.id).filter(|l| entry.changed.is_some() && read.as_ref() != Some(*l))
        {
            source = "as it was found, before this session changed it".into();
            read = Some(found.clone());
        }
        // A third level is neither with it nor without it.
        let known = |l: &String| *l == patch.suspect || Some(l.as_str()) == patch.innocent_level();
        let (level, source) = match read {
            Some(level) if !known(&level) => (
                None,
                format!("it has the level `{level}`, which is neither the suspect nor the innocent one ({source})"),
            ),
            level => (level, source),
        };
        let level = Level { switch: switch.clone(), level, suspect: patch.suspect.clone(), source };
        Some((target.name.clone(), level))
    };
    let newest = state.micro.iter().rev().find_map(|report| Some((report, patch.verdict_in(report)?)));
    let measured = newest.map(|(report, verdict)| {
        let source = format!("microtest {}, {} on {}", report.spec, verdict.candidate, report.device);
        Measured { class: verdict.class, evidence: Evidence { fact: verdict.says.clone(), source } }
    });
    let is_about = |s: &crate::isolate::verdict::Subject| s.kind == SubjectKind::Patch && s.id == patch.id;
    Notes {
        targets: patch.targets.clone(),
        levels: if patch.gate.levels().is_some() {
            patch.targets_in(case).filter_map(level).collect()
        } else {
            BTreeMap::new()
        },
        measured: measured.into_iter().collect(),
        ruling: state.verdicts.iter().rfind(|v| is_about(&v.subject)).map(|v| ruling(v)),
    }
}

fn ruling(verdict: &crate::isolate::verdict::Verdict) -> Ruling {
    let lines: Vec<String> = verdict.evidence.iter().take(4).map(u64::to_string).collect();
    let source = match (lines.len(), verdict.evidence.len()) {
        (0, _) => "the search".to_owned(),
        (shown, all) if shown < all => format!("journal lines {} and {} more", lines.join(", "), all - shown),
        _ => format!("journal lines {}", lines.join(", ")),
    };
    Ruling { finding: verdict.verdict, evidence: Evidence { fact: verdict.why.clone(), source } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    #[test]
    fn a_guilty_patch_is_above_everything_and_an_acquitted_one_below() {
        let state = fixture::full_state();
        let ranked = ranked(&state);
        let place = |id: &str| ranked.iter().position(|r| r.id == id).unwrap();
        assert_eq!(place("triton-indexer"), 0, "{ranked:#?}");
        assert_eq!(place("mhc-bf16"), ranked.len() - 1);
        assert_eq!(ranked.iter().filter(|r| r.kind == risk::Kind::Factor).count(), risk::Factor::ALL.len());
    }

    #[test]
    fn a_level_that_could_not_be_read_is_unknown_to_the_rules() {
        let state = fixture::full_state();
        let case = state.case.clone().unwrap();
        let notes = notes(&state, &case);
        assert_eq!(notes["mhc-bf16"].levels["server"].level, None);
        assert_eq!(notes["mhc-bf16"].levels["server"].source, "permission denied");
        let entry = entries(&state).into_iter().find(|e| e.id == "mhc-bf16").unwrap();
        let found = crate::patch::state::state(
            &entry,
            Some(&notes["mhc-bf16"].levels["server"]),
            &scene(&state, &case).running[0],
        );
        assert_eq!(found.state.word(), "unknown", "{found:#?}");
    }

    #[test]
    fn a_variable_that_only_an_imported_change_reads_is_off_where_the_whole_environment_lacks_it() {
        let text: &[u8] = include_bytes!("../../tests/artefacts/A38_patch_inventory.diff");
        let mut state = fixture::full_state();
        state.entries =
            crate::patch::import::imported(text, None, "a.diff").entries.into_iter().map(Into::into).collect();
        let decode = |state: &State| {
            let all = ranked(state);
            let one = all.iter().find(|r| r.title.contains("flash_mla") || r.id.contains("flash-mla")).unwrap();
            one.states[0].clone()
        };
        let rows = |state: &mut State, known: Known| {
            let target = state.targets.get_mut("server").unwrap();
            let mut truth = TargetTruth::clone(target.truth.as_ref().unwrap());
            let claim = Claim { value: None, known, source: "/proc/7/environ".into(), line: None, blind_to: None };
            truth.rows.retain(|r| r.kind != RowKind::Env);
            truth.rows.push(Row {
                target: "server".into(),
                component: "server".into(),
                name: "HOME".into(),
                kind: RowKind::Env,
                declared: None,
                effective: Some(claim),
                observed: None,
                status: RowStatus::OneSource,
                note: String::new(),
            });
            target.truth = Some(truth.into());
        };
        rows(&mut state, Known::Yes);
        assert_eq!(decode(&state).state.word(), "off", "{:#?}", decode(&state));
        rows(&mut state, Known::Unknown { because: "it was overwritten".into() });
        assert_eq!(decode(&state).state.word(), "unknown", "{:#?}", decode(&state));
    }

    #[test]
    fn a_patch_that_the_session_switched_off_was_called_dead_while_its_symptom_went_away_with_it() {
        let mut state = fixture::full_state();
        state.verdicts.clear();
        let before = ranked(&state).into_iter().find(|r| r.id == "triton-indexer").unwrap();
        let target = state.targets.get_mut("server").unwrap();
        target.original = [("triton-indexer".to_owned(), "on".to_owned())].into();
        target.changed = Some(crate::engine::state::Changed {
            since: jiff::Timestamp::UNIX_EPOCH,
            by: crate::engine::input::Actor::driver("ann"),
            procedure: crate::engine::ids::ProcedureId(1),
            levels: [("triton-indexer".to_owned(), "off".to_owned())].into(),
        });
        let mut truth = TargetTruth::clone(target.truth.as_ref().unwrap());
        truth.levels.insert("triton-indexer".into(), Some("off".into()));
        target.truth = Some(truth.into());
        let after = ranked(&state).into_iter().find(|r| r.id == "triton-indexer").unwrap();
        assert_eq!((after.score, after.states[0].state.word()), (before.score, "live"), "{after:#?}");
        assert!(after.states[0].evidence.iter().any(|e| e.source.contains("before this session changed it")));
    }

    #[test]
    fn a_card_of_the_same_family_was_taken_for_another() {
        let mut state = fixture::full_state();
        let case = state.case.clone().unwrap();
        let target = state.targets.get_mut("server").unwrap();
        let mut truth = TargetTruth::clone(target.truth.as_ref().unwrap());
        let known = knowledge::of(ServingEngine::Sglang).overwrites.first().unwrap();
        let applies = |truth: &TargetTruth| overwritten(&case.targets[0], truth)[&known.variable].applies;
        truth.served.capability = Some(known.capability + 1);
        assert_ne!(applies(&truth), Some(false), "12.0 and 12.1 are one family");
        truth.served.capability = Some(90);
        assert_eq!(applies(&truth), Some(false));
    }

    #[test]
    fn of_an_import_alone_the_ungated_lowering_is_first_and_the_scaling_next() {
        let text: &[u8] = include_bytes!("../../tests/artefacts/A38_patch_inventory.diff");
        let entries = crate::patch::import::imported(text, None, "a.diff").entries;
        let state = State { entries: entries.into_iter().map(Into::into).collect(), ..State::default() };
        let all = ranked(&state);
        let places: Vec<&str> = all.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(places[..2], ["deepseek-v4-hc-pre", "hash-topk-forward"], "{places:?}");
        // A picture and a mode are no arithmetic.
        assert_eq!(places[5..], ["perf", "serve-dsv4"], "{places:?}");
        assert!(all.iter().all(|r| r.states.iter().all(|s| s.state.word() != "live")), "no server was read");
    }

    #[test]
    fn a_session_without_a_case_ranks_nothing() {
        assert!(ranked(&State::default()).is_empty());
    }
}
