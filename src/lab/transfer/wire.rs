//! The form in which a computed prompt travels: a length, a JSON head, and the pages as little-endian floats. Pure.

use serde::{Deserialize, Serialize};

use crate::lab::cache::{PAGE, PAGE_NUMBERS};
use crate::lab::scheduler::{HandOver, TokenLogprob};

/// What stands before the pages.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    page_size: usize,
    page_numbers: usize,
    prompt: usize,
    cached: usize,
    first: Option<TokenLogprob>,
    prompt_logprobs: Vec<TokenLogprob>,
}

/// Why bytes are not a computed prompt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// They end too early, or go on for too long.
    #[error("the state has {got} bytes and should have {wanted}")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes that should have come.
        wanted: usize,
    },
    /// The head cannot be read.
    #[error("the head of the state cannot be read: {0}")]
    Head(String),
    /// The other server keeps its keys otherwise.
    #[error("the state has pages of {got} tokens and numbers, and this server has {wanted}")]
    Layout {
        /// Page size and numbers of the other server.
        got: String,
        /// Page size and numbers of this one.
        wanted: String,
    },
}

/// The bytes of a computed prompt.
pub fn encode(state: &HandOver) -> Vec<u8> {
    let head = Head {
        page_size: PAGE,
        page_numbers: PAGE_NUMBERS,
        prompt: state.prompt,
        cached: state.cached,
        first: state.first.clone(),
        prompt_logprobs: state.prompt_logprobs.clone(),
    };
    // Plain numbers and lists always have a JSON form.
    let head = serde_json::to_vec(&head).unwrap_or_default();
    let mut out = Vec::with_capacity(4 + head.len() + state.pages.len() * PAGE_NUMBERS * 4);
    out.extend((head.len() as u32).to_le_bytes());
    out.extend(head);
    for page in &state.pages {
        out.extend(page.iter().flat_map(|n| n.to_le_bytes()));
    }
    out
}

/// The computed prompt in these bytes.
///
/// # Errors
/// They are torn, or another form of server wrote them.
pub fn decode(bytes: &[u8]) -> Result<HandOver, WireError> {
    let short = |wanted| WireError::Length { got: bytes.len(), wanted };
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| short(4))?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, body) = rest.split_at_checked(length).ok_or_else(|| short(4 + length))?;
    let head: Head = serde_json::from_slice(head).map_err(|e| WireError::Head(e.to_string()))?;
    if (head.page_size, head.page_numbers) != (PAGE, PAGE_NUMBERS) {
        let words = |size: usize, numbers: usize| format!("{size} and {numbers}");
        return Err(WireError::Layout {
            got: words(head.page_size, head.page_numbers),
            wanted: words(PAGE, PAGE_NUMBERS),
        });
    }
    let wanted = head.prompt.div_ceil(PAGE).saturating_mul(PAGE_NUMBERS * 4);
    if body.len() != wanted {
        return Err(short(4 + length + wanted));
    }
    let page = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|n| f32::from_le_bytes(*n)).collect();
    Ok(HandOver {
        prompt: head.prompt,
        cached: head.cached,
        first: head.first,
        prompt_logprobs: head.prompt_logprobs,
        pages: body.chunks_exact(PAGE_NUMBERS * 4).map(page).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> HandOver {
        let page = |seed: usize| (0..PAGE_NUMBERS).map(|i| ((i * 7 + seed) as f32).sin()).collect();
        let token = |logprob, id| TokenLogprob { logprob, id, top: vec![(-0.1, 4), (-2.5, 9)] };
        HandOver {
            prompt: PAGE + 3,
            cached: PAGE,
            first: Some(token(Some(-0.123_456_79), 65)),
            prompt_logprobs: vec![token(None, 1), token(Some(-1e-7), 2)],
            pages: vec![page(1), page(2)],
        }
    }

    #[test]
    fn a_state_arrives_bit_by_bit_as_it_left() {
        assert_eq!(decode(&encode(&state())), Ok(state()));
        let nothing = HandOver { first: None, prompt: 0, pages: Vec::new(), ..state() };
        assert_eq!(decode(&encode(&nothing)), Ok(nothing));
    }

    #[test]
    fn a_torn_state_is_refused_wherever_it_was_torn() {
        let whole = encode(&state());
        for cut in [0, 3, 4, 40, whole.len() / 2, whole.len() - 1] {
            assert!(decode(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert!(matches!(decode(&[whole.as_slice(), &[0]].concat()), Err(WireError::Length { .. })));
        let huge = [&u32::MAX.to_le_bytes()[..], b"{}"].concat();
        assert!(matches!(decode(&huge), Err(WireError::Length { .. })));
    }

    #[test]
    fn a_state_of_other_pages_is_refused() {
        let text =
            "{\"page_size\":256,\"page_numbers\":9,\"prompt\":1,\"cached\":0,\"first\":null,\"prompt_logprobs\":[]}";
        let bytes = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        assert!(matches!(decode(&bytes), Err(WireError::Layout { .. })));
    }
}
