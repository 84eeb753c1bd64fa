//! Reads the level of each patch from a process's environment and command line. Pure.

use std::collections::BTreeMap;

use super::argv;
use super::proc::{Cmdline, Environ, Unknown};
use super::source::{SEARCH_PATH, look};
use crate::case::{Gate, LevelValue, Patch};

/// What was read about one patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelReading {
    /// The level, or why it is not known.
    pub level: Result<String, Unknown>,
    /// What was seen, such as `SGLANG_X=1` or `--x is absent`.
    pub seen: String,
    /// Where, such as `/proc/123/environ`.
    pub source: String,
}

/// Whether a flag with these levels is followed by a value.
pub fn takes_value(levels: &BTreeMap<String, LevelValue>) -> bool {
    levels.values().any(|v| matches!(v, LevelValue::Set(text) if !text.is_empty()))
}

/// The level of each patch in a process.
pub fn read<'p>(
    patches: impl IntoIterator<Item = &'p Patch>,
    pid: u32,
    environ: &Result<Environ, Unknown>,
    cmdline: &Result<Cmdline, Unknown>,
) -> BTreeMap<String, LevelReading> {
    patches.into_iter().map(|p| (p.id.clone(), read_one(&p.id, &p.gate, pid, environ, cmdline))).collect()
}

fn read_one(
    patch: &str,
    gate: &Gate,
    pid: u32,
    environ: &Result<Environ, Unknown>,
    cmdline: &Result<Cmdline, Unknown>,
) -> LevelReading {
    let (value, source, levels) = match gate {
        Gate::Env { name, levels } => {
            let value = environ.as_ref().map(|e| e.get(name).map(str::to_owned)).map_err(Clone::clone);
            (value, format!("/proc/{pid}/environ"), levels)
        }
        Gate::Flag { flag, levels } => {
            let words = cmdline.as_ref().map_err(Clone::clone).and_then(Cmdline::words);
            let value =
                words.map(argv::known).and_then(|w| argv::flag_value(&w, flag, takes_value(levels)).map_err(Unknown));
            (value, format!("/proc/{pid}/cmdline"), levels)
        }
        Gate::Reverse { .. } => {
            let source = format!("/proc/{pid}/environ");
            let (level, seen) = match environ.as_ref().map(|e| e.get(SEARCH_PATH)) {
                Ok(value) => look::of_search_path(patch, value),
                Err(unknown) => (Err(unknown.clone()), String::new()),
            };
            return LevelReading { level, seen, source };
        }
        Gate::None => {
            return LevelReading {
                level: Err(Unknown("no variable or flag of the process shows it".into())),
                seen: String::new(),
                source: format!("process {pid}"),
            };
        }
    };
    let name = gate.switch_name();
    match value {
        Err(unknown) => LevelReading { level: Err(unknown), seen: String::new(), source },
        Ok(value) => LevelReading {
            level: level_of(name, value.as_deref(), levels),
            seen: shown(name, value.as_deref()),
            source,
        },
    }
}

/// The level that a value is.
///
/// # Errors
/// It is none of the levels.
pub fn level_of(name: &str, value: Option<&str>, levels: &BTreeMap<String, LevelValue>) -> Result<String, Unknown> {
    let is = |level: &LevelValue| match level {
        LevelValue::Set(text) => value == Some(text),
        LevelValue::Unset => value.is_none(),
        LevelValue::In | LevelValue::Out => false,
    };
    match levels.iter().find(|(_, v)| is(v)) {
        Some((level, _)) => Ok(level.clone()),
        None => Err(Unknown(format!("`{}` is no level of the gate", shown(name, value)))),
    }
}

fn shown(name: &str, value: Option<&str>) -> String {
    match value {
        Some("") if name.starts_with('-') => name.to_owned(),
        Some(value) if name.starts_with('-') => format!("{name} {}", crate::redact::value(name, value)),
        Some(value) => format!("{name}={}", crate::redact::value(name, value)),
        None => format!("{name} is absent"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(pairs: &[(&str, Option<&str>)]) -> BTreeMap<String, LevelValue> {
        let value = |v: Option<&str>| v.map_or(LevelValue::Unset, |t| LevelValue::Set(t.to_owned()));
        pairs.iter().map(|(n, v)| ((*n).to_owned(), value(*v))).collect()
    }

    fn check(gate: &Gate, environ: &[u8], cmdline: &[u8], expect: Result<&str, &str>) {
        let reading =
            read_one("p", gate, 7, &super::super::proc::environ(environ), &super::super::proc::cmdline(cmdline));
        match (reading.level, expect) {
            (Ok(level), Ok(expect)) => assert_eq!(level, expect),
            (Err(Unknown(why)), Err(part)) => assert!(why.contains(part), "{why}"),
            (level, expect) => panic!("{level:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn variables() {
        let gate = || Gate::Env { name: "X".into(), levels: levels(&[("on", Some("1")), ("off", None)]) };
        check(&gate(), b"A=1\0X=1\0", b"srv\0", Ok("on"));
        check(&gate(), b"A=1\0", b"srv\0", Ok("off"));
        check(&gate(), b"X=2\0", b"srv\0", Err("`X=2` is no level"));
        check(&gate(), b"X=\0", b"srv\0", Err("is no level"));
        check(&gate(), b"\0\0\0\0", b"srv\0", Err("overwritten"));
    }

    #[test]
    fn flags() {
        let valued = || Gate::Flag {
            flag: "--m".into(),
            levels: levels(&[("a", Some("fp32")), ("b", Some("bf16")), ("d", None)]),
        };
        check(&valued(), b"A=1\0", b"srv\0--m\0fp32\0--m=bf16\0", Ok("b"));
        check(&valued(), b"A=1\0", b"srv\0--n\0", Ok("d"));
        check(&valued(), b"A=1\0", b"x::y_TP0\0\0\0\0", Err("overwritten by the title"));
        let bare = || Gate::Flag { flag: "--on".into(), levels: levels(&[("on", Some("")), ("off", None)]) };
        check(&bare(), b"A=1\0", b"srv\0--on\0operand\0", Ok("on"));
        check(&bare(), b"A=1\0", b"srv\0", Ok("off"));
        check(&Gate::None, b"A=1\0", b"srv\0", Err("no variable or flag"));
    }
}
