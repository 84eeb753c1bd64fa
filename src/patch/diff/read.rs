//! Goes through the text of a diff and gives every line to a commit, a file, a hunk or a remark.
//!
//! Not responsible for what headers and hunks contain.

use super::{Commit, Diff, FileDiff, Form, Hunk, Owner, Remark, Run, combined, commit, header, hunk};

/// Reads a diff: one or many files, with or without commits, in whatever form git, `diff` or Subversion write it.
/// Nothing fails: what is no diff is a remark.
pub fn read(text: &str) -> Diff {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let mut reader = Reader { lines, at: 0, diff: Diff::default(), commit: None };
    reader.run();
    reader.diff
}

/// Reads a diff that may hold bytes that are no UTF-8, each of which is replaced and remarked upon.
pub fn read_bytes(bytes: &[u8]) -> Diff {
    let mut diff = read(&String::from_utf8_lossy(bytes));
    let bad = |(at, line): (usize, &[u8])| std::str::from_utf8(line).is_err().then_some(at as u32 + 1);
    let mut lines = bytes.split(|byte| *byte == b'\n').enumerate().filter_map(bad);
    if let Some(line) = lines.next() {
        let more = lines.count();
        let text = format!("bytes that are no UTF-8 were replaced here and in {more} more lines");
        diff.remarks.push(Remark { line, text });
    }
    diff
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    at: usize,
    diff: Diff,
    commit: Option<usize>,
}

impl<'a> Reader<'a> {
    fn run(&mut self) {
        while let Some(line) = self.lines.get(self.at).copied() {
            if commit::starts(line) {
                self.commit();
            } else if header::starts(self.rest()) {
                self.file();
            } else if !self.stray_hunk() {
                self.other(line);
            }
        }
    }

    fn rest(&self) -> &[&'a str] {
        self.lines.get(self.at..).unwrap_or_default()
    }

    /// Number of the current line.
    fn number(&self) -> u32 {
        self.at as u32 + 1
    }

    /// Gives the next lines to an owner.
    fn take(&mut self, count: usize, owner: Owner) {
        if count == 0 {
            return;
        }
        let first = self.number();
        self.at += count;
        let last = self.at as u32;
        match self.diff.owners.last_mut() {
            Some(run) if run.owner == owner => run.last = last,
            _ => self.diff.owners.push(Run { first, last, owner }),
        }
    }

    fn remark(&mut self, line: u32, text: String) {
        self.diff.remarks.push(Remark { line, text });
    }

    fn commit(&mut self) {
        let rest = self.rest();
        let ends = |at: &usize| {
            let lines = rest.get(*at..).unwrap_or_default();
            header::starts(lines) || lines.first().is_some_and(|line| commit::starts(line))
        };
        let length = (1..rest.len()).find(ends).unwrap_or(rest.len());
        let Some(head) = commit::read(rest.get(..length).unwrap_or_default()) else { return };
        let index = self.diff.commits.len();
        let line = self.number();
        self.diff.commits.push(Commit { hash: head.hash, subject: head.subject, line });
        self.commit = Some(index);
        self.take(length, Owner::Commit(index));
    }

    fn file(&mut self) {
        let number = self.number();
        let (mut file, length) = header::read(self.rest(), number);
        file.commit = self.commit;
        let index = self.diff.files.len();
        self.take(length.max(1), Owner::File(index));
        if file.form == Form::Combined {
            while let Some(length) = combined::length(self.rest()) {
                self.take(length, Owner::File(index));
            }
        }
        while let Some((hunk, length)) = hunk::read(self.rest(), self.number()) {
            self.take(length, Owner::Hunk { file: index, hunk: file.hunks.len() });
            self.incomplete(&hunk);
            file.hunks.push(hunk);
        }
        self.file_remarks(&file);
        self.diff.files.push(file);
    }

    /// A hunk that something else divides from its file.
    fn stray_hunk(&mut self) -> bool {
        let Some(index) = self.diff.files.len().checked_sub(1) else { return false };
        let Some((hunk, length)) = hunk::read(self.rest(), self.number()) else { return false };
        let Some(file) = self.diff.files.get_mut(index).filter(|file| file.form == Form::Text) else { return false };
        let owner = Owner::Hunk { file: index, hunk: file.hunks.len() };
        file.hunks.push(hunk.clone());
        self.take(length, owner);
        self.incomplete(&hunk);
        true
    }

    fn incomplete(&mut self, hunk: &Hunk) {
        if !hunk.complete {
            let text = "this hunk ends before the number of lines that its header counts: it is kept as far as it goes";
            self.remark(hunk.line, text.to_owned());
        }
    }

    fn file_remarks(&mut self, file: &FileDiff) {
        if file.old.is_none() && file.new.is_none() {
            self.remark(file.line, "the header names no file whose path could be read".to_owned());
        }
        if file.form == Form::Combined {
            let text = format!("`{}` is the combined diff of a merge: shown, not analysed", file.path());
            self.remark(file.line, text);
        }
        let headers = self.lines.get(file.line as usize - 1).is_some_and(|line| line.ends_with('\r'));
        if headers {
            let text = "the header ends with CR LF: how the lines of the file end is not known";
            self.remark(file.line, text.to_owned());
        }
    }

    /// A line that begins nothing.
    fn other(&mut self, line: &str) {
        let last = self.diff.owners.last().map(|run| run.owner);
        let blank = line.trim().is_empty();
        match (last, self.commit) {
            (Some(Owner::Hunk { file, .. }), _) if blank => self.take(1, Owner::File(file)),
            (Some(owner), _) if blank => self.take(1, owner),
            (Some(Owner::Commit(index)), _) => self.take(1, Owner::Commit(index)),
            // The signature that `git format-patch` puts behind the last file.
            (_, Some(index)) if line.trim_end_matches('\r') == "-- " => {
                let version =
                    self.lines.get(self.at + 1).is_some_and(|line| line.starts_with(|c: char| c.is_ascii_digit()));
                self.take(1 + usize::from(version), Owner::Commit(index));
            }
            (Some(Owner::Remark(index)), _) => self.take(1, Owner::Remark(index)),
            _ => {
                let index = self.diff.remarks.len();
                let shown: String = line.trim().chars().take(80).collect();
                self.remark(self.number(), format!("this belongs to no file and no hunk: `{shown}`"));
                self.take(1, Owner::Remark(index));
            }
        }
    }
}
