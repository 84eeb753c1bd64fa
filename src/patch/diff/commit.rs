//! Reads the head of a commit as `git log -p`, `git show` and `git format-patch` write it.
//!
//! Not responsible for the rest of the message, which nobody needs here.

/// The head of a commit.
pub(super) struct Head {
    pub(super) hash: String,
    pub(super) subject: String,
}

/// The shortest hash that is believed where a line says `commit`.
const SHORTEST: usize = 7;

/// Whether a commit begins with this line.
pub(super) fn starts(line: &str) -> bool {
    hash(line).is_some()
}

/// Reads the head of the commit at the head of these lines, which must be its own: they end where its files begin.
pub(super) fn read(lines: &[&str]) -> Option<Head> {
    let first = lines.first()?;
    let hash = hash(first)?.to_owned();
    let subject = if first.starts_with("From ") { mailed(lines) } else { logged(lines) };
    Some(Head { hash, subject })
}

fn hash(line: &str) -> Option<&str> {
    let (rest, shortest) = match line.strip_prefix("commit ") {
        Some(rest) => (rest, SHORTEST),
        None => (line.strip_prefix("From ")?, 40),
    };
    let word = rest.split_whitespace().next()?;
    let hex = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let end = rest.get(word.len()..)?.trim();
    // A line of prose can begin like this: git writes nothing behind the hash but names in brackets and a date.
    let written = end.is_empty() || end.starts_with('(') || shortest == 40;
    (hex && (shortest..=64).contains(&word.len()) && written).then_some(word)
}

/// The first indented line of a logged message.
fn logged(lines: &[&str]) -> String {
    let message = lines.iter().find_map(|line| line.strip_prefix("    ").filter(|text| !text.trim().is_empty()));
    message.unwrap_or_default().trim().to_owned()
}

/// The subject of a mail, unfolded, decoded, without `[PATCH 1/2]`.
fn mailed(lines: &[&str]) -> String {
    let mut head = lines.iter().take_while(|line| !line.trim().is_empty());
    let Some(first) = head.find_map(|line| line.strip_prefix("Subject:")) else { return String::new() };
    let mut subject = first.trim().to_owned();
    for line in head.take_while(|line| line.starts_with([' ', '\t'])) {
        subject.push(' ');
        subject.push_str(line.trim());
    }
    let subject = decoded(&subject);
    match subject.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((tag, rest)) if tag.contains("PATCH") => rest.trim().to_owned(),
        _ => subject,
    }
}

/// Replaces the encoded words of a mail's header (RFC 2047, form Q in UTF-8, the one that git writes).
fn decoded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut after_word = false;
    while let Some(at) = rest.find("=?") {
        let (before, word) = rest.split_at(at);
        let Some((bytes, length)) = encoded_word(word) else { break };
        if !(after_word && before.trim().is_empty()) {
            out.push_str(before);
        }
        out.push_str(&String::from_utf8_lossy(&bytes));
        rest = word.get(length..).unwrap_or_default();
        after_word = true;
    }
    out.push_str(rest);
    out
}

fn encoded_word(text: &str) -> Option<(Vec<u8>, usize)> {
    let lower = text.get(..10)?.to_ascii_lowercase();
    let body = lower.starts_with("=?utf-8?q?").then(|| text.get(10..)).flatten()?;
    let end = body.find("?=")?;
    let mut bytes = Vec::new();
    let mut rest = body.get(..end)?.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'_' => b' ',
            b'=' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some((bytes, 10 + end + 2))
}
