//! The only paths that the program may ask a model server for.
//!
//! Several servers change their state on a plain GET (flushing caches, pausing, profiling), and the health
//! endpoint of `SGLang` generates a token; what is not in this list cannot be sent.

use reqwest::Method;

/// An endpoint that may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// Identity, `SGLang`.
    ModelInfo,
    /// Identity, older `SGLang`.
    ModelInfoOld,
    /// Resolved configuration, `SGLang`.
    ServerInfo,
    /// Resolved configuration, older `SGLang`.
    ServerInfoOld,
    /// Load, `SGLang`.
    Loads,
    /// Load of all workers, `SGLang`'s router.
    RouterLoads,
    /// The workers of a router, `SGLang`'s.
    Workers,
    /// Whether a router has workers enough to serve, `SGLang`'s.
    Readiness,
    /// Counters, all engines.
    Metrics,
    /// Served models, all engines.
    Models,
    /// Version, `vLLM`.
    Version,
    /// Identity and configuration, llama-server.
    Props,
    /// Rendering and tokenising, `SGLang`.
    TokenizeV1,
    /// Tokenising, and with `vLLM` rendering.
    Tokenize,
    /// Rendering, llama-server.
    ApplyTemplate,
    /// One completion without a template, `SGLang`.
    Generate,
    /// One completion without a template, `vLLM`.
    Completions,
    /// One completion without a template, llama-server.
    Completion,
    /// Chat, all engines.
    Chat,
}

/// What a call costs the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// No inference.
    Free,
    /// Prompt and answer are computed.
    Inference,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::ModelInfo,
        Self::ModelInfoOld,
        Self::ServerInfo,
        Self::ServerInfoOld,
        Self::Loads,
        Self::RouterLoads,
        Self::Workers,
        Self::Readiness,
        Self::Metrics,
        Self::Models,
        Self::Version,
        Self::Props,
        Self::TokenizeV1,
        Self::Tokenize,
        Self::ApplyTemplate,
        Self::Generate,
        Self::Completions,
        Self::Completion,
        Self::Chat,
    ];

    /// The path, as the server knows it.
    pub fn path(self) -> &'static str {
        match self {
            Self::ModelInfo => "/model_info",
            Self::ModelInfoOld => "/get_model_info",
            Self::ServerInfo => "/server_info",
            Self::ServerInfoOld => "/get_server_info",
            Self::Loads => "/v1/loads?include=core,memory,queues,disagg&format=json",
            Self::RouterLoads => "/get_loads",
            Self::Workers => "/workers",
            Self::Readiness => "/readiness",
            Self::Metrics => "/metrics",
            Self::Models => "/v1/models",
            Self::Version => "/version",
            Self::Props => "/props",
            Self::TokenizeV1 => "/v1/tokenize",
            Self::Tokenize => "/tokenize",
            Self::ApplyTemplate => "/apply-template",
            Self::Generate => "/generate",
            Self::Completions => "/v1/completions",
            Self::Completion => "/completion",
            Self::Chat => "/v1/chat/completions",
        }
    }

    /// The method.
    pub fn method(self) -> Method {
        match self {
            Self::TokenizeV1
            | Self::Tokenize
            | Self::ApplyTemplate
            | Self::Generate
            | Self::Completions
            | Self::Completion
            | Self::Chat => Method::POST,
            _ => Method::GET,
        }
    }

    /// What a call costs.
    pub fn cost(self) -> Cost {
        match self {
            Self::Generate | Self::Completions | Self::Completion | Self::Chat => Cost::Inference,
            _ => Cost::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that change a server or make it work when they are merely asked for.
    const FORBIDDEN: [&str; 20] = [
        "health",
        "flush",
        "profile",
        "release_memory",
        "resume_memory",
        "slow_down",
        "weights",
        "configure",
        "open_session",
        "close_session",
        "trace",
        "expert",
        "pause",
        "abort",
        "continue_generation",
        "lora",
        "reset",
        "slots",
        "sleep",
        "wake_up",
    ];

    #[test]
    fn no_side_effect_endpoint_can_be_sent() {
        for endpoint in Endpoint::ALL {
            for word in FORBIDDEN {
                assert!(!endpoint.path().contains(word), "{endpoint:?} contains `{word}`");
            }
        }
    }

    #[test]
    fn everything_that_a_scan_may_get_is_free() {
        for endpoint in Endpoint::ALL.into_iter().filter(|e| e.method() == Method::GET) {
            assert_eq!(endpoint.cost(), Cost::Free, "{endpoint:?}");
        }
    }

    #[test]
    fn all_lists_each_endpoint_once() {
        let set: std::collections::BTreeSet<_> = Endpoint::ALL.into_iter().collect();
        assert_eq!(set.len(), Endpoint::ALL.len());
    }
}
