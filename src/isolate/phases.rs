//! The phases of the search, in the order in which they follow each other.
//!
//! Each function looks at the evidence and either wants another boot, or moves on.

use std::sync::Arc;

use crate::case::Case;
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::event::Happened;
use crate::engine::state::State;
use crate::isolate::arms;
use crate::isolate::evidence::{self, ArmData, Unit};
use crate::isolate::judge::{self, Judgement};
use crate::isolate::plan::Next;
use crate::isolate::run;
use crate::isolate::search::{Arm, Ending, Phase, Run, Search, Work, quoted};
use crate::isolate::verdict::{Finding, SubjectKind, Verdict};
use crate::isolate::words;
use crate::stats::acquittal::excess;

/// Times that a comparison for an acquittal is extended by a boot a side.
const MAX_EXTENSIONS: u32 = 3;

/// Boots of a patch on alone, at most, before its acquittal is given up.
const MAX_ALONE: u32 = 4;

/// A state with what the search reads from it.
pub(crate) struct View<'a> {
    pub(crate) state: &'a State,
    pub(crate) case: &'a Arc<Case>,
    pub(crate) search: &'a Search,
    pub(crate) units: Vec<Arc<Unit>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(state: &'a State, case: &'a Arc<Case>, search: &'a Search) -> Self {
        Self { state, case, search, units: evidence::units(state, case, search) }
    }

    /// The boots of an arm.
    pub(crate) fn arm(&self, arm: &Arm) -> ArmData {
        evidence::arm_data(self.state, self.case, &self.search.rules, &self.units, arm)
    }

    /// The boot of the deployment that runs now, if it was asked something.
    pub(crate) fn current_unit(&self) -> Option<&Arc<Unit>> {
        let boot = |t: &String| self.state.current_boot(t).map(|b| b.id);
        let boots: Option<Vec<_>> = self.search.targets.iter().map(boot).collect();
        let boots = boots?;
        self.units.iter().find(|u| u.boots == boots)
    }

    /// Whether the deployment that runs now counts as a boot of an arm already.
    pub(crate) fn counts_now(&self, arm: &Arm) -> bool {
        self.current_unit().is_some_and(|now| self.arm(arm).units.contains(now))
    }

    /// Whether the deployment that runs now has the levels of an arm.
    fn runs(&self, arm: &Arm) -> bool {
        let boot = |t: &String| self.state.current_boot(t).map(|b| b.id);
        let boots: Option<Vec<_>> = self.search.targets.iter().map(boot).collect();
        boots.is_some_and(|boots| evidence::proven(self.state, &boots, arm))
    }
}

/// What the search does next while nothing is being done for it.
pub(crate) fn step(view: &View<'_>) -> Next {
    let search = view.search.clone();
    match search.phase.clone() {
        Phase::Truth => truth(view, search),
        Phase::Start => start(view, search),
        Phase::Symptom => symptom(view, search),
        Phase::Micro => micro(view, search),
        Phase::AllOff => all_off(view, search),
        Phase::Unmake { patch, look } => unmake(view, search, patch, look),
        Phase::Make { patch, look } => make(view, search, patch, look),
        Phase::Explain { on, off, extended } => explain(view, search, on, off, extended),
        Phase::Alone { patch, boots } => alone(view, search, patch, boots),
        Phase::Leave { explained } => leave(view, search, explained),
        Phase::Done => Next::Finished,
    }
}

fn truth(view: &View<'_>, mut search: Search) -> Next {
    let remarks = search
        .set_aside
        .iter()
        .map(|(patch, why)| warning("patch-set-aside", format!("`{patch}` is not tried: {why}")))
        .collect();
    search.phase = Phase::Start;
    search.run = Some(new_run(Work::Probe, "reads every target".into()));
    record(view, remarks, search)
}

fn start(view: &View<'_>, mut search: Search) -> Next {
    let unread = |t: &String| view.state.current_boot(t).is_some_and(|b| !evidence::readable(view.state, &b.proof));
    if arms::serving_targets(view.case).any(|t| view.state.current_boot(t).is_none())
        || search.targets.iter().any(unread)
    {
        let work = Work::Boot { arm: Arm::new(), after: 0, index: 0, repeats: 0 };
        search.run = Some(new_run(work, "starts what does not run, as its launch script says".into()));
        return record(view, Vec::new(), search);
    }
    search.as_found = arms::as_found(view.state, view.case);
    let mut remarks = Vec::new();
    for id in std::mem::take(&mut search.patches) {
        let Some(patch) = view.case.patch(&id) else { continue };
        match arms::obstacle(view.state, view.case, patch, &search.as_found) {
            None => search.patches.push(id),
            Some(why) => {
                remarks.push(warning("patch-set-aside", format!("`{id}` is not tried: {why}")));
                search.set_aside.insert(id, why);
            }
        }
    }
    search.phase = Phase::Symptom;
    record(view, remarks, search)
}

