//! Turning generated tokens into text as they come: whole characters only, stop texts held back. Pure.

use crate::lab::model::tokens;
use crate::lab::scheduler::{Event, Finish};

/// The text of one answer.
#[derive(Debug, Default)]
pub(super) struct Text {
    bytes: Vec<u8>,
    sent: usize,
    hold: usize,
    emitted: String,
}

impl Text {
    /// A text that may end in one of `stop`.
    pub(super) fn new(stop: &[String]) -> Self {
        let hold = stop.iter().map(String::len).max().unwrap_or(0);
        Self { hold, ..Self::default() }
    }

    /// Takes one token; returns the text that is certain now.
    pub(super) fn push(&mut self, id: u16) -> String {
        self.bytes.extend(tokens::bytes(&[id]));
        let limit = self.bytes.len().saturating_sub(self.hold).max(self.sent);
        let certain = &self.bytes[self.sent..limit];
        let whole = match std::str::from_utf8(certain) {
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            Ok(_) | Err(_) => certain.len(),
        };
        self.emit(self.sent + whole)
    }

    /// The rest, when the answer is over.
    pub(super) fn end(&mut self, finish: &Finish) -> String {
        if let Finish::StopText(stop) = finish {
            let kept = self.bytes.len().saturating_sub(stop.len()).max(self.sent);
            self.bytes.truncate(kept);
        }
        self.emit(self.bytes.len())
    }

    /// Everything emitted so far.
    pub(super) fn all(&self) -> &str {
        &self.emitted
    }

    fn emit(&mut self, to: usize) -> String {
        let new = String::from_utf8_lossy(&self.bytes[self.sent..to]).into_owned();
        self.sent = to;
        self.emitted.push_str(&new);
        new
    }

    /// The text that an event makes certain.
    pub(super) fn event(&mut self, event: &Event) -> String {
        match event {
            Event::Prefilled { .. } => String::new(),
            Event::Token(token) => self.push(token.id),
            Event::Finished(finish) => self.end(finish),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], stop: &[&str], finish: &Finish, expect: &[&str]) {
        let stop: Vec<String> = stop.iter().map(ToString::to_string).collect();
        let mut text = Text::new(&stop);
        let mut parts: Vec<String> = bytes.iter().map(|b| text.push(u16::from(*b))).collect();
        parts.push(text.end(finish));
        assert_eq!(parts, expect);
        assert_eq!(text.all(), expect.concat());
    }

    #[test]
    fn characters_come_whole() {
        check("aé".as_bytes(), &[], &Finish::Eos, &["a", "", "é", ""]);
        check(&[0xc3], &[], &Finish::Eos, &["", "\u{fffd}"]);
        check(&[0xff, 65], &[], &Finish::Eos, &["\u{fffd}", "A", ""]);
    }

    #[test]
    fn stop_texts_are_never_sent() {
        check(b"ab##", &["##"], &Finish::StopText("##".into()), &["", "", "a", "b", ""]);
        check(b"ab#", &["##"], &Finish::Eos, &["", "", "a", "b#"]);
    }
}
