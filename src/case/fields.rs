//! Typed access to a TOML document that remembers where everything stands.
//!
//! Responsible for positions, unknown keys and wrong types. Not responsible for what a case means;
//! see `case::read`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::engine::diagnostic::{Diagnostic, Severity};

/// Collects remarks about one file.
pub(super) struct Remarks<'a> {
    path: &'a str,
    text: &'a str,
    /// Remarks so far.
    pub(super) list: Vec<Diagnostic>,
}

/// One table of the document with its name in messages.
#[derive(Clone)]
pub(super) struct Section<'a, 'i> {
    /// The table.
    pub(super) table: &'a DeTable<'i>,
    /// Where it begins.
    pub(super) at: Range<usize>,
    /// Name in messages, such as `target[0]`; empty at the top level.
    pub(super) name: String,
}

/// A value with its place and its full name.
#[derive(Clone)]
pub(super) struct Found<'a, 'i> {
    /// The value.
    pub(super) value: &'a DeValue<'i>,
    /// Where the value stands.
    pub(super) at: Range<usize>,
    /// Name in messages, such as `target[0].url`.
    pub(super) name: String,
}

impl<'a> Remarks<'a> {
    /// No remarks yet.
    pub(super) fn new(path: &'a str, text: &'a str) -> Self {
        Self { path, text, list: Vec::new() }
    }

    /// Line of a byte offset, counted from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        self.text.as_bytes()[..end].split(|b| *b == b'\n').count()
    }

    /// Adds a remark about a place.
    pub(super) fn add(&mut self, severity: Severity, code: &str, at: usize, message: String, hint: Option<String>) {
        let place = Some(format!("{}:{}", self.path, self.line(at)));
        let remark = Diagnostic { severity, code: code.into(), message, place, hint };
        // A section may be read by the reader and again by the checks.
        if !self.list.contains(&remark) {
            self.list.push(remark);
        }
    }

    /// Adds an error about a place.
    pub(super) fn error(&mut self, code: &str, at: &Range<usize>, message: String, hint: impl Into<String>) {
        self.add(Severity::Error, code, at.start, message, Some(hint.into()));
    }

    /// Whether anything makes the case unusable.
    pub(super) fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// Says which keys of the section are unknown, with the nearest known one.
    pub(super) fn unknown_keys(&mut self, section: &Section<'_, '_>, known: &[&str]) {
        for (key, _) in section.table {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let hint = match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys here: {}", known.join(", ")),
            };
            let full = section.full_name(name);
            self.error("case-unknown-key", &key.span(), format!("unknown key `{full}`"), hint);
        }
    }

    fn wrong_type(&mut self, found: &Found<'_, '_>, wanted: &str) {
        let got = found.value.type_str();
        let (name, at) = (&found.name, &found.at);
        self.error("case-wrong-type", at, format!("`{name}` must be {wanted}, not a {got}"), "see the case format");
    }

    /// A text, if the key is there.
    pub(super) fn text(&mut self, section: &Section<'_, '_>, key: &str) -> Option<String> {
        let found = section.find(key)?;
        let text = found.value.as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong_type(&found, "a text in quotes");
        }
        text
    }

    /// A text that must be there and must not be empty.
    pub(super) fn required_text(&mut self, section: &Section<'_, '_>, key: &str, hint: &str) -> Option<String> {
        let Some(found) = section.find(key) else {
            let full = section.full_name(key);
            self.error("case-missing-key", &section.at, format!("`{full}` is missing"), hint);
            return None;
        };
        let text = self.text(section, key)?;
        if text.trim().is_empty() {
            self.error("case-empty-value", &found.at, format!("`{}` is empty", found.name), hint);
            return None;
        }
        Some(text)
    }

    /// A list of texts; empty where the key is absent.
    pub(super) fn texts(&mut self, section: &Section<'_, '_>, key: &str) -> Vec<String> {
        let Some(items) = self.array(section, key, "a list of texts") else { return Vec::new() };
        let mut out = Vec::new();
        for item in items {
            match item.value.as_str() {
                Some(text) => out.push(text.to_owned()),
                None => self.wrong_type(&item, "a text in quotes"),
            }
        }
        out
    }

    /// A list of numbers, if the key is there.
    pub(super) fn numbers(&mut self, section: &Section<'_, '_>, key: &str) -> Option<Vec<(f64, Range<usize>)>> {
        let items = self.array(section, key, "a list of numbers")?;
        let mut out = Vec::new();
        for item in items {
            match number(item.value) {
                Some(value) => out.push((value, item.at)),
                None => self.wrong_type(&item, "a number"),
            }
        }
        Some(out)
    }

    fn array<'s, 'i>(&mut self, section: &Section<'s, 'i>, key: &str, wanted: &str) -> Option<Vec<Found<'s, 'i>>> {
        let found = section.find(key)?;
        let Some(items) = found.value.as_array() else {
            self.wrong_type(&found, wanted);
            return None;
        };
        Some(elements(items, &found.name))
    }

    /// A number, if the key is there.
    pub(super) fn number(&mut self, section: &Section<'_, '_>, key: &str) -> Option<(f64, Range<usize>)> {
        let found = section.find(key)?;
        let value = number(found.value);
        if value.is_none() {
            self.wrong_type(&found, "a number");
        }
        value.map(|v| (v, found.at))
    }

    /// A number between two bounds, both allowed; `None` where absent or refused.
    pub(super) fn number_in(&mut self, section: &Section<'_, '_>, key: &str, low: f64, high: f64) -> Option<f64> {
        let (value, at) = self.number(section, key)?;
        if (low..=high).contains(&value) {
            return Some(value);
        }
        let full = section.full_name(key);
        let message = if high.is_finite() {
            format!("`{full}` must be from {low} to {high}, not {value}")
        } else {
            format!("`{full}` must be at least {low}, not {value}")
        };
        self.error("case-out-of-range", &at, message, "see the case format");
        None
    }

    /// A whole number of at least `low`; `None` where absent or refused.
    pub(super) fn whole(&mut self, section: &Section<'_, '_>, key: &str, low: u64) -> Option<u64> {
        let (_, at) = self.number(section, key)?;
        let value = self.number_in(section, key, low as f64, f64::INFINITY)?;
        if value.fract() == 0.0 && value <= 9e15 {
            return Some(value as u64);
        }
        let full = section.full_name(key);
        self.error(
            "case-out-of-range",
            &at,
            format!("`{full}` must be a whole number, not {value}"),
            "see the case format",
        );
        None
    }

    /// A truth value, if the key is there.
    pub(super) fn boolean(&mut self, section: &Section<'_, '_>, key: &str) -> Option<bool> {
        let found = section.find(key)?;
        let value = found.value.as_bool();
        if value.is_none() {
            self.wrong_type(&found, "true or false");
        }
        value
    }

    /// A table, if the key is there.
    pub(super) fn section<'s, 'i>(&mut self, section: &Section<'s, 'i>, key: &str) -> Option<Section<'s, 'i>> {
        let found = section.find(key)?;
        let table = found.value.as_table();
        if table.is_none() {
            self.wrong_type(&found, "a table");
        }
        table.map(|table| Section { table, at: found.at, name: found.name })
    }

    /// A list of tables; empty where the key is absent.
    pub(super) fn sections<'s, 'i>(&mut self, section: &Section<'s, 'i>, key: &str) -> Vec<Section<'s, 'i>> {
        let wanted = format!("a list of tables: write `[[{key}]]`");
        let Some(items) = self.array(section, key, &wanted) else { return Vec::new() };
        let mut out = Vec::new();
        for item in items {
            match item.value.as_table() {
                Some(table) => out.push(Section { table, at: item.at, name: item.name }),
                None => self.wrong_type(&item, "a table"),
            }
        }
        out
    }

    /// One of a closed set of words; `None` where absent or refused.
    pub(super) fn choice<T: Copy>(&mut self, section: &Section<'_, '_>, key: &str, known: &[(&str, T)]) -> Option<T> {
        let text = self.text(section, key)?;
        if let Some((_, value)) = known.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let full = section.full_name(key);
        let hint = match nearest(&text, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known values: {}", names.join(", ")),
        };
        self.error("case-unknown-value", &section.place_of(key), format!("`{full}` cannot be `{text}`"), hint);
        None
    }
}

