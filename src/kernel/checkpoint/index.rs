//! `model.safetensors.index.json`: which shard holds which tensor.
//!
//! Responsible for reading the text once, without a copy per name, and for finding a name in it. Not responsible for
//! what the shards hold; see `header`.

use std::fmt;
use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::error::Damage;

/// The names of all tensors and their shards.
///
/// All names stand in one text, one after the other: 135,235 strings of their own would cost as much as the parsing.
#[derive(Debug, Default)]
pub(super) struct Index {
    names: String,
    ends: Vec<u32>,
    shard_of: Vec<u32>,
    shards: Vec<String>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    total_size: Option<u64>,
}

impl Index {
    /// Reads the text of an index.
    ///
    /// # Errors
    /// It is no JSON, has no `weight_map`, names a tensor twice, or a shard by something that is no plain file name.
    pub(super) fn parse(text: &str) -> Result<Self, Damage> {
        if u32::try_from(text.len()).is_err() {
            return Err(Damage::Json(format!("{} bytes are more than an index can have", text.len())));
        }
        // A name and its shard take 80 bytes of a published index; what is too little grows.
        let expected = text.len() / 80;
        let mut building = Building {
            index: Self {
                names: String::with_capacity(text.len()),
                ends: Vec::with_capacity(expected),
                shard_of: Vec::with_capacity(expected),
                table: HashTable::with_capacity(expected),
                ..Self::default()
            },
            maps: 0,
            wrong: None,
        };
        let mut json = serde_json::Deserializer::from_str(text);
        let read = (&mut json).deserialize_map(Whole(&mut building)).and_then(|()| json.end());
        read.map_err(|error| Damage::Json(error.to_string()))?;
        match building {
            Building { wrong: Some(wrong), .. } => Err(wrong),
            Building { maps: 0, .. } => Err(Damage::NoMap),
            Building { index, .. } => Ok(index),
        }
    }

    /// Number of tensors.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all tensors, as the index says.
    pub(super) fn total_size(&self) -> Option<u64> {
        self.total_size
    }

    /// File names of the shards, in the order in which they are first named.
    pub(super) fn shards(&self) -> &[String] {
        &self.shards
    }

    /// Where in `shards` the one with this tensor stands.
    pub(super) fn shard_of(&self, name: &str) -> Option<usize> {
        let found = self.table.find(self.hasher.hash_one(name), |at| self.name(*at) == name)?;
        self.shard_of.get(*found as usize).map(|shard| *shard as usize)
    }

    /// All names, in the order of the index.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len() as u32).map(|at| self.name(at))
    }

    fn name(&self, at: u32) -> &str {
        nth(&self.names, &self.ends, at)
    }
}

fn nth<'t>(names: &'t str, ends: &[u32], at: u32) -> &'t str {
    let start = if at == 0 { 0 } else { ends[at as usize - 1] };
    &names[start as usize..ends[at as usize] as usize]
}

/// An index of which a part was read.
struct Building {
    index: Index,
    /// How many maps of weights were met.
    maps: u32,
    /// The first thing that is wrong though it is JSON; kept here, since an error of the parser has no kind.
    wrong: Option<Damage>,
}

impl Building {
    fn add_name(&mut self, name: &str) {
        let Index { names, ends, table, hasher, .. } = &mut self.index;
        let at = ends.len() as u32;
        let hash = hasher.hash_one(name);
        if self.wrong.is_none() && table.find(hash, |other| nth(names, ends, *other) == name).is_some() {
            self.wrong = Some(Damage::Twice { tensor: name.to_owned() });
        }
        names.push_str(name);
        ends.push(names.len() as u32);
        table.insert_unique(hash, at, |other| hasher.hash_one(nth(names, ends, *other)));
    }

    fn add_shard(&mut self, shard: &str) {
        let Index { shards, shard_of, .. } = &mut self.index;
        // Most names stand in the shard of the name before.
        let before = shard_of.last().copied().filter(|at| shards[*at as usize] == shard);
        let known = before.or_else(|| shards.iter().position(|other| other == shard).map(|at| at as u32));
        let at = known.unwrap_or_else(|| {
            shards.push(shard.to_owned());
            shards.len() as u32 - 1
        });
        shard_of.push(at);
        if known.is_none() && self.wrong.is_none() && !is_file_name(shard) {
            self.wrong = Some(Damage::ShardName { shard: shard.to_owned() });
        }
    }
}

