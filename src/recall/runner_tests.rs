use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

use super::*;
use crate::case::{ClientSpec, Manager, PauseWhen, RecallSpec, Role, ServingEngine, Target};
use crate::engine::job::fake::{Ends, context};
use crate::recall::trial::FailKind;
use crate::serving::chat::ChatMessage;
use crate::serving::fake;

/// How the model of the test server behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    /// Finds the fact among the messages.
    Remembers,
    /// Denies the context.
    Forgets,
    /// Sends the head of a stream and then nothing for a long time.
    Stalls,
    /// Breaks off in the middle.
    Breaks,
    /// Answers with this status.
    Status(u16),
    /// Answers the tokenizer with this status.
    TokenizerStatus(u16),
    /// Its tokenizer always counts the same.
    StuckTokenizer,
}

struct Server {
    model: Model,
    chats: Mutex<Vec<Value>>,
    waiting: AtomicU32,
    in_flight: AtomicU32,
    most_in_flight: AtomicU32,
}

fn count(messages: &Value, tools: &Value) -> usize {
    let texts = messages.as_array().into_iter().flatten();
    let bytes: usize = texts.map(|m| 1 + m["content"].as_str().unwrap_or_default().len()).sum();
    bytes + tools.as_array().map_or(0, |t| t.iter().map(|t| t.to_string().len()).sum()) + 2
}

async fn tokenize(State(server): State<Arc<Server>>, Json(body): Json<Value>) -> Response {
    match server.model {
        Model::TokenizerStatus(code) => StatusCode::from_u16(code).unwrap().into_response(),
        Model::StuckTokenizer => Json(json!({ "count": 40 })).into_response(),
        _ => Json(json!({ "count": count(&body["messages"], &body["tools"]) })).into_response(),
    }
}

/// Looks the value up by the nonce at the front: many values stand in a conversation, the test knows the right one.
fn recalled(messages: &[ChatMessage]) -> String {
    let nonce: String = messages[0].content.chars().take(40).collect();
    ANSWERS.with(|all| {
        let all = all.borrow();
        all.iter().find(|(n, _)| nonce.starts_with(n.as_str())).map(|(_, v)| v.clone()).unwrap_or_default()
    })
}

thread_local! {
    static ANSWERS: std::cell::RefCell<Vec<(String, String)>> = const { std::cell::RefCell::new(Vec::new()) };
}

async fn chat(State(server): State<Arc<Server>>, Json(body): Json<Value>) -> Response {
    server.chats.lock().unwrap().push(body.clone());
    let now = server.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
    server.most_in_flight.fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await;
    server.in_flight.fetch_sub(1, Ordering::SeqCst);
    let messages: Vec<ChatMessage> = serde_json::from_value(body["messages"].clone()).unwrap();
    let text = match server.model {
        Model::Status(code) => return StatusCode::from_u16(code).unwrap().into_response(),
        Model::Stalls => {
            let never = stream::pending::<Result<Bytes, std::io::Error>>();
            return Body::from_stream(never).into_response();
        }
        Model::Breaks => return "data: {\"choices\":[{\"delta\":{\"content\":\"Q\"}}]}\n\n".into_response(),
        Model::Forgets => "This is the very first message.".to_owned(),
        _ => recalled(&messages),
    };
    let tokens = count(&body["messages"], &body["tools"]);
    let events = [
        json!({"choices": [{"delta": {"content": text}}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 0}}}),
    ];
    let lines = events.map(|e| format!("data: {e}\n\n"));
    (lines.concat() + "data: [DONE]\n\n").into_response()
}

async fn loads(State(server): State<Arc<Server>>) -> Json<Value> {
    let waiting = server.waiting.load(Ordering::SeqCst);
    server.waiting.store(waiting.saturating_sub(1), Ordering::SeqCst);
    Json(json!({ "loads": [{ "num_running_reqs": 0, "num_waiting_reqs": waiting, "token_usage": 0.1 }] }))
}

