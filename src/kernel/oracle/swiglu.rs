//! The gated activation of an expert, with its bounds.
//!
//! Responsible for `SwiGLU` and for one expert of any size, in plain loops. Not responsible for the
//! choice of experts, which is [`super::router`].

use crate::kernel::oracle::sigmoid;

/// Weights of one expert; matrices are in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Expert {
    /// Values that it reads and makes.
    pub width: usize,
    /// Values between its two layers.
    pub inner: usize,
    /// Gate, `[inner, width]`.
    pub w1: Vec<f64>,
    /// Down, `[width, inner]`.
    pub w2: Vec<f64>,
    /// Up, `[inner, width]`.
    pub w3: Vec<f64>,
}

impl Expert {
    /// `w2 swiglu(w1 h, w3 h)` for one token `h` of `width` values; `limit` as in [`swiglu`].
    pub fn apply(&self, h: &[f64], limit: f64) -> Vec<f64> {
        let (gate, up) = (times(&self.w1, h), times(&self.w3, h));
        let inner: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| swiglu(*g, *u, limit)).collect();
        times(&self.w2, &inner)
    }
}

/// `silu(min(gate, limit)) * clamp(up, -limit, limit)`, where `silu(x) = x sigmoid(x)`.
///
/// The gate has no lower bound: below about -10 its `silu` is almost nothing anyway. An infinite
/// limit is none. Source: the public reference implementation of DeepSeek-V4 (`inference/model.py`).
pub fn swiglu(gate: f64, up: f64, limit: f64) -> f64 {
    let gate = gate.min(limit);
    gate * sigmoid(gate) * up.clamp(-limit, limit)
}

/// `m x` for a matrix `[m.len() / x.len(), x.len()]`.
fn times(m: &[f64], x: &[f64]) -> Vec<f64> {
    m.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, v)| w * v).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_values() {
        let check = |gate: f64, up: f64, limit: f64, expect: f64, tolerance: f64| {
            let got = swiglu(gate, up, limit);
            assert!((got - expect).abs() < tolerance, "{got} where {expect} is known");
        };
        check(12.0, -15.0, 10.0, -99.995_460_21, 1e-8);
        check(-20.0, 3.0, 10.0, -1.236_69e-7, 1e-12);
        check(1.0, 2.0, 10.0, 1.462_117_16, 1e-8);
        check(12.0, -15.0, f64::INFINITY, -179.998_89, 1e-5);
    }

    #[test]
    fn bounds_are_one_sided_for_the_gate_and_two_sided_for_the_other() {
        assert_eq!(swiglu(50.0, 1.0, 10.0), swiglu(10.0, 1.0, 10.0));
        assert_ne!(swiglu(-50.0, 1.0, 10.0), swiglu(-10.0, 1.0, 10.0));
        assert_eq!(swiglu(1.0, 50.0, 10.0), -swiglu(1.0, -50.0, 10.0));
        assert!(swiglu(f64::NAN, 1.0, 10.0).is_nan() || swiglu(1.0, f64::NAN, 10.0).is_nan());
    }

    #[test]
    fn an_expert_is_gate_up_down() {
        let expert = Expert { width: 2, inner: 1, w1: vec![1.0, 0.0], w3: vec![0.0, 1.0], w2: vec![1.0, -2.0] };
        let inner = swiglu(3.0, 4.0, 10.0);
        assert_eq!(expert.apply(&[3.0, 4.0], 10.0), [inner, -2.0 * inner]);
    }
}
