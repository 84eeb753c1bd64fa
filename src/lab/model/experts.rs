//! Routed experts: which two a token uses, with which weights, and their output.

use pulp::Arch;

use super::linear::Linear;
use super::math::exp;
use super::{ACTIVE, EXPERTS, ROUTED_SCALE, RoutedScaling, SWIGLU_LIMIT, WIDTH};

/// Weights of one block's experts.
#[derive(Clone, Debug)]
pub(super) struct Experts {
    /// Router, `[8, 128]`.
    pub(super) gate: Linear,
    /// Added to the scores for the choice only.
    pub(super) bias: [f32; EXPERTS],
    /// For each expert, the shared one last: `w1` above `w3`, `[256, 128]`.
    pub(super) up: Vec<Linear>,
    /// For each expert, the shared one last: `w2`, `[128, 128]`.
    pub(super) down: Vec<Linear>,
}

/// Chosen experts in ascending order, with their unscaled weights.
fn route(logits: &[f32], bias: &[f32; EXPERTS]) -> [(usize, f32); ACTIVE] {
    let score: [f32; EXPERTS] = std::array::from_fn(|e| softplus(logits[e]).sqrt());
    let mut first = 0;
    for e in 1..EXPERTS {
        if score[e] + bias[e] > score[first] + bias[first] {
            first = e;
        }
    }
    let mut second = usize::from(first == 0);
    for e in 0..EXPERTS {
        if e != first && score[e] + bias[e] > score[second] + bias[second] {
            second = e;
        }
    }
    let sum = score[first] + score[second];
    let (low, high) = if first < second { (first, second) } else { (second, first) };
    [(low, score[low] / sum), (high, score[high] / sum)]
}

fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

impl Experts {
    /// Output for every token of `h`, `[tokens, 128]`; `factor` is the fault factor of each token.
    pub(super) fn apply(
        &self,
        arch: Arch,
        h: &[f32],
        scaling: RoutedScaling,
        factor: impl Fn(usize) -> Option<f32>,
    ) -> Vec<f32> {
        let tokens = h.len() / WIDTH;
        let logits = self.gate.apply(arch, h);
        let mut members: Vec<Vec<(usize, f32)>> = vec![Vec::new(); EXPERTS];
        for (t, logits) in logits.chunks_exact(EXPERTS).enumerate() {
            let mut scale = factor(t).unwrap_or(1.0);
            if scaling == RoutedScaling::Topk {
                scale *= ROUTED_SCALE;
            }
            for (e, w) in route(logits, &self.bias) {
                members[e].push((t, w * scale));
            }
        }
        let mut routed = vec![0.0; tokens * WIDTH];
        for (e, members) in members.iter().enumerate() {
            if members.is_empty() {
                continue;
            }
            let rows: Vec<f32> = members.iter().flat_map(|(t, _)| &h[t * WIDTH..(t + 1) * WIDTH]).copied().collect();
            let out = self.expert(arch, e, &rows);
            for ((t, w), f) in members.iter().zip(out.chunks_exact(WIDTH)) {
                for (o, f) in routed[t * WIDTH..(t + 1) * WIDTH].iter_mut().zip(f) {
                    *o += w * f;
                }
            }
        }
        let after = if scaling == RoutedScaling::Output { ROUTED_SCALE } else { 1.0 };
        let mut out = self.expert(arch, EXPERTS, h);
        for (o, r) in out.iter_mut().zip(&routed) {
            *o += after * r;
        }
        out
    }

    fn expert(&self, arch: Arch, e: usize, rows: &[f32]) -> Vec<f32> {
        let both = self.up[e].apply(arch, rows);
        let mut inner = vec![0.0; rows.len()];
        arch.dispatch(
            #[inline(always)]
            || {
                for (both, out) in both.chunks_exact(2 * WIDTH).zip(inner.chunks_exact_mut(WIDTH)) {
                    let (gate, up) = both.split_at(WIDTH);
                    for i in 0..WIDTH {
                        let g = gate[i].min(SWIGLU_LIMIT);
                        out[i] = g / (1.0 + exp(-g)) * up[i].clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT);
                    }
                }
            },
        );
        self.down[e].apply(arch, &inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biased_scores_choose_but_do_not_weigh() {
        let mut logits = [-30.0; EXPERTS];
        logits[..4].copy_from_slice(&[0.0, 1.0, 2.0, -1.0]);
        let mut bias = [-9.0; EXPERTS];
        bias[..4].copy_from_slice(&[0.0, 0.0, -1.0, 2.0]);
        let [one, three] = route(&logits, &bias);
        assert_eq!((one.0, three.0), (1, 3));
        assert!((three.1 * 1.5 - 0.492_208_2).abs() < 1e-5);
        assert!((one.1 * 1.5 - 1.007_791_8).abs() < 1e-5);
    }

    #[test]
    fn softplus_root_golden_values() {
        let expect = [(-20.0, 4.539_99e-5), (-2.0, 0.356_269_6), (0.0, 0.832_554_6), (2.0, 1.458_4), (20.0, 4.472_136)];
        for (x, want) in expect {
            assert!((softplus(x).sqrt() - want).abs() < 1e-5 * want.max(1e-3), "{x}");
        }
    }

    #[test]
    fn equal_scores_take_the_lower_experts() {
        let picked = route(&[1.0; EXPERTS], &[0.0; EXPERTS]);
        assert_eq!(picked.map(|p| p.0), [0, 1]);
    }
}
