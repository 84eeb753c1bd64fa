use std::time::Duration;

use super::*;
use crate::case::ServingEngine;
use crate::serving::capabilities::dialect;
use crate::serving::client::{Timeouts, install_tls};
use crate::serving::fake::{self, Piece};

fn request() -> ChatRequest {
    ChatRequest {
        model: "default".into(),
        messages: vec![ChatMessage::new(ChatRole::User, "What is the pin for the door?")],
        tools: Vec::new(),
        temperature: 0.0,
        max_tokens: 16,
        cache_salt: Some("salt-1".into()),
        thinking: None,
    }
}

/// Limits that a slow machine does not reach.
const PATIENT: Timeouts = Timeouts {
    connect: Duration::from_secs(20),
    plain: Duration::from_secs(20),
    first_token: Duration::from_secs(20),
    between: Duration::from_secs(20),
};

const SHORT: Duration = Duration::from_millis(200);

fn client(url: &str, engine: ServingEngine, timeouts: Timeouts) -> Client {
    install_tls();
    Client::new(url, engine, None, timeouts).unwrap()
}

async fn ask(pieces: Vec<Piece>, engine: ServingEngine) -> (Result<ChatAnswer, ServingError>, String) {
    ask_within(pieces, engine, PATIENT).await
}

async fn ask_within(
    pieces: Vec<Piece>,
    engine: ServingEngine,
    timeouts: Timeouts,
) -> (Result<ChatAnswer, ServingError>, String) {
    let server = fake::raw(pieces).await;
    let mut seen = String::new();
    let answer = client(&server.url, engine, timeouts)
        .chat_stream(
            &request(),
            |d| match d {
                Delta::Text(t) => seen.push_str(t),
                Delta::Reasoning(t) => seen.extend(["<", t, ">"]),
            },
            &CancellationToken::new(),
        )
        .await;
    (answer, seen)
}

async fn sglang(parts: &[&[u8]]) -> Result<ChatAnswer, ServingError> {
    ask(fake::stream(parts), ServingEngine::Sglang).await.0
}

fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":{text:?}}}}}]}}\n\n")
}

const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":21,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test]
async fn a_whole_answer_is_read_with_its_counts() {
    let text = [delta("QX"), delta("741B"), STOP.into(), USAGE.into(), DONE.into()].concat();
    let (answer, seen) = ask(fake::stream(&[text.as_bytes()]), ServingEngine::Sglang).await;
    let answer = answer.unwrap();
    assert_eq!(answer.text, "QX741B");
    assert_eq!(seen, "QX741B");
    assert_eq!(answer.finish_reason.as_deref(), Some("stop"));
    assert_eq!((answer.prompt_tokens, answer.cached_tokens), (Some(21), Some(4)));
    assert!(answer.first_token_s.unwrap() <= answer.seconds);
}

#[tokio::test]
async fn packets_may_cut_anywhere_even_inside_a_character() {
    let text = [delta("naïve – ✓"), STOP.into(), DONE.into()].concat();
    let bytes = text.as_bytes();
    for step in [1, 7, 50] {
        let parts: Vec<&[u8]> = bytes.chunks(step).collect();
        let mut pieces = fake::response("200 OK", "text/event-stream", "");
        pieces.extend(parts.iter().map(|p| Piece::Bytes(p.to_vec())));
        assert_eq!(ask(pieces, ServingEngine::Sglang).await.0.unwrap().text, "naïve – ✓", "step {step}");
    }
}

#[tokio::test]
async fn comments_carriage_returns_and_two_events_in_a_packet_are_no_trouble() {
    let text = format!(": ping\r\n\r\n{}{}{DONE}", delta("a").replace('\n', "\r\n"), delta("b"));
    assert_eq!(sglang(&[text.as_bytes()]).await.unwrap().text, "ab");
}

#[tokio::test]
async fn an_end_without_done_is_an_answer_only_after_a_finish_reason() {
    let cut = sglang(&[delta("QX").as_bytes()]).await;
    assert_eq!(cut, Err(ServingError::CutShort { events: 1 }));
    let whole = sglang(&[delta("QX741B").as_bytes(), STOP.as_bytes()]).await.unwrap();
    assert_eq!(whole.text, "QX741B");
    assert_eq!(sglang(&[]).await, Err(ServingError::CutShort { events: 0 }));
}

#[tokio::test]
async fn an_unfinished_last_event_is_not_taken() {
    let text = [delta("QX"), "data: {\"choices\":[{\"delta\":{\"content\":\"74".into()].concat();
    assert_eq!(sglang(&[text.as_bytes()]).await, Err(ServingError::CutShort { events: 1 }));
}

#[tokio::test]
async fn an_error_object_in_the_stream_is_an_error_and_not_an_answer() {
    let error = "data: {\"error\":{\"message\":\"out of kv cache\",\"code\":500}}\n\n";
    let answer = sglang(&[delta("Q").as_bytes(), error.as_bytes(), DONE.as_bytes()]).await;
    assert_eq!(answer, Err(ServingError::InStream { message: "out of kv cache".into() }));
    let null = format!("data: {{\"error\":null,\"choices\":[]}}\n\n{DONE}");
    assert_eq!(sglang(&[null.as_bytes()]).await.unwrap().text, "");
}

