//! Router, prefill and decode over real sockets, in this process.

use serde_json::{Value, json};

use super::*;
use crate::lab::scenario::Plan;
use crate::lab::server::tests::{TestServer, flags, golden, healthy, switches};

/// A router on a free port of loopback, with its servers.
pub(crate) struct TestRouter {
    pub(crate) url: String,
    runtime: Option<tokio::runtime::Runtime>,
    pub(crate) prefill: TestServer,
    pub(crate) decode: TestServer,
}

impl TestRouter {
    pub(crate) fn start() -> Self {
        let prefill = TestServer::start(
            flags("--disaggregation-mode prefill --disaggregation-bootstrap-port 0 --enable-cache-report"),
            switches(false),
            |_| Plan::default(),
        );
        let decode = flags("--disaggregation-mode decode --enable-cache-report");
        let decode = TestServer::start(decode, switches(false), |_| Plan::default());
        let line = format!(
            "--role router --prefill http://{} {} --decode http://{}",
            prefill.address,
            prefill.bootstrap.unwrap().port(),
            decode.address
        );
        let shared = Arc::new(Shared::new(&flags(&line).router).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.block_on(health::look_now(&shared));
        runtime.spawn(health::watch(Arc::clone(&shared)));
        let service = routes(shared).into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, service).await });
        Self { url, runtime: Some(runtime), prefill, decode }
    }

    fn block<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(work)
    }

    fn call(&self, method: reqwest::Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        self.block(async {
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let text = response.text().await.unwrap();
            (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
        })
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.call(reqwest::Method::GET, path, None)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call(reqwest::Method::POST, path, Some(body))
    }

    /// Id of the worker of a kind.
    fn worker(&self, kind: &str) -> Value {
        let (_, list) = self.get("/workers");
        list["workers"].as_array().unwrap().iter().find(|w| w["worker_type"] == kind).unwrap().clone()
    }
}

impl Drop for TestRouter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Looks until something is so.
fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..400 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("never: {what}");
}

/// An answer without what names one request.
fn said(answer: &Value) -> Value {
    json!({"choices": answer["choices"], "usage": answer["usage"], "prompt_token_ids": answer["prompt_token_ids"]})
}

#[test]
fn an_answer_through_the_router_is_that_of_one_server_to_the_last_bit() {
    let (router, whole) = (TestRouter::start(), healthy("--enable-cache-report"));
    let chat = json!({"messages": golden(), "temperature": 0.7, "seed": 5, "ignore_eos": true, "max_tokens": 40,
        "logprobs": true, "top_logprobs": 3, "return_prompt_token_ids": true});
    let ((_, divided), (status, alone)) =
        (router.post("/v1/chat/completions", &chat), whole.post("/v1/chat/completions", &chat));
    assert_eq!((status, said(&divided)), (200, said(&alone)));
    assert_eq!(divided["usage"]["completion_tokens"], 40);

    let raw = json!({"text": ["The code is 17. ", "Hello"], "return_logprob": true, "logprob_start_len": 0,
        "sampling_params": {"temperature": 0, "max_new_tokens": 12, "ignore_eos": true}});
    let ((_, divided), (_, alone)) = (router.post("/generate", &raw), whole.post("/generate", &raw));
    for i in 0..2 {
        for field in ["input_token_logprobs", "output_token_logprobs", "prompt_tokens", "cached_tokens"] {
            assert_eq!(divided[i]["meta_info"][field], alone[i]["meta_info"][field], "{field} of {i}");
        }
        assert_eq!((&divided[i]["text"], &divided[i]["output_ids"]), (&alone[i]["text"], &alone[i]["output_ids"]));
    }
}

#[test]
fn a_stream_comes_through_piece_by_piece() {
    let router = TestRouter::start();
    let body =
        json!({"messages": golden(), "temperature": 0, "stream": true, "stream_options": {"include_usage": true}});
    let (status, text) = router.post("/v1/chat/completions", &body);
    let text = text.as_str().unwrap();
    assert!(status == 200 && text.ends_with("data: [DONE]\n\n"), "{text}");
    let content: String = text
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l.strip_prefix("data: ")?).ok())
        .filter_map(|v| v.pointer("/choices/0/delta/content").and_then(Value::as_str).map(str::to_owned))
        .collect();
    assert_eq!(content, "QX7-41B");
}

#[test]
fn an_impossible_request_is_refused_in_the_words_of_the_server() {
    let router = TestRouter::start();
    let (status, answer) = router.post("/v1/chat/completions", &json!({"messages": golden(), "top_p": 3}));
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("top_p"), "{answer}");
    assert_eq!(router.post("/generate", &json!([1])).0, 400);
}