fn symptom(view: &View<'_>, mut search: Search) -> Next {
    let rules = search.rules;
    let arm = search.as_found.clone();
    let data = view.arm(&arm);
    if let Some(ending) = unusable(&search, &arm, &data, "as found") {
        return finish(view, Vec::new(), search, ending);
    }
    let measured = data.symptom(&rules);
    let floor = view.case.recall.floor;
    let open = measured.lower <= floor && measured.rate > floor && data.boots() < rules.symptom_boots;
    if data.boots() < 2 || open {
        return want(view, search, &arm, "as found", 1);
    }
    let facts = vec![info("noise", words::noise(&data)), Happened::SymptomMeasured { symptom: measured.clone() }];
    if measured.lower <= floor {
        return finish(view, facts, search, Ending::NoSymptom);
    }
    search.phase = Phase::Micro;
    record(view, facts, search)
}

fn micro(view: &View<'_>, mut search: Search) -> Next {
    let asked =
        view.case.patches.iter().filter(|p| search.patches.contains(&p.id) || search.set_aside.contains_key(&p.id));
    let spec = asked.filter_map(|p| Some(p.measured_by()?.0.to_owned())).find(|spec| !search.micro.contains(spec));
    if let Some(spec) = spec {
        search.micro.push(spec.clone());
        search.run = Some(new_run(Work::Micro { spec: spec.clone() }, format!("microtest `{spec}`")));
        return record(view, Vec::new(), search);
    }
    if search.patches.is_empty() {
        return finish(view, Vec::new(), search, Ending::Unexplained);
    }
    search.phase = Phase::AllOff;
    record(view, Vec::new(), search)
}

fn all_off(view: &View<'_>, mut search: Search) -> Next {
    let (on_arm, off_arm) = (search.as_found.clone(), arms::all_off(view.case, &search));
    let (on, off) = (view.arm(&on_arm), view.arm(&off_arm));
    if let Some(ending) = unusable(&search, &off_arm, &off, "all off") {
        return finish(view, Vec::new(), search, ending);
    }
    if off.boots() < 2 {
        return want(view, search, &off_arm, "all off", evidence::factor(view.state));
    }
    if judge::fails_anyway(&search.rules, &on, &off) {
        // The search ends on this, so it takes one boot more than a step on the way.
        if off.boots() < 3 {
            return want(view, search, &off_arm, "all off", evidence::factor(view.state));
        }
        let mut facts = Vec::new();
        for patch in search.patches.clone() {
            let verdict = words::not_the_patches(view.state, &patch, &on, &off);
            settle(&mut search, &mut facts, &patch, verdict);
        }
        return finish(view, facts, search, Ending::NotThePatches);
    }
    search.queue.clone_from(&search.patches);
    advance(view, Vec::new(), search)
}

fn unmake(view: &View<'_>, mut search: Search, patch: String, look: u32) -> Next {
    let on_arm = arms::base(view.case, &search);
    let without_arm = arms::without(view.case, &search, &on_arm, &patch);
    let (title, base) = (format!("`{patch}` off"), base_title(&search));
    if let Some(next) = inconclusive(view, &search, &patch, &[(&on_arm, &base), (&without_arm, &title)]) {
        return next;
    }
    if let Some((arm, title)) = fewer(view, (&on_arm, &base), (&without_arm, &title), look) {
        return want(view, search, &arm, &title, evidence::factor(view.state));
    }
    let (on, without) = (view.arm(&on_arm), view.arm(&without_arm));
    let off = view.arm(&arms::all_off(view.case, &search));
    let stays = judge::stays(&search.rules, &on, &without, &off);
    match judge::judge(&search.rules, search.patches.len(), look, &on, &without, stays) {
        Judgement::Proven { p } => {
            search.phase = Phase::Make { patch: patch.clone(), look: 2 };
            record(view, vec![info("unmade", words::unmade(&patch, &on, &without, p))], search)
        }
        Judgement::Look(look) => {
            search.phase = Phase::Unmake { patch, look };
            record(view, Vec::new(), search)
        }
        Judgement::NoChange => {
            let verdict = words::not_shown(view.state, &patch, &on, &without);
            close(view, search, &patch, verdict)
        }
        Judgement::Exhausted => {
            let verdict = words::undecided(view.state, &patch, &on, &without);
            close(view, search, &patch, verdict)
        }
    }
}

