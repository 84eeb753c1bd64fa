//! What a diff says: files with their hunks, the commits that they belong to, and whatever could not be read.
//!
//! Not responsible for what a change means, for applying it, or for getting hold of the text.

mod combined;
mod commit;
mod header;
mod hunk;
mod path;
mod read;
#[cfg(test)]
mod tests;

use super::types::Touch;

pub use read::{read, read_bytes};

/// A diff as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Files in the order of the text; a file that several commits change stands here once for each.
    pub files: Vec<FileDiff>,
    /// Commits in the order of the text; empty where the text names none.
    pub commits: Vec<Commit>,
    /// What could not be read, or not wholly.
    pub remarks: Vec<Remark>,
    /// Which part owns which lines of the text: without gaps, in order, from line 1 to the last.
    pub owners: Vec<Run>,
}

/// A run of lines of the text and what they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First line, from 1.
    pub first: u32,
    /// Last line.
    pub last: u32,
    /// What they belong to.
    pub owner: Owner,
}

/// What a line of the text belongs to. Numbers are indices into [`Diff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The header, message or signature of a commit.
    Commit(usize),
    /// The header of a file, the data of a binary file, or the body of a combined diff.
    File(usize),
    /// A hunk.
    Hunk {
        /// The file.
        file: usize,
        /// The hunk in it.
        hunk: usize,
    },
    /// Text that was not understood.
    Remark(usize),
}

/// A commit that the text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Hash, as long as the text has it.
    pub hash: String,
    /// First line of the message; empty where there is none.
    pub subject: String,
    /// Line of the text that names it.
    pub line: u32,
}

/// Something that a person should know about the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Line of the text, from 1.
    pub line: u32,
    /// One sentence.
    pub text: String,
}

/// What happens to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// Path before; `None` where the file is new.
    pub old: Option<String>,
    /// Path afterwards; `None` where the file is taken away.
    pub new: Option<String>,
    /// Whether the two paths are tied by a rename or a copy.
    pub tie: Tie,
    /// What its body is.
    pub form: Form,
    /// Index of its commit.
    pub commit: Option<usize>,
    /// Octal mode before, where it is said.
    pub old_mode: Option<String>,
    /// Octal mode afterwards, where it is said.
    pub new_mode: Option<String>,
    /// Percent that git calls similar, for renames and copies.
    pub similarity: Option<u8>,
    /// Its hunks; none for binary and combined ones.
    pub hunks: Vec<Hunk>,
    /// Line of the text where it begins.
    pub line: u32,
}

/// How the two paths of a file hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// It is one file.
    Same,
    /// The header says that it was renamed.
    Renamed,
    /// The header says that it was copied.
    Copied,
}

/// What the body of a file's diff is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Hunks, or nothing.
    Text,
    /// Not text.
    Binary,
    /// The diff of a merge against several parents, which has more than one old side and is not read further.
    Combined,
}

/// A hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// First old line, as its header has it.
    pub old_start: u32,
    /// First new line.
    pub new_start: u32,
    /// What its header says after the second `@@`: often the function that it lies in.
    pub section: String,
    /// Its lines.
    pub lines: Vec<Line>,
    /// Whether it has as many lines as its header counts.
    pub complete: bool,
    /// Line of the text where it begins.
    pub line: u32,
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// On which side it stands.
    pub side: Side,
    /// Number in the old file; the place where it would stand for an added line.
    pub old: u32,
    /// Number in the new file; the place where it would stand for a removed line.
    pub new: u32,
    /// Its text without mark and ending.
    pub text: String,
    /// How it ends.
    pub ending: Ending,
}

/// On which side of a diff a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On both.
    Context,
    /// Only on the new one.
    Added,
    /// Only on the old one.
    Removed,
}

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a line feed.
    Lf,
    /// With carriage return and line feed.
    CrLf,
    /// The file ends without one.
    Missing,
}

impl FileDiff {
    /// Path afterwards; before, where the file was taken away.
    pub fn path(&self) -> &str {
        self.new.as_deref().or(self.old.as_deref()).unwrap_or_default()
    }

    /// How the file is touched, in one word: of several, the one that says most.
    pub fn touch(&self) -> Touch {
        match (self.form, self.tie, &self.old, &self.new) {
            (Form::Combined, ..) => Touch::Combined,
            (Form::Binary, ..) => Touch::Binary,
            (_, Tie::Renamed, Some(from), _) => Touch::Renamed { from: from.clone() },
            (_, Tie::Copied, Some(from), _) => Touch::Copied { from: from.clone() },
            (_, _, None, Some(_)) => Touch::Added,
            (_, _, Some(_), None) => Touch::Deleted,
            _ => match (&self.old_mode, &self.new_mode) {
                (Some(from), Some(to)) if from != to && self.hunks.is_empty() => {
                    Touch::Mode { from: from.clone(), to: to.clone() }
                }
                _ => Touch::Modified,
            },
        }
    }

    /// Lines on a side of all its hunks.
    pub fn count(&self, side: Side) -> u32 {
        self.hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.side == side).count() as u32
    }
}
