//! Widens changed rows to whole statements that stand at the same place on both sides.
//!
//! Not responsible for whether such statements may be guarded.

use std::cmp::Ordering;
use std::ops::Range;

use super::Refusal;
use super::cover::{Both, Cover};

/// Runs of changed rows with the rows around them that one guard would hold.
#[derive(Clone, Debug)]
pub(super) struct Region<'t> {
    /// Rows of the new side.
    pub(super) new: Range<usize>,
    /// Rows of the old side.
    pub(super) old: Range<usize>,
    /// The statements; `None` where the new side has no code there.
    pub(super) new_cover: Option<Cover<'t>>,
    /// The statements; `None` where the old side has no code there.
    pub(super) old_cover: Option<Cover<'t>>,
}

/// Runs from the first to the last, and the number of unchanged rows before and after them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    first: usize,
    last: usize,
    before: usize,
    after: usize,
}

/// The regions of a file, in order and apart from each other. What changes no code is in none.
///
/// # Errors
/// The statements of both sides do not stand at the same place.
pub(super) fn regions<'s>(view: &Both<'s>) -> Result<Vec<Region<'s>>, Refusal> {
    let mut done: Vec<(Span, Region<'s>)> = Vec::new();
    let mut next = 0;
    while next < view.runs().len() {
        let mut span = Span { first: next, last: next, before: 0, after: 0 };
        loop {
            let region = widened(view, &mut span)?;
            next = span.last + 1;
            // What reaches back into what was found before is one with it.
            let meets =
                done.pop_if(|(_, earlier)| earlier.new.end > region.new.start || earlier.old.end > region.old.start);
            let Some((earlier, _)) = meets else {
                done.push((span, region));
                break;
            };
            let before = match earlier.first.cmp(&span.first) {
                Ordering::Less => earlier.before,
                Ordering::Equal => earlier.before.max(span.before),
                Ordering::Greater => span.before,
            };
            span = Span { first: earlier.first.min(span.first), before, ..span };
        }
    }
    let regions = done.into_iter().map(|(_, region)| region);
    Ok(regions.filter(|region| region.new_cover.is_some() || region.old_cover.is_some()).collect())
}

fn widened<'s>(view: &Both<'s>, span: &mut Span) -> Result<Region<'s>, Refusal> {
    let mut limit = usize::MAX;
    loop {
        let (new, old) = rows(view, span);
        let (new_cover, old_cover) = (view.new.cover(&new, limit), view.old.cover(&old, limit));
        let before = span.clone();
        if let Some(cover) = &new_cover {
            widen(view, span, &cover.rows, true);
        }
        if let Some(cover) = &old_cover {
            widen(view, span, &cover.rows, false);
        }
        if *span != before {
            continue;
        }
        if let (Some(a), Some(b)) = (&new_cover, &old_cover)
            && a.column != b.column
        {
            let least = a.column.min(b.column);
            if least >= limit {
                return Err(Refusal::at(new.start, "the statements of both sides are not indented alike"));
            }
            limit = least;
            continue;
        }
        return Ok(Region { new, old, new_cover, old_cover });
    }
}

fn rows(view: &Both<'_>, span: &Span) -> (Range<usize>, Range<usize>) {
    let runs = view.runs();
    let (Some(first), Some(last)) = (runs.get(span.first), runs.get(span.last)) else { return (0..0, 0..0) };
    (first.new.start - span.before..last.new.end + span.after, first.old.start - span.before..last.old.end + span.after)
}

/// Widens a span so that it holds these rows of one side. It ends at a run or between two, never within one.
fn widen(view: &Both<'_>, span: &mut Span, wanted: &Range<usize>, of_new: bool) {
    let side = |at: usize| view.runs().get(at).map(|run| if of_new { run.new.clone() } else { run.old.clone() });
    while let Some(first) = side(span.first).filter(|first| first.start - span.before > wanted.start) {
        let end = span.first.checked_sub(1).and_then(side).map_or(0, |run| run.end);
        if wanted.start >= end {
            span.before = first.start - wanted.start;
            break;
        }
        span.first -= 1;
        span.before = 0;
    }
    while let Some(last) = side(span.last).filter(|last| last.end + span.after < wanted.end) {
        let start = side(span.last + 1).map_or(usize::MAX, |run| run.start);
        if wanted.end <= start {
            span.after = wanted.end - last.end;
            break;
        }
        span.last += 1;
        span.after = 0;
    }
}
