//! The eight patches of the incident and what is known of its deployment, by hand from the incident's texts.
//!
//! `Known::AsBelieved` is what its engineers held on the day; `Known::Corrected` is the same with each statement that
//! public sources contradict replaced. Only facts differ: no rule knows which of them it is given.

mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::context::{
    Bearing, Evidence, ModelFacts, Notes, Overwrite, Reading, Role, Running, Scene, Symptom, SymptomKind, Value,
};
use super::types::{DtypeChange, Entry, Fact, GateDefault, GateKind, GateRead, Phase, Place, Signal};

const ATTENTION: &str = "python/sglang/srt/layers/attention/flash_mla_sm120_triton.py";
const INDEXER: &str = "python/sglang/srt/layers/attention/dsv4/indexer.py";
const MODEL: &str = "python/sglang/srt/models/deepseek_v4.py";
const HASH_TOPK: &str = "python/sglang/srt/layers/moe/hash_topk.py";
const MODELOPT: &str = "python/sglang/srt/layers/quantization/modelopt_quant.py";
const CHAT: &str = "python/sglang/srt/entrypoints/openai/serving_chat.py";

/// One statement of the texts that public sources contradict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Correction {
    /// Attention "asserts one row, so it does not run in prefill": prompts are expanded to one row a token.
    AttentionServesPrefill,
    /// The indexer "is reached only while decoding, or after the first piece": every piece takes the paged path.
    IndexerServesPrefill,
    /// "Not in the process environment": the engine sets it after its start.
    EnvironIsBlind,
    /// "Inert under triton": the method of NVFP4 experts fuses the factor for every runner but marlin.
    RoutedScalingIsLive,
    /// "43 layers": there are two sites a layer.
    TwoSitesALayer,
    /// "Purely cosmetic": which turns reach the prompt depends on thinking, and nobody looked at the tokens.
    TemplateWasNotChecked,
}

pub(super) const ALL: [Correction; 6] = [
    Correction::AttentionServesPrefill,
    Correction::IndexerServesPrefill,
    Correction::EnvironIsBlind,
    Correction::RoutedScalingIsLive,
    Correction::TwoSitesALayer,
    Correction::TemplateWasNotChecked,
];

/// Facts of the incident with these corrections.
pub(super) struct Facts(pub(super) BTreeSet<Correction>);

impl Facts {
    pub(super) fn as_believed() -> Self {
        Self(BTreeSet::new())
    }

    pub(super) fn corrected() -> Self {
        Self(ALL.into())
    }

    pub(super) fn with(correction: Correction) -> Self {
        Self([correction].into())
    }

    fn has(&self, correction: Correction) -> bool {
        self.0.contains(&correction)
    }
}

pub(super) fn place(path: &str, line: u32) -> Place {
    Place { path: path.into(), line: Some(line) }
}

fn fact<T>(value: T, path: &str, line: u32, text: &str) -> Fact<T> {
    Fact { value, place: place(path, line), text: text.into() }
}

fn gate(name: &str, kind: GateKind, default: &str, path: &str, line: u32, text: &str) -> GateRead {
    GateRead {
        name: name.into(),
        kind,
        default: GateDefault::Written(default.into()),
        place: place(path, line),
        text: text.into(),
    }
}

fn phases(of: &[Phase], why: &str, path: &str, line: u32) -> BTreeMap<Phase, Fact<String>> {
    of.iter().map(|p| (*p, fact(why.to_owned(), path, line, why))).collect()
}

fn lowered(path: &str, line: u32, text: &str) -> Fact<DtypeChange> {
    fact(DtypeChange { from: Some("fp32".into()), to: Some("bf16".into()) }, path, line, text)
}

