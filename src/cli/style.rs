//! Colour of text output. Colour never carries meaning alone.

use crate::untrusted::visible_lines;

/// Whether text is coloured, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    color: bool,
}

impl Style {
    /// No colour.
    pub const PLAIN: Self = Self { color: false };
    /// Colour.
    pub const COLORED: Self = Self { color: true };

    /// `setting` is `always`, `never` or `auto`; `auto` colours a terminal unless `NO_COLOR` is set.
    pub fn choose(setting: &str, no_color: bool, terminal: bool) -> Self {
        let color = match setting {
            "always" => true,
            "never" => false,
            _ => terminal && !no_color,
        };
        Self { color }
    }

    /// A word that says that something failed.
    pub fn error(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// A word that asks for attention.
    pub fn warning(self, text: &str) -> String {
        self.paint("1;33", text)
    }

    /// A word that helps.
    pub fn hint(self, text: &str) -> String {
        self.paint("1;36", text)
    }

    /// A word that says that something is well.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// A heading.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Text that matters less.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        let text = visible_lines(text);
        if self.color && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text }
    }

    /// The text as it may go to a terminal: of all control characters, only line ends and the escapes of
    /// this style are left.
    ///
    /// Foreign text can at most colour itself, and colour never carries meaning alone.
    pub fn safe(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\u{1b}') {
            out.push_str(&visible_lines(&rest[..at]));
            rest = &rest[at..];
            let ours = CODES.iter().map(|code| format!("\u{1b}[{code}m")).find(|e| self.color && rest.starts_with(e));
            let taken = ours.as_ref().map_or(1, String::len);
            out.push_str(&ours.unwrap_or_else(|| visible_lines("\u{1b}")));
            rest = &rest[taken..];
        }
        out.push_str(&visible_lines(rest));
        out
    }
}

/// What [`Style`] writes between `ESC [` and `m`.
const CODES: [&str; 7] = ["1;31", "1;33", "1;36", "32", "1", "2", "0"];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(setting: &str, no_color: bool, terminal: bool, expect: bool) {
        assert_eq!(Style::choose(setting, no_color, terminal).color, expect, "{setting} {no_color} {terminal}");
    }

    #[test]
    fn no_color_wins_over_auto_and_loses_to_always() {
        check("auto", false, true, true);
        check("auto", true, true, false);
        check("auto", false, false, false);
        check("always", true, false, true);
        check("never", false, true, false);
    }

    #[test]
    fn only_our_own_escapes_reach_the_terminal() {
        let text = format!("{}\u{1b}[2J\n{}\u{9b}1m", Style::COLORED.error("a\u{1b}b"), Style::COLORED.dim("c"));
        assert_eq!(Style::COLORED.safe(&text), "\u{1b}[1;31ma␛b\u{1b}[0m␛[2J\n\u{1b}[2mc\u{1b}[0m\\u{9b}1m");
        assert!(!Style::PLAIN.safe(&text).contains('\u{1b}'));
    }

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Style::PLAIN.error("x"), "x");
        assert_eq!(Style::COLORED.good("x"), "\u{1b}[32mx\u{1b}[0m");
    }
}
