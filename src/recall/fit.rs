//! Brings a conversation to its length in tokens of the server that will read it.
//!
//! Only the server's own tokenizer counts; a length that is merely estimated would hide whole classes of faults.

use super::prompts::{Conversation, Style, conversation};
use crate::recall::trial::TrialKey;
use crate::serving::client::Client;
use crate::serving::error::ServingError;

/// Calls of the tokenizer for one conversation.
const TRIES: usize = 8;

/// A conversation with its length.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The conversation.
    pub conversation: Conversation,
    /// Its length as the server's tokenizer counts it, on target.
    pub tokens: u32,
}

/// Why a conversation did not get its length.
#[derive(Clone, Debug, PartialEq)]
pub enum FitError {
    /// The server's tokenizer could not be asked.
    Serving(ServingError),
    /// The closest length that was reached.
    OffTarget {
        /// Tokens.
        reached: u32,
    },
}

impl From<ServingError> for FitError {
    fn from(error: ServingError) -> Self {
        Self::Serving(error)
    }
}

/// Whether a length is on its target: within 1 %, or within 16 tokens.
pub fn on_target(tokens: u32, target: u32) -> bool {
    tokens.abs_diff(target) <= (target / 100).max(16)
}

/// Makes the conversation of a key and adjusts its filler until the server counts the length of the key.
///
/// The first guess and every step depend on the key and the tokenizer alone, so two arms with one tokenizer
/// get the same text.
///
/// # Errors
/// The tokenizer cannot be asked, or the length cannot be reached.
pub async fn fit(client: &Client, key: &TrialKey, style: Style<'_>) -> Result<Fitted, FitError> {
    let mut tried: Vec<(usize, u32)> = Vec::new();
    let mut bytes = key.length as usize;
    for _ in 0..TRIES {
        let conversation = conversation(key, bytes, style);
        let tokens = client.tokenize(&conversation.messages, &conversation.tools).await?.count;
        if on_target(tokens, key.length) {
            return Ok(Fitted { conversation, tokens });
        }
        tried.push((bytes, tokens));
        let next = next_bytes(&tried, key.length);
        if tried.iter().any(|&(b, _)| b == next) {
            break;
        }
        bytes = next;
    }
    let closest = tried.iter().map(|&(_, t)| t).min_by_key(|t| t.abs_diff(key.length));
    Err(FitError::OffTarget { reached: closest.unwrap_or(0) })
}

/// The size of filler to try next: along the line through the two closest tries.
fn next_bytes(tried: &[(usize, u32)], target: u32) -> usize {
    let mut near = tried.to_vec();
    near.sort_by_key(|&(_, tokens)| tokens.abs_diff(target));
    let Some(&(bytes, tokens)) = near.first() else { return target as usize };
    let gap = f64::from(target) - f64::from(tokens);
    let slope = near.get(1).map(|&(b, t)| (f64::from(tokens) - f64::from(t)) / (bytes as f64 - b as f64));
    // Without a second try the whole text is taken for filler; a slope that no tokenizer has is not believed.
    let slope = slope.filter(|s| (0.02..=4.0).contains(s)).unwrap_or(f64::from(tokens.max(1)) / bytes.max(1) as f64);
    let next = bytes as f64 + gap / slope.clamp(0.02, 4.0);
    next.clamp(0.0, 64.0 * f64::from(target.max(64))) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_tolerance_is_one_percent_or_sixteen_tokens() {
        for (tokens, target, expect) in [
            (1024, 1024, true),
            (1040, 1024, true),
            (1041, 1024, false),
            (1008, 1024, true),
            (8100, 8192, false),
            (8111, 8192, true),
            (60, 1024, false),
        ] {
            assert_eq!(on_target(tokens, target), expect, "{tokens} of {target}");
        }
    }

    /// Follows the steps with a tokenizer of `per_byte` tokens a byte and a fixed part.
    fn reach(target: u32, per_byte: f64, fixed: u32) -> Option<usize> {
        let mut tried = Vec::new();
        let mut bytes = target as usize;
        for step in 1..=TRIES {
            let tokens = fixed + (bytes as f64 * per_byte) as u32;
            if on_target(tokens, target) {
                return Some(step);
            }
            tried.push((bytes, tokens));
            bytes = next_bytes(&tried, target);
        }
        None
    }

    #[test]
    fn byte_level_and_word_level_tokenizers_need_few_calls() {
        assert!(reach(1024, 1.0, 420).is_some_and(|n| n <= 3));
        assert!(reach(1024, 0.22, 300).is_some_and(|n| n <= 4));
        assert!(reach(100_000, 0.25, 500).is_some_and(|n| n <= 3));
    }

    #[test]
    fn a_length_below_the_fixed_part_is_not_reached() {
        assert_eq!(reach(100, 1.0, 420), None);
    }

    proptest! {
        #[test]
        fn every_sensible_tokenizer_is_met(target in 512_u32..200_000, per_byte in 0.1..1.5_f64, fixed in 20_u32..450) {
            prop_assert!(reach(target, per_byte, fixed).is_some());
        }
    }
}
