//! Which products a set of candidates needs: equal ones are made once.
//!
//! Pure. Responsible for telling which candidates share a product and which path makes it. Not
//! responsible for making it.

use crate::kernel::candidate::{Accumulate, Candidate, Order};
use crate::kernel::format::{Rounding, Storage};

/// The fault of a candidate whose product reads the first stream in place of all four.
pub(super) const ONE_STREAM_COPIED: &str = "one-stream-copied";

/// What a product reads as streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    /// What is done to the streams first.
    pub storage: Storage,
    /// The first stream stands in for all four.
    pub copied: bool,
}

/// What makes two products the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// What is done to `fn`.
    pub weight: Storage,
    /// What it reads.
    pub source: Source,
    /// How its sums are made.
    pub accumulate: Accumulate,
}

/// How a product is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// The vector kernel in f64.
    F64,
    /// The vector kernel in f32.
    F32,
    /// [`Accumulate::dot`] row by row, which is some hundred times slower.
    Plain,
}

impl Key {
    /// The product that a candidate needs. `bf16` says that the streams are values of bf16.
    ///
    /// Roundings that cannot change a value are left out: weights are f32 in the checkpoint.
    pub(super) fn of(candidate: &Candidate, bf16: bool) -> Self {
        let f32_sums = candidate.accumulate.dtype == Rounding::F32;
        let streams = candidate.at("streams");
        let idle = match streams {
            Storage::Element(Rounding::Exact) => true,
            Storage::Element(Rounding::F32) => bf16 || f32_sums,
            Storage::Element(Rounding::Tf32 | Rounding::Bf16) => bf16,
            _ => false,
        };
        let weight = match candidate.at("weight") {
            Storage::Element(Rounding::F32) => Storage::default(),
            other => other,
        };
        Self {
            weight,
            source: Source {
                storage: if idle { Storage::default() } else { streams },
                copied: candidate.has_fault(ONE_STREAM_COPIED),
            },
            accumulate: candidate.accumulate,
        }
    }

    pub(super) fn path(&self) -> Path {
        match (self.accumulate.order, self.accumulate.dtype) {
            (Order::Ascending, Rounding::Exact) => Path::F64,
            (Order::Ascending, Rounding::F32) => Path::F32,
            _ => Path::Plain,
        }
    }
}

/// The products of a set of arithmetics.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Distinct products; the first is the reference's.
    pub keys: Vec<Key>,
    /// Which of them each arithmetic needs.
    pub of: Vec<usize>,
}

impl Plan {
    /// `bf16` says that the streams are values of bf16.
    pub(super) fn new(arithmetics: &[Candidate], bf16: bool) -> Self {
        let mut keys = vec![Key::default()];
        let of = arithmetics
            .iter()
            .map(|candidate| {
                // A product that is made outside is not made here too.
                let key = if candidate.is_outside() { Key::default() } else { Key::of(candidate, bf16) };
                keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                    keys.push(key);
                    keys.len() - 1
                })
            })
            .collect();
        Self { keys, of }
    }

    /// All products.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.keys.len()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(text: &str) -> Candidate {
        toml::from_str(&format!("spec = \"mhc-mix\"\nname = \"n\"\n{text}")).unwrap()
    }

    fn check(bf16: bool, texts: &[&str], expect: &[usize]) {
        let all: Vec<Candidate> = texts.iter().map(|t| candidate(t)).collect();
        assert_eq!(Plan::new(&all, bf16).of, expect, "{texts:?}");
    }

    const F32: &str = "accumulate = { in = \"f32\" }";

    #[test]
    fn equal_products_are_made_once() {
        check(true, &["", "round = { weight = \"f32\", streams = \"bf16\", output = \"bf16\" }"], &[0, 0]);
        check(true, &[F32, "accumulate = { in = \"f32\", splits = 4 }", F32], &[1, 2, 1]);
        let bf16 = format!("round = {{ weight = \"bf16\" }}\n{F32}");
        let patch = format!("round = {{ weight = \"bf16\", output = \"bf16\" }}\n{F32}");
        check(true, &[&bf16, &patch, F32], &[1, 1, 2]);
    }

    #[test]
    fn a_rounding_of_the_streams_counts_where_it_can_change_them() {
        let text = format!("round = {{ streams = \"bf16\" }}\n{F32}");
        check(true, &[F32, &text], &[1, 1]);
        check(false, &[F32, &text], &[1, 2]);
        check(false, &["", "round = { streams = \"f32\" }"], &[0, 1]);
        check(true, &["", "round = { streams = \"f16\" }"], &[0, 1]);
    }

    #[test]
    fn faults_behind_the_product_share_it() {
        check(
            true,
            &["fault = \"transposed\"", "fault = \"eps-misplaced\"", "fault = \"one-stream-copied\""],
            &[0, 0, 1],
        );
    }

    #[test]
    fn other_orders_and_formats_take_the_plain_path() {
        let path = |text: &str| Key::of(&candidate(text), true).path();
        assert_eq!((path(""), path(F32)), (Path::F64, Path::F32));
        assert_eq!(path("accumulate = { in = \"f32\", order = \"pairwise\" }"), Path::Plain);
        assert_eq!(path("accumulate = { in = \"bf16\" }"), Path::Plain);
    }
}
