//! The rules by which words of changed lines, names and paths become signals and phases, as one table each.
//!
//! Not responsible for applying them. A rule is rather too narrow than too wide: a signal that is everywhere says
//! nothing.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};

use crate::patch::types::{Phase, Signal};

/// A rule that makes a signal of a changed line.
#[derive(Clone, Copy, Debug)]
pub struct SignalRule {
    /// What it says.
    pub signal: Signal,
    /// What the line holds.
    pub pattern: &'static str,
    /// In which part of it.
    pub part: Part,
    /// Parts of paths of which one must be in the file's; none is every file.
    pub path: &'static [&'static str],
}

/// Which part of a line a rule reads; none reads comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Code without what stands in strings.
    Code,
    /// Code with its strings, but without documentation.
    Words,
}

/// Where a rule on phases looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// The path of the file.
    Path,
    /// The last name of a changed symbol.
    Symbol,
    /// The code of a changed line.
    Line,
}

/// A rule that says that a change can reach a phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseRule {
    /// The phase.
    pub phase: Phase,
    /// Where it looks.
    pub place: Where,
    /// What it looks for.
    pub pattern: &'static str,
    /// Paths of files in which the word means something else; empty is none.
    pub unless: &'static str,
}

const fn signal(signal: Signal, pattern: &'static str) -> SignalRule {
    SignalRule { signal, pattern, part: Part::Code, path: &[] }
}

