//! Floats on disk: a finite number is a number, NaN and infinity are strings.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Float {
    Number(f64),
    Text(String),
}

impl From<f64> for Float {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Text(value.to_string()) }
    }
}

impl Float {
    fn read<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Self::Number(value) => Ok(value),
            Self::Text(text) => text.parse().map_err(E::custom),
        }
    }
}

/// Writes each float as a number or as `"NaN"`, `"inf"`, `"-inf"`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|v| Float::from(*v)))
}

/// Reads what [`serialize`] wrote.
///
/// # Errors
/// A string that is not a float.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    Vec::<Float>::deserialize(deserializer)?.into_iter().map(Float::read).collect()
}

/// The same for one float.
pub mod one {
    use super::{Deserialize, Deserializer, Float, Serialize, Serializer};

    /// Writes it as a number or as a string.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Float::from(*value).serialize(serializer)
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// A string that is not a float.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Float::deserialize(deserializer)?.read()
    }
}

/// The same for an array.
pub mod array {
    use super::{Deserializer, Serializer};

    /// Writes each float as a number or as a string.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer, const N: usize>(values: &[f64; N], serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize(values, serializer)
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// A string that is not a float, or another number of floats.
    pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(deserializer: D) -> Result<[f64; N], D::Error> {
        let values = super::deserialize(deserializer)?;
        let count = values.len();
        values.try_into().map_err(|_| serde::de::Error::custom(format!("{count} numbers instead of {N}")))
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::report::{Growth, Member, Spread};

    fn again<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
        serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_finite_comes_back_from_disk() {
        let growth = Growth::Break { at: 3, factor: f64::INFINITY };
        assert_eq!(again(&growth), growth);
        assert_eq!(again(&Growth::NoiseLike { exponent: 0.5 }), Growth::NoiseLike { exponent: 0.5 });
        let member = Member { name: "m".into(), says: String::new(), rms: f64::NAN };
        assert!(again(&member).rms.is_nan());
        let spread = Spread {
            candidate: String::new(),
            part: String::new(),
            elements: 1,
            max_abs: None,
            rms: None,
            quantiles: [0.5, 1.0, f64::NAN, f64::NEG_INFINITY],
            ratio: None,
            histogram: Vec::new(),
        };
        let read = again(&spread).quantiles;
        assert_eq!((read[0], read[1], read[3]), (0.5, 1.0, f64::NEG_INFINITY));
        assert!(read[2].is_nan());
    }

    #[test]
    fn another_number_of_floats_is_told() {
        let text = r#"{"candidate":"","part":"","elements":0,"max_abs":null,"rms":null,"quantiles":[1.0],"ratio":null,"histogram":[]}"#;
        let said = serde_json::from_str::<Spread>(text).unwrap_err().to_string();
        assert!(said.contains("1 numbers instead of 4"), "{said}");
    }
}
