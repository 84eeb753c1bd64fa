//! The lab's HTTP server: `SGLang`'s endpoints over the lab's engine.
//!
//! Responsible for starting, serving until a signal comes, and stopping cleanly.
//! Handlers are grouped by file: identity and load, tokenizing, `/generate`, chat, control.

mod access;
pub mod args;
mod chat;
mod control;
mod error;
mod generate;
mod info;
mod state;
mod stream;
mod template;
mod text;
mod tokenize;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use args::{ServeArgs, ServeRole, Switches};
pub use error::ServeError;

use crate::lab::log;
use crate::lab::model::{Arithmetic, EMBEDDED, KvDtype, MhcGemm, Model, RoutedScaling};
use crate::lab::scenario::{Plan, reveal, seal};
use crate::lab::scheduler::{Config, Engine};
use state::App;

/// How long open connections may take to end after a signal.
const GRACE: Duration = Duration::from_secs(3);

/// Runs a lab server until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, and when its engine dies.
pub fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    let started = Instant::now();
    if args.role != ServeRole::Monolithic {
        return Err(ServeError::Role(format!("{:?}", args.role).to_lowercase()));
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
    let arithmetic = args.arithmetic(switches);
    let plan = plan(args, arithmetic)?;
    let model = load(args, arithmetic)?;
    let config = Config {
        chunk: args.chunked_prefill_size as usize,
        max_total_tokens: args.max_total_tokens as usize,
        context: args.context_length as usize,
        max_running: args.running() as usize,
        radix: !args.disable_radix_cache && !switches.radix_force_miss,
        decode_log_interval: u64::from(args.decode_log_interval),
    };
    log::line(&format!(
        "max_total_num_tokens={}, chunked_prefill_size={}, max_prefill_tokens={}, max_running_requests={}, \
         context_len={}, available_gpu_mem=0.00 GB",
        args.max_total_tokens,
        args.chunked_prefill_size,
        args.context_length,
        args.running(),
        args.context_length,
    ));
    let (engine, handle) = Engine::new(model, config, plan);
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
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let listener = TcpListener::bind(&address).await.map_err(bind)?;
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
    let service = router(app).into_make_service_with_connect_info::<SocketAddr>();
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

fn router(app: Arc<App>) -> Router {
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

/// The faults of this boot; a server without a deployment has none.
fn plan(args: &ServeArgs, arithmetic: Arithmetic) -> Result<Plan, ServeError> {
    let Some(path) = &args.deployment else { return Ok(Plan::default()) };
    let deployment = reveal(path)?;
    let boot = seal::next_boot(path)?;
    Ok(Plan::compile(&deployment.scenario, &active_gates(arithmetic), deployment.seed, boot)?)
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

fn load(args: &ServeArgs, arithmetic: Arithmetic) -> Result<Arc<Model>, ServeError> {
    let begin = Instant::now();
    log::line("Load weight begin. avail mem=0.00 GB");
    let model = match &args.checkpoint {
        None => Model::load(EMBEDDED, arithmetic)?,
        Some(folder) => {
            let bytes = fs_err::read(folder.join("model.safetensors")).map_err(ServeError::CheckpointRead)?;
            Model::load(&bytes, arithmetic)?
        }
    };
    if args.load_seconds > 0.0 {
        let least = Duration::try_from_secs_f64(args.load_seconds).unwrap_or_default();
        std::thread::sleep(least.saturating_sub(begin.elapsed()));
    }
    log::line(&format!(
        "Load weight end. elapsed={:.2} s, type=DeepseekV4ForCausalLM, dtype=torch.float32, avail mem=0.00 GB, mem usage=0.01 GB.",
        begin.elapsed().as_secs_f64()
    ));
    Ok(Arc::new(model))
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
mod tests;

#[cfg(test)]
#[path = "recall_tests.rs"]
mod recall_tests;
