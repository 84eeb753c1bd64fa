//! Colours and characters of the screen: three themes, three palette levels, Unicode or ASCII.
//!
//! Meaning never rests on a colour alone: every role that says something is drawn beside a word or a mark.
//! The colours are told apart with the common kinds of colour blindness (blue against orange, not green
//! against red).

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// How many colours may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// None: bold, dim, underline and reverse only.
    None,
    /// The sixteen of the terminal.
    Ansi,
    /// The fixed 256.
    Indexed,
}

/// A named theme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// For dark terminals.
    #[default]
    Dark,
    /// For light terminals.
    Light,
    /// No colours, whatever the terminal can.
    Mono,
}

impl Theme {
    /// All themes, in the order in which the theme key shows them.
    pub const ALL: [Self; 3] = [Self::Dark, Self::Light, Self::Mono];

    /// Its name in the configuration and in the palette.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::Mono => "mono",
        }
    }

    /// The theme of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Dark => Self::Light,
            Self::Light => Self::Mono,
            Self::Mono => Self::Dark,
        }
    }
}

/// What a piece of the screen means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// Less important: headers of columns, sources, ages.
    Dim,
    /// Title of a pane.
    Title,
    /// Title of the pane that has the focus.
    Focus,
    /// Stands out: names, keys.
    Strong,
    /// A key in the last line.
    Key,
    /// Passed, ready, acquitted.
    Good,
    /// Failed, guilty.
    Bad,
    /// Differs, changed, needs a look.
    Warn,
    /// Could not be told.
    Unknown,
    /// The selected row of the pane that has the focus.
    Selected,
    /// The selected row of another pane.
    SelectedDim,
    /// The title bar.
    Bar,
    /// The word PRODUCTION.
    Production,
    /// The badge CHANGED.
    Changed,
    /// The badges FROZEN and PAST.
    Held,
    /// A cell of the matrix by its failure rate in quarters, 0 (none) to 4 (all).
    Heat(u8),
    /// A curve, by its number.
    Series(u8),
}

/// How things look: theme, palette and character set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The theme.
    pub theme: Theme,
    /// How many colours may be used.
    pub palette: Palette,
    /// Only ASCII characters reach the screen.
    pub ascii: bool,
}

/// Variables of the environment that decide how things look; `None` is not set.
#[derive(Clone, Debug, Default)]
pub struct LookEnv {
    /// `NO_COLOR`.
    pub no_color: Option<String>,
    /// `TERM`.
    pub term: Option<String>,
    /// `COLORTERM`.
    pub colorterm: Option<String>,
    /// `LC_ALL`, else `LC_CTYPE`, else `LANG`.
    pub locale: Option<String>,
    /// `PATCHBENCH_ASCII`.
    pub ascii: Option<String>,
}

impl LookEnv {
    /// Reads the process's environment.
    pub fn read() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        Self {
            no_color: var("NO_COLOR"),
            term: var("TERM"),
            colorterm: var("COLORTERM"),
            locale: var("LC_ALL").or_else(|| var("LC_CTYPE")).or_else(|| var("LANG")),
            ascii: var("PATCHBENCH_ASCII"),
        }
    }
}

impl Look {
    /// The look that the environment asks for, with this theme.
    ///
    /// `NO_COLOR` (any non-empty value) takes the colours away; a locale that is set and does not say
    /// UTF-8, or `PATCHBENCH_ASCII`, leaves ASCII only.
    pub fn from_env(theme: Theme, env: &LookEnv) -> Self {
        let term = env.term.as_deref().unwrap_or("");
        let rich = env.colorterm.is_some() || term.contains("256color") || term.contains("kitty");
        let palette = match term {
            _ if env.no_color.is_some() => Palette::None,
            "dumb" => Palette::None,
            _ if rich => Palette::Indexed,
            _ => Palette::Ansi,
        };
        let utf8 = env.locale.as_deref().is_none_or(|l| {
            let l = l.to_ascii_lowercase();
            l.contains("utf-8") || l.contains("utf8")
        });
        Self { theme, palette, ascii: !utf8 || env.ascii.is_some() || term == "linux" }
    }

