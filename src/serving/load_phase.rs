//! How far a server that loads is, from the lines of its log, and how long it still takes. Pure.
//!
//! A phase begins with the line that says so; how much of it is done is known only where a line tells it. What is left
//! follows from that share and from the durations of the same phases at earlier starts; where neither is known, the
//! rest is unknown. Not responsible for what makes a start proven, which is `remote::prove`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::log_grammar;
use crate::case::{Role, ServingEngine};
use crate::engine::procedure::{BootProof, Evidence};
use crate::engine::state::State;
use crate::untrusted::Untrusted;

/// What a server does while it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadPhase {
    /// The program begins: imports, processes, distributed groups.
    Launch,
    /// The weights are read.
    Weights,
    /// Memory is measured and the KV cache is allocated.
    Memory,
    /// Kernels are compiled or tuned.
    Kernels,
    /// CUDA graphs are captured.
    Graphs,
    /// The HTTP server begins and asks its first question.
    Warmup,
}

impl LoadPhase {
    const ALL: [Self; 6] = [Self::Launch, Self::Weights, Self::Memory, Self::Kernels, Self::Graphs, Self::Warmup];

    /// The word in evidence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Weights => "weights",
            Self::Memory => "memory",
            Self::Kernels => "kernels",
            Self::Graphs => "graphs",
            Self::Warmup => "warm-up",
        }
    }

    /// What it does, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Launch => "starting up",
            Self::Weights => "loading weights",
            Self::Memory => "allocating the KV cache",
            Self::Kernels => "compiling kernels",
            Self::Graphs => "capturing CUDA graphs",
            Self::Warmup => "warming up",
        }
    }
}

/// A phase that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// Which.
    pub phase: LoadPhase,
    /// When its first line came.
    pub at: Timestamp,
}

/// How much of a phase is done, as a line counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Pieces done.
    pub done: u64,
    /// Pieces in all; never 0.
    pub total: u64,
}

impl Share {
    /// From 0 to 1.
    pub fn value(self) -> f64 {
        (self.done as f64 / self.total as f64).clamp(0.0, 1.0)
    }
}

/// What is known of a start that loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loading {
    engine: ServingEngine,
    /// The phases so far; a phase may come twice, as that of a draft model does.
    begun: Vec<Begun>,
    /// Of the last phase; `None` where no line told it.
    share: Option<Share>,
    /// When the line came that says that the server is ready.
    ready: Option<Timestamp>,
    /// The ranks that are followed: the lowest that spoke of a phase.
    voice: Option<Vec<(String, u32)>>,
}

/// How long a start still takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Left {
    /// Seconds, since an earlier start took so long for what is to come.
    Seconds(f64),
    /// Seconds of this phase by the share that is done; what comes after it is not known.
    Phase(f64),
    /// It takes longer than the start before it did.
    Overdue,
    /// Neither a share nor an earlier start tells.
    Unknown,
}

impl Left {
    /// For people: how long, and what says so.
    pub fn words(self) -> String {
        match self {
            Self::Seconds(s) => format!("about {} to go", duration(s)),
            Self::Phase(s) => format!("about {} to go in this phase, the rest is not known yet", duration(s)),
            Self::Overdue => "longer than the last start".to_owned(),
            Self::Unknown => "how long is not known yet".to_owned(),
        }
    }

    /// The same in few cells; empty where nothing is known.
    pub fn short(self) -> String {
        match self {
            Self::Seconds(s) => format!("{} to go", duration(s)),
            Self::Phase(s) => format!("{} to go in this phase", duration(s)),
            Self::Overdue => "longer than the last start".to_owned(),
            Self::Unknown => "time to go unknown".to_owned(),
        }
    }
}

/// `40s`, `3m10s`, `1h05m`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
    }
}

impl Loading {
    /// A start that was made at this time.
    pub fn new(engine: ServingEngine, at: Timestamp) -> Self {
        let begun = vec![Begun { phase: LoadPhase::Launch, at }];
        Self { engine, begun, share: None, ready: None, voice: None }
    }

    /// Takes a line of the log that came at this time; whether it told anything new.
    pub fn take(&mut self, line: &str, at: Timestamp) -> bool {
        if self.ready.is_some() || self.begun.len() >= MOST {
            return false;
        }
        let Some(told) = tells(self.engine, self.phase(), line) else { return false };
        // Each rank says the same at its own time.
        let ranks = log_grammar::ranks(line);
        if !ranks.is_empty() {
            match &self.voice {
                Some(voice) if ranks > *voice => return false,
                _ => self.voice = Some(ranks),
            }
        }
        match told {
            Told::Begins(phase) if phase == self.phase() => false,
            // What is compiled in the middle of a capture belongs to it.
            Told::Begins(LoadPhase::Kernels) if self.phase() == LoadPhase::Graphs => false,
            Told::Begins(phase) => {
                self.begun.push(Begun { phase, at });
                self.share = None;
                true
            }
            Told::Share(share) => {
                let new = self.share != Some(share);
                self.share = Some(share);
                new
            }
            Told::Ready => {
                self.ready = Some(at);
                true
            }
        }
    }

