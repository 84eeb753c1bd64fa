//! Text measured in screen cells: cut, pad, wrap, and say how old something is.
//!
//! Not responsible for foreign text; that has been made visible before it comes here.

use std::time::Duration;

use jiff::Timestamp;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of `text` in screen cells.
pub fn width(text: &str) -> usize {
    text.width()
}

/// `text` cut to at most `cells` screen cells; a cut text ends in `…`.
pub fn cut(text: &str, cells: usize) -> String {
    if text.width() <= cells {
        return text.to_owned();
    }
    if cells == 0 {
        return String::new();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w > cells - 1 {
            break;
        }
        used += w;
        out.push(c);
    }
    out.push('…');
    out
}

/// `text` cut or padded on the right to exactly `cells` screen cells.
pub fn fit(text: &str, cells: usize) -> String {
    let mut out = cut(text, cells);
    out.extend(std::iter::repeat_n(' ', cells.saturating_sub(out.width())));
    out
}

/// `text` cut or padded on the left to exactly `cells` screen cells.
pub fn fit_right(text: &str, cells: usize) -> String {
    let out = cut(text, cells);
    let pad = cells.saturating_sub(out.width());
    format!("{}{out}", " ".repeat(pad))
}

/// `text` broken into lines of at most `cells` screen cells, at spaces where there are any.
///
/// Nothing is dropped but the space at which a line is broken; a word that is too long is broken inside.
pub fn wrap(text: &str, cells: usize) -> Vec<String> {
    let cells = cells.max(1);
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        let mut used = 0;
        for word in paragraph.split(' ') {
            let w = word.width();
            let gap = usize::from(!line.is_empty());
            if used + gap + w <= cells {
                if gap == 1 {
                    line.push(' ');
                }
                line.push_str(word);
                used += gap + w;
                continue;
            }
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            used = 0;
            for c in word.chars() {
                let cw = c.width().unwrap_or(0);
                if used + cw > cells {
                    lines.push(std::mem::take(&mut line));
                    used = 0;
                }
                line.push(c);
                used += cw;
            }
        }
        lines.push(line);
    }
    lines
}

/// How long ago `at` was, in the largest whole unit: `3s`, `12m`, `5h`, `2d`; the future is `0s`.
pub fn age(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs().max(0);
    short_seconds(seconds.unsigned_abs())
}

/// A length of time in the largest whole unit, as [`age`] writes it.
pub fn short_duration(duration: Duration) -> String {
    short_seconds(duration.as_secs())
}

fn short_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `1 trial`, `2 trials`.
pub fn counted(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// A time of day in UTC, `14:03:09`.
pub fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wide_characters_count_two_cells() {
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(fit("日本", 5), "日本 ");
        assert_eq!(fit_right("12", 4), "  12");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut("abc", 3), "abc");
    }

    #[test]
    fn wrap_breaks_at_spaces_and_inside_long_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("a\n\nb", 5), ["a", "", "b"]);
        assert_eq!(wrap("ab abcdef", 4), ["ab", "abcd", "ef"]);
    }

    #[test]
    fn age_uses_the_largest_whole_unit() {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let later = |s: i64| Timestamp::from_second(at.as_second() + s).unwrap();
        for (seconds, expect) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (200_000, "2d"), (-5, "0s")]
        {
            assert_eq!(age(later(seconds), at), expect);
        }
    }

    #[test]
    fn counts_agree_with_their_noun() {
        assert_eq!(counted(1, "trial"), "1 trial");
        assert_eq!(counted(0, "trial"), "0 trials");
    }

    proptest! {
        #[test]
        fn fit_is_exact_and_wrap_never_overflows(text in "\\PC{0,40}", cells in 2usize..30) {
            prop_assert_eq!(width(&fit(&text, cells)), cells);
            for line in wrap(&text, cells) {
                // Zero-width joiners can make a sequence wider than the sum of its characters, never by more than the last one.
                prop_assert!(line.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>() <= cells);
            }
        }
    }
}
