//! Small changes in the form of those that broke real deployments, each with the facts that a person reads in it.

mod incident;
mod public;

use std::collections::BTreeMap;

use super::take;
use crate::patch::diff::read;
use crate::patch::types::{Entry, GateDefault};

/// A diff of one hunk of one file.
struct Case {
    path: &'static str,
    section: &'static str,
    lines: &'static [&'static str],
}

/// What is said about an entry, one kind of fact a line, without kinds of which nothing is said.
fn told(entry: &Entry) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |what: &str, mut said: Vec<String>| {
        said.dedup();
        if !said.is_empty() {
            out.push(format!("{what}: {}", said.join(", ")));
        }
    };
    let gate = |gate: &crate::patch::types::GateRead| {
        let default = match &gate.default {
            GateDefault::Written(text) => format!("={text}"),
            other => format!(" {other:?}").to_lowercase(),
        };
        format!("{} {}{default}", format!("{:?}", gate.kind).to_lowercase(), gate.name)
    };
    let dtype = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    say("in", entry.symbols.iter().map(|fact| fact.value.clone()).collect());
    say("gates", entry.gates.iter().map(gate).collect());
    say("phases", entry.phases.keys().map(|phase| format!("{phase:?}").to_lowercase()).collect());
    say("types", entry.dtypes.iter().map(|f| format!("{}>{}", dtype(&f.value.from), dtype(&f.value.to))).collect());
    say("kernels", entry.kernels.iter().map(|fact| fact.value.clone()).collect());
    say("asserts", entry.asserts.iter().map(|fact| fact.value.clone()).collect());
    let mut signals: Vec<_> = entry.signals.iter().map(|fact| fact.value).collect();
    signals.sort();
    signals.dedup();
    say("signals", signals.iter().map(|signal| format!("{signal:?}").to_lowercase()).collect());
    out
}

fn check(case: &Case, expect: &[&str]) {
    let count = |mark| case.lines.iter().filter(|line| line.starts_with([' ', mark])).count();
    let (old, new, body) = (count('-'), count('+'), case.lines.join("\n"));
    let Case { path, section, .. } = case;
    let head = if old == 0 {
        format!("diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{new} @@")
    } else {
        format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -100,{old} +100,{new} @@ {section}")
    };
    let text = format!("{head}\n{body}\n");
    let inventory = take(&read(&text), &BTreeMap::new());
    assert_eq!(inventory.remarks, [], "{text}");
    let [entry] = inventory.entries.as_slice() else { panic!("{text}") };
    assert_eq!(told(entry), expect, "{text}");
}
