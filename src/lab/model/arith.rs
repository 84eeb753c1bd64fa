//! Which arithmetic the model runs with, and which faults one sequence suffers. Plain data.

use clap::ValueEnum;
use serde::Serialize;

/// Arithmetic of the hyper-connections' mixing product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MhcGemm {
    /// Everything in f32.
    #[default]
    Fp32,
    /// Operands rounded to 10 mantissa bits, sums in f32.
    Tf32,
    /// Operands and result rounded to bf16.
    Bf16,
}

/// Where the routed scaling factor is multiplied in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutedScaling {
    /// Into the two weights, when they are chosen.
    Topk,
    /// Into the sum of the routed experts' outputs.
    #[default]
    Output,
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
pub enum KvDtype {
    /// As computed, in f32.
    #[default]
    #[value(name = "auto")]
    #[serde(rename = "auto")]
    Auto,
    /// Rounded to fp8 e4m3 with one scale for each head vector.
    #[value(name = "fp8_e4m3")]
    #[serde(rename = "fp8_e4m3")]
    Fp8E4m3,
}

/// All arithmetic switches of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arithmetic {
    /// The mixing product.
    pub mhc: MhcGemm,
    /// The routed scaling factor.
    pub routed_scaling: RoutedScaling,
    /// Stored keys and values.
    pub kv: KvDtype,
    /// Indexer operands and scores rounded to bf16.
    pub bf16_indexer: bool,
    /// The query rounded to bf16 after scaling; keys in splits, merged by their log-sum-exp.
    pub mma_attention: bool,
    /// Indexer keys read page by page through the page table.
    pub paged_indexer: bool,
}

/// A stretch of leading pages whose indexer keys are read from the wrong page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageShift {
    /// Pages at the start of the sequence that are concerned.
    pub pages: usize,
    /// How far off the page is that is read instead.
    pub by: isize,
}

/// What is broken for one sequence; the default is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one fault that a scenario may plant")]
pub struct Faults {
    /// Indexer keys come from a neighbouring page.
    pub page_shift: Option<PageShift>,
    /// How far off every page of indexer keys is read, on top of that.
    pub page_offset: isize,
    /// Indexer keys are read token after token although a page holds dimension after dimension.
    pub index_interleaved: bool,
    /// Indexer scores have the wrong sign.
    pub index_sign: bool,
    /// The window is this short.
    pub window: Option<usize>,
    /// One more factor on the routed experts.
    pub routed_factor: Option<f32>,
    /// Keys and values are stored in four bits.
    pub kv_int4: bool,
    /// The indexer keys of the prompt stay behind when its state comes from another server.
    pub index_left_behind: bool,
}

impl Faults {
    /// Page that is read when the indexer asks for logical page `page` of a sequence of `total` pages.
    pub fn index_page(&self, page: usize, total: usize) -> usize {
        let shift = self.page_shift.filter(|shift| page < shift.pages).map_or(0, |shift| shift.by);
        page.saturating_add_signed(shift.saturating_add(self.page_offset)).min(total.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stretch_is_shifted_and_stays_inside() {
        let faults = Faults { page_shift: Some(PageShift { pages: 3, by: 1 }), ..Faults::default() };
        let read: Vec<_> = (0..5).map(|p| faults.index_page(p, 5)).collect();
        assert_eq!(read, [1, 2, 3, 3, 4]);
        let all = Faults { page_shift: Some(PageShift { pages: 9, by: 1 }), ..Faults::default() };
        assert_eq!(all.index_page(4, 5), 4);
        assert_eq!(Faults::default().index_page(2, 5), 2);
    }

    #[test]
    fn an_offset_is_added_to_the_shift_of_the_stretch() {
        let check = |shift: Option<PageShift>, offset, expect: [usize; 4]| {
            let faults = Faults { page_shift: shift, page_offset: offset, ..Faults::default() };
            assert_eq!(std::array::from_fn(|page| faults.index_page(page, 4)), expect);
        };
        check(None, 1, [1, 2, 3, 3]);
        check(None, -2, [0, 0, 0, 1]);
        check(Some(PageShift { pages: 1, by: 1 }), 1, [2, 2, 3, 3]);
        check(Some(PageShift { pages: 9, by: isize::MAX }), isize::MAX, [3, 3, 3, 3]);
    }
}
