//! Arms of the search: as found, all off, without a patch, with a patch alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::case::{Case, Gate, Patch, Role};
use crate::engine::state::{State, TargetState};
use crate::isolate::search::{Arm, Search};
use crate::remote::source;

/// Names of the targets that serve a request themselves: all but routers.
pub fn serving_targets(case: &Case) -> impl Iterator<Item = &str> {
    case.targets.iter().filter(|t| t.role != Role::Router).map(|t| t.name.as_str())
}

/// Names of the targets that a trial can meet, the router that it is sent to last: it needs the others.
pub fn met_targets(case: &Case) -> impl Iterator<Item = &str> {
    let routers = case.met_targets().filter(|t| t.role == Role::Router);
    serving_targets(case).chain(routers.map(|t| t.name.as_str()))
}

/// The key of a patch on a target.
pub fn key(patch: &str, target: &str) -> String {
    format!("{patch}@{target}")
}

/// Patch and target of a key.
pub fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('@').unwrap_or((key, ""))
}

/// The levels that targets had when they were first met, and no others: what only runs now may have been switched since.
pub fn originals(state: &State) -> Arm {
    let of = |(target, of): (&String, &TargetState)| -> Vec<(String, String)> {
        of.original.iter().map(|(patch, level)| (key(patch, target), level.clone())).collect()
    };
    state.targets.iter().flat_map(of).collect()
}

/// The levels of the deployment as it was found, for every patch that can be switched and was read.
///
/// What a target had when it was first met goes before what it has now: somebody may have switched it since.
pub fn as_found(state: &State, case: &Case) -> Arm {
    let mut arm = Arm::new();
    for patch in case.patches.iter().filter(|p| p.gate.levels().is_some()) {
        for target in patch.targets_in(case) {
            let original = state.target(&target.name).and_then(|t| t.original.get(&patch.id));
            let now = || state.current_boot(&target.name).and_then(|b| b.proof.levels.get(&patch.id));
            if let Some(level) = original.or_else(now) {
                arm.insert(key(&patch.id, &target.name), level.clone());
            }
        }
    }
    arm
}

/// Why a patch cannot be tried in a deployment found like this; `None` where it can.
pub fn obstacle(state: &State, case: &Case, patch: &Patch, found: &Arm) -> Option<String> {
    let keys: Vec<_> = patch.targets_in(case).map(|t| (key(&patch.id, &t.name), t.name.as_str())).collect();
    for (key, target) in &keys {
        if found.contains_key(key) {
            continue;
        }
        let why = state
            .current_boot(target)
            .and_then(|b| b.proof.unverified.get(&patch.id).cloned())
            .unwrap_or_else(|| "nothing shows it".into());
        return Some(format!("its level on `{target}` could not be read back: {why}"));
    }
    if keys.iter().any(|(key, _)| found.get(key) != Some(&patch.suspect)) {
        return Some(format!("it was not at its suspect level `{}` when found", patch.suspect));
    }
    None
}

/// Why a patch can never be switched; `None` where it can.
pub fn no_gate(case: &Case, patch: &Patch) -> Option<String> {
    if patch.gate.levels().is_none() {
        return Some("it has no variable, flag or diff that switches it".into());
    }
    if matches!(patch.gate, Gate::Reverse { .. })
        && let Some(failure) = patch.targets_in(case).find_map(source::obstacle)
    {
        return Some(failure.message);
    }
    if patch.innocent_level().is_none() {
        return Some("its gate has no level without the change".into());
    }
    if patch.targets_in(case).next().is_none() {
        return Some("none of the targets has it".into());
    }
    None
}

/// The arm as found, without the guilty patches found so far.
pub fn base(case: &Case, search: &Search) -> Arm {
    search.guilty.iter().fold(search.as_found.clone(), |arm, patch| without(case, search, &arm, patch))
}

/// Every patch of the search off.
pub fn all_off(case: &Case, search: &Search) -> Arm {
    let everyone: BTreeSet<_> = search.patches.iter().map(String::as_str).collect();
    switched_off(case, &search.as_found, &everyone)
}

/// `arm` with a patch off, and off with it whatever requires it.
pub fn without(case: &Case, search: &Search, arm: &Arm, patch: &str) -> Arm {
    switched_off(case, arm, &closure(patch, |id| dependents(case, search, id)))
}

/// All off but this patch and whatever it requires.
pub fn alone(case: &Case, search: &Search, patch: &str) -> Arm {
    let kept = closure(patch, |id| requirements(case, search, id));
    let others: BTreeSet<_> = search.patches.iter().map(String::as_str).filter(|p| !kept.contains(p)).collect();
    switched_off(case, &search.as_found, &others)
}

/// Other patches that are switched together with this one, off or on; empty for most.
pub fn companions(case: &Case, search: &Search, patch: &str) -> Vec<String> {
    let mut all = closure(patch, |id| dependents(case, search, id));
    all.extend(closure(patch, |id| requirements(case, search, id)));
    all.remove(patch);
    all.into_iter().map(str::to_owned).collect()
}

