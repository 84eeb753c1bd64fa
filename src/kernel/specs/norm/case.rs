//! The inputs of one norm.

use std::sync::Arc;

use rand_pcg::Pcg64;

use crate::kernel::config::ModelConfig;
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::attention::{HEAD, HEADS};
use crate::kernel::oracle::hyper::site_input;
use crate::kernel::oracle::model::{LAYERS, Model, WIDTH, site_label};
use crate::kernel::oracle::{EPS, rms};
use crate::kernel::recorded::{Found, Taken};
use crate::kernel::specs::activations::{self, dice, normals};

/// Rows and the weight of their norm.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What the rows are.
    pub rows: Rows,
    /// Width of a row.
    pub width: usize,
    /// `[rows, width]`.
    pub inputs: Vec<f64>,
    /// One factor a column; ones where the norm has no weight.
    pub weight: Arc<[f64]>,
}

/// What the rows of a norm are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Whole tokens.
    Tokens,
    /// The heads of tokens, so many a token.
    Heads(usize),
}

impl Case {
    pub(super) fn flipped(&self, seed: u64) -> Self {
        Self { inputs: activations::moved(&self.inputs, &mut dice(seed, 1)), ..self.clone() }
    }

    /// The same rows, each scaled to a root mean square of about 1e-3, where eps is half of what is
    /// under the root.
    fn quiet(&self) -> Self {
        let square = self.inputs.iter().map(|v| v * v).sum::<f64>() / self.inputs.len() as f64;
        let scale = (EPS / square).sqrt();
        Self { inputs: self.inputs.iter().map(|v| v * scale).collect(), ..self.clone() }
    }
}

/// Tokens of a synthetic case; of one with heads a few, for each has many rows.
const TOKENS: [usize; 2] = [32, 4];

/// Synthetic norms at a model's own sizes.
pub fn synthetic(config: &ModelConfig, seed: u64) -> Cases<Case> {
    let [many, few] = TOKENS;
    let heads = config.num_attention_heads;
    let case = |number: u64, rows: Rows, tokens: usize, width: usize| {
        let dice = &mut dice(seed, 100 + number);
        let of_token = if let Rows::Heads(heads) = rows { heads } else { 1 };
        let weight = made_up_weight(dice, rows, width);
        Case { rows, width, inputs: activations::synthetic(dice, tokens, of_token * width), weight: weight.into() }
    };
    let hidden = case(0, Rows::Tokens, many, config.hidden_size);
    let mut quiet = case(3, Rows::Tokens, many, config.hidden_size).quiet();
    quiet.inputs = Storage::Element(Rounding::Bf16).store(&quiet.inputs, quiet.width);
    let labels = [
        format!("{} wide", config.hidden_size),
        format!("low-rank query, {} wide", config.q_lora_rank),
        format!("latent key, {} wide", config.head_dim),
        format!("query heads, {heads} of {}, no weight", config.head_dim),
        format!("{} wide, quiet rows", config.hidden_size),
    ];
    Cases {
        labels: labels.into(),
        cases: vec![
            hidden,
            case(1, Rows::Tokens, many, config.q_lora_rank),
            case(2, Rows::Tokens, many, config.head_dim),
            case(4, Rows::Heads(heads), few, config.head_dim),
            quiet,
        ],
        shape: format!("{many} tokens, {few} for the query heads"),
        provenance: format!(
            "synthetic, seed {seed}: inputs are {}; weights 0.6 with a spread of 0.15, in bf16; quiet rows scaled to a \
             root mean square of 1e-3",
            activations::SHAPE
        ),
    }
}

fn made_up_weight(dice: &mut Pcg64, rows: Rows, width: usize) -> Vec<f64> {
    match rows {
        Rows::Heads(_) => vec![1.0; width],
        Rows::Tokens => normals(dice, width, 0.15).iter().map(|w| Rounding::Bf16.round(0.6 + w)).collect(),
    }
}

/// Of a recording at most so many tensors are taken, and so many tokens of each.
pub const RECORDED: [usize; 2] = [24, 32];

/// Recorded inputs under norms that are made up.
pub fn recorded(config: &ModelConfig, seed: u64, taken: &[Taken]) -> Cases<Case> {
    let weight = |found: &Found, rows: Rows, width: usize| {
        made_up_weight(&mut dice(seed, 100 + found.layer as u64), rows, width)
    };
    let weights =
        format!("weights of the norms made up, seed {seed}: 0.6 with a spread of 0.15, in bf16, none for heads");
    of_recorded(taken, config.num_attention_heads, weight, &weights)
}

