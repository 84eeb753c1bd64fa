//! Walks the syntax tree of a script and notes assignments, commands and what they stand in.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tree_sitter::{Node, Parser};

use super::value::{self, Known, Place};
use super::{Assign, Command, Effect, Script, ScriptWord, Text, line_of};
use crate::engine::procedure::Failure;

/// Reads a script. Parts that are no bash are noted in `errors` and do not stop the reading.
///
/// # Errors
/// The grammar cannot be loaded, which is a fault of the build.
pub fn parse(text: &str) -> Result<Script, Failure> {
    parse_in(text, &Known::new())
}

/// Reads a script that is started with an environment, as far as that is known.
///
/// # Errors
/// The grammar cannot be loaded, which is a fault of the build.
pub fn parse_in(text: &str, environment: &BTreeMap<String, Text>) -> Result<Script, Failure> {
    if let Some(line) = nested_line(text) {
        return Err(Failure::new(format!("line {line} is nested too deeply to be read as bash")));
    }
    let mut parser = Parser::new();
    let tree = parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .ok()
        .and_then(|()| parser.parse(text, None))
        .ok_or_else(|| Failure::new("the bash grammar cannot be loaded"))?;
    let mut walk = Walk {
        source: text,
        script: Script {
            text: text.to_owned(),
            assigns: Vec::new(),
            exported: BTreeMap::new(),
            commands: Vec::new(),
            arrays: BTreeMap::new(),
            opaque: Vec::new(),
            functions: BTreeSet::new(),
            self_references: Vec::new(),
            strange_references: Vec::new(),
            errors: Vec::new(),
            all_exported_from: None,
        },
        known: environment.clone(),
        in_function: false,
        depth: 0,
        spoilt_arrays: BTreeSet::new(),
    };
    walk.references(tree.root_node());
    walk.children(tree.root_node(), Context::default());
    let Walk { mut script, spoilt_arrays, .. } = walk;
    script.arrays.retain(|name, _| !spoilt_arrays.contains(name));
    Ok(script)
}

/// The deepest nesting of brackets, and of statements within statements, that is read.
const MAX_BRACKETS: usize = 500;
const MAX_DEPTH: usize = 200;

/// Line of the first bracket that is nested far beyond anything that is written by hand.
fn nested_line(text: &str) -> Option<u32> {
    let (mut depth, mut line) = (0_usize, 1);
    for byte in text.bytes() {
        match byte {
            b'\n' => line += 1,
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_BRACKETS {
            return Some(line);
        }
    }
    None
}

/// What surrounds a node.
#[derive(Clone, Copy, Default)]
struct Context {
    /// In a branch, a loop, a function or a subshell.
    uncertain: bool,
    /// Where a statement can be inserted before the current one; `None` takes the node's own start.
    statement: Option<usize>,
}

struct Walk<'s> {
    source: &'s str,
    script: Script,
    known: Known,
    in_function: bool,
    depth: usize,
    spoilt_arrays: BTreeSet<String>,
}