async fn serve(model: Model) -> (String, Arc<Server>) {
    let server = Arc::new(Server {
        model,
        chats: Mutex::default(),
        waiting: AtomicU32::new(0),
        in_flight: AtomicU32::new(0),
        most_in_flight: AtomicU32::new(0),
    });
    let app = Router::new()
        .route("/v1/tokenize", post(tokenize))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/loads", get(loads))
        .route("/server_info", get(|| async { Json(json!({ "context_length": null, "max_req_input_len": 4096 })) }))
        .with_state(Arc::clone(&server));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, server)
}

fn case(url: &str) -> Case {
    Case {
        name: "test".into(),
        targets: vec![Target {
            name: "lab".into(),
            role: Role::Monolithic,
            engine: ServingEngine::Sglang,
            host: "local".into(),
            become_with: None,
            url: url.into(),
            api_key: None,
            manager: Manager::Systemd { systemd: "none".into() },
            launch_script: None,
            checkpoint: None,
            checkout: None,
            production: false,
            readable_env: false,
        }],
        recall: RecallSpec::default(),
        client: ClientSpec::default(),
        ..Case::default()
    }
}

fn plan(repeats: u32) -> RecallPlan {
    RecallPlan {
        forms: vec![ProbeForm::MultiTurn, ProbeForm::Needle],
        lengths: vec![1024, 2048],
        depths: vec![0.1, 0.9],
        repeats,
        seed: 5,
        concurrency: 1,
        factors: BTreeMap::new(),
    }
}

fn settings() -> Settings {
    Settings { poll: Duration::from_millis(5), ..Settings::default() }
}

/// Runs the plan to its end; the reports in the order in which they came.
async fn run_plan(case: &Case, plan: &RecallPlan) -> Ran {
    run_plan_with(case, plan, settings()).await
}

type Ran = (Result<(), Failure>, Vec<Trial>, Vec<Diagnostic>, Vec<Live>);

async fn run_plan_with(case: &Case, plan: &RecallPlan, settings: Settings) -> Ran {
    ANSWERS.with(|all| {
        *all.borrow_mut() =
            keys(plan).iter().map(|k| conversation(k, 0, Style::default())).map(|c| (c.nonce, c.expected)).collect();
    });
    let dir = tempfile::tempdir().unwrap();
    let (ctx, ends) = context(dir.path()).unwrap();
    let boots = [BootId(3)];
    let arm = BTreeMap::from([("triton-indexer@lab".to_owned(), "on".to_owned())]);
    let (result, (trials, said, live)) = tokio::join!(
        async {
            let result = run_with(case, plan, Met { boots: &boots, arm: &arm, gone: &|| None }, &settings, &ctx).await;
            let store = ctx.blobs.clone();
            drop(ctx);
            (result, store)
        },
        collect(ends)
    );
    let (result, store) = result;
    for trial in &trials {
        if let Some(hash) = &trial.transcript {
            let transcript = Transcript::from_bytes(&store.get(hash).unwrap()).unwrap();
            assert_eq!((&transcript.key, &transcript.outcome), (&trial.key, &trial.outcome));
            assert_eq!(transcript.answer, trial.got);
        }
    }
    (result, trials, said, live)
}

async fn collect(mut ends: Ends) -> (Vec<Trial>, Vec<Diagnostic>, Vec<Live>) {
    let (mut trials, mut said, mut live) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(report) = ends.next().await {
        match report {
            JobReport::TrialDone(trial) => trials.push((*trial).clone()),
            JobReport::Said(remark) => said.push(remark),
            other => panic!("unexpected report {other:?}"),
        }
    }
    while let Ok(message) = ends.live.try_recv() {
        live.push(message);
    }
    (trials, said, live)
}

