//! Routed experts of one layer, with one shared expert.
//!
//! Responsible for the router and for the experts' arithmetic. Not responsible for how a server
//! groups tokens: the result does not depend on it.

use crate::kernel::matrix::Matrix;
use crate::kernel::oracle::router::score;
use crate::kernel::oracle::swiglu::swiglu;

/// Routed experts; the shared one comes after them.
pub const EXPERTS: usize = 8;
/// Experts that a token uses besides the shared one.
pub const ACTIVE: usize = 2;
/// The sum of the routed weights of a token.
pub const SCALING: f64 = 1.5;
/// Bound of the `SwiGLU` inputs.
pub const CLAMP: f64 = 10.0;

/// Weights of the experts of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// The router, `[experts, width]`.
    pub gate: Matrix<f64>,
    /// Added to the scores for the choice only.
    pub bias: [f64; EXPERTS],
    /// The experts, the shared one last.
    pub experts: Vec<Expert>,
}

/// Weights of one expert.
#[derive(Clone, Debug, PartialEq)]
pub struct Expert {
    /// Gate, `[inner, width]`.
    pub w1: Matrix<f64>,
    /// Down, `[width, inner]`.
    pub w2: Matrix<f64>,
    /// Up, `[inner, width]`.
    pub w3: Matrix<f64>,
}

/// The two experts of a token, ascending.
pub type Chosen = [usize; ACTIVE];

/// The output of the experts for the normed inputs `h` (`[tokens, width]`), same shape, and the
/// experts that each token took.
///
/// A token's sum takes its routed experts in ascending order of index, then the shared one.
pub fn run(layer: &Experts, h: &[f64], tokens: usize) -> (Vec<f64>, Vec<Chosen>) {
    let width = h.len() / tokens.max(1);
    let logits = layer.gate.times(h);
    let (logits, _) = logits.as_chunks::<EXPERTS>();
    let routes: Vec<[(usize, f64); ACTIVE]> = logits.iter().map(|row| route(row, &layer.bias)).collect();
    let mut out = vec![0.0; h.len()];
    for (index, expert) in layer.experts.iter().enumerate() {
        let weight = |t: usize| {
            if index == EXPERTS { Some(1.0) } else { routes[t].iter().find(|(e, _)| *e == index).map(|(_, w)| *w) }
        };
        let chosen: Vec<(usize, f64)> = (0..tokens).filter_map(|t| weight(t).map(|w| (t, w))).collect();
        let inputs: Vec<f64> = chosen.iter().flat_map(|(t, _)| &h[t * width..][..width]).copied().collect();
        let outputs = apply(expert, &inputs);
        for ((t, weight), row) in chosen.iter().zip(outputs.chunks_exact(width)) {
            out[t * width..][..width].iter_mut().zip(row).for_each(|(o, y)| *o += weight * y);
        }
    }
    let chosen = routes.iter().map(|[(a, _), (b, _)]| [*a.min(b), *a.max(b)]).collect();
    (out, chosen)
}

/// The two experts with the largest biased score, best first, with their weights.
///
/// The score is `sqrt(softplus(logit))`; weights are the **unbiased** scores over their sum, times
/// 1.5. Of equal scores the lower index wins.
pub fn route(logits: &[f64; EXPERTS], bias: &[f64; EXPERTS]) -> [(usize, f64); ACTIVE] {
    let scores = logits.map(score);
    let mut order: [usize; EXPERTS] = std::array::from_fn(|e| e);
    order.sort_by(|a, b| (scores[*b] + bias[*b]).total_cmp(&(scores[*a] + bias[*a])));
    let sum: f64 = order[..ACTIVE].iter().map(|e| scores[*e]).sum();
    std::array::from_fn(|i| (order[i], scores[order[i]] / sum * SCALING))
}

/// `w2 (silu(min(w1 h, 10)) * clamp(w3 h, -10, 10))` for every row of `h`.
fn apply(expert: &Expert, h: &[f64]) -> Vec<f64> {
    let mut inner = expert.w1.times(h);
    let up = expert.w3.times(h);
    inner.iter_mut().zip(up).for_each(|(g, u)| *g = swiglu(*g, u, CLAMP));
    expert.w2.times(&inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, expect: f64, tolerance: f64) {
        assert!((got - expect).abs() <= tolerance, "{got} where {expect} is known");
    }

    #[test]
    fn score_golden_values() {
        let check = |x: f64, expect: f64| close(score(x), expect, 1e-8);
        check(-20.0, 4.539_99e-5);
        check(-2.0, 0.356_269_576);
        check(0.0, 0.832_554_611);
        check(1.0, 1.145_976_303);
        check(2.0, 1.458_399_126);
        check(20.0, 4.472_135_955);
        assert_eq!(crate::kernel::oracle::router::softplus(1e4), 1e4);
    }

    #[test]
    fn biased_scores_choose_and_do_not_weigh() {
        let far = f64::NEG_INFINITY;
        let bias = [0.0, 0.0, -1.0, 2.0, far, far, far, far];
        let got = route(&[0.0, 1.0, 2.0, -1.0, 0.0, 0.0, 0.0, 0.0], &bias);
        assert_eq!((got[0].0, got[1].0), (3, 1));
        close(got[0].1, 0.492_208_18, 1e-8);
        close(got[1].1, 1.007_791_82, 1e-8);
    }

    #[test]
    fn routed_weights_sum_to_the_scaling_factor() {
        let got = route(&[0.3, -0.2, 0.9, 1.4, -3.0, 0.0, 0.1, 0.2], &[0.0; EXPERTS]);
        close(got[0].1 + got[1].1, SCALING, 1e-12);
    }

    #[test]
    fn equal_scores_take_the_lower_index() {
        let got = route(&[1.0; EXPERTS], &[0.0; EXPERTS]);
        assert_eq!((got[0].0, got[1].0), (0, 1));
    }

    #[test]
    fn swiglu_golden_values() {
        close(swiglu(12.0, -15.0, CLAMP), -99.995_460_21, 1e-8);
        close(swiglu(-20.0, 3.0, CLAMP), -1.236_69e-7, 1e-12);
        close(swiglu(1.0, 2.0, CLAMP), 1.462_117_16, 1e-8);
    }
}
