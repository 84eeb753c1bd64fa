//! What an answer says about memory. Pure.
//!
//! The planted value passes alone or lightly wrapped; everything else gets the kind that tells diseases apart:
//! one wrong digit is not the same as "there is no earlier context".

use crate::recall::trial::{FailKind, Outcome};
use crate::serving::error::ServingError;

/// Words that may stand around the value.
const WRAPPING_WORDS: usize = 16;

/// Content from this many characters on is an answer, even if the token limit cut it.
const LONG_ANSWER: usize = 200;

/// Characters of an answer that are looked at.
const LOOKED_AT: usize = 4096;

/// Phrases of models that deny the context, in lower case with plain apostrophes.
const DENIALS: [&str; 40] = [
    "this is the very f",
    "this is the first message",
    "this is the start of our conversation",
    "this is the beginning of our conversation",
    "no earlier context",
    "no earlier message",
    "no earlier conversation",
    "no previous context",
    "no previous message",
    "no previous conversation",
    "no prior context",
    "no prior message",
    "no prior conversation",
    "no conversation history",
    "don't have any record",
    "don't have a record",
    "don't have any information",
    "don't have information",
    "don't have access to",
    "don't have any previous",
    "don't have any prior",
    "don't have any earlier",
    "don't have memory",
    "don't have any memory",
    "don't see any",
    "don't see a ",
    "don't recall",
    "don't know what",
    "can't recall",
    "cannot recall",
    "can't find any",
    "cannot find any",
    "haven't told me",
    "haven't mentioned",
    "haven't provided",
    "haven't shared",
    "hasn't been mentioned",
    "wasn't mentioned",
    "not mentioned in",
    "does not contain any",
];

/// Words that turn a contained value into something else than an answer.
const HEDGES: [&str; 22] = [
    "not", "no", "never", "isn't", "wasn't", "don't", "doesn't", "can't", "cannot", "won't", "or", "either", "neither",
    "but", "maybe", "perhaps", "possibly", "unsure", "guess", "wrong", "instead", "unless",
];

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// By itself.
    Stop,
    /// At the limit of tokens.
    Length,
    /// It called a tool.
    ToolCall,
    /// The server stopped it.
    Aborted,
    /// The server did not say, or said something unknown.
    Unknown,
}

impl Finish {
    /// From the finish reason of a chat answer.
    pub fn from_reason(reason: Option<&str>) -> Self {
        match reason {
            Some("stop" | "eos") => Self::Stop,
            Some("length") => Self::Length,
            Some("tool_calls" | "function_call") => Self::ToolCall,
            Some("abort" | "content_filter" | "error") => Self::Aborted,
            _ => Self::Unknown,
        }
    }
}

/// Grades an answer: the outcome, and for a fail the index into `expected` of the first wrong character.
pub fn grade(expected: &str, answer: &str, finish: Finish) -> (Outcome, Option<usize>) {
    let void = |why: &str| (Outcome::Void { why: why.to_owned() }, None);
    let text: String = answer.trim().chars().take(LOOKED_AT).collect();
    if unwrap(&text) == expected || text == expected {
        return (Outcome::Pass, None);
    }
    match finish {
        Finish::ToolCall => return void("the model called a tool instead of answering"),
        Finish::Aborted => return void("the server stopped the answer"),
        Finish::Length if text.is_empty() => return void("no answer within the limit of tokens"),
        _ => {}
    }
    let fail = |how, first| (Outcome::Fail { how }, Some(first));
    if text.is_empty() {
        return fail(FailKind::Empty, 0);
    }
    if denies_context(&text) {
        return fail(FailKind::NoEarlierContext, 0);
    }
    if repeats(&text) {
        return fail(FailKind::Loop, first_difference(expected, &text));
    }
    if is_wrapped(expected, &text) {
        return (Outcome::Pass, None);
    }
    let (candidate, distance) = closest(expected, &text);
    let first = first_difference(expected, &candidate);
    if distance <= near_limit(expected) {
        return fail(FailKind::NearMiss, first);
    }
    let answered = looks_like_a_value(text.split_whitespace().next().unwrap_or_default());
    if finish == Finish::Length && !answered && text.chars().count() < LONG_ANSWER {
        return void("cut off by the limit of tokens before an answer");
    }
    fail(FailKind::Wrong, first)
}

/// Why a trial without a whole answer says nothing, in one clause.
pub fn void_reason(error: &ServingError) -> String {
    match error {
        ServingError::Status { code, .. } => format!("http error {code}"),
        ServingError::TimedOut { what, .. } => format!("time-out waiting for {what}"),
        ServingError::Connection { .. } => "no connection".to_owned(),
        ServingError::CutShort { .. } => "the answer broke off".to_owned(),
        ServingError::InStream { .. } => "error in the middle of the answer".to_owned(),
        ServingError::Cancelled => "cancelled".to_owned(),
        other => other.to_string(),
    }
}

