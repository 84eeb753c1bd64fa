//! The lease of a target on its host: who may change it, how it is put back without us, and until when it waits.
//!
//! A lease is a folder: `token` (the session that holds it), `holder` (for people), `program` (whether that session
//! still runs), `restore.sh` (puts the target back, whatever was done), `until` (seconds since 1970; a shell on the
//! host runs `restore.sh` once it is past) and, afterwards, `restored`. Pure: texts are built and read here, and run
//! by `remote::execute`.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::probe::types::Reading;
use super::proc::Unknown;
use super::shell_text::{TICKS, quote};
use crate::engine::procedure::Failure;
use crate::untrusted::Untrusted;

/// Whose changes these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Names the session; the same after a resume.
    pub token: String,
    /// User and machine, for people.
    pub who: String,
    /// The session, for people.
    pub session: String,
    /// Pid, start ticks and boot of the program on its own machine.
    pub program: String,
}

/// What stands on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nobody holds the target, or the host has put it back since.
    Nobody,
    /// Somebody does.
    Held(Holder),
    /// It cannot be told.
    Unknown(Unknown),
}

/// Who holds a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Names the session.
    pub token: String,
    /// What people wrote down: who, which session, since when.
    pub said: Untrusted,
    /// Pid, start ticks and boot of the program on its own machine.
    pub program: String,
    /// When the host puts the target back by itself.
    pub until: Option<Timestamp>,
}

/// Reads the files of a lease: each its text, `None` where there is none, or why it is unknown.
pub fn read(files: &BTreeMap<String, Reading<Option<String>>>) -> Found {
    let file = |name: &str| match files.get(name) {
        Some(Ok(text)) => Ok(text.as_deref().map(str::trim).filter(|t| !t.is_empty())),
        Some(Err(why)) => Err(why.clone()),
        None => Ok(None),
    };
    let all = (|| {
        let Some(token) = file("token")? else { return Ok(Found::Nobody) };
        if file("restored")?.is_some() {
            return Ok(Found::Nobody);
        }
        Ok(Found::Held(Holder {
            token: token.to_owned(),
            said: Untrusted::from(file("holder")?.unwrap_or("somebody").replace('\n', ", ")),
            program: file("program")?.unwrap_or_default().to_owned(),
            until: file("until")?.and_then(|t| Timestamp::from_second(t.parse().ok()?).ok()),
        }))
    })();
    all.unwrap_or_else(Found::Unknown)
}

/// What a new lease is made of.
#[derive(Clone, Debug)]
pub(super) struct New<'a> {
    /// Its folder.
    pub(super) path: &'a str,
    /// Who takes it.
    pub(super) owner: &'a Owner,
    /// When, for people.
    pub(super) since: Timestamp,
    /// The target, for people.
    pub(super) target: &'a str,
    /// Token of the lease that it takes the place of, once its program is known to be gone.
    pub(super) instead_of: Option<&'a str>,
    /// The text that puts the target back, run in a shell of its own.
    pub(super) restore: &'a str,
    /// Minutes after which the host puts it back by itself; `None` is never.
    pub(super) minutes: Option<u32>,
}

/// Takes the lease: in one step, so that of two sessions only one gets it.
pub(super) fn take(new: &New<'_>) -> Result<String, Failure> {
    let path = quote(new.path)?;
    let holder = format!("{} in {} since {} on {}", new.owner.who, new.owner.session, new.since, new.target);
    let instead = new.instead_of.map(quote).transpose()?.unwrap_or_else(|| "''".into());
    let mut text = format!(
        "{TICKS}\n\
         lease={path} token={token} instead={instead}\n\
         umask 077; mkdir -p \"${{lease%/*}}\" || exit 1\n\
         has=$(cat \"$lease/token\" 2>/dev/null)\n\
         [ \"$has\" = \"$token\" ] && [ ! -e \"$lease/restored\" ] && exit 0\n\
         if [ -e \"$lease\" ]; then\n\
         \x20 [ -e \"$lease/restored\" ] || [ -z \"$has\" ] || [ \"$has\" = \"$instead\" ] || {{ echo \"held by $(cat \"$lease/holder\")\" >&2; exit 1; }}\n\
         \x20 rm -rf \"$lease\"\n\
         fi\n\
         new=$lease.new.$$; rm -rf \"$new\"; mkdir \"$new\" || exit 1\n\
         {{ printf '%s\\n' {holder} >\"$new/holder\" && printf '%s\\n' {program} >\"$new/program\" &&\n\
         \x20 printf '%s' {restore} >\"$new/restore.sh\" && printf '%s\\n' \"$token\" >\"$new/token\"; }} || {{ rm -rf \"$new\"; exit 1; }}\n",
        token = quote(&new.owner.token)?,
        holder = quote(&holder)?,
        program = quote(&new.owner.program)?,
        restore = quote(&restore_script(new.path, new.restore)?)?,
    );
    if let Some(minutes) = new.minutes {
        let until = format!("echo $(($(date +%s) + {})) >\"$new/until\"\n", u64::from(minutes) * 60);
        text.push_str(&until);
    }
    // A folder is not moved over one that holds something: who comes second sees the lease of who came first.
    text.push_str(
        "mv -T \"$new\" \"$lease\" 2>/dev/null || { rm -rf \"$new\"; echo \"held by $(cat \"$lease/holder\")\" >&2; exit 1; }\n",
    );
    if new.minutes.is_some() {
        text.push_str(&dead_man());
    }
    text.push_str("echo \"lease taken\"");
    Ok(text)
}

