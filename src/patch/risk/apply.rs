//! When a rule fires, with the fact and its source, and what is still not known. Pure.

use std::collections::BTreeSet;

use super::factors::Factor;
use super::reports::{self, Class};
use super::table::{Rule, When, classes};
use super::{Open, RULES, Term, hundredth, sites};
use crate::patch::context::{Bearing, Evidence, Finding, Measured, Notes, Scene, SymptomKind, phases_of};
use crate::patch::phases as reached;
use crate::patch::state::{Found, State, most_alive};
use crate::patch::types::{DtypeChange, Entry, Fact, GateKind, Phase, Place, Signal, Touch};

/// What the rules weigh.
pub(super) struct Weighed<'a> {
    pub(super) subject: Subject<'a>,
    pub(super) states: &'a [Found],
    pub(super) scene: &'a Scene,
    pub(super) notes: &'a Notes,
}

/// A patch or a factor.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Patch(&'a Entry),
    Factor(Factor),
}

/// The term of a rule; `None` where it does not apply.
pub(super) fn apply(rule: &Rule, weighed: &Weighed<'_>) -> Option<Term> {
    let (count, fact) = match rule.when {
        When::NoGate => (1.0, no_gate(weighed)?),
        When::PhaseLikely => (1.0, phase(weighed, Bearing::Likely)?),
        When::PhaseExcluded => (1.0, phase(weighed, Bearing::Excluded)?),
        When::Sites => count_sites(weighed)?,
        When::DtypeLowered => (1.0, dtype(weighed, Change::Lowered)?),
        When::DtypeLoweredAlways => {
            no_gate(weighed)?;
            (1.0, dtype(weighed, Change::Lowered)?)
        }
        When::DtypeNamed => (1.0, dtype(weighed, Change::Named)?),
        When::DtypeOther => (1.0, dtype(weighed, Change::Other)?),
        When::Does(signal) => (1.0, does(weighed, signal)?),
        When::BaseRate => base_rate(weighed)?,
        When::Unread => (1.0, unread(weighed)?),
        When::Live => (1.0, live(weighed)?),
        When::Dead => (1.0, dead(weighed)?),
        When::Met => (1.0, met(weighed, true)?),
        When::NotMet => (1.0, met(weighed, false)?),
        When::Untried => (1.0, untried(weighed)?),
        When::Measured(class) => (1.0, worst(weighed).filter(|m| m.class == class)?.evidence.clone()),
        When::Found(finding) => (1.0, weighed.notes.ruling.as_ref().filter(|r| r.finding == finding)?.evidence.clone()),
    };
    let weight = hundredth(rule.weight * count);
    let source = if fact.source.trim().is_empty() { "source not given".to_owned() } else { fact.source };
    Some(Term { rule: rule.name.to_owned(), weight, fact: fact.fact, source })
}

fn entry<'a>(weighed: &Weighed<'a>) -> Option<&'a Entry> {
    match weighed.subject {
        Subject::Patch(entry) => Some(entry),
        Subject::Factor(_) => None,
    }
}

/// Whether a process can be started without it.
fn is_gated(entry: &Entry, notes: &Notes) -> bool {
    entry.gates.iter().any(|g| !matches!(g.kind, GateKind::Arch | GateKind::Constant))
        || notes.levels.values().any(|l| l.switch.is_some())
}

fn no_gate(weighed: &Weighed<'_>) -> Option<Evidence> {
    let entry = entry(weighed)?;
    if is_gated(entry, weighed.notes) {
        return None;
    }
    let constants: Vec<&str> =
        entry.gates.iter().filter(|g| g.kind == GateKind::Constant).map(|g| g.name.as_str()).collect();
    let fact = match constants.first() {
        None => "no variable or flag switches it".to_owned(),
        Some(name) => format!("no variable or flag switches it, only the constant `{name}` in the source"),
    };
    Some(Evidence { fact, source: first_place(entry) })
}

