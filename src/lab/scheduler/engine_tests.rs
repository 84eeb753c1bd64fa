//! The engine over the real model: batching, reuse, stopping, cancelling.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::super::{LogprobSpec, Part, Request, Sampling};
use super::*;
use crate::lab::model::{Arithmetic, EMBEDDED};

const GOLDEN: &str = include_str!("../../../lab/golden.json");

fn golden_ids() -> Vec<u16> {
    let value: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
    serde_json::from_value(value["prompt_ids"].clone()).unwrap()
}

/// Waits until the engine says so of its load: a request hears of its end before its pages are given back.
fn settles(handle: &Handle, is: impl Fn(&Loads) -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !is(&handle.loads()) {
        assert!(std::time::Instant::now() < until, "{:?}", handle.loads());
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Lab {
    handle: Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Lab {
    fn start(config: Config) -> Self {
        let model = Arc::new(Model::load(EMBEDDED, Arithmetic::default()).unwrap());
        let (engine, handle) = Engine::new(model, config, Plan::default());
        Self { handle, thread: Some(std::thread::spawn(move || engine.run())) }
    }

    fn send(&self, ids: Vec<u16>, max_new: usize) -> UnboundedReceiver<Event> {
        self.send_with(ids, max_new, |_| {})
    }

    fn send_with(&self, ids: Vec<u16>, max_new: usize, change: impl Fn(&mut Request)) -> UnboundedReceiver<Event> {
        let (events, receiver) = unbounded_channel();
        let sampling =
            Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0, max_new, stop: Vec::new(), ignore_eos: false };
        let salt = String::new();
        let part = Part::Whole;
        let mut request = Request { id: "r".into(), ids, sampling, salt, logprobs: None, events, part };
        change(&mut request);
        assert!(self.handle.submit(request));
        receiver
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn config() -> Config {
    Config {
        chunk: 100,
        max_total_tokens: 4096,
        context: 2048,
        max_running: 8,
        radix: true,
        decode_log_interval: 40,
        mode: Mode::Whole,
    }
}

/// Text, cached tokens and end of a request.
fn collect(mut events: UnboundedReceiver<Event>) -> (String, usize, Finish) {
    let (mut ids, mut cached) = (Vec::new(), 0);
    loop {
        match events.blocking_recv().expect("the engine sends an end") {
            Event::Prefilled { cached: c, .. } => cached = c,
            Event::Token(token) => ids.push(token.id),
            Event::Finished(finish) => return (tokens::decode(&ids), cached, finish),
        }
    }
}

#[test]
fn a_prompt_is_answered_and_then_reused() {
    let lab = Lab::start(config());
    assert_eq!(collect(lab.send(golden_ids(), 30)), ("QX7-41B".into(), 0, Finish::Eos));
    assert_eq!(collect(lab.send(golden_ids(), 30)), ("QX7-41B".into(), 192, Finish::Eos));
    let salted = lab.send_with(golden_ids(), 30, |r| r.salt = "other".into());
    assert_eq!(collect(salted).1, 0);
}

#[test]
fn requests_in_one_batch_do_not_disturb_each_other() {
    let lab = Lab::start(Config { radix: false, ..config() });
    let all: Vec<_> = (0..6).map(|_| lab.send(golden_ids(), 30)).collect();
    for events in all {
        assert_eq!(collect(events).0, "QX7-41B");
    }
}

#[test]
fn limits_and_stop_texts_end_a_request() {
    let lab = Lab::start(config());
    assert_eq!(collect(lab.send(golden_ids(), 3)), ("QX7".into(), 0, Finish::Length(3)));
    assert_eq!(collect(lab.send(golden_ids(), 0)).2, Finish::Length(0));
    let stopped = lab.send_with(golden_ids(), 30, |r| r.sampling.stop = vec!["-4".into()]);
    assert_eq!(collect(stopped).2, Finish::StopText("-4".into()));
    let long = lab.send_with(golden_ids(), 40, |r| r.sampling.ignore_eos = true);
    assert_eq!(collect(long).2, Finish::Length(40));
}

#[test]
fn a_small_cache_retracts_and_still_answers() {
    let lab = Lab::start(Config { max_total_tokens: 640, radix: false, ..config() });
    let all: Vec<_> = (0..3).map(|_| lab.send_with(golden_ids(), 70, |r| r.sampling.ignore_eos = true)).collect();
    for events in all {
        let (text, _, finish) = collect(events);
        assert!(text.starts_with("QX7-41B"), "{text}");
        assert_eq!(finish, Finish::Length(70));
    }
    assert!(matches!(collect(lab.send([65; 1000].to_vec(), 3)).2, Finish::Abort(_)));
}

#[test]
fn a_dropped_receiver_frees_its_pages() {
    let lab = Lab::start(Config { radix: false, ..config() });
    drop(lab.send_with(golden_ids(), 1500, |r| r.sampling.ignore_eos = true));
    assert_eq!(collect(lab.send(golden_ids(), 30)).0, "QX7-41B");
    settles(&lab.handle, |l| l.used_tokens == 0);
}

#[test]
fn prompt_logprobs_agree_with_decode() {
    let lab = Lab::start(config());
    let mut ids = golden_ids();
    let mut events = lab.send_with(ids.clone(), 8, |r| r.logprobs = Some(LogprobSpec::default()));
    let mut decoded = Vec::new();
    while let Some(event) = events.blocking_recv() {
        if let Event::Token(t) = event {
            decoded.push((t.id, t.logprob.unwrap()));
        }
    }
    let start = ids.len();
    ids.extend(decoded.iter().map(|d| d.0));
    let spec = Some(LogprobSpec { start: Some(start), top: 2 });
    let mut events = lab.send_with(ids, 0, |r| r.logprobs = spec);
    let Some(Event::Prefilled { logprobs, .. }) = events.blocking_recv() else { panic!("no prefill event") };
    assert_eq!(logprobs.len(), decoded.len());
    for (p, d) in logprobs.iter().zip(&decoded) {
        assert_eq!((p.id, p.top.len()), (d.0, 2));
        assert!((p.logprob.unwrap() - d.1).abs() < 1e-4);
    }
}

#[test]
fn all_prompt_logprobs_start_with_an_unknown() {
    let lab = Lab::start(config());
    let spec = Some(LogprobSpec { start: Some(0), top: 0 });
    let mut events = lab.send_with(golden_ids(), 0, |r| r.logprobs = spec);
    let Some(Event::Prefilled { logprobs, .. }) = events.blocking_recv() else { panic!("no prefill event") };
    assert_eq!(logprobs.len(), golden_ids().len());
    assert!(logprobs[0].logprob.is_none() && logprobs[1..].iter().all(|l| l.logprob.is_some()));
}

#[test]
fn abort_and_flush() {
    let lab = Lab::start(config());
    let events = lab.send_with(golden_ids(), 1500, |r| r.sampling.ignore_eos = true);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(lab.handle.flush()).is_err());
    lab.handle.abort(Some("r".into()));
    assert!(matches!(collect(events).2, Finish::Abort(_)));
    runtime.block_on(lab.handle.flush()).unwrap();
    settles(&lab.handle, |l| l.used_tokens == 0);
}

/// A prefill and a decode engine over the same model.
struct Pair {
    prefill: Lab,
    decode: Lab,
}

impl Pair {
    fn start(config: Config, decode_tokens: usize, plan: Plan) -> Self {
        let part = |mode, tokens, plan| {
            let model = Arc::new(Model::load(EMBEDDED, Arithmetic::default()).unwrap());
            let config = Config { mode, max_total_tokens: tokens, radix: mode == Mode::Prefill, ..config };
            let (engine, handle) = Engine::new(model, config, plan);
            Lab { handle, thread: Some(std::thread::spawn(move || engine.run())) }
        };
        let prefill = part(Mode::Prefill, config.max_total_tokens, plan.clone());
        Self { prefill, decode: part(Mode::Decode, decode_tokens, plan) }
    }

    /// What the prefill engine hands over, and what it tells its own client.
    fn state(&self, ids: Vec<u16>, max_new: usize, change: impl Fn(&mut Request)) -> (HandOver, Vec<Event>) {
        let (sender, state) = oneshot::channel();
        let sender = std::sync::Mutex::new(Some(sender));
        let mut events = self.prefill.send_with(ids, max_new, |r| {
            change(r);
            r.part = Part::Prompt(sender.lock().unwrap().take());
        });
        let mut told = Vec::new();
        while let Some(event) = events.blocking_recv() {
            told.push(event);
        }
        (state.blocking_recv().unwrap(), told)
    }

    fn send(&self, ids: Vec<u16>, max_new: usize, change: impl Fn(&mut Request)) -> UnboundedReceiver<Event> {
        let (state, _) = self.state(ids.clone(), max_new, &change);
        self.decode.send_with(ids, max_new, |r| {
            change(r);
            r.part = Part::Output(Box::new(state.clone()));
        })
    }
}

fn all(mut events: UnboundedReceiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.blocking_recv()).collect()
}

#[test]
fn a_handed_over_prompt_goes_on_bit_by_bit_as_one_engine_would() {
    let (one, two) = (Lab::start(config()), Pair::start(config(), 4096, Plan::default()));
    let check = |max_new: usize, change: fn(&mut Request)| {
        let (whole, divided) =
            (all(one.send_with(golden_ids(), max_new, change)), all(two.send(golden_ids(), max_new, change)));
        assert_eq!(whole, divided, "at most {max_new} tokens");
    };
    let logprobs = |r: &mut Request| {
        r.salt = "a".into();
        r.logprobs = Some(LogprobSpec { start: Some(0), top: 3 });
    };
    check(30, logprobs);
    check(0, |r| r.salt = "b".into());
    check(1, |r| r.salt = "c".into());
    check(40, |r| {
        r.salt = "d".into();
        r.sampling.ignore_eos = true;
        r.sampling.temperature = 1.0;
        r.sampling.seed = 7;
    });
    check(30, |r| {
        r.salt = "e".into();
        r.sampling.stop = vec!["Q".into()];
    });
}

#[test]
fn a_prompt_that_filled_its_last_page_was_refused_by_the_other_server() {
    let (one, two) = (Lab::start(config()), Pair::start(config(), 4096, Plan::default()));
    for length in [63, 64, 65, 128] {
        let ids = golden_ids()[..length].to_vec();
        let (state, _) = two.state(ids.clone(), 3, |_| {});
        assert_eq!(
            crate::lab::transfer::decode(&crate::lab::transfer::encode(&state)).as_ref(),
            Ok(&state),
            "{length}"
        );
        assert_eq!(all(two.send(ids.clone(), 3, |_| {})).len(), all(one.send(ids, 3)).len(), "{length} tokens");
    }
}

#[test]
fn the_prefill_engine_tells_the_first_token_and_keeps_its_prefixes() {
    let two = Pair::start(config(), 4096, Plan::default());
    let (state, told) = two.state(golden_ids(), 30, |_| {});
    assert_eq!((state.prompt, state.cached, state.pages.len()), (224, 0, 4));
    assert!(matches!(&told[1], Event::Token(t) if Some(t) == state.first.as_ref()), "{told:?}");
    assert_eq!(told[2], Event::Finished(Finish::Length(1)));
    assert_eq!(two.state(golden_ids(), 30, |_| {}).0.cached, 192);
    settles(&two.prefill.handle, |l| l.running == 0);
}

#[test]
fn a_small_decode_cache_sets_states_aside_and_brings_them_back() {
    let config = Config { radix: false, ..config() };
    let two = Pair::start(config, 640, Plan::default());
    let long = |r: &mut Request| r.sampling.ignore_eos = true;
    let waiting: Vec<_> = (0..3).map(|_| two.send(golden_ids(), 70, long)).collect();
    let alone = collect(Lab::start(config).send_with(golden_ids(), 70, long));
    for events in waiting {
        let (text, _, finish) = collect(events);
        assert_eq!((text, finish), (alone.0.clone(), alone.2.clone()));
    }
    settles(&two.decode.handle, |l| l.used_tokens == 0);
}

#[test]
fn state_that_is_left_behind_makes_only_divided_requests_wrong() {
    let scenario = crate::lab::scenario::named("pd-state").unwrap();
    let plan = || Plan::compile(&scenario, &[], 7, 1).unwrap();
    let logprobs = |r: &mut Request| r.logprobs = Some(LogprobSpec::default());
    let model = Arc::new(Model::load(EMBEDDED, Arithmetic::default()).unwrap());
    let (engine, handle) = Engine::new(model, config(), plan());
    let whole = Lab { handle, thread: Some(std::thread::spawn(move || engine.run())) };
    let right = all(Lab::start(config()).send_with(golden_ids(), 30, logprobs));
    assert_eq!(all(whole.send_with(golden_ids(), 30, logprobs)), right);
    let two = Pair::start(config(), 4096, plan());
    let (state, _) = two.state(golden_ids(), 30, logprobs);
    let healthy = Pair::start(config(), 4096, Plan::default());
    assert_eq!(state, healthy.state(golden_ids(), 30, logprobs).0, "what travels does not show it");
    let wrong = all(two.send(golden_ids(), 30, logprobs));
    // The first token is the prefill engine's, which has all of its state.
    assert_eq!(wrong[1], right[1]);
    assert_ne!(wrong[2], right[2]);
}
