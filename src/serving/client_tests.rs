use super::*;
use crate::serving::chat::ChatRole;
use crate::serving::fake;

fn client(url: &str, engine: ServingEngine, key: Option<&str>) -> Client {
    install_tls();
    Client::new(url, engine, key.and_then(ApiKey::new), Timeouts::default()).unwrap()
}

async fn answering(status: &str, body: &str, engine: ServingEngine) -> (Client, fake::Server) {
    let server = fake::raw(fake::response(status, "application/json", body)).await;
    (client(&server.url, engine, None), server)
}

fn hello() -> Vec<ChatMessage> {
    vec![ChatMessage::new(ChatRole::User, "hello")]
}

#[test]
fn tls_may_be_installed_twice() {
    install_tls();
    install_tls();
}

#[test]
fn an_address_is_checked_before_anything_is_sent() {
    install_tls();
    for bad in ["", "gpu-box:30000", "ftp://a", "http://", "http://u:p@a", "http://a/?x=1", "file:///etc/passwd"] {
        let made = Client::new(bad, ServingEngine::Sglang, None, Timeouts::default());
        assert!(matches!(made, Err(ServingError::BadUrl { .. })), "{bad}: {made:?}");
    }
    for good in ["http://a:1", "http://a:1/", "https://a:1/v1", "http://a:1/v1/"] {
        let made = Client::new(good, ServingEngine::Sglang, None, Timeouts::default()).unwrap();
        assert!(made.base().ends_with(":1"), "{good}: {}", made.base());
    }
}

#[tokio::test]
async fn the_key_is_sent_and_never_printed() {
    let server = fake::raw(fake::response("200 OK", "application/json", "{\"model_path\":\"lab\"}")).await;
    let client = client(&server.url, ServingEngine::Sglang, Some("sk-secret"));
    assert_eq!(client.model_info().await.unwrap().model, Some("lab".into()));
    assert!(server.requests.lock().unwrap()[0].contains("authorization: Bearer sk-secret"));
    assert!(!format!("{client:?}").contains("sk-secret"));
}

#[tokio::test]
async fn server_info_comes_without_secrets() {
    let body = "{\"api_key\":\"sk-1\",\"tp_size\":4,\"internal_states\":[{\"tp_size\":8}]}";
    let (client, _) = answering("200 OK", body, ServingEngine::Sglang).await;
    let info = client.server_info().await.unwrap();
    assert_eq!(info.get("tp_size"), Some(&json!(8)));
    assert_eq!(info.withheld, ["api_key"]);
}

#[tokio::test]
async fn an_unknown_path_falls_back_to_the_old_name() {
    let (client, server) = answering("404 Not Found", "{\"detail\":\"Not Found\"}", ServingEngine::Sglang).await;
    let error = client.server_info().await.unwrap_err();
    assert_eq!(error, ServingError::Status { path: "/get_server_info", code: 404, body: "Not Found".into() });
    let asked: Vec<String> =
        server.requests.lock().unwrap().iter().map(|r| r.lines().next().unwrap().to_owned()).collect();
    assert_eq!(asked, ["GET /server_info HTTP/1.1", "GET /get_server_info HTTP/1.1"]);
}

