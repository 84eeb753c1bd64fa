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
    /// Pid, start ticks, boot, machine and pid namespace of the program; empty where they cannot be told.
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
    /// As [`Owner::program`].
    pub program: String,
    /// Whether the host tried to put the target back and could not.
    pub failed: bool,
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
        let restored = file("restored")?.and_then(|t| t.split_whitespace().next());
        if restored == Some("0") {
            return Ok(Found::Nobody);
        }
        Ok(Found::Held(Holder {
            token: token.to_owned(),
            said: Untrusted::from(file("holder")?.unwrap_or("somebody").replace('\n', ", ")),
            program: file("program")?.unwrap_or_default().to_owned(),
            failed: restored.is_some(),
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
    /// Whether a unit is put back, which systemd starts itself: what waits may then be a unit too.
    pub(super) unit: bool,
}

/// Takes the lease: in one step, so that of two sessions only one gets it.
pub(super) fn take(new: &New<'_>) -> Result<String, Failure> {
    let path = quote(new.path)?;
    let holder = format!("{} in {} since {} on {}", new.owner.who, new.owner.session, new.since, new.target);
    let instead = new.instead_of.map(quote).transpose()?.unwrap_or_else(|| "''".into());
    let mut text = format!(
        "{TICKS}\n\
         lease={path} token={token} instead={instead}\n\
         mask=$(umask); umask 077; mkdir -p \"${{lease%/*}}\" || exit 1\n\
         has=$(cat \"$lease/token\" 2>/dev/null)\n\
         [ ! -e \"$lease/restoring\" ] || {{ echo 'the host is putting it back' >&2; exit 1; }}\n\
         done=; read -r done rest 2>/dev/null <\"$lease/restored\"\n\
         [ \"$has\" = \"$token\" ] && [ -z \"$done\" ] && exit 0\n\
         if [ -e \"$lease\" ]; then\n\
         \x20 [ \"$done\" = 0 ] || [ -z \"$has\" ] || [ \"$has\" = \"$token\" ] || [ \"$has\" = \"$instead\" ] || {{ echo \"held by $(cat \"$lease/holder\")\" >&2; exit 1; }}\n\
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
        text.push_str(&dead_man(new.unit));
    }
    text.push_str("echo \"lease taken\"");
    Ok(text)
}

/// The shell that waits for the lease to run out, and tries again where the way back fails. Where a unit is put back it
/// is a unit too, so that the end of a login does not end it; what a script starts must outlive it, and stays out of one.
fn dead_man(unit: bool) -> String {
    let body = "lease=$1; umask $2; while read -r until <\"$lease/until\"; do\n\
         \x20 [ \"$(date +%s)\" -lt \"$until\" ] || { sh \"$lease/restore.sh\" dead-man >\"$lease/log\" 2>&1 && exit; sleep 30; }\n\
         \x20 sleep 1\n\
         done 2>/dev/null";
    let detached = "setsid sh -c \"$dead_man\" patchbench \"$lease\" \"$mask\" >/dev/null 2>&1 </dev/null &";
    if !unit {
        return format!("dead_man='{body}'\n{detached}\n");
    }
    format!(
        "dead_man='{body}'\n\
         if [ -d /run/systemd/system ] && systemd-run --quiet --collect --unit=\"patchbench-restore-${{lease##*/}}\" \\\n\
         \x20   sh -c \"$dead_man\" patchbench \"$lease\" \"$mask\" 2>/dev/null; then :\n\
         else {detached} fi\n"
    )
}

/// The script that puts the target back once, whoever runs it: the dead man's shell, or `restore`. Once it is back, the
/// router is told (`router.sh`); one that cannot be told from there is said, and holds up nothing.
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
         routers() {{ [ ! -e \"$lease/router.sh\" ] || sh \"$lease/router.sh\" || echo 'its router must be told by hand'; }}\n\
         if read -r status rest 2>/dev/null <\"$lease/restored\" && [ \"$status\" = 0 ]; then routers; rm -rf \"$lease/restoring\"; exit 0; fi\n\
         (\n{text}\n)\n\
         status=$?\n\
         echo \"$status $(date +%s) by ${{1:-restore}}\" >\"$lease/restored\"\n\
         [ $status != 0 ] || {{ rm -f \"$lease/until\"; routers; }}\n\
         rm -rf \"$lease/restoring\"\n\
         exit $status\n",
        path = quote(path)?,
    ))
}

/// Whether the lease is ours and the host has not begun to put the target back.
pub(super) fn is_ours(path: &str, token: &str) -> Result<String, Failure> {
    Ok(format!(
        "lease={}; [ \"$(cat \"$lease/token\" 2>/dev/null)\" = {} ] && [ ! -e \"$lease/restored\" ] && [ ! -e \"$lease/restoring\" ]",
        quote(path)?,
        quote(token)?
    ))
}

/// Puts off the moment at which the host restores by itself, where it would, names the program that runs now, and says
/// `ours`; else `restoring`, `restored`, `failed` where the host could not, or `lost`.
pub(crate) fn renew(path: &str, owner: &Owner, minutes: u32) -> Result<String, Failure> {
    Ok(format!(
        "if {}; then :\n\
         elif [ -e \"$lease/restoring\" ]; then echo restoring; exit 0\n\
         elif read -r done rest 2>/dev/null <\"$lease/restored\"; then [ \"$done\" = 0 ] && echo restored || echo failed; exit 0\n\
         else echo lost; exit 0; fi\n\
         umask 077; printf '%s\\n' {} >\"$lease/program.$$\" && mv \"$lease/program.$$\" \"$lease/program\" &&\n\
         {{ [ ! -e \"$lease/until\" ] || {{ echo $(($(date +%s) + {})) >\"$lease/until.$$\" && mv \"$lease/until.$$\" \"$lease/until\"; }}; }} &&\n\
         echo ours",
        is_ours(path, &owner.token)?,
        quote(&owner.program)?,
        u64::from(minutes) * 60
    ))
}

/// Keeps the way back and takes its time away: what a person chose as the end stays until a person puts it back.
pub(crate) fn stay(path: &str, token: &str) -> Result<String, Failure> {
    Ok(format!("if {}; then rm -f \"$lease/until\"; fi", is_ours(path, token)?))
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
        New {
            path,
            owner,
            since: Timestamp::UNIX_EPOCH,
            target: "lab",
            instead_of: None,
            restore,
            minutes: None,
            unit: false,
        }
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
        assert_eq!(sh(&renew(&path, &owner("a"), 60).unwrap()).1, "ours\n");
        assert_eq!(sh(&renew(&path, &owner("b"), 60).unwrap()).1, "lost\n");
        assert!(!file.exists());
        // Time goes by.
        fs_err::write(format!("{path}/until"), "1\n").unwrap();
        let waited = std::time::Instant::now();
        while !fs_err::exists(format!("{path}/restored")).unwrap() && waited.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(file.exists(), "nobody put it back");
        assert!(fs_err::read_to_string(format!("{path}/restored")).unwrap().ends_with("by dead-man\n"));
        // The way back says that it is done a moment before it ends.
        let state = || sh(&renew(&path, &owner("a"), 60).unwrap()).1;
        while state() == "restoring\n" && waited.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(state(), "restored\n");
    }

    #[test]
    fn a_way_back_that_failed_was_taken_for_one_that_was_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease").display().to_string();
        sh(&take(&New { minutes: Some(60), ..new(&path, &owner("a"), "false") }).unwrap());
        assert!(!sh(&format!("sh {path}/restore.sh dead-man")).0);
        let Found::Held(holder) = found(&path) else { panic!("a target that is still changed is nobody's") };
        assert!(holder.failed);
        assert_eq!(sh(&renew(&path, &owner("a"), 60).unwrap()).1, "failed\n");
        assert!(!sh(&take(&new(&path, &owner("b"), "true")).unwrap()).0, "somebody else took it");
        // It is tried again, and its time stands.
        assert!(fs_err::exists(format!("{path}/until")).unwrap());
    }

    #[test]
    fn nothing_is_done_to_a_target_while_the_host_puts_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease").display().to_string();
        sh(&take(&new(&path, &owner("a"), "true")).unwrap());
        fs_err::create_dir(format!("{path}/restoring")).unwrap();
        assert_eq!(sh(&renew(&path, &owner("a"), 60).unwrap()).1, "restoring\n");
        assert!(!sh(&is_ours(&path, "a").unwrap()).0 && !sh(&take(&new(&path, &owner("a"), "true")).unwrap()).0);
    }

    #[test]
    fn a_chosen_end_has_no_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease").display().to_string();
        sh(&take(&New { minutes: Some(60), ..new(&path, &owner("a"), "true") }).unwrap());
        assert!(sh(&stay(&path, "a").unwrap()).0);
        assert!(
            !fs_err::exists(format!("{path}/until")).unwrap() && fs_err::exists(format!("{path}/restore.sh")).unwrap()
        );
    }

    #[test]
    fn what_cannot_be_read_is_no_free_target() {
        let files = BTreeMap::from([("token".to_owned(), Err(Unknown("permission denied".into())))]);
        assert!(matches!(read(&files), Found::Unknown(_)));
    }
}
