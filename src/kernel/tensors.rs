//! Named tensors: how a microtest hands its inputs to a kernel or a command, and gets its outputs back.
//!
//! Responsible for their form in memory and as a safetensors file. Not responsible for what they mean.

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use crate::engine::procedure::Failure;
use crate::untrusted::Untrusted;

/// A tensor in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name, such as `weight`.
    pub name: &'static str,
    /// Extents.
    pub shape: Vec<usize>,
    /// The values.
    pub data: Data,
    /// Whether its first extent counts the rows of the task.
    pub by_row: bool,
}

/// Values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Numbers.
    F32(Vec<f32>),
    /// Indices.
    I32(Vec<i32>),
    /// Bytes of a cache.
    U8(Vec<u8>),
}

/// A tensor that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Name, such as `scores`.
    pub name: &'static str,
    /// Extents.
    pub shape: Vec<usize>,
    /// What its values are.
    pub kind: Kind,
    /// Whether its first extent counts the rows of the task.
    pub by_row: bool,
}

/// What values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers.
    F32,
    /// Indices.
    I32,
}

impl Tensor {
    /// Numbers, each the nearest f32, with one row for each row of the task.
    pub fn rows(name: &'static str, shape: &[usize], values: &[f64]) -> Self {
        Self { by_row: true, ..Self::whole(name, shape, values) }
    }

    /// Numbers, each the nearest f32, that all rows share.
    pub fn whole(name: &'static str, shape: &[usize], values: &[f64]) -> Self {
        let data = Data::F32(values.iter().map(|v| *v as f32).collect());
        Self { name, shape: shape.to_vec(), data, by_row: false }
    }

    /// Bytes that all rows share.
    pub fn of_bytes(name: &'static str, bytes: Vec<u8>) -> Self {
        Self { name, shape: vec![bytes.len()], data: Data::U8(bytes), by_row: false }
    }

    /// Indices that all rows share.
    pub fn of_indices(name: &'static str, indices: &[usize]) -> Self {
        let data = Data::I32(indices.iter().map(|i| *i as i32).collect());
        Self { name, shape: vec![indices.len()], data, by_row: false }
    }

    /// Bytes of it.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::F32(values) => bytemuck::cast_slice(values),
            Data::I32(values) => bytemuck::cast_slice(values),
            Data::U8(values) => values,
        }
    }

    /// Its numbers in f64; none where it holds no numbers.
    pub fn numbers(&self) -> Vec<f64> {
        match &self.data {
            Data::F32(values) => values.iter().map(|v| f64::from(*v)).collect(),
            Data::I32(_) | Data::U8(_) => Vec::new(),
        }
    }

    /// Its indices; none where it holds no indices.
    pub fn indices(&self) -> &[i32] {
        match &self.data {
            Data::I32(values) => values,
            Data::F32(_) | Data::U8(_) => &[],
        }
    }

    /// Some rows of it, or all of it where all rows share it.
    #[must_use]
    pub fn part(&self, rows: std::ops::Range<usize>) -> Self {
        if !self.by_row {
            return self.clone();
        }
        let inner: usize = self.shape[1..].iter().product();
        let range = rows.start * inner..rows.end * inner;
        let data = match &self.data {
            Data::F32(values) => Data::F32(values[range].to_vec()),
            Data::I32(values) => Data::I32(values[range].to_vec()),
            Data::U8(values) => Data::U8(values[range].to_vec()),
        };
        let mut shape = self.shape.clone();
        shape[0] = rows.len();
        Self { shape, data, ..self.clone() }
    }
}

impl Slot {
    /// Numbers, one row for each row of the task.
    pub fn rows(name: &'static str, shape: &[usize]) -> Self {
        Self { name, shape: shape.to_vec(), kind: Kind::F32, by_row: true }
    }

    /// Values in it.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The slot of so many rows.
    #[must_use]
    pub fn part(&self, rows: usize) -> Self {
        let mut slot = self.clone();
        if slot.by_row {
            slot.shape[0] = rows;
        }
        slot
    }

