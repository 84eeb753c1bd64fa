//! `patchbench session name|tag|snapshot|export|import`: a session as a thing on disk.

use std::path::Path;

use fs_err as fs;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::event::{Event, Happened};
use crate::engine::input::Actor;
use crate::session::bundle::{self, BundleError};
use crate::session::journal::JournalError;
use crate::session::lock::Lock;
use crate::session::store::{self, SessionError};

/// What became of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionMade {
    /// Its name now.
    pub name: String,
    /// Its tags now.
    pub tags: Vec<String>,
    /// The file that was written or read; `null` where there was none.
    pub file: Option<String>,
    /// Transcripts that were left out of the file.
    pub withheld: u64,
}

impl Report for SessionMade {
    const NAME: &'static str = "session-files";
}

impl From<BundleError> for Failed {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::Session(error) => error.into(),
            BundleError::Io(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::usage(ErrorCode::Io, error.to_string()).hint("give a file that is not there yet")
            }
            BundleError::Io(error) => error.into(),
            other => Self::world(ErrorCode::Session, other.to_string())
                .hint("nothing was imported; only files that `session export` wrote can be"),
        }
    }
}

fn made(dir: &Path, text: String) -> Result<Answer, Failed> {
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let tags = store::tags(dir)?.into_iter().collect();
    Ok(Answer::new(&SessionMade { name, tags, file: None, withheld: 0 }, Status::Done, text).session(dir))
}

fn locked(dir: &Path) -> Result<Lock, Failed> {
    Ok(Lock::take(&dir.join("lock")).map_err(SessionError::from)?)
}

/// Answers `session name SESSION NAME`: the folder gets the name, the journal stays as it is.
///
/// # Errors
/// There is no such session, it is open elsewhere, or the name is taken.
pub fn rename(root: &Path, session: &str, name: &str) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    let _lock = locked(&dir)?;
    let to = store::free_folder(dir.parent().unwrap_or(root), name)?;
    fs::rename(&dir, &to)?;
    made(&to, format!("the session is called {name} now"))
}

/// Answers `session tag SESSION TAG [--remove]`.
///
/// # Errors
/// There is no such session, the tag is no word, or the session does not have the tag that should go.
pub fn tag(root: &Path, session: &str, tag: &str, remove: bool) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    if tag.is_empty() || !tag.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        let failed = Failed::usage(ErrorCode::Usage, format!("`{tag}` is no tag"));
        return Err(failed.hint("use letters, digits, `-`, `_` and `.`"));
    }
    let mut tags = store::tags(&dir)?;
    if remove && !tags.remove(tag) {
        let failed = Failed::usage(ErrorCode::Usage, format!("the session does not have the tag `{tag}`"));
        return Err(failed.hint("`session list` shows tags"));
    }
    if !remove {
        tags.insert(tag.to_owned());
    }
    store::write_tags(&dir, &tags)?;
    let all = tags.into_iter().collect::<Vec<_>>().join(" ");
    made(&dir, if all.is_empty() { "no tags".to_owned() } else { format!("tags: {all}") })
}

/// Answers `session snapshot SESSION NAME`: one event that names the end of the journal.
///
/// # Errors
/// There is no such session, it is open elsewhere or damaged, or the disk said no.
pub fn snapshot(root: &Path, session: &str, name: &str, actor: Actor) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    if name.trim().is_empty() {
        return Err(Failed::usage(ErrorCode::Usage, "a point needs a name").hint("give one, such as `before-toggle`"));
    }
    let mut open = store::open(&dir)?;
    let seq = open.state.seq + 1;
    let what = Happened::SnapshotNamed { name: name.trim().to_owned() };
    let io = |error: JournalError| Failed::world(ErrorCode::Io, error.to_string()).session(&dir);
    open.journal.append(&[Event { seq, at: Timestamp::now(), actor, what }]).map_err(io)?;
    open.journal.sync().map_err(io)?;
    let (seq, hash, _) = open.journal.head();
    store::write_head(&dir, &store::Head { seq, hash: hash.clone() })?;
    made(&dir, format!("event {seq} is called `{}`", name.trim()))
}

