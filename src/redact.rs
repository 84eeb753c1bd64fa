//! Takes secrets out of text before it reaches state, journal, screen, log or report.
//!
//! Responsible for recognising a secret by the name it goes under and by its own form.
//! Pure. Text that the program's own generator made is not passed through here.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// What stands in place of a secret.
pub const MARK: &str = "[redacted]";

/// Whether a value that goes under this name is a secret: a variable, a flag, a header or a JSON key.
///
/// An underscore or a dash, upper or lower case, make no difference.
pub fn is_secret_name(name: &str) -> bool {
    // `#token: 2067` in a server's log is a count.
    if name.starts_with('#') {
        return false;
    }
    let name = name.trim_start_matches('-').replace('-', "_").to_ascii_lowercase();
    if PUBLIC_NAMES.contains(&name.as_str()) || name.contains("_per_") {
        return false;
    }
    name.ends_with("_key")
        || SECRET_PARTS.iter().any(|part| name.contains(part))
        || SECRET_ENDS
            .iter()
            .any(|end| name.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with(['_', '.'])))
}

const SECRET_PARTS: &[&str] = &[
    "secret",
    "password",
    "passwd",
    "passphrase",
    "api_key",
    "apikey",
    "credential",
    "authorization",
    "private_key",
    "connection_string",
    "access_key",
    "account_key",
    "authkey",
];
const SECRET_ENDS: &[&str] = &[
    "token",
    "auth",
    "cookie",
    "bearer",
    "pass",
    "pwd",
    "webhook",
    "webhook_url",
    "sshpass",
    "dsn",
    "pw",
    "http_basic",
];

/// Names that end like a secret and are parts of a model's vocabulary or of a tool's options.
const PUBLIC_NAMES: &[&str] = &[
    "pwd",
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
    "image_token",
    "audio_token",
    "video_token",
    "stop_token",
    "think_start_token",
    "think_end_token",
    "next_token",
    "first_token",
    "prompt_token",
    "new_token",
    "cached_token",
    "full_token",
    "swa_token",
    "pending_token",
    "cache_key",
    "extra_key",
    "sort_key",
];

/// A kind of secret that shows in its own form, with texts that hold one.
struct Form {
    /// Matches the secret; what stands in group `keep` is kept in front of the mark.
    pattern: &'static str,
    /// Texts, and what must become of them: the table's own tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests, kept beside the pattern that they test"))]
    examples: &'static [(&'static str, &'static str)],
}

const FORMS: &[Form] = &[
    Form {
        pattern: r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
        examples: &[
            ("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a [redacted] b"),
            ("-----BEGIN PGP PRIVATE KEY BLOCK-----\\nlQ\\n-----END PGP PRIVATE KEY BLOCK----- b", "[redacted] b"),
            ("cut -----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "cut [redacted]"),
        ],
    },
    Form {
        pattern: r"(?i)(?P<keep>\b(?:proxy-)?authorization['\x22]?\s*[:=]\s*['\x22]?(?:(?:bearer|basic|token)\s+)?)[^\s'\x22,;]+",
        examples: &[
            ("curl -H 'Authorization: Bearer abc.def' http://x", "curl -H 'Authorization: Bearer [redacted]' http://x"),
            ("Authorization: Basic dXNlcjpw", "Authorization: Basic [redacted]"),
            ("\"authorization\": \"xyz\"", "\"authorization\": \"[redacted]\""),
        ],
    },
    Form {
        pattern: r"(?i)(?P<keep>\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}",
        examples: &[("got bearer abcdefgh12", "got bearer [redacted]")],
    },
    Form {
        pattern: r"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s/:@'\x22]*:)[^\s/@'\x22]+(?P<tail>@)",
        examples: &[
            ("http://user:pw@host:1/x", "http://user:[redacted]@host:1/x"),
            ("http://host:1/a@b", "http://host:1/a@b"),
            ("redis://:pw@h:1/0", "redis://:[redacted]@h:1/0"),
        ],
    },
    Form {
        pattern: r"(?P<keep>\b[a-z][a-z0-9+.-]*://)[^\s/:@'\x22]{16,}(?P<tail>@)",
        examples: &[
            ("https://0123456789abcdef0123@host/x", "https://[redacted]@host/x"),
            ("ssh://git@host/x", "ssh://git@host/x"),
        ],
    },
    Form {
        pattern: r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{6,}",
        examples: &[
            ("key sk-REDACTED and sk-proj-a_b1c2", "key [redacted] and [redacted]"),
            ("task-list", "task-list"),
        ],
    },
    Form { pattern: r"\bhf_[A-Za-z0-9]{6,}", examples: &[("hf_AbCdEf0123", "[redacted]"), ("hf_home", "hf_home")] },
    Form {
        pattern: r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,})",
        examples: &[("ghp_0123456789abcdefABCD", "[redacted]")],
    },
    Form {
        pattern: r"\b(?:AIza[A-Za-z0-9_-]{30,}|gsk_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{30,})",
        examples: &[
            ("k AIzaSyA0123456789abcdefghijklmnopqrstuv", "k [redacted]"),
            ("gsk_0123456789abcdefABCDEF", "[redacted]"),
        ],
    },
    Form { pattern: r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", examples: &[("id AKIAABCDEFGHIJKLMNOP.", "id [redacted].")] },
    Form { pattern: r"\bxox[abprs]-[A-Za-z0-9-]{8,}", examples: &[("xoxb-123456789-abc", "[redacted]")] },
    Form { pattern: r"\bnvapi-[A-Za-z0-9_-]{8,}", examples: &[("nvapi-abcdefgh_1", "[redacted]")] },
    Form {
        pattern: r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+",
        examples: &[("t=eyJhbGciOiJI.eyJzdWIi.c2ln end", "t=[redacted] end")],
    },
];

