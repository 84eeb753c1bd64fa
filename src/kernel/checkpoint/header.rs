//! The header of one safetensors file.
//!
//! Responsible for every check that offsets, types and sizes allow before a byte of data is read. Not responsible for
//! fetching the header, which is `u64` little-endian length, then JSON.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::ops::Range;

use safetensors::Dtype;
use serde::Deserialize;
use serde::de::value::Error as WordError;
use serde::de::{Deserializer, IntoDeserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::Damage;

/// Bytes before the JSON.
pub(super) const PREFIX: u64 = 8;
/// The longest header that is read; the safetensors library has the same bound.
const LIMIT: u64 = 100_000_000;

/// Where a tensor lies and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Stored type.
    pub dtype: Dtype,
    /// Extent of each dimension, slowest first.
    pub shape: Vec<usize>,
    /// Its bytes, counted from the start of the file.
    pub bytes: Range<u64>,
}

/// What one file holds.
#[derive(Debug, Default)]
pub(super) struct Header {
    places: HashMap<String, Place>,
    /// The names in the order of their data.
    order: Vec<String>,
}

/// Length of the JSON, from the first eight bytes of a file of so many bytes.
///
/// # Errors
/// The file is too short, or the length is more than the file has or than is read.
pub(super) fn length(first: &[u8], file: u64) -> Result<u64, Damage> {
    let Some(word) = first.first_chunk::<8>().filter(|_| file >= PREFIX) else {
        return Err(Damage::Short { length: file });
    };
    let announced = u64::from_le_bytes(*word);
    if announced > LIMIT || announced > file - PREFIX {
        return Err(Damage::HeaderLength { announced, length: file });
    }
    Ok(announced)
}

impl Header {
    /// Reads and checks the JSON of a file of so many bytes.
    ///
    /// # Errors
    /// It is no such JSON, or the tensors do not fill the data exactly: without overlap or hole, each as long as its type
    /// and shape say, none behind the end.
    pub(super) fn parse(json: &[u8], file: u64) -> Result<Self, Damage> {
        let Pairs(pairs) = serde_json::from_slice(json).map_err(|error| Damage::Json(error.to_string()))?;
        let data = PREFIX + json.len() as u64;
        let there = file.saturating_sub(data);
        let mut found = Vec::with_capacity(pairs.len());
        for (tensor, raw) in pairs {
            if tensor == "__metadata__" {
                continue;
            }
            let stored: Stored =
                serde_json::from_str(raw.get()).map_err(|error| Damage::Json(format!("tensor `{tensor}`: {error}")))?;
            found.push((stored.check(&tensor)?, tensor));
        }
        found.sort_by_key(|((_, _, bytes), _)| (bytes.start, bytes.end));
        let mut header = Self { places: HashMap::with_capacity(found.len()), order: Vec::with_capacity(found.len()) };
        let mut filled = 0;
        for ((dtype, shape, bytes), tensor) in found {
            if bytes.start < filled {
                let first = header.order.last().cloned().unwrap_or_default();
                // Two descriptions of one name overlap too; that it stands there twice says more.
                return Err(if header.places.contains_key(&tensor) {
                    Damage::Twice { tensor }
                } else {
                    Damage::Overlap { first, second: tensor }
                });
            }
            if bytes.start > filled {
                return Err(Damage::Hole { tensor, bytes: bytes.start - filled });
            }
            if bytes.end > there {
                return Err(Damage::Beyond { tensor, end: bytes.end, there });
            }
            filled = bytes.end;
            match header.places.entry(tensor.clone()) {
                Slot::Occupied(_) => return Err(Damage::Twice { tensor }),
                Slot::Vacant(slot) => slot.insert(Place { dtype, shape, bytes: data + bytes.start..data + bytes.end }),
            };
            header.order.push(tensor);
        }
        if filled < there {
            return Err(Damage::Trailing { described: filled, there });
        }
        Ok(header)
    }

    /// Where a tensor lies.
    pub(super) fn place(&self, name: &str) -> Option<&Place> {
        self.places.get(name)
    }

    /// The names in the order of their data.
    pub(super) fn names(&self) -> &[String] {
        &self.order
    }

    /// All tensors.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.values()
    }
}

/// One tensor as the header describes it.
#[derive(Deserialize)]
struct Stored {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

impl Stored {
    /// Type, shape and place within the data.
    fn check(self, tensor: &str) -> Result<(Dtype, Vec<usize>, Range<u64>), Damage> {
        let Self { dtype: word, shape, data_offsets: (start, end) } = self;
        let dtype: Result<Dtype, WordError> = Dtype::deserialize(word.as_str().into_deserializer());
        let tensor = || tensor.to_owned();
        let Ok(dtype) = dtype else { return Err(Damage::UnknownDtype { tensor: tensor(), dtype: word }) };
        if start > end {
            return Err(Damage::Backwards { tensor: tensor(), start, end });
        }
        let found = end - start;
        let bits = shape.iter().try_fold(dtype.bitsize() as u64, |bits, extent| bits.checked_mul(*extent as u64));
        let needed = bits.map(|bits| (bits / 8, bits % 8));
        if needed == Some((found, 0)) {
            return Ok((dtype, shape, start..end));
        }
        let needed = match needed {
            None => "more than any file's".to_owned(),
            Some((whole, 0)) => whole.to_string(),
            Some((whole, _)) => format!("{whole} and a part of one"),
        };
        Err(Damage::Size { tensor: tensor(), dtype: word, shape, needed, found })
    }
}

/// The entries of an object in their order, a name that stands there twice twice.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one entry for each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use safetensors::tensor::{TensorView, serialize};

    use super::*;

