//! The POSIX shell texts of a change. Pure: each text is shown, journaled and run exactly as built here.

use super::script::Override;
use crate::engine::procedure::{Failure, ProcessKey};

/// Where one start leaves its traces: `RUN.pid` (pid, start ticks and boot id of the shell that leads it),
/// `RUN.offset` (length of the log before it) and `RUN.exit` (exit status).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start<'a> {
    /// Script that bash runs.
    pub(super) file: &'a str,
    /// Options for bash.
    pub(super) options: &'a [String],
    /// Folder it is run in.
    pub(super) folder: &'a str,
    /// The log.
    pub(super) log: &'a str,
    /// Path of the traces without their ending.
    pub(super) run: &'a str,
    /// Port that nobody may listen on before.
    pub(super) port: u16,
    /// Variables that the script must find, against those of the shell that starts it; `None` is unset.
    pub(super) environment: &'a [(String, Option<String>)],
    /// What the reader of this text must know, a line each.
    pub(super) remarks: &'a [String],
}

/// The variable by which every process of a start of ours is known, wherever it went.
pub const MARK: &str = "PATCHBENCH_RUN";

/// Start ticks of a live process; nothing for one that is gone or a zombie.
pub(super) const TICKS: &str =
    r#"ticks() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }"#;

/// Whether the shell that leads a start lives (`leads`), and who else belongs to it (`members`): its session, what
/// carries its mark, and their children. Needs `run`.
pub(super) const BELONG: &str = r#"boot=$(cat /proc/sys/kernel/random/boot_id)
of_run() { pid= ticks= of=; [ ! -s "$run.pid" ] || read -r pid ticks of <"$run.pid"; }
of_run
# Pids of another boot of the host, or of a reused number, are nobody's.
leads() { [ -n "$pid" ] && [ "$of" = "$boot" ] && [ "$(ticks "$pid")" = "$ticks" ]; }
# Once its leader is gone, a session's number may be that of somebody else's; the mark alone counts then.
session() { leads && echo "$pid"; }
members() {
  { grep -slzxF "PATCHBENCH_RUN=$run" /proc/[0-9]*/environ | sed 's|/proc/\([0-9]*\)/.*|\1 mark|'
    cat /proc/[0-9]*/stat 2>/dev/null | sed 's/^\([0-9]*\) .*) /\1 /'; } |
    awk -v session="$(session)" -v self="$$" '
      $2 == "mark" { marked[$1]; next }
      # A process with a terminal is a person, whatever it inherited.
      { state[$1] = $2; parent[$1] = $3; if ((session != "" && $5 == session) || (($1 in marked) && $6 == 0)) ours[$1] }
      END {
        do { more = 0; for (p in parent) if (!(p in ours) && (parent[p] in ours)) { ours[p]; more = 1 } } while (more)
        for (p = self; p in parent; p = parent[p]) delete ours[p]
        for (p in state) if ((p in ours) && p != session && state[p] != "Z") print p
      }'
}"#;

/// A word in quotes where it needs them.
pub(super) fn quote(text: &str) -> Result<String, Failure> {
    shlex::try_quote(text)
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Failure::new("a path with a NUL byte cannot be used"))
}

/// Writes an override from the script's own bytes and the changes, so that no other part of the script is shown.
pub(super) fn write_override(made: &Override, script: &str, original: &[u8], file: &str) -> Result<String, Failure> {
    let folder = file.rsplit_once('/').map_or(".", |(folder, _)| folder);
    let mut parts = vec![format!("printf '%s' {}", quote(&made.header)?)];
    let mut at = 0;
    let source = quote(script)?;
    let copy = |from: usize, to: usize| format!("tail -c +{} {source} | head -c {}", from + 1, to - from);
    for edit in &made.edits {
        if edit.at.start > at {
            parts.push(copy(at, edit.at.start));
        }
        if !edit.text.is_empty() {
            parts.push(format!("printf '%s' {}", quote(&edit.text)?));
        }
        at = edit.at.end;
    }
    if original.len() > at {
        parts.push(copy(at, original.len()));
    }
    let (file, changed) = (quote(file)?, quote(&format!("{script} has changed since this was planned"))?);
    Ok(format!(
        "mkdir -p {folder} && umask 077 || exit 1\n\
         [ \"$(cksum <{source})\" = '{before}' ] || {{ echo {changed} >&2; exit 1; }}\n\
         {{ {parts}; }} >{file}.new &&\n\
         [ \"$(cksum <{file}.new)\" = '{after}' ] && bash -n {file}.new && mv {file}.new {file} ||\n\
         {{ rm -f {file}.new; exit 1; }}",
        folder = quote(folder)?,
        before = cksum(original),
        after = cksum(made.text.as_bytes()),
        parts = parts.join(" &&\n  "),
    ))
}

