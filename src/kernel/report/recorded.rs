//! Which recorded activations a microtest was given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tensor of a recording whose first rows were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    /// What it is called in the recording.
    pub tensor: String,
    /// The file that holds it.
    pub file: String,
    /// Stored type, such as `BF16`.
    pub dtype: String,
    /// Extent of each dimension of the whole tensor, slowest first.
    pub shape: Vec<usize>,
    /// How many of its rows were taken, from the first on.
    pub rows: usize,
    /// blake3 of their bytes as stored.
    pub hash: String,
}

impl Recorded {
    /// The tensor in one clause.
    pub fn says(&self) -> String {
        format!(
            "`{}` of {} ({} {:?}, first {} rows, blake3 {})",
            self.tensor,
            self.file,
            self.dtype,
            self.shape,
            self.rows,
            self.hash.get(..12).unwrap_or(&self.hash)
        )
    }
}

/// So many tensors are named in a sentence; the report has all.
const NAMED: usize = 3;

/// What was taken, in one clause.
pub fn says(all: &[Recorded]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(Recorded::says).collect();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more, which the report lists"),
    };
    format!("recorded: {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_tensors_are_named_and_the_others_counted() {
        let one = |n: usize| Recorded {
            tensor: format!("layers.{n}.ffn_input"),
            file: "d/x.safetensors".into(),
            dtype: "BF16".into(),
            shape: vec![512, 4096],
            rows: 16,
            hash: "0123456789abcdef".into(),
        };
        let first = "`layers.0.ffn_input` of d/x.safetensors (BF16 [512, 4096], first 16 rows, blake3 0123456789ab)";
        assert_eq!(says(&[one(0)]), format!("recorded: {first}"));
        let many = says(&(0..5).map(one).collect::<Vec<_>>());
        assert!(many.starts_with(&format!("recorded: {first}, `layers.1")), "{many}");
        assert!(many.ends_with(" and 2 more, which the report lists"), "{many}");
    }
}
