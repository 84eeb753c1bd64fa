//! Source text with its syntax tree: a whole file, or the lines of one side of a hunk.
//!
//! Not responsible for what the code means; it answers which symbol a line belongs to, and what of it is code.

mod fragment;
mod mask;
mod symbol;
#[cfg(test)]
mod tests;

use tree_sitter::{Node, Parser, Tree};

/// A language whose syntax is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Python.
    Python,
    /// CUDA, C and C++.
    Cuda,
    /// Bash and its simpler relatives.
    Bash,
}

/// Endings of file names and the language that they tell.
const ENDINGS: &[(Language, &[&str])] = &[
    (Language::Python, &["py", "pyi"]),
    (Language::Cuda, &["cu", "cuh", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hip", "inl"]),
    (Language::Bash, &["sh", "bash", "env"]),
];

/// Text in a language, parsed.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its language.
    pub language: Language,
    text: String,
    /// Where each row begins.
    starts: Vec<usize>,
    tree: Tree,
    /// Number in the file of each row of `text`; `None` is a row that was put there for the parser.
    numbers: Vec<Option<u32>>,
    code: Vec<String>,
    words: Vec<String>,
    whole: bool,
    section: String,
    /// Blanks that all lines of a fragment share and that were cut off.
    shared: usize,
    definitions: Vec<symbol::Defined>,
}

impl Language {
    /// The language of a file by the ending of its name; `None` is one that is not read here.
    pub fn of_path(path: &str) -> Option<Self> {
        let (_, ending) = path.rsplit('/').next()?.rsplit_once('.')?;
        let ending = ending.to_ascii_lowercase();
        ENDINGS.iter().find(|(_, endings)| endings.contains(&ending.as_str())).map(|(language, _)| *language)
    }

    fn parse(self, text: &str) -> Option<Tree> {
        let grammar = match self {
            Self::Python => tree_sitter_python::LANGUAGE.into(),
            Self::Cuda => tree_sitter_cuda::LANGUAGE.into(),
            Self::Bash => tree_sitter_bash::LANGUAGE.into(),
        };
        let mut parser = Parser::new();
        parser.set_language(&grammar).ok()?;
        parser.parse(text, None)
    }
}

impl Source {
    /// Reads a whole file. `None` only where the grammar cannot be loaded: text in another language gives a tree that
    /// says little.
    pub fn whole(language: Language, text: &str) -> Option<Self> {
        let rows = text.split('\n').count() as u32;
        let numbers = (1..=rows).map(Some).collect();
        Some(Self::new(language, text.to_owned(), language.parse(text)?, numbers, true, ""))
    }

    /// Reads lines of a file, each with its number, and what the header of their hunk says of where they lie.
    pub fn fragment(language: Language, lines: &[(u32, &str)], section: &str) -> Option<Self> {
        let shared = fragment::shared(lines);
        let text = fragment::dedented(lines, shared);
        let mut source = Self::dedented(language, text, lines, section)?;
        source.shared = shared;
        Some(source)
    }

    fn dedented(language: Language, text: String, lines: &[(u32, &str)], section: &str) -> Option<Self> {
        let plain: Vec<Option<u32>> = lines.iter().map(|(number, _)| Some(*number)).collect();
        let tree = language.parse(&text)?;
        let opened = fragment::openings(language, &text).into_iter().filter_map(|opening| {
            let text = format!("{opening}\n{text}");
            let tree = language.parse(&text)?;
            Some((fragment::faults(&tree), text, tree))
        });
        // Of equals the first is kept: an opening that mends nothing is not put there.
        let best = opened.min_by_key(|(faults, ..)| *faults).filter(|(faults, ..)| *faults < fragment::faults(&tree));
        let Some((_, opened, tree)) = best else {
            return Some(Self::new(language, text, tree, plain, false, section));
        };
        let numbers = std::iter::once(None).chain(plain).collect();
        Some(Self::new(language, opened, tree, numbers, false, section))
    }

    fn new(
        language: Language,
        text: String,
        tree: Tree,
        numbers: Vec<Option<u32>>,
        whole: bool,
        section: &str,
    ) -> Self {
        let code = mask::masked(&text, &tree, mask::Keep::Code);
        let words = mask::masked(&text, &tree, mask::Keep::Strings);
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut source = Self {
            language,
            text,
            starts,
            tree,
            numbers,
            code,
            words,
            whole,
            section: section.to_owned(),
            shared: 0,
            definitions: Vec::new(),
        };
        source.definitions = symbol::definitions(&source);
        source
    }

    /// Whether it is the whole file.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The root of the tree.
    pub fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    /// The text of a node.
    pub fn text_of(&self, node: Node<'_>) -> &str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    /// The number in the file of a row of the tree.
    pub fn number(&self, row: usize) -> Option<u32> {
        self.numbers.get(row).copied().flatten()
    }

    /// The numbers in the file of the first and last row of a node; `None` where it begins in no row of the file.
    pub fn lines_of(&self, node: Node<'_>) -> Option<(u32, u32)> {
        let first = self.number(node.start_position().row)?;
        Some((first, self.number(node.end_position().row).unwrap_or(first).max(first)))
    }

    /// The numbers in the file of all lines that are there.
    pub fn line_numbers(&self) -> impl Iterator<Item = u32> {
        self.numbers.iter().copied().flatten()
    }

    /// The row of a line.
    pub fn row(&self, number: u32) -> Option<usize> {
        if self.whole {
            return (number as usize).checked_sub(1).filter(|row| *row < self.numbers.len());
        }
        self.numbers.binary_search(&Some(number)).ok()
    }

    /// A line as written, without its ending.
    pub fn line(&self, number: u32) -> Option<&str> {
        self.row_text(self.row(number)?)
    }

    fn row_text(&self, row: usize) -> Option<&str> {
        let end = self.starts.get(row + 1).map_or(self.text.len(), |next| next - 1);
        self.text.get(*self.starts.get(row)?..end).map(|line| line.trim_end_matches('\r'))
    }

    /// A line without comments and without what stands in strings; blanks stand in their place.
    pub fn code(&self, number: u32) -> Option<&str> {
        self.code.get(self.row(number)?).map(String::as_str)
    }

    /// A line without comments and documentation, but with what stands in other strings.
    pub fn words(&self, number: u32) -> Option<&str> {
        self.words.get(self.row(number)?).map(String::as_str)
    }

    /// The function that a line lies in, with the classes and functions around it: `Indexer.forward`, `ns::f`.
    /// `None` is a line outside of functions and classes, or a fragment that does not tell.
    pub fn symbol(&self, number: u32) -> Option<String> {
        symbol::of_row(self, self.row(number)?)
    }

    /// Every named node of the tree, in the order of the text, outer ones first.
    pub fn nodes(&self) -> Vec<Node<'_>> {
        let mut nodes = Vec::new();
        let mut cursor = self.root().walk();
        loop {
            let node = cursor.node();
            if node.is_named() {
                nodes.push(node);
            }
            if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return nodes;
                }
            }
        }
    }
}