    /// What is said of a header with this JSON before so many bytes of data.
    fn said(json: &str, data: u64) -> String {
        match Header::parse(json.as_bytes(), PREFIX + json.len() as u64 + data) {
            Ok(header) => format!("{} tensors", header.names().len()),
            Err(damage) => damage.to_string(),
        }
    }

    fn tensor(name: &str, dtype: &str, shape: &str, start: u64, end: u64) -> String {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    }

    #[test]
    fn the_length_of_a_header_is_checked_before_it_is_read() {
        let check = |first: &[u8], file: u64, expect: Result<u64, Damage>| assert_eq!(length(first, file), expect);
        check(&[2, 0, 0, 0, 0, 0, 0, 0], 10, Ok(2));
        check(&[], 0, Err(Damage::Short { length: 0 }));
        check(&[2, 0, 0, 0, 0, 0, 0], 7, Err(Damage::Short { length: 7 }));
        check(&[3, 0, 0, 0, 0, 0, 0, 0], 10, Err(Damage::HeaderLength { announced: 3, length: 10 }));
        check(&[255; 8], u64::MAX, Err(Damage::HeaderLength { announced: u64::MAX, length: u64::MAX }));
        let large = 100_000_001_u64;
        check(&large.to_le_bytes(), u64::MAX, Err(Damage::HeaderLength { announced: large, length: u64::MAX }));
    }

    #[test]
    fn every_damage_has_its_sentence() {
        let check = |tensors: &[String], data: u64, expect: &str| {
            assert_eq!(said(&format!("{{{}}}", tensors.join(",")), data), expect);
        };
        let a = || tensor("a", "F32", "[2]", 0, 8);
        check(&[a(), tensor("b", "BF16", "[1,1]", 8, 10)], 10, "2 tensors");
        check(&[r#""__metadata__":{"format":"pt"}"#.into(), a()], 8, "1 tensors");
        check(&[], 0, "0 tensors");
        check(&[tensor("empty", "F32", "[0,7]", 0, 0), a()], 8, "2 tensors");
        check(&[tensor("scalar", "F32", "[]", 0, 4)], 4, "1 tensors");
        check(&[a(), tensor("b", "F32", "[2]", 4, 12)], 12, "tensors `a` and `b` overlap");
        check(&[tensor("b", "U8", "[2]", 2, 4), a()], 8, "tensors `a` and `b` overlap");
        check(&[a(), a()], 8, "tensor `a` stands there twice");
        check(&[a(), tensor("a", "F32", "[2]", 8, 16)], 16, "tensor `a` stands there twice");
        check(&[a(), tensor("b", "F32", "[1]", 12, 16)], 16, "4 bytes before tensor `b` belong to none");
        check(&[tensor("b", "F32", "[1]", 4, 8)], 8, "4 bytes before tensor `b` belong to none");
        check(&[a()], 7, "tensor `a` ends at byte 8 of the data, and 7 are there");
        check(&[a()], 9, "its header describes 8 bytes of data and 9 are there");
        check(&[tensor("a", "F32", "[2]", 8, 0)], 8, "tensor `a` begins at byte 8 of the data and ends at 0");
        check(&[tensor("a", "BF16", "[2]", 0, 8)], 8, "tensor `a` is BF16 [2], which takes 4 bytes, and has 8");
        check(
            &[tensor("a", "F4", "[3]", 0, 2)],
            2,
            "tensor `a` is F4 [3], which takes 1 and a part of one bytes, and has 2",
        );
        let huge = format!("[{0},{0}]", u64::MAX);
        let all = format!("tensor `a` is F32 [{0}, {0}], which takes more than any file's bytes, and has 8", u64::MAX);
        check(&[tensor("a", "F32", &huge, 0, 8)], 8, &all);
        check(&[tensor("a", "Q4_K", "[2]", 0, 8)], 8, "tensor `a` has the type `Q4_K`, which the format does not know");
        let half = r#""a":{"dtype":"F32","shape":[2]}"#.to_owned();
        check(&[half], 8, "it is no JSON that fits: tensor `a`: missing field `data_offsets` at line 1 column 27");
    }

    #[test]
    fn what_is_no_header_is_said() {
        for json in ["", "[]", "{", "\u{0}", r#"{"a":1,}"#, "{} {}"] {
            assert!(said(json, 0).starts_with("it is no JSON that fits: "), "{json}: {}", said(json, 0));
        }
        assert!(Header::parse(b"\xff\xfe", 10).is_err());
    }

    proptest! {
        #[test]
        fn what_the_library_writes_reads_back(extents in proptest::collection::vec(0_usize..5, 0..8)) {
            let data: Vec<Vec<u8>> = extents.iter().map(|n| vec![1; n * 4]).collect();
            let names: Vec<String> = (0..extents.len()).map(|at| format!("t{at}")).collect();
            let views = names.iter().zip(&data).zip(&extents);
            let views: Vec<(&str, TensorView<'_>)> = views
                .map(|((name, data), n)| (name.as_str(), TensorView::new(Dtype::F32, vec![*n], data).unwrap()))
                .collect();
            let file = serialize(views, None).unwrap();
            let json = length(&file, file.len() as u64).unwrap();
            let header = Header::parse(&file[8..8 + json as usize], file.len() as u64).unwrap();
            prop_assert_eq!(header.names().len(), extents.len());
            for (name, n) in names.iter().zip(&extents) {
                let place = header.place(name).unwrap();
                prop_assert_eq!((place.dtype, &place.shape), (Dtype::F32, &vec![*n]));
                prop_assert_eq!(place.bytes.end - place.bytes.start, 4 * *n as u64);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), file in any::<u64>()) {
            let _ = length(&bytes, file);
            let _ = Header::parse(&bytes, file);
        }
    }
}
