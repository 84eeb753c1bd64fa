//! The constants of each file of the package: their names, what they may be, and what they change.

use clap::ValueEnum;

use super::text::{Wrong, assignments};
use super::{Constants, SourceError};
use crate::lab::model::WINDOW;
use crate::serving::python_literal::PyValue;

/// One file of the package.
pub(super) struct File {
    pub(super) name: &'static str,
    constants: &'static [Constant],
}

struct Constant {
    name: &'static str,
    /// What it may be, for whoever wrote something else.
    form: &'static str,
    /// Takes its value over; `None` is a value that it cannot have.
    take: fn(&mut Constants, &PyValue) -> Option<()>,
}

/// Files in the order in which they are read.
pub(super) const FILES: &[File] = &[
    File {
        name: "indexer.py",
        constants: &[
            Constant {
                name: "PAGE_OFFSET",
                form: "a whole number",
                take: |c, v| {
                    c.faults.page_offset = isize::try_from(whole(v)?).ok()?;
                    Some(())
                },
            },
            Constant {
                name: "SCORE_SIGN",
                form: "1 or -1",
                take: |c, v| {
                    c.faults.index_sign = match whole(v)? {
                        1 => false,
                        -1 => true,
                        _ => return None,
                    };
                    Some(())
                },
            },
            Constant {
                name: "KEYS_INTERLEAVED",
                form: "True or False",
                take: |c, v| {
                    c.faults.index_interleaved = truth(v)?;
                    Some(())
                },
            },
        ],
    },
    File {
        name: "mhc.py",
        constants: &[Constant {
            name: "MIX_DTYPE",
            form: "None, \"fp32\", \"tf32\" or \"bf16\"",
            take: |c, v| {
                c.mhc = named(v)?;
                Some(())
            },
        }],
    },
    File {
        name: "moe.py",
        constants: &[
            Constant {
                name: "ROUTED_SCALING",
                form: "None, \"topk\" or \"output\"",
                take: |c, v| {
                    c.routed_scaling = named(v)?;
                    Some(())
                },
            },
            Constant {
                name: "ROUTED_FACTOR",
                form: "a finite number",
                take: |c, v| {
                    let factor = v.as_f64()? as f32;
                    c.faults.routed_factor = (factor != 1.0).then_some(factor);
                    factor.is_finite().then_some(())
                },
            },
        ],
    },
    File {
        name: "cache.py",
        constants: &[
            Constant {
                name: "KV_CACHE_DTYPE",
                form: "None, \"auto\" or \"fp8_e4m3\"",
                take: |c, v| {
                    c.kv = named(v)?;
                    Some(())
                },
            },
            Constant {
                name: "KV_INT4",
                form: "True or False",
                take: |c, v| {
                    c.faults.kv_int4 = truth(v)?;
                    Some(())
                },
            },
            Constant {
                name: "WINDOW",
                form: "None or a whole number from 1 to 128",
                take: |c, v| {
                    c.faults.window = match v {
                        PyValue::None => None,
                        _ => Some(usize::try_from(whole(v)?).ok().filter(|w| (1..=WINDOW).contains(w))?),
                    };
                    Some(())
                },
            },
        ],
    },
];

fn whole(value: &PyValue) -> Option<i64> {
    match value {
        PyValue::Int(n) => Some(*n),
        _ => None,
    }
}

fn truth(value: &PyValue) -> Option<bool> {
    match value {
        PyValue::Bool(b) => Some(*b),
        _ => None,
    }
}

/// A value by the name that its flag has for it; `Some(None)` is Python's `None`.
#[expect(clippy::option_option, reason = "a value that is wrong, one that is left to the flag, and one that is set")]
fn named<T: ValueEnum>(value: &PyValue) -> Option<Option<T>> {
    match value {
        PyValue::None => Some(None),
        PyValue::Str(name) => T::from_str(name, false).ok().map(Some),
        _ => None,
    }
}

/// Why a file cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileError {
    Wrong(Wrong),
    Missing(&'static str),
}