/// Every rule on signals. `Constant`, `DefaultOn` and `AssertRemoved` come from comparing lines, not from words.
pub const SIGNALS: &[SignalRule] = &[
    signal(
        Signal::Accumulation,
        r"\bacc(?:um\w*|_\w+|\d)?\s*(?:\+=|=\s*(?:acc\w*\s*\+|tl\.dot|tl\.zeros|torch\.zeros))",
    ),
    signal(Signal::Accumulation, r"\btl\.(?:dot|sum|cumsum|atomic_add)\(|\batomicAdd\(|\b__shfl_(?:xor|down)_sync\("),
    signal(Signal::Accumulation, r"\.(?:sum|cumsum|logsumexp)\(|\btorch\.(?:sum|cumsum|logsumexp)\("),
    signal(
        Signal::Accumulation,
        r"\b(?:num_kv_splits|num_splits|split_k|splitk|SPLIT_K|allow_tf32|out_dtype|acc(?:um)?_dtype)\s*=",
    ),
    signal(Signal::Accumulation, r"\b(?:blockReduce|warpReduce|block_reduce|warp_reduce)\w*"),
    signal(Signal::Scale, r"\b(?:\w+_)?scal(?:e|es|ing)(?:_\w+)?\s*(?:\*=?|/=?|=[^=])"),
    signal(Signal::Scale, r"(?:\*=?|/=?)\s*(?:\w+\.)*(?:\w+_)?scal(?:e|es|ing)(?:_\w+)?\b"),
    signal(
        Signal::Clamp,
        r"\.clamp(?:_|_min|_max)?\(|\btorch\.(?:clamp|clip|minimum|maximum)\(|\btl\.(?:clamp|minimum|maximum)\(",
    ),
    signal(Signal::Clamp, r"\b(?:fminf?|fmaxf?|__saturatef)\(|\b\w*(?:clamp|swiglu)_limit\w*"),
    signal(Signal::TopK, r"(?:\b|_)(?:top_?k(?:_\w+)?|argmax|argmin|argsort|kthvalue|multinomial|select_experts)\("),
    signal(Signal::TopK, r"\.(?:sort|topk)\(|\b(?:torch|tl)\.sort\(|\b\w*top_?k\s*=\s*\d"),
    signal(Signal::Mask, r"\b\w*mask\w*\s*(?:=[^=]|&=|\|=)|\bmasked_fill_?\(|\b(?:tril|triu)\("),
    signal(Signal::Mask, r"\b(?:tl|torch)\.where\(|-\s*INFINITY\b|\bis_causal\b|\bcausal\s*="),
    signal(
        Signal::Index,
        r"\b(?:\w+_)?(?:idx|index|indices|offs|offsets?|indptr|slots?|locs?)(?:_\w+)?\s*(?:=|\+=|-=)[^=].*(?:[-+*%]|//|<<|>>)",
    ),
    SignalRule {
        signal: Signal::Mask,
        pattern: r#"["']-inf["']|-\s*(?:float\(["']|math\.|torch\.|np\.)inf\b"#,
        part: Part::Words,
        path: &[],
    },
    signal(Signal::Index, r"\b(?:\w+_)?(?:idx|index|indices|offs|offsets?|indptr)\s*(?:[-+*%]|//|<<|>>)=?\s*\w"),
    signal(Signal::Index, r"\[[^\]]*\b(?:\w+_)?(?:idx|index|offset|pos)\s*[-+*%]\s*\w+[^\]]*\]"),
    signal(
        Signal::Layout,
        r"\b(?:page_size|page_table|page_ids|block_tables?|req_to_token|kv_layout|num_pages|pages?_per_\w+)\b",
    ),
    signal(
        Signal::Layout,
        r"\b\w*stride\w*\b|\.(?:permute|transpose|movedim|as_strided)\(|\.view\(\s*(?:torch\.|dtype)",
    ),
    signal(Signal::Layout, r"\b\w*(?:swizzl|shuffle_weight|shuffled_weight|interleav)\w*|\b\w*_layout\b"),
    signal(
        Signal::CacheKey,
        r"\b(?:match_prefix|RadixKey|radix_key|extra_key|cache_salt|block_hash\w*|hash_block\w*|get_hash_str|prefix_hash\w*)\b",
    ),
    signal(Signal::CacheKey, r"\b\w*cache_key\w*\s*(?:=|\()|\bhash\(\s*\w*token"),
    signal(
        Signal::Transfer,
        r"\b(?:bootstrap_room|kv_sender|kv_receiver|kv_mgr|KVPoll|send_kvcache|send_state|transfer_(?:queue|infos|sync)\w*|aux_index)\b",
    ),
    SignalRule {
        signal: Signal::Transfer,
        pattern: r"\b(?:send|recv|receive|transfer)\w*\(",
        part: Part::Code,
        path: &["disaggregation/", "kv_transfer", "mooncake", "nixl"],
    },
    signal(
        Signal::Template,
        r"\b(?:apply_chat_template|chat_template\w*|add_generation_prompt|jinja\w*|enable_thinking|drop_thinking)\b",
    ),
    signal(Signal::Template, r"\b(?:\w+_)?(?:DEFAULT_THINKING|default_thinking|DROP_THINKING|thinking_mode)\b"),
    SignalRule { signal: Signal::Template, pattern: r"\S", part: Part::Code, path: &[".jinja"] },
    signal(
        Signal::Parser,
        r"\b(?:reasoning_parser|tool_call_parser|ReasoningParser|FunctionCallParser|detect_and_parse|parse_streaming_increment)\b",
    ),
    signal(Signal::Parser, r"\b(?:think_(?:start|end)_token|bot_token|eot_token|has_tool_call|in_reasoning)\b"),
    SignalRule {
        signal: Signal::Parser,
        pattern: r"\b(?:re\.(?:compile|match|search|findall|sub)|find|split|startswith|endswith|partition)\(",
        part: Part::Code,
        path: &["function_call/", "reasoning_parser", "tool_parsers/", "_detector.py"],
    },
];

const fn phase(phase: Phase, place: Where, pattern: &'static str) -> PhaseRule {
    PhaseRule { phase, place, pattern, unless: "" }
}

/// Files whose `decode` is that of a text, a picture or a message.
const OF_TEXT: &str = r"tokeniz|template|encoding|parser|multimodal|codec|vae|(?:^|/)api/|\.sh$";

