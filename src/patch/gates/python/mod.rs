//! Reads of switches in Python.
//!
//! Not responsible for the names that mean a read; those are in `names` and `known`.

mod known;
mod syntax;

use tree_sitter::Node;

use super::{Found, Seen, names};
use crate::patch::language::Source;
use crate::patch::types::{GateDefault, GateKind};
use known::Known;
use syntax::{arguments, children, decides, is_statement, is_target, is_tested, last_name, written};

/// Every read in a source.
pub(super) fn reads(source: &Source, path: &str) -> Vec<Found> {
    let nodes = source.nodes();
    let known = Known::new(source, &nodes);
    let reader = Reader { source, known: &known };
    let mut found: Vec<Found> = nodes.iter().filter_map(|node| reader.node(*node)?.at(source, path, *node)).collect();
    let tested =
        nodes.iter().filter(|node| node.kind() == "identifier").flat_map(|node| reader.constant(*node, path, &found));
    let tested: Vec<Found> = tested.collect();
    found.extend(tested);
    found
}

struct Reader<'a, 't> {
    source: &'a Source,
    known: &'a Known<'t>,
}

impl<'t> Reader<'_, 't> {
    fn node(&self, node: Node<'t>) -> Option<Seen> {
        match node.kind() {
            "call" => self.call(node),
            "subscript" => self.subscript(node),
            "comparison_operator" => self.membership(node),
            "attribute" => self.field(node).or_else(|| self.server_argument(node)),
            "identifier" => self.arch_variable(node),
            _ => None,
        }
    }

    /// The name of a variable: resolved, or the expression as written.
    fn name(&self, node: Node<'_>) -> String {
        self.known.resolved(self.source, node).unwrap_or_else(|| written(self.source, node))
    }

    fn default(&self, node: Option<Node<'_>>) -> GateDefault {
        match node.map(|node| written(self.source, node)) {
            None => GateDefault::Unset,
            Some(text) if text == "None" => GateDefault::Unset,
            Some(text) => GateDefault::Written(text),
        }
    }

    fn call(&self, node: Node<'t>) -> Option<Seen> {
        let function = node.child_by_field_name("function")?;
        let arguments = arguments(self.source, node);
        let environ = |default| {
            let name = self.name(arguments.get(0, "key")?);
            Some(Seen { name, kind: GateKind::Environ, default })
        };
        if self.known.is_getenv(self.source, function) {
            return environ(self.default(arguments.get(1, "default")));
        }
        if let Some(method) = self.known.is_environ_method(self.source, function) {
            return match method {
                "__getitem__" => environ(GateDefault::Required),
                // What is removed or set without a look at the value is not read.
                "pop" | "setdefault" if is_statement(node) => None,
                "pop" if arguments.get(1, "default").is_none() => environ(GateDefault::Required),
                _ => environ(self.default(arguments.get(1, "default"))),
            };
        }
        self.computed_field(node).or_else(|| self.helper(node, function)).or_else(|| self.arch_call(node, function))
    }

    fn subscript(&self, node: Node<'t>) -> Option<Seen> {
        let name = self.known.asked_name(self.source, node)?;
        Some(Seen { name: self.name(name), kind: GateKind::Environ, default: GateDefault::Required })
    }

    /// `NAME in os.environ`, `NAME not in os.environ`.
    fn membership(&self, node: Node<'t>) -> Option<Seen> {
        let operands = children(node);
        let at = operands.iter().position(|operand| self.known.is_environ(self.source, *operand))?;
        let left = operands.get(at.checked_sub(1)?)?;
        let operator = node.children(&mut node.walk()).any(|child| matches!(child.kind(), "in" | "not in"));
        operator.then(|| Seen { name: self.name(*left), kind: GateKind::Environ, default: GateDefault::Unset })
    }

    /// `getattr(envs, name)`.
    fn computed_field(&self, node: Node<'t>) -> Option<Seen> {
        let function = node.child_by_field_name("function")?;
        if self.source.text_of(function) != "getattr" {
            return None;
        }
        let name = self.known.asked_name(self.source, node)?;
        let default = self.field_use(node)?;
        Some(Seen { name: self.name(name), kind: GateKind::Registry, default })
    }

    /// `envs.NAME`, with what is done to it.
    fn field(&self, node: Node<'t>) -> Option<Seen> {
        let name = last_name(self.source, node).filter(|name| names::is_variable(name))?;
        if !self.known.is_registry(self.source, node.child_by_field_name("object")?) || is_target(node) {
            return None;
        }
        Some(Seen { name: name.to_owned(), kind: GateKind::Registry, default: self.field_use(node)? })
    }

    /// What a use of a registry's field says about its default; `None` where it is not read.
    fn field_use(&self, node: Node<'t>) -> Option<GateDefault> {
        let Some(parent) = node.parent() else { return Some(GateDefault::Unknown) };
        let method = (parent.kind() == "attribute" && parent.child_by_field_name("object") == Some(node))
            .then(|| last_name(self.source, parent))
            .flatten();
        match method {
            None => Some(GateDefault::Unknown),
            Some(method) if names::FIELD_TESTS.contains(&method) => Some(GateDefault::Unset),
            Some(method) if names::FIELD_READS.contains(&method) => Some(GateDefault::Unknown),
            // A registry can hand out plain values, whose own methods read them: `envs.NAME.lower()`.
            Some("lower" | "upper" | "strip" | "split" | "startswith" | "endswith" | "casefold") => {
                Some(GateDefault::Unknown)
            }
            Some(_) => None,
        }
    }

    fn helper(&self, node: Node<'t>, function: Node<'t>) -> Option<Seen> {
        let arguments = arguments(self.source, node);
        let called = last_name(self.source, function)?;
        let place = self.known.helpers.get(called).copied();
        let argument = arguments.get(place.unwrap_or_default(), "name")?;
        let resolved = self.known.resolved(self.source, argument).filter(|name| names::is_variable(name));
        let literal = resolved.is_some();
        let by_name = names::is_helper(called, literal);
        // What hands on the argument of its own function is that function's business, unless its name tells it.
        let reads = by_name || (literal && place.is_some());
        let string = self.known.resolved(self.source, argument);
        if !reads || (string.is_some() && !literal) {
            return None;
        }
        let default = arguments.positional.get(place.unwrap_or_default() + 1).copied();
        let named = arguments.named.iter().find(|(name, _)| name.starts_with("default")).map(|(_, value)| *value);
        let default = match default.or(named) {
            None => GateDefault::Unknown,
            given => self.default(given),
        };
        Some(Seen { name: resolved.unwrap_or_else(|| written(self.source, argument)), kind: GateKind::Helper, default })
    }

    /// `server_args.NAME` in an expression that decides something.
    fn server_argument(&self, node: Node<'t>) -> Option<Seen> {
        let object = node.child_by_field_name("object")?;
        let arguments = match object.kind() {
            "call" => object.child_by_field_name("function").and_then(|function| last_name(self.source, function)),
            _ => last_name(self.source, object),
        }?;
        let of = if object.kind() == "call" { names::SERVER_ARGS_CALLS } else { names::SERVER_ARGS };
        if !of.contains(&arguments) {
            return None;
        }
        // A node finds its parent by walking down from the root, so names are compared first.
        let called = node
            .parent()
            .is_some_and(|parent| parent.kind() == "call" && parent.child_by_field_name("function") == Some(node));
        if called || is_target(node) || !decides(node) {
            return None;
        }
        let name = last_name(self.source, node)?.to_owned();
        Some(Seen { name, kind: GateKind::ServerArgs, default: GateDefault::Unknown })
    }

    /// `is_sm120_supported()`, `torch.cuda.get_device_capability()[0] >= 10`.
    fn arch_call(&self, node: Node<'t>, function: Node<'t>) -> Option<Seen> {
        let called = last_name(self.source, function)?;
        let owner = function.child_by_field_name("object").map(|object| self.source.text_of(object));
        let asks =
            owner.is_none_or(|owner| owner.contains("platform") || owner.contains("cuda") || owner.contains("utils"));
        if !names::is_arch_call(called) || !asks {
            return None;
        }
        let mut whole = node;
        while let Some(parent) =
            whole.parent().filter(|parent| matches!(parent.kind(), "subscript" | "comparison_operator"))
        {
            whole = parent;
        }
        Some(Seen { name: written(self.source, whole), kind: GateKind::Arch, default: GateDefault::Unknown })
    }

    fn arch_variable(&self, node: Node<'t>) -> Option<Seen> {
        let name = self.source.text_of(node);
        if !names::is_arch_variable(name) {
            return None;
        }
        let called = node.parent().is_some_and(|parent| parent.kind() == "call");
        let reads = !called && !is_target(node) && decides(node);
        reads.then(|| Seen { name: name.to_owned(), kind: GateKind::Arch, default: GateDefault::Unknown })
    }

    /// A name of the module that is tested for truth: what it was read from, or itself where it was read from nothing.
    fn constant(&self, node: Node<'t>, path: &str, found: &[Found]) -> Vec<Found> {
        let name = self.source.text_of(node);
        let value = self.known.values.get(name);
        // A fragment does not show where the constant is set.
        let elsewhere = !self.source.is_whole() && names::is_variable(name) && name.len() > 2;
        let candidate = (value.is_some() || elsewhere) && !names::NO_GATES.contains(&name);
        if !candidate || names::is_arch_variable(name) || !is_tested(node) {
            return Vec::new();
        }
        let Some(lines) = self.source.lines_of(node) else { return Vec::new() };
        let inside = |found: &&Found| {
            value.is_some_and(|value| value.start_byte() <= found.span.start && found.span.end <= value.end_byte())
        };
        let read: Vec<Found> = found.iter().filter(inside).cloned().collect();
        if !read.is_empty() {
            return read.into_iter().map(|read| Found { lines, span: node.byte_range(), ..read }).collect();
        }
        let default = match value {
            Some(value) => GateDefault::Written(written(self.source, *value)),
            None => GateDefault::Unknown,
        };
        let seen = Seen { name: name.to_owned(), kind: GateKind::Constant, default };
        seen.at(self.source, path, node).into_iter().collect()
    }
}
