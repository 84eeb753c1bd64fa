//! YAML (and with it JSON) as a tree in which every value keeps its line.
//!
//! Responsible for anchors, merge keys and bounds; not for what a key means. Pure.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// The deepest nesting that is read; what stands deeper is left out and said.
const MAX_DEPTH: usize = 64;
/// The most values that a text may hold once its aliases are followed.
const MAX_NODES: usize = 200_000;

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Line on which it begins, counted from 1; of a block text, the line after its sign.
    pub line: u32,
    /// What it is.
    pub kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, `~` or `null`.
    Null,
    /// A text, a number or a truth value, as it is written.
    Scalar(Scalar),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the file.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key; a key that is no text is empty.
    pub key: String,
    /// Line of the key.
    pub line: u32,
    /// The value.
    pub value: Node,
}

/// A text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text, quotes and folding resolved.
    pub text: String,
    /// Whether it has no quotes, so that it may be a number or a truth value.
    pub plain: bool,
    /// Last line.
    pub last_line: u32,
}

/// Something in the text that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Line, counted from 1.
    pub line: u32,
    /// What, in one clause.
    pub message: String,
}

impl Node {
    /// The value under a key of a mapping; the last of equal keys counts.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().rev().find(|e| e.key == key).map(|e| &e.value)
    }

    /// The value at the end of a path of keys.
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// The entries of a mapping; none of anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            Kind::Null | Kind::Scalar(_) | Kind::List(_) => &[],
        }
    }

    /// The elements of a sequence; none of anything else.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            Kind::Null | Kind::Scalar(_) | Kind::Map(_) => &[],
        }
    }

    /// Last line of a scalar, else the first line of the value.
    pub fn last_line(&self) -> u32 {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.last_line,
            Kind::Null | Kind::List(_) | Kind::Map(_) => self.line,
        }
    }
}

/// A container that is being read.
struct Open {
    node: Node,
    anchor: usize,
    key: Option<(String, u32)>,
    size: usize,
}

struct Reading {
    documents: Vec<Node>,
    stack: Vec<Open>,
    /// Values under anchors, with the number of values in each.
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
    troubles: Vec<Trouble>,
    /// How many containers deeper than the bound are open.
    too_deep: usize,
}

/// Reads the documents of a text. What cannot be read is said; what stands before it is kept.
pub fn documents(text: &str) -> (Vec<Node>, Vec<Trouble>) {
    let mut reading = Reading {
        documents: Vec::new(),
        stack: Vec::new(),
        anchors: BTreeMap::new(),
        nodes: 0,
        troubles: Vec::new(),
        too_deep: 0,
    };
    if let Some(line) = nested_line(text) {
        reading.trouble(line, "brackets are nested too deeply to be read".into());
        return (Vec::new(), reading.troubles);
    }
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => reading.take(event, span),
            Err(error) => {
                let line = count(error.marker().line());
                let message = match error.info() {
                    deep if deep.contains("recursion") => "brackets are nested too deeply to be read".to_owned(),
                    other => format!("this is no YAML: {other}"),
                };
                reading.trouble(line, message);
                break;
            }
        }
        if reading.nodes > MAX_NODES {
            let line = reading.stack.last().map_or(1, |o| o.node.line);
            reading.trouble(line, format!("more than {MAX_NODES} values once its aliases are followed"));
            break;
        }
    }
    while !reading.stack.is_empty() {
        reading.close();
    }
    (reading.documents, reading.troubles)
}

