//! Defaults that registries of variables and the class of the server's arguments give.
//!
//! Not responsible for finding reads.

use std::collections::BTreeMap;

use tree_sitter::Node;

use super::{Found, reads};
use crate::patch::language::{Language, Source};
use crate::patch::types::{GateDefault, GateKind, GateRead};

/// The class that holds the server's arguments.
const ARGUMENTS: &str = "ServerArgs";

/// Defaults by name, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Of variables.
    pub variables: BTreeMap<String, GateDefault>,
    /// Of the server's arguments.
    pub arguments: BTreeMap<String, GateDefault>,
}

impl Registry {
    /// Adds what a source defines: `NAME = EnvBool(False)` in a class, `"NAME": lambda: os.getenv("NAME", "1")` in a
    /// table, `name: bool = False` in the class of the server's arguments.
    pub fn add(&mut self, source: &Source) {
        if source.language != Language::Python {
            return;
        }
        let nodes = source.nodes();
        nodes.iter().filter(|node| node.kind() == "assignment").for_each(|node| self.assignment(source, *node));
        if nodes.iter().any(|node| node.kind() == "pair") {
            let found = reads(source, "", &Self::default());
            nodes.iter().filter(|node| node.kind() == "pair").for_each(|node| self.pair(source, *node, &found));
        }
    }

    fn assignment(&mut self, source: &Source, node: Node<'_>) {
        let class = class_of(source, node);
        // A hunk seldom shows the class that it lies in.
        if class.is_none() && source.is_whole() {
            return;
        }
        let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right")) else {
            return;
        };
        let name = source.text_of(left).to_owned();
        if class == Some(ARGUMENTS) && node.child_by_field_name("type").is_some() {
            self.arguments.insert(name, default(source, right));
            return;
        }
        let Some(function) = right.child_by_field_name("function").filter(|_| right.kind() == "call") else { return };
        let called = source.text_of(function);
        let field = called.rsplit('.').next().is_some_and(is_field);
        let Some(list) = right.child_by_field_name("arguments").filter(|_| field) else { return };
        let first = list.named_children(&mut list.walk()).find(|argument| argument.kind() != "comment");
        let value = match first {
            Some(argument) if argument.kind() == "keyword_argument" => {
                let named = argument.child_by_field_name("name").map(|name| source.text_of(name)) == Some("default");
                argument.child_by_field_name("value").filter(|_| named)
            }
            other => other,
        };
        self.variables.insert(name, value.map_or(GateDefault::Unknown, |value| default(source, value)));
    }

    fn pair(&mut self, source: &Source, node: Node<'_>, found: &[Found]) {
        let (Some(key), Some(value)) = (node.child_by_field_name("key"), node.child_by_field_name("value")) else {
            return;
        };
        let name = source.text_of(key).trim_matches(['"', '\'']);
        let within = |found: &&Found| found.read.name == name && value.byte_range().contains(&found.span.start);
        if let Some(found) = found.iter().find(within) {
            self.variables.insert(name.to_owned(), found.read.default.clone());
        }
    }

    /// Gives a read of a registry or of an argument the default of its definition, where the place says none.
    pub fn join(&self, read: &mut GateRead) {
        if read.default != GateDefault::Unknown {
            return;
        }
        let known = match read.kind {
            GateKind::Registry => self.variables.get(&read.name),
            GateKind::ServerArgs => self.arguments.get(&read.name),
            _ => None,
        };
        if let Some(default) = known {
            read.default = default.clone();
        }
    }
}

/// The class whose body the assignment stands in.
fn class_of<'s>(source: &'s Source, node: Node<'_>) -> Option<&'s str> {
    let class = node.parent()?.parent()?.parent().filter(|class| class.kind() == "class_definition")?;
    class.child_by_field_name("name").map(|name| source.text_of(name))
}

/// `EnvBool`, but not `Environment`.
fn is_field(class: &str) -> bool {
    class.strip_prefix("Env").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn default(source: &Source, node: Node<'_>) -> GateDefault {
    match source.text_of(node).split_whitespace().collect::<Vec<_>>().join(" ") {
        text if text == "None" => GateDefault::Unset,
        text => GateDefault::Written(text),
    }
}