#[test]
fn a_half_without_a_room_refuses_and_says_why() {
    let router = TestRouter::start();
    for half in [&router.prefill, &router.decode] {
        let (status, answer) = half.post("/generate", &json!({"text": "Hello"}));
        assert_eq!(status, 400);
        assert!(answer["error"]["message"].as_str().unwrap().contains("without bootstrap room id"), "{answer}");
        let warm = json!({"text": "Hello", "bootstrap_host": "2.2.2.2", "bootstrap_room": 0,
            "sampling_params": {"max_new_tokens": 3, "ignore_eos": true}});
        assert_eq!(half.post("/generate", &warm).0, 200);
        assert_eq!(half.call("GET", "/health", "").0, 200);
    }
}

#[test]
fn a_state_that_nobody_hands_over_ends_the_request() {
    let router = TestRouter::start();
    let body = json!({"text": "Hello", "bootstrap_host": "127.0.0.1", "bootstrap_port": 9, "bootstrap_room": 1});
    let (status, answer) = router.decode.post("/generate", &body);
    assert_eq!(status, 503);
    assert!(answer["error"]["message"].as_str().unwrap().contains("KVTransferError"), "{answer}");
}

#[test]
fn a_removed_worker_drains_and_comes_back() {
    let router = TestRouter::start();
    assert_eq!(router.get("/readiness").0, 200);
    let decode = router.worker("decode");
    assert_eq!((decode["is_healthy"].as_bool(), decode["load"].as_u64()), (Some(true), Some(0)));
    let long = json!({"text": "Once", "stream": true,
        "sampling_params": {"temperature": 0, "max_new_tokens": 600, "ignore_eos": true}});
    let url = format!("{}/generate", router.url);
    let running = router.runtime.as_ref().unwrap().spawn(async move {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.post(url).json(&long).send().await.unwrap().text().await.unwrap()
    });
    until("the request runs", || router.worker("decode")["load"] == 1);

    let path = format!("/workers/{}", decode["id"].as_str().unwrap());
    assert_eq!(router.call(reqwest::Method::DELETE, &path, None).0, 202);
    assert_eq!(router.call(reqwest::Method::DELETE, &path, None).0, 404);
    assert_eq!(router.get("/readiness").0, 503);
    let (status, refused) = router.post("/generate", &json!({"text": "new"}));
    assert_eq!(status, 503, "{refused}");
    let text = router.block(running).unwrap();
    let last = text.lines().rev().find_map(|l| l.strip_prefix("data: {")).unwrap();
    let last: Value = serde_json::from_str(&format!("{{{last}")).unwrap();
    assert_eq!(last["meta_info"]["completion_tokens"], 600, "what ran was let to its end");

    let again = json!({"url": decode["url"], "worker_type": "decode"});
    assert_eq!(router.post("/workers", &again).0, 202);
    assert_eq!(router.post("/workers", &again).0, 409);
    until("the worker is back", || router.get("/readiness").0 == 200);
    assert_eq!(router.post("/generate", &json!({"text": "new"})).0, 200);
    assert_eq!(router.post("/workers", &json!({"url": "nowhere", "worker_type": "decode"})).0, 400);
}

#[test]
fn a_dead_worker_gets_no_requests() {
    let mut router = TestRouter::start();
    router.decode.stop();
    until("it is seen to be dead", || router.worker("decode")["is_healthy"] == false);
    assert_eq!(router.worker("prefill")["is_healthy"], true);
    assert_eq!(router.post("/generate", &json!({"text": "x"})).0, 503);
    assert_eq!(router.worker("prefill")["load"], 0);
}

#[test]
fn the_router_tells_the_load_of_all_and_passes_questions_on() {
    let router = TestRouter::start();
    let (_, loads) = router.get("/get_loads");
    assert_eq!(loads["loads"].as_array().unwrap().len(), 2, "{loads}");
    assert_eq!(loads["loads"][0]["disaggregation"]["mode"], "prefill");
    assert_eq!(router.get("/model_info").1["architectures"][0], "DeepseekV4ForCausalLM");
    assert_eq!(router.get("/v1/models").1["data"][0]["id"], "patchbench-lab");
    let (_, tokens) = router.post("/v1/tokenize", &json!({"messages": golden()}));
    assert_eq!(tokens["count"], 224);
    assert_eq!(router.post("/flush_cache", &Value::Null).0, 200);
    assert_eq!(router.get("/liveness").0, 200);
}
