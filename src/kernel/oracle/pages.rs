//! Pages of a key cache: where each byte of a token lies, and what it means.
//!
//! Responsible for the two block-planar layouts, for writing rows into them and for reading them
//! back. Not responsible for wrong readings, which belong to known-bad twins.
//!
//! A page holds the data of all its tokens first and the scales of all its tokens after them. A table
//! maps each page of the sequence to the place in memory where it lies.

use std::ops::Range;

use crate::kernel::format::fp8::{E4M3_MAX, Overflow, decode_e4m3, encode_e4m3};
use crate::kernel::format::{round_bf16, ue8m0};

/// Where the largest value of a row or block is smaller, its scale is that of this value.
const LEAST: f32 = 1e-4;

/// `max(amax, 1e-4) / 448`, which maps the largest value of e4m3 onto the largest of `values`.
fn scale_of(values: &[f64]) -> f32 {
    values.iter().fold(LEAST, |most, x| (x.abs() as f32).max(most)) / E4M3_MAX
}

fn code(x: f64, scale: f32) -> u8 {
    encode_e4m3(x as f32 / scale, Overflow::Saturate)
}

fn value(byte: u8) -> f64 {
    f64::from(decode_e4m3(byte))
}

/// Bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Tokens (or compressed keys) in a page.
    pub tokens: usize,
    /// Bytes of data a token.
    pub data: usize,
    /// Bytes of scales a token.
    pub scale: usize,
}

impl PageLayout {
    /// Bytes of one page.
    pub fn page(self) -> usize {
        self.tokens * (self.data + self.scale)
    }

    /// Where the data and the scales of a slot lie within its page.
    pub fn slot(self, slot: usize) -> (Range<usize>, Range<usize>) {
        let (data, scale) = (slot * self.data, self.tokens * self.data + slot * self.scale);
        (data..data + self.data, scale..scale + self.scale)
    }
}

/// A cache of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Pages {
    /// Bytes of a page.
    pub layout: PageLayout,
    /// All pages, in the order of memory.
    pub bytes: Vec<u8>,
    /// Where each page of the sequence lies, counted in pages.
    pub table: Vec<usize>,
}

impl Pages {
    /// Pages full of zeros; `table` must hold each of `0..table.len()` once.
    pub fn zeros(layout: PageLayout, table: Vec<usize>) -> Self {
        Self { layout, bytes: vec![0; table.len() * layout.page()], table }
    }

    /// Where the data and the scales of a token lie in memory.
    pub fn place(&self, token: usize) -> (Range<usize>, Range<usize>) {
        let first = self.table[token / self.layout.tokens] * self.layout.page();
        let (data, scale) = self.layout.slot(token % self.layout.tokens);
        (first + data.start..first + data.end, first + scale.start..first + scale.end)
    }
}

/// The layout of indexer keys: `dim` e4m3 values, and one scale in f32 (little-endian).
///
/// DeepSeek-V4 has 64 keys of 128 values in a page: 8,192 bytes of values, then 256 of scales.
pub fn index_layout(tokens: usize, dim: usize) -> PageLayout {
    PageLayout { tokens, data: dim, scale: 4 }
}

/// Quantises a key, or a query of one head, to e4m3 with the scale `max(amax, 1e-4) / 448` in f32.
pub fn quantise_index_row(row: &[f64]) -> (Vec<u8>, f32) {
    let scale = scale_of(row);
    (row.iter().map(|x| code(*x, scale)).collect(), scale)
}

/// Writes an indexer key.
pub fn write_index_key(pages: &mut Pages, token: usize, key: &[f64]) {
    let (codes, scale) = quantise_index_row(key);
    let (data, scales) = pages.place(token);
    pages.bytes[data].copy_from_slice(&codes);
    pages.bytes[scales].copy_from_slice(&scale.to_le_bytes());
}

/// The values and the scale of an indexer key out of its bytes; the key is their product.
pub fn index_key(data: &[u8], scale: &[u8]) -> (Vec<f64>, f64) {
    let scale = f32::from_le_bytes(std::array::from_fn(|i| scale[i]));
    (data.iter().map(|byte| value(*byte)).collect(), f64::from(scale))
}

/// The key of a token.
pub fn read_index_key(pages: &Pages, token: usize) -> Vec<f64> {
    let (data, scales) = pages.place(token);
    let (values, scale) = index_key(&pages.bytes[data], &pages.bytes[scales]);
    values.iter().map(|v| v * scale).collect()
}

/// How a latent, which is key and value at once, lies in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentLayout {
    /// First dimensions, not rotated, in e4m3.
    pub plain: usize,
    /// Last dimensions, rotated, in bf16 (little-endian).
    pub rotated: usize,
    /// Plain dimensions that share one ue8m0 scale.
    pub block: usize,
    /// Tokens in a page.
    pub tokens: usize,
}

impl LatentLayout {
    /// That of DeepSeek-V4: 448 bytes and 64 times two, 576 in all, and 8 bytes of scales, of which
    /// the last is padding; 256 tokens in a page.
    pub const DEEPSEEK_V4: Self = Self { plain: 448, rotated: 64, block: 64, tokens: 256 };

    /// Width of a latent.
    pub fn width(self) -> usize {
        self.plain + self.rotated
    }

    /// Bytes of a page; the scales of a token are padded to a multiple of 8.
    pub fn page(self) -> PageLayout {
        let scales = self.plain.div_ceil(self.block);
        PageLayout { tokens: self.tokens, data: self.plain + 2 * self.rotated, scale: scales.next_multiple_of(8) }
    }
}

