//! The inputs of one layer's router.

use std::sync::Arc;

use rand::seq::index::sample;
use rand_pcg::Pcg64;

use crate::kernel::candidate::Accumulate;
use crate::kernel::config::ModelConfig;
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::experts::{ACTIVE, CLAMP, EXPERTS, Experts, SCALING};
use crate::kernel::oracle::model::{LAYERS, Model, WIDTH};
use crate::kernel::oracle::rms;
use crate::kernel::oracle::router::{Choice, Route, route};
use crate::kernel::oracle::swiglu::Expert;
use crate::kernel::recorded::Taken;
use crate::kernel::specs::activations::{self, dice, normals};
use crate::kernel::specs::product::product;

/// The tokens that one layer's router is given, and what exact arithmetic makes of them.
#[derive(Clone, Debug)]
pub struct Case {
    /// The layer.
    pub layer: Arc<Layer>,
    /// Normed inputs, `[tokens, width]`.
    pub inputs: Vec<f64>,
    /// How experts are chosen.
    pub selection: Selection,
    pub(super) exact: Exact,
    /// The exact choice of the case that this one was moved away from.
    anchor: Option<Arc<Exact>>,
}

/// The weights of one layer's router and its experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Width of a token.
    pub width: usize,
    /// Routed experts of the layer.
    pub experts: usize,
    /// Routed experts that one token takes.
    pub active: usize,
    /// The scaling factor.
    pub scaling: f64,
    /// Bound of the gated activation.
    pub limit: f64,
    /// The gate, `[experts, width]`.
    pub gate: Vec<f64>,
    /// The experts, the shared one last; each reads as many of a token's first values as it is wide.
    pub bank: Vec<Expert>,
}

/// How the experts of a case are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// By hash table: the experts of each token.
    Hash(Vec<Vec<u32>>),
    /// By score and this bias, one an expert.
    Biased(Vec<f64>),
}

/// What exact arithmetic makes of a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exact {
    /// `[tokens, experts]`.
    pub(super) logits: Vec<f64>,
    pub(super) routes: Vec<Route>,
    /// For each token the outputs of its route's experts, then of the shared one.
    pub(super) outputs: Vec<Vec<Vec<f64>>>,
}

impl Layer {
    /// Width of the output.
    pub fn made(&self) -> usize {
        self.bank[0].width
    }

    /// The output of an expert for a token; the shared one's index is the number of routed ones.
    pub(super) fn apply(&self, expert: u32, token: &[f64]) -> Vec<f64> {
        self.apply_within(self.limit, expert, token)
    }

    /// The same with another bound.
    pub(super) fn apply_within(&self, limit: f64, expert: u32, token: &[f64]) -> Vec<f64> {
        self.bank[expert as usize].apply(&token[..self.made()], limit)
    }
}

impl Case {
    /// The case of these tokens.
    pub fn new(layer: Arc<Layer>, selection: Selection, inputs: Vec<f64>) -> Self {
        let exact = solve(&layer, &selection, &inputs);
        Self { layer, inputs, selection, exact, anchor: None }
    }

    /// Tokens of the case.
    pub fn tokens(&self) -> usize {
        self.inputs.len() / self.layer.width
    }

    /// One token.
    pub(super) fn token(&self, token: usize) -> &[f64] {
        &self.inputs[token * self.layer.width..][..self.layer.width]
    }

    /// The exact choice that differences are counted from.
    pub(super) fn right(&self) -> &Exact {
        self.anchor.as_deref().unwrap_or(&self.exact)
    }

    /// The relative error of the inputs against those of the choice that differences are counted from.
    pub(super) fn moved_by(&self) -> f64 {
        if self.anchor.is_some() { activations::MOVED } else { 0.0 }
    }

    pub(super) fn flipped(&self, seed: u64) -> Self {
        let inputs = activations::moved(&self.inputs, &mut dice(seed, 0));
        let anchor = Some(Arc::new(self.right().clone()));
        Self { anchor, ..Self::new(Arc::clone(&self.layer), self.selection.clone(), inputs) }
    }
}

impl Selection {
    /// How one token's experts are chosen.
    pub fn of(&self, token: usize) -> Choice<'_> {
        match self {
            Self::Hash(rows) => Choice::Hash(&rows[token]),
            Self::Biased(bias) => Choice::Biased(bias),
        }
    }
}

fn solve(layer: &Layer, selection: &Selection, inputs: &[f64]) -> Exact {
    let logits = product(Accumulate::default(), &layer.gate, inputs, layer.width);
    let rows = logits.chunks_exact(layer.experts).enumerate();
    let routes: Vec<Route> = rows.map(|(token, row)| route(row, selection.of(token), layer.active)).collect();
    let outputs = inputs
        .chunks_exact(layer.width)
        .zip(&routes)
        .map(|(token, route)| {
            let experts = route.experts.iter().copied().chain([layer.experts as u32]);
            experts.map(|expert| layer.apply(expert, token)).collect()
        })
        .collect();
    Exact { logits, routes, outputs }
}