/// The shell that waits for the lease to run out. Under systemd it is a unit of its own, so that the end of a login
/// does not end it.
fn dead_man() -> String {
    let body = "lease=$1; while read -r until <\"$lease/until\"; do\n\
         \x20 [ \"$(date +%s)\" -lt \"$until\" ] || { sh \"$lease/restore.sh\" dead-man >\"$lease/log\" 2>&1; exit; }\n\
         \x20 sleep 1\n\
         done 2>/dev/null";
    format!(
        "dead_man='{body}'\n\
         if [ \"$(id -u)\" = 0 ] && [ -d /run/systemd/system ] && systemd-run --quiet --collect \\\n\
         \x20   --unit=\"patchbench-restore-${{lease##*/}}\" sh -c \"$dead_man\" patchbench \"$lease\" 2>/dev/null; then :\n\
         else setsid sh -c \"$dead_man\" patchbench \"$lease\" >/dev/null 2>&1 </dev/null & fi\n"
    )
}

/// The script that puts the target back once, whoever runs it: the dead man's shell, or `restore`.
fn restore_script(path: &str, text: &str) -> Result<String, Failure> {
    Ok(format!(
        "# Puts the target back as it was before patchbench changed it: sh restore.sh\n\
         lease={path}\n\
         {TICKS}\n\
         busy() {{ read -r pid was 2>/dev/null <\"$lease/restoring/pid\" && [ \"$(ticks \"$pid\")\" = \"$was\" ]; }}\n\
         i=0; until mkdir \"$lease/restoring\" 2>/dev/null; do\n\
         \x20 # One that was killed has left it.\n\
         \x20 busy || {{ sleep 1; busy || rm -rf \"$lease/restoring\"; }}\n\
         \x20 [ $i -lt 2400 ] || {{ echo 'another restore runs' >&2; exit 1; }}\n\
         \x20 sleep 0.1; i=$((i+1))\n\
         done\n\
         echo \"$$ $(ticks $$)\" >\"$lease/restoring/pid\"\n\
         if read -r status rest 2>/dev/null <\"$lease/restored\" && [ \"$status\" = 0 ]; then rm -rf \"$lease/restoring\"; exit 0; fi\n\
         (\n{text}\n)\n\
         status=$?\n\
         echo \"$status $(date +%s) by ${{1:-restore}}\" >\"$lease/restored\"\n\
         rm -rf \"$lease/restoring\" \"$lease/until\"\n\
         exit $status\n",
        path = quote(path)?,
    ))
}

/// Whether the lease is ours and has not run out.
pub(super) fn is_ours(path: &str, token: &str) -> Result<String, Failure> {
    Ok(format!(
        "lease={}; [ \"$(cat \"$lease/token\" 2>/dev/null)\" = {} ] && [ ! -e \"$lease/restored\" ]",
        quote(path)?,
        quote(token)?
    ))
}

/// Puts off the moment at which the host restores by itself, where it would, and says `ours`; else `restored` or `lost`.
pub(crate) fn renew(path: &str, token: &str, minutes: u32) -> Result<String, Failure> {
    Ok(format!(
        "if {}; then :; elif [ -e \"$lease/restored\" ]; then echo restored; exit 0; else echo lost; exit 0; fi\n\
         [ ! -e \"$lease/until\" ] || {{ echo $(($(date +%s) + {})) >\"$lease/until.$$\" && mv \"$lease/until.$$\" \"$lease/until\"; }} &&\n\
         echo ours",
        is_ours(path, token)?,
        u64::from(minutes) * 60
    ))
}

/// Gives the lease back; a lease of somebody else stays.
pub(super) fn give_back(path: &str, token: &str) -> Result<String, Failure> {
    Ok(format!(
        "lease={}; [ \"$(cat \"$lease/token\" 2>/dev/null)\" != {} ] || rm -rf \"$lease\"; echo \"lease given back\"",
        quote(path)?,
        quote(token)?
    ))
}

