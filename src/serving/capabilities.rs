//! What differs between the serving engines, as data.
//!
//! [`Dialect`] is what the client needs to speak to an engine; [`capabilities`] is what a test may rely on.
//! Not responsible for asking a server; an answer here is about the engine, not about one running process.

use crate::case::ServingEngine;
use crate::serving::endpoint::Endpoint;

/// How an engine is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Endpoints that tell which model is served, newest first.
    pub identity: &'static [Endpoint],
    /// Endpoints that tell the resolved configuration, newest first; empty where there is none.
    pub config: &'static [Endpoint],
    /// How messages become token ids without inference.
    pub render: Render,
    /// Where the load is told in JSON: by the server, else by its router; empty where it is not.
    pub load: &'static [Endpoint],
    /// Where a router of the engine tells its workers; they are changed there too.
    pub workers: Option<Endpoint>,
    /// Where a router of the engine says whether it can serve.
    pub readiness: Option<Endpoint>,
    /// JSON pointers into a chunk of the stream under which the number of cached prompt tokens may stand.
    pub cached_tokens: &'static [&'static str],
    /// Field of a delta that holds the reasoning.
    pub reasoning_field: &'static str,
    /// How one request is kept away from the prefix cache.
    pub cold: ColdRun,
    /// One completion without a template.
    pub generate: Option<Endpoint>,
}

/// How messages become token ids without inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Render {
    /// One call takes messages and tools; the endpoints newest first.
    Tokenize(&'static [Endpoint]),
    /// One call renders text, a second one tokenises it.
    TemplateThenTokenize,
}

/// How one request is kept away from the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColdRun {
    /// A unique `cache_salt` in the request.
    CacheSalt,
    /// `cache_prompt: false` in the request.
    CachePromptOff,
}

/// The dialect of an engine.
pub fn dialect(engine: ServingEngine) -> Dialect {
    const USAGE: &str = "/usage/prompt_tokens_details/cached_tokens";
    match engine {
        ServingEngine::Sglang => Dialect {
            identity: &[Endpoint::ModelInfo, Endpoint::ModelInfoOld],
            config: &[Endpoint::ServerInfo, Endpoint::ServerInfoOld],
            render: Render::Tokenize(&[Endpoint::TokenizeV1, Endpoint::Tokenize]),
            load: &[Endpoint::Loads, Endpoint::RouterLoads],
            workers: Some(Endpoint::Workers),
            readiness: Some(Endpoint::Readiness),
            cached_tokens: &[USAGE],
            reasoning_field: "reasoning_content",
            cold: ColdRun::CacheSalt,
            generate: Some(Endpoint::Generate),
        },
        ServingEngine::Vllm => Dialect {
            identity: &[Endpoint::Models],
            config: &[],
            render: Render::Tokenize(&[Endpoint::Tokenize]),
            load: &[],
            workers: None,
            readiness: None,
            cached_tokens: &[USAGE],
            reasoning_field: "reasoning",
            cold: ColdRun::CacheSalt,
            generate: None,
        },
        ServingEngine::LlamaServer => Dialect {
            identity: &[Endpoint::Props],
            config: &[Endpoint::Props],
            render: Render::TemplateThenTokenize,
            load: &[],
            workers: None,
            readiness: None,
            cached_tokens: &["/timings/cache_n", USAGE],
            reasoning_field: "reasoning_content",
            cold: ColdRun::CachePromptOff,
            generate: None,
        },
    }
}

/// What a test may need of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Which model is served.
    Identity,
    /// Alive, without generating a token.
    CheapLiveness,
    /// The configuration after defaults and decisions.
    ResolvedConfig,
    /// The environment, told by the server.
    EnvEvidence,
    /// Messages to token ids without inference.
    Render,
    /// Generation from token ids with log-probabilities of the answer.
    GenerateLogprobs,
    /// Log-probabilities of the prompt.
    PromptLogprobs,
    /// How many prompt tokens came from the cache.
    CachedTokens,
    /// One request that surely misses the cache.
    ColdRun,
    /// Running and waiting requests, cache use.
    Load,
    /// Taking a server out of its router and back, so that it drains.
    Drain,
    /// Log lines that this program reads.
    LogGrammar,
}

/// Whether an engine has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// Always.
    Yes,
    /// Never.
    No,
    /// It depends on flags or version, or is not established: ask the running server.
    Unknown,
}

/// One line of the engine table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What is needed.
    pub need: Need,
    /// Whether the engine has it.
    pub has: Has,
    /// By what means, or on what it depends.
    pub how: &'static str,
}

