//! Reading a paged cache as a candidate does, rightly or at the wrong place.
//!
//! Responsible for addresses. Not responsible for what the bytes mean, nor for writing them, which
//! is always right.

use rand::RngExt as _;
use rand_pcg::Pcg64;

use crate::kernel::oracle::pages::Pages;

/// Where a candidate looks for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Addressing {
    /// How many pages too far it looks; past the last page it starts again with the first.
    pub pages_off: usize,
    /// It takes the page for tokens with their scales right behind them, which is not how it was written.
    pub interleaved: bool,
}

/// The data and the scales of a token, where the candidate looks for them.
pub(super) fn bytes(pages: &Pages, token: usize, addressing: Addressing) -> (&[u8], &[u8]) {
    let layout = pages.layout;
    let page = (token / layout.tokens + addressing.pages_off) % pages.table.len();
    let slot = token % layout.tokens;
    let (data, scales) = if addressing.interleaved {
        let first = slot * (layout.data + layout.scale);
        (first..first + layout.data, first + layout.data..first + layout.data + layout.scale)
    } else {
        layout.slot(slot)
    };
    let whole = &pages.bytes[pages.table[page] * layout.page()..][..layout.page()];
    (&whole[data], &whole[scales])
}

/// A page table as it is after some time of service: each place once, in any order.
pub(super) fn shuffled(dice: &mut Pcg64, pages: usize) -> Vec<usize> {
    let mut table: Vec<usize> = (0..pages).collect();
    for last in (1..pages).rev() {
        table.swap(last, dice.random_range(0..=last));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::oracle::pages::PageLayout;
    use crate::kernel::specs::activations::dice;

    #[test]
    fn a_shuffled_table_holds_each_place_once() {
        let mut table = shuffled(&mut dice(5, 0), 50);
        assert_ne!(table, (0..50).collect::<Vec<_>>());
        table.sort_unstable();
        assert_eq!(table, (0..50).collect::<Vec<_>>());
    }

    /// Two pages of two tokens with three bytes of data and one of scale, in memory in turned order.
    fn pages() -> Pages {
        let layout = PageLayout { tokens: 2, data: 3, scale: 1 };
        Pages { layout, bytes: (0..16).collect(), table: vec![1, 0] }
    }

    #[test]
    fn where_it_looks() {
        let check = |token, addressing, data: &[u8], scales: &[u8]| {
            assert_eq!(bytes(&pages(), token, addressing), (data, scales), "{token} {addressing:?}");
        };
        let right = Addressing::default();
        check(1, right, &[11, 12, 13], &[15]);
        check(2, right, &[0, 1, 2], &[6]);
        check(1, Addressing { pages_off: 1, ..right }, &[3, 4, 5], &[7]);
        check(2, Addressing { pages_off: 1, ..right }, &[8, 9, 10], &[14]);
        check(1, Addressing { interleaved: true, ..right }, &[12, 13, 14], &[15]);
        check(2, Addressing { interleaved: true, ..right }, &[0, 1, 2], &[3]);
    }

    #[test]
    fn the_right_place_is_where_it_was_written() {
        let pages = pages();
        for token in 0..4 {
            let (data, scales) = pages.place(token);
            assert_eq!(bytes(&pages, token, Addressing::default()), (&pages.bytes[data], &pages.bytes[scales]));
        }
    }
}
