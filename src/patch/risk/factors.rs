//! Switches that need no restart, as rows beside the patches: whether a deployment has each. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::patch::context::{Evidence, Reading, Role, Running, Scene, Value};
use crate::patch::state::{Found, Obstacle, State};
use crate::patch::types::Phase;

/// A switch that needs no restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// Keys of an earlier request are used again.
    WarmCache,
    /// Keys go from prefill to decode.
    Transfer,
    /// A conversation becomes tokens.
    Template,
    /// Others are served at the same time.
    Concurrency,
    /// Tokens are drafted and verified.
    Speculation,
    /// A prompt is computed in pieces.
    ChunkAlignment,
    /// The length divided by the width of a window leaves a rest.
    LengthResidue,
}

impl Factor {
    /// Every factor.
    pub const ALL: [Self; 7] = [
        Self::WarmCache,
        Self::Transfer,
        Self::Template,
        Self::Concurrency,
        Self::Speculation,
        Self::ChunkAlignment,
        Self::LengthResidue,
    ];

    /// Its id, as in JSON and in [`crate::patch::context::Symptom::met`].
    pub fn id(self) -> &'static str {
        match self {
            Self::WarmCache => "warm-cache",
            Self::Transfer => "transfer",
            Self::Template => "template",
            Self::Concurrency => "concurrency",
            Self::Speculation => "speculation",
            Self::ChunkAlignment => "chunk-alignment",
            Self::LengthResidue => "length-residue",
        }
    }

    /// One line for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::WarmCache => "keys of an earlier request are used again",
            Self::Transfer => "keys go from prefill to decode",
            Self::Template => "the conversation becomes a prompt",
            Self::Concurrency => "other requests are served at the same time",
            Self::Speculation => "tokens are drafted and verified",
            Self::ChunkAlignment => "the prompt is computed in pieces",
            Self::LengthResidue => "the length leaves a rest by the width of a window",
        }
    }

    /// The phases that it is about.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Self::WarmCache | Self::ChunkAlignment => &[Phase::Extend],
            Self::Transfer => &[Phase::Transfer],
            Self::Template => &[Phase::Template, Phase::Parse],
            Self::Concurrency | Self::LengthResidue => &[Phase::Extend, Phase::Decode],
            Self::Speculation => &[Phase::Decode],
        }
    }
}

/// Whether each target of a deployment has a factor.
pub(super) fn states(factor: Factor, scene: &Scene) -> Vec<Found> {
    let roles: Vec<Role> = scene.running.iter().map(|r| r.role).collect();
    let in_it = |running: &&Running| match factor {
        Factor::WarmCache | Factor::ChunkAlignment => running.role != Role::Decode,
        Factor::Speculation => running.role != Role::Prefill,
        _ => true,
    };
    scene.running.iter().filter(in_it).map(|running| state(factor, scene, running, &roles)).collect()
}

