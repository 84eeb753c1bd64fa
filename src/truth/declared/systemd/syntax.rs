//! The lines of a unit file: sections, assignments, comments and continuations, as `systemd.syntax` has them.
//!
//! Not responsible for what a setting means. Pure.

use super::super::{Declared, Place, remark};

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::truth::declared) struct Assignment {
    /// Section without brackets.
    pub(in crate::truth::declared) section: String,
    /// Name of the setting.
    pub(in crate::truth::declared) key: String,
    /// Its value, continuations joined.
    pub(in crate::truth::declared) value: Lines,
    /// File that it stands in.
    pub(in crate::truth::declared) file: String,
}

/// A text that may come from several lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::truth::declared) struct Lines {
    /// The text.
    pub(in crate::truth::declared) text: String,
    /// Where each line begins in the text, and its number.
    pub(in crate::truth::declared) starts: Vec<(usize, u32)>,
}

impl Lines {
    /// A text on one line.
    pub(in crate::truth::declared) fn single(text: &str, line: u32) -> Self {
        Self { text: text.to_owned(), starts: vec![(0, line)] }
    }

    /// Line of a byte of the text.
    pub(in crate::truth::declared) fn line(&self, at: usize) -> u32 {
        self.starts.iter().rev().find(|(start, _)| *start <= at).or(self.starts.first()).map_or(1, |(_, line)| *line)
    }

    fn push(&mut self, text: &str, line: u32) {
        self.starts.push((self.text.len(), line));
        self.text.push_str(text);
    }

    /// The part from a byte on, without blanks around.
    fn part(&self, from: usize) -> Self {
        let text = self.text[from..].trim();
        let from = from + (self.text[from..].len() - self.text[from..].trim_start().len());
        let mut starts = vec![(0, self.line(from))];
        starts.extend(self.starts.iter().filter(|(s, _)| *s > from).map(|(s, line)| (s - from, *line)));
        Self { text: text.to_owned(), starts }
    }
}

impl Assignment {
    /// Where the setting stands.
    pub(in crate::truth::declared) fn place(&self) -> Place {
        Place::new(&self.file, self.value.line(0))
    }
}

/// The assignments of a file; lines that are none become remarks.
pub(in crate::truth::declared) fn read(text: &str, file: &str, out: &mut Declared) -> Vec<Assignment> {
    let mut found = Vec::new();
    let mut section = String::new();
    let mut logical: Option<Lines> = None;
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        // A comment within a continuation is skipped and does not end it.
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let continues = line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1;
        let mut whole = logical.take().unwrap_or_default();
        match line.strip_suffix('\\').filter(|_| continues) {
            Some(part) => {
                whole.push(&format!("{part} "), number);
                logical = Some(whole);
                continue;
            }
            None => whole.push(line, number),
        }
        take(&whole, file, &mut section, out, &mut found);
    }
    if let Some(whole) = logical {
        take(&whole, file, &mut section, out, &mut found);
    }
    found
}

fn take(line: &Lines, file: &str, section: &mut String, out: &mut Declared, found: &mut Vec<Assignment>) {
    let text = line.text.trim();
    if text.is_empty() {
        return;
    }
    let first = line.part(0);
    let place = Place::new(file, first.line(0));
    if let Some(name) = text.strip_prefix('[') {
        match name.strip_suffix(']') {
            Some(name) => name.clone_into(section),
            None => out.diagnostics.push(remark(
                "unit-line",
                "this section header has no end and the file is refused",
                &place,
            )),
        }
        return;
    }
    let Some((key, _)) = first.text.split_once('=') else {
        out.diagnostics.push(remark("unit-line", "this line has no `=` and is ignored", &place));
        return;
    };
    if section.is_empty() {
        out.diagnostics.push(remark(
            "unit-line",
            &format!("`{}` stands outside of any section and is ignored", key.trim()),
            &place,
        ));
        return;
    }
    let (key, value) = (key.trim_end().to_owned(), first.part(key.len() + 1));
    found.push(Assignment { section: section.clone(), key, value, file: file.to_owned() });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[(&str, &str, &str, u32)], remarks: usize) {
        let mut out = Declared::default();
        let found = read(text, "u", &mut out);
        let found: Vec<_> = found
            .iter()
            .map(|a| (a.section.as_str(), a.key.as_str(), a.value.text.as_str(), a.value.line(0)))
            .collect();
        assert_eq!(found, expect, "{text}");
        assert_eq!(out.diagnostics.len(), remarks, "{text}: {:?}", out.diagnostics);
    }

    #[test]
    fn lines_as_systemd_reads_them() {
        for (text, expect, remarks) in [
            ("[A]\nx=1\n[B]\n y = 2 \n", &[("A", "x", "1", 2), ("B", "y", "2", 4)][..], 0),
            ("[A]\nx=1 # no comment\n ; comment\n", &[("A", "x", "1 # no comment", 2)], 0),
            ("[A]\nx=a \\\n# within\n  b\\\n;c\n c\ny=", &[("A", "x", "a    b  c", 2), ("A", "y", "", 7)], 0),
            ("[A]\nx=a\\\\\ny=b\\ \n", &[("A", "x", "a\\\\", 2), ("A", "y", "b\\", 3)], 0),
            ("x=1\n[A]\nnothing\n[B\n", &[], 3),
            ("[A]\nx=\\\n 1\\", &[("A", "x", "1", 3)], 0),
        ] {
            check(text, expect, remarks);
        }
    }
}
