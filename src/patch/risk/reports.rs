//! Public reports of wrong answers, counted by cause and by what they depend on. Pure; the table is the record.
//!
//! How it was counted. A row is a thread of the project's case log (72 rows), or a thread of its list of causes of lost
//! context that is not in the log (11 rows). A row has the cause that its text names where a fix was merged, a
//! maintainer or the reporter isolated it, or a setting was wrong; where the thread is open, was closed without a
//! cause, or names only a suspect, the cause is unknown. Withdrawn reports, noise and measurements are no fault. The
//! factor is the one switch on which the symptom depends by the thread; of several, the first that is named.
//! One thread tells of two faults and has two rows.
//! Sections of the log that are about *more context, a later turn, or company* are reports of lost context, as is the
//! list of causes; the others are about benchmarks, settings and garbled text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::Cause::{NoFault, Of, Unknown};
use self::Class::{Compiler, Index, Layout, Precision, Prompt, Rotation, Scale, Setting, State, Transfer};
use self::Section::{Company, Drafts, Experts, Graphs, Length, Numbers, Prompts, Settings, Split, Threads, Warm};
use super::factors::Factor;
use super::factors::Factor::{ChunkAlignment, Concurrency, LengthResidue, Speculation, Template, WarmCache};
use crate::patch::context::SymptomKind;

/// Class of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Which keys are attended to: masks, bounds, indices, top-k.
    Index,
    /// Positions and rotations of queries and keys.
    Rotation,
    /// What is kept from one request or step to the next: reuse of prefixes, roll-back, eviction.
    State,
    /// Where values lie: pages, strides, orders, shared buffers.
    Layout,
    /// What goes from prefill to decode.
    Transfer,
    /// Factors that values are multiplied by.
    Scale,
    /// Rounding.
    Precision,
    /// Compilers and fusion passes.
    Compiler,
    /// Asked and not in effect, chosen by itself, or set wrongly.
    Setting,
    /// What the model was given to read: templates, clients, proxies.
    Prompt,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 10] = [Index, Rotation, State, Layout, Transfer, Scale, Precision, Compiler, Setting, Prompt];

    /// The class in words.
    pub fn words(self) -> &'static str {
        match self {
            Index => "masks, bounds, indices or top-k",
            Rotation => "positions and rotations",
            State => "kept state and prefix reuse",
            Layout => "layouts of memory",
            Transfer => "transfer from prefill to decode",
            Scale => "scale factors",
            Precision => "rounding",
            Compiler => "compilers and fusion",
            Setting => "settings",
            Prompt => "templates and clients",
        }
    }
}

/// The cause of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Of(Class),
    Unknown,
    NoFault,
}

/// Where a report stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Threads,
    Length,
    Warm,
    Company,
    Split,
    Drafts,
    Numbers,
    Experts,
    Settings,
    Prompts,
    Graphs,
}

struct Report {
    /// The thread, the first where several tell of it; a number after `idx:` is that of a public index of files.
    id: &'static str,
    section: Section,
    cause: Cause,
    factor: Option<Factor>,
}

const fn row(id: &'static str, section: Section, cause: Cause, factor: Option<Factor>) -> Report {
    Report { id, section, cause, factor }
}