impl Walk<'_> {
    /// Notes uses of `BASH_SOURCE` and parts that are no bash, wherever they stand.
    fn references(&mut self, root: Node<'_>) {
        let mut cursor = root.walk();
        // A chain of ancestors instead of recursion: a tree can be as deep as its text is long.
        let mut ancestors: Vec<Node<'_>> = Vec::new();
        loop {
            let node = cursor.node();
            self.reference(node, ancestors.last().copied());
            if cursor.goto_first_child() {
                ancestors.push(node);
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
                ancestors.pop();
            }
        }
    }

    fn reference(&mut self, node: Node<'_>, parent: Option<Node<'_>>) {
        if node.is_error() || node.is_missing() {
            self.script.errors.push(node.byte_range());
        }
        if node.kind() == "variable_name" && self.raw(node) == "BASH_SOURCE" {
            let at = match parent {
                Some(p) if p.kind() == "subscript" && self.raw(p) == "BASH_SOURCE[0]" => Some(p.byte_range()),
                Some(p) if p.kind() == "subscript" => None,
                Some(p) if matches!(p.kind(), "simple_expansion" | "expansion") => Some(node.byte_range()),
                _ => None,
            };
            match at {
                Some(range) => self.script.self_references.push(range),
                None => self.script.strange_references.push(self.script.line(node.start_byte())),
            }
        }
    }

    fn raw(&self, node: Node<'_>) -> &str {
        &self.source[node.byte_range()]
    }

    fn children(&mut self, node: Node<'_>, context: Context) {
        if self.depth >= MAX_DEPTH {
            self.script.errors.push(node.byte_range());
            return;
        }
        self.depth += 1;
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for child in children {
            self.statement(child, context);
        }
        self.depth -= 1;
    }

    fn statement(&mut self, node: Node<'_>, context: Context) {
        let inner = Context { uncertain: true, statement: None };
        let same = Context { statement: Some(context.statement.unwrap_or(node.start_byte())), ..context };
        match node.kind() {
            "variable_assignment" => self.assignment(node, context.uncertain, false, Effect::Set),
            "variable_assignments" | "redirected_statement" | "negated_command" => self.children(node, same),
            "declaration_command" => self.declaration(node, context.uncertain),
            "unset_command" => self.unset(node, context.uncertain),
            "command" => self.command(node, same),
            // Of `a && b`, only `a` surely runs.
            "list" => {
                let mut cursor = node.walk();
                let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
                if self.depth >= MAX_DEPTH {
                    self.script.errors.push(node.byte_range());
                    return;
                }
                self.depth += 1;
                for (i, child) in children.into_iter().enumerate() {
                    self.statement(child, Context { uncertain: context.uncertain || i > 0, ..same });
                }
                self.depth -= 1;
            }
            // Each part of a pipeline is a subshell.
            "pipeline" => self.children(node, Context { uncertain: true, ..same }),
            "function_definition" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.script.functions.insert(self.raw(name).to_owned());
                }
                if let Some(body) = node.child_by_field_name("body") {
                    let outer = std::mem::replace(&mut self.in_function, true);
                    self.children(body, inner);
                    self.in_function = outer;
                }
            }
            "compound_statement" => self.children(node, Context { uncertain: context.uncertain, statement: None }),
            "for_statement" | "c_style_for_statement" => {
                if let Some(name) = node.child_by_field_name("variable") {
                    let (name, at) = (self.raw(name).to_owned(), name.byte_range());
                    self.maybe(name, at);
                }
                self.children(node, inner);
            }
            "if_statement" | "while_statement" | "case_statement" | "case_item" | "elif_clause" | "else_clause"
            | "do_group" | "subshell" | "ERROR" => self.children(node, inner),
            _ => {}
        }
    }

    /// Notes that a variable may be changed here in a way that is not followed.
    fn maybe(&mut self, name: String, at: Range<usize>) {
        let raw = self.source[at.clone()].to_owned();
        let value = Text::Unresolved { because: format!("`{name}` is set in a way that needs the shell"), raw };
        self.known.insert(name.clone(), value.clone());
        let line = line_of(self.source, at.start);
        let effect = Effect::Maybe;
        self.script.assigns.push(Assign { name, value, value_at: at.clone(), at, line, effect, exports: false });
    }

    fn read_assignment(&self, node: Node<'_>) -> Option<Assign> {
        let name_node = node.child_by_field_name("name")?;
        let operator = self.source[name_node.end_byte()..node.end_byte()].find('=')? + name_node.end_byte();
        let appends = self.source[name_node.end_byte()..operator].contains('+');
        let subscript = name_node.kind() == "subscript";
        let name = self.raw(name_node).split('[').next().unwrap_or_default().to_owned();
        let value_node = node.child_by_field_name("value");
        let value = match value_node {
            Some(v) => value::text(v, self.source, &self.known, Place::Whole),
            None => Text::Known(String::new()),
        };
        Some(Assign {
            value,
            value_at: value_node.map_or(operator + 1..operator + 1, |v| v.byte_range()),
            at: node.byte_range(),
            line: line_of(self.source, node.start_byte()),
            effect: if appends || subscript { Effect::Maybe } else { Effect::Set },
            exports: false,
            name,
        })
    }

    fn assignment(&mut self, node: Node<'_>, uncertain: bool, exports: bool, effect: Effect) {
        let Some(mut assign) = self.read_assignment(node) else { return };
        if let Some(array) = node.child_by_field_name("value").filter(|v| v.kind() == "array") {
            let words = self.array_words(array);
            let appends = self.raw(node).strip_prefix(assign.name.as_str()).is_some_and(|r| r.starts_with("+="));
            if appends && !uncertain && !self.in_function && self.script.arrays.contains_key(&assign.name) {
                self.script.arrays.entry(assign.name.clone()).or_default().extend(words);
                return;
            }
            let again = self.script.arrays.insert(assign.name.clone(), words).is_some();
            if again || uncertain || assign.effect == Effect::Maybe {
                self.spoilt_arrays.insert(assign.name.clone());
            }
        } else if self.script.arrays.contains_key(&assign.name) || assign.effect == Effect::Maybe {
            self.spoilt_arrays.insert(assign.name.clone());
        }
        assign.exports = exports;
        if uncertain || assign.effect == Effect::Maybe {
            assign.effect = Effect::Maybe;
            let (raw, line) = (self.raw(node).to_owned(), assign.line);
            let because = format!("line {line} may change `{}`", assign.name);
            self.known.insert(assign.name.clone(), Text::Unresolved { raw, because });
        } else {
            assign.effect = effect;
            self.known.insert(assign.name.clone(), assign.value.clone());
        }
        self.script.assigns.push(assign);
    }

    fn declaration(&mut self, node: Node<'_>, uncertain: bool) {
        let keyword = node.child(0).map(|k| self.raw(k).to_owned()).unwrap_or_default();
        let mut cursor = node.walk();
        let parts: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        let options: Vec<String> =
            parts.iter().filter(|p| p.kind() == "word").map(|p| self.raw(*p).to_owned()).collect();
        let has = |letter: char| options.iter().any(|o| o.starts_with('-') && o.contains(letter));
        let removes = keyword == "export" && has('n');
        let exports = !removes && (keyword == "export" || has('x'));
        let read_only = keyword == "readonly" || has('r');
        let local = keyword == "local" || removes;
        for part in parts {
            match part.kind() {
                "variable_assignment" => {
                    let effect = if read_only { Effect::ReadOnly } else { Effect::Set };
                    self.assignment(part, uncertain || local, exports, effect);
                }
                "variable_name" if exports && !uncertain => {
                    self.script.exported.insert(self.raw(part).to_owned(), part.start_byte());
                }
                "variable_name" if exports || removes || read_only => {
                    let (name, at) = (self.raw(part).to_owned(), part.byte_range());
                    self.maybe(name, at);
                }
                _ => {}
            }
        }
    }

    fn unset(&mut self, node: Node<'_>, uncertain: bool) {
        let mut cursor = node.walk();
        let names: Vec<Node<'_>> = node.named_children(&mut cursor).filter(|n| n.kind() == "variable_name").collect();
        for part in names {
            let (name, at) = (self.raw(part).to_owned(), part.byte_range());
            self.maybe(name, at);
            if let Some(last) = self.script.assigns.last_mut().filter(|_| !uncertain) {
                last.effect = Effect::Unset;
            }
        }
    }

    fn word(&self, node: Node<'_>) -> Option<ScriptWord> {
        // Started without arguments, the script has no positional parameters.
        if !self.in_function && matches!(self.raw(node), "\"$@\"" | "$@" | "$*" | "\"${@}\"") {
            return None;
        }
        let value = value::text(node, self.source, &self.known, Place::Word);
        Some(ScriptWord { value, at: node.byte_range(), line: line_of(self.source, node.start_byte()) })
    }

    /// The elements that `"${NAME[@]}"` stands for, where they are sure at this point.
    fn elements(&self, node: Node<'_>) -> Option<Vec<ScriptWord>> {
        let raw = self.raw(node);
        let quoted = raw.starts_with('"');
        let name = raw.trim_matches('"').strip_prefix("${")?.strip_suffix("[@]}")?;
        let words = self.script.arrays.get(name).filter(|_| !self.in_function && !self.spoilt_arrays.contains(name))?;
        let plain = |w: &ScriptWord| {
            w.value.known().is_some_and(|t| !t.is_empty() && !t.contains([' ', '\t', '\n', '*', '?', '[']))
        };
        (quoted || words.iter().all(plain)).then(|| words.clone())
    }

    fn array_words(&self, array: Node<'_>) -> Vec<ScriptWord> {
        let mut cursor = array.walk();
        array.named_children(&mut cursor).filter(|n| n.kind() != "comment").filter_map(|n| self.word(n)).collect()
    }

    fn command(&mut self, node: Node<'_>, context: Context) {
        let Some(name) = node.child_by_field_name("name") else { return };
        let mut cursor = node.walk();
        let parts: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        let prefix: Vec<Assign> = parts
            .iter()
            .filter(|p| p.kind() == "variable_assignment" && p.end_byte() <= name.start_byte())
            .filter_map(|p| self.read_assignment(*p))
            .collect();
        let mut words: Vec<ScriptWord> = self.word(name).into_iter().collect();
        let mut cursor = node.walk();
        for argument in node.children_by_field_name("argument", &mut cursor) {
            match self.elements(argument) {
                Some(elements) => words.extend(elements),
                None => words.extend(self.word(argument)),
            }
        }
        let program = words.first().and_then(|w| w.value.known()).unwrap_or_default().to_owned();
        let line = line_of(self.source, name.start_byte());
        let known = |i: usize| words.get(i).and_then(|w| w.value.known());
        if matches!(program.as_str(), "source" | "." | "eval") || self.script.functions.contains(&program) {
            self.script.opaque.push((node.start_byte(), line));
        }
        let all =
            program == "set" && (known(1) == Some("-a") || (known(1), known(2)) == (Some("-o"), Some("allexport")));
        if all && !context.uncertain {
            self.script.all_exported_from.get_or_insert(node.start_byte());
        }
        if matches!(program.as_str(), "read" | "mapfile" | "printf" | "getopts") {
            let names: Vec<(String, Range<usize>)> =
                words[1..].iter().filter_map(|w| Some((w.value.known()?.to_owned(), w.at.clone()))).collect();
            for (name, at) in names.into_iter().filter(|_| program != "printf") {
                self.maybe(name, at);
            }
        }
        if program == ":" && !context.uncertain {
            self.defaults(&words);
        }
        let tangled = node.parent().filter(|p| p.kind() == "redirected_statement").is_some_and(tangled);
        let statement = context.statement.unwrap_or(node.start_byte());
        self.script.commands.push(Command { prefix, words, statement, at: node.byte_range(), line, tangled });
    }
}

impl Walk<'_> {
    /// `: "${X:=value}"` gives a variable a value where the host gives none.
    fn defaults(&mut self, words: &[ScriptWord]) {
        for word in words {
            let raw = self.source[word.at.clone()].trim_matches('"');
            let Some(body) = raw.strip_prefix("${").and_then(|r| r.strip_suffix('}')) else { continue };
            let Some((name, _)) = body.split_once(":=").or_else(|| body.split_once('=')) else { continue };
            let name = name.trim_end_matches(':').to_owned();
            if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.known.insert(name, word.value.clone());
            }
        }
    }
}

/// Whether words follow a redirection: the grammar takes them for further destinations.
fn tangled(statement: Node<'_>) -> bool {
    let mut cursor = statement.walk();
    statement.children_by_field_name("redirect", &mut cursor).any(|r| {
        let mut inner = r.walk();
        r.children_by_field_name("destination", &mut inner).count() > 1
    })
}