/// `NAME=value`, `name='value'`, `"name": "value"`, `'name': ['value']`, `--name value`: the name decides.
const NAMED: &str = r#"(?x)
    (?P<name>-{0,2}[A-Za-z_][A-Za-z0-9_.-]*)
    (?P<mid>\\?['"]?\s*[=:]\s*|\s+)
    (?:
        \\"(?P<eq>[^"\\\n]*)\\"
        | "(?P<dq>(?:[^"\\\n]|\\.)*)"
        | '(?P<sq>(?:[^'\\\n]|\\.)*)'
        | (?P<list>\[(?:\s*(?:'[^'\n]*'|"[^"\n]*")\s*,?)+\s*\]|\((?:\s*(?:'[^'\n]*'|"[^"\n]*")\s*,?)+\s*\))
        | (?P<bare>[^\s'",;)}\]\\]+)
    )"#;

static FORM_PATTERNS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| FORMS.iter().filter_map(|f| Regex::new(f.pattern).ok()).collect());
static NAMED_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NAMED).ok());

/// The text without the secrets that it shows by name or by form.
pub fn text(text: &str) -> String {
    let mut out = named(text);
    for pattern in FORM_PATTERNS.iter() {
        if pattern.is_match(&out) {
            let replace = |c: &regex::Captures<'_>| {
                let part = |name| c.name(name).map_or("", |m| m.as_str());
                format!("{}{MARK}{}", part("keep"), part("tail"))
            };
            out = pattern.replace_all(&out, replace).into_owned();
        }
    }
    out
}