/// Tokens of a synthetic case.
const TOKENS: usize = 16;
/// Width and inner width of a synthetic expert.
const SMALL: [usize; 2] = [32, 8];

/// Sizes of a made-up layer, in words.
fn sizes(config: &ModelConfig) -> String {
    let [width, inner] = SMALL;
    format!(
        "gate [{}, {}], {} experts a token, experts of {width} by {inner}",
        config.n_routed_experts, config.hidden_size, config.num_experts_per_tok
    )
}

/// Synthetic layers at a model's own sizes: those with a hash table, and as many without.
pub fn synthetic(config: &ModelConfig, seed: u64) -> Cases<Case> {
    let hash = 0..config.num_hash_layers;
    let last = config.num_hidden_layers - 1;
    let normal = [config.num_hash_layers, config.num_hidden_layers / 2, last];
    let layers: Vec<usize> = hash.chain(normal).collect();
    let label = |layer: &usize| {
        let kind = if *layer < config.num_hash_layers { "hash" } else { "biased" };
        format!("layer {layer}, {kind}")
    };
    Cases {
        labels: layers.iter().map(label).collect(),
        cases: layers.iter().map(|layer| synthetic_layer(config, seed, *layer)).collect(),
        shape: format!("{} layers of {TOKENS} tokens, {}", layers.len(), sizes(config)),
        provenance: format!(
            "synthetic, seed {seed}: inputs are {}, normed; gate normal so that logits spread by 1.5, in f32; bias \
             normal, spread 0.2; hash table random; experts small, random and not bounded to be harmless",
            activations::SHAPE
        ),
    }
}

fn synthetic_layer(config: &ModelConfig, seed: u64, layer: usize) -> Case {
    let width = config.hidden_size;
    let dice = &mut dice(seed, layer as u64);
    let normed = rms(&activations::synthetic(dice, TOKENS, width), &vec![1.0; width]);
    let inputs = Storage::Element(Rounding::Bf16).store(&normed, width);
    made_up_layer(config, dice, layer < config.num_hash_layers, inputs, 1.0)
}

/// A layer that is made up around its inputs, which are about so large.
fn made_up_layer(config: &ModelConfig, dice: &mut Pcg64, hash: bool, inputs: Vec<f64>, large: f64) -> Case {
    let (width, experts, active) = (config.hidden_size, config.n_routed_experts, config.num_experts_per_tok);
    let gate = normals(dice, experts * width, 1.5 / (width as f64).sqrt() / large);
    let selection = if hash {
        hash_table(dice, inputs.len() / width, experts, active)
    } else {
        Selection::Biased(normals(dice, experts, 0.2))
    };
    let [made, inner] = SMALL;
    let bank = (0..=experts).map(|_| Expert {
        width: made,
        inner,
        w1: normals(dice, inner * made, 2.0),
        w2: normals(dice, made * inner, 0.3),
        w3: normals(dice, inner * made, 2.0),
    });
    let layer = Layer {
        width,
        experts,
        active,
        scaling: config.routed_scaling_factor,
        limit: config.swiglu_limit,
        gate: Storage::Element(Rounding::F32).store(&gate, width),
        bank: bank.collect(),
    };
    Case::new(Arc::new(layer), selection, inputs)
}

/// Of a recording at most so many tensors are taken, and so many tokens of each.
pub const RECORDED: [usize; 2] = [6, TOKENS];

/// Recorded inputs of layers that are made up.
///
/// Where no layer with a hash table was recorded, or none without, the first that was stands in for one: its fault could
/// not show else.
pub fn recorded(config: &ModelConfig, seed: u64, taken: &[Taken]) -> Cases<Case> {
    let hash = |taken: &Taken| taken.found.layer < config.num_hash_layers;
    let mut points: Vec<(&Taken, bool)> = taken.iter().map(|t| (t, hash(t))).collect();
    for missing in [true, false] {
        if let Some((first, _)) = points.first().copied()
            && points.iter().all(|(_, kind)| *kind != missing)
        {
            points.push((first, missing));
        }
    }
    let label = |(taken, kind): &(&Taken, bool)| {
        let (word, own) = (if *kind { "hash" } else { "biased" }, *kind == hash(taken));
        format!("layer {}, {}{word}", taken.found.layer, if own { "" } else { "as if " })
    };
    let case = |(taken, kind): &(&Taken, bool)| {
        let squares = taken.values.iter().map(|v| v * v).sum::<f64>();
        let large = (squares / taken.values.len() as f64).sqrt();
        made_up_layer(config, &mut dice(seed, taken.found.layer as u64), *kind, taken.values.clone(), large)
    };
    Cases {
        labels: points.iter().map(label).collect(),
        cases: points.iter().map(case).collect(),
        shape: format!("{} recorded layers, at most {TOKENS} tokens of each, {}", taken.len(), sizes(config)),
        provenance: format!(
            "gate, bias, hash table and experts made up, seed {seed}: gate normal so that logits spread by 1.5, in f32; \
             bias normal, spread 0.2; experts small, random and not bounded to be harmless"
        ),
    }
}