/// Whether an override stands there as it should.
pub(super) fn override_stands(made: &Override, file: &str) -> Result<String, Failure> {
    let file = quote(file)?;
    Ok(format!("[ -r {file} ] && [ \"$(cksum <{file})\" = '{}' ]", cksum(made.text.as_bytes())))
}

/// Says whether exactly this process `runs`, or is `gone`.
pub(super) fn runs(key: ProcessKey) -> String {
    format!("{TICKS}\n[ \"$(ticks {})\" = {} ] && echo runs || echo gone", key.pid, key.start_ticks)
}

/// Ends exactly these processes, in this order: asks, waits, and only then forces.
pub(super) fn stop(keys: &[ProcessKey]) -> String {
    let is = |k: &ProcessKey| format!("[ \"$(ticks {})\" = {} ]", k.pid, k.start_ticks);
    let any: Vec<String> = keys.iter().map(is).collect();
    let kill = |signal: &str| -> String {
        keys.iter().map(|k| format!("{} && kill -{signal} {}", is(k), k.pid)).collect::<Vec<_>>().join("\n")
    };
    format!(
        "{TICKS}\n\
         runs() {{ {any}; }}\n\
         runs || exit 0\n\
         {term}\n\
         i=0; while runs && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done\n\
         # Still there after 30 s.\n\
         runs && {{ echo 'did not end within 30 s of SIGTERM: SIGKILL'\n\
         {kill}\n\
         }}\n\
         i=0; while runs && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done\n\
         ! runs",
        any = any.join(" || "),
        term = kill("TERM"),
        kill = kill("KILL"),
    )
}

/// Starts a script detached from this program.
pub(super) fn start(start: &Start<'_>) -> Result<String, Failure> {
    let options: Result<String, Failure> = start.options.iter().map(|o| Ok(format!(" {}", quote(o)?))).collect();
    let options = options?;
    let (run, runs) = (quote(start.run)?, start.run.rsplit_once('/').map_or(".", |(folder, _)| folder));
    let (file, gone) = (quote(start.file)?, quote(&format!("{} cannot be read", start.file))?);
    let remarks: String = start.remarks.iter().flat_map(|r| ["# ".to_owned(), one_line(r), "\n".to_owned()]).collect();
    Ok(format!(
        "{TICKS}\n\
         run={run}\n\
         {BELONG}\n\
         leads || [ -n \"$(members)\" ] && exit 0\n\
         [ -r {file} ] || {{ echo {gone} >&2; exit 1; }}\n\
         listens() {{ cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == \"0A\" && $2 ~ /:{port:04X}$/ {{ f = 1 }} END {{ exit !f }}'; }}\n\
         i=0; while listens && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done\n\
         listens && {{ echo 'port {port} is in use' >&2; exit 1; }}\n\
         mkdir -p {runs} && cd {folder} && : >>{log} || exit 1\n\
         rm -f {run}.exit {run}.pid; wc -c <{log} >{run}.offset\n\
         {remarks}bash=$(command -v bash) && sh=$(command -v sh) || {{ echo 'bash is not there' >&2; exit 1; }}\n\
         {MARK}={run} setsid nohup {environment}\"$sh\" -c '\n\
         \x20 # Builtins alone: what the script must find may lack every other program.\n\
         \x20 file=$1 run=$2 bash=$3; read -r stat </proc/$$/stat; read -r boot </proc/sys/kernel/random/boot_id\n\
         \x20 set -- ${{stat##*) }}; shift 19; echo \"$$ $1 $boot\" >\"$run.pid\"\n\
         \x20 \"$bash\"{options} \"$file\"\n\
         \x20 echo $? >\"$run.exit\"\n\
         ' patchbench {file} {run} \"$bash\" >>{log} 2>&1 </dev/null &\n\
         i=0; while [ ! -s {run}.pid ] && [ $i -lt 100 ]; do sleep 0.05; i=$((i+1)); done\n\
         [ -s {run}.pid ]",
        port = start.port,
        runs = quote(runs)?,
        folder = quote(start.folder)?,
        log = quote(start.log)?,
        environment = environment(start.environment)?,
        options = options.replace('\'', "'\\''"),
    ))
}

