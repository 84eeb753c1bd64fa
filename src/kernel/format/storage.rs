//! What a tensor is stored in, as one word of a candidate.
//!
//! Responsible for the names and for storing a tensor and reading it back. Not responsible for the
//! formats themselves.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::Rounding;
use super::block::{BlockFormat, Element, Floor, ScaleRule, Span, dequantise, quantise};

/// What is done to a tensor at a rounding point.
///
/// Written as one word: a rounding rule such as `bf16`, or a block format such as `fp8-1x128`.
/// [`Storage::names`] lists them. `fp8-ROWSxCOLUMNS` makes a block of any size, and `-ue8m0` or
/// `-ue8m0-late` behind it another scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Storage {
    /// Each value is rounded by itself.
    Element(Rounding),
    /// Blocks of values share a scale.
    Block(BlockFormat),
}

impl Default for Storage {
    fn default() -> Self {
        Self::Element(Rounding::Exact)
    }
}

const ROW: Span = Span::Of(1);
const PAGE: Span = Span::Of(128);
const NOPE: Span = Span::Of(64);

/// The block formats that have a name of their own.
const NAMED: [(&str, BlockFormat); 15] = [
    ("fp8-1x128", BlockFormat::fp8(ROW, PAGE, ScaleRule::F32)),
    ("fp8-128x128", BlockFormat::fp8(PAGE, PAGE, ScaleRule::F32)),
    ("fp8-row", BlockFormat::fp8(ROW, Span::Whole, ScaleRule::F32)),
    ("fp8-tensor", BlockFormat::fp8(Span::Whole, Span::Whole, ScaleRule::F32)),
    ("fp8-1x128-ue8m0", BlockFormat::fp8(ROW, PAGE, ScaleRule::Ue8m0)),
    ("fp8-128x128-ue8m0", BlockFormat::fp8(PAGE, PAGE, ScaleRule::Ue8m0)),
    ("fp8-1x64-ue8m0", BlockFormat::fp8(ROW, NOPE, ScaleRule::Ue8m0)),
    ("fp8-row-ue8m0", BlockFormat::fp8(ROW, Span::Whole, ScaleRule::Ue8m0)),
    ("fp8-1x128-ue8m0-late", BlockFormat::fp8(ROW, PAGE, ScaleRule::Ue8m0Late)),
    ("fp8-128x128-ue8m0-late", BlockFormat::fp8(PAGE, PAGE, ScaleRule::Ue8m0Late)),
    ("fp8-1x64-ue8m0-late", BlockFormat::fp8(ROW, NOPE, ScaleRule::Ue8m0Late)),
    ("mxfp4", BlockFormat::mxfp4(Element::E2m1, Floor::SmallestNormal)),
    ("mxfp4-floor", BlockFormat::mxfp4(Element::E2m1, Floor::TenThousandth)),
    ("mxfp4-deepgemm", BlockFormat::mxfp4(Element::E2m1Strict, Floor::TenThousandth)),
    ("nvfp4", BlockFormat::NVFP4),
];

impl Storage {
    /// The values that remain of `[rows, columns]` in C order; the last row may be short, and 0
    /// columns mean one row. Results are exact products of element and scale.
    pub fn store(self, values: &[f64], columns: usize) -> Vec<f64> {
        match self {
            Self::Element(Rounding::Exact) => values.to_vec(),
            Self::Element(rule) => values.iter().map(|v| rule.round(*v)).collect(),
            Self::Block(format) => dequantise(&quantise(format, values, columns)),
        }
    }

    /// The largest relative error of an element that is a normal number under its scale (half a unit
    /// in the last place), not counting the error of a late or a saturated scale.
    pub fn unit(self) -> f64 {
        match self {
            Self::Element(rule) => rule.unit(),
            Self::Block(format) => match format.element {
                Element::E4m3 => Rounding::E4m3.unit(),
                Element::E2m1 | Element::E2m1Strict => Rounding::E2m1.unit(),
            },
        }
    }