/// Line of the first bracket that is nested far beyond anything that is written by hand.
fn nested_line(text: &str) -> Option<u32> {
    let (mut depth, mut line) = (0_usize, 1);
    for byte in text.bytes() {
        match byte {
            b'\n' => line += 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 100 * MAX_DEPTH {
            return Some(line);
        }
    }
    None
}

fn count(line: usize) -> u32 {
    count_of(line.max(1))
}

fn count_of(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Reading {
    fn trouble(&mut self, line: u32, message: String) {
        self.troubles.push(Trouble { line, message });
    }

    fn take(&mut self, event: Event<'_>, span: Span) {
        let line = count(span.start.line());
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let plain = matches!(style, ScalarStyle::Plain);
                let nothing = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                // The span of a block text begins at its first word and ends on the line after its last.
                let empty_lines = text.bytes().take_while(|b| block && *b == b'\n').count();
                let line = line.saturating_sub(if empty_lines < text.len() { count_of(empty_lines) } else { 0 }).max(1);
                let last_line = count(span.end.line()).saturating_sub(u32::from(block)).max(line);
                let scalar = Scalar { text: text.into_owned(), plain, last_line };
                let kind = if nothing { Kind::Null } else { Kind::Scalar(scalar) };
                self.put(Node { line, kind }, anchor, 1);
            }
            Event::SequenceStart(anchor, _) => self.open(Node { line, kind: Kind::List(Vec::new()) }, anchor),
            Event::MappingStart(anchor, _) => self.open(Node { line, kind: Kind::Map(Vec::new()) }, anchor),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(id) => {
                let (node, size) = self.anchors.get(&id).cloned().unwrap_or_else(|| {
                    let message = "an alias stands inside the value that it names".into();
                    self.troubles.push(Trouble { line, message });
                    (Node { line, kind: Kind::Null }, 1)
                });
                self.put(node, 0, size);
            }
            Event::DocumentEnd => self.anchors.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {}
        }
    }

    fn open(&mut self, node: Node, anchor: usize) {
        if self.stack.len() >= MAX_DEPTH {
            if self.too_deep == 0 {
                self.trouble(
                    node.line,
                    format!("values are nested more than {MAX_DEPTH} deep; the inner ones are left out"),
                );
            }
            self.too_deep += 1;
            return;
        }
        self.nodes += 1;
        self.stack.push(Open { node, anchor, key: None, size: 1 });
    }

    fn close(&mut self) {
        if self.too_deep > 0 {
            self.too_deep -= 1;
            return;
        }
        if let Some(Open { mut node, anchor, size, .. }) = self.stack.pop() {
            if let Kind::Map(entries) = &mut node.kind {
                merge(entries);
            }
            // Its own size was counted as it grew.
            self.nodes = self.nodes.saturating_sub(size);
            self.put(node, anchor, size);
        }
    }

    fn put(&mut self, node: Node, anchor: usize, size: usize) {
        if self.too_deep > 0 {
            return;
        }
        self.nodes += size;
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.stack.last_mut() else {
            self.documents.push(node);
            return;
        };
        open.size += size;
        match &mut open.node.kind {
            Kind::List(items) => items.push(node),
            Kind::Map(entries) => match open.key.take() {
                None => open.key = Some((node.text().unwrap_or_default().to_owned(), node.line)),
                Some((key, line)) => entries.push(Entry { key, line, value: node }),
            },
            Kind::Null | Kind::Scalar(_) => {}
        }
    }
}

/// `<<: *base`: the entries of the base that the mapping does not have itself.
fn merge(entries: &mut Vec<Entry>) {
    let (bases, own): (Vec<Entry>, Vec<Entry>) = std::mem::take(entries).into_iter().partition(|e| e.key == "<<");
    *entries = own;
    for base in bases {
        let maps = match base.value.kind {
            Kind::List(items) => items,
            kind => vec![Node { line: base.line, kind }],
        };
        for entry in maps.into_iter().flat_map(|m| match m.kind {
            Kind::Map(entries) => entries,
            Kind::Null | Kind::Scalar(_) | Kind::List(_) => Vec::new(),
        }) {
            if !entries.iter().any(|e| e.key == entry.key) {
                entries.push(entry);
            }
        }
    }
}

/// Finds the lines of the parts of a text in its source, in order.
pub struct Locator<'s> {
    lines: Vec<&'s str>,
    line: usize,
    column: usize,
    last: usize,
}

impl<'s> Locator<'s> {
    /// For the parts of one scalar.
    pub fn new(source: &'s str, node: &Node) -> Self {
        let lines: Vec<&str> = source.lines().collect();
        let last = (node.last_line() as usize).min(lines.len());
        Self { lines, line: (node.line as usize).saturating_sub(1), column: 0, last }
    }

