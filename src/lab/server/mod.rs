//! The lab's HTTP server: `SGLang`'s endpoints over the lab's engine.
//!
//! Responsible for starting, serving until a signal comes, and stopping cleanly.
//! Handlers are grouped by file: identity and load, tokenizing, `/generate`, chat, control.

pub(super) mod access;
pub mod args;
mod chat;
mod control;
mod error;
mod generate;
mod info;
mod load;
mod state;
mod stream;
mod template;
mod text;
mod tokenize;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use args::{DisaggregationMode, ServeArgs, ServeRole, Switches};
pub use error::ServeError;

use crate::lab::model::{Arithmetic, KvDtype, MhcGemm, RoutedScaling};
use crate::lab::scenario::{Plan, reveal, seal};
use crate::lab::scheduler::Engine;
use crate::lab::source::{self, Constants};
use crate::lab::transfer::{self, Rooms};
use crate::lab::{log, router};
use crate::serving::client::plain_http;
use state::App;

/// How long open connections may take to end after a signal.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Runs a lab server until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, and when its engine dies.
pub fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    let started = Instant::now();
    let part = args.part().ok_or(ServeError::Role)?;
    if part == ServeRole::Router {
        return Ok(router::serve(&args.host, args.port, &args.router)?);
    }
    let (switches, warnings) = Switches::read(|name| std::env::var(name).ok());
    for warning in warnings {
        log::line(&format!("WARNING environ.py: {warning}"));
    }
    let random_seed = args.random_seed.unwrap_or_else(drawn_seed);
    let resolved = args.resolved(random_seed);
    log::line(&format!("server_args={}", args::python_repr(&resolved)));
    let address = format!("{}:{}", args.host, args.port);
    let bind = |source| ServeError::Bind { address: address.clone(), source };
    // A port that is taken must be noticed before the weights are loaded; it is opened for good after.
    drop(std::net::TcpListener::bind(&address).map_err(bind)?);
    let constants = constants()?;
    let arithmetic = constants.arithmetic(args.arithmetic(switches));
    let bootstrap = format!("{}:{}", args.host, args.disaggregation_bootstrap_port);
    let bind_bootstrap = |source| ServeError::Bind { address: bootstrap.clone(), source };
    if part == ServeRole::Prefill {
        drop(std::net::TcpListener::bind(&bootstrap).map_err(bind_bootstrap)?);
    }
    let (plan, load_seconds) = plan(args, arithmetic)?;
    let model = load::load(args, arithmetic, args.load_seconds.unwrap_or(load_seconds))?;
    if part == ServeRole::Decode && !args.disable_radix_cache {
        log::line("KV cache is forced as chunk cache for decode server");
    }
    log::line(&format!(
        "max_total_num_tokens={}, chunked_prefill_size={}, max_prefill_tokens={}, max_running_requests={}, \
         context_len={}, available_gpu_mem=0.00 GB",
        args.max_total_tokens,
        args.chunked_prefill_size,
        args.context_length,
        args.running(),
        args.context_length,
    ));
    let (engine, handle) = Engine::new(model, args.engine(switches), plan.over(constants.faults));
    let (ended, engine_ended) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
        let _ended = ended;
        engine.run();
    })?;
    let app = Arc::new(App {
        args: args.clone(),
        switches,
        resolved,
        engine: handle.clone(),
        random_seed,
        counter: AtomicU64::new(0),
        started,
        startup_seconds: started.elapsed().as_secs_f64(),
        rooms: Rooms::new(handle.clone()),
        http: client()?,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let listener = TcpListener::bind(&address).await.map_err(bind)?;
        if part == ServeRole::Prefill {
            let keys = TcpListener::bind(&bootstrap).await.map_err(bind_bootstrap)?;
            let rooms = transfer::router(app.rooms.clone());
            // It ends with the runtime; a decode server that still fetches then has nobody to answer to.
            tokio::spawn(async move { axum::serve(keys, rooms).await });
        }
        listen(listener, app, engine_ended).await
    });
    handle.stop();
    runtime.shutdown_timeout(Duration::from_millis(200));
    match (outcome, thread.join()) {
        (Err(e), _) => Err(e),
        (Ok(()), Err(_)) => Err(ServeError::EngineDied),
        (Ok(()), Ok(())) => Ok(()),
    }
}