fn named(text: &str) -> String {
    let Some(pattern) = NAMED_PATTERN.as_ref() else { return MARK.to_owned() };
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut from = 0;
    while let Some(found) = pattern.captures_at(text, from) {
        let (Some(name), Some(mid)) = (found.name("name"), found.name("mid")) else { break };
        let value = ["eq", "dq", "sq", "list", "bare"].iter().find_map(|group| found.name(group));
        let by_space = !mid.as_str().contains(['=', ':']);
        let follows = value.filter(|v| !v.is_empty() && is_secret_name(name.as_str()));
        // A name and a value with only a space between them is a flag and its value, or prose.
        let secret = follows.filter(|v| !by_space || (name.as_str().starts_with("--") && !v.as_str().starts_with('-')));
        let secret = secret.filter(|v| !is_plain_word(v.as_str()) && !is_scheme(v.as_str()));
        match secret {
            Some(value) => {
                let end = match found.name("bare") {
                    Some(_) if is_header(name.as_str()) && mid.as_str().contains(':') => {
                        end_of_header(text, value.end())
                    }
                    Some(_) if by_space => end_of_words(text, value.end()),
                    _ => value.end(),
                };
                out.push_str(&text[copied..value.start()]);
                out.push_str(MARK);
                copied = end;
                from = end;
            }
            None => from = name.end(),
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// Headers whose whole line is secret, whatever its form.
fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// The end of an unquoted header: its line or the quote around it.
fn end_of_header(text: &str, from: usize) -> usize {
    text[from..].find(['\'', '"', '\n', '\r']).map_or(text.len(), |i| from + i)
}

/// The end of the words that follow a flag: some flags take several keys.
fn end_of_words(text: &str, from: usize) -> usize {
    let mut end = from;
    while let Some(rest) = text[end..].strip_prefix(' ') {
        let word = rest.split([' ', '\n', '\'', '"', ';', '|', '&', '\\', ')', '`']).next().unwrap_or_default();
        if word.is_empty() || word.starts_with('-') || word == MARK {
            break;
        }
        end += 1 + word.len();
    }
    end
}

/// Words that say that there is no secret, and a mark that stands already.
fn is_plain_word(value: &str) -> bool {
    matches!(value, "None" | "null" | "none" | "true" | "false" | "True" | "False" | "[redacted" | MARK)
}

/// First words of an `Authorization` header; the pattern table takes what follows them.
fn is_scheme(value: &str) -> bool {
    ["bearer", "basic", "token"]
        .iter()
        .any(|s| value.split_whitespace().next().is_some_and(|v| v.eq_ignore_ascii_case(s)))
}

/// The value of a variable or flag, redacted by its name and by its form. An empty value stays empty.
pub fn value(name: &str, value: &str) -> String {
    if !value.is_empty() && is_secret_name(name) && !is_plain_word(value) {
        return MARK.to_owned();
    }
    text(value)
}

fn is_one_name(name: &str) -> bool {
    !name.contains(|c: char| c.is_whitespace())
}

/// A command line with its secrets taken out, both `--api-key X` and `--api-key=X`.
pub fn argv<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    let mut out = Vec::with_capacity(words.len());
    // The flag before, and whether a first value of it was met.
    let mut after: Option<(&str, bool)> = None;
    for word in words {
        let word = word.as_ref();
        let flag = after.take();
        if let Some((flag, _)) = flag.filter(|(_, met)| !word.starts_with(if *met { "-" } else { "--" })) {
            out.push(value(flag, word));
            // `vllm` takes several keys behind one flag.
            after = Some((flag, true));
        } else if let Some((name, given)) =
            word.split_once('=').filter(|(name, _)| is_one_name(name) && is_secret_name(name))
        {
            out.push(format!("{name}={}", value(name, given)));
        } else {
            after = (word.starts_with('-') && is_secret_name(word)).then_some((word, false));
            out.push(text(word));
        }
    }
    out
}

/// Takes the secrets out of a JSON value. Numbers and truth values are kept: they are no secrets.
pub fn json(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                match inner {
                    Value::String(text) if !text.is_empty() && is_secret_name(key) => MARK.clone_into(text),
                    Value::Array(items) if is_secret_name(key) => {
                        for item in items.iter_mut().filter(|i| i.is_string()) {
                            *item = Value::String(MARK.to_owned());
                        }
                    }
                    _ => json(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(json),
        Value::String(inner) => *inner = text(inner),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_compiles_and_meets_its_examples() {
        assert_eq!(FORM_PATTERNS.len(), FORMS.len());
        assert!(NAMED_PATTERN.is_some());
        for form in FORMS {
            assert!(!form.examples.is_empty());
            for (input, expect) in form.examples {
                assert_eq!(text(input), *expect, "{}", form.pattern);
            }
        }
    }

    #[test]
    fn secret_names() {
        for name in [
            "HF_TOKEN",
            "OPENAI_API_KEY",
            "api_key",
            "--api-key",
            "admin_api_key",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "Authorization",
            "token",
            "SSH_KEY",
            "X-Api-Key",
            "WANDB_API_KEY",
            "CLIENT_SECRET_ID",
            "session_cookie",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "PWD",
            "PATH",
            "max_total_num_tokens",
            "tokenizer_path",
            "bos_token",
            "#cached-token",
            "KEYBOARD",
            "MONKEY",
            "bytes_per_full_token",
            "--max-new-tokens",
            "#new-token",
            "SGLANG_SM120_TRITON_INDEXER",
            "author",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn named_values_in_free_text() {
        for (input, expect) in [
            ("export HF_TOKEN=hunter2 # x", "export HF_TOKEN=[redacted] # x"),
            ("export HF_TOKEN='hunter 2'; go", "export HF_TOKEN='[redacted]'; go"),
            ("serve --api-key hunter2 --port 1", "serve --api-key [redacted] --port 1"),
            ("serve --api-key=hunter2", "serve --api-key=[redacted]"),
            ("serve --api-key \"$KEY\"", "serve --api-key \"[redacted]\""),
            ("ServerArgs(api_key='hunter2', tp=4)", "ServerArgs(api_key='[redacted]', tp=4)"),
            ("ServerArgs(api_key=None, tp=4)", "ServerArgs(api_key=None, tp=4)"),
            ("{\"api_key\": \"hunter2\", \"a\": 1}", "{\"api_key\": \"[redacted]\", \"a\": 1}"),
            ("x-api-key: hunter2", "x-api-key: [redacted]"),
            ("{'api_key': ['hunter2', 'b'], 'a': 1}", "{'api_key': [redacted], 'a': 1}"),
            ("api_key=('hunter2',), tp=4", "api_key=[redacted], tp=4"),
            ("ServerArgs(api_key='hun\\'ter2', tp=4)", "ServerArgs(api_key='[redacted]', tp=4)"),
            (r#"{\"api_key\": \"hunter2\", \"a\": 1}"#, r#"{\"api_key\": \"[redacted]\", \"a\": 1}"#),
            ("Authorization: Digest username=u, response=r\nnext", "Authorization: [redacted]\nnext"),
            ("curl -H 'Cookie: a=b; c=d' x", "curl -H 'Cookie: [redacted]' x"),
            ("serve --api-key k1 k2 --port 1", "serve --api-key [redacted] --port 1"),
            ("GET /x?api_key=hunter2 HTTP/1.1", "GET /x?api_key=[redacted] HTTP/1.1"),
            ("the token was late", "the token was late"),
            ("#new-token: 8192, #cached-token: 0", "#new-token: 8192, #cached-token: 0"),
            ("PASSWORD=a PASSWORD=b", "PASSWORD=[redacted] PASSWORD=[redacted]"),
            ("A=1 B=2", "A=1 B=2"),
        ] {
            assert_eq!(text(input), expect);
        }
    }

    #[test]
    fn command_lines() {
        let words = ["serve", "--api-key", "hunter2", "--tp", "4", "--admin-api-key=x", "--token", "--port", "1"];
        let expect = ["serve", "--api-key", MARK, "--tp", "4", "--admin-api-key=[redacted]", "--token", "--port", "1"];
        assert_eq!(argv(&words), expect);
        assert_eq!(argv(&["vllm", "--api-key", "a", "b", "-x"]), ["vllm", "--api-key", MARK, MARK, "-x"]);
        assert_eq!(argv(&["sh", "-c", "echo; HF_TOKEN=abc run"]), ["sh", "-c", "echo; HF_TOKEN=[redacted] run"]);
    }

    #[test]
    fn json_values() {
        let mut value = serde_json::json!({
            "api_key": "a", "admin_api_key": null, "max_total_num_tokens": 5, "bos_token": "<s>",
            "inner": [{"password": "b", "note": "Bearer abcdefgh"}], "tokens": ["x"], "api_keys": "z", "auth": ["q"],
        });
        json(&mut value);
        assert_eq!(
            value,
            serde_json::json!({
                "api_key": MARK, "admin_api_key": null, "max_total_num_tokens": 5, "bos_token": "<s>",
                "inner": [{"password": MARK, "note": "Bearer [redacted]"}], "tokens": ["x"], "api_keys": MARK, "auth": [MARK],
            })
        );
    }

    #[test]
    fn an_empty_value_stays_visible() {
        assert_eq!(value("HF_TOKEN", ""), "");
        assert_eq!(value("HF_TOKEN", "x"), MARK);
        assert_eq!(value("SGLANG_X", "1"), "1");
    }

    proptest! {
        #[test]
        fn redacting_twice_changes_nothing(input in "[ -~\n]{0,200}") {
            let once = text(&input);
            prop_assert_eq!(text(&once), once);
        }

        #[test]
        fn a_secret_never_survives_its_name(secret in "[A-Za-z0-9]{12,30}", quote in prop::sample::select(vec!["", "'", "\""])) {
            for form in [format!("HF_TOKEN={quote}{secret}{quote}"), format!("--api-key {quote}{secret}{quote}"),
                         format!("{{\"password\": \"{secret}\"}}")] {
                prop_assert!(!text(&form).contains(&secret));
            }
        }
    }
}
