//! Files of settings that a server is told to read: which they are, and what a YAML or JSON one sets. Pure.

use serde_json::Value;

use super::yaml::{self, Kind, Node};
use super::{Declared, Place, Setting, Text, remark};

/// Flags that name a file of flags.
const FLAGS: &[&str] = &["--config", "--config-file"];

/// The files that a declaration names, to be read: by `--config`, or by a variable that ends in `_CONFIG_PATH`.
pub fn named(declared: &Declared) -> Vec<Setting> {
    let flags = declared.flags.iter().filter(|f| FLAGS.contains(&f.name.as_str()));
    let flags = flags.map(|f| Setting { value: f.value.clone(), place: f.place.clone() });
    let is_path = |name: &str| ["_CONFIG_PATH", "_CONFIG_FILE"].iter().any(|end| name.ends_with(end));
    let variables = declared.variables.iter().filter(|(name, _)| is_path(name));
    let variables = variables.filter_map(|(_, v)| Some(Setting { value: v.value.clone()?, place: v.place.clone() }));
    flags.chain(variables).collect()
}

/// Reads a file of flags: each key of the top level is one. JSON is read as the YAML that it is.
pub fn read(text: &str, file: &str) -> Declared {
    let mut out = Declared::default();
    let (documents, troubles) = yaml::documents(text);
    for trouble in troubles {
        out.diagnostics.push(remark("yaml", &trouble.message, &Place::new(file, trouble.line)));
    }
    let Some(root) = documents.first() else { return out };
    if documents.len() > 1 {
        out.diagnostics.push(remark(
            "config",
            "only the first document of the file is read",
            &Place::new(file, documents[1].line),
        ));
    }
    if !matches!(root.kind, Kind::Map(_) | Kind::Null) {
        out.diagnostics.push(remark("config", "the file is no mapping of flags", &Place::new(file, root.line)));
    }
    for entry in root.entries() {
        let name = format!("--{}", entry.key.trim_start_matches('-').replace('_', "-"));
        out.give(&name, Place::new(file, entry.line), Text::Known(value(&entry.value)));
    }
    out
}

/// The command's flags, and beneath them those of its file: the command line beats the file.
#[must_use]
pub fn under(command: Declared, file: Declared) -> Declared {
    let mut out = Declared { flags: Vec::new(), ..command };
    out.diagnostics.extend(file.diagnostics);
    let mut given: Vec<super::DeclaredFlag> = file.flags;
    for flag in command.flags {
        let key = crate::truth::flags::key(&flag.name);
        let Some(before) = given.iter_mut().find(|f| crate::truth::flags::key(&f.name) == key) else {
            given.push(flag);
            continue;
        };
        let mut all = std::mem::take(&mut before.all);
        all.extend(flag.all);
        *before = super::DeclaredFlag { all, ..flag_of(flag.name, flag.value, flag.place) };
    }
    out.flags = given;
    out
}

fn flag_of(name: String, value: Text, place: Place) -> super::DeclaredFlag {
    super::DeclaredFlag { name, value, place, all: Vec::new() }
}

/// A value as the text of a flag: nothing for a plain `true`, words for a list, JSON for a mapping.
fn value(node: &Node) -> String {
    match &node.kind {
        Kind::Null => "None".into(),
        Kind::Scalar(s) if s.plain && s.text.eq_ignore_ascii_case("true") => String::new(),
        Kind::Scalar(s) => s.text.clone(),
        Kind::List(items) => items.iter().map(value).collect::<Vec<_>>().join(" "),
        Kind::Map(_) => json(node).to_string(),
    }
}

fn json(node: &Node) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::Scalar(s) if s.plain => {
            let typed = serde_json::from_str(&s.text).ok().filter(|v: &Value| !v.is_string());
            typed.unwrap_or_else(|| Value::String(s.text.clone()))
        }
        Kind::Scalar(s) => Value::String(s.text.clone()),
        Kind::List(items) => items.iter().map(json).collect(),
        Kind::Map(entries) => Value::Object(entries.iter().map(|e| (e.key.clone(), json(&e.value))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expect: &[(&str, &str, u32)]) {
        let read = read(text, "c");
        assert_eq!(read.diagnostics, [], "{text}");
        let found: Vec<_> =
            read.flags.iter().map(|f| (f.name.as_str(), f.value.known().unwrap_or("?"), f.place.line)).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn yaml_and_json_are_flags_with_lines() {
        check(
            "# c\nmodel: m\nport: 8000\nenable_metrics: true\ncuda-graph-bs: [1, 2]\nlist:\n  - a\n  - b\noff: false\nnothing:\n",
            &[
                ("--model", "m", 2),
                ("--port", "8000", 3),
                ("--enable-metrics", "", 4),
                ("--cuda-graph-bs", "1 2", 5),
                ("--list", "a b", 6),
                ("--off", "false", 9),
                ("--nothing", "None", 10),
            ],
        );
        check(
            "{\n  \"tp\": 4,\n  \"speculative-config\": {\"method\": \"mtp\", \"n\": 2, \"v\": \"1\"}\n}\n",
            &[("--tp", "4", 2), ("--speculative-config", "{\"method\":\"mtp\",\"n\":2,\"v\":\"1\"}", 3)],
        );
        assert!(!read("- a\n- b\n", "c").diagnostics.is_empty());
        assert!(!read("a: [\n", "c").diagnostics.is_empty());
    }

    #[test]
    fn the_command_line_beats_the_file() {
        let mut command = Declared::default();
        command.give("--config", Place::new("s", 1), Text::Known("/c.yaml".into()));
        command.give("--tp", Place::new("s", 2), Text::Known("8".into()));
        command.assign("SGLANG_X_CONFIG_PATH", Place::new("s", 3), Some(Text::Known("/x.json".into())));
        let named: Vec<_> = named(&command).into_iter().filter_map(|s| s.value.known().map(str::to_owned)).collect();
        assert_eq!(named, ["/c.yaml", "/x.json"]);
        let both = under(command, read("tensor-parallel-size: 4\nport: 1\n", "c"));
        let tp = both.flag("--tp").unwrap();
        assert_eq!((tp.value.known(), tp.place.file.as_str()), (Some("8"), "s"));
        assert_eq!(tp.all.iter().map(|(p, _)| p.file.as_str()).collect::<Vec<_>>(), ["c", "s"]);
        assert_eq!(both.flag("--port").unwrap().place, Place::new("c", 2));
        assert!(both.variables.contains_key("SGLANG_X_CONFIG_PATH"));
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[ -~\n]{0,100}") {
            let _ = read(&text, "c");
        }
    }
}