#[tokio::test]
async fn a_stall_is_a_timeout_that_names_its_place() {
    let stall = |parts: &[&[u8]]| [fake::stream(parts), vec![Piece::Wait(Duration::from_mins(1))]].concat();
    let first = Timeouts { first_token: SHORT, ..PATIENT };
    let error = ask_within(stall(&[]), ServingEngine::Sglang, first).await.0.unwrap_err();
    assert!(matches!(error, ServingError::TimedOut { what: "the first token", .. }), "{error}");
    let next = Timeouts { between: SHORT, ..PATIENT };
    let error = ask_within(stall(&[delta("Q").as_bytes()]), ServingEngine::Sglang, next).await.0.unwrap_err();
    assert!(matches!(error, ServingError::TimedOut { what: "the next token", .. }), "{error}");
}

#[tokio::test]
async fn an_open_stream_without_text_still_waits_for_the_first_token() {
    let opened = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    let rest = [delta("7"), DONE.into()].concat();
    let pieces = [fake::stream(&[opened.as_bytes()]), vec![Piece::Wait(3 * SHORT), Piece::Bytes(rest.into_bytes())]];
    let next = Timeouts { between: SHORT, ..PATIENT };
    assert_eq!(ask_within(pieces.concat(), ServingEngine::Sglang, next).await.0.unwrap().text, "7");
}

#[tokio::test]
async fn text_that_is_not_utf8_and_json_that_is_not_json() {
    let error = sglang(&[b"data: \xff\xfe\n\n"]).await.unwrap_err();
    assert!(error.to_string().contains("utf-8"), "{error}");
    let error = sglang(&[b"data: {\"choices\": oops}\n\n"]).await.unwrap_err();
    assert!(error.to_string().contains("event 1 is no json"), "{error}");
}

#[tokio::test]
async fn error_statuses_carry_what_the_server_said() {
    for (status, code) in [("400 Bad Request", 400), ("401 Unauthorized", 401), ("503 Service Unavailable", 503)] {
        let body = "{\"error\":{\"message\":\"Loading model\"}}";
        let error = ask(fake::response(status, "application/json", body), ServingEngine::Sglang).await.0.unwrap_err();
        let expect = ServingError::Status { path: "/v1/chat/completions", code, body: "Loading model".into() };
        assert_eq!(error, expect);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let pieces =
        vec![Piece::Bytes(b"HTTP/1.1 302 Found\r\nlocation: /flush_cache\r\ncontent-length: 0\r\n\r\n".to_vec())];
    let server = fake::raw(pieces).await;
    let answer = client(&server.url, ServingEngine::Sglang, PATIENT)
        .chat_stream(&request(), |_| {}, &CancellationToken::new())
        .await;
    assert!(matches!(answer, Err(ServingError::Status { code: 302, .. })), "{answer:?}");
    assert_eq!(server.requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let url = fake::nobody().await;
    let answer =
        client(&url, ServingEngine::Sglang, PATIENT).chat_stream(&request(), |_| {}, &CancellationToken::new()).await;
    let error = answer.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_cancel_drops_the_request_at_once() {
    let mut pieces = fake::stream(&[delta("Q").as_bytes()]);
    pieces.push(Piece::Wait(Duration::from_mins(2)));
    let server = fake::raw(pieces).await;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let started = Instant::now();
    let client = client(&server.url, ServingEngine::Sglang, Timeouts::default());
    let answer = client.chat_stream(&request(), |_| stop.cancel(), &cancel).await;
    assert_eq!(answer, Err(ServingError::Cancelled));
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[tokio::test]
async fn reasoning_is_read_under_the_name_of_each_engine() {
    for (engine, field) in [
        (ServingEngine::Sglang, "reasoning_content"),
        (ServingEngine::Vllm, "reasoning"),
        (ServingEngine::LlamaServer, "reasoning_content"),
    ] {
        let text = format!("data: {{\"choices\":[{{\"delta\":{{\"{field}\":\"hm\"}}}}]}}\n\n{}{DONE}", delta("7"));
        let (answer, seen) = ask(fake::stream(&[text.as_bytes()]), engine).await;
        let answer = answer.unwrap();
        assert_eq!(
            (answer.reasoning.as_str(), answer.text.as_str(), seen.as_str()),
            ("hm", "7", "<hm>7"),
            "{engine:?}"
        );
    }
}

#[tokio::test]
async fn counts_that_are_not_told_are_unknown_and_not_zero() {
    let answer = sglang(&[delta("7").as_bytes(), DONE.as_bytes()]).await.unwrap();
    assert_eq!((answer.prompt_tokens, answer.cached_tokens, answer.finish_reason), (None, None, None));
    let null = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":null}}\n\n";
    let answer = sglang(&[null.as_bytes(), DONE.as_bytes()]).await.unwrap();
    assert_eq!((answer.prompt_tokens, answer.cached_tokens), (Some(9), None));
}

#[test]
fn the_body_states_temperature_and_keeps_the_cache_cold_in_each_dialect() {
    let sglang = request_body(&request(), &dialect(ServingEngine::Sglang));
    assert_eq!(sglang["temperature"], 0.0);
    assert_eq!(sglang["cache_salt"], "salt-1");
    assert_eq!(sglang["stream_options"]["include_usage"], true);
    assert!(sglang.get("tools").is_none() && sglang.get("chat_template_kwargs").is_none());
    let llama = request_body(&request(), &dialect(ServingEngine::LlamaServer));
    assert_eq!(llama["cache_prompt"], false);
    assert!(llama.get("cache_salt").is_none());
    let warm = request_body(&ChatRequest { cache_salt: None, ..request() }, &dialect(ServingEngine::LlamaServer));
    assert!(warm.get("cache_prompt").is_none());
}

#[test]
fn a_message_without_calls_has_only_role_and_content() {
    let json = serde_json::to_value(ChatMessage::new(ChatRole::Tool, "{}")).unwrap();
    assert_eq!(json, json!({"role": "tool", "content": "{}"}));
}
