//! The lab's router: one address in front of prefill and decode servers, with the worker API of `SGLang`'s router.
//!
//! It has no model and computes nothing. Which worker gets a request is `workers`, sending it is `forward`.

mod api;
mod args;
mod forward;
mod health;
mod workers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use args::{RouterArgs, RouterError};

use super::log;
use super::server::{GRACE, access};
use crate::serving::client::plain_http;
use workers::Workers;

/// Longest wait for an answer that needs no inference.
const QUICK: Duration = Duration::from_secs(30);

/// What all handlers share.
#[derive(Debug)]
struct Shared {
    args: RouterArgs,
    workers: Workers,
    http: reqwest::Client,
}

impl Shared {
    fn new(args: &RouterArgs) -> Result<Self, RouterError> {
        let http = plain_http(reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(2)));
        let http = http.map_err(|e| RouterError::Io(std::io::Error::other(e)))?;
        let shared = Self { args: args.clone(), workers: Workers::default(), http };
        for worker in args.workers()? {
            // A worker that is named twice is one worker.
            let _ = shared.workers.add(&worker);
        }
        Ok(shared)
    }
}

/// Runs a router until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or its sockets fail.
pub fn serve(host: &str, port: u16, args: &RouterArgs) -> Result<(), RouterError> {
    let address = format!("{host}:{port}");
    let shared = Arc::new(Shared::new(args)?);
    log::line(&format!("Starting router on {address} | mode: PrefillDecode | policy: least requests"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let listener = TcpListener::bind(&address).await;
        listen(listener.map_err(|source| RouterError::Bind { address: address.clone(), source })?, shared).await
    });
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) -> Result<(), RouterError> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    health::look_now(&shared).await;
    tokio::spawn(health::watch(Arc::clone(&shared)));
    let all = shared.workers.all();
    for worker in &all {
        let word = if worker.is_healthy() { "healthy" } else { "unhealthy" };
        log::line(&format!("Worker {} ({:?}): {word}", worker.url, worker.kind));
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let service = routes(shared).into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(server.into_future());
    let urls: Vec<String> = all.iter().map(|w| w.url.clone()).collect();
    // As that of `SGLang`, which writes it before its workers are known to live.
    log::line(&format!("Router ready | workers: {urls:?}"));
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        result = &mut server => return result.unwrap_or(Ok(())).map_err(RouterError::Io),
    }
    log::line("Shutting down");
    let _ = stop.send(());
    let _ = tokio::time::timeout(GRACE, server).await;
    Ok(())
}

fn routes(shared: Arc<Shared>) -> Router {
    let mut router = Router::new()
        .route("/liveness", get(api::liveness))
        .route("/health", get(api::liveness))
        .route("/readiness", get(api::readiness))
        .route("/workers", get(api::list).post(api::add))
        .route("/workers/{id}", get(api::get).delete(api::remove))
        .route("/get_loads", get(api::loads))
        .route("/generate", post(forward::pair))
        .route("/v1/chat/completions", post(forward::pair))
        .route("/flush_cache", post(forward::flush_cache));
    for path in ["/model_info", "/get_model_info", "/server_info", "/get_server_info", "/v1/models"] {
        router = router.route(path, get(forward::any));
    }
    for path in ["/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize"] {
        router = router.route(path, post(forward::any));
    }
    router
        .layer(axum::middleware::from_fn(access::log_access))
        .layer(DefaultBodyLimit::max(16 * 1024 * 1024))
        .with_state(shared)
}

#[cfg(test)]
#[path = "router_tests.rs"]
pub(crate) mod tests;