    /// The style of a role.
    pub fn style(&self, role: Role) -> Style {
        if self.palette == Palette::None || self.theme == Theme::Mono {
            return mono(role);
        }
        let light = self.theme == Theme::Light;
        let rich = self.palette == Palette::Indexed;
        // Each colour: (256 on dark, 256 on light, one of the sixteen).
        let pick = |dark: u8, on_light: u8, ansi: Color| {
            if rich { Color::Indexed(if light { on_light } else { dark }) } else { ansi }
        };
        let blue = pick(74, 25, Color::Blue);
        let orange = pick(208, 166, Color::Red);
        let yellow = pick(221, 136, Color::Yellow);
        let grey = pick(246, 242, Color::DarkGray);
        let cyan = pick(116, 30, Color::Cyan);
        let plain = Style::new();
        let on = |bg: Color, fg: Color| plain.bg(bg).fg(fg);
        let black = pick(16, 231, if light { Color::White } else { Color::Black });
        match role {
            Role::Text => plain,
            Role::Dim | Role::Title => plain.fg(grey),
            Role::Focus | Role::Key => plain.fg(cyan).add_modifier(Modifier::BOLD),
            Role::Strong => plain.add_modifier(Modifier::BOLD),
            Role::Good => plain.fg(blue),
            Role::Bad => plain.fg(orange).add_modifier(Modifier::BOLD),
            Role::Warn => plain.fg(yellow),
            Role::Unknown => plain.fg(pick(176, 90, Color::Magenta)),
            Role::Selected => plain.add_modifier(Modifier::REVERSED),
            Role::SelectedDim => plain.add_modifier(Modifier::UNDERLINED),
            Role::Bar => on(pick(236, 254, Color::Reset), pick(252, 235, Color::Reset)),
            Role::Production => on(orange, black).add_modifier(Modifier::BOLD),
            Role::Changed => on(yellow, black).add_modifier(Modifier::BOLD),
            Role::Held => on(cyan, black).add_modifier(Modifier::BOLD),
            Role::Heat(level) => {
                let (bg, fg) = if rich { heat(light, level) } else { (Color::Reset, heat_ansi(level)) };
                plain.bg(bg).fg(fg)
            }
            Role::Series(n) => plain.fg(match n % 6 {
                0 => orange,
                1 => blue,
                2 => yellow,
                3 => pick(176, 90, Color::Magenta),
                4 => cyan,
                _ => pick(151, 65, Color::Green),
            }),
        }
    }
}

fn heat(light: bool, level: u8) -> (Color, Color) {
    let (bg, fg) = match (light, level) {
        (false, 0) => (24, 231),
        (false, 1) => (238, 231),
        (false, 2) => (94, 231),
        (false, 3) => (130, 231),
        (false, _) => (208, 16),
        (true, 0) => (153, 16),
        (true, 1) => (254, 16),
        (true, 2) => (223, 16),
        (true, 3) => (215, 16),
        (true, _) => (166, 231),
    };
    (Color::Indexed(bg), Color::Indexed(fg))
}

fn heat_ansi(level: u8) -> Color {
    match level {
        0 => Color::Blue,
        1 | 2 => Color::Yellow,
        _ => Color::Red,
    }
}

fn mono(role: Role) -> Style {
    let plain = Style::new();
    match role {
        Role::Text | Role::Good | Role::Series(_) | Role::Title => plain,
        Role::Dim => plain.add_modifier(Modifier::DIM),
        Role::Focus | Role::Strong | Role::Key | Role::Bad => plain.add_modifier(Modifier::BOLD),
        Role::Warn | Role::Unknown | Role::SelectedDim => plain.add_modifier(Modifier::UNDERLINED),
        Role::Selected | Role::Bar => plain.add_modifier(Modifier::REVERSED),
        Role::Production | Role::Changed | Role::Held => plain.add_modifier(Modifier::REVERSED.union(Modifier::BOLD)),
        Role::Heat(level) => match level {
            0 | 1 => plain,
            2 | 3 => plain.add_modifier(Modifier::UNDERLINED),
            _ => plain.add_modifier(Modifier::REVERSED),
        },
    }
}

