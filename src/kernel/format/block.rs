//! Block formats: narrow elements that share a scale.
//!
//! Responsible for the layouts of scales, the rule each scale is made by, and quantising and
//! dequantising by them. Not responsible for the element codes ([`super::fp8`], [`super::fp4`]).
//!
//! **Arithmetic.** Values are rounded to f32. A scale is `max(amax, floor) / largest`, divided in
//! f32, with `amax` the largest magnitude of the block and `largest` that of the element; elements
//! are `x / scale` in f32, rounded once. Kernels that multiply by a reciprocal differ by one code at
//! values within one f32 unit of a midpoint. A dequantised value is the exact product of element and
//! scale; a kernel that writes it in bf16 rounds once more.
//!
//! **Ends.** The last block of a row and the last rows of a tensor may be short: their scale is that
//! of the elements that are there, which is the same as padding with zeros.
//!
//! **No silent repair.** A block that holds NaN or an infinity has a scale that is not a number or
//! not finite, and comes out NaN as a whole.

use super::fp4::{self, E2M1_MAX, Ties};
use super::fp8::{self, E4M3_MAX, Overflow};
use super::ue8m0;

/// The element of a block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// e4m3fn, saturating.
    E4m3,
    /// e2m1, ties to even.
    E2m1,
    /// e2m1 with the ties of `DeepGEMM`.
    E2m1Strict,
}

impl Element {
    /// The largest number.
    pub fn largest(self) -> f32 {
        match self {
            Self::E4m3 => E4M3_MAX,
            Self::E2m1 | Self::E2m1Strict => E2M1_MAX,
        }
    }

    /// The code of `x`: a byte for e4m3, the low four bits of one for e2m1.
    pub fn encode(self, x: f32) -> u8 {
        match self {
            Self::E4m3 => fp8::encode_e4m3(x, Overflow::Saturate),
            Self::E2m1 => fp4::encode_e2m1(x, Ties::Even),
            Self::E2m1Strict => fp4::encode_e2m1(x, Ties::TowardZero),
        }
    }

    /// The value of a code.
    pub fn decode(self, code: u8) -> f32 {
        match self {
            Self::E4m3 => fp8::decode_e4m3(code),
            Self::E2m1 | Self::E2m1Strict => fp4::decode_e2m1(code),
        }
    }
}

/// How far a block reaches in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// So many elements; 0 counts as 1.
    Of(usize),
    /// To the end of the tensor.
    Whole,
}

impl Span {
    fn within(self, extent: usize) -> usize {
        match self {
            Self::Of(count) => count.max(1),
            Self::Whole => extent.max(1),
        }
    }
}

/// How the scale of a block is made and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleRule {
    /// Stored in f32 as it is.
    F32,
    /// Rounded up to a power of two, then the elements are quantised with it.
    Ue8m0,
    /// A fault: the elements are quantised with the exact scale, and the scale is rounded up to a
    /// power of two afterwards, when it is stored. What comes out is too large by up to a factor of
    /// two, the same for the whole block.
    Ue8m0Late,
    /// Stored in e4m3 as a multiple of one f32 scale of the whole tensor, which is
    /// `amax of the tensor / (448 * largest)`. A block whose scale rounds to zero becomes zero.
    E4m3OfTensor,
}

/// What `amax` is raised to before it is made a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Nothing: a block of zeros has scale zero.
    None,
    /// 1e-4.
    TenThousandth,
    /// 6 * 2^-126, so that the scale of e2m1 is a normal number.
    SmallestNormal,
}

impl Floor {
    /// As a number.
    pub fn value(self) -> f32 {
        match self {
            Self::None => 0.0,
            Self::TenThousandth => 1e-4,
            Self::SmallestNormal => 6.0 * f32::MIN_POSITIVE,
        }
    }
}

/// A layout of elements and scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// What the elements are.
    pub element: Element,
    /// Rows of a block.
    pub rows: Span,
    /// Columns of a block.
    pub columns: Span,
    /// How the scale is made and stored.
    pub scale: ScaleRule,
    /// The least `amax`.
    pub floor: Floor,
}

impl BlockFormat {
    /// e4m3 with one scale for a block of this size and a floor of 1e-4.
    pub const fn fp8(rows: Span, columns: Span, scale: ScaleRule) -> Self {
        Self { element: Element::E4m3, rows, columns, scale, floor: Floor::TenThousandth }
    }

    /// e2m1 with a power-of-two scale for 32 columns; the exponent is `ceil(log2(amax / 6))`.
    pub const fn mxfp4(element: Element, floor: Floor) -> Self {
        Self { element, rows: Span::Of(1), columns: Span::Of(32), scale: ScaleRule::Ue8m0, floor }
    }

