//! Which worker a target is, and what a change gets from its routers.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::case::Budget;
use crate::engine::effect::ChangeWish;
use crate::engine::fake;
use crate::engine::procedure::Lease;

fn case() -> Case {
    let mut case = crate::isolate::fake::divided(1);
    case.budget = Budget::default();
    let port = |name: &str| match name {
        "router" => 30000,
        "prefill" => 30001,
        _ => 30002,
    };
    for target in &mut case.targets {
        target.url = format!("http://127.0.0.1:{}", port(&target.name));
    }
    case
}

fn worker(url: &str, role: Role) -> Worker {
    let (id, body) = ("1".to_owned(), json!({ "url": url }));
    Worker { id, url: url.into(), role: Some(role), healthy: Some(true), load: Some(0), bootstrap_port: None, body }
}

fn routed(place: Place) -> Routed {
    Routed { router: "router".into(), place, whole: true, way_back: Ok("http://127.0.0.1:30000".into()) }
}

fn decode() -> RoutedWorker {
    let url = "http://127.0.0.1:30002".to_owned();
    RoutedWorker { router: "router".into(), body: json!({ "url": url, "worker_type": "decode" }), url }
}

fn listed(others: usize) -> Routed {
    routed(Place::Listed { worker: decode(), others })
}

fn change(target: &str, wish: &ChangeWish, names: &[&str]) -> Procedure {
    let mut change = fake::plan(&case(), target, wish);
    let like = change.steps[0].clone();
    change.steps = names.iter().map(|n| Step { name: (*n).to_owned(), ..like.clone() }).collect();
    change.lease = Some(Lease { path: "/run/l".into(), token: "t".into(), minutes: Some(30) });
    change
}

fn run() -> ChangeWish {
    ChangeWish::Running(BTreeMap::new())
}

const SCRIPT: &[&str] = &["lease", "write-override", "stop", "start", "prove"];
const UNIT: &[&str] = &["lease", "write-override", "write-drop-in", "restart", "prove"];

#[track_caller]
fn steps(procedure: &Procedure, expect: &str) {
    let names: Vec<&str> = procedure.steps.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.join(" "), expect);
}

#[track_caller]
fn check(wish: &ChangeWish, names: &[&str], routers: &[Routed], running: bool, expect: &str) -> Procedure {
    let mut change = change("decode", wish, names);
    weave(&mut change, &case(), routers, running, 300.0).unwrap();
    steps(&change, expect);
    change
}

#[test]
fn it_drains_before_anything_is_stopped_and_comes_back_after_the_proof() {
    let routers = [listed(0)];
    check(&run(), SCRIPT, &routers, true, "lease write-override keep-worker drain stop start prove re-add prove-entry");
    // Taking the drop-in back restarts the unit, which must not happen once it is routed to again.
    let unit = "lease write-override keep-worker drain write-drop-in restart prove re-add prove-entry";
    check(&run(), UNIT, &routers, true, unit);
    let restore = ["lease", "take-drop-in-away", "restart", "prove", "tidy", "give-lease-back"];
    let back = "lease keep-worker drain take-drop-in-away restart prove re-add prove-entry tidy give-lease-back";
    check(&ChangeWish::Original, &restore, &routers, true, back);
    check(&ChangeWish::Stopped, &["lease", "stop"], &routers, true, "lease keep-worker drain stop");
    check(&run(), &["lease", "start", "prove"], &routers, false, "lease start prove prove-entry");
}

#[test]
fn what_an_earlier_change_took_out_comes_back_whoever_starts_it() {
    let missing = [routed(Place::Missing(decode()))];
    check(&run(), &["lease", "start", "prove"], &missing, false, "lease keep-worker start prove re-add prove-entry");
    let bare = check(&ChangeWish::Original, &[], &missing, true, "re-add prove-entry");
    assert_eq!(bare.lease, None, "nothing of the target is changed");
    check(&ChangeWish::Stopped, &["lease", "stop"], &missing, true, "lease keep-worker stop");
}

#[test]
fn a_router_without_workers_to_change_is_said_in_one_sentence_with_who_is_cut_off() {
    let check = |place: Place, load: Option<Load>, expect: &[&str], entry: bool| {
        let mut change = change("decode", &run(), SCRIPT);
        change.load = load;
        weave(&mut change, &case(), &[routed(place)], true, 300.0).unwrap();
        steps(&change, &format!("{}{}", SCRIPT.join(" "), if entry { " prove-entry" } else { "" }));
        assert_eq!(change.notes, expect);
        assert_eq!((change.drains(), change.cuts_off()), (None, load.is_some_and(Load::is_busy)));
    };
    let load = Some(Load { running: 3, waiting: 1 });
    let why = || Place::Cannot("it has no list of workers that could be changed".into());
    let head = "nothing can be drained at `router`: it has no list of workers that could be changed;";
    check(why(), load, &[&format!("{head} 3 requests run and 1 wait now and are cut off")], true);
    check(why(), None, &[&format!("{head} how many requests are cut off is not known")], true);
    let idle = Some(Load { running: 0, waiting: 0 });
    check(why(), idle, &[&format!("{head} no request runs now, and those that come until then are cut off")], true);
    let strange = "`router` does not list `decode` among its workers, so nothing is drained there";
    check(Place::Strange, load, &[strange], false);
    let silent = "`router` does not answer, so that nothing is drained there (refused)";
    check(Place::Silent("refused".into()), load, &[silent], false);
}

