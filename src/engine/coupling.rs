//! What a change of one target costs the rest of its deployment: who must reconnect, for how long, with what running. Pure.
//!
//! Not responsible for what the change itself does about it, which its notes say.

use crate::case::{Case, Role, Target};
use crate::engine::procedure::{Procedure, Purpose};
use crate::engine::state::State;

/// The price of a change for the other targets, a sentence each; none where nobody else is concerned or nothing is stopped.
pub fn price(state: &State, procedure: &Procedure) -> Vec<String> {
    let Some(case) = &state.case else { return Vec::new() };
    let Some(target) = case.target(&procedure.target) else { return Vec::new() };
    if !procedure.stops() {
        return Vec::new();
    }
    let name = &target.name;
    let time = match (procedure.purpose, start_seconds(state, name)) {
        (Purpose::Stop, _) => "until it is started again".to_owned(),
        (_, Some(s)) => format!("for about {s} s, which its last start took"),
        (_, None) => "for a time that is not known yet".to_owned(),
    };
    let busy = procedure.load.filter(|load| load.is_busy());
    let load = busy.map_or_else(String::new, |load| format!("; {load} at `{name}`"));
    if target.role == Role::Router {
        let behind: Vec<String> = case.targets.iter().filter(|t| t.role != Role::Router).map(named).collect();
        if behind.is_empty() {
            return Vec::new();
        }
        return vec![format!(
            "nothing reaches {} through `{name}` {time}, and their own state stays{load}",
            listed(&behind)
        )];
    }
    let coupled: Vec<String> = coupled(case, target).into_iter().map(named).collect();
    if coupled.is_empty() {
        return Vec::new();
    }
    vec![format!("{} must do without `{name}` {time}, and reconnect then{load}", listed(&coupled))]
}

/// Whole seconds, at least 1, from start to proof of the last start of a target that a change of ours made; `None` where none is known.
pub fn start_seconds(state: &State, target: &str) -> Option<i64> {
    let last = state.own_starts(target).next()?;
    let took = last.proof.proven_at.duration_since(last.proof.started_at).as_secs_f64();
    Some((took.ceil() as i64).max(1))
}

/// The targets that hold a connection to this one: its routers, and the other half of a divided deployment.
fn coupled<'a>(case: &'a Case, target: &Target) -> Vec<&'a Target> {
    let other = match target.role {
        Role::Prefill => Some(Role::Decode),
        Role::Decode => Some(Role::Prefill),
        Role::Monolithic | Role::Router => None,
    };
    case.targets.iter().filter(|t| t.role == Role::Router || Some(t.role) == other).collect()
}

fn named(target: &Target) -> String {
    let role = match target.role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Monolithic => "monolithic",
        Role::Router => "router",
    };
    if target.name == role { format!("`{role}`") } else { format!("`{}` ({role})", target.name) }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::engine::effect::ChangeWish;
    use crate::engine::fake;
    use crate::engine::ids::{BootId, ProcedureId};
    use crate::engine::procedure::Load;
    use crate::engine::state::Boot;

    fn state() -> State {
        let case = crate::isolate::fake::divided(1);
        let mut state = State::default();
        let mut proof = fake::proof(&case, "decode", &BTreeMap::new(), 7);
        proof.proven_at = proof.started_at + jiff::SignedDuration::from_secs(412);
        let boot = Boot { id: BootId(1), seq: 1, procedure: Some(ProcedureId(1)), proof: Arc::new(proof) };
        state.boots.insert(BootId(1), Arc::new(boot));
        state.case = Some(Arc::new(case));
        state
    }

    #[track_caller]
    fn check(target: &str, wish: &ChangeWish, load: Option<Load>, expect: &[&str]) {
        let state = state();
        let mut change = fake::plan(state.case.as_ref().unwrap(), target, wish);
        change.load = load;
        assert_eq!(price(&state, &change), expect, "{target}");
    }

    #[test]
    fn who_must_reconnect_how_long_and_what_runs() {
        let run = ChangeWish::Running(BTreeMap::new());
        let load = Some(Load { running: 3, waiting: 1 });
        check(
            "decode",
            &run,
            load,
            &[
                "`router` and `prefill` must do without `decode` for about 412 s, which its last start took, and reconnect \
               then; 3 requests run and 1 wait at `decode`",
            ],
        );
        check(
            "prefill",
            &run,
            None,
            &["`router` and `decode` must do without `prefill` for a time that is not known yet, and reconnect then"],
        );
        check(
            "prefill",
            &ChangeWish::Stopped,
            None,
            &["`router` and `decode` must do without `prefill` until it is started again, and reconnect then"],
        );
        check(
            "router",
            &run,
            None,
            &[
                "nothing reaches `prefill` and `decode` through `router` for a time that is not known yet, and their own \
               state stays",
            ],
        );
    }

    #[test]
    fn one_server_alone_costs_nobody_else() {
        let mut state = state();
        state.case = Some(Arc::new(crate::isolate::fake::case(1)));
        let change = fake::plan(state.case.as_ref().unwrap(), "lab", &ChangeWish::Running(BTreeMap::new()));
        assert_eq!(price(&state, &change), Vec::<String>::new());
    }
}
