//! Reads the texts under `/proc`. Pure: bytes in, values or *unknown* out.
//!
//! Not responsible for opening the files, which is `remote::local`, nor for redaction.

use crate::engine::procedure::ProcessKey;

/// Why something could not be told, in one clause. Never the same as "not set".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub String);

/// One process as `/proc/PID/stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Pid and start ticks.
    pub key: ProcessKey,
    /// Parent.
    pub ppid: u32,
    /// Session: the pid of the process that called `setsid`.
    pub session: u32,
    /// Whether it has a controlling terminal, as a person's shell has and a server has not.
    pub has_terminal: bool,
    /// State letter; `Z` is a zombie, which runs no more.
    pub state: char,
    /// Short name; up to 15 bytes, chosen by the process.
    pub comm: String,
}

impl ProcessInfo {
    /// Whether it still runs: a zombie only waits for its parent.
    pub fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// Reads `/proc/PID/stat`. The short name may hold spaces, parentheses and newlines.
pub fn stat(bytes: &[u8]) -> Option<ProcessInfo> {
    let open = bytes.iter().position(|b| *b == b'(')?;
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let pid = std::str::from_utf8(bytes.get(..open)?).ok()?.trim().parse().ok()?;
    let comm = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    // Field 3, the state, is the first one here; the start time is field 22.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(ProcessInfo {
        key: ProcessKey { pid, start_ticks: fields.get(19)?.parse().ok()? },
        ppid: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        has_terminal: *fields.get(4)? != "0",
        state: fields.first()?.chars().next()?,
        comm,
    })
}

/// Seconds of a time span as systemd prints it, such as `1min 30s`; `infinity` is one.
pub fn span_seconds(text: &str) -> Option<f64> {
    if text == "infinity" {
        return Some(f64::INFINITY);
    }
    let unit = |name: &str| match name {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "min" => Some(60.0),
        "h" => Some(3600.0),
        "d" => Some(86_400.0),
        "w" => Some(604_800.0),
        "month" => Some(2_629_800.0),
        "y" => Some(31_557_600.0),
        _ => None,
    };
    let part = |word: &str| {
        let at = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
        Some(word[..at].parse::<f64>().ok()? * unit(&word[at..])?)
    };
    if text.is_empty() {
        return None;
    }
    text.split_whitespace().map(part).sum()
}

/// An environment block at the moment of the last `exec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environ {
    /// Name and value in block order, not redacted.
    pub pairs: Vec<(String, String)>,
    /// Entries without `=`, which are no variables.
    pub odd: usize,
}

impl Environ {
    /// The value of a variable; the first entry counts, as for `getenv`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Reads `/proc/PID/environ` of a live process: entries end at NUL only.
///
/// # Errors
/// The block is empty or overwritten, which says nothing about any variable.
pub fn environ(bytes: &[u8]) -> Result<Environ, Unknown> {
    if bytes.is_empty() {
        return Err(Unknown("the environment block of a live process is empty".into()));
    }
    if bytes.iter().all(|b| *b == 0) {
        let message = format!("the environment block is overwritten: {} NUL bytes, as after setproctitle", bytes.len());
        return Err(Unknown(message));
    }
    let body = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let mut environ = Environ::default();
    for entry in body.split(|b| *b == 0) {
        if entry.is_empty() {
            return Err(Unknown("the environment block is overwritten in part".into()));
        }
        let text = String::from_utf8_lossy(entry);
        match text.split_once('=') {
            Some((name, value)) => environ.pairs.push((name.to_owned(), value.to_owned())),
            None => environ.odd += 1,
        }
    }
    Ok(environ)
}

/// Whether an environment is not known because its process wrote over it, and not for want of a right.
pub fn is_overwritten(unknown: &Unknown) -> bool {
    unknown.0.starts_with("the environment block is overwritten")
}

/// What `/proc/PID/cmdline` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cmdline {
    /// The arguments, not redacted.
    Words(Vec<String>),
    /// A title that the process wrote over its arguments.
    Title(String),
}

impl Cmdline {
    /// The arguments, where they are still there.
    ///
    /// # Errors
    /// A title stands in their place.
    pub fn words(&self) -> Result<&[String], Unknown> {
        match self {
            Self::Words(words) => Ok(words),
            Self::Title(title) => Err(Unknown(format!("the arguments are overwritten by the title `{title}`"))),
        }
    }
}