    /// Line of a part; where it does not stand as it is, the line of the part before.
    pub fn line(&mut self, part: &str) -> u32 {
        // A part over several lines is found by its first line.
        let part = part.lines().next().unwrap_or_default().trim_end_matches('\\').trim_end();
        let mut column = self.column;
        for line in self.line..self.last.max(self.line + 1).min(self.lines.len()) {
            let text = self.lines[line];
            if let Some(found) = text.get(column..).and_then(|rest| rest.find(part)) {
                (self.line, self.column) = (line, column + found + part.len());
                break;
            }
            column = 0;
        }
        u32::try_from(self.line + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> Node {
        let (mut documents, troubles) = documents(text);
        assert_eq!(troubles, [], "{text}");
        documents.remove(0)
    }

    fn check(text: &str, path: &[&str], expect: &str, lines: (u32, u32)) {
        let root = one(text);
        let node = root.at(path).unwrap_or_else(|| panic!("{path:?} in {root:#?}"));
        assert_eq!((node.text(), (node.line, node.last_line())), (Some(expect), lines), "{text}");
    }

    #[test]
    fn every_text_has_its_lines() {
        for (text, path, expect, lines) in [
            ("a: 1\nb:\n  c: two # no\n", &["b", "c"][..], "two", (3, 3)),
            ("a: 'x\n  y'\nb: 2", &["a"], "x y", (1, 2)),
            ("a: |\n  one\n  two\nb: 1\n", &["a"], "one\ntwo\n", (2, 3)),
            ("a: >-\n  one\n  two\n\nb: 1\n", &["a"], "one two", (2, 4)),
            ("a: |+\n\n  one\n", &["a"], "\none\n", (2, 3)),
            ("a: >-\n  last", &["a"], "last", (2, 2)),
            ("{\"a\": {\n\t\"b\": \"c\\/d\"}}", &["a", "b"], "c/d", (2, 2)),
            ("x: &x {k: v}\ny:\n  <<: *x\n  l: w\n", &["y", "k"], "v", (1, 1)),
            ("x: &x {k: v}\ny:\n  <<: [*x]\n  k: w\n", &["y", "k"], "w", (4, 4)),
            ("a: 1\na: 2\n", &["a"], "2", (2, 2)),
        ] {
            check(text, path, expect, lines);
        }
        assert_eq!(one("a:\nb: ~\n").get("a").unwrap().kind, Kind::Null);
        assert_eq!(documents("a: 1\n---\nb: 2\n").0.len(), 2);
    }

    #[test]
    fn a_broken_text_keeps_what_stands_before() {
        let (documents, troubles) = documents("a: 1\nb: [1, 2\nc: }\n");
        assert_eq!(documents[0].get("a").and_then(Node::text), Some("1"));
        assert_eq!(troubles.len(), 1, "{troubles:?}");
    }

    #[test]
    fn aliases_cannot_fill_the_memory() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let before = format!("*a{}, ", i - 1).repeat(10);
            text = format!("{text}a{i}: &a{i} [{}]\n", before.trim_end_matches(", "));
        }
        let (_, troubles) = documents(&text);
        assert!(troubles[0].message.contains("aliases"), "{troubles:?}");
    }

    #[test]
    fn deep_nesting_is_said_and_survived() {
        for text in
            ["[".repeat(100_000), "[".repeat(500) + &"]".repeat(500), "a:\n ".to_owned() + &"- ".repeat(500) + "x"]
        {
            let (_, troubles) = documents(&text);
            assert!(!troubles.is_empty() && troubles[0].message.contains("nested"), "{troubles:?}");
        }
    }

    #[test]
    fn parts_of_a_folded_text_are_found() {
        let source = "c: >\n  --a 1\n  --b \"x y\"\n  1\n";
        let root = one(source);
        let mut locator = Locator::new(source, root.get("c").unwrap());
        let lines: Vec<u32> = ["--a", "1", "--b", "x y", "1"].iter().map(|p| locator.line(p)).collect();
        assert_eq!(lines, [2, 2, 3, 3, 4]);
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[ -~\n\té]{0,200}", tree in "([-:\\[\\]{}&*a|>#'\"! ]|\n){0,80}") {
            let _ = documents(&text);
            let _ = documents(&tree);
        }
    }
}