    /// e2m1 with an e4m3 scale for 16 columns and an f32 scale for the tensor.
    pub const NVFP4: Self = Self {
        element: Element::E2m1,
        rows: Span::Of(1),
        columns: Span::Of(16),
        scale: ScaleRule::E4m3OfTensor,
        floor: Floor::None,
    };
}

/// The scales of a tensor, `[block rows, block columns]` in C order.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// As numbers.
    F32(Vec<f32>),
    /// As codes of powers of two.
    Ue8m0(Vec<u8>),
    /// As e4m3 codes, in units of the tensor's scale.
    E4m3 {
        /// The codes.
        blocks: Vec<u8>,
        /// The tensor's scale.
        tensor: f32,
    },
}

/// A quantised tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// The layout.
    pub format: BlockFormat,
    /// Values in a row.
    pub columns: usize,
    /// One code an element, `[rows, columns]` in C order; see [`fp4::pack_nibbles`].
    pub codes: Vec<u8>,
    /// The scales.
    pub scales: Scales,
}

/// Where the blocks of a tensor lie.
#[derive(Clone, Copy)]
struct Grid {
    columns: usize,
    block_rows: usize,
    block_columns: usize,
    /// Blocks beside one another.
    across: usize,
    blocks: usize,
}

impl Grid {
    fn new(format: BlockFormat, count: usize, columns: usize) -> Self {
        let columns = if columns == 0 { count.max(1) } else { columns };
        let rows = count.div_ceil(columns);
        let (block_rows, block_columns) = (format.rows.within(rows), format.columns.within(columns));
        let across = columns.div_ceil(block_columns);
        Self { columns, block_rows, block_columns, across, blocks: rows.div_ceil(block_rows) * across }
    }

    /// The runs of consecutive elements that lie in one block: its index and theirs.
    fn runs(self, count: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        (0..count.div_ceil(self.columns)).flat_map(move |row| {
            let (start, end) = (row * self.columns, count.min((row + 1) * self.columns));
            (start..end).step_by(self.block_columns).enumerate().map(move |(block, first)| {
                let index = row / self.block_rows * self.across + block;
                (index, first..end.min(first + self.block_columns))
            })
        })
    }
}

/// Quantises `[rows, columns]` in C order; the last row may be short, and 0 columns mean one row.
///
/// The tensor's scale of NVFP4 is made of these values; see [`quantise_scaled`].
pub fn quantise(format: BlockFormat, values: &[f64], columns: usize) -> Quantised {
    let values = narrow(values);
    let tensor = match format.scale {
        ScaleRule::E4m3OfTensor => largest_magnitude(&values) / (E4M3_MAX * format.element.largest()),
        ScaleRule::F32 | ScaleRule::Ue8m0 | ScaleRule::Ue8m0Late => 1.0,
    };
    quantise_narrow(format, &values, columns, tensor)
}

/// The same with a tensor scale from elsewhere, such as the `input_scale` of a checkpoint.
///
/// Where it is too small for these values, block scales saturate at 448 and elements at 6, and large
/// values are cut. Formats without a tensor scale ignore it.
pub fn quantise_scaled(format: BlockFormat, values: &[f64], columns: usize, tensor: f32) -> Quantised {
    quantise_narrow(format, &narrow(values), columns, tensor)
}

fn quantise_narrow(format: BlockFormat, values: &[f32], columns: usize, tensor: f32) -> Quantised {
    let grid = Grid::new(format, values.len(), columns);
    let mut amax = vec![0.0_f32; grid.blocks];
    for (block, run) in grid.runs(values.len()) {
        amax[block] = larger(amax[block], largest_magnitude(&values[run]));
    }
    let wanted: Vec<f32> = amax.iter().map(|a| larger(*a, format.floor.value()) / format.element.largest()).collect();
    let (scales, divisors) = make_scales(format.scale, wanted, tensor);
    let mut codes = vec![0; values.len()];
    for (block, run) in grid.runs(values.len()) {
        let divisor = divisors[block];
        // A block whose scale is zero holds zeros, or values that this format loses.
        if divisor == 0.0 {
            continue;
        }
        for (code, value) in codes[run.clone()].iter_mut().zip(&values[run]) {
            *code = format.element.encode(value / divisor);
        }
    }
    Quantised { format, columns: grid.columns, codes, scales }
}

/// The scales as they are stored, and what the elements are divided by.
fn make_scales(rule: ScaleRule, wanted: Vec<f32>, tensor: f32) -> (Scales, Vec<f32>) {
    let powers = |wanted: &[f32]| wanted.iter().map(|s| ue8m0::encode_up(*s)).collect::<Vec<u8>>();
    match rule {
        ScaleRule::F32 => (Scales::F32(wanted.clone()), wanted),
        ScaleRule::Ue8m0 => {
            let codes = powers(&wanted);
            let divisors = codes.iter().map(|code| ue8m0::decode(*code)).collect();
            (Scales::Ue8m0(codes), divisors)
        }
        ScaleRule::Ue8m0Late => (Scales::Ue8m0(powers(&wanted)), wanted),
        ScaleRule::E4m3OfTensor => {
            let blocks: Vec<u8> = wanted.iter().map(|s| encode_block_scale(*s, tensor)).collect();
            let divisors = blocks.iter().map(|code| fp8::decode_e4m3(*code) * tensor).collect();
            (Scales::E4m3 { blocks, tensor }, divisors)
        }
    }
}