/// The eight patches.
pub(super) fn entries(facts: &Facts) -> Vec<Entry> {
    let everywhere = [Phase::Extend, Phase::Decode];
    // Who held that a kernel is of decoding alone held that its lines ask for the mode.
    let line = |correction, as_it_is: &'static str| {
        if facts.has(correction) { as_it_is } else { "if forward_batch.forward_mode.is_decode():" }
    };
    let mut mma = Entry::of_file("mma-decode", "MMA split-K kernel for sparse attention", ATTENTION);
    mma.symbols = vec![fact("decode".into(), ATTENTION, 6, "def decode(q, kv):")];
    mma.kernels = vec![fact("_mma".into(), ATTENTION, 8, "return _mma(q, kv) if USE_MMA else _simt(q, kv)")];
    mma.gates = vec![gate(
        "SGLANG_SM120_MMA_FLASHMLA",
        GateKind::Environ,
        "0",
        ATTENTION,
        3,
        "USE_MMA = os.environ.get(\"SGLANG_SM120_MMA_FLASHMLA\", \"0\") == \"1\"",
    )];
    mma.asserts = vec![fact("one row".into(), ATTENTION, 7, "assert q.shape[1] == 1")];
    let one_row = line(Correction::AttentionServesPrefill, "assert q.shape[1] == 1");
    mma.phases = phases(&[Phase::Decode], one_row, ATTENTION, 7);
    mma.dtypes = vec![lowered(ATTENTION, 31, "q = (q * scale).to(tl.bfloat16)")];
    mma.signals = vec![fact(Signal::Accumulation, ATTENTION, 58, "acc = acc * w0 + part * w1")];

    let mut triton = Entry::of_file("triton-indexer", "Triton kernel for paged indexer logits", INDEXER);
    triton.symbols = vec![fact("forward_c4_indexer".into(), INDEXER, 75, "def forward_c4_indexer(self, q, k):")];
    triton.kernels = vec![fact("triton_logits".into(), INDEXER, 77, "logits = self.triton_logits(q, k)")];
    triton.gates = vec![gate(
        "SGLANG_SM120_TRITON_INDEXER",
        GateKind::Registry,
        "False",
        INDEXER,
        76,
        "if envs.SGLANG_SM120_TRITON_INDEXER.get():",
    )];
    let paged = line(Correction::IndexerServesPrefill, "def forward_c4_indexer(self, q, k):");
    triton.phases = phases(&[Phase::Decode], paged, INDEXER, 75);
    triton.signals = vec![
        fact(Signal::Index, INDEXER, 112, "offs = page * PAGE + tl.arange(0, BLOCK)"),
        fact(Signal::Layout, INDEXER, 115, "k = tl.load(kv + page_id * stride_page + offs)"),
    ];

    let mut bf16 = Entry::of_file("bf16-indexer", "indexer logits of the torch fallback in bf16", INDEXER);
    bf16.symbols = vec![fact("torch_logits".into(), INDEXER, 60, "def torch_logits(self, q, k):")];
    bf16.gates = vec![gate(
        "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH",
        GateKind::Registry,
        "False",
        INDEXER,
        58,
        "if envs.SGLANG_FP8_PAGED_MQA_LOGITS_TORCH.get():",
    )];
    bf16.phases = phases(&[Phase::Decode], paged, INDEXER, 75);
    bf16.dtypes = vec![lowered(INDEXER, 79, "logits = self.torch_logits(q, k).to(torch.bfloat16)")];

    let mut mhc = Entry::of_file("mhc-bf16", "mixing product of the hyper-connections in bf16", MODEL);
    mhc.symbols = vec![fact("hc_pre".into(), MODEL, 1238, "def hc_pre(self, hidden, rsqrt):")];
    mhc.phases = phases(&everywhere, "every forward pass goes through it", MODEL, 1244);
    mhc.dtypes = vec![lowered(MODEL, 1244, "mixes = F.linear(x_bf16, self.hc_fn.to(torch.bfloat16)).float()")];

    let mut routed = Entry::of_file("routed-scaling", "routed scaling factor in the hash top-k", HASH_TOPK);
    routed.symbols = vec![fact("HashTopK.forward".into(), HASH_TOPK, 54, "def forward(self, w):")];
    routed.phases = phases(&everywhere, "every forward pass goes through it", HASH_TOPK, 54);
    routed.signals = vec![
        fact(Signal::Scale, HASH_TOPK, 57, "topk_weights *= self.routed_scaling_factor"),
        fact(Signal::AssertRemoved, HASH_TOPK, 56, "assert not apply_routed_scaling_factor_on_output"),
    ];

    let mut load = Entry::of_file("nvfp4-load", "hybrid NVFP4 experts on the triton runner", MODELOPT);
    load.symbols = vec![fact("ModelOptNvFp4FusedMoEMethod.create_weights".into(), MODELOPT, 410, "def create_weights")];
    load.phases = phases(&[Phase::Load], "weights are arranged once", MODELOPT, 410);
    load.signals = vec![fact(Signal::Layout, MODELOPT, 432, "w13 = w13.view(E, 2, N, K // 2)")];

    let mut clamp =
        Entry::of_file("flashinfer-clamp", "clamp limit of the experts for the flashinfer runner", MODELOPT);
    clamp.symbols = vec![fact("flashinfer_trtllm_fp4_moe".into(), MODELOPT, 690, "def flashinfer_trtllm_fp4_moe(")];
    clamp.phases = phases(&everywhere, "every forward pass goes through it", MODELOPT, 690);
    clamp.signals = vec![fact(Signal::Clamp, MODELOPT, 702, "gemm1_clamp_limit=swiglu_limit")];

    let mut thinking = Entry::of_file("thinking-default", "thinking on where the request does not say", CHAT);
    thinking.phases = phases(&[Phase::Template], "a default of the chat template", CHAT, 2);
    thinking.signals = vec![
        fact(Signal::Template, CHAT, 2, "DEFAULT_THINKING = True"),
        fact(Signal::DefaultOn, CHAT, 2, "DEFAULT_THINKING = True"),
    ];
    vec![mma, triton, bf16, mhc, routed, load, clamp, thinking]
}