fn make(view: &View<'_>, mut search: Search, patch: String, look: u32) -> Next {
    let (alone_arm, off_arm) = (arms::alone(view.case, &search, &patch), arms::all_off(view.case, &search));
    let title = format!("`{patch}` on alone");
    if let Some(next) = inconclusive(view, &search, &patch, &[(&alone_arm, &title), (&off_arm, "all off")]) {
        return next;
    }
    if let Some((arm, title)) = fewer(view, (&alone_arm, &title), (&off_arm, "all off"), look) {
        return want(view, search, &arm, &title, evidence::factor(view.state));
    }
    let (alone, off) = (view.arm(&alone_arm), view.arm(&off_arm));
    let on_arm = arms::base(view.case, &search);
    let (on, without) = (view.arm(&on_arm), view.arm(&arms::without(view.case, &search, &on_arm, &patch)));
    let nothing = judge::makes_nothing(&search.rules, &alone, &off, &on);
    match judge::judge(&search.rules, search.patches.len(), look, &alone, &off, nothing) {
        Judgement::Look(look) => {
            search.phase = Phase::Make { patch, look };
            record(view, Vec::new(), search)
        }
        Judgement::NoChange => {
            let verdict = words::needs_partner(view.state, &patch, &on, &without, &alone, &off);
            close(view, search, &patch, verdict)
        }
        Judgement::Exhausted => {
            let verdict = words::undecided(view.state, &patch, &alone, &off);
            close(view, search, &patch, verdict)
        }
        Judgement::Proven { p } => {
            let companions = arms::companions(view.case, &search, &patch);
            if !companions.is_empty() {
                let verdict = words::inseparable(view.state, &patch, &companions, &on, &without);
                return close(view, search, &patch, verdict);
            }
            let verdict = words::guilty(view.state, &patch, (&on, &without), (&alone, &off), p);
            search.guilty.push(patch.clone());
            let guilty_off = view.arm(&arms::base(view.case, &search));
            search.phase = Phase::Explain { on: guilty_off.boots() + 1, off: off.boots().max(2), extended: 0 };
            record(view, vec![Happened::VerdictReached { verdict: Arc::new(verdict) }], search)
        }
    }
}

fn explain(view: &View<'_>, mut search: Search, on: u32, off: u32, extended: u32) -> Next {
    let rules = search.rules;
    let (on_arm, off_arm) = (arms::base(view.case, &search), arms::all_off(view.case, &search));
    let (on_data, off_data) = (view.arm(&on_arm), view.arm(&off_arm));
    let dead = search.dead(&on_arm).is_some() || search.dead(&off_arm).is_some();
    // All off goes first, so that the deployment is left with the guilty off.
    if !dead && off_data.boots() < off && on_arm != off_arm {
        return want(view, search, &off_arm, "all off", rules.acquit_factor);
    }
    if !dead && on_data.boots() < on {
        let title = base_title(&search);
        return want(view, search, &on_arm, &title, rules.acquit_factor);
    }
    let rest: Vec<_> = search.patches.iter().filter(|p| !search.guilty.contains(p)).cloned().collect();
    let bound = excess(&on_data.groups(), &off_data.groups(), rules.least_rho);
    let starved = dead || on_data.starved(&rules) || off_data.starved(&rules);
    match bound {
        _ if rest.is_empty() => {
            search.phase = Phase::Leave { explained: gone(view, &on_data) };
            record(view, Vec::new(), search)
        }
        Some(e) if e.upper <= rules.delta && !starved => {
            let mut facts = Vec::new();
            let open: Vec<_> =
                rest.iter().filter(|p| search.findings.get(*p) != Some(&Finding::NotSeparable)).collect();
            for patch in open {
                let verdict = words::acquitted_together(view.state, patch, &search, (&on_data, &off_data), &e);
                settle(&mut search, &mut facts, patch, verdict);
            }
            search.phase = Phase::Leave { explained: gone(view, &on_data) };
            record(view, facts, search)
        }
        Some(e) if e.lower <= 0.0 && extended < MAX_EXTENSIONS && !starved => {
            search.phase = Phase::Explain { on: on + 1, off: off + 1, extended: extended + 1 };
            record(view, Vec::new(), search)
        }
        _ => {
            let remark = info("not-explained", words::not_explained(&search, &on_data, &off_data));
            // What another culprit masked may show now, so every patch but the guilty is tried again.
            search.queue =
                rest.into_iter().filter(|p| search.findings.get(p) != Some(&Finding::NotSeparable)).collect();
            advance(view, vec![remark], search)
        }
    }
}

