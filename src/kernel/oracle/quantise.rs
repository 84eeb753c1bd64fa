//! Block formats in plain loops: codes, scales, and what comes back.
//!
//! Responsible for being right and for keeping codes and scales apart, so that a faulty reader can
//! be made of a right writer. It shares no code with [`crate::kernel::format`], so that each can be
//! held against the other. Not responsible for speed, nor for how bytes are packed.
//!
//! Scales are made in f32, as kernels make them; values are divided by them exactly. Elements are
//! rounded by looking for the nearest value among all codes of the format; of two
//! equally near ones the even code is taken, and what lies beyond the largest value becomes it.
//! Source of the rules: the public reference implementation of DeepSeek-V4 (`inference/kernel.py`),
//! `DeepGEMM` (`deep_gemm/utils/math.py`), and for NVFP4 `SGLang` (`layers/quantization/modelopt_quant.py`).

/// A small float format with sign, whose codes are all known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// fp8 e4m3fn: largest 448, no infinity, NaN 0x7f and 0xff.
    E4m3,
    /// fp8 e5m2: largest 57,344, infinity 0x7c, NaN above it.
    E5m2,
    /// fp4 e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6.
    E2m1,
}

/// How the values of a block are scaled. A block with a value that is not a number has a scale that
/// is none either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// An f32: `max(amax, 1e-4) / 448`.
    F32,
    /// The same, rounded up to a power of two **before** the values are divided by it.
    PowerOfTwo,
    /// MXFP4: `2^e`, `e = ceil(log2(amax / 6))`, not below 2^-126.
    Mx,
    /// NVFP4: an e4m3 of `amax / 6 / second`, where `second = amax of the tensor / (448 * 6)` is an
    /// f32 for the whole tensor.
    TwoLevels,
}

/// A block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What the values are stored in.
    pub element: Element,
    /// How they are scaled.
    pub scales: Scales,
    /// Rows of a block.
    pub rows: usize,
    /// Columns of a block.
    pub columns: usize,
}

/// A tensor in a block format.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// The format.
    pub rule: Rule,
    /// Columns of the tensor.
    pub columns: usize,
    /// One code a value, in C order.
    pub codes: Vec<u8>,
    /// One scale a block, `[blocks down, blocks across]` in C order.
    pub scales: Vec<f64>,
    /// Blocks across.
    pub across: usize,
    /// The scale of the whole tensor; 1 where the format has none.
    pub second: f64,
}

/// The smallest amax that an fp8 scale is made of.
const FLOOR: f64 = 1e-4;

impl Rule {
    /// The format that a candidate calls so; `None` if it is not one of these.
    pub fn named(word: &str) -> Option<Self> {
        let (element, scales, rows, columns) = match word {
            "fp8-1x128" => (Element::E4m3, Scales::F32, 1, 128),
            "fp8-1x128-ue8m0" => (Element::E4m3, Scales::PowerOfTwo, 1, 128),
            "fp8-128x128" => (Element::E4m3, Scales::F32, 128, 128),
            "fp8-128x128-ue8m0" => (Element::E4m3, Scales::PowerOfTwo, 128, 128),
            "mxfp4" => (Element::E2m1, Scales::Mx, 1, 32),
            "nvfp4" => (Element::E2m1, Scales::TwoLevels, 1, 16),
            _ => return None,
        };
        Some(Self { element, scales, rows, columns })
    }
}

/// The value of a code.
pub fn decode(element: Element, code: u8) -> f64 {
    let (sign_at, mantissa, bias) = match element {
        Element::E4m3 => (7, 3, 7),
        Element::E5m2 => (7, 2, 15),
        Element::E2m1 => (3, 1, 1),
    };
    let sign = if code >> sign_at & 1 == 1 { -1.0 } else { 1.0 };
    let size = code & ((1 << sign_at) - 1);
    let (exponent, fraction) = (i32::from(size >> mantissa), f64::from(size & ((1 << mantissa) - 1)));
    let step = 0.5_f64.powi(mantissa);
    match element {
        Element::E4m3 if size == 0x7f => return f64::NAN,
        Element::E5m2 if size == 0x7c => return sign * f64::INFINITY,
        Element::E5m2 if size > 0x7c => return f64::NAN,
        _ => {}
    }
    if exponent == 0 {
        return sign * fraction * step * 2_f64.powi(1 - bias);
    }
    sign * (1.0 + fraction * step) * 2_f64.powi(exponent - bias)
}

/// The values of a format's codes without sign, ascending, the finite ones.
fn ladder(element: Element) -> Vec<f64> {
    let codes = match element {
        Element::E4m3 => 0..0x7f,
        Element::E5m2 => 0..0x7c,
        Element::E2m1 => 0..8,
    };
    codes.map(|code| decode(element, code)).collect()
}

