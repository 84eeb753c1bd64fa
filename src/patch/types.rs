//! What is known of the changes of a fork: plain data that the readers of `patch` fill and its rules weigh.
//!
//! Not responsible for reading it or for judging it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::untrusted::Untrusted;

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// Path as the diff or the tree names it.
    pub path: String,
    /// Line from 1 in the new file; in the old one where the lines were taken away. `None` is the whole file.
    pub line: Option<u32>,
}

/// One fact about a change and where it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact<T> {
    /// What was found.
    pub value: T,
    /// Where.
    pub place: Place,
    /// The line as written, trimmed and bounded.
    pub text: String,
}

/// One change of the fork: a commit, or what a diff does to one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Id, kebab-case, stable over imports of the same change.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Paths that it changes, with how.
    pub files: Vec<FileTouch>,
    /// Functions, classes and kernels that it changes; empty where no language of ours reads the file.
    pub symbols: Vec<Fact<String>>,
    /// Reads that decide whether the change acts.
    pub gates: Vec<GateRead>,
    /// Phases that it can reach, each with why; empty is unknown, and reads as every phase.
    pub phases: BTreeMap<Phase, Fact<String>>,
    /// Value types that were replaced.
    pub dtypes: Vec<Fact<DtypeChange>>,
    /// Kernels that are launched, defined or changed.
    pub kernels: Vec<Fact<String>>,
    /// What its new asserts restrict, as written.
    pub asserts: Vec<Fact<String>>,
    /// Everything else that a rule may weigh.
    pub signals: Vec<Fact<Signal>>,
    /// Lines added and taken away, without those of binary files.
    pub added: u32,
    /// Lines taken away.
    pub removed: u32,
    /// Who said its phases, in place of what was read; `None` where they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_by: Option<String>,
    /// Its lines; `None` where it comes from no diff, or was imported by a version that kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piece: Option<Piece>,
}

/// The lines of a change, as a diff of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Piece {
    /// They are kept, with secrets taken out.
    Kept {
        /// The diff.
        text: Untrusted,
    },
    /// They are more than is kept of one patch.
    TooLong {
        /// How long they are.
        bytes: u64,
    },
    /// The patches before it had filled what is kept of one import.
    NoRoom {
        /// How long they are.
        bytes: u64,
    },
}

impl Entry {
    /// A change of these lines of one file, of which nothing more is known.
    pub fn of_file(id: &str, title: &str, path: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            origin: Origin::Hunks { path: path.to_owned(), symbol: None, commit: None },
            files: vec![FileTouch { path: path.to_owned(), how: Touch::Modified }],
            symbols: Vec::new(),
            gates: Vec::new(),
            phases: BTreeMap::new(),
            dtypes: Vec::new(),
            kernels: Vec::new(),
            asserts: Vec::new(),
            signals: Vec::new(),
            added: 0,
            removed: 0,
            said_by: None,
            piece: None,
        }
    }

    /// The same without its lines, which no rule weighs.
    #[must_use]
    pub fn without_lines(&self) -> Self {
        Self {
            id: self.id.clone(),
            title: self.title.clone(),
            origin: self.origin.clone(),
            files: self.files.clone(),
            symbols: self.symbols.clone(),
            gates: self.gates.clone(),
            phases: self.phases.clone(),
            dtypes: self.dtypes.clone(),
            kernels: self.kernels.clone(),
            asserts: self.asserts.clone(),
            signals: self.signals.clone(),
            added: self.added,
            removed: self.removed,
            said_by: self.said_by.clone(),
            piece: None,
        }
    }
}

/// Where an entry comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Origin {
    /// A commit.
    Commit {
        /// Whole hash.
        hash: String,
        /// First line of its message.
        subject: String,
    },
    /// Hunks of a diff that change one function of one file, or one file.
    Hunks {
        /// The file.
        path: String,
        /// The function; `None` where the hunks lie in none or in several.
        symbol: Option<String>,
        /// Whole hash of the commit that they were split from.
        commit: Option<String>,
    },
    /// Several, which somebody put together.
    Several {
        /// Each of them, none of which is itself such.
        parts: Vec<Origin>,
    },
    /// An installed file that differs from the hash that its wheel recorded.
    Record {
        /// The distribution, `NAME-VERSION`.
        distribution: String,
        /// The file.
        path: String,
    },
}

/// What a change does to one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileTouch {
    /// Path afterwards; before, where the file was taken away.
    pub path: String,
    /// How.
    pub how: Touch,
}