fn state(factor: Factor, scene: &Scene, running: &Running, roles: &[Role]) -> Found {
    match factor {
        Factor::WarmCache => warm_cache(running),
        Factor::Transfer => {
            let split = roles.contains(&Role::Prefill) && roles.contains(&Role::Decode);
            let alone = roles.iter().all(|r| *r == Role::Monolithic);
            let (state, because) = match (split, alone) {
                (true, _) => (State::Live, "the deployment has prefill and decode targets"),
                (_, true) => (State::Inert { by: Obstacle::Setting }, "prefill and decode are one process"),
                _ => (State::Unknown, "the case names one half of a divided deployment"),
            };
            found(running, state, because.into(), "roles of the targets in the case".into())
        }
        Factor::Template => {
            found(running, State::Live, "every chat goes through the template".into(), "the serving engine".into())
        }
        Factor::Concurrency => by_setting(running, key_of(running, AT_ONCE), |v| match v {
            None => Some((true, "the number of requests at once is not limited to one")),
            Some(text) => Some(match text.parse::<u64>().ok()? {
                1 => (false, "one request is served at a time"),
                _ => (true, "several requests are served at once"),
            }),
        }),
        Factor::Speculation => by_setting(running, "speculative_algorithm", |v| match v {
            None => Some((false, "no speculation is set")),
            Some(text) if text.eq_ignore_ascii_case("none") => Some((false, "no speculation is set")),
            Some(_) => Some((true, "tokens are drafted")),
        }),
        Factor::ChunkAlignment => {
            let longest = scene.symptom.prompt_tokens;
            by_setting(running, key_of(running, PIECE), |v| {
                let size: i64 = v?.parse().ok()?;
                if size <= 0 {
                    return Some((false, "prompts are computed in one piece"));
                }
                match longest {
                    None => None,
                    Some(tokens) if tokens > size.unsigned_abs() => {
                        Some((true, "failing prompts are longer than a piece"))
                    }
                    Some(_) => Some((false, "failing prompts are shorter than a piece")),
                }
            })
        }
        Factor::LengthResidue => {
            let ratios = &scene.model.compress_ratios;
            let source = scene.model.source.clone();
            match (ratios.is_empty(), ratios.iter().any(|r| *r > 1)) {
                (true, _) => found(running, State::Unknown, "the windows of the model are not known".into(), source),
                (_, true) => found(running, State::Live, "the model keeps keys of whole windows".into(), source),
                _ => found(running, State::Unknown, "pages and kernels may have windows of their own".into(), source),
            }
        }
    }
}

/// Keys of the number of requests at once, by engine.
const AT_ONCE: &[&str] = &["max_running_requests", "max_num_seqs", "total_slots"];
/// Keys of the tokens of a piece of a prompt, by engine.
const PIECE: &[&str] = &["chunked_prefill_size", "max_num_batched_tokens", "n_batch"];

/// The key among these that was read; the first where none was.
fn key_of(running: &Running, keys: &'static [&'static str]) -> &'static str {
    let read = keys.iter().find(|key| running.settings.contains_key(**key));
    read.or(keys.first()).copied().unwrap_or_default()
}

fn warm_cache(running: &Running) -> Found {
    let (on, off) = ("the prefix cache is on", "the prefix cache is switched off");
    let is = |text: &str, wanted: &str| text.eq_ignore_ascii_case(wanted);
    if running.settings.contains_key("enable_prefix_caching") {
        return by_setting(running, "enable_prefix_caching", |v| match v? {
            text if is(text, "true") || text == "1" => Some((true, on)),
            text if is(text, "false") || text == "0" => Some((false, off)),
            _ => None,
        });
    }
    by_setting(running, "disable_radix_cache", |v| match v {
        None => Some((true, "the prefix cache is not switched off")),
        Some(text) if is(text, "true") || text == "1" => Some((false, off)),
        Some(text) if is(text, "false") || text == "0" => Some((true, on)),
        Some(_) => None,
    })
}

/// The state by the value of a setting; `judge` is given `None` where it is not set.
fn by_setting(running: &Running, key: &str, judge: impl Fn(Option<&str>) -> Option<(bool, &'static str)>) -> Found {
    let Reading { value, source, .. } = running.setting(key);
    let (judged, shown) = match &value {
        Value::Unknown(why) => {
            return found(running, State::Unknown, format!("`{key}` is not known: {why}"), source);
        }
        Value::Unset => (judge(None), format!("`{key}` is not set")),
        Value::Set(text) => (judge(Some(text)), format!("`{key}` is `{text}`")),
    };
    match judged {
        None => found(running, State::Unknown, format!("{shown}, and what follows is not told"), source),
        Some((true, because)) => found(running, State::Live, format!("{because}: {shown}"), source),
        Some((false, because)) => {
            found(running, State::Inert { by: Obstacle::Setting }, format!("{because}: {shown}"), source)
        }
    }
}

fn found(running: &Running, state: State, because: String, source: String) -> Found {
    let evidence = vec![Evidence { fact: because.clone(), source }];
    Found { target: running.target.clone(), state, because, evidence, assumes: Vec::new() }
}