impl<'a, 'i> Section<'a, 'i> {
    /// The value of a key.
    pub(super) fn find(&self, key: &str) -> Option<Found<'a, 'i>> {
        let (_, value) = self.table.iter().find(|(k, _)| k.get_ref() == key)?;
        Some(Found { value: value.get_ref(), at: value.span(), name: self.full_name(key) })
    }

    /// A key's name in messages.
    pub(super) fn full_name(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// Where a value stands, or the section where it is absent.
    pub(super) fn place_of(&self, key: &str) -> Range<usize> {
        self.find(key).map_or_else(|| self.at.clone(), |f| f.at)
    }
}

fn elements<'a, 'i>(items: &'a DeArray<'i>, name: &str) -> Vec<Found<'a, 'i>> {
    items
        .iter()
        .enumerate()
        .map(|(i, item): (usize, &Spanned<DeValue<'i>>)| Found {
            value: item.get_ref(),
            at: item.span(),
            name: format!("{name}[{i}]"),
        })
        .collect()
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok().map(|v| v as f64),
        DeValue::Float(f) => f.as_str().parse().ok(),
        _ => None,
    }
}

/// The known word closest to `word`, if it is close enough to be meant.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let (distance, near) = known.iter().map(|k| (edit_distance(word, k), *k)).min_by_key(|(d, _)| *d)?;
    (distance <= limit).then_some(near)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let same = usize::from(a[i - 1] != b[j - 1]);
                    let plain = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { plain.min(rows[i - 2][j - 2] + 1) } else { plain }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_known_word() {
        let known = ["gate", "targets", "suspect", "downtime_min"];
        for (word, expect) in [
            ("gaet", Some("gate")),
            ("target", Some("targets")),
            ("susspect", Some("suspect")),
            ("downtime", None),
            ("colour", None),
        ] {
            assert_eq!(nearest(word, &known), expect, "{word}");
        }
    }

    #[test]
    fn distance_is_symmetric_and_counts_a_swap_once() {
        for (a, b, d) in [("abc", "abc", 0), ("abc", "acb", 1), ("", "ab", 2), ("kitten", "sitting", 3)] {
            assert_eq!((edit_distance(a, b), edit_distance(b, a)), (d, d));
        }
    }
}