/// Answers `session export SESSION --out FILE`.
///
/// # Errors
/// There is no such session, it is damaged, or the file cannot be written.
pub fn export(root: &Path, session: &str, out: &Path, with_transcripts: bool) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let written = bundle::export(&dir, &name, out, with_transcripts)?;
    let remark = (written.suspicious > 0).then(|| {
        let message = format!("{} journal lines hold what looks like a secret", written.suspicious);
        Diagnostic::warning("looks-secret", message).hint("read the journal before you give the file away")
    });
    let report = SessionMade {
        name,
        tags: store::tags(&dir)?.into_iter().collect(),
        file: Some(out.display().to_string()),
        withheld: written.withheld,
    };
    let text = format!(
        "{}: {} events, {} transcripts, {} withheld",
        out.display(),
        written.events,
        written.blobs,
        written.withheld
    );
    Ok(Answer::new(&report, Status::Done, text).session(dir).diagnostics(remark))
}

/// Answers `session import FILE`.
///
/// # Errors
/// The file is no exported session, does not verify, or there is a session of that name.
pub fn import(root: &Path, file: &Path, name: Option<&str>) -> Result<Answer, Failed> {
    let dir = bundle::import(root, file, name)?;
    made(&dir, format!("imported as {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(root: &Path) {
        let mut open = store::create(root, "monday").unwrap();
        let what =
            Happened::SessionStarted { id: uuid::Uuid::nil(), name: "monday".into(), program: "0".into(), seed: 1 };
        let event = Event { seq: 1, at: Timestamp::UNIX_EPOCH, actor: Actor::program(), what };
        open.journal.append(&[event]).unwrap();
        open.journal.sync().unwrap();
        let (seq, hash, _) = open.journal.head();
        store::write_head(&open.dir, &store::Head { seq, hash: hash.clone() }).unwrap();
    }

    fn sound(root: &Path, name: &str) -> bool {
        crate::session::verify::verify(&root.join(name)).unwrap().problems.is_empty()
    }

    #[test]
    fn a_session_is_renamed_tagged_and_its_end_named_and_still_verifies() {
        let root = tempfile::tempdir().unwrap();
        session(root.path());
        tag(root.path(), "monday", "urgent", false).unwrap();
        rename(root.path(), "monday", "incident-7").unwrap();
        assert_eq!(
            tag(root.path(), "incident-7", "b", false).unwrap().body["tags"],
            serde_json::json!(["b", "urgent"])
        );
        assert_eq!(tag(root.path(), "incident-7", "b", true).unwrap().text, "tags: urgent");
        assert!(tag(root.path(), "incident-7", "two words", false).is_err());
        assert!(tag(root.path(), "incident-7", "b", true).is_err());
        let named = snapshot(root.path(), "incident-7", "before toggle", Actor::driver("ann")).unwrap();
        assert_eq!(named.text, "event 2 is called `before toggle`");
        assert!(sound(root.path(), "incident-7"));
        let open = store::open(&root.path().join("incident-7")).unwrap();
        assert_eq!(open.state.snapshots[0].name, "before toggle");
        assert!(rename(root.path(), "incident-7", "other").is_err(), "it is open");
        drop(open);
        assert!(rename(root.path(), "incident-7", "../up").is_err());
    }

    #[test]
    fn an_exported_session_is_imported_under_another_name() {
        let root = tempfile::tempdir().unwrap();
        session(root.path());
        let file = root.path().join("out.tar.zst");
        assert_eq!(export(root.path(), "monday", &file, false).unwrap().body["withheld"], 0);
        assert_eq!(export(root.path(), "monday", &file, false).unwrap_err().status, Status::Usage);
        import(root.path(), &file, Some("copy")).unwrap();
        assert!(sound(root.path(), "copy"));
        assert_eq!(import(root.path(), &file, None).unwrap_err().status, Status::Usage);
    }
}
