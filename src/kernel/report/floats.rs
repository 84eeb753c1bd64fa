//! Floats on disk: a finite number is a number, NaN and infinity are strings.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Float {
    Number(f64),
    Text(String),
}

/// Writes each float as a number or as `"NaN"`, `"inf"`, `"-inf"`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer
        .collect_seq(values.iter().map(|v| if v.is_finite() { Float::Number(*v) } else { Float::Text(v.to_string()) }))
}

/// Reads what [`serialize`] wrote.
///
/// # Errors
/// A string that is not a float.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let values = Vec::<Float>::deserialize(deserializer)?;
    values
        .into_iter()
        .map(|v| match v {
            Float::Number(v) => Ok(v),
            Float::Text(t) => t.parse().map_err(serde::de::Error::custom),
        })
        .collect()
}
