//! Finds the server and its flags in a list of words: a command line, or a command of a script.
//!
//! Pure. A word is `None` where its text is not known.

use std::ops::Range;

/// Programs that only start another program, with what they take before it.
const WRAPPERS: &[Wrapper] = &[
    Wrapper { name: "nohup", valued: &[], operands: 0 },
    Wrapper { name: "exec", valued: &["-a"], operands: 0 },
    Wrapper { name: "command", valued: &[], operands: 0 },
    Wrapper { name: "env", valued: &["-u", "-C", "--unset", "--chdir"], operands: 0 },
    Wrapper { name: "time", valued: &["-o", "-f"], operands: 0 },
    Wrapper { name: "setsid", valued: &[], operands: 0 },
    Wrapper { name: "nice", valued: &["-n"], operands: 0 },
    Wrapper { name: "ionice", valued: &["-c", "-n"], operands: 0 },
    Wrapper { name: "stdbuf", valued: &["-i", "-o", "-e"], operands: 0 },
    Wrapper { name: "numactl", valued: &["-C", "-N", "-m", "-p", "-i", "--cpunodebind", "--membind"], operands: 0 },
    Wrapper { name: "taskset", valued: &[], operands: 1 },
    Wrapper { name: "timeout", valued: &["-k", "-s"], operands: 1 },
    Wrapper { name: "chrt", valued: &[], operands: 1 },
];

/// Programs behind which neither the environment nor the process is that of the script.
pub const BARRIERS: &[&str] =
    &["sudo", "doas", "su", "docker", "podman", "ssh", "srun", "kubectl", "systemd-run", "chroot", "ray", "mpirun"];

struct Wrapper {
    name: &'static str,
    /// Options whose value is the next word.
    valued: &'static [&'static str],
    /// Words without dash before the program.
    operands: usize,
}

/// A word of a command; `None` is not known.
pub type Word = Option<String>;

/// Words whose text is known.
pub fn known<S: AsRef<str>>(words: &[S]) -> Vec<Word> {
    words.iter().map(|w| Some(w.as_ref().to_owned())).collect()
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Index of the program's own word: wrappers, their options and `NAME=value` words stand before it.
pub fn program(words: &[Word]) -> usize {
    let mut at = 0;
    while let Some(name) = text(words, at) {
        let Some(wrapper) = WRAPPERS.iter().find(|w| w.name == base_name(name)) else { break };
        let mut next = at + 1;
        let mut operands = wrapper.operands;
        while let Some(word) = text(words, next) {
            if wrapper.valued.contains(&word) {
                next += 2;
            } else if word.starts_with('-') || (wrapper.name == "env" && is_assignment(word)) {
                next += 1;
            } else if operands > 0 {
                operands -= 1;
                next += 1;
            } else {
                break;
            }
        }
        at = next;
    }
    at.min(words.len())
}

fn text(words: &[Word], at: usize) -> Option<&str> {
    words.get(at)?.as_deref()
}

/// Whether a word has the form `NAME=value`.
pub fn is_assignment(word: &str) -> bool {
    let name = |n: &str| n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    word.split_once('=').is_some_and(|(n, _)| !n.is_empty() && name(n) && !n.starts_with(|c: char| c.is_ascii_digit()))
}

/// What tells one server program from another: the module or script that an interpreter runs, else
/// the program's own name with its first operand (`vllm serve`). `None` where it is not known.
pub fn identity(words: &[Word]) -> Option<String> {
    let at = program(words);
    let name = base_name(text(words, at)?);
    if !is_interpreter(name) {
        let operand = text(words, at + 1).filter(|w| !w.starts_with('-'));
        return Some(operand.map_or_else(|| name.to_owned(), |o| format!("{name} {o}")));
    }
    let mut next = at + 1;
    while let Some(word) = text(words, next) {
        match word {
            "-m" => return text(words, next + 1).map(|m| format!("-m {m}")),
            "-c" => return Some("-c".into()),
            "-X" | "-W" => next += 2,
            _ if word.starts_with('-') => next += 1,
            // A program with an interpreter line shows as `python3 /usr/bin/vllm serve`.
            _ => return identity(&words[next..]),
        }
    }
    None
}

fn is_interpreter(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(stem, "python" | "bash" | "sh" | "dash" | "perl" | "ruby" | "node")
}

/// One use of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagUse {
    /// Flag with its dashes.
    pub name: String,
    /// The word that holds the flag.
    pub word: usize,
    /// Its value.
    pub value: FlagValue,
}

/// The value of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlagValue {
    /// Nothing that could be a value follows.
    None,
    /// `--flag=value`.
    Joined(String),
    /// The words that follow, up to the next flag: its value or values, or operands of the program.
    Words(Range<usize>),
}