#[test]
fn a_drain_says_how_long_and_what_new_requests_meet() {
    let notes = |wish: &ChangeWish, routed: &Routed, drain_s: f64| {
        let mut change = change("decode", wish, SCRIPT);
        change.load = Some(Load { running: 2, waiting: 0 });
        weave(&mut change, &case(), std::slice::from_ref(routed), true, drain_s).unwrap();
        (change.cuts_off(), change.drains(), change.notes)
    };
    let (cuts, drains, said) = notes(&run(), &listed(0), 300.0);
    assert_eq!((cuts, drains), (false, Some(300.0)));
    assert_eq!(
        said,
        [
            "requests that run at `decode` get 300 s to run to their end; then the change stops there and `decode` is \
             routed to again, unless `decode anyway` was typed",
            "`router` has no other decode worker: new requests through it fail from the drain on until `decode` is back",
            "should the host put `decode` back by itself, it tells `router` too",
        ]
    );
    let (_, _, said) = notes(&ChangeWish::Original, &listed(2), 300.0);
    assert!(said[0].ends_with("then they are cut off") && said[1].contains("its 2 other decode workers"), "{said:?}");
    let alone = Routed { way_back: Err("that needs a key".into()), ..listed(1) };
    assert!(notes(&run(), &alone, 300.0).2[2].ends_with("cannot bring it back into `router`: that needs a key"));
    let (cuts, drains, said) = notes(&run(), &listed(0), 0.0);
    assert_eq!((cuts, drains, said.len()), (true, None, 1));
    assert!(said[0].contains("`drain_s = 0`"), "{said:?}");
}

#[test]
fn each_part_of_a_drain_has_its_undo_and_its_proof() {
    let change = check(
        &run(),
        SCRIPT,
        &[listed(0)],
        true,
        "lease write-override keep-worker drain stop start prove re-add prove-entry",
    );
    let asks = |action: &Action| match action {
        Action::Router { ask, .. } => Some(*ask),
        _ => None,
    };
    let (drain, back) = (&change.steps[3], &change.steps[7]);
    let of = |s: &Step| {
        let undo = |a: &Option<Action>| a.as_ref().and_then(asks);
        [asks(&s.check), asks(&s.apply), asks(&s.proof), undo(&s.undo), undo(&s.undo_proof)].map(Option::unwrap)
    };
    use RouterAsk::{Add, Has, Idle, Lacks, Remove};
    assert_eq!(of(drain), [Lacks, Remove, Idle { anyway: false }, Add, Has]);
    assert_eq!(of(back), [Has, Add, Has, Remove, Idle { anyway: true }]);
}

#[test]
fn an_entry_is_asked_only_where_a_whole_request_can_be_computed() {
    let broken = Routed { whole: false, ..listed(0) };
    check(&run(), SCRIPT, &[broken], true, "lease write-override keep-worker drain stop start prove re-add");
    let workers = [worker("http://127.0.0.1:30001", Role::Prefill)];
    let target = |name: &str| case().target(name).unwrap().clone();
    assert!(is_whole(&workers, &target("decode")) && !is_whole(&workers, &target("prefill")));
    let mut router = change("router", &run(), SCRIPT);
    weave(&mut router, &case(), &[], true, 300.0).unwrap();
    steps(&router, &SCRIPT.join(" "));
}

#[test]
fn a_worker_is_known_by_its_url_as_the_router_sees_it() {
    let case = case();
    let at = |host: &str, url: &str, role: Role| Target {
        host: host.into(),
        url: url.into(),
        role,
        ..case.target("decode").unwrap().clone()
    };
    let router = at("a", "http://127.0.0.1:30000", Role::Router);
    let own = at("a", "http://127.0.0.1:30002", Role::Decode);
    let afar = at("b", "http://127.0.0.1:30002", Role::Decode);
    let named = at("b", "http://10.0.0.2:30002", Role::Decode);
    #[track_caller]
    fn check(urls: &[(&str, Role)], router: &Target, target: &Target, expect: Result<Option<&str>, &str>) {
        let workers: Vec<Worker> = urls.iter().map(|(url, role)| worker(url, *role)).collect();
        let got = pick(&workers, router, target).map(|w| w.map(|w| w.url.as_str()));
        assert_eq!(got, expect.map_err(str::to_owned), "{urls:?}");
    }
    let loopback = "http://127.0.0.1:30002";
    check(&[(loopback, Role::Decode)], &router, &own, Ok(Some(loopback)));
    check(&[("http://localhost:30002", Role::Decode)], &router, &own, Ok(Some("http://localhost:30002")));
    // The router's loopback is another machine's.
    check(&[(loopback, Role::Decode)], &router, &afar, Ok(None));
    check(&[("http://10.0.0.2:30002", Role::Decode)], &router, &afar, Ok(Some("http://10.0.0.2:30002")));
    check(&[("http://127.0.0.1:30003", Role::Decode)], &router, &own, Ok(None));
    let two = [("http://10.0.0.1:30002", Role::Decode), ("http://10.0.0.2:30002", Role::Decode)];
    check(&two, &router, &afar, Err("it has 2 workers that could be `decode`"));
    check(&two, &router, &named, Ok(Some("http://10.0.0.2:30002")));
    check(
        &[(loopback, Role::Prefill)],
        &router,
        &own,
        Err("it takes `http://127.0.0.1:30002` for a worker of another kind than the case does"),
    );
    check(&[("no url", Role::Decode)], &router, &own, Ok(None));
}
