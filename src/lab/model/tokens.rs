//! The vocabulary: bytes and a few control tokens.

/// Start of a conversation.
pub const BOS: u16 = 256;
/// End of an assistant message.
pub const EOS: u16 = 257;
/// Opens a user message.
pub const USER: u16 = 258;
/// Opens an assistant message.
pub const ASSISTANT: u16 = 259;
/// Opens a system message.
pub const SYSTEM: u16 = 260;

/// Tokens of a text: its UTF-8 bytes.
pub fn encode(text: &str) -> impl Iterator<Item = u16> + '_ {
    text.bytes().map(u16::from)
}

/// Bytes of tokens; control tokens are left out.
pub fn bytes(ids: &[u16]) -> Vec<u8> {
    ids.iter().filter_map(|id| u8::try_from(*id).ok()).collect()
}

/// Text of tokens; bytes that are not UTF-8 become U+FFFD, control tokens are left out.
pub fn decode(ids: &[u16]) -> String {
    String::from_utf8_lossy(&bytes(ids)).into_owned()
}

/// Text of tokens with the control tokens spelled out.
pub fn decode_special(ids: &[u16]) -> String {
    let mut out = Vec::new();
    for id in ids {
        match u8::try_from(*id) {
            Ok(byte) => out.push(byte),
            Err(_) => out.extend_from_slice(special(*id).as_bytes()),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn special(id: u16) -> &'static str {
    match id {
        BOS => "<bos>",
        EOS => "<eos>",
        USER => "<user>",
        ASSISTANT => "<assistant>",
        SYSTEM => "<system>",
        _ => "<unused>",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_round_trip(text in ".*") {
            let ids: Vec<u16> = encode(&text).collect();
            prop_assert_eq!(decode(&ids), text);
        }
    }

    #[test]
    fn control_tokens_are_left_out_or_spelled() {
        assert_eq!(decode(&[BOS, 72, 105, EOS]), "Hi");
        assert_eq!(decode_special(&[BOS, 72, 105, EOS, 262]), "<bos>Hi<eos><unused>");
    }
}