/// `env` with what the script alone must find; the shell that starts it keeps its own.
fn environment(variables: &[(String, Option<String>)]) -> Result<String, Failure> {
    let word = |(name, value): &(String, Option<String>)| match value {
        Some(value) => Ok(format!("{} ", quote(&format!("{name}={value}"))?)),
        None => Ok(format!("-u {name} ")),
    };
    // Options of `env` come first.
    let (gone, set): (Vec<_>, Vec<_>) = variables.iter().partition(|(_, value)| value.is_none());
    let words: Result<String, Failure> = gone.into_iter().chain(set).map(word).collect();
    Ok(if variables.is_empty() { String::new() } else { format!("env {}", words?) })
}

fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}

/// Runs a text in a session of its own and waits for its end: `job` with the endings `.sh`, `.pid`, `.out`, `.err` and
/// `.rc` are its traces. `anew` runs it again where an earlier attempt has ended; without, that one's result is told.
pub(super) fn detached(job: &str, text: &str, timeout_s: f64, anew: bool) -> Result<String, Failure> {
    Ok(format!(
        "{TICKS}\n\
         job={job}\n\
         mask=$(umask); umask 077; mkdir -p \"${{job%/*}}\" || exit 97\n\
         runs() {{ [ -s \"$job.pid\" ] && read -r pid was <\"$job.pid\" && [ \"$(ticks \"$pid\")\" = \"$was\" ]; }}\n\
         {anew}\
         if [ ! -e \"$job.sh\" ]; then\n\
         printf '%s\\n' {text} >\"$job.new\" && mv \"$job.new\" \"$job.sh\" || exit 97\n\
         setsid sh -c '\n\
         \x20 # Its traces are ours alone; what it starts gets the rights that it would have without them.\n\
         \x20 job=$1 mask=$2; read -r stat </proc/$$/stat; set -- ${{stat##*) }}; shift 19; echo \"$$ $1\" >\"$job.pid\"\n\
         \x20 ( umask \"$mask\"; exec sh \"$job.sh\" ) >\"$job.out\" 2>\"$job.err\"\n\
         \x20 echo $? >\"$job.end\" && mv \"$job.end\" \"$job.rc\"\n\
         ' patchbench \"$job\" \"$mask\" >/dev/null 2>&1 </dev/null &\n\
         fi\n\
         i=0; while [ ! -e \"$job.pid\" ] && [ $i -lt 200 ]; do sleep 0.02; i=$((i+1)); done\n\
         i=0; while [ ! -e \"$job.rc\" ] && runs && [ $i -lt {limit} ]; do sleep 0.05; i=$((i+1)); done\n\
         cat \"$job.out\" 2>/dev/null; cat \"$job.err\" >&2 2>/dev/null\n\
         [ -e \"$job.rc\" ] || {{ runs && exit 98; echo 'it was ended from outside' >&2; exit 97; }}\n\
         read -r rc <\"$job.rc\"; exit \"$rc\"",
        job = quote(job)?,
        text = quote(text)?,
        anew = if anew { "runs || rm -f \"$job.sh\" \"$job.pid\" \"$job.out\" \"$job.err\" \"$job.rc\"\n" } else { "" },
        limit = (timeout_s * 20.0).ceil(),
    ))
}

/// Ends a detached text with everything that it started in its session.
pub(super) fn end_detached(job: &str) -> Result<String, Failure> {
    Ok(format!(
        "{TICKS}\n\
         job={}\n\
         read -r pid was <\"$job.pid\" && [ \"$(ticks \"$pid\")\" = \"$was\" ] || exit 0\n\
         kill -s KILL -- \"-$pid\"",
        quote(job)?
    ))
}

/// Whether a start was made and has not ended; says the pid.
pub(super) fn started(run: &str) -> Result<String, Failure> {
    Ok(format!(
        "{TICKS}\nrun={}\n{BELONG}\n\
         [ -s \"$run.pid\" ] && {{ leads || [ -n \"$(members)\" ]; }} && echo \"started as $pid\"",
        quote(run)?
    ))
}