/// The flags of the server, those of its wrappers and its interpreter left out.
pub fn flags(words: &[Word]) -> Vec<FlagUse> {
    let mut out = Vec::new();
    let mut at = first_argument(words);
    while at < words.len() {
        let Some(word) = text(words, at).filter(|w| is_flag(w)) else {
            at += 1;
            continue;
        };
        if let Some((name, value)) = word.split_once('=').filter(|(n, _)| n.starts_with("--")) {
            out.push(FlagUse { name: name.into(), word: at, value: FlagValue::Joined(value.into()) });
            at += 1;
            continue;
        }
        let start = at + 1;
        let end = (start..words.len()).find(|i| text(words, *i).is_some_and(is_flag)).unwrap_or(words.len());
        let value = if start == end { FlagValue::None } else { FlagValue::Words(start..end) };
        out.push(FlagUse { name: word.into(), word: at, value });
        at = end;
    }
    out
}

/// A flag begins with a dash and is no negative number.
fn is_flag(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Index of the first word after the program, its interpreter and module.
fn first_argument(words: &[Word]) -> usize {
    let mut at = program(words);
    while text(words, at).is_some_and(|w| is_interpreter(base_name(w))) {
        at += 1;
        while let Some(word) = text(words, at) {
            match word {
                "-m" => return at + 2,
                "-X" | "-W" => at += 2,
                _ if word.starts_with('-') => at += 1,
                _ => break,
            }
        }
    }
    at + 1
}

/// The value that a flag has at the end of a command line: the last use counts.
///
/// `Ok(None)` is absent; `Ok(Some(""))` is present without a value. `takes_value` says whether the
/// word after the flag is its value; without that knowledge a following word is taken for one.
///
/// # Errors
/// The value is a word whose text is not known.
pub fn flag_value(words: &[Word], flag: &str, takes_value: bool) -> Result<Option<String>, String> {
    let Some(last) = flags(words).into_iter().rev().find(|f| f.name == flag) else { return Ok(None) };
    match last.value {
        FlagValue::Joined(value) => Ok(Some(value)),
        FlagValue::Words(range) if takes_value => match &words[range.start] {
            Some(value) => Ok(Some(value.clone())),
            None => Err(format!("the value of `{flag}` is not known")),
        },
        FlagValue::None | FlagValue::Words(_) => Ok(Some(String::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Word> {
        known(&shlex::split(line).unwrap())
    }

    #[test]
    fn the_program_stands_behind_its_wrappers() {
        for (line, expect) in [
            ("python -m sglang.launch_server --tp 4", "python"),
            ("nohup taskset -c 0-47,96 numactl --cpunodebind=1 --membind=1 /x/bin/vllm serve m", "/x/bin/vllm"),
            ("env -u A B=1 C=2 nice -n 5 sglang serve", "sglang"),
            ("exec -a name timeout -k 5 100 llama-server -c 4096", "llama-server"),
            ("taskset 0xff patchbench lab serve", "patchbench"),
        ] {
            let words = words(line);
            assert_eq!(words[program(&words)].as_deref(), Some(expect), "{line}");
        }
        assert_eq!(program(&[]), 0);
        assert_eq!(program(&words("nohup")), 1);
    }

    #[test]
    fn identities() {
        for (line, expect) in [
            ("python -u -m sglang.launch_server --tp 4", Some("-m sglang.launch_server")),
            ("/opt/python3.12 -X dev /x/server.py --port 1", Some("server.py")),
            ("python3 /usr/bin/vllm serve m", Some("vllm serve")),
            ("vllm serve m", Some("vllm serve")),
            ("llama-server -c 4096", Some("llama-server")),
            ("", None),
        ] {
            assert_eq!(identity(&words(line)).as_deref(), expect, "{line}");
        }
    }

    #[test]
    fn flags_of_the_server_only() {
        let line = "nohup numactl --membind=1 python -u -m srv --tp 4 --mem=0.88 --enable --bs 16 32 -c 5 --neg -1";
        let words = words(line);
        let found: Vec<(String, Option<String>)> =
            flags(&words).iter().map(|f| (f.name.clone(), flag_value(&words, &f.name, true).unwrap())).collect();
        let expect = [("--tp", "4"), ("--mem", "0.88"), ("--enable", ""), ("--bs", "16"), ("-c", "5"), ("--neg", "-1")];
        assert_eq!(found, expect.map(|(n, v)| (n.to_owned(), Some(v.to_owned()))));
    }

    #[test]
    fn the_last_use_of_a_flag_counts() {
        let line = words("srv --a 1 --a=2 --on model");
        assert_eq!(flag_value(&line, "--a", true), Ok(Some("2".into())));
        assert_eq!(flag_value(&line, "--b", true), Ok(None));
        assert_eq!(flag_value(&line, "--on", false), Ok(Some(String::new())));
        let unknown = vec![Some("srv".into()), Some("--a".into()), None];
        assert!(flag_value(&unknown, "--a", true).is_err());
    }
}
