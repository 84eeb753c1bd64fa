//! Reads the gate of a patch: how it is switched, and which levels it has.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::fields::{Found, Remarks, Section};
use super::types::{Gate, LevelValue};
use crate::engine::procedure::Failure;

const FORMS: &str =
    "write { env = \"X\", levels = {…} }, { flag = \"--x\", levels = {…} }, { reverse = \"…\" } or \"none\"";

/// The gate of a patch; a patch without one cannot be switched.
pub(super) fn read(remarks: &mut Remarks<'_>, patch: &Section<'_, '_>) -> Gate {
    let Some(found) = patch.find("gate") else { return Gate::None };
    if let Some(text) = found.value.as_str() {
        if text != "none" {
            remarks.error("case-gate", &found.at, format!("`{}` cannot be `{text}`", found.name), FORMS);
        }
        return Gate::None;
    }
    let Some(section) = remarks.section(patch, "gate") else { return Gate::None };
    remarks.unknown_keys(&section, &["env", "flag", "reverse", "levels"]);
    let given: Vec<&str> = ["env", "flag", "reverse"].into_iter().filter(|k| section.find(k).is_some()).collect();
    let [kind] = given[..] else {
        let message = if given.is_empty() {
            format!("`{}` does not say what to switch", section.name)
        } else {
            format!("`{}` has more than one switch: {}", section.name, given.join(", "))
        };
        remarks.error("case-gate", &section.at, message, FORMS);
        return Gate::None;
    };
    let Some(switch) = remarks.required_text(&section, kind, FORMS) else { return Gate::None };
    let at = section.place_of(kind);
    match kind {
        "env" => {
            if !is_variable(&switch) {
                let message = format!("`{}` is not a variable name: `{switch}`", section.full_name("env"));
                remarks.error("case-gate", &at, message, "letters, digits and underscores, no `$`");
            }
            Gate::Env { name: switch, levels: levels(remarks, &section, false) }
        }
        "flag" => {
            if !is_flag(&switch) {
                let message = format!("`{}` is not a flag: `{switch}`", section.full_name("flag"));
                remarks.error("case-gate", &at, message, "write it with its dashes and without a value, as `--x`");
            }
            Gate::Flag { flag: switch, levels: levels(remarks, &section, true) }
        }
        _ => {
            if section.find("levels").is_some() {
                let message = format!("`{}` has no levels of its own", section.name);
                let hint = "a reverse-applied diff is in or out; leave `levels` away";
                remarks.error("case-gate", &section.place_of("levels"), message, hint);
            }
            Gate::Reverse { diff: switch }
        }
    }
}

/// A gate by itself, as it stands after `gate =` in a case.
///
/// # Errors
/// It is no gate; the hint shows the forms.
pub fn parse(text: &str) -> Result<Gate, Failure> {
    let whole = format!("gate = {}", if text.trim() == "none" { "\"none\"" } else { text });
    let root = toml::de::DeTable::parse(&whole)
        .map_err(|e| Failure::new(format!("`{text}` is no gate: {}", e.message().replace('\n', ", "))).hint(FORMS))?;
    let mut remarks = Remarks::new("gate", &whole);
    let section = Section { table: root.get_ref(), at: 0..0, name: String::new() };
    remarks.unknown_keys(&section, &["gate"]);
    let gate = read(&mut remarks, &section);
    match remarks.list.into_iter().next() {
        None => Ok(gate),
        Some(first) => Err(Failure { hint: first.hint.or_else(|| Some(FORMS.into())), ..Failure::new(first.message) }),
    }
}

/// A gate as [`parse`] reads it.
pub fn spelling(gate: &Gate) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let value = |value: &LevelValue| match value {
        LevelValue::Set(text) => format!("{{ set = {} }}", quoted(text)),
        LevelValue::Unset => "{ unset = true }".to_owned(),
        // These are the levels of a diff, which are not written.
        LevelValue::In | LevelValue::Out => String::new(),
    };
    let levels = |levels: &BTreeMap<String, LevelValue>| {
        let all: Vec<String> =
            levels.iter().map(|(name, level)| format!("{} = {}", quoted(name), value(level))).collect();
        all.join(", ")
    };
    match gate {
        Gate::Env { name, levels: of } => format!("{{ env = {}, levels = {{ {} }} }}", quoted(name), levels(of)),
        Gate::Flag { flag, levels: of } => format!("{{ flag = {}, levels = {{ {} }} }}", quoted(flag), levels(of)),
        Gate::Reverse { diff } => format!("{{ reverse = {} }}", quoted(diff)),
        Gate::None => "none".into(),
    }
}