#[tokio::test]
async fn a_model_that_remembers_passes_every_trial() {
    let (url, server) = serve(Model::Remembers).await;
    let (result, trials, said, live) = run_plan(&case(&url), &plan(2)).await;
    assert_eq!((result, trials.len(), said.len()), (Ok(()), 16, 0));
    for trial in &trials {
        assert_eq!(trial.outcome, Outcome::Pass, "{trial:?}");
        assert!(
            crate::recall::fit::on_target(trial.prompt_tokens.unwrap(), trial.key.length),
            "{:?}",
            trial.prompt_tokens
        );
        assert_eq!((trial.id, trial.cached_tokens, trial.boots.as_slice()), (TrialId(0), Some(0), &[BootId(3)][..]));
        assert_eq!(trial.factors["cache"], "cold");
        assert_eq!(trial.arm["triton-indexer@lab"], "on");
        assert!(trial.transcript.is_some() && trial.seconds > 0.0);
    }
    let chats = server.chats.lock().unwrap();
    assert_eq!(chats.len(), 16, "nothing is sent twice");
    assert!(chats.iter().all(|c| c["temperature"] == 0.0 && c["stream"] == true));
    let salts: std::collections::BTreeSet<String> = chats.iter().map(|c| c["cache_salt"].to_string()).collect();
    assert_eq!(salts.len(), 16);
    assert!(live.iter().any(|l| matches!(l, Live::Token { .. })));
    let last = live.iter().rev().find_map(|l| match l {
        Live::Progress { done, total, eta_s, .. } => Some((*done, *total, *eta_s)),
        _ => None,
    });
    assert_eq!(last, Some((16, Some(16), Some(0.0))));
}

#[tokio::test]
async fn a_model_that_forgets_fails_with_its_kind() {
    let (url, _server) = serve(Model::Forgets).await;
    let (result, trials, _, _) = run_plan(&case(&url), &plan(1)).await;
    assert_eq!((result, trials.len()), (Ok(()), 8));
    for trial in trials {
        assert_eq!(trial.outcome, Outcome::Fail { how: FailKind::NoEarlierContext });
        assert_eq!(trial.first_wrong, Some(0));
    }
}

#[tokio::test]
async fn two_arms_are_asked_the_same() {
    let (url, server) = serve(Model::Remembers).await;
    run_plan(&case(&url), &plan(1)).await.0.unwrap();
    run_plan(&case(&url), &plan(1)).await.0.unwrap();
    let chats = server.chats.lock().unwrap();
    let (a, b) = chats.split_at(8);
    assert!(a.iter().zip(b).all(|(a, b)| a["messages"] == b["messages"] && a["cache_salt"] != b["cache_salt"]));
}

#[tokio::test]
async fn failures_of_the_server_are_voids_with_their_reason_and_never_retried() {
    for (model, why) in [
        (Model::Status(500), "http error 500"),
        (Model::Status(503), "http error 503"),
        (Model::Status(400), "http error 400"),
        (Model::Breaks, "the answer broke off"),
        (Model::TokenizerStatus(500), "before sending: http error 500"),
        (Model::StuckTokenizer, "length off target: 40 tokens instead of 1024"),
    ] {
        let (url, server) = serve(model).await;
        let plan = RecallPlan { lengths: vec![1024], forms: vec![ProbeForm::Needle], ..plan(2) };
        let (result, trials, _, _) = run_plan(&case(&url), &plan).await;
        assert_eq!(result, Ok(()), "{model:?}");
        assert_eq!(trials.len(), 4, "{model:?}");
        assert!(
            trials.iter().all(|t| t.outcome == Outcome::Void { why: why.into() }),
            "{model:?}: {:?}",
            trials[0].outcome
        );
        assert!(server.chats.lock().unwrap().len() <= 4, "{model:?}");
    }
}

#[tokio::test]
async fn a_stall_is_a_void() {
    let (url, _server) = serve(Model::Stalls).await;
    let plan = RecallPlan { lengths: vec![1024], depths: vec![0.5], forms: vec![ProbeForm::Needle], ..plan(1) };
    let timeouts = Timeouts { first_token: Duration::from_millis(200), ..Timeouts::default() };
    let (_, trials, _, _) = run_plan_with(&case(&url), &plan, Settings { timeouts, ..settings() }).await;
    assert_eq!(trials[0].outcome, Outcome::Void { why: "time-out waiting for the first token".into() });
}

