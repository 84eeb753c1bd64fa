//! The frame of a probe's answer: named sections with lengths, bounded, with a head and an end. Pure.
//!
//! What a section means stands in `probe::parse`. A section is either whole or not there: a torn one is
//! dropped and said, so that nothing is read out of half a value.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::engine::diagnostic::Diagnostic;
use crate::untrusted::Untrusted;

/// The version of the frame that this program reads.
pub const VERSION: u32 = 1;
/// The most bytes of an answer that are read.
pub const MOST_BYTES: usize = 16 * 1024 * 1024;
const MOST_SECTIONS: usize = 20_000;
const HEAD: &[u8] = b"patchbench-probe ";

/// What a section holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// The value.
    Read {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Whether there was more.
        truncated: bool,
    },
    /// The value could not be read.
    Unread(Unread),
}

/// Why a value could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The host refused.
    Permission(Untrusted),
    /// There is no such file or process.
    Gone(Untrusted),
    /// A program that is needed is not on the host.
    NoCommand,
    /// The answer was full.
    TooMuch,
    /// Something else, in the host's words.
    Failed(Untrusted),
}

/// A probe's answer, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Whole sections by name.
    pub sections: BTreeMap<String, Section>,
    /// Whether the end came and everything before it.
    pub whole: bool,
    /// What is odd about the answer.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No head: the script did not run.
    #[error("the host gave no answer to the probe{}", shown(.noise))]
    NoHead {
        /// What came instead.
        noise: Untrusted,
    },
    /// A head that this program does not know.
    #[error("the answer of the host has version `{}`, and this program reads version {VERSION}", .version.visible(20))]
    Version {
        /// The version.
        version: Untrusted,
    },
}

fn shown(noise: &Untrusted) -> String {
    if noise.is_empty() { String::new() } else { format!(", but said `{}`", noise.visible(160)) }
}

/// Takes an answer apart. `nonce` is the word that the question gave, so that nothing else reads as an answer.
///
/// # Errors
/// There is no head, or one of another version.
pub fn take_apart(bytes: &[u8], nonce: &str) -> Result<Frame, FrameError> {
    let mut frame = Frame::default();
    let bytes = if bytes.len() > MOST_BYTES {
        let message = format!("the answer of the host is longer than {MOST_BYTES} bytes, and its rest is not read");
        frame.diagnostics.push(Diagnostic::warning("probe-oversized", message));
        &bytes[..MOST_BYTES]
    } else {
        bytes
    };
    let (noise, mut rest) = after_head(bytes, nonce)?;
    if noise.iter().any(|b| !b.is_ascii_whitespace()) {
        let message = format!(
            "the login shell of the host writes {} bytes before the answer: `{}`",
            noise.len(),
            some(noise).visible(80)
        );
        let hint = "it does no harm here; other programs that use ssh may trip over it";
        let remark = Diagnostic {
            severity: crate::engine::diagnostic::Severity::Info,
            ..Diagnostic::warning("probe-noise", message)
        };
        frame.diagnostics.push(remark.hint(hint));
    }
    let mut count = 0_usize;
    let torn = loop {
        let Some((line, after)) = line(rest) else { break Some("it breaks off") };
        let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split(' ').collect();
        match words[..] {
            ["end", word, said] if word == nonce => {
                frame.whole = said.parse() == Ok(count);
                break (!frame.whole).then_some("sections are missing");
            }
            ["section", name, length, encoding, flag] => {
                let Some((payload, after)) = payload(after, length) else { break Some("it breaks off in a section") };
                let Some(section) = section(payload, encoding, flag) else { break Some("a section cannot be read") };
                count += 1;
                if count > MOST_SECTIONS {
                    break Some("it has too many sections");
                }
                if frame.sections.insert(name.to_owned(), section).is_some() {
                    break Some("a section comes twice");
                }
                rest = after;
            }
            _ => break Some("a line is no section"),
        }
    };
    if let Some(why) = torn {
        let message = format!("the answer of the host is torn: {why}, after {count} sections");
        frame.diagnostics.push(
            Diagnostic::warning("probe-torn", message)
                .hint("what is missing is unknown; probe again when the link is steady"),
        );
    }
    Ok(frame)
}

/// What stands before the head, and what comes after its line.
fn after_head<'b>(bytes: &'b [u8], nonce: &str) -> Result<(&'b [u8], &'b [u8]), FrameError> {
    let mut version = None;
    let mut at = 0;
    while let Some(found) = find(&bytes[at..], HEAD) {
        let start = at + found;
        if let Some((head, rest)) = line(&bytes[start + HEAD.len()..]) {
            let words: Vec<&str> = std::str::from_utf8(head).unwrap_or_default().split(' ').collect();
            match words[..] {
                [said, word] if word == nonce && said.parse() == Ok(VERSION) => return Ok((&bytes[..start], rest)),
                [said, word, ..] if word == nonce => version = Some(said.to_owned()),
                _ => {}
            }
        }
        at = start + HEAD.len();
    }
    Err(match version {
        Some(version) => FrameError::Version { version: version.into() },
        None => FrameError::NoHead { noise: some(bytes) },
    })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|b| *b == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn payload<'b>(bytes: &'b [u8], length: &str) -> Option<(&'b [u8], &'b [u8])> {
    let length: usize = length.parse().ok()?;
    let after = bytes.get(length..)?;
    Some((&bytes[..length], after.strip_prefix(b"\n")?))
}