pub(super) fn set(text: &str, source: &str) -> Reading {
    Reading { value: Value::Set(text.into()), source: source.into(), blind_to: None }
}

fn running(facts: &Facts, target: &str, role: Role) -> Running {
    let environ = "environ of the launcher, read with pgrep -f launch_server";
    let script = "serve_dsv4_decode.sh:12";
    let blind = Some("what Python sets after exec".to_owned());
    let mut variables: BTreeMap<String, Reading> = ["SGLANG_SM120_MMA_FLASHMLA", "SGLANG_SM120_TRITON_INDEXER"]
        .map(|name| (name.to_owned(), Reading { blind_to: blind.clone(), ..set("1", environ) }))
        .into();
    let unset = Reading { value: Value::Unset, source: environ.into(), blind_to: blind };
    variables.insert("SGLANG_FP8_PAGED_MQA_LOGITS_TORCH".into(), unset.clone());
    let mode = if role == Role::Prefill { "prefill" } else { "decode" };
    let mut settings: BTreeMap<String, Reading> = [
        ("moe_runner_backend", "triton", script),
        ("disaggregation_mode", mode, script),
        ("architecture", "DeepseekV4ForCausalLM", "config.json"),
        ("capability", "120", "nvidia-smi"),
        ("chunked_prefill_size", "8192", "log of the server"),
        ("moe_quantization", "nvfp4", "log: Auto-detected hybrid FP8+NVFP4 checkpoint"),
    ]
    .map(|(key, value, source)| (key.to_owned(), set(value, source)))
    .into();
    if !facts.has(Correction::RoutedScalingIsLive) {
        // On the day nobody had read which method decides about the factor: it was an open question.
        settings.remove("moe_quantization");
    }
    let mut overwritten = BTreeMap::new();
    if facts.has(Correction::EnvironIsBlind) {
        let source = "sgl-project/sglang server_args.py at 19e85868f616".to_owned();
        let overwrite = Overwrite { value: "1".into(), applies: Some(true), source };
        overwritten.insert("SGLANG_FP8_PAGED_MQA_LOGITS_TORCH".to_owned(), overwrite);
    }
    Running { variables, unlisted: unset, overwritten, settings, ..Running::unread(target, role) }
}

/// Deployment, model and symptom.
pub(super) fn scene(facts: &Facts) -> Scene {
    let said = |fact: &str, source: &str| Evidence { fact: fact.into(), source: source.into() };
    let short = said("short prompts are answered well", "single-turn test of 8000 tokens");
    let mut phases = BTreeMap::from([
        (
            Phase::Extend,
            (Bearing::Likely, said("prompts of 10k to 30k tokens fail, prompts of 90 pass", "prefill log, recall")),
        ),
        (Phase::Load, (Bearing::Excluded, short)),
        (Phase::Template, (Bearing::Excluded, said("held to be cosmetic", "precision audit"))),
    ]);
    if facts.has(Correction::TemplateWasNotChecked) {
        phases.remove(&Phase::Template);
    }
    let met = |text: &str| (true, said(text, "incident texts"));
    let met = BTreeMap::from([
        ("warm-cache".to_owned(), met("the symptom is in later turns, whose prefix was cached")),
        ("transfer".to_owned(), met("every request passes from prefill to decode")),
        ("template".to_owned(), met("the client sends chats, with tools")),
        ("chunk-alignment".to_owned(), met("a prompt of 27k tokens was computed in pieces of 8192")),
    ]);
    let layers = 43;
    let ratios = (0..layers).map(|l| [4, 128][l as usize % 2]).enumerate();
    let sites = if facts.has(Correction::TwoSitesALayer) { Some(4) } else { None };
    Scene {
        symptom: Symptom { kind: SymptomKind::LosesContext, phases, met, prompt_tokens: Some(27_000) },
        model: ModelFacts {
            layers: Some(layers),
            hash_layers: Some(3),
            compress_ratios: ratios.map(|(l, r)| if l < 2 { 0 } else { r }).collect(),
            hyper_streams: sites,
            source: "config.json of DeepSeek-V4-Flash".into(),
        },
        running: vec![running(facts, "prefill", Role::Prefill), running(facts, "decode", Role::Decode)],
    }
}

/// Nothing besides the source is known of any patch: no verdict, no microtest with a floor.
pub(super) fn notes() -> BTreeMap<String, Notes> {
    BTreeMap::new()
}