/// Recorded inputs of the lab model's layers; the first of them once more with a hash table that is made up.
pub fn recorded_in_lab(model: &Model, taken: &[Taken]) -> Cases<Case> {
    let layer = |taken: &Taken| Arc::new(lab_layer(&model.blocks[taken.found.layer].experts));
    let biased = taken.iter().map(|t| {
        let bias = model.blocks[t.found.layer].experts.bias.to_vec();
        Case::new(layer(t), Selection::Biased(bias), t.values.clone())
    });
    let hash = taken.iter().take(MADE_UP).map(|t| {
        let table = hash_table(&mut dice(0, t.found.layer as u64), t.values.len() / WIDTH, EXPERTS, ACTIVE);
        Case::new(layer(t), table, t.values.clone())
    });
    let label = |t: &Taken, kind: &str| format!("layer {}, {kind}", t.found.layer);
    let labels = taken.iter().map(|t| label(t, "biased"));
    Cases {
        labels: labels.chain(taken.iter().take(MADE_UP).map(|t| label(t, "hash table made up"))).collect(),
        shape: format!(
            "{} recorded layers, at most {TOKENS} tokens of each, gate [{EXPERTS}, {WIDTH}], {ACTIVE} experts a token",
            taken.len()
        ),
        cases: biased.chain(hash).collect(),
        provenance: "weights of the lab model, which has no hash tables, so that those are made up".into(),
    }
}

/// A row of a hash table for each token: different experts, in random order.
fn hash_table(dice: &mut Pcg64, tokens: usize, experts: usize, active: usize) -> Selection {
    let row = |_| sample(dice, experts, active).iter().map(|e| e as u32).collect();
    Selection::Hash((0..tokens).map(row).collect())
}

/// Tokens of the lab's prompt that are taken, spread evenly.
const LAB_TOKENS: usize = 32;
/// Layers of the lab that are given a hash table once more.
const MADE_UP: usize = 3;

/// The experts of every layer of the lab model, with the inputs of its own forward pass; and because
/// it has no hash layers, its first three layers once more with a table that is made up.
pub fn lab(model: &Model, ids: &[u16]) -> Cases<Case> {
    let (site_inputs, _) = activations::lab_site_inputs(model, ids);
    let stride = (ids.len() / LAB_TOKENS).max(1);
    let inputs = |at: usize| -> Vec<f64> {
        let normed = rms(&site_inputs[2 * at + 1], &model.blocks[at].norms[1]);
        normed.chunks_exact(WIDTH).step_by(stride).flatten().copied().collect()
    };
    let layers: Vec<Arc<Layer>> = model.blocks.iter().map(|block| Arc::new(lab_layer(&block.experts))).collect();
    let biased = (0..LAYERS).map(|at| {
        let bias = model.blocks[at].experts.bias.to_vec();
        Case::new(Arc::clone(&layers[at]), Selection::Biased(bias), inputs(at))
    });
    let hash = (0..MADE_UP).map(|at| {
        let inputs = inputs(at);
        let table = hash_table(&mut dice(0, at as u64), inputs.len() / WIDTH, EXPERTS, ACTIVE);
        Case::new(Arc::clone(&layers[at]), table, inputs)
    });
    let cases: Vec<Case> = biased.chain(hash).collect();
    let labels = (0..LAYERS).map(|at| format!("layer {at}, biased"));
    Cases {
        labels: labels.chain((0..MADE_UP).map(|at| format!("layer {at}, hash table made up"))).collect(),
        shape: format!(
            "{LAYERS} layers of {} tokens, gate [{EXPERTS}, {WIDTH}], {ACTIVE} experts a token",
            cases[0].tokens()
        ),
        cases,
        provenance: "the lab model's weights, with the inputs of its own f64 forward pass; it has no hash tables, so \
                     that those of the last three points are made up"
            .into(),
    }
}

fn lab_layer(experts: &Experts) -> Layer {
    let bank = experts.experts.iter().map(|expert| Expert {
        width: WIDTH,
        inner: expert.w1.outputs(),
        w1: expert.w1.rows(),
        w2: expert.w2.rows(),
        w3: expert.w3.rows(),
    });
    Layer {
        width: WIDTH,
        experts: EXPERTS,
        active: ACTIVE,
        scaling: SCALING,
        limit: CLAMP,
        gate: experts.gate.rows(),
        bank: bank.collect(),
    }
}