/// Whether `got` is `expected` with a slip: one or two characters, or a fifth of them, or only their case.
pub fn is_near(expected: &str, got: &str) -> bool {
    expected.to_lowercase() == got.to_lowercase() || edit_distance(expected, got) <= near_limit(expected)
}

fn near_limit(expected: &str) -> usize {
    let length = expected.chars().count();
    let slip = match length {
        0..3 => 0,
        3..6 => 1,
        _ => 2,
    };
    slip.max(length / 5)
}

/// Takes quotes, code marks, emphasis and a full stop off.
fn unwrap(text: &str) -> &str {
    text.trim_matches(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '*' | '“' | '”' | '‘' | '’' | '«' | '»')
    })
    .trim_end_matches(['.', '!'])
    .trim_matches(['"', '\'', '`', '*', '“', '”', '‘', '’', '«', '»'])
}

fn plain(text: &str) -> String {
    text.to_lowercase().replace(['’', '‘', 'ʼ'], "'").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn denies_context(text: &str) -> bool {
    let text = plain(text).replace("do not ", "don't ").replace("have not ", "haven't ").replace("has not ", "hasn't ");
    let text = text.replace("was not ", "wasn't ").replace("could not ", "can't ").replace("couldn't ", "can't ");
    DENIALS.iter().any(|d| text.contains(d))
}

/// The same unit at least three times in a row at the end, over at least half of the text and 16 characters.
fn repeats(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let n = chars.len();
    if n < 16 {
        return false;
    }
    (1..=(n / 3 + 1).min(256)).any(|period| {
        let run = (period..n).rev().take_while(|&i| chars[i] == chars[i - period]).count();
        let covered = run + period;
        // One more for the blank that is missing after the last unit.
        covered + 1 >= 3 * period && covered >= 16 && covered * 2 >= n
    })
}

/// A character that can be part of a value.
fn of_value(c: char) -> bool {
    // A combining mark makes another character of the one before it.
    c.is_alphanumeric() || matches!(c, '-' | '_' | '/' | '\u{300}'..='\u{36f}')
}

/// Whether the value stands in the text as a whole word, and what surrounds it only presents it.
fn is_wrapped(expected: &str, text: &str) -> bool {
    if expected.is_empty() || text.lines().filter(|l| !l.trim().is_empty()).count() > 3 {
        return false;
    }
    let whole = |&(at, found): &(usize, &str)| {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        before.is_none_or(|c| !of_value(c)) && after.is_none_or(|c| !of_value(c))
    };
    let places: Vec<usize> = text.match_indices(expected).filter(whole).map(|(at, _)| at).collect();
    if places.is_empty() || places.len() > 2 {
        return false;
    }
    let rest = text.replace(expected, " ");
    let words: Vec<&str> = rest
        .split_whitespace()
        .map(|w| w.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|w| !w.is_empty())
        .collect();
    words.len() <= WRAPPING_WORDS
        && words.iter().all(|w| !looks_like_a_value(w) && !HEDGES.contains(&plain(w).as_str()))
}

/// A word that could be an answer itself: it holds a digit, or two capitals and nothing small.
fn looks_like_a_value(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    word.chars().any(|c| c.is_ascii_digit())
        || (word.chars().count() > 3 && word.chars().all(|c| c.is_uppercase() || !c.is_alphabetic()))
}

/// The whole answer or the word of it that is closest to the value, with its distance.
fn closest(expected: &str, text: &str) -> (String, usize) {
    let whole = unwrap(text);
    let mut best = (whole.to_owned(), distance(expected, whole));
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() > 2 * WRAPPING_WORDS {
        return best;
    }
    for word in words {
        let word = word.trim_matches(|c: char| !of_value(c));
        let d = distance(expected, word);
        if d < best.1 {
            best = (word.to_owned(), d);
        }
    }
    best
}

/// Edit distance, with a difference of case alone counted as one slip.
fn distance(expected: &str, got: &str) -> usize {
    let real = edit_distance(expected, got);
    if real > 1 && expected.to_lowercase() == got.to_lowercase() { 1 } else { real }
}

fn first_difference(expected: &str, got: &str) -> usize {
    expected.chars().zip(got.chars()).take_while(|(a, b)| a == b).count()
}

/// Insertions, deletions, substitutions and swaps of neighbours between two texts; a text that is much longer
/// or shorter than the other is not compared character by character.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let apart = a.len().abs_diff(b.len());
    if apart > a.len() / 2 + 2 {
        return apart.max(a.len());
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
#[path = "grade_tests.rs"]
mod tests;
