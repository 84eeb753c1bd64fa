//! Reads one hunk: its header and as many lines as that counts.
//!
//! Not responsible for what stands before or behind it.

use super::{Ending, Hunk, Line, Side};

/// What a hunk's header says.
struct Head<'a> {
    old_start: u32,
    old_count: u32,
    new_start: u32,
    new_count: u32,
    section: &'a str,
}

/// Reads the hunk that begins with the first of these lines; `None` where that is no header of a hunk.
/// Returns the hunk and the number of lines that it takes.
pub(super) fn read(lines: &[&str], number: u32) -> Option<(Hunk, usize)> {
    let head = head(lines.first()?)?;
    let mut hunk = Hunk {
        old_start: head.old_start,
        new_start: head.new_start,
        section: head.section.to_owned(),
        lines: Vec::new(),
        complete: false,
        line: number,
    };
    let (mut old, mut new) = (head.old_start, head.new_start);
    let (mut old_left, mut new_left) = (head.old_count, head.new_count);
    let mut at = 1;
    while let Some(line) = lines.get(at) {
        if line.starts_with('\\') {
            if let Some(last) = hunk.lines.last_mut() {
                // A carriage return that ends the file without a line feed is text.
                if last.ending == Ending::CrLf {
                    last.text.push('\r');
                }
                last.ending = Ending::Missing;
            }
            at += 1;
            continue;
        }
        if old_left == 0 && new_left == 0 {
            break;
        }
        let Some((side, text)) = side(line) else { break };
        let (takes_old, takes_new) = (side != Side::Added, side != Side::Removed);
        if (takes_old && old_left == 0) || (takes_new && new_left == 0) {
            break;
        }
        if next_file(lines.get(at..).unwrap_or_default(), old_left, new_left) {
            break;
        }
        let (text, ending) = text.strip_suffix('\r').map_or((text, Ending::Lf), |text| (text, Ending::CrLf));
        hunk.lines.push(Line { side, old, new, text: text.to_owned(), ending });
        if takes_old {
            old = old.saturating_add(1);
            old_left -= 1;
        }
        if takes_new {
            new = new.saturating_add(1);
            new_left -= 1;
        }
        at += 1;
    }
    hunk.complete = old_left == 0 && new_left == 0;
    Some((hunk, at))
}

/// The side of a line and its text. An empty line is an empty line of context whose blank a mailer has cut off.
fn side(line: &str) -> Option<(Side, &str)> {
    let side = match line.bytes().next() {
        None | Some(b'\r') => return Some((Side::Context, line)),
        Some(b' ') => Side::Context,
        Some(b'+') => Side::Added,
        Some(b'-') => Side::Removed,
        Some(_) => return None,
    };
    Some((side, line.get(1..)?))
}

/// Whether these lines, which could be a removed and an added one, are the header of another file: a hunk follows
/// them although this one would need more lines.
fn next_file(lines: &[&str], old_left: u32, new_left: u32) -> bool {
    let [first, second, third, ..] = lines else { return false };
    first.starts_with("--- ")
        && second.starts_with("+++ ")
        && third.starts_with("@@ -")
        && (old_left, new_left) != (1, 1)
}

fn head(line: &str) -> Option<Head<'_>> {
    let rest = line.strip_prefix("@@ -")?;
    let (ranges, section) = rest.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let (old_start, old_count) = range(old)?;
    let (new_start, new_count) = range(new)?;
    Some(Head { old_start, old_count, new_start, new_count, section: section.trim() })
}

/// `START,COUNT`, or `START` for one line.
fn range(text: &str) -> Option<(u32, u32)> {
    match text.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    }
}