/// The part of an arm that is about one target.
pub fn of_target(arm: &Arm, target: &str) -> Arm {
    arm.iter().filter(|(key, _)| split(key).1 == target).map(|(key, level)| (key.clone(), level.clone())).collect()
}

/// The levels that a target must be started with for an arm.
pub fn levels_for(arm: &Arm, target: &str) -> BTreeMap<String, String> {
    arm.iter()
        .map(|(key, level)| (split(key), level))
        .filter(|((_, on), _)| *on == target)
        .map(|((patch, _), level)| (patch.to_owned(), level.clone()))
        .collect()
}

fn dependents<'a>(case: &'a Case, search: &'a Search, id: &str) -> Vec<&'a str> {
    let among = |p: &&Patch| search.patches.contains(&p.id) && p.requires.iter().any(|r| r == id);
    case.patches.iter().filter(among).map(|p| p.id.as_str()).collect()
}

fn requirements<'a>(case: &'a Case, search: &'a Search, id: &str) -> Vec<&'a str> {
    let required = case.patch(id).map(|p| p.requires.as_slice()).unwrap_or_default();
    required.iter().map(String::as_str).filter(|r| search.patches.iter().any(|p| p == r)).collect()
}

fn closure<'a>(patch: &'a str, next: impl Fn(&str) -> Vec<&'a str>) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![patch]);
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(next(id));
        }
    }
    seen
}

fn switched_off(case: &Case, arm: &Arm, patches: &BTreeSet<&str>) -> Arm {
    let mut arm = arm.clone();
    for (key, level) in &mut arm {
        let (patch, _) = split(key);
        if !patches.contains(patch) {
            continue;
        }
        if let Some(off) = case.patch(patch).and_then(Patch::innocent_level) {
            off.clone_into(level);
        }
    }
    arm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::fake;

    fn check(case: &Case, arm: &Arm, on: &[&str]) {
        for patch in &case.patches {
            let expect = if on.contains(&patch.id.as_str()) { "on" } else { "off" };
            for target in patch.targets_in(case) {
                assert_eq!(arm[&key(&patch.id, &target.name)], expect, "{} in {arm:?}", patch.id);
            }
        }
    }

    fn search(case: &Case) -> Search {
        let patches: Vec<_> = case.patches.iter().map(|p| p.id.clone()).collect();
        let as_found =
            case.patches.iter().flat_map(|p| p.targets_in(case).map(|t| (key(&p.id, &t.name), "on".into()))).collect();
        Search { patches, as_found, ..Search::default() }
    }

    #[test]
    fn arms_switch_what_they_name_and_nothing_else() {
        let case = fake::case(3);
        let search = search(&case);
        check(&case, &base(&case, &search), &["p0", "p1", "p2"]);
        check(&case, &all_off(&case, &search), &[]);
        check(&case, &without(&case, &search, &search.as_found, "p1"), &["p0", "p2"]);
        check(&case, &alone(&case, &search, "p1"), &["p1"]);
        let convicted = Search { guilty: vec!["p0".into()], ..search.clone() };
        check(&case, &base(&case, &convicted), &["p1", "p2"]);
        assert!(companions(&case, &search, "p1").is_empty());
    }

    #[test]
    fn requirements_are_switched_together() {
        let mut case = fake::case(3);
        case.patches[2].requires = vec!["p1".into()];
        case.patches[1].requires = vec!["p0".into()];
        let search = search(&case);
        check(&case, &without(&case, &search, &search.as_found, "p1"), &["p0"]);
        check(&case, &alone(&case, &search, "p1"), &["p0", "p1"]);
        assert_eq!(companions(&case, &search, "p1"), ["p0", "p2"]);
    }

    #[test]
    fn every_target_of_a_patch_is_switched_and_each_gets_its_levels() {
        let mut case = fake::case(2);
        let mut decode = case.targets[0].clone();
        decode.name = "decode".into();
        case.targets.push(decode);
        case.patches[1].targets = vec!["decode".into()];
        let search = search(&case);
        let arm = without(&case, &search, &search.as_found, "p0");
        check(&case, &arm, &["p1"]);
        assert_eq!(levels_for(&arm, "lab"), BTreeMap::from([("p0".into(), "off".into())]));
        assert_eq!(levels_for(&arm, "decode").len(), 2);
    }

    #[test]
    fn patches_that_cannot_be_tried_say_why() {
        let mut case = fake::case(3);
        case.patches[0].gate = crate::case::Gate::None;
        assert!(no_gate(&case, &case.patches[0]).unwrap().contains("no variable, flag or diff"));
        assert_eq!(no_gate(&case, &case.patches[1]), None);
        let found = Arm::from([(key("p1", "lab"), "off".into())]);
        let state = State::default();
        assert!(obstacle(&state, &case, &case.patches[1], &found).unwrap().contains("suspect level `on`"));
        assert!(obstacle(&state, &case, &case.patches[2], &found).unwrap().contains("could not be read back"));
    }
}