/// Every rule on phases.
pub const PHASES: &[PhaseRule] = &[
    phase(Phase::Load, Where::Path, r"(?:^|/)model_loader/|weight_loader|weight_utils"),
    phase(
        Phase::Load,
        Where::Symbol,
        r"^_?(?:load_weights?\w*|load_model|weight_loader\w*|process_weights_after_loading|create_weights|post_load_weights)$",
    ),
    phase(Phase::Load, Where::Line, r"\b(?:process_weights_after_loading|weight_loader|load_weights)\("),
    phase(Phase::Template, Where::Path, r"serving_chat|chat_template|conversation\.py|\.jinja|jinja_template"),
    phase(
        Phase::Template,
        Where::Symbol,
        r"^_?(?:apply_chat_template|render_\w*(?:prompt|messages)|apply_jinja_template|encode_messages)$",
    ),
    phase(
        Phase::Template,
        Where::Line,
        r"\b(?:apply_chat_template|enable_thinking|drop_thinking|add_generation_prompt)\b",
    ),
    PhaseRule { phase: Phase::Extend, place: Where::Symbol, pattern: r"(?:^|_)(?:extend|prefill)(?:_|$)", unless: "" },
    phase(Phase::Extend, Where::Path, r"(?:^|[/_])(?:prefill|extend)(?:[/_.])"),
    phase(Phase::Extend, Where::Line, r"\bis_(?:extend|prefill)(?:_\w+)?\(\)|\bForwardMode\.EXTEND\b"),
    PhaseRule { phase: Phase::Decode, place: Where::Symbol, pattern: r"(?:^|_)decode(?:_|$)", unless: OF_TEXT },
    PhaseRule { phase: Phase::Decode, place: Where::Path, pattern: r"(?:^|[/_])decode(?:[/_.])", unless: OF_TEXT },
    phase(Phase::Decode, Where::Line, r"\bis_decode(?:_\w+)?\(\)|\bForwardMode\.DECODE\b"),
    phase(Phase::Transfer, Where::Path, r"(?:^|/)disaggregation/|kv_transfer|mooncake|nixl"),
    phase(Phase::Transfer, Where::Line, r"\b(?:bootstrap_room|kv_sender|kv_receiver|send_kvcache|KVPoll)\b"),
    phase(
        Phase::Parse,
        Where::Path,
        r"(?:^|/)(?:function_call|tool_parsers?|reasoning)/|reasoning_parser|tool_call_parser|_detector\.py",
    ),
    phase(
        Phase::Parse,
        Where::Symbol,
        r"^_?(?:detect_and_parse|parse_streaming_increment|extract_reasoning\w*|parse_non_stream|parse_stream_chunk)$",
    ),
    phase(
        Phase::Parse,
        Where::Line,
        r"\b(?:ReasoningParser|FunctionCallParser|detect_and_parse|parse_streaming_increment)\(",
    ),
];

/// The rules on signals that read one part of a line, with their patterns as one.
pub(super) struct Compiled {
    /// The part.
    pub(super) part: Part,
    /// The rules, in the order of the patterns.
    pub(super) rules: Vec<SignalRule>,
    /// Their patterns: a line is read once for all of them.
    pub(super) patterns: RegexSet,
}

/// The rules on signals with their patterns.
pub(super) fn signals() -> &'static [Compiled] {
    static COMPILED: LazyLock<Vec<Compiled>> = LazyLock::new(|| {
        let compile = |part| {
            let rules: Vec<SignalRule> = SIGNALS.iter().filter(|rule| rule.part == part).copied().collect();
            let patterns = RegexSet::new(rules.iter().map(|rule| rule.pattern)).ok()?;
            Some(Compiled { part, rules, patterns })
        };
        [Part::Code, Part::Words].into_iter().filter_map(compile).collect()
    });
    &COMPILED
}

/// The rules on phases with their patterns.
pub(super) fn phases() -> &'static [(PhaseRule, Regex, Option<Regex>)] {
    static COMPILED: LazyLock<Vec<(PhaseRule, Regex, Option<Regex>)>> = LazyLock::new(|| {
        let compile = |rule: &PhaseRule| Some((*rule, Regex::new(rule.pattern).ok()?, optional(rule.unless)));
        PHASES.iter().filter_map(compile).collect()
    });
    &COMPILED
}

fn optional(pattern: &str) -> Option<Regex> {
    (!pattern.is_empty()).then(|| Regex::new(pattern).ok()).flatten()
}
