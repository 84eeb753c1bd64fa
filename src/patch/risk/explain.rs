//! The sum behind a risk as text for people, at most 80 columns wide where words allow. Pure.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::{HIGH, Kind, MEDIUM, Ranked, Tie};
use crate::patch::state::Found;
use crate::untrusted::visible_lines;

/// Columns of a line.
const WIDTH: usize = 80;
/// Columns before the words of a term: weight and name of the rule.
const INDENT: usize = 30;

/// The sum of a risk, term by term with its sources, then the states, what is open, and the ties it is in.
///
/// Foreign text is made visible.
pub fn explain(ranked: &Ranked, ties: &[Tie]) -> String {
    let mut out = String::new();
    let kind = match ranked.kind {
        Kind::Patch => "patch",
        Kind::Factor => "factor",
    };
    let head = format!("{kind} {}: {}, {:+.2}", ranked.id, ranked.tier.word(), ranked.score);
    paragraph(&mut out, "", &head, 0);
    paragraph(&mut out, "", &ranked.title, 0);
    out.push('\n');
    for term in &ranked.terms {
        paragraph(&mut out, &format!("{:+8.2}  {}", term.weight, term.rule), &term.fact, INDENT);
        paragraph(&mut out, "", &format!("[{}]", term.source), INDENT);
    }
    let sum = format!("{:+8.2}  sum", ranked.score);
    paragraph(&mut out, &sum, &format!("high from {HIGH:.1}, medium from {MEDIUM:.1}"), INDENT);
    states(&mut out, &ranked.states);
    if !ranked.open.is_empty() {
        out.push_str("\nnot known\n");
        for open in &ranked.open {
            let text = format!("{} ({:+.2} to {:+.2}): {}", open.unknown, open.down, open.up, open.how);
            paragraph(&mut out, "  ", &text, 4);
        }
    }
    let mine = ties.iter().filter(|t| t.above == ranked.id || t.below == ranked.id);
    for (at, tie) in mine.enumerate() {
        if at == 0 {
            out.push_str("\nas suspect as\n");
        }
        let other = if tie.above == ranked.id { &tie.below } else { &tie.above };
        paragraph(&mut out, "  ", &format!("`{other}`: {}", tie.why), 4);
        paragraph(&mut out, "    ", &format!("what would tell: {}", tie.separates), 6);
    }
    out.push('\n');
    paragraph(&mut out, "", "weights order patches; they are no probabilities", 0);
    out
}

/// The states, targets with the same one together.
fn states(out: &mut String, states: &[Found]) {
    let mut groups: Vec<(Vec<&str>, &Found)> = Vec::new();
    for found in states {
        let same = |(_, of): &&mut (Vec<&str>, &Found)| Found { target: of.target.clone(), ..found.clone() } == **of;
        match groups.iter_mut().find(same) {
            Some((targets, _)) => targets.push(&found.target),
            None => groups.push((vec![&found.target], found)),
        }
    }
    if !groups.is_empty() {
        out.push_str("\nstate\n");
    }
    for (targets, found) in groups {
        let on = targets.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join(" and ");
        paragraph(out, "  ", &format!("{} on {on}: {}", found.state.word(), found.because), 4);
        for evidence in &found.evidence {
            paragraph(out, "    ", &format!("{} [{}]", evidence.fact, evidence.source), 6);
        }
        for assumed in &found.assumes {
            paragraph(out, "    ", &format!("taken for granted: {assumed}"), 6);
        }
    }
}

/// Words after a head, wrapped; later lines begin at `indent`. A word that is too long stands alone.
fn paragraph(out: &mut String, head: &str, text: &str, indent: usize) {
    let mut line = head.to_owned();
    let start =
        if head.trim().is_empty() { head.width().max(if head.is_empty() { indent } else { 0 }) } else { indent };
    if head.width() >= start && !head.trim().is_empty() {
        line.push(' ');
    }
    pad(&mut line, start);
    let mut is_bare = true;
    for word in visible_lines(text).split_whitespace() {
        let gap = usize::from(!is_bare);
        if !is_bare && line.width() + gap + word.width() > WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            line.clear();
            pad(&mut line, indent);
            is_bare = true;
        }
        if !is_bare {
            line.push(' ');
        }
        line.push_str(word);
        is_bare = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn pad(line: &mut String, to: usize) {
    while line.width() < to {
        line.push(' ');
    }
}
