//! Inputs of the compressor's microtest.
//!
//! Responsible for cases, labels and where they come from. Not responsible for any arithmetic. The
//! lab model has no compressor, so there are no cases of it.

use rand_pcg::Pcg64;

use super::Case;
use crate::kernel::config::ModelConfig;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::compressor::{Compressor, OVERLAPPING};
use crate::kernel::oracle::rotary::{Rotary, Yarn};
use crate::kernel::specs::activations::{SHAPE, dice, normals, synthetic as activations};

/// Standard deviation of a gate and of what its place adds: wide enough that tokens weigh differently.
const GATE: f64 = 1.5;

/// A sequence and its compressor.
struct Sequence {
    what: &'static str,
    dim: usize,
    ratio: usize,
    tokens: usize,
    width: usize,
}

/// Keys of the indexer at all four lengths modulo 4, keys of a layer with ratio 4, and keys of a
/// layer with ratio 128 at the lengths 0, 1 and 127 modulo 128.
///
/// Keys have their published width. A token is narrower than in the model, so that the projections do
/// not take all the time: they are plain products, and everything after them is what is tested.
pub fn synthetic(config: &ModelConfig, seed: u64) -> Cases<Case> {
    let sequence = |what, dim, ratio, tokens, width| Sequence { what, dim, ratio, tokens, width };
    let mut sequences: Vec<Sequence> =
        (0..OVERLAPPING).map(|over| sequence("indexer", config.index_head_dim, OVERLAPPING, 24 + over, 512)).collect();
    sequences.push(sequence("attention", config.head_dim, OVERLAPPING, 23, 256));
    for over in [0, 1, 127] {
        sequences.push(sequence("attention", config.head_dim, 128, if over == 0 { 256 } else { 128 + over }, 64));
    }
    let label =
        |s: &Sequence| format!("{} keys, ratio {}, {} tokens (mod {})", s.what, s.ratio, s.tokens, s.tokens % s.ratio);
    let one = |(i, s): (usize, &Sequence)| one(config, &mut dice(seed, i as u64), s);
    Cases {
        labels: sequences.iter().map(label).collect(),
        cases: sequences.iter().enumerate().map(one).collect(),
        shape: format!(
            "keys of {} and {}, 23 to 256 tokens, whose width of {} is cut to 512, 256 and 64",
            config.index_head_dim, config.head_dim, config.hidden_size
        ),
        provenance: format!(
            "synthetic, seed {seed}: {SHAPE}; normal weights and places in f32, gates about {GATE} wide"
        ),
    }
}

fn one(config: &ModelConfig, dice: &mut Pcg64, sequence: &Sequence) -> Case {
    let &Sequence { dim, ratio, tokens, width, .. } = sequence;
    let rotary = Rotary::new(config.qk_rope_head_dim, config.compress_rope_theta, Some(Yarn::DEEPSEEK_V4));
    let mut compressor = Compressor { ratio, dim, ape: Vec::new(), norm: Vec::new(), rotary };
    let inputs = compressor.inputs();
    compressor.ape = to_f32(&normals(dice, ratio * inputs, GATE));
    compressor.norm = normals(dice, dim, 0.2).iter().map(|x| Rounding::Bf16.round(1.0 + x)).collect();
    let x = activations(dice, tokens, width);
    // Weights such that projected tokens have about these widths, outliers and all.
    let size = (x.iter().map(|x| x * x).sum::<f64>() / tokens as f64).sqrt();
    let values = to_f32(&normals(dice, inputs * width, 1.0 / size));
    let gates = to_f32(&normals(dice, inputs * width, GATE / size));
    Case { compressor, values, gates, x, width }
}

fn to_f32(values: &[f64]) -> Vec<f64> {
    values.iter().map(|x| Rounding::F32.round(*x)).collect()
}