/// Reads `/proc/PID/cmdline`.
///
/// # Errors
/// It is empty, as for a kernel thread or a zombie.
pub fn cmdline(bytes: &[u8]) -> Result<Cmdline, Unknown> {
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    if end == 0 {
        return Err(Unknown("the command line is empty".into()));
    }
    let (body, padding) = bytes.split_at(end);
    let one_word = !body.contains(&0);
    // Arguments end in one NUL each; a title is one word, padded to the old length of the arguments.
    if one_word && (padding.len() > 2 || title_parts(&String::from_utf8_lossy(body)).is_some()) {
        return Ok(Cmdline::Title(String::from_utf8_lossy(body).into_owned()));
    }
    let mut words: Vec<String> = body.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    words.extend(std::iter::repeat_n(String::new(), padding.len().saturating_sub(1)));
    Ok(Cmdline::Words(words))
}

/// A title of the form `program::role_TP0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Title {
    /// Before the colons.
    pub program: String,
    /// What the process does: `scheduler`, `detokenizer`, ….
    pub role: String,
    /// Its place in each parallel dimension, such as `("TP", 0)`.
    pub ranks: Vec<(String, u32)>,
}

/// Reads a process title; `None` where the text has another form.
pub fn title_parts(title: &str) -> Option<Title> {
    let (program, rest) = title.split_once("::")?;
    let plain = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !plain(program) || !plain(rest) {
        return None;
    }
    let mut parts: Vec<&str> = rest.split('_').collect();
    let mut ranks = Vec::new();
    while parts.len() > 1 {
        let Some(rank) = parts.last().and_then(|last| rank(last)) else { break };
        parts.pop();
        ranks.insert(0, rank);
    }
    Some(Title { program: program.to_owned(), role: parts.join("_"), ranks })
}

fn rank(part: &str) -> Option<(String, u32)> {
    let digits = part.find(|c: char| c.is_ascii_digit())?;
    let (dimension, number) = part.split_at(digits);
    let upper = !dimension.is_empty() && dimension.chars().all(|c| c.is_ascii_uppercase());
    Some((dimension.to_owned(), number.parse().ok()?)).filter(|_| upper)
}

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Port.
    pub port: u16,
    /// Socket inode, which the owner's `/proc/PID/fd` names.
    pub inode: u64,
}

/// Reads `/proc/net/tcp` or `tcp6`: the sockets that listen. A line that cannot be read is left out.
pub fn listeners(text: &str) -> Vec<Listener> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (_, port) = fields.get(1)?.rsplit_once(':')?;
            // 0A is TCP_LISTEN.
            (*fields.get(3)? == "0A").then_some(())?;
            Some(Listener { port: u16::from_str_radix(port, 16).ok()?, inode: fields.get(9)?.parse().ok()? })
        })
        .collect()
}

/// Seconds since 1970 at which the host booted, from `/proc/stat`.
pub fn boot_time(stat: &str) -> Option<i64> {
    stat.lines().find_map(|l| l.strip_prefix("btime ")?.trim().parse().ok())
}

