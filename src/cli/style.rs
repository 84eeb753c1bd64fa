//! Colour of text output. Colour never carries meaning alone.

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
        if self.color && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

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
    fn plain_text_has_no_escapes() {
        assert_eq!(Style::PLAIN.error("x"), "x");
        assert_eq!(Style::COLORED.good("x"), "\u{1b}[32mx\u{1b}[0m");
    }
}
