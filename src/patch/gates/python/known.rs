//! What a Python file says about its names: imports, constants, and functions that read the environment for others.
//!
//! Not responsible for reads themselves.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::syntax::{arguments, children, is_target, last_name, literal};
use crate::patch::gates::names;
use crate::patch::language::Source;

/// Names of one file.
pub(super) struct Known<'t> {
    os: BTreeSet<String>,
    environ: BTreeSet<String>,
    getenv: BTreeSet<String>,
    registries: BTreeSet<String>,
    /// Constants of the module that hold a string.
    strings: BTreeMap<String, String>,
    /// What is assigned to names of the module, where that is done once.
    pub(super) values: BTreeMap<String, Node<'t>>,
    /// Functions of the file that read the variable which an argument names, and the place of that argument.
    pub(super) helpers: BTreeMap<String, usize>,
}

impl<'t> Known<'t> {
    /// Reads what the file says.
    pub(super) fn new(source: &Source, nodes: &[Node<'t>]) -> Self {
        // A hunk seldom shows the imports: the usual names are believed.
        let shown = |name: &str| if source.is_whole() { BTreeSet::new() } else { BTreeSet::from([name.to_owned()]) };
        let mut known = Self {
            os: BTreeSet::from(["os".to_owned(), "_os".to_owned()]),
            environ: shown("environ"),
            getenv: shown("getenv"),
            registries: names::REGISTRIES.iter().map(|name| (*name).to_owned()).collect(),
            strings: BTreeMap::new(),
            values: BTreeMap::new(),
            helpers: BTreeMap::new(),
        };
        let mut twice = BTreeSet::new();
        for node in nodes {
            match node.kind() {
                "import_statement" | "import_from_statement" => known.import(source, *node),
                "assignment" => known.assignment(source, *node, &mut twice),
                _ => {}
            }
        }
        for name in twice {
            known.strings.remove(&name);
            known.values.remove(&name);
        }
        known.find_helpers(source, nodes);
        known
    }

    fn import(&mut self, source: &Source, node: Node<'t>) {
        let module = node.child_by_field_name("module_name").map(|module| source.text_of(module));
        for part in children(node) {
            let (name, alias) = match part.kind() {
                "aliased_import" => (part.child_by_field_name("name"), part.child_by_field_name("alias")),
                "dotted_name" => (Some(part), Some(part)),
                _ => continue,
            };
            let text = |node: Option<Node<'_>>| node.map(|node| source.text_of(node)).unwrap_or_default();
            let (name, alias) = (text(name), text(alias).to_owned());
            match (module, name) {
                (None, "os") => _ = self.os.insert(alias),
                (Some("os"), "environ") => _ = self.environ.insert(alias),
                (Some("os"), "getenv") => _ = self.getenv.insert(alias),
                (_, name) if names::REGISTRIES.contains(&name.rsplit('.').next().unwrap_or(name)) => {
                    self.registries.insert(alias);
                }
                _ => {}
            }
        }
    }

    fn assignment(&mut self, source: &Source, node: Node<'t>, twice: &mut BTreeSet<String>) {
        let Some(left) = node.child_by_field_name("left").filter(|left| left.kind() == "identifier") else { return };
        let name = source.text_of(left).to_owned();
        let Some(right) = node.child_by_field_name("right") else { return };
        if self.is_environ(source, right) {
            self.environ.insert(name);
            return;
        }
        let module = node.parent().and_then(|statement| statement.parent()).is_some_and(|top| top.kind() == "module");
        if !module {
            return;
        }
        if let Some(text) = literal(source, right) {
            self.strings.insert(name.clone(), text);
        }
        if self.values.insert(name.clone(), right).is_some() {
            twice.insert(name);
        }
    }

    /// Functions whose body reads the variable that a parameter names, and functions that call such ones.
    fn find_helpers(&mut self, source: &Source, nodes: &[Node<'t>]) {
        let functions: Vec<_> = nodes.iter().filter(|node| node.kind() == "function_definition").copied().collect();
        let asked = |node: &&Node<'t>| matches!(node.kind(), "call" | "subscript");
        // A helper of a helper of a helper is enough.
        for _ in 0..3 {
            let before = self.helpers.len();
            for node in nodes.iter().filter(asked) {
                let Some(name) = self.asked_name(source, *node).filter(|name| name.kind() == "identifier") else {
                    continue;
                };
                let name = source.text_of(name);
                let around = functions.iter().filter(|function| within(*node, **function));
                for function in around {
                    self.helper(source, *function, name);
                }
            }
            if self.helpers.len() == before {
                return;
            }
        }
    }

    fn helper(&mut self, source: &Source, function: Node<'t>, parameter: &str) {
        let (Some(name), Some(list)) =
            (function.child_by_field_name("name"), function.child_by_field_name("parameters"))
        else {
            return;
        };
        let own = |node: &Node<'t>| match node.kind() {
            "identifier" => Some(*node),
            "typed_parameter" => children(*node).first().copied(),
            _ => node.child_by_field_name("name"),
        };
        let parameters: Vec<&str> = children(list)
            .iter()
            .filter_map(own)
            .map(|node| source.text_of(node))
            .filter(|name| *name != "self")
            .collect();
        if let Some(place) = parameters.iter().position(|name| *name == parameter) {
            self.helpers.entry(source.text_of(name).to_owned()).or_insert(place);
        }
    }

    /// The node that names the variable which a call or subscript asks for.
    pub(super) fn asked_name(&self, source: &Source, node: Node<'t>) -> Option<Node<'t>> {
        if node.kind() == "subscript" {
            let asked = self.is_environ(source, node.child_by_field_name("value")?) && !is_target(node);
            return asked.then(|| node.child_by_field_name("subscript")).flatten();
        }
        let function = node.child_by_field_name("function")?;
        let arguments = arguments(source, node);
        if self.is_getenv(source, function) || self.is_environ_method(source, function).is_some() {
            return arguments.get(0, "key");
        }
        let name = last_name(source, function)?;
        if name == "getattr" && arguments.positional.first().is_some_and(|first| self.is_registry(source, *first)) {
            return arguments.positional.get(1).copied();
        }
        if let Some(place) = self.helpers.get(name) {
            return arguments.positional.get(*place).copied();
        }
        names::is_helper(name, false).then(|| arguments.get(0, "name")).flatten()
    }

    /// Whether the node is the environment: `os.environ`.
    pub(super) fn is_environ(&self, source: &Source, node: Node<'_>) -> bool {
        match node.kind() {
            "identifier" => self.environ.contains(source.text_of(node)),
            "attribute" => self.is_os(source, node, "environ"),
            _ => false,
        }
    }

    /// Whether the node is the function `os.getenv`.
    pub(super) fn is_getenv(&self, source: &Source, node: Node<'_>) -> bool {
        match node.kind() {
            "identifier" => self.getenv.contains(source.text_of(node)),
            "attribute" => self.is_os(source, node, "getenv"),
            _ => false,
        }
    }

    fn is_os(&self, source: &Source, node: Node<'_>, attribute: &str) -> bool {
        let object = node.child_by_field_name("object");
        last_name(source, node) == Some(attribute)
            && object.is_some_and(|object| object.kind() == "identifier" && self.os.contains(source.text_of(object)))
    }

    /// The method of the environment that the node names.
    pub(super) fn is_environ_method<'s>(&self, source: &'s Source, node: Node<'_>) -> Option<&'s str> {
        let object = node.child_by_field_name("object")?;
        let method = last_name(source, node)?;
        let reads = ["get", "pop", "setdefault", "__getitem__"].contains(&method);
        (reads && self.is_environ(source, object)).then_some(method)
    }

    /// Whether the node is a registry of variables: `envs`, `sglang.srt.environ.envs`.
    pub(super) fn is_registry(&self, source: &Source, node: Node<'_>) -> bool {
        match node.kind() {
            "identifier" => {
                let name = source.text_of(node);
                // The import that gives a registry another name is seldom in the hunk.
                let alias = !source.is_whole() && name.ends_with("_envs");
                alias || self.registries.contains(name)
            }
            "attribute" => last_name(source, node).is_some_and(|name| names::REGISTRIES.contains(&name)),
            _ => false,
        }
    }

    /// The name that an expression gives, where it is a string or a constant of the file that holds one.
    pub(super) fn resolved(&self, source: &Source, node: Node<'_>) -> Option<String> {
        match node.kind() {
            "identifier" => self.strings.get(source.text_of(node)).cloned(),
            _ => literal(source, node),
        }
    }
}

fn within(node: Node<'_>, function: Node<'_>) -> bool {
    function.start_byte() <= node.start_byte() && node.end_byte() <= function.end_byte()
}