fn section(payload: &[u8], encoding: &str, flag: &str) -> Option<Section> {
    let read = |bytes: Vec<u8>| match flag {
        "whole" => Some(Section::Read { bytes, truncated: false }),
        "truncated" => Some(Section::Read { bytes, truncated: true }),
        _ => None,
    };
    match encoding {
        "text" => read(payload.to_vec()),
        "base64" => read(STANDARD.decode(payload).ok()?),
        "unread" => {
            let why = some(&STANDARD.decode(payload).ok()?);
            Some(Section::Unread(match flag {
                "no-command" => Unread::NoCommand,
                "too-much" => Unread::TooMuch,
                "failed" => unread(why),
                _ => return None,
            }))
        }
        _ => None,
    }
}

/// The reason in the host's words, sorted; the script sets the language of its programs.
fn unread(why: Untrusted) -> Unread {
    let has = |part: &str| why.raw().contains(part);
    if has("Permission denied") || has("Operation not permitted") {
        Unread::Permission(why)
    } else if has("No such file") || has("No such process") {
        Unread::Gone(why)
    } else {
        Unread::Failed(why)
    }
}

/// The start of some bytes, for a message.
fn some(bytes: &[u8]) -> Untrusted {
    String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Section {
        Section::Read { bytes: text.into(), truncated: false }
    }

    fn check(answer: &str, expect: &[(&str, Section)], whole: bool, codes: &[&str]) {
        let frame = take_apart(answer.as_bytes(), "n1").unwrap();
        let expect: BTreeMap<String, Section> = expect.iter().map(|(n, s)| ((*n).to_owned(), s.clone())).collect();
        assert_eq!((frame.sections, frame.whole), (expect, whole), "{answer}");
        assert_eq!(frame.diagnostics.iter().map(|d| d.code.as_str()).collect::<Vec<_>>(), codes, "{answer}");
    }

    #[test]
    fn sections_are_whole_or_not_there() {
        let head = "patchbench-probe 1 n1\n";
        check(&format!("{head}end n1 0\n"), &[], true, &[]);
        check(&format!("{head}section a 2 text whole\nhi\nend n1 1\n"), &[("a", read("hi"))], true, &[]);
        let zero = Section::Read { bytes: vec![0, 10, 0], truncated: true };
        check(&format!("{head}section a 4 base64 truncated\nAAoA\nend n1 1\n"), &[("a", zero)], true, &[]);
        check(&format!("{head}section a 2 text whole\nhi\n"), &[("a", read("hi"))], false, &["probe-torn"]);
        for torn in [
            "section a 20 text whole\nhi\nend n1 1\n",
            "section a 1 text whole\nhi\nend n1 1\n",
            "section a x text whole\nhi\nend n1 1\n",
            "section a 2 text odd\nhi\nend n1 1\n",
            "section a 2 base64 whole\nhi\nend n1 1\n",
            "section a 2 text whole\nhi",
            "end n1 1\n",
            "end n2 0\n",
            "end n1 0",
            "",
        ] {
            check(&format!("{head}{torn}"), &[], false, &["probe-torn"]);
        }
        let twice = format!("{head}section a 1 text whole\nx\nsection a 1 text whole\ny\nend n1 2\n");
        assert!(!take_apart(twice.as_bytes(), "n1").unwrap().whole);
    }

    #[test]
    fn noise_of_the_login_shell_is_said_and_passed_over() {
        let answer =
            "Welcome!\npatchbench-probe 1 other\nend other 0\nsetting up patchbench-probe 1 n1\nend n1 0\nbye\n";
        check(answer, &[], true, &["probe-noise"]);
        check("\n \npatchbench-probe 1 n1\nend n1 0\n", &[], true, &[]);
    }

    #[test]
    fn what_is_no_answer() {
        for (answer, part) in [
            ("", "gave no answer"),
            ("sh: not found\n", "`sh: not found`"),
            ("patchbench-probe 1 n2\nend n2 0\n", "gave no answer"),
            ("patchbench-probe 9 n1\nend n1 0\n", "version `9`"),
            ("patchbench-probe 1 n1", "gave no answer"),
        ] {
            let error = take_apart(answer.as_bytes(), "n1").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn reasons_are_sorted() {
        let answer = |flag: &str, why: &str| {
            let why = STANDARD.encode(why);
            let text = format!("patchbench-probe 1 n1\nsection a {} unread {flag}\n{why}\nend n1 1\n", why.len());
            take_apart(text.as_bytes(), "n1").unwrap().sections.remove("a").unwrap()
        };
        assert!(matches!(answer("failed", "head: x: Permission denied"), Section::Unread(Unread::Permission(_))));
        assert!(matches!(answer("failed", "cat: x: No such process"), Section::Unread(Unread::Gone(_))));
        assert!(matches!(answer("failed", ""), Section::Unread(Unread::Failed(_))));
        assert_eq!(answer("no-command", ""), Section::Unread(Unread::NoCommand));
    }
}
