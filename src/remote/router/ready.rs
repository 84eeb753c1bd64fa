//! Whether a router can serve, asked of the router itself. Reads only, and costs no inference.
//!
//! Not responsible for the log line of a router, which is the last resort of a proof.

use serde_json::Value;

use crate::case::{Role, Target};
use crate::engine::procedure::Evidence;
use crate::remote::prove::seen;
use crate::serving::client::Client;
use crate::serving::endpoint::Endpoint;
use crate::serving::error::ServingError;
use crate::serving::workers;

/// What a router says of itself.
#[derive(Debug)]
pub(crate) enum Routes {
    /// It can serve.
    Ready(Evidence),
    /// Not yet, and why.
    NotYet(String),
    /// It has no word for it.
    Silent,
}

/// Asks a router whether it can serve: by its own word, else by the workers that it sees live.
pub(crate) async fn routes(target: &Target, endpoint: &Client) -> Routes {
    let far = |url: &str| url.replace(endpoint.base().trim_end_matches('/'), target.url.trim_end_matches('/'));
    match endpoint.readiness().await {
        Ok((url, answer)) if answer.get("status").and_then(Value::as_str) == Some("ready") => {
            let count = |name: &str| answer.get(name).and_then(Value::as_u64);
            let said = match (count("healthy_workers"), count("total_workers")) {
                (Some(live), Some(all)) => format!("ready, {live} of {all} workers live"),
                _ => "ready".to_owned(),
            };
            return Routes::Ready(seen("readiness", &said, far(&url)));
        }
        Err(ServingError::Status { code: 503, body, .. }) => return Routes::NotYet(body.visible(120)),
        Err(error @ (ServingError::Connection { .. } | ServingError::TimedOut { .. })) => {
            return Routes::NotYet(error.to_string());
        }
        // It may be a router that has only a list of workers.
        Ok(_) | Err(_) => {}
    }
    match workers::list(endpoint).await {
        Ok(all) => {
            let live = |role| all.iter().filter(|w| w.role == Some(role) && w.healthy == Some(true)).count();
            let (prefill, decode, regular) = (live(Role::Prefill), live(Role::Decode), live(Role::Monolithic));
            let said = format!("{prefill} prefill, {decode} decode and {regular} other workers live");
            if regular > 0 || (prefill > 0 && decode > 0) {
                return Routes::Ready(seen("readiness", &said, far(&endpoint.url(Endpoint::Workers))));
            }
            Routes::NotYet(said)
        }
        Err(error @ (ServingError::Connection { .. } | ServingError::TimedOut { .. })) => {
            Routes::NotYet(error.to_string())
        }
        Err(_) => Routes::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::ServingEngine;
    use crate::serving::client::Timeouts;
    use crate::serving::fake;

    /// What is made of a router that gives every question this answer; `None` is one that is not there.
    async fn said(engine: ServingEngine, answer: Option<(&str, &str)>) -> String {
        let mut target = crate::isolate::fake::divided(1).targets[0].clone();
        target.url = "http://far:1".into();
        let url = match answer {
            Some((status, body)) => fake::raw(fake::response(status, "application/json", body)).await.url,
            None => "http://127.0.0.1:9".into(),
        };
        let client = Client::new(&url, engine, None, Timeouts::default()).unwrap();
        match routes(&target, &client).await {
            Routes::Ready(evidence) => format!("{} {}", evidence.seen.visible(80), evidence.source),
            Routes::NotYet(why) => format!("not yet: {why}").replace(&url, "URL"),
            Routes::Silent => "silent".into(),
        }
    }

    #[tokio::test]
    async fn a_router_is_ready_by_its_own_word_or_by_its_workers() {
        let sglang = ServingEngine::Sglang;
        let ready = r#"{"status":"ready","healthy_workers":2,"total_workers":3}"#;
        let expect = "ready, 2 of 3 workers live http://far:1/readiness";
        assert_eq!(said(sglang, Some(("200 OK", ready))).await, expect);
        let waiting = r#"{"status":"not ready","reason":"insufficient healthy workers"}"#;
        let expect = "not yet: insufficient healthy workers";
        assert_eq!(said(sglang, Some(("503 Service Unavailable", waiting))).await, expect);
        assert!(said(sglang, None).await.starts_with("not yet: no connection to URL"));
        assert_eq!(said(sglang, Some(("404 Not Found", "{}"))).await, "silent");
        assert_eq!(said(ServingEngine::Vllm, Some(("200 OK", ready))).await, "silent");
    }

    #[tokio::test]
    async fn an_older_router_is_ready_once_it_sees_each_kind_of_worker_live() {
        let worker = |kind: &str, live: bool| {
            format!(r#"{{"id":"{kind}","url":"http://x:1","worker_type":"{kind}","is_healthy":{live}}}"#)
        };
        let check = async |workers: &[String], expect: &str| {
            // The list stands for the answer of `/readiness` too, which is then no word of readiness.
            let body = format!(r#"{{"workers":[{}]}}"#, workers.join(","));
            let listed = fake::raw(fake::response("200 OK", "application/json", &body)).await;
            let client = Client::new(&listed.url, ServingEngine::Sglang, None, Timeouts::default()).unwrap();
            let target = crate::isolate::fake::divided(1).targets[0].clone();
            let got = match routes(&target, &client).await {
                Routes::Ready(evidence) => evidence.seen.visible(80),
                Routes::NotYet(why) => format!("not yet: {why}"),
                Routes::Silent => "silent".into(),
            };
            assert_eq!(got, expect);
        };
        check(
            &[worker("prefill", true), worker("decode", false)],
            "not yet: 1 prefill, 0 decode and 0 other workers live",
        )
        .await;
        check(&[worker("prefill", true), worker("decode", true)], "1 prefill, 1 decode and 0 other workers live").await;
        check(&[worker("regular", true)], "0 prefill, 0 decode and 1 other workers live").await;
    }
}