const REPORTS: &[Report] = &[
    row("sglang PR#39288", Length, Of(Index), None),
    row("flashinfer#5095", Length, Of(Index), None),
    row("vllm#55927", Length, Unknown, Some(LengthResidue)),
    row("ROCm/ATOM PR#1591", Length, Of(Index), None),
    row("ROCm/ATOM#1507", Length, Of(Rotation), None),
    row("ml-explore/mlx-lm PR#1454", Length, Of(Index), None),
    row("ml-explore/mlx-lm PR#1189", Length, Of(Rotation), None),
    row("llama.cpp#25259", Length, Of(State), Some(WarmCache)),
    row("llama.cpp#26509", Length, Of(Compiler), Some(ChunkAlignment)),
    row("llama.cpp#26694", Length, Unknown, Some(Concurrency)),
    row("kekzl/imp PR#117", Length, Of(Index), Some(ChunkAlignment)),
    row("sglang#9704", Length, Of(State), Some(WarmCache)),
    row("sglang#36941", Length, NoFault, None),
    row("vllm PR#56446", Length, Of(Rotation), None),
    row("vllm PR#34587", Warm, Of(State), Some(WarmCache)),
    row("vllm#53912", Warm, Unknown, Some(WarmCache)),
    row("tenstorrent/vllm#415", Warm, Of(State), Some(WarmCache)),
    row("LMCache/LMCache#4385", Warm, Unknown, Some(WarmCache)),
    row("TRT-LLM#2699", Warm, Unknown, Some(WarmCache)),
    row("vllm#5543", Warm, Of(State), Some(WarmCache)),
    row("sglang#33397", Company, Unknown, Some(Concurrency)),
    row("vllm PR#41834", Company, Of(Layout), Some(Concurrency)),
    row("vllm#39589", Company, Of(Index), Some(Concurrency)),
    row("sglang#23392", Company, Unknown, Some(Concurrency)),
    row("ml-explore/mlx-lm#965", Company, Unknown, Some(Concurrency)),
    row("vllm#5898", Company, NoFault, None),
    row("sglang#23020", Split, Unknown, Some(Factor::Transfer)),
    row("sglang#24527", Split, Of(Transfer), Some(Factor::Transfer)),
    row("sglang#30233", Split, Unknown, Some(Factor::Transfer)),
    row("LMCache PR#2193", Split, Of(Setting), None),
    row("vllm#36872", Drafts, Unknown, Some(Speculation)),
    row("vllm#39273", Drafts, Of(State), Some(Speculation)),
    row("sglang PR#28307", Drafts, Of(Scale), None),
    row("noonghunna/club-3090#34", Drafts, Unknown, Some(Speculation)),
    row("sglang#36537", Drafts, Unknown, Some(Speculation)),
    row("idx:66595425268", Drafts, Of(Layout), Some(Speculation)),
    row("sglang PR#31213", Numbers, Of(Precision), None),
    row("sglang PR#33764", Numbers, Of(Precision), None),
    row("sglang#33627", Numbers, Of(Precision), None),
    row("genlm/genlm-backend PR#66", Numbers, Of(Precision), None),
    row("vllm PR#42379", Numbers, Of(Precision), None),
    row("vllm#48324", Numbers, Of(Compiler), None),
    row("vllm#37804", Numbers, Of(Precision), None),
    row("TRT-LLM PR#16916", Numbers, Of(Scale), None),
    row("sgl-project/sgl-cookbook PR#237", Numbers, Of(Scale), None),
    row("vllm#39407", Numbers, Unknown, None),
    row("pytorch/torchtitan#4273", Numbers, NoFault, None),
    row("tile-ai/tilelang#3071", Numbers, Unknown, None),
    row("flashinfer#4347", Numbers, Unknown, None),
    row("sglang#28414", Numbers, Unknown, None),
    row("vllm#24118", Experts, Of(Scale), None),
    row("sglang PR#8511", Experts, Of(Scale), None),
    row("sglang PR#29931", Experts, Of(Scale), None),
    row("kvcache-ai/sglang PR#86", Experts, Of(Scale), None),
    row("AMD-AGI/Hyperloom PR#1459", Experts, Of(Layout), None),
    row("vllm#50292", Settings, Of(Setting), None),
    row("sglang#36395", Settings, Of(Setting), None),
    row("sglang PR#39807", Settings, Of(Setting), None),
    row("vllm PR#53450", Settings, Of(Setting), None),
    row("idx:69236736930", Settings, Of(Setting), None),
    row("gpustack/gpustack#1420", Settings, Of(Setting), None),
    row("noamsto/nix-amd-ai PR#11", Settings, Of(Setting), None),
    row("vllm#15060", Settings, Unknown, None),
    row("idx:59680491627", Settings, Of(Setting), None),
    row("ambientlight/rtx-pro-6000-bench", Settings, Of(Setting), None),
    row("BerriAI/litellm PR#41380", Prompts, Of(Prompt), Some(Template)),
    row("vllm PR#21655", Prompts, Unknown, Some(Template)),
    row("sglang#37645", Prompts, Unknown, Some(Template)),
    row("ollama/ollama#5480", Prompts, Unknown, None),
    row("llama.cpp PR#17767", Prompts, Of(Setting), None),
    row("sglang#17839", Graphs, Unknown, None),
    row("sglang#13469", Graphs, Unknown, None),
    row("vllm#50576", Threads, Of(Layout), None),
    row("ROCm/ATOM#1466", Threads, Of(Layout), None),
    row("vllm#52109", Threads, Unknown, None),
    row("mlx-lm#1189", Threads, Of(Index), Some(ChunkAlignment)),
    row("vllm#46222", Threads, Of(Index), None),
    row("sglang#24878", Threads, Of(Transfer), Some(Factor::Transfer)),
    row("vllm#57661", Threads, Of(Transfer), Some(Factor::Transfer)),
    row("sglang#30339", Threads, Of(State), Some(WarmCache)),
    row("sglang#34189", Threads, Unknown, Some(Speculation)),
    row("llama.cpp#25171", Threads, Of(State), Some(WarmCache)),
    row("langchain#37713", Threads, Of(Prompt), Some(Template)),
];

/// How often something was the cause, or the trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// Reports of it.
    pub of: u32,
    /// Reports that name any.
    pub among: u32,
}

/// Reports that count for a symptom.
fn relevant(kind: SymptomKind) -> impl Iterator<Item = &'static Report> {
    REPORTS.iter().filter(move |r| match kind {
        SymptomKind::LosesContext => loses_context(r.section),
        SymptomKind::Other => true,
    })
}