async fn listen(listener: TcpListener, app: Arc<App>, engine_ended: oneshot::Receiver<()>) -> Result<(), ServeError> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let local = listener.local_addr()?;
    let engine = app.engine.clone();
    let service = routes(app).into_make_service_with_connect_info::<SocketAddr>();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(server.into_future());
    log::line(&format!("INFO:     Started server process [{}]", std::process::id()));
    log::line("INFO:     Application startup complete.");
    log::line(&format!("INFO:     Uvicorn running on http://{local} (Press CTRL+C to quit)"));
    log::line("The server is fired up and ready to roll!");
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = engine_ended => return Err(ServeError::EngineDied),
        result = &mut server => return result.unwrap_or(Ok(())).map_err(ServeError::Io),
    }
    log::line("INFO:     Shutting down");
    engine.stop();
    let _ = stop.send(());
    let _ = tokio::time::timeout(GRACE, server).await;
    log::line(&format!("INFO:     Finished server process [{}]", std::process::id()));
    Ok(())
}

fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(info::health))
        .route("/health_generate", get(info::health))
        .route("/model_info", get(info::model_info))
        .route("/get_model_info", get(info::model_info))
        .route("/server_info", get(info::server_info))
        .route("/get_server_info", get(info::server_info))
        .route("/v1/models", get(info::models))
        .route("/v1/loads", get(info::loads))
        .route("/metrics", get(info::metrics))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/v1/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/v1/detokenize", post(tokenize::detokenize))
        .route("/generate", post(generate::generate))
        .route("/v1/chat/completions", post(chat::completions))
        .route("/flush_cache", post(control::flush_cache))
        .route("/abort_request", post(control::abort_request))
        .fallback(control::not_found)
        .layer(axum::middleware::from_fn(access::log_access))
        .layer(DefaultBodyLimit::max(16 * 1024 * 1024))
        .with_state(app)
}

/// A client for the servers of one deployment, which are asked directly.
///
/// # Errors
/// The system refuses.
pub(super) fn client() -> Result<reqwest::Client, ServeError> {
    let builder = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(2));
    plain_http(builder).map_err(|e| ServeError::Io(std::io::Error::other(e)))
}

/// What the source on `PYTHONPATH` says; without any, the program's own arithmetic.
fn constants() -> Result<Constants, ServeError> {
    let found = source::folder(std::env::var_os("PYTHONPATH").as_deref())?;
    let Some(folder) = found else { return Ok(Constants::default()) };
    let loaded = |path: &Path| log::line(&format!("Loaded arithmetic from {}", path.display()));
    Ok(source::read(&folder, loaded)?)
}

/// The faults of this boot, and the seconds that it loads; a server without a deployment has none.
fn plan(args: &ServeArgs, arithmetic: Arithmetic) -> Result<(Plan, f64), ServeError> {
    let Some(path) = &args.deployment else { return Ok((Plan::default(), 0.0)) };
    let deployment = reveal(path)?;
    let boot = seal::next_boot(path)?;
    let plan = Plan::compile(&deployment.scenario, &active_gates(arithmetic), deployment.seed, boot)?;
    Ok((plan, deployment.scenario.load_seconds))
}

/// Names of the gates whose suspect level is active, as conditions of scenarios call them.
fn active_gates(arithmetic: Arithmetic) -> Vec<String> {
    let gates = [
        ("mma-decode", arithmetic.mma_attention),
        ("triton-indexer", arithmetic.paged_indexer),
        ("bf16-indexer", arithmetic.bf16_indexer),
        ("mhc-bf16", arithmetic.mhc == MhcGemm::Bf16),
        ("mhc-tf32", arithmetic.mhc == MhcGemm::Tf32),
        ("routed-scaling", arithmetic.routed_scaling == RoutedScaling::Topk),
        ("kv-fp8", arithmetic.kv == KvDtype::Fp8E4m3),
    ];
    gates.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()).collect()
}

fn drawn_seed() -> u64 {
    let now = jiff::Timestamp::now().as_nanosecond();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&now.to_le_bytes()).update(&std::process::id().to_le_bytes());
    let bytes = hasher.finalize();
    let mut word = [0; 4];
    word.copy_from_slice(&bytes.as_bytes()[..4]);
    u64::from(u32::from_le_bytes(word) >> 1)
}

#[cfg(test)]
#[path = "server_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "recall_tests.rs"]
mod recall_tests;