/// Recorded inputs under the norms of the lab model.
pub fn recorded_in_lab(model: &Model, taken: &[Taken]) -> Cases<Case> {
    let weight = |found: &Found, _: Rows, _: usize| {
        let block = &model.blocks[found.layer];
        match found.name {
            "attn_norm_input" => block.norms[0].clone(),
            "ffn_norm_input" => block.norms[1].clone(),
            "q_heads_input" => block.attention.qn.clone(),
            _ => block.attention.kn.clone(),
        }
    };
    of_recorded(taken, HEADS, weight, "weights of the lab model")
}

fn of_recorded(
    taken: &[Taken],
    heads: usize,
    weight: impl Fn(&Found, Rows, usize) -> Vec<f64>,
    weights: &str,
) -> Cases<Case> {
    let case = |taken: &Taken| {
        let found = &taken.found;
        let (rows, width) = match found.name {
            "q_heads_input" => (Rows::Heads(heads), found.width / heads),
            _ => (Rows::Tokens, found.width),
        };
        Case { rows, width, inputs: taken.values.clone(), weight: weight(found, rows, width).into() }
    };
    let label = |taken: &Taken| format!("layer {} {}", taken.found.layer, taken.found.says);
    let mut cases: Vec<Case> = taken.iter().map(case).collect();
    let mut labels: Vec<String> = taken.iter().map(label).collect();
    if let Some(quiet) = cases.first().map(Case::quiet) {
        labels.push(format!("{}, quiet rows", labels[0]));
        cases.push(quiet);
    }
    let most = taken.iter().map(|t| t.recorded.rows).max().unwrap_or(0);
    Cases {
        labels,
        shape: format!("{} recorded norms, at most {most} tokens of each", taken.len()),
        cases,
        provenance: format!("{weights}; quiet rows are those of the first point, scaled to a root mean square of 1e-3"),
    }
}

/// Tokens of the lab's prompt that are taken, spread evenly.
const LAB_TOKENS: usize = 32;

/// All norms of the lab model with the inputs of its own forward pass, and the first of them once
/// more with quiet rows.
pub fn lab(model: &Model, ids: &[u16]) -> Cases<Case> {
    let (site_inputs, streams) = activations::lab_site_inputs(model, ids);
    let stride = (ids.len() / LAB_TOKENS).max(1);
    let of = |rows: Rows, values: &[f64], weight: &[f64]| {
        let of_token = if let Rows::Heads(heads) = rows { heads } else { 1 } * weight.len();
        let inputs = values.chunks_exact(of_token).step_by(stride).flatten().copied().collect();
        Case { rows, width: weight.len(), inputs, weight: weight.into() }
    };
    let (mut labels, mut cases) = (Vec::new(), Vec::new());
    for (site, input) in site_inputs.iter().enumerate() {
        labels.push(site_label(site));
        cases.push(of(Rows::Tokens, input, &model.blocks[site / 2].norms[site % 2]));
    }
    for layer in 0..LAYERS {
        let (block, attention) = (&model.blocks[layer], &model.blocks[layer].attention);
        let h = rms(&site_inputs[2 * layer], &block.norms[0]);
        labels.push(format!("layer {layer} query heads"));
        cases.push(of(Rows::Heads(HEADS), &attention.wq.times(&h), &attention.qn));
        labels.push(format!("layer {layer} key"));
        cases.push(of(Rows::Heads(1), &attention.wk.times(&h), &attention.kn));
    }
    labels.push("head".into());
    cases.push(of(Rows::Tokens, &head_input(model, &streams), &model.head.norm));
    labels.push("layer 0 attention, quiet rows".into());
    cases.push(cases[0].quiet());
    Cases {
        labels,
        shape: format!(
            "{} norms, {} tokens, {WIDTH} wide, heads {HEAD} wide",
            cases.len() - 1,
            cases[0].inputs.len() / WIDTH
        ),
        cases,
        provenance: "the lab model's weights, with the inputs of its own f64 forward pass; quiet rows are those of \
                     layer 0, scaled to a root mean square of 1e-3"
            .into(),
    }
}

/// What the norm before the vocabulary is given.
fn head_input(model: &Model, streams: &[f64]) -> Vec<f64> {
    site_input(model.head_coefficients(streams).into_iter(), streams, WIDTH)
}