/// Whether the symptom is gone in an arm: what is left of it is not above the floor.
fn gone(view: &View<'_>, arm: &ArmData) -> bool {
    arm.boots() > 0 && arm.interval(&view.search.rules).lower <= view.case.recall.floor
}

fn alone(view: &View<'_>, mut search: Search, patch: String, boots: u32) -> Next {
    let rules = search.rules;
    let (alone_arm, off_arm) = (arms::alone(view.case, &search, &patch), arms::all_off(view.case, &search));
    let (on, off) = (view.arm(&alone_arm), view.arm(&off_arm));
    let dead = search.dead(&alone_arm).is_some();
    if !dead && on.boots() < boots {
        return want(view, search, &alone_arm, &format!("`{patch}` on alone"), rules.acquit_factor);
    }
    let bound = excess(&on.groups(), &off.groups(), rules.least_rho).filter(|_| !dead && !on.starved(&rules));
    let mut facts = Vec::new();
    match bound {
        Some(e) if e.upper <= rules.delta => {
            let verdict = words::acquitted_alone(view.state, &patch, &search, (&on, &off), &e);
            settle(&mut search, &mut facts, &patch, verdict);
        }
        Some(e) if e.lower <= 0.0 && boots < MAX_ALONE => {
            search.phase = Phase::Alone { patch, boots: boots + 1 };
            return record(view, facts, search);
        }
        _ => {}
    }
    next_alone(view, facts, search, Some(&patch))
}

fn leave(view: &View<'_>, mut search: Search, explained: bool) -> Next {
    let arm = arms::base(view.case, &search);
    if !view.runs(&arm) && search.dead(&arm).is_none() {
        let after = view.state.counters.boot;
        let work = Work::Boot { arm, after, index: 0, repeats: 0 };
        search.run = Some(new_run(work, format!("leaves {} off", quoted(&search.guilty))));
        return record(view, Vec::new(), search);
    }
    finish(view, Vec::new(), search, if explained { Ending::Explained } else { Ending::Unexplained })
}

/// Goes to the next patch that waits, or to what follows the last one.
fn advance(view: &View<'_>, facts: Vec<Happened>, mut search: Search) -> Next {
    if let Some(patch) = search.queue.first().cloned() {
        search.phase = Phase::Unmake { patch, look: 2 };
        return record(view, facts, search);
    }
    if search.guilty.is_empty() {
        return finish(view, facts, search, Ending::Unexplained);
    }
    next_alone(view, facts, search, None)
}

/// Goes to the next patch that may be acquitted alone, after `last` in the order of the search.
fn next_alone(view: &View<'_>, facts: Vec<Happened>, mut search: Search, last: Option<&String>) -> Next {
    let from = last.and_then(|l| search.patches.iter().position(|p| p == l)).map_or(0, |i| i + 1);
    let open = |p: &&String| {
        !search.guilty.contains(p)
            && !matches!(search.findings.get(*p), Some(Finding::NotSeparable | Finding::Acquitted))
    };
    search.phase = match search.patches[from..].iter().find(open) {
        Some(patch) => Phase::Alone { patch: patch.clone(), boots: 2 },
        None => Phase::Leave { explained: false },
    };
    record(view, facts, search)
}

/// Writes down what was found about the patch at the head of the queue, and goes on.
fn close(view: &View<'_>, mut search: Search, patch: &str, verdict: Verdict) -> Next {
    let mut facts = Vec::new();
    search.queue.retain(|p| p != patch);
    settle(&mut search, &mut facts, patch, verdict);
    advance(view, facts, search)
}

fn settle(search: &mut Search, facts: &mut Vec<Happened>, patch: &str, verdict: Verdict) {
    search.findings.insert(patch.to_owned(), verdict.verdict);
    facts.push(Happened::VerdictReached { verdict: Arc::new(verdict) });
}

/// The ending when an arm that everything rests on cannot be used.
fn unusable(search: &Search, arm: &Arm, data: &ArmData, name: &str) -> Option<Ending> {
    if let Some(why) = search.dead(arm) {
        return Some(Ending::CannotRun { why: format!("the arm `{name}` could not be run: {why}") });
    }
    data.starved(&search.rules).then(|| Ending::TooFewTrials { why: words::voids(name, data) })
}