    /// The slot filled with these bytes, little-endian.
    pub fn filled(&self, bytes: &[u8]) -> Tensor {
        let (words, _) = bytes.as_chunks::<4>();
        let data = match self.kind {
            Kind::F32 => Data::F32(words.iter().map(|w| f32::from_le_bytes(*w)).collect()),
            Kind::I32 => Data::I32(words.iter().map(|w| i32::from_le_bytes(*w)).collect()),
        };
        Tensor { name: self.name, shape: self.shape.clone(), data, by_row: self.by_row }
    }
}

/// The tensors as a safetensors file, with notes for whoever reads it.
///
/// # Errors
/// Two tensors have one name.
pub fn to_file(tensors: &[Tensor], notes: BTreeMap<String, String>) -> Result<Vec<u8>, Failure> {
    let wrong = |e: safetensors::SafeTensorError| Failure::new(format!("tensors cannot be written: {e}"));
    let views = tensors
        .iter()
        .map(|t| {
            let dtype = match t.data {
                Data::F32(_) => Dtype::F32,
                Data::I32(_) => Dtype::I32,
                Data::U8(_) => Dtype::U8,
            };
            Ok((t.name, TensorView::new(dtype, t.shape.clone(), t.bytes()).map_err(wrong)?))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    serialize(views, Some(notes.into_iter().collect())).map_err(wrong)
}

/// The wanted tensors out of a safetensors file; more than these may be in it.
///
/// # Errors
/// It is no such file, a tensor is missing, or has another type or shape.
pub fn from_file(bytes: &[u8], wanted: &[Slot]) -> Result<Vec<Tensor>, Failure> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| Failure::new(format!("no safetensors file: {e}")))?;
    let one = |slot: &Slot| {
        let name = slot.name;
        let Ok(view) = file.tensor(name) else {
            let there = Untrusted::from(file.names().join(", ")).visible(160);
            return Err(Failure::new(format!("tensor `{name}` is missing")).hint(format!("there is {there}")));
        };
        let dtype = match slot.kind {
            Kind::F32 => Dtype::F32,
            Kind::I32 => Dtype::I32,
        };
        if view.dtype() != dtype || view.shape() != slot.shape {
            let (got, shape) = (view.dtype(), view.shape());
            let message = format!("tensor `{name}` is {got:?} {shape:?} where {dtype:?} {:?} is needed", slot.shape);
            return Err(Failure::new(message));
        }
        Ok(slot.filled(view.data()))
    };
    wanted.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let a = Tensor::rows("a", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 0.1]);
        let b = Tensor { name: "b", shape: vec![1], data: Data::I32(vec![-1]), by_row: false };
        let bytes = to_file(&[a.clone(), b.clone()], BTreeMap::new()).unwrap();
        let slot = Slot { kind: Kind::I32, by_row: false, ..Slot::rows("b", &[1]) };
        assert_eq!(from_file(&bytes, &[Slot::rows("a", &[2, 3]), slot]).unwrap(), [a.clone(), b]);
        assert_eq!(a.part(1..2).numbers(), [4.0, 5.0, f64::from(0.1_f32)]);
        assert_eq!(a.part(1..2).shape, [1, 3]);
    }

    #[test]
    fn what_does_not_fit_is_one_clear_error() {
        let bytes = to_file(&[Tensor::whole("a", &[2], &[1.0, 2.0])], BTreeMap::new()).unwrap();
        let check = |bytes: &[u8], slot: Slot, expect: &str| {
            assert_eq!(from_file(bytes, &[slot]).unwrap_err().message, expect);
        };
        check(&bytes, Slot::rows("b", &[2]), "tensor `b` is missing");
        check(&bytes, Slot::rows("a", &[3]), "tensor `a` is F32 [2] where F32 [3] is needed");
        let indices = Slot { kind: Kind::I32, ..Slot::rows("a", &[2]) };
        check(&bytes, indices, "tensor `a` is F32 [2] where I32 [2] is needed");
        let torn = from_file(&bytes[..20], &[]).unwrap_err().message;
        assert!(torn.starts_with("no safetensors file: "), "{torn}");
    }
}