    /// Its name. A block format that is neither named nor `fp8-ROWSxCOLUMNS` is called
    /// `unnamed-block`, which cannot be read back.
    pub fn word(self) -> String {
        let format = match self {
            Self::Element(rule) => return rule.word().into(),
            Self::Block(format) => format,
        };
        if let Some((name, _)) = NAMED.iter().find(|(_, named)| *named == format) {
            return (*name).into();
        }
        sized(format).unwrap_or_else(|| "unnamed-block".into())
    }

    /// The names, those of rounding rules first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Rounding::ALL.into_iter().map(Rounding::word).chain(NAMED.iter().map(|(name, _)| *name))
    }
}

/// `fp8-ROWSxCOLUMNS` with its scale, if the format is that.
fn sized(format: BlockFormat) -> Option<String> {
    let (Span::Of(rows), Span::Of(columns)) = (format.rows, format.columns) else { return None };
    if rows == 0 || columns == 0 || format != BlockFormat::fp8(format.rows, format.columns, format.scale) {
        return None;
    }
    let scale = match format.scale {
        ScaleRule::F32 => "",
        ScaleRule::Ue8m0 => "-ue8m0",
        ScaleRule::Ue8m0Late => "-ue8m0-late",
        ScaleRule::E4m3OfTensor => return None,
    };
    Some(format!("fp8-{rows}x{columns}{scale}"))
}

fn read_sized(word: &str) -> Option<BlockFormat> {
    let rest = word.strip_prefix("fp8-")?;
    let (size, scale) = rest.split_once('-').map_or((rest, None), |(size, scale)| (size, Some(scale)));
    let scale = match scale {
        None => ScaleRule::F32,
        Some("ue8m0") => ScaleRule::Ue8m0,
        Some("ue8m0-late") => ScaleRule::Ue8m0Late,
        Some(_) => return None,
    };
    let (rows, columns) = size.split_once('x')?;
    let count = |text: &str| text.parse().ok().filter(|count| *count > 0).map(Span::Of);
    Some(BlockFormat::fp8(count(rows)?, count(columns)?, scale))
}

/// A word that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no number format `{word}`; there are {}, and fp8-ROWSxCOLUMNS with -ue8m0 or -ue8m0-late behind it",
    Storage::names().collect::<Vec<_>>().join(", ")
)]
pub struct UnknownStorage {
    /// The word.
    pub word: String,
}

impl FromStr for Storage {
    type Err = UnknownStorage;

    fn from_str(word: &str) -> Result<Self, UnknownStorage> {
        if let Some(rule) = Rounding::ALL.into_iter().find(|rule| rule.word() == word) {
            return Ok(Self::Element(rule));
        }
        let named = NAMED.iter().find(|(name, _)| *name == word).map(|(_, format)| *format);
        let format = named.or_else(|| read_sized(word)).ok_or_else(|| UnknownStorage { word: word.into() })?;
        Ok(Self::Block(format))
    }
}

impl TryFrom<String> for Storage {
    type Error = UnknownStorage;

    fn try_from(word: String) -> Result<Self, UnknownStorage> {
        word.parse()
    }
}

impl From<Storage> for String {
    fn from(storage: Storage) -> Self {
        storage.word()
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.word())
    }
}

impl JsonSchema for Storage {
    fn schema_name() -> Cow<'static, str> {
        "Storage".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "What is done to a tensor at a rounding point: one of the examples, or \
                            fp8-ROWSxCOLUMNS with -ue8m0 or -ue8m0-late behind it.",
            "examples": Storage::names().collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_element(storage: Storage) -> bool {
        matches!(storage, Storage::Element(_))
    }

    #[derive(Debug, Deserialize, Serialize)]
    struct Points {
        round: std::collections::BTreeMap<String, Storage>,
    }

    #[test]
    fn every_name_reads_back_as_itself() {
        for name in Storage::names() {
            let storage: Storage = name.parse().unwrap();
            assert_eq!(storage.word(), name);
            assert_eq!(serde_json::to_string(&storage).unwrap(), format!("\"{name}\""));
        }
    }