/// The engine table, one line for each need.
pub fn capabilities(engine: ServingEngine) -> [Capability; 12] {
    use Has::{No, Unknown, Yes};
    let line = |need, has, how| Capability { need, has, how };
    match engine {
        ServingEngine::Sglang => [
            line(Need::Identity, Yes, "`/model_info`"),
            line(Need::CheapLiveness, Yes, "`/model_info`; `/health` generates a token"),
            line(Need::ResolvedConfig, Yes, "`/server_info`"),
            line(Need::EnvEvidence, No, "not exposed; read the process"),
            line(Need::Render, Yes, "`/v1/tokenize` with messages"),
            line(Need::GenerateLogprobs, Yes, "`/generate` with `input_ids`"),
            line(Need::PromptLogprobs, Yes, "`/generate` with `logprob_start_len`"),
            line(Need::CachedTokens, Unknown, "`meta_info` always; chat only with `--enable-cache-report`"),
            line(Need::ColdRun, Yes, "`cache_salt`"),
            line(Need::Load, Yes, "`/v1/loads`; a router `/get_loads`"),
            line(Need::Drain, Yes, "`/workers` of its router"),
            line(Need::LogGrammar, Yes, "`Prefill batch`, `Decode batch`, `server_args=`"),
        ],
        ServingEngine::Vllm => [
            line(Need::Identity, Yes, "`/v1/models`, `/version`"),
            line(Need::CheapLiveness, Yes, "`/health` checks the engine only; `/version` here"),
            line(Need::ResolvedConfig, Unknown, "`/server_info`, only in developer mode"),
            line(Need::EnvEvidence, Unknown, "`vllm_env`, only in developer mode"),
            line(Need::Render, Yes, "`/tokenize` with messages"),
            line(Need::GenerateLogprobs, Yes, "`/v1/completions` with token ids"),
            line(Need::PromptLogprobs, Yes, "`prompt_logprobs`"),
            line(Need::CachedTokens, Unknown, "`usage.prompt_tokens_details`, behind a flag"),
            line(Need::ColdRun, Yes, "`cache_salt`"),
            line(Need::Load, Unknown, "`/metrics`, not read yet"),
            line(Need::Drain, Unknown, "depends on the router in front"),
            line(Need::LogGrammar, Yes, "`non-default args`, `with config`, `SpecDecoding metrics`"),
        ],
        ServingEngine::LlamaServer => [
            line(Need::Identity, Yes, "`/props`"),
            line(Need::CheapLiveness, Yes, "`/props`; `/health` does not generate either"),
            line(Need::ResolvedConfig, Yes, "`/props`"),
            line(Need::EnvEvidence, No, "not exposed"),
            line(Need::Render, Yes, "`/apply-template`, then `/tokenize`"),
            line(Need::GenerateLogprobs, Yes, "`n_probs`"),
            line(Need::PromptLogprobs, No, "none"),
            line(Need::CachedTokens, Yes, "`timings.cache_n`"),
            line(Need::ColdRun, Yes, "`cache_prompt: false`"),
            line(Need::Load, Unknown, "`/slots` and `/metrics`, not read yet"),
            line(Need::Drain, No, "it has no router"),
            line(Need::LogGrammar, No, "not read yet"),
        ],
    }
}

/// Whether this engine has it.
pub fn has(engine: ServingEngine, need: Need) -> Has {
    capabilities(engine).iter().find(|c| c.need == need).map_or(Has::Unknown, |c| c.has)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINES: [ServingEngine; 3] = [ServingEngine::Sglang, ServingEngine::Vllm, ServingEngine::LlamaServer];

    #[test]
    fn every_engine_answers_every_need_once() {
        for engine in ENGINES {
            let needs: std::collections::BTreeSet<_> = capabilities(engine).iter().map(|c| c.need).collect();
            assert_eq!(needs.len(), capabilities(engine).len(), "{engine:?}");
        }
    }

    #[test]
    fn the_table_agrees_with_the_dialect() {
        for engine in ENGINES {
            let dialect = dialect(engine);
            assert_eq!(has(engine, Need::Load) == Has::Yes, !dialect.load.is_empty(), "{engine:?}");
            assert_eq!(has(engine, Need::Drain) == Has::Yes, dialect.workers.is_some(), "{engine:?}");
            assert!(has(engine, Need::ResolvedConfig) != Has::Yes || !dialect.config.is_empty(), "{engine:?}");
            assert!(!dialect.identity.is_empty() && !dialect.cached_tokens.is_empty());
        }
    }

    #[test]
    fn what_depends_on_a_flag_is_unknown_and_not_no() {
        assert_eq!(has(ServingEngine::Sglang, Need::CachedTokens), Has::Unknown);
        assert_eq!(has(ServingEngine::Vllm, Need::EnvEvidence), Has::Unknown);
    }

    #[test]
    fn the_reasoning_of_vllm_has_its_own_name() {
        assert_eq!(dialect(ServingEngine::Vllm).reasoning_field, "reasoning");
        assert_eq!(dialect(ServingEngine::Sglang).reasoning_field, "reasoning_content");
    }
}