/// Replaces every character that is not ASCII, so that no terminal shows rubbish.
///
/// Known marks become similar ASCII ones, everything else `?`.
pub fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        let symbol = cell.symbol();
        if symbol.is_ascii() {
            continue;
        }
        let replacement = symbol.chars().next().map_or('?', ascii_for);
        cell.set_char(replacement);
    }
}

fn ascii_for(c: char) -> char {
    match c {
        '─' | '–' | '—' | '·' | '▄' | '▅' => '-',
        '━' | '═' | '▏' | '▎' | '▍' | '▌' | '▋' | '▊' | '▉' | '▆' | '▇' => '=',
        '│' | '┃' | '╎' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '╭' | '╮' | '╰' | '╯' | '┼' | '┬' | '┴' | '✓' => {
            '+'
        }
        '▸' | '▶' | '›' | '→' => '>',
        '◂' | '←' => '<',
        '●' | '•' => '*',
        '…' => '~',
        '✗' | '×' => 'x',
        '▲' | '↑' | '\u{2400}'..='\u{2426}' => '^',
        '▼' | '↓' => 'v',
        '◆' | '█' => '#',
        '▁' => '_',
        '░' | '▂' | '▃' => '.',
        '⏎' => '$',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;

    const ROLES: [Role; 18] = [
        Role::Text,
        Role::Dim,
        Role::Title,
        Role::Focus,
        Role::Strong,
        Role::Key,
        Role::Good,
        Role::Bad,
        Role::Warn,
        Role::Unknown,
        Role::Selected,
        Role::SelectedDim,
        Role::Bar,
        Role::Production,
        Role::Changed,
        Role::Held,
        Role::Heat(4),
        Role::Series(3),
    ];

    fn env(term: &str) -> LookEnv {
        LookEnv { term: Some(term.into()), locale: Some("C.UTF-8".into()), ..LookEnv::default() }
    }

    #[test]
    fn no_color_means_no_colour_in_any_theme() {
        for theme in Theme::ALL {
            let look = Look::from_env(theme, &LookEnv { no_color: Some("1".into()), ..env("xterm-256color") });
            for role in ROLES {
                let style = look.style(role);
                assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
            }
        }
    }

    #[test]
    fn palette_follows_the_terminal() {
        assert_eq!(Look::from_env(Theme::Dark, &env("xterm-256color")).palette, Palette::Indexed);
        assert_eq!(Look::from_env(Theme::Dark, &env("xterm")).palette, Palette::Ansi);
        assert_eq!(Look::from_env(Theme::Dark, &env("dumb")).palette, Palette::None);
    }

    #[test]
    fn sixteen_colours_are_enough_when_told_so() {
        let look = Look { theme: Theme::Dark, palette: Palette::Ansi, ascii: false };
        for role in ROLES {
            for colour in [look.style(role).fg, look.style(role).bg].into_iter().flatten() {
                assert!(!matches!(colour, Color::Indexed(_) | Color::Rgb(..)), "{role:?}");
            }
        }
    }

    #[test]
    fn a_locale_without_utf8_leaves_ascii() {
        let mut e = env("xterm");
        assert!(!Look::from_env(Theme::Dark, &e).ascii);
        e.locale = Some("POSIX".into());
        assert!(Look::from_env(Theme::Dark, &e).ascii);
        e.locale = None;
        assert!(!Look::from_env(Theme::Dark, &e).ascii);
    }

    #[test]
    fn ascii_pass_leaves_nothing_else() {
        let mut buffer = Buffer::with_lines(["─│▸●…⏎日本é⣿▇x"]);
        to_ascii(&mut buffer);
        assert!(buffer.content.iter().all(|c| c.symbol().is_ascii()));
        assert_eq!(buffer[(0, 0)].symbol(), "-");
        assert_eq!(buffer.area, Rect::new(0, 0, 14, 1));
    }
}