/// Closes a patch as inconclusive when one of its arms could not be run or gave too few trials.
fn inconclusive(view: &View<'_>, search: &Search, patch: &str, arms: &[(&Arm, &str)]) -> Option<Next> {
    for (arm, name) in arms {
        let data = view.arm(arm);
        if let Some(ending) = unusable(search, arm, &data, name) {
            let (Ending::CannotRun { why } | Ending::TooFewTrials { why }) = ending else { continue };
            let verdict = words::inconclusive(patch, why);
            return Some(close(view, search.clone(), patch, verdict));
        }
    }
    None
}

/// The arm that gets the next boot: the one with fewer; on a tie the one that runs, which makes the order ABBA.
fn fewer(view: &View<'_>, a: (&Arm, &str), b: (&Arm, &str), goal: u32) -> Option<(Arm, String)> {
    let (na, nb) = (view.arm(a.0).boots(), view.arm(b.0).boots());
    if na >= goal && nb >= goal {
        return None;
    }
    let first = na < nb || (na == nb && !view.runs(b.0));
    let (arm, title) = if first { a } else { b };
    Some((arm.clone(), title.to_owned()))
}

/// Wants one more boot of an arm, with `factor` times the usual trials.
fn want(view: &View<'_>, mut search: Search, arm: &Arm, title: &str, factor: u32) -> Next {
    let index = view.arm(arm).boots();
    let after = if run::reusable(view, arm) { 0 } else { view.state.counters.boot };
    let repeats = evidence::repeats(view.case, &search.rules) * factor;
    let work = Work::Boot { arm: arm.clone(), after, index, repeats };
    search.run = Some(new_run(work, format!("{title}, boot {}", index + 1)));
    record(view, Vec::new(), search)
}

/// The name of the arm with every patch as found but the guilty ones.
fn base_title(search: &Search) -> String {
    if search.guilty.is_empty() { "as found".into() } else { format!("{} off, all others on", quoted(&search.guilty)) }
}

fn new_run(work: Work, title: String) -> Run {
    Run { work, title, job: 0, seq: 0, reached: 0, tries: 0 }
}

/// Facts with the moved search as the last one; a command that is due then is marked with the moment.
pub(crate) fn record(view: &View<'_>, mut facts: Vec<Happened>, mut search: Search) -> Next {
    if let Some(mut due) = search.run.take() {
        due.job = view.state.counters.job;
        due.seq = view.state.seq + facts.len() as u64 + 1;
        due.reached = run::reached(view, &due);
        search.run = Some(due);
    }
    facts.push(Happened::SearchMoved { search: Arc::new(search) });
    Next::Record(facts)
}

/// Whether an earlier search has judged this patch; where nothing new was seen, that stays.
fn is_judged(state: &State, patch: &str) -> bool {
    state.verdicts.iter().any(|v| v.subject.kind == SubjectKind::Patch && v.subject.id == patch)
}

/// Ends the search: a verdict for every patch that has none yet, and the cheapest next step.
pub(crate) fn finish(view: &View<'_>, mut facts: Vec<Happened>, mut search: Search, ending: Ending) -> Next {
    let on = view.arm(&search.as_found);
    let open: Vec<_> = search
        .patches
        .iter()
        .filter(|p| !search.guilty.contains(p) && !search.findings.contains_key(*p))
        .filter(|p| !(on.boots() == 0 && is_judged(view.state, p)))
        .cloned()
        .collect();
    for patch in open {
        let verdict = words::never_tried(view.state, &patch, &ending, &on);
        settle(&mut search, &mut facts, &patch, verdict);
    }
    for (patch, why) in search.set_aside.clone() {
        let verdict = words::inconclusive(&patch, format!("it was not tried: {why}"));
        settle(&mut search, &mut facts, &patch, verdict);
    }
    search.run = None;
    search.phase = Phase::Done;
    let (message, hint) = words::farewell(&search, &ending);
    facts.push(Happened::Said {
        diagnostic: Diagnostic {
            severity: Severity::Info,
            code: "search-over".into(),
            message,
            place: None,
            hint: Some(hint),
        },
    });
    search.ended = Some(ending);
    record(view, facts, search)
}

pub(crate) fn warning(code: &str, message: String) -> Happened {
    Happened::Said { diagnostic: Diagnostic::warning(code, message) }
}

fn info(code: &str, message: String) -> Happened {
    Happened::Said { diagnostic: Diagnostic { severity: Severity::Info, ..Diagnostic::warning(code, message) } }
}
