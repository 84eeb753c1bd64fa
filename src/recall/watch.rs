//! Reads the load of the servers beside a batch of trials, from their own metrics.
//!
//! Asks nothing that makes a server work, and never holds the trials up: what cannot be read is said in the window.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::window::{LoadWindow, Sampler};
use crate::case::{Case, Role, Target};
use crate::engine::input::JobReport;
use crate::engine::job::JobContext;
use crate::remote::http;
use crate::serving::client::Client;
use crate::truth::observed::metrics;

/// Time between the first readings.
const FIRST: Duration = Duration::from_secs(1);
/// The longest time between two readings, which a long batch comes to.
const LONGEST: Duration = Duration::from_secs(30);
/// How long one reading may take: the last one stands between the trials and their end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Does the work, and reports the window of each target that serves trials when it is done. `near` is the case with
/// the addresses under which its servers are reached from here.
pub async fn beside<T>(case: &Case, near: &Case, ctx: &JobContext, work: impl Future<Output = T>) -> T {
    let over = CancellationToken::new();
    let targets = near.targets.iter().filter(|t| t.role != Role::Router);
    let url = |near: &Target| case.target(&near.name).map_or_else(|| near.url.clone(), |t| t.url.clone());
    let windows = join_all(targets.map(|target| window(target, url(target), ctx, &over)));
    let (done, windows) = tokio::join!(
        async {
            let done = work.await;
            over.cancel();
            done
        },
        windows
    );
    for window in windows {
        // An engine that is gone is said by the report of the job's end.
        let _ = ctx.report(JobReport::WindowDone(Arc::new(window))).await;
    }
    done
}

async fn window(target: &Target, url: String, ctx: &JobContext, over: &CancellationToken) -> LoadWindow {
    let from = Timestamp::now();
    let mut sampler = Sampler::default();
    let mut window = LoadWindow {
        job: ctx.job,
        target: target.name.clone(),
        from,
        to: from,
        source: format!("{}/metrics", url.trim_end_matches('/')),
        readings: 0,
        unread: None,
        values: sampler.series(),
    };
    match http::endpoint(target).await {
        Err(failure) => {
            window.unread = Some(failure.message);
            over.cancelled().await;
        }
        Ok(client) => {
            let mut pause = FIRST;
            loop {
                // The reading at the end closes the window.
                let last = over.is_cancelled();
                read(&client, &mut sampler, &mut window).await;
                if last {
                    break;
                }
                tokio::select! {
                    () = over.cancelled() => {}
                    () = tokio::time::sleep(pause) => pause = (pause + pause / 16).min(LONGEST),
                }
            }
        }
    }
    window.to = Timestamp::now();
    window.values = sampler.series();
    window
}

async fn read(client: &Client, sampler: &mut Sampler, window: &mut LoadWindow) {
    match tokio::time::timeout(PATIENCE, client.metrics()).await {
        Ok(Ok((_, text))) => {
            sampler.take(&metrics::facts(&metrics::read(&text)));
            window.readings += 1;
        }
        Ok(Err(error)) => window.unread = Some(error.to_string()),
        Err(_) => window.unread = Some(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::engine::job::fake;

    fn target(name: &str, url: &str, role: Role) -> Target {
        Target {
            name: name.into(),
            role,
            engine: crate::case::ServingEngine::Sglang,
            host: "local".into(),
            become_with: None,
            url: url.into(),
            api_key: None,
            manager: crate::case::Manager::Unknown,
            launch_script: None,
            checkpoint: None,
            checkout: None,
            production: false,
            readable_env: false,
        }
    }

    /// Counts a hundred prompt tokens at each reading, a quarter of them from the cache.
    async fn metrics(asked: axum::extract::State<Arc<AtomicU32>>) -> String {
        let asked = asked.fetch_add(1, Ordering::SeqCst) + 1;
        format!(
            "sglang:token_usage{{dp=\"0\"}} 0.{asked}\nsglang:prompt_tokens_total {}\nsglang:cached_tokens_total {}\n",
            1000 + asked * 100,
            900 + asked * 25
        )
    }

    #[tokio::test]
    async fn each_target_has_the_window_of_the_batch() {
        let asked = Arc::new(AtomicU32::new(0));
        let app = axum::Router::new().route("/metrics", axum::routing::get(metrics)).with_state(Arc::clone(&asked));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let far = Case {
            targets: vec![
                target("router", "http://127.0.0.1:9", Role::Router),
                target("decode", "http://far:1", Role::Decode),
                target("prefill", "http://127.0.0.1:9", Role::Prefill),
            ],
            ..Case::default()
        };
        let mut near = far.clone();
        near.targets[1].url = here;
        let folder = tempfile::tempdir().unwrap();
        let (context, mut ends) = fake::context(folder.path()).unwrap();
        let reports = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(JobReport::WindowDone(window)) = ends.next().await {
                all.push(window);
            }
            all
        });
        let work = async {
            while asked.load(Ordering::SeqCst) < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            "done"
        };
        assert_eq!(beside(&far, &near, &context, work).await, "done");
        drop(context);
        let windows = reports.await.unwrap();
        let [decode, prefill] = &windows[..] else { panic!("{windows:?}") };
        assert_eq!((decode.target.as_str(), decode.source.as_str()), ("decode", "http://far:1/metrics"));
        assert_eq!((decode.readings, decode.unread.as_deref()), (3, None));
        assert_eq!(decode.values["cache_hit_rate"].samples, [0.25, 0.25], "what the batch did, not all before it");
        assert_eq!((decode.values["kv_usage"].min, decode.values["kv_usage"].max), (0.1, 0.3));
        assert!(decode.from < decode.to && decode.covers(decode.to));
        // A server that tells nothing is no server without load.
        assert!(prefill.values.is_empty() && prefill.unread.is_some() && prefill.line().contains("not known: "));
    }
}