/// Whether no lease of this token stands there.
pub(super) fn is_given_back(path: &str, token: &str) -> Result<String, Failure> {
    Ok(format!("[ \"$(cat {}/token 2>/dev/null)\" != {} ]", quote(path)?, quote(token)?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn sh(script: &str) -> (bool, String) {
        let end = Command::new("sh").arg("-c").arg(script).output().unwrap();
        let text = [end.stdout, end.stderr].concat();
        (end.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn owner(token: &str) -> Owner {
        Owner { token: token.into(), who: "ann@box".into(), session: "s".into(), program: "1 2 b".into() }
    }

    fn new<'a>(path: &'a str, owner: &'a Owner, restore: &'a str) -> New<'a> {
        New { path, owner, since: Timestamp::UNIX_EPOCH, target: "lab", instead_of: None, restore, minutes: None }
    }

    fn found(path: &str) -> Found {
        let names = ["holder", "token", "until", "restored", "program"];
        read(&names.iter().map(|n| ((*n).to_owned(), Ok(fs_err::read_to_string(format!("{path}/{n}")).ok()))).collect())
    }

    #[test]
    fn two_sessions_cannot_hold_one_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases/it's").display().to_string();
        let (a, b) = (owner("a"), owner("b"));
        assert_eq!(found(&path), Found::Nobody);
        assert!(sh(&take(&new(&path, &a, "true")).unwrap()).0);
        assert!(sh(&take(&new(&path, &a, "true")).unwrap()).0, "who holds it may take it again");
        let (ok, said) = sh(&take(&new(&path, &b, "true")).unwrap());
        assert!(!ok && said.contains("held by ann@box in s since"), "{said}");
        let Found::Held(holder) = found(&path) else { panic!("nobody holds it") };
        assert_eq!((holder.token.as_str(), holder.program.as_str(), holder.until), ("a", "1 2 b", None));
        assert!(sh(&is_ours(&path, "a").unwrap()).0 && !sh(&is_ours(&path, "b").unwrap()).0);
        sh(&give_back(&path, "b").unwrap());
        assert!(matches!(found(&path), Found::Held(_)), "a stranger gave it back");
        assert!(sh(&take(&New { instead_of: Some("a"), ..new(&path, &b, "true") }).unwrap()).0);
        assert!(sh(&is_ours(&path, "b").unwrap()).0);
        sh(&give_back(&path, "b").unwrap());
        assert_eq!((found(&path), sh(&is_given_back(&path, "b").unwrap()).0), (Found::Nobody, true));
    }

    #[test]
    fn a_target_is_put_back_once_whoever_asks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease").display().to_string();
        let count = folder.path().join("count").display().to_string();
        let text = format!("echo x >>{count}; sleep 0.3");
        sh(&take(&new(&path, &owner("a"), &text)).unwrap());
        let both = format!("sh {path}/restore.sh & sh {path}/restore.sh; s=$?; wait; exit $s");
        assert!(sh(&both).0);
        assert_eq!(fs_err::read_to_string(&count).unwrap(), "x\n");
        assert_eq!(found(&path), Found::Nobody, "a target that was put back is nobody's");
        assert!(sh(&take(&new(&path, &owner("b"), &text)).unwrap()).0);
    }

    #[test]
    fn the_host_puts_a_target_back_unless_the_lease_is_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("lease"), folder.path().join("back"));
        let path = path.display().to_string();
        let text = format!("touch {}", file.display());
        sh(&take(&New { minutes: Some(60), ..new(&path, &owner("a"), &text) }).unwrap());
        assert_eq!(sh(&renew(&path, "a", 60).unwrap()).1, "ours\n");
        assert_eq!(sh(&renew(&path, "b", 60).unwrap()).1, "lost\n");
        assert!(!file.exists());
        // Time goes by.
        fs_err::write(format!("{path}/until"), "1\n").unwrap();
        let waited = std::time::Instant::now();
        while !fs_err::exists(format!("{path}/restored")).unwrap() && waited.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(file.exists(), "nobody put it back");
        assert!(fs_err::read_to_string(format!("{path}/restored")).unwrap().ends_with("by dead-man\n"));
        assert_eq!(sh(&renew(&path, "a", 60).unwrap()).1, "restored\n");
    }

    #[test]
    fn what_cannot_be_read_is_no_free_target() {
        let files = BTreeMap::from([("token".to_owned(), Err(Unknown("permission denied".into())))]);
        assert!(matches!(read(&files), Found::Unknown(_)));
    }
}