fn first_place(entry: &Entry) -> String {
    let fact = entry.symbols.first().map(|f| &f.place).or_else(|| entry.dtypes.first().map(|f| &f.place));
    match (fact, entry.files.first()) {
        (Some(place), _) => shown(place),
        (None, Some(file)) => file.path.clone(),
        (None, None) => "its diff".into(),
    }
}

fn shown(place: &Place) -> String {
    match place.line {
        Some(line) => format!("{}:{line}", place.path),
        None => place.path.clone(),
    }
}

/// The phases that a subject can act in on the targets where it may be alive, each with where that is said.
fn phases(weighed: &Weighed<'_>) -> Vec<(Phase, String)> {
    const ALL: [Phase; 6] = [Phase::Load, Phase::Template, Phase::Extend, Phase::Decode, Phase::Transfer, Phase::Parse];
    let said: Vec<(Phase, String)> = match weighed.subject {
        Subject::Factor(factor) => factor.phases().iter().map(|p| (*p, "by its nature".to_owned())).collect(),
        Subject::Patch(entry) if entry.phases.is_empty() => {
            ALL.iter().map(|p| (*p, "its phases are not known, which reads as every phase".to_owned())).collect()
        }
        Subject::Patch(entry) => {
            let all = reached::phases(entry);
            all.into_iter().map(|(p, f)| (p, format!("{} ({})", f.value, shown(&f.place)))).collect()
        }
    };
    let alive = |target: &str| weighed.states.iter().any(|f| f.target == target && !f.state.is_dead());
    let mut roles = weighed.scene.running.iter().filter(|r| alive(&r.target)).map(|r| r.role).peekable();
    if roles.peek().is_none() {
        return said;
    }
    let gone_through: BTreeSet<Phase> = roles.flat_map(|r| phases_of(r).iter().copied()).collect();
    said.into_iter().filter(|(p, _)| gone_through.contains(p)).collect()
}

fn phase(weighed: &Weighed<'_>, wanted: Bearing) -> Option<Evidence> {
    let symptom = &weighed.scene.symptom.phases;
    let reached = phases(weighed);
    if reached.is_empty() {
        let fact = "none of its targets goes through a phase that it reaches".to_owned();
        return (wanted == Bearing::Excluded).then_some(Evidence { fact, source: "roles of the targets".into() });
    }
    let bearing = |p: &Phase| symptom.get(p).map_or(Bearing::Possible, |(bearing, _)| *bearing);
    if reached.iter().map(|(p, _)| bearing(p)).max() != Some(wanted) {
        return None;
    }
    let (phase, why) = reached.iter().find(|(p, _)| bearing(p) == wanted)?;
    let (_, evidence) = symptom.get(phase)?;
    let fact = match wanted {
        Bearing::Excluded => format!("reaches no other phase than {}: {why}; {}", word(*phase), evidence.fact),
        _ => format!("reaches {}: {why}; {}", word(*phase), evidence.fact),
    };
    Some(Evidence { fact, source: evidence.source.clone() })
}

/// A phase as in JSON.
pub(super) fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Load => "load",
        Phase::Template => "template",
        Phase::Extend => "extend",
        Phase::Decode => "decode",
        Phase::Transfer => "transfer",
        Phase::Parse => "parse",
    }
}

fn count_sites(weighed: &Weighed<'_>) -> Option<(f64, Evidence)> {
    let (count, fact) = sites::sites(entry(weighed)?, &weighed.scene.model)?;
    (count > 1).then(|| (f64::from(count).ln(), Evidence { fact, source: weighed.scene.model.source.clone() }))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Other,
    Named,
    Lowered,
}

/// Bits of the significand, the leading one not counted; `None` for what is no known format of real numbers.
fn bits(format: &str) -> Option<u32> {
    Some(match format.to_ascii_lowercase().trim_start_matches("torch.") {
        "fp64" | "float64" | "double" => 52,
        "fp32" | "float32" | "float" => 23,
        "tf32" | "fp16" | "float16" | "half" => 10,
        "bf16" | "bfloat16" => 7,
        "fp8" | "e4m3" | "fp8_e4m3" | "float8_e4m3fn" => 3,
        "e5m2" | "fp8_e5m2" | "float8_e5m2" => 2,
        "fp4" | "e2m1" | "nvfp4" | "mxfp4" => 1,
        "e8m0" | "ue8m0" => 0,
        _ => return None,
    })
}

