//! Which bytes of which files are fetched together.
//!
//! Pure: ranges in, requests out. Not responsible for fetching.

use std::ops::Range;

/// Bytes of one of several files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// Which file.
    pub(super) file: usize,
    /// First byte.
    pub(super) start: u64,
    /// Byte after the last.
    pub(super) end: u64,
}

impl Part {
    pub(super) fn new(file: usize, bytes: &Range<u64>) -> Self {
        Self { file, start: bytes.start, end: bytes.end }
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The same bytes, each once, in as few pieces as there can be.
///
/// Only pieces that touch or overlap are joined: what nobody asked for is not moved.
pub(super) fn coalesce(parts: &[Part]) -> Vec<Part> {
    let mut sorted: Vec<&Part> = parts.iter().filter(|part| part.len() > 0).collect();
    sorted.sort();
    let mut joined: Vec<Part> = Vec::new();
    for part in sorted {
        match joined.last_mut() {
            Some(last) if last.file == part.file && part.start <= last.end => last.end = last.end.max(part.end),
            _ => joined.push(part.clone()),
        }
    }
    joined
}

/// The part in order, in pieces of at most `most`.
pub(super) fn cut(part: &Part, most: u64) -> Vec<Part> {
    let most = most.max(1);
    let pieces = part.len().div_ceil(most);
    (0..pieces)
        .map(|at| {
            let start = part.start + at * most;
            Part { file: part.file, start, end: part.end.min(start.saturating_add(most)) }
        })
        .collect()
}

/// Groups of pieces, in order, of at most `bytes` and `pieces` each; a piece that is larger stands alone.
pub(super) fn batches(parts: &[Part], bytes: u64, pieces: usize) -> Vec<&[Part]> {
    let mut groups = Vec::new();
    let (mut from, mut size) = (0, 0);
    for (at, part) in parts.iter().enumerate() {
        if at > from && (size + part.len() > bytes || at - from == pieces) {
            groups.push(&parts[from..at]);
            (from, size) = (at, 0);
        }
        size += part.len();
    }
    if from < parts.len() {
        groups.push(&parts[from..]);
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(file: usize, start: u64, end: u64) -> Part {
        Part { file, start, end }
    }

    #[test]
    fn only_what_touches_is_joined() {
        let check = |parts: &[Part], expect: &[Part]| assert_eq!(coalesce(parts), expect);
        check(&[part(0, 4, 8), part(0, 0, 4)], &[part(0, 0, 8)]);
        check(&[part(0, 0, 4), part(0, 5, 8)], &[part(0, 0, 4), part(0, 5, 8)]);
        check(&[part(0, 0, 4), part(1, 4, 8)], &[part(0, 0, 4), part(1, 4, 8)]);
        check(&[part(0, 0, 9), part(0, 2, 4), part(0, 0, 9)], &[part(0, 0, 9)]);
        check(&[part(0, 3, 3)], &[]);
    }

    #[test]
    fn a_part_is_cut_into_pieces_of_a_bound_length() {
        assert_eq!(cut(&part(0, 0, 9), 4), [part(0, 0, 4), part(0, 4, 8), part(0, 8, 9)]);
        assert_eq!(cut(&part(1, 5, 9), u64::MAX), [part(1, 5, 9)]);
        assert_eq!(cut(&part(1, 5, 5), 4), []);
    }

    #[test]
    fn batches_are_bounded() {
        let parts = [part(0, 0, 4), part(0, 5, 8), part(0, 10, 30), part(1, 0, 1), part(1, 2, 3)];
        let sizes = |bytes, pieces| batches(&parts, bytes, pieces).iter().map(|b| b.len()).collect::<Vec<_>>();
        assert_eq!(sizes(8, 9), [2, 1, 2]);
        assert_eq!(sizes(100, 9), [5]);
        assert_eq!(sizes(100, 2), [2, 2, 1]);
        assert_eq!(sizes(0, 9), [1, 1, 1, 1, 1]);
        assert!(batches(&[], 8, 9).is_empty());
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_added_or_moved_twice(
            wanted in proptest::collection::vec((0_usize..3, 0_u64..60, 0_u64..20), 0..30), most in 1_u64..40
        ) {
            let parts: Vec<Part> = wanted.iter().map(|(file, start, len)| part(*file, *start, start + len)).collect();
            let bytes = |parts: &[Part]| -> Vec<(usize, u64)> {
                let mut all: Vec<_> = parts.iter().flat_map(|p| (p.start..p.end).map(|b| (p.file, b))).collect();
                all.sort_unstable();
                all
            };
            let joined = coalesce(&parts);
            let mut expect = bytes(&parts);
            expect.dedup();
            prop_assert_eq!(bytes(&joined), expect);
            prop_assert!(joined.iter().all(|p| p.len() > 0));
            let pieces: Vec<Part> = joined.iter().flat_map(|p| cut(p, most)).collect();
            prop_assert!(pieces.iter().all(|p| p.len() <= most && p.len() > 0));
            prop_assert_eq!(batches(&pieces, 50, 4).concat(), pieces.clone());
            prop_assert_eq!(coalesce(&pieces), joined);
        }
    }
}