/// Whether nothing of a start runs any more.
pub(super) fn not_started(run: &str) -> Result<String, Failure> {
    Ok(format!("{TICKS}\nrun={}\n{BELONG}\n! leads && [ -z \"$(members)\" ]", quote(run)?))
}

/// Whether a start was made, be it ended or not; says the pid.
pub(super) fn was_started(run: &str) -> Result<String, Failure> {
    let run = quote(run)?;
    Ok(format!("[ -s {run}.pid ] && read -r pid ticks of <{run}.pid && echo \"started as $pid\""))
}

/// Ends everything that a start brought up, and takes its traces away.
pub(super) fn end_start(run: &str) -> Result<String, Failure> {
    Ok(format!(
        "{TICKS}\n\
         run={}\n\
         {BELONG}\n\
         m=$(members); [ -z \"$m\" ] || kill -TERM $m 2>/dev/null\n\
         i=0; while [ -n \"$(members)\" ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done\n\
         # Still there after 30 s.\n\
         m=$(members); [ -z \"$m\" ] || kill -KILL $m 2>/dev/null\n\
         i=0; while [ -n \"$(members)\" ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done\n\
         i=0; while leads && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done\n\
         [ -z \"$(members)\" ] && rm -f \"$run.pid\" \"$run.exit\" \"$run.offset\"",
        quote(run)?
    ))
}

/// Puts a target back whatever was done to it: waits for steps that still run (`jobs`), ends every start of ours (`runs`),
/// takes our overrides and copies away (`overrides`, `trees`), and starts the target as it is where the process that ran before is gone; one
/// that ran with a change of ours is ended in any case.
pub(super) fn put_back(
    jobs: &str,
    runs: &str,
    (overrides, trees): (&str, &str),
    again: Option<(Option<ProcessKey>, &str)>,
) -> Result<String, Failure> {
    let (start, ran) = match again {
        Some((Some(key), start)) => {
            let ran = format!("[ \"$(ticks {})\" = {} ]", key.pid, key.start_ticks);
            (format!("{ran} || (\n{start}\n) || exit 1\n"), ran)
        }
        Some((None, start)) => (format!("(\n{start}\n) || exit 1\n"), "false".to_owned()),
        None => (String::new(), "false".to_owned()),
    };
    Ok(format!(
        "{TICKS}\n\
         run=; {BELONG}\n\
         {wait}\n\
         for trace in {runs}*.pid; do\n\
         \x20 [ -e \"$trace\" ] || continue\n\
         \x20 run=${{trace%.pid}}; of_run\n\
         \x20 # What ran before is left alone, even where an earlier start of ours brought it up.\n\
         \x20 {{ leads || [ -n \"$(members)\" ]; }} && {{ {ran}; }} && continue\n\
         \x20 m=$(members); [ -z \"$m\" ] || kill -TERM $m 2>/dev/null\n\
         \x20 i=0; while [ -n \"$(members)\" ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done\n\
         \x20 m=$(members); [ -z \"$m\" ] || kill -KILL $m 2>/dev/null\n\
         \x20 i=0; while {{ leads || [ -n \"$(members)\" ]; }} && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done\n\
         \x20 rm -f \"$run.pid\" \"$run.exit\" \"$run.offset\"\n\
         done\n\
         # A full disk is freed before a start needs it.\n\
         {take_away}\n\
         {start}\
         rm -f {overrides}*.sh {overrides}*.sh.retired {jobs}*\n\
         echo 'put back'",
        wait = wait_for_jobs(jobs)?,
        jobs = quote(jobs)?,
        runs = quote(runs)?,
        overrides = quote(overrides)?,
        take_away = super::source::text::take_away(trees)?,
    ))
}

/// Waits until no step whose traces begin with this path runs. Needs `ticks`.
pub(super) fn wait_for_jobs(jobs: &str) -> Result<String, Failure> {
    Ok(format!(
        "working() {{ for f in {jobs}*.pid; do [ -s \"$f\" ] && [ ! -e \"${{f%.pid}}.rc\" ] && read -r p t <\"$f\" && [ \"$(ticks \"$p\")\" = \"$t\" ] && return 0; done; return 1; }}\n\
         i=0; while working && [ $i -lt 1500 ]; do sleep 0.1; i=$((i+1)); done",
        jobs = quote(jobs)?
    ))
}

