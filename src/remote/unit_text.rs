//! The POSIX shell texts of a change of a systemd unit, and the drop-in that they write. Pure: each text is shown,
//! journaled and run exactly as built here.

use super::argv;
use super::script::Ask;
use super::shell_text::{TICKS, quote};
use crate::engine::procedure::Failure;

/// How the unit was before it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before<'a> {
    /// It did not run.
    Stopped,
    /// This invocation ran, as it must again; while it still does, nothing is restarted.
    Runs(&'a str),
    /// It ran otherwise than its owner wrote it, so that it is started anew in any case.
    Changed,
}

/// The text of a drop-in with another command; `prefix` are the characters in front of it.
///
/// # Errors
/// A word cannot stand in a unit.
pub(super) fn drop_in(prefix: &str, words: &[String]) -> Result<String, Failure> {
    let words: Result<Vec<String>, Failure> = words.iter().map(|w| word(w)).collect();
    // A list must be emptied first: two commands are an error.
    Ok(format!(
        "# made by patchbench; the unit itself is as it was\n[Service]\nExecStart=\nExecStart={prefix}{}\n",
        words?.join(" ")
    ))
}

/// A word as systemd reads it back: in quotes, with its own escapes, specifiers and variables made plain.
fn word(text: &str) -> Result<String, Failure> {
    if text.chars().any(char::is_control) {
        return Err(Failure::new("a word of the command holds a control character and cannot stand in a unit"));
    }
    let plain = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let bare = !plain.is_empty() && plain.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c));
    Ok(if bare { plain } else { format!("\"{plain}\"") })
}

/// A command with these variables: `env` in front of it beats `Environment=`, files of variables and `UnsetEnvironment=`.
pub(super) fn with_variables(words: Vec<String>, asks: &[&Ask]) -> Vec<String> {
    if asks.is_empty() {
        return words;
    }
    let mut out = vec!["/usr/bin/env".to_owned()];
    out.extend(asks.iter().filter(|a| a.value.is_none()).flat_map(|a| ["-u".to_owned(), a.switch.clone()]));
    out.extend(asks.iter().filter_map(|a| Some(format!("{}={}", a.switch, a.value.as_ref()?))));
    out.extend(words);
    out
}

/// A command with these flags.
///
/// # Errors
/// A flag is given in a way that cannot be replaced.
pub(super) fn with_flags(words: &[String], asks: &[&Ask]) -> Result<Vec<String>, Failure> {
    let mut words = words.to_vec();
    for ask in asks {
        loop {
            let known = argv::known(&words);
            let Some(found) = argv::flags(&known).into_iter().find(|f| f.name == ask.switch) else { break };
            let end = match &found.value {
                argv::FlagValue::Words(range) if ask.takes_value && range.len() == 1 => range.end,
                argv::FlagValue::Words(_) if ask.takes_value => {
                    return Err(Failure::new(format!("cannot set `{}`: several words follow it", ask.switch)));
                }
                _ => found.word + 1,
            };
            words.drain(found.word..end);
        }
        match (&ask.value, ask.takes_value) {
            (Some(value), true) => words.extend([ask.switch.clone(), value.clone()]),
            (Some(_), false) => words.push(ask.switch.clone()),
            (None, _) => {}
        }
    }
    Ok(words)
}

/// The invocation of `$unit`, and whether it is up or on its way; a server that loads is `activating` for minutes.
const INVOCATION: &str = "invocation() { systemctl show --value -p InvocationID -- \"$unit\"; }\n\
    up() { case $(systemctl show --value -p ActiveState -- \"$unit\") in active | activating | reloading) ;; *) return 1 ;; esac; }";