/// Whether it names a file of the same folder, and nothing that a path or a terminal could take for more.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(|c: char| c == '/' || c.is_control())
}

/// The whole object.
struct Whole<'b>(&'b mut Building);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "weight_map" if self.0.maps > 0 => return Err(A::Error::custom("`weight_map` stands there twice")),
                "weight_map" => {
                    self.0.maps += 1;
                    map.next_value_seed(Weights(self.0))?;
                }
                "metadata" => {
                    let about: serde_json::Value = map.next_value()?;
                    self.0.index.total_size = about.get("total_size").and_then(serde_json::Value::as_u64);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The map from names to shards.
struct Weights<'b>(&'b mut Building);

impl<'de> DeserializeSeed<'de> for Weights<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Weights<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from tensors to shards")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Text(|name: &str| self.0.add_name(name)))?.is_some() {
            map.next_value_seed(Text(|shard: &str| self.0.add_shard(shard)))?;
        }
        Ok(())
    }
}

/// A string that is looked at where it stands.
struct Text<F>(F);

impl<'de, F: FnOnce(&str)> DeserializeSeed<'de> for Text<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl<F: FnOnce(&str)> Visitor<'_> for Text<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        (self.0)(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, Damage> {
        let index = Index::parse(text)?;
        let shard = |name: &str| index.shards()[index.shard_of(name).unwrap()].clone();
        Ok(index.names().map(|name| (name.to_owned(), shard(name))).collect())
    }

    #[test]
    fn names_lead_to_their_shards() {
        let text = r#"{"metadata": {"total_size": 12, "by": [1]}, "other": null,
            "weight_map": {"b": "1.safetensors", "a\n\u00e9": "2.safetensors", "": "1.safetensors"}}"#;
        let index = Index::parse(text).unwrap();
        assert_eq!((index.len(), index.total_size()), (3, Some(12)));
        assert_eq!(index.shards(), ["1.safetensors", "2.safetensors"]);
        assert_eq!(index.names().collect::<Vec<_>>(), ["b", "a\né", ""]);
        assert_eq!((index.shard_of("a\né"), index.shard_of(""), index.shard_of("c")), (Some(1), Some(0), None));
    }

    #[test]
    fn a_damaged_index_is_named_as_such() {
        let check = |text: &str, sentence: &str| {
            let said = read(text).unwrap_err().to_string();
            assert!(said.starts_with(sentence), "{said}");
        };
        check("", "it is no JSON that fits: EOF");
        check("[]", "it is no JSON that fits: invalid type: sequence, expected an object with `weight_map`");
        check("{}", "it has no `weight_map`");
        check(r#"{"weight_map": []}"#, "it is no JSON that fits: invalid type: sequence, expected a map from");
        check(r#"{"weight_map": {"a": 1}}"#, "it is no JSON that fits: invalid type: integer `1`, expected a string");
        check(r#"{"weight_map": {"a": "s"}"#, "it is no JSON that fits: EOF");
        check(r#"{"weight_map": {}} x"#, "it is no JSON that fits: trailing");
        check(r#"{"weight_map": {}, "weight_map": {}}"#, "it is no JSON that fits: `weight_map` stands there twice");
        check(r#"{"weight_map": {"a": "s", "b": "s", "a": "t"}}"#, "tensor `a` stands there twice");
        for shard in ["", "..", "../x", "/etc/x", ".x", "a\\nb", "a\\u0000"] {
            check(&format!(r#"{{"weight_map": {{"a": "{shard}"}}}}"#), "it names a shard");
        }
    }

    proptest! {
        #[test]
        fn every_map_reads_back(names in proptest::collection::btree_map(".{0,12}", "[a-z0-9_-]{1,4}", 0..40)) {
            let text = serde_json::json!({ "weight_map": names }).to_string();
            let found = read(&text).unwrap();
            prop_assert_eq!(found.into_iter().collect::<std::collections::BTreeMap<_, _>>(), names);
        }
    }
}