    #[test]
    fn names_are_different_and_so_are_formats() {
        let formats: Vec<Storage> = Storage::names().map(|name| name.parse().unwrap()).collect();
        for (i, format) in formats.iter().enumerate() {
            assert!(!formats[..i].contains(format), "{format}");
        }
    }

    #[test]
    fn a_rounding_rule_has_one_name() {
        for rule in Rounding::ALL {
            assert_eq!(serde_json::to_string(&rule).unwrap(), format!("\"{}\"", rule.word()));
        }
    }

    #[test]
    fn points_are_words_in_toml() {
        let points: Points = toml::from_str("round = { output = \"bf16\", cache = \"fp8-1x64-ue8m0\" }").unwrap();
        assert_eq!(points.round["output"], Storage::Element(Rounding::Bf16));
        assert_eq!(points.round["cache"].word(), "fp8-1x64-ue8m0");
    }

    #[test]
    fn an_unknown_word_is_told_with_all_names() {
        for word in ["fp8-1x129x", "bf-16", "", "fp8-0x128", "fp8-1x128-late", "fp8-1x128-", "FP8-1x128", "fp8-"] {
            let said = toml::from_str::<Points>(&format!("round = {{ output = \"{word}\" }}")).unwrap_err().to_string();
            assert!(said.contains(&format!("`{word}`")), "{said}");
            assert!(Storage::names().all(|name| said.contains(name)), "{said}");
        }
    }

    #[test]
    fn a_format_without_a_name_does_not_pretend_to_have_one() {
        let odd = BlockFormat { element: Element::E2m1, ..BlockFormat::fp8(ROW, PAGE, ScaleRule::F32) };
        let word = Storage::Block(odd).word();
        assert!(word.parse::<Storage>().is_err(), "{word}");
    }

    #[test]
    fn the_schema_is_a_string() {
        let schema = serde_json::to_value(schemars::schema_for!(Storage)).unwrap();
        assert_eq!(schema["type"], "string");
        assert_eq!(schema["examples"].as_array().unwrap().len(), Storage::names().count());
    }

    #[test]
    fn what_is_not_named_stays_exact() {
        let values = [0.1, f64::NAN, -1e300];
        let stored = Storage::default().store(&values, 3);
        assert!(stored.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    proptest! {
        #[test]
        fn a_sized_block_reads_back(rows in 1_usize..300, columns in 1_usize..300, scale in 0..3) {
            let scale = [ScaleRule::F32, ScaleRule::Ue8m0, ScaleRule::Ue8m0Late][scale as usize];
            let storage = Storage::Block(BlockFormat::fp8(Span::Of(rows), Span::Of(columns), scale));
            prop_assert_eq!(storage.word().parse::<Storage>().unwrap(), storage);
        }

        #[test]
        fn every_format_keeps_the_shape_and_the_sign(
            values in prop::collection::vec(-1e3_f64..1e3, 0..300), columns in 0_usize..70,
        ) {
            for name in Storage::names() {
                let storage: Storage = name.parse().unwrap();
                let stored = storage.store(&values, columns);
                prop_assert_eq!(stored.len(), values.len());
                for (got, value) in stored.iter().zip(&values) {
                    prop_assert!(got * value >= 0.0 || got.is_nan(), "{} {} {}", name, got, value);
                }
            }
        }

        #[test]
        fn storing_what_was_stored_changes_nothing(
            values in prop::collection::vec(-1e3_f64..1e3, 1..300), columns in 1_usize..70,
        ) {
            // A late scale moves the values each time; an f32 scale is made anew of a rounded
            // maximum, and so are those of NVFP4.
            let lasting = |name: &&str| {
                name.ends_with("ue8m0") || name.starts_with("mxfp4") || name.parse::<Storage>().is_ok_and(is_element)
            };
            for name in Storage::names().filter(lasting) {
                let storage: Storage = name.parse().unwrap();
                let once = storage.store(&values, columns);
                let twice = storage.store(&once, columns);
                let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
                prop_assert!(once.iter().zip(&twice).all(same), "{} {:?} {:?}", name, once, twice);
            }
        }
    }
}