fn encode_block_scale(scale: f32, tensor: f32) -> u8 {
    if !scale.is_finite() {
        return fp8::encode_e4m3(f32::NAN, Overflow::Saturate);
    }
    if scale == 0.0 {
        return 0;
    }
    fp8::encode_e4m3(scale / tensor, Overflow::Saturate)
}

/// The values of a quantised tensor, each the exact product of its element and its scales.
pub fn dequantise(tensor: &Quantised) -> Vec<f64> {
    let grid = Grid::new(tensor.format, tensor.codes.len(), tensor.columns);
    let mut values = vec![0.0; tensor.codes.len()];
    for (block, run) in grid.runs(values.len()) {
        let scale = scale_of(&tensor.scales, block);
        for (value, code) in values[run.clone()].iter_mut().zip(&tensor.codes[run]) {
            *value = f64::from(tensor.format.element.decode(*code)) * scale;
        }
    }
    values
}

/// The scale of a block by its index, exactly.
fn scale_of(scales: &Scales, block: usize) -> f64 {
    match scales {
        Scales::F32(numbers) => f64::from(numbers[block]),
        Scales::Ue8m0(codes) => f64::from(ue8m0::decode(codes[block])),
        Scales::E4m3 { blocks, tensor } => f64::from(fp8::decode_e4m3(blocks[block])) * f64::from(*tensor),
    }
}

/// An MXFP4 tensor as NVFP4 with the same values: the same codes, each scale twice.
///
/// Powers of two from 2^-9 to 2^8 are exact in e4m3, so this loses nothing while the exponents of
/// the blocks that are not zero lie within 17 of one another; the tensor's scale is the power of two
/// that brings the largest to 2^8. `None` where they lie further apart, or where the tensor is not
/// MXFP4. Quantising the values of an MXFP4 tensor afresh as NVFP4 does lose: the new scale maps the
/// largest magnitude of a block to 6, and where that magnitude was 4 or 5 the grid is another one.
pub fn nvfp4_of_mxfp4(tensor: &Quantised) -> Option<Quantised> {
    const LARGEST_EXPONENT: i32 = 8;
    const SMALLEST_EXPONENT: i32 = -9;
    let format = tensor.format;
    if format != BlockFormat::mxfp4(format.element, format.floor) || format.element == Element::E4m3 {
        return None;
    }
    let Scales::Ue8m0(scales) = &tensor.scales else { return None };
    let from = Grid::new(format, tensor.codes.len(), tensor.columns);
    let to = Grid::new(BlockFormat::NVFP4, tensor.codes.len(), tensor.columns);
    let lives = |run: std::ops::Range<usize>| tensor.codes[run].iter().any(|code| code & 7 != 0);
    let exponents = from.runs(tensor.codes.len()).filter(|(_, run)| lives(run.clone()));
    let exponents = exponents.map(|(block, _)| scales[block]).filter(|code| *code != ue8m0::NAN);
    let top = exponents.max().map_or(0, |code| i32::from(code) - 127) - LARGEST_EXPONENT;
    let mut blocks = vec![0; to.blocks];
    for (block, run) in to.runs(tensor.codes.len()) {
        let column = block % to.across;
        let code = scales[block / to.across * from.across + column / 2];
        let exponent = i32::from(code) - 127 - top;
        blocks[block] = if code == ue8m0::NAN {
            fp8::encode_e4m3(f32::NAN, Overflow::Saturate)
        } else if !lives(run) {
            0
        } else if exponent < SMALLEST_EXPONENT {
            return None;
        } else {
            fp8::encode_e4m3(2_f32.powi(exponent), Overflow::Saturate)
        };
    }
    let scales = Scales::E4m3 { blocks, tensor: power_of_two(top) };
    Some(Quantised { format: BlockFormat::NVFP4, columns: tensor.columns, codes: tensor.codes.clone(), scales })
}

/// 2^`exponent` for exponents from -149 to 127.
fn power_of_two(exponent: i32) -> f32 {
    // The f64 is exact, and so is its f32, a subnormal number at the low end.
    2_f64.powi(exponent) as f32
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|v| *v as f32).collect()
}

/// The larger of two numbers; NaN if one is NaN.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

fn largest_magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, v| larger(largest, v.abs()))
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