impl From<Wrong> for FileError {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

impl FileError {
    pub(super) fn at(self, path: std::path::PathBuf) -> SourceError {
        match self {
            Self::Wrong(Wrong { line, reason }) => SourceError::Line { path, line, reason },
            Self::Missing(name) => SourceError::Missing { path, name },
        }
    }
}

impl File {
    /// Takes over what the text of this file says.
    ///
    /// # Errors
    /// The first line that says something that the lab cannot run, or a constant that is nowhere.
    pub(super) fn take(&self, bytes: &[u8], into: &mut Constants) -> Result<(), FileError> {
        let found = assignments(bytes)?;
        for (i, assignment) in found.iter().enumerate() {
            let (line, name) = (assignment.line, &assignment.name);
            let Some(constant) = self.constants.iter().find(|c| c.name == name) else {
                let known: Vec<_> = self.constants.iter().map(|c| format!("`{}`", c.name)).collect();
                let reason = format!("there is no constant `{name}` here, only {}", known.join(", "));
                return Err(Wrong::new(line, reason).into());
            };
            if let Some(first) = found[..i].iter().find(|a| a.name == *name) {
                let reason = format!("`{name}` is set again, after line {}", first.line);
                return Err(Wrong::new(line, reason).into());
            }
            if (constant.take)(into, &assignment.value).is_none() {
                let reason = format!("`{name}` must be {}, not `{}`", constant.form, assignment.value);
                return Err(Wrong::new(line, reason).into());
            }
        }
        match self.constants.iter().find(|c| found.iter().all(|a| a.name != c.name)) {
            Some(missing) => Err(FileError::Missing(missing.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::model::{Faults, KvDtype, MhcGemm, RoutedScaling};

    /// The texts of all files with everything as it is without a checkout.
    const CLEAN: [(&str, &str); 4] = [
        ("indexer.py", "PAGE_OFFSET = 0\nSCORE_SIGN = 1\nKEYS_INTERLEAVED = False\n"),
        ("mhc.py", "MIX_DTYPE = None\n"),
        ("moe.py", "ROUTED_SCALING = None\nROUTED_FACTOR = 1.0\n"),
        ("cache.py", "KV_CACHE_DTYPE = None\nKV_INT4 = False\nWINDOW = None\n"),
    ];

    /// Reads the clean file with `line` in the place of the line of the same name.
    fn with(name: &str, line: &str) -> Result<Constants, FileError> {
        let file = FILES.iter().find(|f| f.name == name).unwrap();
        let clean = CLEAN.iter().find(|(n, _)| *n == name).unwrap().1;
        let constant = line.split(' ').next().unwrap();
        let lines: Vec<&str> = clean.lines().map(|l| if l.starts_with(constant) { line } else { l }).collect();
        let mut constants = Constants::default();
        file.take(lines.join("\n").as_bytes(), &mut constants).map(|()| constants)
    }

    fn check(name: &str, line: &str, expect: Constants) {
        assert_eq!(with(name, line), Ok(expect), "{line}");
    }

    fn check_wrong(name: &str, line: &str, at: usize, reason: &str) {
        match with(name, line) {
            Err(FileError::Wrong(wrong)) => {
                assert!(wrong.line == at && wrong.reason.contains(reason), "{wrong:?}: {line}");
            }
            other => panic!("{other:?}: {line}"),
        }
    }

    fn broken(faults: Faults) -> Constants {
        Constants { faults, ..Constants::default() }
    }

    #[test]
    fn a_clean_tree_computes_as_without_one() {
        let mut constants = Constants::default();
        for (file, (name, text)) in FILES.iter().zip(CLEAN) {
            assert_eq!(file.name, name);
            file.take(text.as_bytes(), &mut constants).unwrap();
        }
        assert_eq!(constants, Constants::default());
    }

    #[test]
    fn every_constant_changes_its_own_thing() {
        let none = Faults::default();
        check("indexer.py", "PAGE_OFFSET = 1", broken(Faults { page_offset: 1, ..none.clone() }));
        check("indexer.py", "PAGE_OFFSET = -2", broken(Faults { page_offset: -2, ..none.clone() }));
        check("indexer.py", "SCORE_SIGN = -1", broken(Faults { index_sign: true, ..none.clone() }));
        check("indexer.py", "KEYS_INTERLEAVED = True", broken(Faults { index_interleaved: true, ..none.clone() }));
        check("mhc.py", "MIX_DTYPE = \"tf32\"", Constants { mhc: Some(MhcGemm::Tf32), ..Constants::default() });
        let topk = Constants { routed_scaling: Some(RoutedScaling::Topk), ..Constants::default() };
        check("moe.py", "ROUTED_SCALING = 'topk'", topk);
        check("moe.py", "ROUTED_FACTOR = 1.5", broken(Faults { routed_factor: Some(1.5), ..none.clone() }));
        check("moe.py", "ROUTED_FACTOR = 2", broken(Faults { routed_factor: Some(2.0), ..none.clone() }));
        let fp8 = Constants { kv: Some(KvDtype::Fp8E4m3), ..Constants::default() };
        check("cache.py", "KV_CACHE_DTYPE = \"fp8_e4m3\"", fp8);
        check("cache.py", "KV_INT4 = True", broken(Faults { kv_int4: true, ..none.clone() }));
        check("cache.py", "WINDOW = 16", broken(Faults { window: Some(16), ..none }));
    }

    #[test]
    fn a_value_that_a_constant_cannot_have_is_said_with_what_it_can() {
        check_wrong("indexer.py", "PAGE_OFFSET = True", 1, "`PAGE_OFFSET` must be a whole number, not `True`");
        check_wrong("indexer.py", "PAGE_OFFSET = None", 1, "a whole number");
        check_wrong("indexer.py", "SCORE_SIGN = 0", 2, "1 or -1");
        check_wrong("indexer.py", "KEYS_INTERLEAVED = 1", 3, "True or False");
        check_wrong("mhc.py", "MIX_DTYPE = \"fp16\"", 1, "not `fp16`");
        check_wrong("mhc.py", "MIX_DTYPE = 16", 1, "\"bf16\"");
        check_wrong("moe.py", "ROUTED_FACTOR = \"2\"", 2, "a finite number");
        check_wrong("moe.py", "ROUTED_FACTOR = 1e300", 2, "a finite number");
        check_wrong("cache.py", "KV_CACHE_DTYPE = \"fp8\"", 1, "\"fp8_e4m3\"");
        check_wrong("cache.py", "WINDOW = 0", 3, "from 1 to 128");
        check_wrong("cache.py", "WINDOW = 129", 3, "from 1 to 128");
    }

    #[test]
    fn a_constant_is_known_and_stands_there_once() {
        check_wrong(
            "mhc.py",
            "MIX_DTYPE = None\nMIX_TYPE = \"bf16\"",
            2,
            "there is no constant `MIX_TYPE` here, only `MIX_DTYPE`",
        );
        check_wrong("mhc.py", "MIX_DTYPE = None\n\nMIX_DTYPE = \"bf16\"", 3, "set again, after line 1");
        check_wrong("mhc.py", "MIX_DTYPE", 1, "not `NAME = VALUE`");
        let emptied = FILES[1].take(b"# MIX_DTYPE = None\n", &mut Constants::default());
        assert_eq!(emptied, Err(FileError::Missing("MIX_DTYPE")));
        assert_eq!(with("moe.py", "ROUTED_FACTOR: float = 1.0"), Ok(Constants::default()));
    }
}
