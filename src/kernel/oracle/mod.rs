//! The reference in f64: the lab model as its page states it, in plain loops.
//!
//! Responsible for being right. It shares no code with the lab's server, so that each can be held
//! against the other. Not responsible for speed beyond what a microtest needs, for caches, or for
//! any candidate's arithmetic.
//!
//! Unless a function says otherwise, sums start at zero and take their terms in ascending order of
//! the index that is summed over.

pub mod attention;
pub mod compressor;
pub mod experts;
pub mod hadamard;
pub mod hyper;
pub mod indexer;
pub mod model;
pub mod pages;
pub mod quantise;
pub mod rotary;
pub mod router;
pub mod sparse;
pub mod swiglu;

/// Added under every root, to every divisor and to `pre`, as the model's configuration states.
pub const EPS: f64 = 1e-6;

/// `1 / sqrt(mean(v^2) + eps)`.
pub fn inverse_rms(v: &[f64]) -> f64 {
    let squares: f64 = v.iter().map(|x| x * x).sum();
    1.0 / (squares / v.len() as f64 + EPS).sqrt()
}

/// `v / sqrt(mean(v^2) + eps) * weight`, for every row of `v` (`[rows, weight.len()]`).
pub fn rms(v: &[f64], weight: &[f64]) -> Vec<f64> {
    let mut out = Vec::with_capacity(v.len());
    for row in v.chunks_exact(weight.len()) {
        let scale = inverse_rms(row);
        out.extend(row.iter().zip(weight).map(|(x, w)| x * scale * w));
    }
    out
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rms_norm_of_a_known_row() {
        let got = rms(&[3.0, 4.0], &[1.0, 2.0]);
        let root = (12.5_f64 + EPS).sqrt();
        assert_eq!(got, [3.0 * (1.0 / root), 4.0 * (1.0 / root) * 2.0]);
    }

    #[test]
    fn a_zero_row_stays_finite() {
        assert_eq!(rms(&[0.0, 0.0], &[1.0, 1.0]), [0.0, 0.0]);
        assert_eq!(inverse_rms(&[0.0]), 1e3);
    }
}
