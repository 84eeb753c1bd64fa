//! Rounding points of single values.
//!
//! Responsible for turning what a candidate states into a rule. Not responsible for tensors, which
//! `Storage::store` rounds as a whole.

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Storage;

/// What a candidate does to a single value at a point. A format with blocks takes the value for a
/// block of its own.
pub(super) fn rule(candidate: &Candidate, point: &str) -> impl Fn(f64) -> f64 + use<> {
    let storage = candidate.at(point);
    move |x| match storage {
        Storage::Element(rounding) => rounding.round(x),
        block @ Storage::Block(_) => block.store(&[x], 1)[0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_is_not_named_is_exact() {
        let text = "spec = \"x\"\nname = \"n\"\nround = { output = \"bf16\", score = \"fp8-1x128\" }";
        let candidate: Candidate = toml::from_str(text).unwrap();
        let check = |point: &str, x: f64, expect: f64| assert_eq!(rule(&candidate, point)(x), expect, "{point} {x}");
        check("dot", 0.1, 0.1);
        check("output", 1.003_906_25, 1.0);
        check("score", 448.0, 448.0);
    }
}
