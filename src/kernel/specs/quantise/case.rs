//! The operands of one product.

use std::sync::Arc;

use rand_pcg::Pcg64;

use crate::kernel::config::ModelConfig;
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::quantise::{Rule, quantise};
use crate::kernel::oracle::swiglu::swiglu;
use crate::kernel::recorded::Taken;
use crate::kernel::specs::activations::{self, dice, normals};

/// The operands of one product.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The inner index.
    pub width: usize,
    /// `[tokens, width]`.
    pub activation: Vec<f64>,
    /// `[outputs, width]`.
    pub weight: Arc<[f64]>,
}

impl Case {
    /// Whether some block of a row is at least twice as large as the next: else a neighbour's scale is as good.
    pub(super) fn has_uneven_blocks(&self) -> bool {
        let largest = |block: &[f64]| block.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        self.activation.chunks_exact(self.width).any(|row| {
            let blocks: Vec<f64> = row.chunks(STRETCH).map(largest).collect();
            blocks.windows(2).any(|pair| pair[0].max(pair[1]) >= 2.0 * pair[0].min(pair[1]))
        })
    }

    /// Whether a row has more than one square block: else a grid is read alike by rows and by columns.
    pub(super) fn has_a_grid(&self) -> bool {
        self.width > STRETCH
    }

    pub(super) fn flipped(&self, seed: u64) -> Self {
        Self { activation: activations::moved(&self.activation, &mut dice(seed, 2)), ..self.clone() }
    }

    /// The same with weights that MXFP4 holds as they are.
    fn on_grid(&self) -> Self {
        let grid = Rule::named("mxfp4").map(|rule| quantise(&self.weight, self.width, rule).dequantise());
        Self { weight: grid.map_or_else(|| Arc::clone(&self.weight), Arc::from), ..self.clone() }
    }
}

/// Tokens and outputs of a case: enough for two rows of square blocks, the second of them short.
const SIZES: [usize; 2] = [12, 136];
/// Columns that share one spread in the weights.
const STRETCH: usize = 128;
/// What made-up weights are like.
const WEIGHTS: &str = "normal with a log-normal spread of 0.3 by output and 0.5 by stretch of 128 inputs, in bf16";

/// Synthetic operands, as wide as a model's own.
pub fn synthetic(config: &ModelConfig, seed: u64) -> Cases<Case> {
    let [tokens, outputs] = SIZES;
    let (hidden, inner) = (config.hidden_size, config.hidden_size / 2);
    let into = &mut dice(seed, 200);
    let up = Case {
        width: hidden,
        activation: activations::synthetic(into, tokens, hidden),
        weight: weights(into, outputs, hidden).into(),
    };
    let out = &mut dice(seed, 201);
    let down = Case {
        width: inner,
        activation: gated(out, tokens * inner, config.swiglu_limit),
        weight: weights(out, outputs, inner).into(),
    };
    let on_grid = down.on_grid();
    Cases {
        labels: vec![
            format!("into experts, {hidden} wide"),
            format!("out of experts, {inner} wide"),
            format!("out of experts, {inner} wide, weights already MXFP4"),
        ],
        cases: vec![up, down, on_grid],
        shape: format!("{tokens} tokens, {outputs} outputs, {hidden} and {inner} wide"),
        provenance: format!(
            "synthetic, seed {seed}: inputs into experts are {}; those out of experts are gated normal numbers; weights \
             are {WEIGHTS}",
            activations::SHAPE
        ),
    }
}

/// Of a recording at most so many tensors are taken, and so many tokens of each.
pub const RECORDED: [usize; 2] = [12, SIZES[0]];

/// Recorded inputs of products with weights that are made up; the last once more with weights on the MXFP4 grid.
pub fn recorded(seed: u64, taken: &[Taken]) -> Cases<Case> {
    let case = |taken: &Taken| {
        let (width, of_layer) = (taken.found.width, 2 * taken.found.layer as u64);
        let dice = &mut dice(seed, 200 + of_layer + u64::from(taken.found.name == "down_input"));
        Case { width, activation: taken.values.clone(), weight: weights(dice, SIZES[1], width).into() }
    };
    let label = |taken: &Taken| format!("layer {} {}, {} wide", taken.found.layer, taken.found.says, taken.found.width);
    let mut cases: Vec<Case> = taken.iter().map(case).collect();
    let mut labels: Vec<String> = taken.iter().map(label).collect();
    if let (Some(last), Some(label)) = (cases.last().map(Case::on_grid), labels.last()) {
        labels.push(format!("{label}, weights already MXFP4"));
        cases.push(last);
    }
    let [tokens, outputs] = SIZES;
    Cases {
        labels,
        cases,
        shape: format!("{} recorded inputs, at most {tokens} tokens of each, {outputs} outputs", taken.len()),
        provenance: format!("weights made up, seed {seed}: {WEIGHTS}"),
    }
}

/// What an expert's gated activation makes of normal numbers, in bf16.
fn gated(dice: &mut Pcg64, count: usize, limit: f64) -> Vec<f64> {
    let (gate, up) = (normals(dice, count, 2.0), normals(dice, count, 2.0));
    gate.iter().zip(&up).map(|(g, u)| Rounding::Bf16.round(swiglu(*g, *u, limit))).collect()
}

/// Weights whose blocks differ in size.
fn weights(dice: &mut Pcg64, outputs: usize, width: usize) -> Vec<f64> {
    let rows: Vec<f64> = normals(dice, outputs, 0.3).iter().map(|s| s.exp()).collect();
    let stretches = outputs.div_ceil(STRETCH) * width.div_ceil(STRETCH);
    let stretches: Vec<f64> = normals(dice, stretches, 0.5).iter().map(|s| s.exp()).collect();
    let plain = normals(dice, outputs * width, 0.02);
    let spread = plain.iter().enumerate().map(|(i, w)| {
        let (row, column) = (i / width, i % width);
        w * rows[row] * stretches[row / STRETCH * width.div_ceil(STRETCH) + column / STRETCH]
    });
    Storage::Element(Rounding::Bf16).store(&spread.collect::<Vec<_>>(), width)
}
