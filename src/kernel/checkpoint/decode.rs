//! Stored values as f64.
//!
//! Responsible for single elements of every type that has one number per element. Not responsible for block scales, nor
//! for types that pack two values into a byte; who knows those takes the bytes.

use half::{bf16, f16};
use safetensors::Dtype;

use crate::kernel::format::fp8::{decode_e4m3, decode_e5m2};
use crate::kernel::format::ue8m0;

/// Little-endian values as f64; `None` for a type that is not converted.
///
/// Every float is exact; the 8-bit ones are those of [`crate::kernel::format`]. Integers are exact up to 2^53, beyond that
/// rounded to nearest.
pub(super) fn decode(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|chunk| value(*chunk)).collect()
    }
    Some(match dtype {
        Dtype::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f64()),
        Dtype::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f64()),
        Dtype::F32 => each(bytes, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F64 => each(bytes, f64::from_le_bytes),
        Dtype::I64 => each(bytes, |b| i64::from_le_bytes(b) as f64),
        Dtype::I32 => each(bytes, |b| f64::from(i32::from_le_bytes(b))),
        Dtype::I8 => each(bytes, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::U8 => each(bytes, |[b]| f64::from(b)),
        Dtype::F8_E4M3 => each(bytes, |[b]| f64::from(decode_e4m3(b))),
        Dtype::F8_E5M2 => each(bytes, |[b]| f64::from(decode_e5m2(b))),
        Dtype::F8_E8M0 => each(bytes, |[b]| f64::from(ue8m0::decode(b))),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_reads_its_values() {
        let check = |dtype: Dtype, bytes: &[u8], expect: &[f64]| {
            assert_eq!(decode(dtype, bytes).unwrap(), expect, "{dtype}");
        };
        check(Dtype::BF16, &[0xcd, 0x3d], &[0.100_097_656_25]);
        check(Dtype::F16, &[0x00, 0x3c, 0x01, 0x00], &[1.0, 2_f64.powi(-24)]);
        check(Dtype::F32, &1.5_f32.to_le_bytes(), &[1.5]);
        check(Dtype::F64, &0.1_f64.to_le_bytes(), &[0.1]);
        check(Dtype::I64, &(-3_i64).to_le_bytes(), &[-3.0]);
        check(Dtype::I32, &i32::MIN.to_le_bytes(), &[-2_147_483_648.0]);
        check(Dtype::I8, &[0x80, 0x7f], &[-128.0, 127.0]);
        check(Dtype::U8, &[0xff], &[255.0]);
        check(
            Dtype::F8_E4M3,
            &[0x1d, 0x01, 0x7e, 0xfe, 0x00, 0xb8],
            &[0.101_562_5, 2_f64.powi(-9), 448.0, -448.0, 0.0, -1.0],
        );
        check(Dtype::F8_E5M2, &[0x3c, 0x7b, 0x01, 0xfc], &[1.0, 57_344.0, 2_f64.powi(-16), f64::NEG_INFINITY]);
        check(Dtype::F8_E8M0, &[127, 0, 254, 128], &[1.0, 2_f64.powi(-127), 2_f64.powi(127), 2.0]);
        check(Dtype::F32, &[], &[]);
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for (dtype, byte) in
            [(Dtype::F8_E4M3, 0x7f), (Dtype::F8_E4M3, 0xff), (Dtype::F8_E8M0, 0xff), (Dtype::F8_E5M2, 0x7d)]
        {
            assert!(decode(dtype, &[byte]).unwrap()[0].is_nan(), "{dtype} {byte:#x}");
        }
        assert!(decode(Dtype::BF16, &[0xc0, 0x7f]).unwrap()[0].is_nan());
    }

    #[test]
    fn e4m3_ascends_over_all_codes() {
        let e4m3 = |code: u8| decode(Dtype::F8_E4M3, &[code]).unwrap()[0];
        let values: Vec<f64> = (0..0x7f).map(e4m3).collect();
        assert!(values.is_sorted_by(|a, b| a < b));
        assert!((0..0x7f).all(|code| e4m3(code | 0x80).to_bits() == (-e4m3(code)).to_bits()));
    }

    #[test]
    fn packed_and_boolean_types_are_not_converted() {
        for dtype in [Dtype::F4, Dtype::BOOL, Dtype::C64] {
            assert_eq!(decode(dtype, &[0; 8]), None, "{dtype}");
        }
    }
}