#[tokio::test]
async fn what_cannot_get_better_ends_the_job_with_a_hint() {
    for (model, part) in
        [(Model::Status(401), "401"), (Model::Status(404), "404"), (Model::TokenizerStatus(403), "403")]
    {
        let (url, _server) = serve(model).await;
        let (result, trials, _, _) = run_plan(&case(&url), &plan(1)).await;
        let failure = result.unwrap_err();
        assert!(failure.message.contains(part) && failure.hint.is_some(), "{failure:?}");
        assert!(trials.is_empty());
    }
}

#[tokio::test]
async fn a_server_that_is_gone_ends_the_job_after_three_voids() {
    let (result, trials, _, _) = run_plan(&case(&fake::nobody().await), &plan(4)).await;
    let failure = result.unwrap_err();
    assert!(failure.message.contains("3 times in a row"), "{failure:?}");
    assert!(failure.hint.is_some());
    assert_eq!(trials.len(), 3);
    assert!(trials.iter().all(|t| t.outcome == Outcome::Void { why: "before sending: no connection".into() }));
    assert!(trials.iter().all(|t| t.transcript.is_none()), "nothing was sent");
}

#[tokio::test]
async fn concurrency_is_kept() {
    let (url, server) = serve(Model::Remembers).await;
    let plan = RecallPlan { concurrency: 3, ..plan(2) };
    let (_, trials, _, _) = run_plan(&case(&url), &plan).await;
    assert_eq!(trials.len(), 16);
    let most = server.most_in_flight.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most} at once");
}

#[tokio::test]
async fn a_warm_run_sends_each_prompt_twice_under_one_salt() {
    let (url, server) = serve(Model::Remembers).await;
    let mut plan = plan(1);
    plan.factors.insert("cache".into(), "warm".into());
    let (_, trials, _, _) = run_plan(&case(&url), &plan).await;
    assert_eq!(trials.len(), 8);
    assert!(trials.iter().all(|t| t.factors["cache"] == "warm"));
    let chats = server.chats.lock().unwrap();
    assert_eq!(chats.len(), 16);
    for pair in chats.chunks(2) {
        assert_eq!((&pair[0]["messages"], &pair[0]["cache_salt"]), (&pair[1]["messages"], &pair[1]["cache_salt"]));
        assert_eq!(pair[0]["max_tokens"], 1);
    }
}

#[tokio::test]
async fn the_budget_of_prompt_tokens_ends_the_run_and_says_so() {
    let (url, server) = serve(Model::Remembers).await;
    let mut case = case(&url);
    case.budget.prompt_tokens = Some(3200);
    let plan = RecallPlan { lengths: vec![1024], ..plan(2) };
    let (result, trials, said, _) = run_plan(&case, &plan).await;
    assert_eq!((result, trials.len()), (Ok(()), 3));
    assert_eq!(server.chats.lock().unwrap().len(), 3);
    assert_eq!(said[0].message, "the budget of 3200 prompt tokens is spent; 5 of 8 trials were not run");
}

#[tokio::test]
async fn a_busy_server_is_waited_for_and_the_pause_is_shown() {
    let (url, server) = serve(Model::Remembers).await;
    server.waiting.store(6, Ordering::SeqCst);
    let mut case = case(&url);
    case.budget.pause_when = Some(PauseWhen { waiting: Some(2), kv_usage: Some(0.8) });
    let (result, trials, _, live) = run_plan(&case, &plan(1)).await;
    assert_eq!((result, trials.len()), (Ok(()), 8));
    let paused = live.iter().any(
        |l| matches!(l, Live::Progress { phase, .. } if phase == "paused: 6 requests wait at the server, limit 2"),
    );
    assert!(paused);
}