#[tokio::test]
async fn nothing_is_retried() {
    let (client, server) = answering("500 Internal Server Error", "boom", ServingEngine::Sglang).await;
    assert!(matches!(client.model_info().await, Err(ServingError::Status { code: 500, .. })));
    assert_eq!(server.requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn loads_are_summed_and_the_fullest_rank_counts() {
    let body = "{\"loads\":[{\"num_running_reqs\":2,\"num_waiting_reqs\":1,\"token_usage\":0.25},\
                {\"num_running_reqs\":3,\"num_waiting_reqs\":0,\"token_usage\":0.75}]}";
    let (client, _) = answering("200 OK", body, ServingEngine::Sglang).await;
    let expect =
        Load { running: Some(5), waiting: Some(1), handing_over: None, kv_usage: Some(0.75), cache_hit_rate: None };
    assert_eq!(client.loads().await.unwrap(), expect);
}

#[tokio::test]
async fn a_load_without_figures_is_unknown_and_not_idle() {
    let (client, _) = answering("200 OK", "{\"loads\":[]}", ServingEngine::Sglang).await;
    assert_eq!(client.loads().await.unwrap(), Load::default());
    let (client, _) = answering("200 OK", "{}", ServingEngine::Sglang).await;
    assert!(matches!(client.loads().await, Err(ServingError::BadAnswer { .. })));
}

#[tokio::test]
async fn tokenize_reads_count_and_ids_or_either() {
    for (body, count, ids) in [
        ("{\"tokens\":[1,2,3],\"count\":3,\"max_model_len\":9}", 3, 3),
        ("{\"tokens\":[1,2,3]}", 3, 3),
        ("{\"count\":7}", 7, 0),
        ("{\"count\":2,\"tokens\":[\"a\",\"b\"]}", 2, 0),
    ] {
        let (client, _) = answering("200 OK", body, ServingEngine::Sglang).await;
        let got = client.tokenize(&hello(), &[]).await.unwrap();
        assert_eq!((got.count, got.tokens.len()), (count, ids), "{body}");
    }
    let (client, _) = answering("200 OK", "{\"ok\":true}", ServingEngine::Sglang).await;
    assert!(matches!(client.tokenize(&hello(), &[]).await, Err(ServingError::BadAnswer { .. })));
}

#[tokio::test]
async fn tools_go_with_the_tokenizer_too() {
    let (client, server) = answering("200 OK", "{\"count\":7}", ServingEngine::Sglang).await;
    client.tokenize(&hello(), &[json!({"type": "function"})]).await.unwrap();
    let request = server.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /v1/tokenize") && request.contains("\"tools\":[{\"type\":\"function\"}]"));
}

#[tokio::test]
async fn llama_server_renders_first() {
    let (client, server) =
        answering("200 OK", "{\"prompt\":\"<u>hello\",\"tokens\":[5,6]}", ServingEngine::LlamaServer).await;
    assert_eq!(client.tokenize(&hello(), &[]).await.unwrap().count, 2);
    let requests = server.requests.lock().unwrap().clone();
    assert!(requests[0].starts_with("POST /apply-template"));
    assert!(requests[1].starts_with("POST /tokenize") && requests[1].contains("<u>hello"));
}

#[tokio::test]
async fn the_first_token_of_a_raw_prompt() {
    let body = "{\"text\":\"Q\",\"output_ids\":[81],\"meta_info\":{\"prompt_tokens\":3,\"cached_tokens\":0}}";
    let (client, server) = answering("200 OK", body, ServingEngine::Sglang).await;
    let first = client.generate_first_token(&RawPrompt::Ids(vec![256, 258, 65])).await.unwrap();
    assert_eq!((first.text.raw(), first.id, first.cached_tokens), ("Q", Some(81), Some(0)));
    assert!(server.requests.lock().unwrap()[0].contains("\"input_ids\":[256,258,65]"));
}

#[tokio::test]
async fn what_an_engine_cannot_do_is_said() {
    let (client, server) = answering("200 OK", "{}", ServingEngine::Vllm).await;
    for error in [
        client.server_info().await.unwrap_err(),
        client.loads().await.unwrap_err(),
        client.generate_first_token(&RawPrompt::Text("a".into())).await.unwrap_err(),
    ] {
        assert!(matches!(error, ServingError::NotSupported { .. }), "{error}");
        assert!(error.to_string().ends_with("is not supported for Vllm yet"), "{error}");
    }
    assert!(server.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn slow_broken_and_foreign_answers() {
    let (client, _) = answering("200 OK", "<html>", ServingEngine::Sglang).await;
    assert!(matches!(client.model_info().await, Err(ServingError::BadAnswer { .. })));
    let slow = fake::raw(vec![fake::Piece::Wait(Duration::from_mins(1))]).await;
    let short = Timeouts { plain: Duration::from_millis(200), ..Timeouts::default() };
    let error = Client::new(&slow.url, ServingEngine::Sglang, None, short).unwrap().model_info().await.unwrap_err();
    assert!(matches!(error, ServingError::TimedOut { .. }), "{error}");
    let gone = super::tests::client(&fake::nobody().await, ServingEngine::Sglang, None).model_info().await.unwrap_err();
    assert!(gone.is_unreachable(), "{gone}");
}

#[test]
fn what_a_server_says_is_found_in_every_usual_place() {
    for (body, expect) in [
        ("{\"error\":{\"message\":\"a\"}}", "a"),
        ("{\"error\":\"b\"}", "b"),
        ("{\"object\":\"error\",\"message\":\"c\"}", "c"),
        ("{\"detail\":\"d\"}", "d"),
        ("  plain  ", "plain"),
        ("", "no explanation"),
    ] {
        assert_eq!(said(body.as_bytes()).raw(), expect, "{body}");
    }
}