fn loses_context(section: Section) -> bool {
    matches!(section, Threads | Length | Warm | Company | Split | Prompts)
}

/// How many reports of such a symptom have a cause of this class.
pub fn of_class(class: Class, kind: SymptomKind) -> Count {
    let known = relevant(kind).filter(|r| matches!(r.cause, Of(_)));
    let (mut of, mut among) = (0, 0);
    for report in known {
        among += 1;
        of += u32::from(report.cause == Of(class));
    }
    Count { of, among }
}

/// The threads whose cause is of this class, for such a symptom.
pub fn threads(class: Class, kind: SymptomKind) -> impl Iterator<Item = &'static str> {
    relevant(kind).filter(move |r| r.cause == Of(class)).map(|r| r.id)
}

/// The threads whose symptom depends on this factor.
pub fn threads_of_factor(factor: Factor) -> impl Iterator<Item = &'static str> {
    REPORTS.iter().filter(move |r| r.factor == Some(factor)).map(|r| r.id)
}

/// How many reports depend on this factor. The symptom does not matter: its section is the factor itself.
pub fn of_factor(factor: Factor) -> Count {
    let known = REPORTS.iter().filter_map(|r| r.factor);
    let (mut of, mut among) = (0, 0);
    for one in known {
        among += 1;
        of += u32::from(one == factor);
    }
    Count { of, among }
}

/// Logarithm of how much more often a class is the cause than the rarest class, one report added to each.
///
/// Never negative, so that knowing a class never speaks for innocence: what is rare in reports is not impossible here.
pub(super) fn log_ratio(class: Class, kind: SymptomKind) -> f64 {
    let of = |class| of_class(class, kind).of;
    ratio(of(class), Class::ALL.iter().map(|c| of(*c)).min().unwrap_or(0))
}

/// The same for factors.
pub(super) fn log_ratio_of_factor(factor: Factor) -> f64 {
    let of = |factor| of_factor(factor).of;
    ratio(of(factor), Factor::ALL.iter().map(|f| of(*f)).min().unwrap_or(0))
}

fn ratio(of: u32, least: u32) -> f64 {
    (f64::from(of + 1) / f64::from(least + 1)).ln()
}

/// Where the counts come from, for a term.
pub(super) const SOURCE: &str = "83 public reports, counted in patch::risk::reports";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn counts_of_the_table() {
        let log = |r: &&Report| r.section != Threads;
        assert_eq!((REPORTS.len(), REPORTS.iter().filter(log).count()), (83, 72));
        assert_eq!(REPORTS.iter().map(|r| r.id).collect::<BTreeSet<_>>().len(), 83, "no report counts twice");
        assert_eq!(REPORTS.iter().filter(|r| r.cause == Unknown).count(), 25);
        assert_eq!(REPORTS.iter().filter(|r| r.cause == NoFault).count(), 3);
    }

    #[test]
    fn rows_of_each_section() {
        let sections = [Length, Warm, Company, Split, Drafts, Numbers, Experts, Settings, Prompts, Graphs, Threads];
        let counts = sections.map(|s| REPORTS.iter().filter(|r| r.section == s).count());
        assert_eq!(counts, [14, 6, 6, 4, 6, 14, 5, 10, 5, 2, 11]);
    }

    #[test]
    fn causes_by_class() {
        let counts = |kind| Class::ALL.map(|c| of_class(c, kind).of);
        // Index, rotation, state, layout, transfer, scale, precision, compiler, setting, prompt.
        assert_eq!(counts(SymptomKind::LosesContext), [8, 3, 7, 3, 3, 0, 0, 1, 2, 2]);
        assert_eq!(counts(SymptomKind::Other), [8, 3, 8, 5, 3, 7, 6, 2, 11, 2]);
        assert_eq!(of_class(Index, SymptomKind::LosesContext).among, 29);
        assert_eq!(of_class(Index, SymptomKind::Other).among, 55);
    }

    #[test]
    fn reports_by_factor() {
        // Warm cache, transfer, template, concurrency, speculation, chunk alignment, length residue.
        assert_eq!(Factor::ALL.map(|f| of_factor(f).of), [10, 5, 4, 6, 6, 3, 1]);
        assert_eq!(of_factor(WarmCache).among, 35);
    }

    #[test]
    fn rounding_is_rare_where_context_is_lost_and_no_rate_speaks_for_innocence() {
        let rate = |class| log_ratio(class, SymptomKind::LosesContext);
        assert_eq!(rate(Precision), 0.0);
        assert!(rate(Index) > rate(State) && rate(State) > rate(Layout) && rate(Layout) > rate(Precision));
        for kind in [SymptomKind::LosesContext, SymptomKind::Other] {
            assert!(Class::ALL.iter().all(|c| log_ratio(*c, kind) >= 0.0));
        }
        assert!(Factor::ALL.iter().all(|f| log_ratio_of_factor(*f) >= 0.0));
    }
}