    /// The phase that goes on, or the last one of a server that is ready.
    pub fn phase(&self) -> LoadPhase {
        self.begun.last().map_or(LoadPhase::Launch, |b| b.phase)
    }

    /// The phases so far, in order.
    pub fn begun(&self) -> &[Begun] {
        &self.begun
    }

    /// How much of the phase is done, where a line told it.
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// Whether the server said that it is ready.
    pub fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// The phases that are over, with the seconds that each took.
    pub fn times(&self) -> Vec<(LoadPhase, f64)> {
        let ends = self.begun.iter().skip(1).map(|b| b.at).chain(self.ready);
        self.begun.iter().zip(ends).map(|(b, end)| (b.phase, seconds(b.at, end))).collect()
    }

    /// The phases that are over as evidence of a boot, which [`times_of`] reads again.
    pub fn evidence(&self, source: &str) -> Vec<Evidence> {
        let one = |(phase, took): (LoadPhase, f64)| Evidence {
            about: format!("{ABOUT}{}", phase.name()),
            seen: Untrusted::from(format!("{took:.1} s")),
            source: source.to_owned(),
        };
        self.times().into_iter().map(one).collect()
    }

    /// How long it still takes at `now`; `earlier` are the times of a start before it, empty where none is known.
    pub fn left(&self, earlier: &[(LoadPhase, f64)], now: Timestamp) -> Left {
        let Some(current) = self.begun.last() else { return Left::Unknown };
        let spent = seconds(current.at, now);
        let counted = self.share.map(Share::value).filter(|share| *share > 0.0).map(|s| spent * (1.0 - s) / s);
        // The second phase of a name is that of the earlier start's second one.
        let nth = self.begun.iter().filter(|b| b.phase == current.phase).count();
        let place = earlier.iter().enumerate().filter(|(_, (p, _))| *p == current.phase).nth(nth - 1).map(|(i, _)| i);
        match (place, counted) {
            (None, Some(rest)) => Left::Phase(rest),
            (None, None) => Left::Unknown,
            (Some(place), counted) => {
                let after: f64 = earlier.iter().skip(place + 1).map(|(_, s)| s).sum();
                let took = earlier.get(place).map_or(0.0, |(_, s)| *s);
                match counted {
                    Some(rest) => Left::Seconds(rest + after),
                    None if spent <= took => Left::Seconds(took - spent + after),
                    None => Left::Overdue,
                }
            }
        }
    }

    /// Phase, share and what is left in one line; what is left stands first where it is known, since a line may be cut.
    pub fn line(&self, left: Left) -> String {
        match left {
            Left::Seconds(_) | Left::Phase(_) => format!("{}, {}", left.short(), self.words()),
            Left::Overdue | Left::Unknown => format!("{}, {}", self.words(), left.short()),
        }
    }

    /// The phase with its share: `loading weights 26 % (12/46)`.
    pub fn words(&self) -> String {
        let words = self.phase().words();
        match self.share {
            Some(share) => format!("{words} {:.0} % ({}/{})", 100.0 * share.value(), share.done, share.total),
            None => words.to_owned(),
        }
    }
}

const ABOUT: &str = "load:";
/// Phases that are kept; a log that tells more of them tells nothing.
const MOST: usize = 64;

/// The times of the phases that the proof of a boot tells; empty where it tells none.
pub fn times_of(proof: &BootProof) -> Vec<(LoadPhase, f64)> {
    let one = |e: &Evidence| {
        let name = e.about.strip_prefix(ABOUT)?;
        let phase = LoadPhase::ALL.into_iter().find(|p| p.name() == name)?;
        let took: f64 = e.seen.raw().strip_suffix(" s")?.parse().ok()?;
        (took.is_finite() && took >= 0.0).then_some((phase, took))
    };
    proof.evidence.iter().filter_map(one).collect()
}