/// Puts a drop-in there (`None` takes it away), loads it, and with `back` brings back what ran before.
pub(super) fn put(unit: &str, file: &str, text: Option<&str>, back: Option<Before<'_>>) -> Result<String, Failure> {
    let mut out = format!("unit={} file={}\n{INVOCATION}\n", quote(unit)?, quote(file)?);
    let write = match text {
        Some(text) => format!(
            "umask 022; mkdir -p \"${{file%/*}}\" && printf '%s' {} >\"$file.new\" && mv \"$file.new\" \"$file\" || {{ rm -f \"$file.new\"; exit 1; }}\n",
            quote(text)?
        ),
        None => "rm -f \"$file\"; rmdir \"${file%/*}\" 2>/dev/null\n".to_owned(),
    };
    out.push_str(&write);
    out.push_str(
        "systemctl daemon-reload || exit 1\n\
         [ \"$(systemctl show --value -p NeedDaemonReload -- \"$unit\")\" = no ] || { echo 'systemd still wants a reload' >&2; exit 1; }\n",
    );
    if let Some(back) = back {
        out.push_str(&again(&back)?);
    }
    Ok(out)
}

fn again(before: &Before<'_>) -> Result<String, Failure> {
    Ok(match before {
        Before::Stopped => "systemctl stop -- \"$unit\"".to_owned(),
        Before::Runs(invocation) => format!(
            "[ \"$(invocation)\" = {} ] && up || {{ systemctl reset-failed -- \"$unit\" 2>/dev/null; systemctl restart --no-block -- \"$unit\"; }}",
            quote(invocation)?
        ),
        Before::Changed => {
            "systemctl reset-failed -- \"$unit\" 2>/dev/null; systemctl restart --no-block -- \"$unit\"".to_owned()
        }
    })
}

/// Whether the drop-in stands there with this text, or is not there, and is loaded.
pub(super) fn stands(unit: &str, file: &str, text: Option<&str>) -> Result<String, Failure> {
    let (unit, file) = (quote(unit)?, quote(file)?);
    let there = match text {
        Some(text) => format!("[ \"$(cksum <{file} 2>/dev/null)\" = '{}' ]", super::shell_text::cksum(text.as_bytes())),
        None => format!("[ ! -e {file} ]"),
    };
    Ok(format!(
        "{there} || exit 1\n\
         case \" $(systemctl show --value -p DropInPaths -- {unit}) \" in *\" \"{file}\" \"*) loaded=yes ;; *) loaded=no ;; esac\n\
         [ $loaded = {} ] && [ \"$(systemctl show --value -p NeedDaemonReload -- {unit})\" = no ]",
        if text.is_some() { "yes" } else { "no" }
    ))
}

/// Restarts the unit, unless the invocation `old` is over already; with `in_any_case`, whatever its start limit says.
pub(super) fn restart(unit: &str, old: &str, in_any_case: bool) -> Result<String, Failure> {
    let reset = if in_any_case { "systemctl reset-failed -- \"$unit\" 2>/dev/null\n" } else { "" };
    Ok(format!(
        "unit={}\n{INVOCATION}\n[ \"$(invocation)\" = {} ] || exit 0\n{reset}systemctl restart --no-block -- \"$unit\"",
        quote(unit)?,
        quote(old)?
    ))
}

/// Gives a copy the owner and mode of what it is a copy of, so that the unit's user can read it, in a folder that can be
/// passed through and not listed.
pub(super) fn as_readable_as(original: &str, folder: &str, copy: &str) -> Result<String, Failure> {
    let (original, copy) = (quote(original)?, quote(copy)?);
    Ok(format!(
        "chmod 711 {folder} && chown --reference={original} {copy} && chmod --reference={original} {copy}",
        folder = quote(folder)?
    ))
}

/// Waits for so many tenths of a second until another invocation than `old` runs.
pub(super) fn began(unit: &str, old: &str, tenths: u32) -> Result<String, Failure> {
    Ok(format!(
        "unit={unit}\n{INVOCATION}\n\
         i=0; while :; do\n\
         \x20 now=$(invocation); [ -n \"$now\" ] && [ \"$now\" != {old} ] && {{ echo \"invocation $now\"; exit 0; }}\n\
         \x20 [ \"$(systemctl show --value -p Result -- \"$unit\")\" != start-limit-hit ] || {{ echo 'its start limit is reached' >&2; exit 1; }}\n\
         \x20 [ $i -lt {tenths} ] || {{ echo 'systemd has not started it' >&2; exit 1; }}\n\
         \x20 sleep 0.1; i=$((i+1))\n\
         done",
        unit = quote(unit)?,
        old = quote(old)?,
    ))
}

/// Stops the unit.
pub(super) fn stop(unit: &str) -> Result<String, Failure> {
    Ok(format!("systemctl stop -- {}", quote(unit)?))
}