fn change(dtype: &DtypeChange) -> Option<Change> {
    let known = |text: &Option<String>| text.as_deref().and_then(bits);
    match (known(&dtype.from), known(&dtype.to)) {
        (Some(from), Some(to)) if to < from => Some(Change::Lowered),
        (Some(from), Some(to)) if to == from && dtype.from == dtype.to => None,
        (None, Some(to)) if to < 23 && dtype.from.is_none() => Some(Change::Named),
        (None, Some(_)) if dtype.from.is_none() => None,
        _ => Some(Change::Other),
    }
}

/// The gravest change of a value type, where it is this one.
fn dtype(weighed: &Weighed<'_>, wanted: Change) -> Option<Evidence> {
    let entry = entry(weighed)?;
    let gravest = entry.dtypes.iter().filter_map(|d| change(&d.value)).max()?;
    if gravest != wanted {
        return None;
    }
    let of: Vec<&Fact<DtypeChange>> = entry.dtypes.iter().filter(|d| change(&d.value) == Some(wanted)).collect();
    let first = of.first()?;
    let name = |text: &Option<String>| text.clone().unwrap_or_else(|| "not told".to_owned());
    let (from, to) = (name(&first.value.from), name(&first.value.to));
    let fact = format!("{from} -> {to}: `{}`{}", first.text, more(of.len()));
    Some(Evidence { fact, source: shown(&first.place) })
}

fn more(count: usize) -> String {
    if count > 1 { format!(" and {} more", count - 1) } else { String::new() }
}

fn does(weighed: &Weighed<'_>, signal: Signal) -> Option<Evidence> {
    let of: Vec<&Fact<Signal>> = entry(weighed)?.signals.iter().filter(|f| f.value == signal).collect();
    let first = of.first()?;
    Some(Evidence { fact: format!("`{}`{}", first.text, more(of.len())), source: shown(&first.place) })
}

fn unread(weighed: &Weighed<'_>) -> Option<Evidence> {
    let file = entry(weighed)?.files.iter().find(|f| matches!(f.how, Touch::Binary | Touch::Combined))?;
    Some(Evidence {
        fact: format!("`{}` is not text, so that its change cannot be read", file.path),
        source: file.path.clone(),
    })
}

fn base_rate(weighed: &Weighed<'_>) -> Option<(f64, Evidence)> {
    let kind = weighed.scene.symptom.kind;
    let evidence = |fact, threads: Vec<&str>| {
        let such = if threads.is_empty() { String::new() } else { format!(", such as {}", threads.join(" and ")) };
        Evidence { fact, source: format!("{}{such}", reports::SOURCE) }
    };
    if let Subject::Factor(factor) = weighed.subject {
        let count = reports::of_factor(factor);
        let fact = format!("{} of {} public reports that name a switch depend on it", count.of, count.among);
        return Some((
            reports::log_ratio_of_factor(factor),
            evidence(fact, reports::threads_of_factor(factor).take(2).collect()),
        ));
    }
    let entry = entry(weighed)?;
    let mut found: BTreeSet<Class> = entry.signals.iter().flat_map(|s| classes(s.value)).copied().collect();
    if entry.dtypes.iter().any(|d| change(&d.value).is_some()) {
        found.insert(Class::Precision);
    }
    let rate = |class: &Class| reports::log_ratio(*class, kind);
    let class = found.into_iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let count = reports::of_class(class, kind);
    let like = match kind {
        SymptomKind::LosesContext => "of lost context ",
        SymptomKind::Other => "",
    };
    let fact =
        format!("{} of {} public reports {like}with a known cause name {}", count.of, count.among, class.words());
    Some((rate(&class), evidence(fact, reports::threads(class, kind).take(2).collect())))
}