#[tokio::test]
async fn a_pause_limit_that_cannot_be_kept_ends_the_run() {
    let (url, server) = serve(Model::Remembers).await;
    let mut case = case(&url);
    case.targets[0].engine = ServingEngine::LlamaServer;
    case.budget.pause_when = Some(PauseWhen { waiting: Some(2), kv_usage: None });
    let failure = run_plan(&case, &plan(1)).await.0.unwrap_err();
    assert!(failure.message.contains("`pause_when` cannot be kept") && failure.hint.is_some(), "{failure:?}");
    assert!(server.chats.lock().unwrap().is_empty(), "an unknown load is not taken for an idle server");
}

#[tokio::test]
async fn a_server_that_somebody_exchanged_gets_no_trial_on_the_old_boot() {
    let (url, _server) = serve(Model::Remembers).await;
    let dir = tempfile::tempdir().unwrap();
    let (ctx, ends) = context(dir.path()).unwrap();
    let (case, plan, arm) = (case(&url), plan(1), BTreeMap::new());
    let looks = AtomicUsize::new(0);
    // Seen before and after the first trial, and before the second; exchanged while that one is asked.
    let gone = || (looks.fetch_add(1, Ordering::SeqCst) >= 3).then(|| "pid 7 of `lab` is gone".to_owned());
    let met = Met { boots: &[BootId(3)], arm: &arm, gone: &gone };
    let (result, (trials, ..)) = tokio::join!(
        async {
            let result = run_with(&case, &plan, met, &settings(), &ctx).await;
            drop(ctx);
            result
        },
        collect(ends)
    );
    assert!(result.unwrap_err().message.contains("pid 7 of `lab` is gone"));
    assert_eq!(trials.len(), 2);
    assert!(!matches!(trials[0].outcome, Outcome::Void { .. }));
    assert!(matches!(&trials[1].outcome, Outcome::Void { why } if why.contains("pid 7")), "{:?}", trials[1].outcome);
}

#[tokio::test]
async fn a_cancel_ends_the_run_at_once() {
    let (url, _server) = serve(Model::Stalls).await;
    let dir = tempfile::tempdir().unwrap();
    let (ctx, ends) = context(dir.path()).unwrap();
    let cancel = ctx.cancel.clone();
    let started = Instant::now();
    let (case, plan) = (case(&url), plan(4));
    let (slow, arm) = (Settings::default(), BTreeMap::new());
    let (result, ()) =
        tokio::join!(run_with(&case, &plan, Met { boots: &[], arm: &arm, gone: &|| None }, &slow, &ctx), async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            cancel.cancel();
        });
    assert_eq!(result, Ok(()));
    assert!(started.elapsed() < Duration::from_mins(1));
    drop(ctx);
    assert!(collect(ends).await.0.is_empty(), "a cancelled trial is no trial");
}

#[tokio::test]
async fn an_unusable_case_or_plan_is_refused_before_anything_is_sent() {
    let (url, server) = serve(Model::Remembers).await;
    let mut unknown = plan(1);
    unknown.factors.insert("chunks".into(), "2".into());
    assert!(run_plan(&case(&url), &unknown).await.0.unwrap_err().message.contains("chunks"));
    assert!(run_plan(&Case::default(), &plan(1)).await.0.unwrap_err().message.contains("no target"));
    assert!(run_plan(&case("nonsense"), &plan(1)).await.0.is_err());
    let mut tools = case(&url);
    tools.client.tools = Some("no/such/file.json".into());
    assert!(run_plan(&tools, &plan(1)).await.0.unwrap_err().message.contains("no/such/file.json"));
    assert!(server.chats.lock().unwrap().is_empty());
}

#[tokio::test]
async fn lengths_beyond_the_context_were_asked_and_all_came_back_void() {
    let (url, server) = serve(Model::Remembers).await;
    let long = RecallPlan { lengths: vec![1024, 8192, 9000], ..plan(1) };
    let failure = run_plan(&case(&url), &long).await.0.unwrap_err();
    assert_eq!(failure.message, "prompts of 8192, 9000 tokens do not fit: the server takes at most 4096");
    assert!(failure.hint.is_some_and(|h| h.contains("4096")));
    assert!(server.chats.lock().unwrap().is_empty());
}