/// Clock ticks in a second, from `/proc/self/auxv` (entry 17, `AT_CLKTCK`).
pub fn ticks_per_second(auxv: &[u8]) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(usize::from_ne_bytes);
    let size = size_of::<usize>();
    auxv.chunks_exact(2 * size).find_map(|pair| {
        (word(&pair[..size])? == 17).then_some(())?;
        u64::try_from(word(&pair[size..])?).ok().filter(|ticks| *ticks > 0)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redact;

    fn artefact(name: &str) -> Vec<u8> {
        fs_err::read(format!("{}/tests/artefacts/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn spans_of_systemd() {
        for (text, expect) in [
            ("10s", Some(10.0)),
            ("1min 30s", Some(90.0)),
            ("0", Some(0.0)),
            ("500ms", Some(0.5)),
            ("infinity", Some(f64::INFINITY)),
            ("", None),
            ("soon", None),
            ("1 parsec", None),
        ] {
            assert_eq!(span_seconds(text), expect, "{text}");
        }
    }

    #[test]
    fn a_short_name_may_hold_anything() {
        let line = "4242 (a) R (b c) S 7 4242 4200 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 1 0 987654 1 2 3";
        let info = stat(line.as_bytes()).unwrap();
        assert_eq!(info.key, ProcessKey { pid: 4242, start_ticks: 987_654 });
        assert_eq!((info.ppid, info.session, info.state, info.comm.as_str()), (7, 4200, 'S', "a) R (b c"));
        assert!(stat(b"4242 (cut").is_none());
        assert!(stat(b"").is_none());
    }

    #[test]
    fn a_readable_environment_is_split_at_nul_only() {
        let environ = environ(&artefact("A33_proc_readable/environ.bin")).unwrap();
        assert_eq!((environ.pairs.len(), environ.odd), (13, 0));
        let driver = "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=nvidiartx,driver>=535,driver<536";
        for (name, expect) in [
            ("SGLANG_SM120_TRITON_INDEXER", Some("1")),
            ("NVIDIA_REQUIRE_CUDA", Some(driver)),
            ("SGLANG_EMPTY", Some("")),
            ("MULTILINE", Some("line one\nSGLANG_NOT_A_VARIABLE=1")),
            ("SGLANG_NOT_A_VARIABLE", None),
        ] {
            assert_eq!(environ.get(name), expect, "{name}");
        }
        assert_eq!(redact::value("HF_TOKEN", environ.get("HF_TOKEN").unwrap()), redact::MARK);
    }

    #[test]
    fn an_overwritten_environment_is_unknown() {
        let unknown = environ(&artefact("A34_proc_clobbered/environ.bin")).unwrap_err();
        assert!(unknown.0.contains("90 NUL bytes"), "{unknown}");
        assert!(environ(b"").is_err());
        assert!(environ(b"tail of a title\0\0\0\0").is_err());
        assert!(environ(b"A=1\0").is_ok());
    }

    #[test]
    fn a_readable_command_line() {
        let Cmdline::Words(words) = cmdline(&artefact("A33_proc_readable/cmdline.bin")).unwrap() else { panic!() };
        assert!(words.windows(2).any(|w| w == ["--json-model-override-args", "{\"index_topk\": 512}"]));
        assert!(words.windows(2).any(|w| w == ["--served-model-name", "deepseek v4 flash"]));
        let shown = redact::argv(&words);
        assert!(shown.windows(2).any(|w| w == ["--api-key", redact::MARK]), "{shown:?}");
    }

    #[test]
    fn a_title_gives_role_and_rank_but_no_arguments() {
        let line = cmdline(&artefact("A34_proc_clobbered/cmdline.bin")).unwrap();
        assert_eq!(line, Cmdline::Title("sglang::scheduler_TP0".into()));
        assert!(line.words().is_err());
        for (title, role, ranks) in [
            ("sglang::scheduler_TP0", "scheduler", vec![("TP".to_owned(), 0)]),
            ("sglang::scheduler_DP1_TP3", "scheduler", vec![("DP".to_owned(), 1), ("TP".to_owned(), 3)]),
            ("sglang::detokenizer", "detokenizer", vec![]),
        ] {
            let parts = title_parts(title).unwrap();
            assert_eq!((parts.role.as_str(), parts.ranks), (role, ranks));
        }
        assert!(title_parts("std::string x").is_none());
    }

    #[test]
    fn empty_arguments_are_arguments() {
        for (bytes, expect) in [
            (&b"prog\0"[..], vec!["prog"]),
            (b"prog\0\0", vec!["prog", ""]),
            (b"prog\0--x\0\0\0y\0", vec!["prog", "--x", "", "", "y"]),
        ] {
            assert_eq!(cmdline(bytes).unwrap().words().unwrap(), expect);
        }
        assert!(cmdline(b"\0\0").is_err());
    }

    #[test]
    fn listening_sockets() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:7532 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0\n\
            1: 0100007F:7532 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 100 0\n\
            2: broken\n";
        assert_eq!(listeners(text), [Listener { port: 30002, inode: 4711 }]);
        let six = "head\n 0: 00000000000000000000000000000000:1F90 0:0 0A 0:0 0:0 0 0 0 99 1\n";
        assert_eq!(listeners(six), [Listener { port: 8080, inode: 99 }]);
    }

    proptest! {
        #[test]
        fn environ_round_trip(pairs in prop::collection::vec(("[A-Z_]{1,8}", "[^\0]{0,12}"), 1..8)) {
            let bytes: Vec<u8> = pairs.iter().flat_map(|(n, v)| format!("{n}={v}\0").into_bytes()).collect();
            prop_assert_eq!(environ(&bytes).unwrap().pairs, pairs);
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (stat(&bytes), environ(&bytes), cmdline(&bytes), ticks_per_second(&bytes));
            let _ = listeners(&String::from_utf8_lossy(&bytes));
        }
    }
}