/// Writes a latent; the scale of a block is `max(amax, 1e-4) / 448`, up to a power of two.
pub fn write_latent(pages: &mut Pages, layout: LatentLayout, token: usize, latent: &[f64]) {
    let (plain, rotated) = latent.split_at(layout.plain);
    let (data, scales) = pages.place(token);
    for (block, values) in plain.chunks(layout.block).enumerate() {
        let scale = ue8m0::encode_up(scale_of(values));
        pages.bytes[scales.start + block] = scale;
        for (i, x) in values.iter().enumerate() {
            pages.bytes[data.start + block * layout.block + i] = code(*x, ue8m0::decode(scale));
        }
    }
    for (i, x) in rotated.iter().enumerate() {
        // The upper half of a rounded f32 is the bf16.
        let upper = (round_bf16(*x as f32).to_bits() >> 16) as u16;
        pages.bytes[data.start + layout.plain + 2 * i..][..2].copy_from_slice(&upper.to_le_bytes());
    }
}

/// A latent out of its bytes.
pub fn latent(layout: LatentLayout, data: &[u8], scales: &[u8]) -> Vec<f64> {
    let mut row = Vec::with_capacity(layout.width());
    for (i, byte) in data[..layout.plain].iter().enumerate() {
        row.push(value(*byte) * f64::from(ue8m0::decode(scales[i / layout.block])));
    }
    for pair in data[layout.plain..].chunks_exact(2) {
        row.push(f64::from(f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16)));
    }
    row
}

/// The latent of a token.
pub fn read_latent(pages: &Pages, layout: LatentLayout, token: usize) -> Vec<f64> {
    let (data, scales) = pages.place(token);
    latent(layout, &pages.bytes[data], &pages.bytes[scales])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amax(row: &[f64]) -> f64 {
        row.iter().fold(0.0, |most, x| x.abs().max(most))
    }

    #[test]
    fn bytes_of_the_published_layouts() {
        let index = index_layout(64, 128);
        assert_eq!((index.page(), index.slot(1)), (64 * 132, (128..256, 8196..8200)));
        let latent = LatentLayout::DEEPSEEK_V4.page();
        assert_eq!((latent.data, latent.scale, latent.page()), (576, 8, 256 * 584));
        assert_eq!(latent.slot(255).1, 256 * 584 - 8..256 * 584);
    }

    #[test]
    fn a_key_lies_where_the_table_says_and_its_scale_after_all_keys() {
        let mut pages = Pages::zeros(index_layout(2, 4), vec![1, 0]);
        write_index_key(&mut pages, 1, &[448.0, -224.0, 0.0, 1.0]);
        assert_eq!(pages.bytes[16 + 4..16 + 8], [0x7e, 0xf6, 0x00, 0x38]);
        assert_eq!(pages.bytes[16 + 12..16 + 16], 1_f32.to_le_bytes());
        assert_eq!(pages.bytes.iter().filter(|b| **b != 0).count(), 5);
        assert_eq!(read_index_key(&pages, 1), [448.0, -224.0, 0.0, 1.0]);
        assert_eq!(read_index_key(&pages, 2), [0.0; 4]);
    }

    #[test]
    fn a_latent_has_its_scales_by_block_and_its_last_dimensions_in_bf16() {
        let layout = LatentLayout { plain: 4, rotated: 2, block: 2, tokens: 2 };
        let mut pages = Pages::zeros(layout.page(), vec![0]);
        write_latent(&mut pages, layout, 0, &[448.0, 1.0, 3.5, 0.25, std::f64::consts::PI, -0.1]);
        assert_eq!(pages.bytes[..8], [0x7e, 0x38, 0x7e, 0x60, 0x49, 0x40, 0xcd, 0xbd]);
        assert_eq!(pages.bytes[16..24], [127, 120, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read_latent(&pages, layout, 0), [448.0, 1.0, 3.5, 0.25, 3.140_625, -0.100_097_656_25]);
    }

    proptest! {
        #[test]
        fn what_is_written_comes_back_within_half_a_step(row in prop::collection::vec(-50.0_f64..50.0, 24), token in 0_usize..6) {
            let layout = LatentLayout { plain: 16, rotated: 8, block: 8, tokens: 2 };
            let mut pages = Pages::zeros(layout.page(), vec![2, 0, 1]);
            write_latent(&mut pages, layout, token, &row);
            let got = read_latent(&pages, layout, token);
            for (block, (got, row)) in got.chunks(8).zip(row.chunks(8)).enumerate() {
                for (a, b) in got.iter().zip(row) {
                    // Three mantissa bits round by 1/16 at most, or by half the least step of the block.
                    let bound = if block < 2 { (b.abs() / 16.0).max(amax(row) * 2_f64.powi(-17)) } else { b.abs() / 256.0 };
                    prop_assert!((a - b).abs() <= bound + 1e-12, "{a} for {b}");
                }
            }
            let mut pages = Pages::zeros(index_layout(2, 24), vec![2, 0, 1]);
            write_index_key(&mut pages, token, &row);
            for (a, b) in read_index_key(&pages, token).iter().zip(&row) {
                prop_assert!((a - b).abs() <= (b.abs() / 15.9).max(amax(&row) * 2_f64.powi(-18)) + 1e-12, "{a} for {b}");
            }
        }
    }
}
