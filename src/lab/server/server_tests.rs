//! The server over a real socket.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::*;
use crate::lab::model::{EMBEDDED, Model};
use crate::lab::scenario::{Scenario, named};

/// A server on a free port of loopback, in this process.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    /// Where a prefill server hands its keys over.
    pub(crate) bootstrap: Option<SocketAddr>,
    runtime: Option<tokio::runtime::Runtime>,
    handle: crate::lab::scheduler::Handle,
}

impl TestServer {
    pub(crate) fn start(args: ServeArgs, switches: Switches, plan: impl FnOnce(&[String]) -> Plan) -> Self {
        let arithmetic = args.arithmetic(switches);
        let config = args.engine(switches);
        let model = Arc::new(Model::load(EMBEDDED, arithmetic).unwrap());
        let (engine, handle) = Engine::new(model, config, plan(&active_gates(arithmetic)));
        std::thread::spawn(move || engine.run());
        let app = Arc::new(App {
            resolved: args.resolved(1),
            args,
            switches,
            engine: handle.clone(),
            random_seed: 1,
            counter: AtomicU64::new(0),
            started: Instant::now(),
            startup_seconds: 0.0,
            rooms: Rooms::new(handle.clone()),
            http: client().unwrap(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let bootstrap = (app.args.part() == Some(ServeRole::Prefill)).then(|| {
            let keys = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = keys.local_addr().unwrap();
            let rooms = transfer::router(app.rooms.clone());
            runtime.spawn(async move { axum::serve(keys, rooms).await });
            address
        });
        let service = routes(app).into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, service).await });
        Self { address, bootstrap, runtime: Some(runtime), handle }
    }

    /// One request over a connection of its own; status and body.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.call("POST", path, &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, text) = self.call("GET", path, "");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

impl TestServer {
    /// Ends it: nobody listens any more.
    pub(crate) fn stop(&mut self) {
        self.handle.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Flags as their defaults are.
pub(crate) fn flags(line: &str) -> ServeArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }
    let words = std::iter::once("x").chain(line.split_whitespace());
    <Line as clap::Parser>::try_parse_from(words).unwrap().serve
}

pub(crate) fn switches(on: bool) -> Switches {
    Switches::read(|name| (on && name.starts_with("SGLANG_SM120")).then(|| "1".to_owned())).0
}

pub(crate) fn healthy(line: &str) -> TestServer {
    TestServer::start(flags(line), switches(false), |_| Plan::default())
}

pub(crate) fn golden() -> Value {
    let golden: Value = serde_json::from_str(include_str!("../../../lab/golden.json")).unwrap();
    let turns: Vec<(String, String)> = serde_json::from_value(golden["conversation"].clone()).unwrap();
    turns.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

#[test]
fn a_conversation_is_answered() {
    let server = healthy("--enable-cache-report");
    let body = json!({"messages": golden(), "temperature": 0, "return_prompt_token_ids": true, "logprobs": true,
        "top_logprobs": 2});
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["message"]["content"], "QX7-41B");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["prompt_tokens"], 224);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(answer["prompt_token_ids"].as_array().unwrap().len(), 224);
    let logprobs = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!((logprobs.len(), logprobs[0]["top_logprobs"].as_array().unwrap().len()), (8, 2));
    let (_, again) = server.post("/v1/chat/completions", &body);
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 192);
}

