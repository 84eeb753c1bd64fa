//! What a session knows, as the rules want it: scene, notes and entries out of the state. Pure.
//!
//! Not responsible for any judgement; see `risk`.

use std::collections::BTreeMap;

use super::context::{
    Bearing, Evidence, Import, Level, Measured, ModelFacts, Notes, Overwrite, Reading, Ruling, Running, Scene, Symptom,
    SymptomKind, Value,
};
use super::declared::{self, Declared};
use super::risk::{self, Kind, Ranked};
use super::types::{Entry, Phase, Place};
use crate::case::{Case, Gate, Patch, Role, ServingEngine, Target};
use crate::engine::state::State;
use crate::isolate::verdict::SubjectKind;
use crate::recall::trial::Outcome;
use crate::truth::knowledge::{self, Standing};
use crate::truth::{Claim, Known, Row, RowKind, RowStatus, TargetTruth, flags, imports};

/// Patches and factors of a session, the most suspect first; without a case, what was imported is weighed alone.
pub fn ranked(state: &State) -> Vec<Ranked> {
    let Some(case) = state.case.as_deref() else {
        let entries: Vec<Entry> = state.entries.iter().map(|e| Entry::clone(e)).collect();
        let mut alone = risk::rank(&entries, &Scene::default(), &BTreeMap::new());
        alone.retain(|r| r.kind == Kind::Patch);
        return alone;
    };
    risk::rank(&entries(state, case), &scene(state, case), &notes(state, case))
}

/// Every entry: those that were imported, under the id of the case's patch that they are, and one for each patch that
/// only the case tells of.
pub fn entries(state: &State, case: &Case) -> Vec<Entry> {
    let mut out: Vec<Entry> = Vec::new();
    let mut told = Vec::new();
    for entry in &state.entries {
        let same = case.patches.iter().find(|p| is_same(p, entry));
        if let Some(patch) = same {
            told.push(patch.id.clone());
        }
        let (id, title) = same.map_or((&entry.id, &entry.title), |p| (&p.id, &p.title));
        out.push(Entry { id: id.clone(), title: title.clone(), ..Entry::clone(entry) });
    }
    let untold = case.patches.iter().filter(|p| !told.contains(&p.id));
    out.extend(untold.map(|patch| declared::entry(&declared_of(patch)).0));
    out
}

/// Whether an imported change is a patch of the case: by its id, or by the variable that both are switched by.
pub fn is_same(patch: &Patch, entry: &Entry) -> bool {
    let switch = match &patch.gate {
        Gate::Env { name, .. } => Some(name.as_str()),
        Gate::Flag { .. } | Gate::Reverse { .. } | Gate::None => None,
    };
    entry.id == patch.id || switch.is_some_and(|name| entry.gates.iter().any(|g| g.name == name))
}

fn declared_of(patch: &Patch) -> Declared {
    let switch = match &patch.gate {
        Gate::Env { name, .. } => Some(name.clone()),
        Gate::Flag { flag, .. } => Some(flag.clone()),
        Gate::Reverse { .. } | Gate::None => None,
    };
    Declared {
        id: patch.id.clone(),
        title: patch.title.clone(),
        site: patch.site.clone(),
        phases: patch.phases.clone(),
        switch,
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
        truth.map_or_else(|| Running::unread(&target.name, target.role), |truth| running(target, truth))
    });
    Scene { symptom: symptom(state, case), model, running: running.collect() }
}

/// A fact that is planted in a prompt and not found again is context that was lost.
fn symptom(state: &State, case: &Case) -> Symptom {
    let failed = |o: &Outcome| matches!(o, Outcome::Fail { .. });
    let longest = state.trials.iter().filter(|t| failed(&t.trial.outcome)).filter_map(|t| t.trial.prompt_tokens).max();
    let shown = state.symptom.as_ref().is_some_and(|s| s.lower > case.recall.floor);
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
    if target.engine == ServingEngine::Sglang {
        out.overwritten = overwritten(target, truth);
    }
    out
}

/// What the process has, else what its files say, which the process may not have.
fn variable(row: &Row) -> Option<Reading> {
    let local = knowledge::by_prefix(&row.name)
        .and_then(|(_, tables)| tables.variables.get(&row.name))
        .is_none_or(|v| v.standing == Standing::Local);
    let mut reading = match (&row.effective, &row.declared) {
        (Some(claim), _) => reading(claim),
        (None, Some(claim)) => {
            let blind_to = Some("what the process really has".to_owned());
            Reading { blind_to, ..reading(claim) }
        }
        (None, None) => return None,
    };
    if local && row.effective.is_some() {
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
        RowStatus::Agrees => Import::Imported { source },
        RowStatus::Differs => Import::Other { why: row.note.clone(), source },
        _ => Import::Unknown { why: row.note.clone() },
    }
}

/// Variables that the engine sets by itself, with whether it does so on this target.
fn overwritten(target: &Target, truth: &TargetTruth) -> BTreeMap<String, Overwrite> {
    let served = &truth.served;
    let architecture = served.checkpoint.as_ref().and_then(|c| c.architecture.as_deref());
    let one = |o: &knowledge::Overwrite| {
        let model = architecture.map(|a| a == o.architecture);
        let card = served.capability.map(|c| c == o.capability);
        let span = knowledge::Span { since: o.since.clone(), until: o.until.clone() };
        let version = span.covers(served.version.as_deref());
        let parts = [model, card, version];
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
    let switch = match &patch.gate {
        Gate::Env { name, .. } => Some(name.clone()),
        Gate::Flag { flag, .. } => Some(flag.clone()),
        Gate::Reverse { .. } | Gate::None => None,
    };
    let level = |target: &Target| {
        let truth = state.targets.get(&target.name)?.truth.as_deref()?;
        let source = truth.level_sources.get(&patch.id).cloned().unwrap_or_else(|| "not read".into());
        let level = truth.levels.get(&patch.id).cloned().flatten();
        let level = Level { switch: switch.clone(), level, suspect: patch.suspect.clone(), source };
        Some((target.name.clone(), level))
    };
    let measured = patch.microtest.as_ref().and_then(|spec| {
        let report = state.micro.iter().rfind(|r| r.spec == *spec)?;
        let worst = report.worst()?;
        let evidence =
            Evidence { fact: worst.says.clone(), source: format!("microtest {} on {}", report.spec, report.device) };
        Some(Measured { class: worst.class, evidence })
    });
    let is_about = |s: &crate::isolate::verdict::Subject| s.kind == SubjectKind::Patch && s.id == patch.id;
    Notes {
        targets: patch.targets.clone(),
        levels: if switch.is_some() { patch.targets_in(case).filter_map(level).collect() } else { BTreeMap::new() },
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
        let entry = entries(&state, &case).into_iter().find(|e| e.id == "mhc-bf16").unwrap();
        let found = crate::patch::state::state(
            &entry,
            Some(&notes["mhc-bf16"].levels["server"]),
            &scene(&state, &case).running[0],
        );
        assert_eq!(found.state.word(), "unknown", "{found:#?}");
    }

    #[test]
    fn a_session_without_a_case_ranks_nothing() {
        assert!(ranked(&State::default()).is_empty());
    }
}