/// Takes away the traces of earlier starts (`stem`), of their steps (`jobs`) and the overrides that were put aside, but for
/// those of `run`, of `job` and `keep`.
pub(super) fn tidy(
    (stem, run): (&str, &str),
    (jobs, job): (&str, &str),
    aside: &str,
    keep: &str,
) -> Result<String, Failure> {
    Ok(format!(
        "for f in {stem}*; do case $f in {run}.*) ;; *) rm -f \"$f\" ;; esac; done\n\
         for f in {jobs}*; do case $f in {job}*) ;; *) rm -f \"$f\" ;; esac; done\n\
         for f in {aside}*.sh {aside}*.sh.retired; do [ \"$f\" = {keep} ] || rm -f \"$f\"; done",
        stem = quote(stem)?,
        run = quote(run)?,
        jobs = quote(jobs)?,
        job = quote(job)?,
        aside = quote(aside)?,
        keep = quote(keep)?,
    ))
}

/// What `cksum` prints for these bytes: the CRC of POSIX and the length.
pub(super) fn cksum(bytes: &[u8]) -> String {
    let step = |mut crc: u32, byte: u8| {
        crc ^= u32::from(byte) << 24;
        for _ in 0..8 {
            crc = if crc & 0x8000_0000 == 0 { crc << 1 } else { (crc << 1) ^ 0x04c1_1db7 };
        }
        crc
    };
    let mut crc = bytes.iter().fold(0, |crc, b| step(crc, *b));
    let mut len = bytes.len();
    while len > 0 {
        crc = step(crc, (len & 0xff) as u8);
        len >>= 8;
    }
    format!("{} {}", !crc, bytes.len())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::remote::script::{Ask, make_override};

    fn sh(script: &str) -> (bool, String) {
        let end = Command::new("sh").arg("-c").arg(script).output().unwrap();
        (end.status.success(), String::from_utf8_lossy(&end.stderr).into_owned())
    }

    #[test]
    fn cksum_is_that_of_posix() {
        for (bytes, expect) in [(&b""[..], "4294967295 0"), (b"a", "1220704766 1"), (b"123456789", "930766865 9")] {
            assert_eq!(cksum(bytes), expect);
        }
    }

    #[test]
    fn an_override_is_written_from_the_scripts_own_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("it's a script.sh").display().to_string();
        let text = "#!/bin/bash\nexport HF_TOKEN=hf_secret1\nexport X=1\nexec srv --p 1\n";
        fs_err::write(&script, text).unwrap();
        let ask = Ask { switch: "X".into(), value: Some("it's 2".into()), takes_value: true };
        let made = make_override(text, &script, &[ask], None).unwrap();
        let file = folder.path().join("a b/over.sh").display().to_string();
        let write = write_override(&made, &script, text.as_bytes(), &file).unwrap();
        assert!(!write.contains("hf_secret1"), "a secret of the script would be journaled: {write}");
        assert!(!sh(&override_stands(&made, &file).unwrap()).0);
        for _ in 0..2 {
            assert!(sh(&write).0);
            assert_eq!(fs_err::read_to_string(&file).unwrap(), made.text);
        }
        assert!(sh(&override_stands(&made, &file).unwrap()).0);
        assert_eq!(fs_err::read_to_string(&script).unwrap(), text);
        fs_err::write(&script, format!("{text}\n")).unwrap();
        fs_err::remove_file(&file).unwrap();
        let (ok, err) = sh(&write);
        assert!(!ok && err.contains("has changed since this was planned"), "{err}");
        assert!(!std::path::Path::new(&file).exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("s.sh").display().to_string();
        fs_err::write(&script, "srv --p 1\n").unwrap();
        let made = make_override("srv --p 1\n", &script, &[], None).unwrap();
        let write = write_override(&made, &script, b"srv --p 1\n", &format!("{script}/over.sh")).unwrap();
        assert!(!sh(&write).0);
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_leaves_nothing() {
        let made = make_override("srv --p 1\n", "/dev/null", &[], None).unwrap();
        // The file cannot be larger than nothing: what a full disk does to a write.
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("s.sh").display().to_string();
        fs_err::write(&script, "srv --p 1\n").unwrap();
        let file = folder.path().join("over.sh").display().to_string();
        let write = write_override(&made, &script, b"srv --p 1\n", &file).unwrap();
        let (ok, _) = sh(&format!("trap '' XFSZ; ulimit -f 0; {write}"));
        assert!(!ok);
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1, "a half-written file is left");
    }
}