#[test]
fn a_stream_has_the_same_words_and_ends() {
    let server = healthy("");
    let body =
        json!({"messages": golden(), "temperature": 0, "stream": true, "stream_options": {"include_usage": true}});
    let (status, text) = server.call("POST", "/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200);
    let lines: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
    assert_eq!(lines.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> = lines[..lines.len() - 1].iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    let words: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(words, "QX7-41B");
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 8);
    assert!(chunks.iter().any(|c| c["choices"][0]["finish_reason"] == "stop"));
    assert!(chunks[0]["usage"].is_null());
}

#[test]
fn generate_speaks_ids_and_logprobs() {
    let server = healthy("");
    let (_, tokenized) = server.post("/v1/tokenize", &json!({"messages": golden()}));
    assert_eq!((&tokenized["count"], &tokenized["max_model_len"]), (&json!(224), &json!(32768)));
    let body = json!({"input_ids": tokenized["tokens"], "sampling_params": {"temperature": 0, "max_new_tokens": 20},
        "return_logprob": true, "logprob_start_len": 220, "top_logprobs_num": 3, "return_text_in_logprobs": true});
    let (status, answer) = server.post("/generate", &body);
    assert_eq!((status, &answer["text"]), (200, &json!("QX7-41B")));
    let meta = &answer["meta_info"];
    assert_eq!((&meta["prompt_tokens"], &meta["completion_tokens"]), (&json!(224), &json!(8)));
    assert_eq!(meta["finish_reason"], json!({"type": "stop", "matched": 257}));
    assert_eq!(meta["input_token_logprobs"].as_array().unwrap().len(), 4);
    assert_eq!(meta["output_token_logprobs"][0][2], "Q");
    assert_eq!(meta["output_top_logprobs"][0].as_array().unwrap().len(), 3);
    let (_, text) = server.post("/detokenize", &json!({"tokens": answer["output_ids"]}));
    assert_eq!(text["text"], "QX7-41B");
    let (_, batch) = server.post("/generate", &json!({"text": ["a", "b"], "sampling_params": {"max_new_tokens": 2}}));
    assert_eq!(batch.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_seed_repeats() {
    let server = healthy("--disable-radix-cache");
    let body = json!({"text": "One", "sampling_params": {"temperature": 1.5, "max_new_tokens": 40, "sampling_seed": 7,
        "ignore_eos": true}});
    let [a, b] = [0, 1].map(|_| server.post("/generate", &body).1["output_ids"].clone());
    assert_eq!(a, b);
    let mut other = body;
    other["sampling_params"]["sampling_seed"] = json!(8);
    assert_ne!(server.post("/generate", &other).1["output_ids"], a);
}

#[test]
fn identity_and_load() {
    let server = healthy("--enable-metrics --deployment /nowhere/secret-place");
    assert_eq!(server.get("/health").0, 200);
    let (_, info) = server.get("/model_info");
    assert_eq!(info["is_generation"], true);
    let (_, info) = server.get("/server_info");
    assert_eq!(info["chunked_prefill_size"], 256);
    assert_eq!(info["internal_states"][0]["mhc_gemm"], "fp32");
    assert!(!info.to_string().contains("secret-place"));
    assert_eq!(server.get("/v1/models").1["data"][0]["id"], "patchbench-lab");
    assert_eq!(server.get("/v1/loads").1["loads"][0]["num_running_reqs"], 0);
    let (_, metrics) = server.call("GET", "/metrics", "");
    assert!(metrics.contains("\nsglang:num_requests_total{"), "{metrics}");
    assert_eq!(healthy("").get("/metrics").0, 404);
}

#[test]
fn bad_requests_are_explained() {
    let server = healthy("--context-length 300");
    let check = |path: &str, body: &str, words: &str| {
        let (status, text) = server.call("POST", path, body);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(400)), "{text}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    };
    check("/v1/chat/completions", "{", "JSON");
    check("/v1/chat/completions", r#"{"messages":[]}"#, "empty");
    check("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"a"}],"n":2}"#, "`n`");
    check("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":999}"#, "exceeds");
    let long = format!(r#"{{"messages":[{{"role":"user","content":"{}"}}]}}"#, "x".repeat(400));
    check("/v1/chat/completions", &long, "longer than the model's context length (300 tokens)");
    check("/generate", r#"{"text":"a","sampling_params":{"temperature":-1}}"#, "temperature");
    check("/generate", r#"{"input_ids":[300]}"#, "out of vocab");
    check("/generate", r#"{"input_ids":[]}"#, "empty");
    check("/generate", "{}", "required");
    check("/tokenize", "{}", "required");
    check("/abort_request", "{}", "required");
    assert_eq!(server.get("/nothing").0, 404);
    assert_eq!(server.call("POST", "/flush_cache", "").0, 200);
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let server = healthy("");
    let body = json!({"text": "x", "stream": true, "sampling_params": {"max_new_tokens": 30000, "ignore_eos": true}});
    let body = body.to_string();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut some = [0; 512];
    assert!(stream.read(&mut some).unwrap() > 0);
    assert_eq!(server.call("POST", "/flush_cache", "").0, 400);
    drop(stream);
    for _ in 0..200 {
        if server.handle.loads().running == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the request still runs");
}

#[test]
fn what_prevents_a_start_is_said_with_a_hint() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = serve(&flags(&format!("--port {port}"))).unwrap_err();
    assert!(error.to_string().contains(&port.to_string()) && error.hint().is_some(), "{error}");
    let dir = tempfile::tempdir().unwrap();
    drop(taken);
    let at = dir.path().display();
    for line in [
        format!("--port {port} --checkpoint {at}"),
        format!("--port {port} --deployment {at}/none"),
        format!("--port {port} --role decode --disaggregation-mode prefill"),
        format!("--port {port} --role router --prefill nowhere"),
    ] {
        let error = serve(&flags(&line)).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    fs_err::write(dir.path().join("model.safetensors"), b"broken").unwrap();
    let error = serve(&flags(&format!("--port {port} --checkpoint {at}"))).unwrap_err();
    assert!(error.to_string().starts_with("broken checkpoint"), "{error}");
}

#[test]
fn a_deployment_says_how_long_its_servers_load() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Scenario { load_seconds: 0.25, ..named("clean").unwrap() };
    let path = seal::seal(&slow, 1, dir.path()).unwrap();
    let args = flags(&format!("--deployment {}", path.display()));
    assert_eq!(plan(&args, Arithmetic::default()).unwrap().1, 0.25);
    assert_eq!(plan(&flags(""), Arithmetic::default()).unwrap().1, 0.0);
}

/// Not a test of its own: the process that `a_server_process_starts_and_ends_on_a_signal` starts.
#[test]
fn child_server() {
    if let Ok(line) = std::env::var("PATCHBENCH_TEST_SERVE") {
        serve(&flags(&line)).unwrap();
    }
}

#[test]
fn a_server_process_starts_and_ends_on_a_signal() {
    use crate::lab::scenario::named;
    use std::io::BufRead as _;
    let dir = tempfile::tempdir().unwrap();
    let deployment = crate::lab::scenario::seal(&named("incident").unwrap(), 5, dir.path()).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lab::server::tests::child_server", "--nocapture"])
        .env("PATCHBENCH_TEST_SERVE", format!("--port {port} --deployment {}", deployment.display()))
        .env("SGLANG_SM120_TRITON_INDEXER", "maybe")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut log = Vec::new();
    for line in lines.by_ref() {
        let ready = line.contains("The server is fired up and ready to roll!");
        log.push(line);
        if ready {
            break;
        }
    }
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    log.extend(lines);
    assert!(child.wait().unwrap().success(), "{log:#?}");
    let all = log.join("\n");
    for part in [
        "WARNING environ.py: Invalid value for SGLANG_SM120_TRITON_INDEXER",
        "] server_args=ServerArgs(model_path='",
        "] Load weight begin",
        "] Load weight end",
        "] max_total_num_tokens=131072, chunked_prefill_size=256,",
        "] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.00, #running-req: 0,",
        "\"GET /health HTTP/1.0\" 200 OK",
        "Finished server process",
    ] {
        assert!(all.contains(part), "{part} is not in:\n{all}");
    }
    assert!(!all.contains("incident") && !all.contains("index-page"));
    assert_eq!(fs_err::read_to_string(deployment.with_extension("boots")).unwrap().trim(), "1");
}