/// The code of the value nearest to `x`; NaN becomes the largest code, which only e2m1 lacks.
fn encode(element: Element, ladder: &[f64], x: f64) -> u8 {
    let sign = if x.is_sign_negative() { if element == Element::E2m1 { 8 } else { 0x80 } } else { 0 };
    if x.is_nan() {
        return if element == Element::E2m1 { 7 } else { 0x7f };
    }
    let size = x.abs();
    let above = ladder.partition_point(|v| *v < size).min(ladder.len() - 1);
    let below = above.saturating_sub(1);
    let (up, down) = (ladder[above] - size, size - ladder[below]);
    let nearest = if up < down || (up == down && above % 2 == 0) { above } else { below };
    sign | nearest as u8
}

/// The nearest value of a format, saturating; NaN stays NaN.
pub fn round(element: Element, x: f64) -> f64 {
    if x.is_nan() { x } else { decode(element, encode(element, &ladder(element), x)) }
}

/// Quantises `[rows, columns]`; blocks at the edges may be smaller.
pub fn quantise(values: &[f64], columns: usize, rule: Rule) -> Quantised {
    let rows = values.len() / columns;
    let (down, across) = (rows.div_ceil(rule.rows), columns.div_ceil(rule.columns));
    let mut quantised = Quantised { rule, columns, codes: Vec::new(), scales: Vec::new(), across, second: 1.0 };
    let mut largest = vec![0.0_f64; down * across];
    for (block, value) in quantised.blocks(rows).zip(values) {
        largest[block] = larger(largest[block], value.abs());
    }
    if rule.scales == Scales::TwoLevels {
        quantised.second = f32_of(largest.iter().copied().fold(0.0, larger) / (448.0 * 6.0));
    }
    quantised.scales = largest.iter().map(|amax| scale(rule.scales, *amax, quantised.second)).collect();
    let ladder = ladder(rule.element);
    let code = |(block, x): (usize, &f64)| {
        let scale = quantised.scales[block] * quantised.second;
        encode(rule.element, &ladder, if scale == 0.0 { 0.0 } else { x / scale })
    };
    quantised.codes = quantised.blocks(rows).zip(values).map(code).collect();
    quantised
}

/// The scale of a block with this largest absolute value.
fn scale(scales: Scales, amax: f64, second: f64) -> f64 {
    match scales {
        Scales::F32 => f32_of(larger(amax, FLOOR) / 448.0),
        Scales::PowerOfTwo => round_up_to_power_of_two(f32_of(larger(amax, FLOOR) / 448.0)),
        Scales::Mx => round_up_to_power_of_two(f32_of(larger(amax / 6.0, 2_f64.powi(-126)))),
        Scales::TwoLevels if second == 0.0 => 0.0,
        Scales::TwoLevels => round(Element::E4m3, f32_of(f32_of(amax / 6.0) / second)),
    }
}

/// The smallest power of two that is not less than the positive `x`.
pub fn round_up_to_power_of_two(x: f64) -> f64 {
    let bits = x.to_bits();
    let mantissa = bits & ((1 << 52) - 1);
    if mantissa == 0 || !x.is_finite() { x } else { f64::from_bits((bits - mantissa) + (1 << 52)) }
}

/// The larger one; NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn f32_of(x: f64) -> f64 {
    f64::from(x as f32)
}

impl Quantised {
    /// The block of every value, in C order.
    fn blocks(&self, rows: usize) -> impl Iterator<Item = usize> + use<> {
        let Self { rule, columns, across, .. } = *self;
        (0..rows).flat_map(move |row| (0..columns).map(move |column| row / rule.rows * across + column / rule.columns))
    }

    /// What comes back: `code * scale of the block * scale of the tensor`.
    pub fn dequantise(&self) -> Vec<f64> {
        self.read_as(self.rule.element)
    }

    /// The same if the codes are taken for those of `element`.
    pub fn read_as(&self, element: Element) -> Vec<f64> {
        let codes = if element == Element::E2m1 { 0..=15 } else { 0..=u8::MAX };
        let table: Vec<f64> = codes.map(|code| decode(element, code)).collect();
        let scales: Vec<f64> = self.scales.iter().map(|scale| scale * self.second).collect();
        let blocks = self.blocks(self.codes.len() / self.columns);
        blocks.zip(&self.codes).map(|(block, code)| table[usize::from(*code)] * scales[block]).collect()
    }
}

#[cfg(test)]
#[path = "quantise_tests.rs"]
mod tests;