/// The times of the phases at the newest start of a target by this session that tells them; empty where none does.
pub fn earlier(state: &State, target: &str) -> Vec<(LoadPhase, f64)> {
    let ours = state.own_starts(target);
    ours.map(|b| times_of(&b.proof)).find(|times| !times.is_empty()).unwrap_or_default()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// What a line tells.
enum Told {
    Begins(LoadPhase),
    Share(Share),
    Ready,
}

/// The words by which a phase begins, for each engine.
fn beginnings(engine: ServingEngine) -> &'static [(&'static str, LoadPhase)] {
    match engine {
        ServingEngine::Sglang => &[
            ("Load weight begin", LoadPhase::Weights),
            ("Load weight end", LoadPhase::Memory),
            ("Memory profiling: ", LoadPhase::Memory),
            ("KV Cache is allocated", LoadPhase::Memory),
            ("DeepGEMM JIT Pre-Compile session", LoadPhase::Kernels),
            ("Try DeepGEMM JIT Compiling", LoadPhase::Kernels),
            ("Running FlashInfer autotune", LoadPhase::Kernels),
            ("Capture cuda graph begin", LoadPhase::Graphs),
            ("Capture draft cuda graph begin", LoadPhase::Graphs),
            ("Capture draft extend cuda graph begin", LoadPhase::Graphs),
            ("Capture cuda graph end", LoadPhase::Warmup),
            ("Started server process", LoadPhase::Warmup),
        ],
        ServingEngine::Vllm => &[
            ("Starting to load model ", LoadPhase::Weights),
            ("Loading weights took ", LoadPhase::Memory),
            ("Model loading took ", LoadPhase::Memory),
            ("Using cache directory: ", LoadPhase::Kernels),
            ("Dynamo bytecode transform time", LoadPhase::Kernels),
            ("Compiling a graph for ", LoadPhase::Kernels),
            ("[Autotuner]: Autotuning process starts", LoadPhase::Kernels),
            ("Available KV cache memory: ", LoadPhase::Memory),
            ("GPU KV cache size: ", LoadPhase::Memory),
            ("Graph capturing finished", LoadPhase::Warmup),
            ("Starting vLLM API server", LoadPhase::Warmup),
            ("Started server process", LoadPhase::Warmup),
        ],
        ServingEngine::LlamaServer => &[
            ("loading model tensors", LoadPhase::Weights),
            ("constructing llama_context", LoadPhase::Memory),
            ("llama_kv_cache", LoadPhase::Memory),
            ("warming up the model with an empty run", LoadPhase::Warmup),
        ],
    }
}

/// The line that says that a target is ready. `SGLang`'s router writes its own before it listens and before it knows any
/// worker, so that a router's word on its endpoint goes before it.
pub fn ready_line(engine: ServingEngine, role: Role) -> &'static str {
    match (engine, role) {
        (ServingEngine::Sglang, Role::Router) => "Router ready |",
        (ServingEngine::Sglang, _) => "The server is fired up and ready to roll!",
        (ServingEngine::Vllm, _) => "Application startup complete",
        (ServingEngine::LlamaServer, _) => "server is listening",
    }
}

/// The names of progress bars, and the phase that each belongs to.
const BARS: [(&str, LoadPhase); 5] = [
    ("checkpoint shards:", LoadPhase::Weights),
    ("Capturing batches", LoadPhase::Graphs),
    ("Capturing CUDA graph", LoadPhase::Graphs),
    ("DeepGEMM warmup", LoadPhase::Kernels),
    ("[AutoTuner]: Tuning", LoadPhase::Kernels),
];

fn tells(engine: ServingEngine, current: LoadPhase, line: &str) -> Option<Told> {
    if line.contains(ready_line(engine, Role::Monolithic)) {
        return Some(Told::Ready);
    }
    // A bar that goes back to the beginning of its line leaves many states in one line; the last one counts.
    let state = line.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or(line);
    let named = BARS.iter().find(|(name, _)| state.contains(name)).map(|(_, phase)| *phase);
    let nameless = || state.trim_start().starts_with(|c: char| c.is_ascii_digit()).then_some(current);
    if let Some(phase) = named.or_else(nameless)
        && let Some(share) = bar(state)
    {
        // A bar whose phase was announced by no line begins it.
        let counts = matches!(current, LoadPhase::Weights | LoadPhase::Graphs | LoadPhase::Kernels);
        return match (named, phase == current) {
            (_, true) if counts => Some(Told::Share(share)),
            (Some(phase), false) => Some(Told::Begins(phase)),
            _ => None,
        };
    }
    beginnings(engine).iter().find(|(words, _)| line.contains(words)).map(|(_, phase)| Told::Begins(*phase))
}

/// The count of a progress bar: `12/46` in `…: 26% Completed | 12/46 [00:09<00:25, …]` and in `26%|██▌  | 12/46 [`.
fn bar(text: &str) -> Option<Share> {
    let (_, after) = text.rsplit_once('%')?;
    let count = after.rsplit('|').next()?.split('[').next()?.trim();
    let (done, total) = count.split_once('/')?;
    let share = Share { done: done.trim().parse().ok()?, total: total.trim().parse().ok()? };
    (share.total > 0 && share.done <= share.total).then_some(share)
}

#[cfg(test)]
#[path = "load_phase_tests.rs"]
mod tests;
