//! Against the lab's router, and against answers that no real one gives on demand.

use super::*;
use crate::case::ServingEngine;
use crate::lab::router::tests::TestRouter;
use crate::serving::client::Timeouts;
use crate::serving::fake;

fn client(url: &str) -> Client {
    Client::new(url, ServingEngine::Sglang, None, Timeouts::default()).unwrap()
}

async fn worker(router: &Client, role: Role) -> Option<Worker> {
    list(router).await.unwrap().into_iter().find(|w| w.role == Some(role))
}

#[test]
fn a_worker_is_taken_out_drained_and_brought_back() {
    let lab = TestRouter::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let router = client(&lab.url);
        let decode = worker(&router, Role::Decode).await.unwrap();
        assert_eq!((decode.healthy, decode.load, decode.bootstrap_port), (Some(true), Some(0), None));
        let prefill = worker(&router, Role::Prefill).await.unwrap();
        assert_eq!(prefill.bootstrap_port, lab.prefill.bootstrap.map(|a| a.port()));

        change::remove(&router, &decode.id).await.unwrap();
        assert_eq!(worker(&router, Role::Decode).await, None);
        let cancel = CancellationToken::new();
        let short = Duration::from_millis(10);
        let drained = until_idle(&client(&decode.url), short, Duration::from_secs(5), |_| (), &cancel).await;
        assert_eq!(drained, Ok(Drained::Idle));
        let error = router.one_token().await.unwrap_err();
        assert!(matches!(error, ServingError::Status { code: 503, .. }), "{error}");

        change::add(&router, &decode.body, None).await.unwrap();
        let again = worker(&router, Role::Decode).await.unwrap();
        assert_eq!((again.url.as_str(), again.id == decode.id), (decode.url.as_str(), false));
        assert!(router.one_token().await.is_ok(), "it serves again");
        let taken = change::add(&router, &decode.body, None).await.unwrap_err();
        assert!(matches!(taken, ServingError::Status { code: 409, .. }), "{taken}");
        let gone = change::remove(&router, &format!("../{}", decode.id)).await.unwrap_err();
        assert!(matches!(gone, ServingError::Status { code: 404, .. }), "{gone}");
    });
}

#[test]
fn each_half_and_the_router_give_a_first_token() {
    let lab = TestRouter::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        for url in
            [lab.url.clone(), format!("http://{}", lab.prefill.address), format!("http://{}", lab.decode.address)]
        {
            let (_, text) = client(&url).one_token().await.unwrap_or_else(|e| panic!("{url}: {e}"));
            assert!(text.is_some(), "{url}");
        }
    });
}

#[tokio::test]
async fn the_load_behind_a_router_is_that_of_all_its_workers() {
    let lab = tokio::task::spawn_blocking(TestRouter::start).await.unwrap();
    let load = client(&lab.url).loads().await.unwrap();
    assert_eq!((load.running, load.waiting), (Some(0), Some(0)));
    tokio::task::spawn_blocking(move || drop(lab)).await.unwrap();
}

#[tokio::test]
async fn what_a_router_does_not_tell_is_unknown() {
    let body = "{\"workers\":[{\"id\":\"a\",\"url\":\"http://x:1\",\"worker_type\":\"encode\"}]}";
    let server = fake::raw(fake::response("200 OK", "application/json", body)).await;
    let workers = list(&client(&server.url)).await.unwrap();
    let expect = Worker {
        id: "a".into(),
        url: "http://x:1".into(),
        role: None,
        healthy: None,
        load: None,
        bootstrap_port: None,
        body: serde_json::json!({"url": "http://x:1", "worker_type": "encode"}),
    };
    assert_eq!(workers, std::slice::from_ref(&expect));
    let other = Client::new(&server.url, ServingEngine::LlamaServer, None, Timeouts::default()).unwrap();
    assert!(matches!(list(&other).await, Err(ServingError::NotSupported { .. })));
    let busy = "{\"loads\":[{\"num_running_reqs\":2,\"num_waiting_reqs\":1}]}";
    let server = fake::raw(fake::response("200 OK", "application/json", busy)).await;
    let cancel = CancellationToken::new();
    let short = Duration::from_millis(1);
    assert_eq!(until_idle(&client(&server.url), short, short, |_| (), &cancel).await, Ok(Drained::Busy(3)));
    cancel.cancel();
    let ended = until_idle(&client(&server.url), short, Duration::from_mins(1), |_| (), &cancel).await;
    assert_eq!(ended, Err(ServingError::Cancelled));
}

#[tokio::test]
async fn a_worker_comes_back_as_it_was_listed() {
    let listed = r#"{"workers":[{"id":"a","url":"http://x:1","model_id":"ds","priority":70,"cost":2.5,
        "worker_type":"prefill","is_healthy":true,"load":3,"connection_mode":"Http","bootstrap_port":8998,
        "runtime_type":"sglang","chat_template":null,"metadata":{"tier":"gold"},"job_status":null}]}"#;
    let server = fake::raw(fake::response("200 OK", "application/json", listed)).await;
    let workers = list(&client(&server.url)).await.unwrap();
    let expect = serde_json::json!({"url": "http://x:1", "model_id": "ds", "priority": 70, "cost": 2.5,
        "worker_type": "prefill", "bootstrap_port": 8998, "runtime": "sglang", "labels": {"tier": "gold"}});
    assert_eq!(workers[0].body, expect);
}