/// Starts the unit.
pub(super) fn start(unit: &str) -> Result<String, Failure> {
    Ok(format!(
        "systemctl reset-failed -- {unit} 2>/dev/null; systemctl start --no-block -- {unit}",
        unit = quote(unit)?
    ))
}

/// Whether the unit does not run.
pub(super) fn is_stopped(unit: &str) -> Result<String, Failure> {
    Ok(format!(
        "case $(systemctl show --value -p ActiveState -- {}) in inactive | failed) ;; *) exit 1 ;; esac",
        quote(unit)?
    ))
}

/// Puts a unit back whatever was done to it: waits for steps that still run (`jobs`), takes the drop-in and our copies
/// (`overrides`) away, and brings back what ran.
pub(super) fn put_back(
    unit: &str,
    file: &str,
    jobs: &str,
    (overrides, trees): (&str, &str),
    before: &Before<'_>,
) -> Result<String, Failure> {
    Ok(format!(
        "{TICKS}\n{}\n{}\n\
         [ $? = 0 ] || exit 1\n\
         {look}rm -f {overrides}*.sh {jobs}*\n\
         {take_away}\n\
         echo 'put back'",
        super::shell_text::wait_for_jobs(jobs)?,
        put(unit, file, None, Some(*before))?,
        look = match before {
            Before::Stopped => "",
            Before::Runs(_) | Before::Changed =>
                "i=0; until up; do [ $i -lt 300 ] || { echo 'systemd does not start it' >&2; exit 1; }; sleep 0.1; i=$((i+1)); done\n",
        },
        overrides = quote(overrides)?,
        take_away = super::source::text::take_away(trees)?,
        jobs = quote(jobs)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn ask(switch: &str, value: Option<&str>) -> Ask {
        Ask { switch: switch.into(), value: value.map(str::to_owned), takes_value: true }
    }

    #[test]
    fn a_command_is_written_as_systemd_reads_it() {
        for (text, expect) in [
            ("/bin/x", "/bin/x"),
            ("--a=b,c", "--a=b,c"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("50%", "50%%"),
            ("$HOME", "\"$$HOME\""),
            ("say \"hi\"\\", "\"say \\\"hi\\\"\\\\\""),
            (";", "\";\""),
        ] {
            assert_eq!(word(text).unwrap(), expect, "{text}");
        }
        assert!(word("a\nb").is_err());
        let text = drop_in("-", &words("/bin/x --y")).unwrap();
        assert!(text.ends_with("[Service]\nExecStart=\nExecStart=-/bin/x --y\n"), "{text}");
    }

    #[test]
    fn what_is_written_reads_back_as_the_same_words() {
        use crate::truth::declared::systemd::{UnitFiles, read};
        let command = ["/bin/x", "a b", "50%", "$HOME", "it's \"quoted\"", "\\", "--f=1"].map(str::to_owned);
        let text = drop_in("", &command).unwrap();
        let files = UnitFiles { name: "x.service".into(), main: ("/x.service".into(), text), ..UnitFiles::default() };
        let unit = read(&files, None);
        let back: Vec<String> = unit.facts.command.iter().filter_map(|w| w.known().map(str::to_owned)).collect();
        assert_eq!(back, command);
    }

    #[test]
    fn flags_and_variables_of_a_command() {
        let base = words("/bin/x serve --m fp32 --n 1");
        for (asks, expect) in [
            (vec![ask("--m", Some("bf16"))], "/bin/x serve --n 1 --m bf16"),
            (vec![ask("--m", None)], "/bin/x serve --n 1"),
            (vec![ask("--k", Some("2"))], "/bin/x serve --m fp32 --n 1 --k 2"),
        ] {
            assert_eq!(with_flags(&base, &asks.iter().collect::<Vec<_>>()).unwrap(), words(expect));
        }
        let asks = [ask("A", Some("1")), ask("B", None)];
        let all: Vec<&Ask> = asks.iter().collect();
        assert_eq!(with_variables(words("/bin/x"), &all), words("/usr/bin/env -u B A=1 /bin/x"));
        assert_eq!(with_variables(words("/bin/x"), &[]), words("/bin/x"));
    }
}
