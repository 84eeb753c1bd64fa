//! The lines of a patch in its detail: what was added, what was taken away, and where.
//!
//! The sign of each line stays, so that its colour says nothing that the text does not.
//! Not responsible for what the lines mean; see `patch::facts`.

use ratatui::text::Line;

use super::{View, fact};
use crate::patch::types::{Entry, Origin, Piece};
use crate::ui::text::counted;
use crate::ui::theme::Role;
use crate::untrusted::Untrusted;

/// The most lines that are shown; a screen has fewer, and each of them is laid out anew when something changes.
const MOST_LINES: usize = 200;
/// The most characters of a line; lines of generated code have no end.
const MOST_CHARS: usize = 400;

/// The lines of an imported patch, or one sentence on why there are none and how to see them.
pub fn lines(view: &View<'_>, entry: &Entry) -> Vec<Line<'static>> {
    let sums = format!("+{} -{}", entry.added, entry.removed);
    let missing = |why: String| vec![fact(view, "diff", format!("{sums}; {why}; {}", elsewhere(entry)), Role::Dim)];
    let text = match &entry.piece {
        Some(Piece::Kept { text }) => text,
        Some(Piece::TooLong { bytes }) => {
            return missing(format!("its {} are more than a session keeps of one patch", size(*bytes)));
        }
        Some(Piece::NoRoom { bytes }) => {
            return missing(format!("its {} had no room beside the other patches of its import", size(*bytes)));
        }
        None => return missing("its lines were not kept when it was imported".into()),
    };
    let all: Vec<&str> = text.raw().split_terminator('\n').collect();
    let mut out = vec![fact(view, "diff", format!("{sums}, {}", counted(all.len(), "line")), Role::Text)];
    let mut within = Within::Header;
    for line in all.iter().take(MOST_LINES) {
        within = within.after(line);
        out.push(view.line(visible(line), role(within, line)));
    }
    if let Some(more) = all.len().checked_sub(MOST_LINES).filter(|n| *n > 0) {
        let said = format!("{} more; {}", counted(more, "line"), elsewhere(entry));
        out.push(view.line(said, Role::Warn));
    }
    out
}

/// Where a line stands: a line of a hunk may look like a header, as a removed comment of SQL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Before the first hunk of a file, or behind the last one.
    Header,
    /// At the head of a hunk of so many old and new lines.
    HunkHead(u32, u32),
    /// In a hunk that goes on for so many old and new lines.
    Hunk(u32, u32),
}

impl Within {
    fn after(self, line: &str) -> Self {
        let (old, new) = match self {
            Self::HunkHead(old, new) | Self::Hunk(old, new) if old + new > 0 => (old, new),
            // That the file has no line end at its end is said behind the last line.
            Self::Hunk(..) if line.starts_with('\\') => (0, 0),
            _ => return counts(line).map_or(Self::Header, |(old, new)| Self::HunkHead(old, new)),
        };
        match line.as_bytes().first() {
            Some(b'+') => Self::Hunk(old, new.saturating_sub(1)),
            Some(b'-') => Self::Hunk(old.saturating_sub(1), new),
            Some(b'\\') => Self::Hunk(old, new),
            _ => Self::Hunk(old.saturating_sub(1), new.saturating_sub(1)),
        }
    }
}

/// The old and new lines that the head of a hunk counts.
fn counts(line: &str) -> Option<(u32, u32)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |range: &str| range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok());
    Some((count(old)?, count(new)?))
}

fn role(within: Within, line: &str) -> Role {
    match (within, line.as_bytes().first()) {
        (Within::Header, _) => Role::Dim,
        (Within::HunkHead(..), _) => Role::Key,
        (Within::Hunk(..), Some(b'+')) => Role::Good,
        (Within::Hunk(..), Some(b'-')) => Role::Bad,
        (Within::Hunk(..), _) => Role::Text,
    }
}

/// A line for the screen; a tab is shown as one, since a diff may be about it.
fn visible(line: &str) -> String {
    Untrusted::from(line.replace('\t', "→   ")).visible(MOST_CHARS)
}

/// Where the lines can be read.
fn elsewhere(entry: &Entry) -> String {
    match &entry.origin {
        Origin::Commit { hash, .. } | Origin::Hunks { commit: Some(hash), .. } => {
            let hash: String = hash.chars().filter(char::is_ascii_hexdigit).take(12).collect();
            format!("`git show {hash}` in its checkout shows them")
        }
        Origin::Record { .. } => "compare the file with that of its wheel".into(),
        Origin::Hunks { .. } | Origin::Several { .. } => "the diff that was imported has them".into(),
    }
}

fn size(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_line_that_looks_like_a_header_is_a_removed_line() {
        let text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ def f():\n a\n--- b\n+++ c\n\\ No newline\n--- a/y\n+++ b/y\n@@ -1 +0,0 @@\n-q";
        let mut within = Within::Header;
        let roles = text.lines().map(|line| {
            within = within.after(line);
            role(within, line)
        });
        let (dim, text, key) = (Role::Dim, Role::Text, Role::Key);
        let expect = [dim, dim, key, text, Role::Bad, Role::Good, text, dim, dim, key, Role::Bad];
        assert_eq!(roles.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn what_could_steer_a_terminal_is_spelled_out_and_a_tab_is_seen() {
        assert_eq!(visible("+\tx\u{1b}[31m\r"), "+→   x␛[31m␍");
        assert_eq!(visible(&"x".repeat(500)).chars().count(), MOST_CHARS + 1);
    }
}