/// How a file is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Touch {
    /// Lines were changed.
    Modified,
    /// The file is new.
    Added,
    /// The file was taken away.
    Deleted,
    /// It has another name, and maybe other lines.
    Renamed {
        /// Path before.
        from: String,
    },
    /// It was made from another that is still there, and maybe has other lines.
    Copied {
        /// Path of the other.
        from: String,
    },
    /// Only its mode was changed.
    Mode {
        /// Octal, as git writes it.
        from: String,
        /// Octal.
        to: String,
    },
    /// It is not text: what changed is unknown.
    Binary,
    /// A merge shows it against several parents: what it changes is not read.
    Combined,
}

/// A read of a switch in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateRead {
    /// Variable, argument, or expression.
    pub name: String,
    /// By what means.
    pub kind: GateKind,
    /// What holds where nobody sets it, as written; `unset` is not `off`.
    pub default: GateDefault,
    /// Where it is read.
    pub place: Place,
    /// The line as written, trimmed and bounded.
    pub text: String,
}

/// By what means a switch is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateKind {
    /// `os.environ[…]`, `os.environ.get`, `os.getenv`, `getenv` of C, `${NAME:-…}` of a shell.
    Environ,
    /// A helper that reads a variable as a truth value or number, such as `get_bool_env_var`.
    Helper,
    /// A registry of variables, such as `envs.NAME.get()`.
    Registry,
    /// A field of the server's arguments.
    ServerArgs,
    /// A test of the card's architecture.
    Arch,
    /// A constant of the module that an `if` tests.
    Constant,
}

impl GateKind {
    /// Whether it is a variable of the process, however it is read.
    pub fn is_variable(self) -> bool {
        matches!(self, Self::Environ | Self::Helper | Self::Registry)
    }
}

/// What a switch is where nobody sets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "text")]
pub enum GateDefault {
    /// This literal or expression, as written.
    Written(String),
    /// Absent, and the code sees that it is.
    Unset,
    /// A missing variable is an error.
    Required,
    /// It is not said where the read stands.
    Unknown,
}

/// A phase of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Weights are loaded and converted.
    Load,
    /// A conversation becomes tokens.
    Template,
    /// A prompt is computed.
    Extend,
    /// Tokens are generated.
    Decode,
    /// Keys go from prefill to decode.
    Transfer,
    /// Tokens become an answer.
    Parse,
}

impl Phase {
    /// Every one, in the order in which a request meets them.
    pub const ALL: [Self; 6] = [Self::Load, Self::Template, Self::Extend, Self::Decode, Self::Transfer, Self::Parse];

    /// The phase of that name; `prefill` is another word for extend.
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        if word == "prefill" {
            return Some(Self::Extend);
        }
        Self::ALL.into_iter().find(|phase| phase.word() == word)
    }

    /// The phase in one word, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Template => "template",
            Self::Extend => "extend",
            Self::Decode => "decode",
            Self::Transfer => "transfer",
            Self::Parse => "parse",
        }
    }
}

/// A value type that took the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DtypeChange {
    /// Before, as `fp32`; `None` where nothing was said.
    pub from: Option<String>,
    /// Afterwards.
    pub to: Option<String>,
}

/// What a changed line does, as far as its words tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// How partial sums are added up.
    Accumulation,
    /// A factor that values are multiplied by.
    Scale,
    /// A bound that values are cut at.
    Clamp,
    /// A number in the code was replaced.
    Constant,
    /// Choosing or sorting: top-k, argmax, sort.
    TopK,
    /// A mask.
    Mask,
    /// Arithmetic on indices or offsets.
    Index,
    /// Pages, blocks, strides or layouts of the cache.
    Layout,
    /// What the prefix cache calls the same.
    CacheKey,
    /// State that goes from prefill to decode.
    Transfer,
    /// The chat template or its defaults.
    Template,
    /// The reading of what the model wrote.
    Parser,
    /// An assert was taken away.
    AssertRemoved,
    /// Something is switched on by default that was not.
    DefaultOn,
}

impl Signal {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::Accumulation,
        Self::Scale,
        Self::Clamp,
        Self::Constant,
        Self::TopK,
        Self::Mask,
        Self::Index,
        Self::Layout,
        Self::CacheKey,
        Self::Transfer,
        Self::Template,
        Self::Parser,
        Self::AssertRemoved,
        Self::DefaultOn,
    ];
}