fn of_state(found: &Found) -> Evidence {
    let source = found.evidence.last().map_or("nothing", |e| e.source.as_str());
    let taken = found.assumes.first().map(|taken| format!("; provided that {taken}")).unwrap_or_default();
    let fact = format!("{} on `{}`: {}{taken}", found.state.word(), found.target, found.because);
    Evidence { fact, source: source.to_owned() }
}

fn live(weighed: &Weighed<'_>) -> Option<Evidence> {
    most_alive(weighed.states).filter(|f| f.state == State::Live).map(of_state)
}

fn dead(weighed: &Weighed<'_>) -> Option<Evidence> {
    most_alive(weighed.states).filter(|f| f.state.is_dead()).map(of_state)
}

fn met(weighed: &Weighed<'_>, wanted: bool) -> Option<Evidence> {
    let Subject::Factor(factor) = weighed.subject else { return None };
    let (met, evidence) = weighed.scene.symptom.met.get(factor.id())?;
    (*met == wanted).then(|| evidence.clone())
}

fn untried(weighed: &Weighed<'_>) -> Option<Evidence> {
    let Subject::Factor(_) = weighed.subject else { return None };
    if weighed.notes.ruling.is_some() || most_alive(weighed.states).is_some_and(|f| f.state.is_dead()) {
        return None;
    }
    Some(Evidence { fact: "no verdict about it".into(), source: "verdicts of this session".into() })
}

fn worst<'a>(weighed: &Weighed<'a>) -> Option<&'a Measured> {
    weighed.notes.measured.iter().max_by_key(|m| m.class)
}

/// What is not known and would change the score, what changes most first.
pub(super) fn open(weighed: &Weighed<'_>) -> Vec<Open> {
    let weight = |name: &str| RULES.iter().find(|r| r.name == name).map_or(0.0, |r| r.weight);
    let mut open = Vec::new();
    if let Some(found) = most_alive(weighed.states).filter(|f| f.state == State::Unknown) {
        open.push(Open {
            unknown: format!("whether it acts on `{}`: {}", found.target, found.because),
            how: "read the running process again, or start it so that it can be read".into(),
            down: weight("dead-here"),
            up: weight("live-here"),
        });
    }
    if let Some(found) = most_alive(weighed.states).filter(|f| f.state == State::Live) {
        open.extend(found.assumes.iter().map(|taken| Open {
            unknown: format!("whether {taken}"),
            how: "taken for granted, since it was not read".into(),
            down: weight("dead-here") - weight("live-here"),
            up: 0.0,
        }));
    }
    let settled = |f: Finding| matches!(f, Finding::Guilty | Finding::Acquitted);
    if !weighed.notes.ruling.as_ref().is_some_and(|r| settled(r.finding)) {
        let how = match weighed.subject {
            Subject::Factor(_) => "ask the same questions with its other level: no restart",
            Subject::Patch(entry) if is_gated(entry, weighed.notes) => "switch it: restarts on both sides",
            Subject::Patch(_) => "take its diff out, or give it a switch first, and restart",
        };
        let unknown = "whether switching it makes and unmakes the symptom".to_owned();
        let (down, up) = (weight("verdict-acquitted"), weight("verdict-guilty"));
        open.push(Open { unknown, how: how.into(), down, up });
    }
    if let Some(entry) = entry(weighed) {
        let numeric = !entry.dtypes.is_empty() || !entry.kernels.is_empty();
        if numeric && weighed.notes.measured.is_empty() {
            open.push(Open {
                unknown: "its error beside the floor that the reference's own rounding makes".into(),
                how: "a microtest of its arithmetic: no restart".into(),
                down: weight("measured-below-floor"),
                up: RULES.iter().filter(|r| matches!(r.when, When::Measured(_))).map(|r| r.weight).fold(0.0, f64::max),
            });
        }
        if entry.phases.is_empty() {
            open.push(Open {
                unknown: "the phases that it reaches".into(),
                how: "read who calls it".into(),
                down: weight("phase-excluded") - weight("phase-likely"),
                up: 0.0,
            });
        }
    }
    open.sort_by(|a, b| (b.up - b.down).total_cmp(&(a.up - a.down)));
    open
}