/// Whether a text can be the name of a variable.
pub fn is_variable(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_flag(flag: &str) -> bool {
    let body = flag.trim_start_matches('-');
    flag.starts_with('-') && !body.is_empty() && body.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn levels(remarks: &mut Remarks<'_>, gate: &Section<'_, '_>, is_flag: bool) -> BTreeMap<String, LevelValue> {
    const HINT: &str = "name at least two, as levels = { on = \"1\", off = { unset = true } }";
    let mut out: BTreeMap<String, LevelValue> = BTreeMap::new();
    if gate.find("levels").is_none() {
        remarks.error("case-missing-key", &gate.at, format!("`{}` is missing", gate.full_name("levels")), HINT);
        return out;
    }
    let Some(section) = remarks.section(gate, "levels") else { return out };
    for (key, value) in section.table {
        let name = key.get_ref().as_ref();
        let found = Found { value: value.get_ref(), at: value.span(), name: section.full_name(name) };
        let Some(level) = level(remarks, &found, is_flag) else { continue };
        if let Some((other, _)) = out.iter().find(|(_, v)| **v == level) {
            let message = format!("`{}` is the same as level `{other}`", found.name);
            remarks.error("case-level", &found.at, message, "a level that is read back must be told from the others");
            continue;
        }
        out.insert(name.to_owned(), level);
    }
    if out.len() < 2 && !remarks.has_errors() {
        remarks.error("case-level", &section.at, format!("`{}` has fewer than two levels", section.name), HINT);
    }
    out
}

/// One level. A flag's `true` is present without a value, its `false` is absent; a variable's are the words.
fn level(remarks: &mut Remarks<'_>, found: &Found<'_, '_>, is_flag: bool) -> Option<LevelValue> {
    const HINT: &str = "write a text, a number, true, false, { set = \"…\" } or { unset = true }";
    match found.value {
        DeValue::String(text) => Some(LevelValue::Set(text.as_ref().to_owned())),
        DeValue::Integer(i) => Some(LevelValue::Set(i.to_string())),
        DeValue::Float(f) => Some(LevelValue::Set(f.to_string())),
        DeValue::Boolean(true) if is_flag => Some(LevelValue::Set(String::new())),
        DeValue::Boolean(false) if is_flag => Some(LevelValue::Unset),
        DeValue::Boolean(b) => Some(LevelValue::Set(b.to_string())),
        DeValue::Table(table) => {
            let section = Section { table, at: found.at.clone(), name: found.name.clone() };
            remarks.unknown_keys(&section, &["set", "unset"]);
            match (section.find("set"), section.find("unset")) {
                (Some(_), None) => remarks.text(&section, "set").map(LevelValue::Set),
                (None, Some(_)) if remarks.boolean(&section, "unset")? => Some(LevelValue::Unset),
                _ => {
                    remarks.error("case-level", &found.at, format!("`{}` is not a level value", found.name), HINT);
                    None
                }
            }
        }
        DeValue::Array(_) | DeValue::Datetime(_) => {
            remarks.error("case-level", &found.at, format!("`{}` is not a level value", found.name), HINT);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_read_as_it_is_spelled() {
        let check = |text: &str| {
            let gate = parse(text).unwrap();
            assert_eq!(parse(&spelling(&gate)).unwrap(), gate, "{text}");
            gate
        };
        check("{ env = \"X\", levels = { on = \"1\", off = { unset = true } } }");
        check("{ flag = \"--x\", levels = { on = true, off = false } }");
        check("{ env = \"X\", levels = { \"a b\" = \"say \\\"so\\\"\", b = 2 } }");
        check("{ reverse = \"/a/b.diff\" }");
        assert_eq!(check("none"), Gate::None);
    }

    #[test]
    fn what_is_no_gate_is_said_with_the_forms() {
        let check = |text: &str, message: &str| {
            let failure = parse(text).unwrap_err();
            assert!(failure.message.contains(message), "{text}: {}", failure.message);
            assert!(failure.hint.is_some(), "{text}");
        };
        check("{ env = }", "is no gate");
        check("{ env = \"X\" }", "`gate.levels` is missing");
        check("{ env = \"$X\", levels = { a = \"1\", b = \"2\" } }", "not a variable name");
        check("{ env = \"X\", flag = \"--x\" }", "more than one switch");
        check("{}\nother = 1", "other");
        check("3", "gate");
    }
}
