//! `patchbench session list|show|verify|repair`: what a session holds, and whether it can be trusted.
//!
//! Responsible for the reports; reading and checking a session is `session`.
//! Opening one again needs a running engine and is not here.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::exit::Status;
use crate::cli::isolate::{self, IsolateReport};
use crate::cli::json::{ErrorCode, Report};
use crate::cli::style::Style;
use crate::cli::table::{self, Cell, table};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::state::{Mark, ProcedureStatus, State};
use crate::recall::window::LoadWindow;
use crate::session::lock;
use crate::session::replay::replay;
use crate::session::store::{self, SessionError};
use crate::session::verify::{self, Verification};

/// Sessions, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionList {
    /// One per session.
    pub sessions: Vec<SessionRow>,
}

/// One session in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionRow {
    /// Name.
    pub name: String,
    /// Folder.
    pub path: String,
    /// Time of its last event; `null` where the journal cannot be read.
    pub last_at: Option<String>,
    /// Number of its last event.
    pub events: u64,
    /// Its tags.
    pub tags: Vec<String>,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionShow {
    /// The name that it began with; that of its folder may be another by now.
    pub name: String,
    /// The process that has it open, as its lock says; `null` where nobody has. What is `running` then goes on.
    pub open_in: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its id.
    pub id: String,
    /// Version of the program that last opened it.
    pub program: String,
    /// Seed of all prompts.
    pub seed: u64,
    /// When it began.
    pub started_at: Option<String>,
    /// Name of its case, if one was opened.
    pub case: Option<String>,
    /// Number of its last event.
    pub events: u64,
    /// Symptom, verdicts and cost.
    pub found: IsolateReport,
    /// Targets that differ from their own configuration through this session.
    pub changed: Vec<ChangedRow>,
    /// Changes, in the order in which they were planned.
    pub procedures: Vec<ProcedureRow>,
    /// The load of each target while a batch of trials ran.
    pub windows: Vec<LoadWindow>,
    /// Named points.
    pub snapshots: Vec<SnapshotRow>,
    /// Notes.
    pub notes: Vec<NoteRow>,
    /// One line per event.
    pub timeline: Vec<TimelineRow>,
}

/// A target that differs from its own configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedRow {
    /// Target name.
    pub target: String,
    /// Since when.
    pub since: String,
    /// By whom.
    pub by: String,
    /// The procedure that changed it first; undoing it is the way back.
    pub procedure: u64,
}

/// One remote change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcedureRow {
    /// Number within the session.
    pub id: u64,
    /// Target name.
    pub target: String,
    /// One line for people.
    pub title: String,
    /// How far it is.
    pub status: ProcedureWord,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcedureWord {
    /// Shown, not confirmed.
    Planned,
    /// Running if a process has the session open; else its program was killed and the session was not opened since.
    Running,
    /// Cut off; waits to be finished or undone.
    Interrupted,
    /// Every step done and proven.
    Completed,
    /// Taken back.
    Undone,
    /// A step failed.
    Failed,
    /// Dropped before it began.
    Discarded,
}

impl ProcedureWord {
    /// The word, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Completed => "completed",
            Self::Undone => "undone",
            Self::Failed => "failed",
            Self::Discarded => "discarded",
        }
    }
}

/// A named point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SnapshotRow {
    /// Its name.
    pub name: String,
    /// Journal line.
    pub seq: u64,
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NoteRow {
    /// When.
    pub at: String,
    /// Who.
    pub by: String,
    /// The text.
    pub text: String,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TimelineRow {
    /// Journal line.
    pub seq: u64,
    /// When.
    pub at: String,
    /// Who.
    pub by: String,
    /// What, in one line.
    pub text: String,
}

/// Whether a session can be trusted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionVerify {
    /// Whether nothing was found.
    pub sound: bool,
    /// What was checked and found.
    #[serde(flatten)]
    pub verification: Verification,
}

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionRepair {
    /// Copy of the journal as it was; `null` where there was nothing to repair.
    pub kept: Option<String>,
    /// Lines that were dropped; `null` where there was nothing to repair.
    pub dropped: Option<u64>,
}

impl Report for SessionList {
    const NAME: &'static str = "session-list";
}

impl Report for SessionShow {
    const NAME: &'static str = "session-show";
}

impl Report for SessionVerify {
    const NAME: &'static str = "session-verify";
}

impl Report for SessionRepair {
    const NAME: &'static str = "session-repair";
}

impl From<SessionError> for Failed {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::Io(_) | SessionError::Blobs(_) => ErrorCode::Io,
            _ => ErrorCode::Session,
        };
        let failed = match &error {
            SessionError::NotFound(_) | SessionError::Exists(_) | SessionError::BadName(_) => {
                Self::usage(code, error.to_string())
            }
            _ => Self::world(code, error.to_string()),
        };
        match error.hint() {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }
}

/// Answers `session list`.
///
/// # Errors
/// The folder of the sessions cannot be read.
pub fn list(root: &Path, style: Style) -> Result<Answer, Failed> {
    let row = |entry: store::Entry| SessionRow {
        last_at: entry.last_at.map(|at| at.to_string()),
        events: entry.events,
        // A list that cannot be read must not hide the session.
        tags: store::tags(&entry.path).unwrap_or_default().into_iter().collect(),
        name: entry.name,
        path: entry.path.display().to_string(),
    };
    let report = SessionList { sessions: store::list(root)?.into_iter().map(row).collect() };
    let text = if report.sessions.is_empty() {
        format!("no sessions under {}", root.display())
    } else {
        let cells = |s: &SessionRow| {
            let at = s.last_at.clone().unwrap_or_else(|| "unreadable".to_owned());
            vec![
                s.name.clone().into(),
                at.into(),
                s.events.to_string().into(),
                s.tags.join(" ").into(),
                s.path.clone().into(),
            ]
        };
        let rows: Vec<Vec<Cell>> = report.sessions.iter().map(cells).collect();
        table(&["session", "last event", "events", "tags", "folder"], &[2], &rows, style)
    };
    Ok(Answer::new(&report, Status::Done, text))
}

/// Answers `session show`; a damaged journal is shown up to the damage.
///
/// # Errors
/// There is no such session, or it cannot be read at all.
pub fn show(root: &Path, session: &str, style: Style) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    let (state, remark) = read(&dir)?;
    let mut report = session_show_report(&state);
    report.open_in = lock::holder(&dir.join("lock"))?;
    report.tags = store::tags(&dir)?.into_iter().collect();
    let text = show_text(&report, &state, style);
    let blobs = verify::blob_remark(&dir, &state);
    Ok(Answer::new(&report, Status::Done, text).session(dir).diagnostics(remark).diagnostics(blobs))
}

/// Answers `session verify`: whatever does not hold is a finding.
///
/// # Errors
/// There is no such session, or it cannot be read at all.
pub fn verify(root: &Path, session: &str, style: Style) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    let verification = verify::verify(&dir)?;
    let sound = verification.problems.is_empty();
    let word = if sound { style.good("sound:") } else { style.error("not sound:") };
    let head = format!("{word} {} events, {} blobs", verification.events, verification.blobs);
    let problems = verification.problems.iter().map(|problem| format!("  {}", problem.message));
    let remarks = verification.remarks.iter().map(|remark| format!("  note: {}", remark.message));
    let text = std::iter::once(head).chain(problems).chain(remarks).collect::<Vec<_>>().join("\n");
    let report = SessionVerify { sound, verification };
    let status = if sound { Status::Done } else { Status::Finding };
    Ok(Answer::new(&report, status, text).session(dir))
}

/// Answers `session repair`: the journal is cut before its first bad line, and the old one is kept.
///
/// # Errors
/// There is no such session, another program has it open, or the disk says no.
pub fn repair(root: &Path, session: &str) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    let _lock = crate::session::lock::Lock::take(&dir.join("lock")).map_err(SessionError::from)?;
    let repaired = verify::repair(&dir)?;
    let text = match &repaired {
        None => "nothing to repair in the journal".to_owned(),
        Some(done) => format!(
            "repaired: {} events are left, {} lines were dropped; the journal as it was is kept in {}",
            done.events,
            done.dropped,
            done.kept.display()
        ),
    };
    let report = SessionRepair {
        dropped: repaired.as_ref().map(|r| r.dropped),
        kept: repaired.map(|r| r.kept.display().to_string()),
    };
    Ok(Answer::new(&report, Status::Done, text).session(dir))
}

/// Everything that a session shows.
pub fn session_show_report(state: &State) -> SessionShow {
    let changed = state.targets.iter().filter_map(|(target, t)| t.changed.as_ref().map(|c| (target, c)));
    SessionShow {
        name: state.session.name.clone(),
        open_in: None,
        tags: Vec::new(),
        id: state.session.id.to_string(),
        program: state.session.program.clone(),
        seed: state.session.seed,
        started_at: state.session.started_at.map(|at| at.to_string()),
        case: state.case.as_ref().map(|case| case.name.clone()),
        events: state.seq,
        found: isolate::isolate_report(state),
        changed: changed
            .map(|(target, c)| ChangedRow {
                target: target.clone(),
                since: c.since.to_string(),
                by: c.by.name.clone(),
                procedure: c.procedure.0,
            })
            .collect(),
        procedures: state
            .procedures
            .iter()
            .map(|(id, p)| ProcedureRow {
                id: id.0,
                target: p.procedure.target.clone(),
                title: p.procedure.title.clone(),
                status: word(&p.status),
            })
            .collect(),
        windows: state.windows.iter().map(|w| w.as_ref().clone()).collect(),
        snapshots: state.snapshots.iter().map(|s| SnapshotRow { name: s.name.clone(), seq: s.seq }).collect(),
        notes: state
            .notes
            .iter()
            .map(|n| NoteRow { at: n.at.to_string(), by: n.by.name.clone(), text: n.text.clone() })
            .collect(),
        timeline: state
            .timeline
            .iter()
            .map(|t| TimelineRow { seq: t.seq, at: t.at.to_string(), by: t.by.clone(), text: t.text.clone() })
            .collect(),
    }
}

/// The state of a session that is not opened for writing, up to the first damage, and what is wrong with it.
///
/// # Errors
/// It cannot be read at all.
pub(crate) fn read(dir: &Path) -> Result<(State, Option<Diagnostic>), Failed> {
    match store::read(dir) {
        Ok(loaded) => {
            let torn = (loaded.torn_bytes > 0).then(|| {
                Diagnostic::warning("torn-line", format!("the last line is cut off after {} bytes", loaded.torn_bytes))
                    .at(store::journal_path(dir).display().to_string())
            });
            Ok((replay(State::default(), &loaded.events), torn))
        }
        Err(SessionError::Damaged(damage)) => {
            let remark = Diagnostic::warning("damaged-line", format!("{damage}; what stands before it is shown"))
                .hint("`session verify` says more; `session repair` keeps everything before the damage");
            Ok((replay(State::default(), &damage.good.events), Some(remark)))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn word(status: &ProcedureStatus) -> ProcedureWord {
    match status {
        ProcedureStatus::Planned => ProcedureWord::Planned,
        ProcedureStatus::Running { .. } => ProcedureWord::Running,
        ProcedureStatus::Interrupted { .. } => ProcedureWord::Interrupted,
        ProcedureStatus::Completed => ProcedureWord::Completed,
        ProcedureStatus::Undone => ProcedureWord::Undone,
        ProcedureStatus::Failed { .. } => ProcedureWord::Failed,
        ProcedureStatus::Discarded => ProcedureWord::Discarded,
    }
}

fn show_text(report: &SessionShow, state: &State, style: Style) -> String {
    let begun = report.started_at.as_deref().unwrap_or("at an unknown time");
    let mut parts = vec![format!(
        "{} began {begun}, {} events, case {}",
        style.bold(&report.name),
        report.events,
        report.case.as_deref().unwrap_or("not opened")
    )];
    for changed in &report.changed {
        parts.push(format!(
            "{} `{}` since {} by {} (undo: procedure {})",
            style.warning("CHANGED"),
            changed.target,
            changed.since,
            changed.by,
            changed.procedure
        ));
    }
    if let Some(pid) = &report.open_in {
        parts.push(format!("{} process {pid} has it open", style.hint("OPEN")));
    }
    for procedure in &report.procedures {
        let word = match (procedure.status, &report.open_in) {
            (ProcedureWord::Running, Some(pid)) => format!("{}, held by process {pid},", style.hint("IN PROGRESS")),
            (ProcedureWord::Running | ProcedureWord::Interrupted, _) => style.warning("HALF-DONE"),
            _ => continue,
        };
        parts.push(format!("{word} p{}: {}", procedure.id, procedure.title));
    }
    parts.push(isolate::text(&report.found, style));
    let line = |t: &crate::engine::state::TimelineEntry| {
        let mark = match t.mark {
            Mark::Plain => table::Mark::Plain,
            Mark::Change => table::Mark::Warning,
            Mark::Proof => table::Mark::Good,
            Mark::Failure | Mark::Verdict => table::Mark::Bad,
        };
        let at = t.at.strftime("%H:%M:%S").to_string();
        vec![
            t.seq.to_string().into(),
            Cell::marked(at, table::Mark::Dim),
            Cell::marked(t.by.clone(), table::Mark::Dim),
            Cell::marked(t.text.clone(), mark),
        ]
    };
    let rows: Vec<Vec<Cell>> = state.timeline.iter().map(line).collect();
    parts.push(table(&["event", "UTC", "by", "what"], &[0], &rows, style));
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;
    use crate::engine::event::{Event, Happened};
    use crate::engine::input::Actor;

    fn session(root: &Path) -> std::path::PathBuf {
        let mut open = store::create(root, "monday").unwrap();
        let what =
            Happened::SessionStarted { id: uuid::Uuid::nil(), name: "monday".into(), program: "0".into(), seed: 1 };
        let events = [
            Event { seq: 1, at: fixture::noon(), actor: Actor::program(), what },
            Event {
                seq: 2,
                at: fixture::noon(),
                actor: Actor::driver("ann"),
                what: Happened::NoteAdded { text: "look".into() },
            },
        ];
        open.journal.append(&events).unwrap();
        open.journal.sync().unwrap();
        let (seq, hash, _) = open.journal.head();
        store::write_head(&open.dir, &store::Head { seq, hash: hash.clone() }).unwrap();
        open.dir
    }

    #[test]
    fn a_change_that_runs_in_another_process_was_called_half_done() {
        let procedure = ProcedureRow {
            id: 3,
            target: "server".into(),
            title: "restart server".into(),
            status: ProcedureWord::Running,
        };
        let state = fixture::full_state();
        let mut report = session_show_report(&state);
        report.procedures.push(procedure);
        assert!(show_text(&report, &state, Style::PLAIN).contains("HALF-DONE p3: restart server"));
        report.open_in = Some("4711".into());
        let text = show_text(&report, &state, Style::PLAIN);
        assert!(text.contains("IN PROGRESS, held by process 4711, p3: restart server"), "{text}");
        assert!(!text.contains("HALF-DONE"));
    }

    #[test]
    fn an_open_session_says_who_has_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = session(root.path());
        let open = store::open(&dir).unwrap();
        let shown = show(root.path(), "monday", Style::PLAIN).unwrap();
        assert_eq!(shown.body["open_in"], std::process::id().to_string());
        drop(open);
        assert!(show(root.path(), "monday", Style::PLAIN).unwrap().body["open_in"].is_null());
    }

    #[test]
    fn a_session_is_listed_shown_and_verified() {
        let root = tempfile::tempdir().unwrap();
        let dir = session(root.path());
        assert!(list(root.path(), Style::PLAIN).unwrap().text.contains("monday"));
        let shown = show(root.path(), "monday", Style::PLAIN).unwrap();
        assert_eq!(shown.session.as_deref(), Some(dir.as_path()));
        assert_eq!(shown.body["notes"][0]["text"], "look");
        let verified = verify(root.path(), "monday", Style::PLAIN).unwrap();
        assert_eq!((verified.status, &verified.body["sound"]), (Status::Done, &true.into()));
    }

    #[test]
    fn damage_is_shown_verified_as_a_finding_and_repaired() {
        let root = tempfile::tempdir().unwrap();
        let dir = session(root.path());
        let path = store::journal_path(&dir);
        let text = fs_err::read_to_string(&path).unwrap().replace("look", "lock");
        fs_err::write(&path, text).unwrap();
        let shown = show(root.path(), "monday", Style::PLAIN).unwrap();
        assert_eq!(shown.diagnostics[0].code, "damaged-line");
        assert_eq!(shown.body["events"], 1);
        assert_eq!(verify(root.path(), "monday", Style::PLAIN).unwrap().status, Status::Finding);
        assert!(repair(root.path(), "monday").unwrap().body["kept"].is_string());
        assert_eq!(verify(root.path(), "monday", Style::PLAIN).unwrap().status, Status::Done);
    }

    #[test]
    fn a_session_that_is_not_there_is_a_usage_error_with_a_hint() {
        let root = tempfile::tempdir().unwrap();
        let failed = show(root.path(), "none", Style::PLAIN).unwrap_err();
        assert_eq!((failed.status, failed.error.code), (Status::Usage, ErrorCode::Session));
        assert!(failed.error.hint.is_some());
    }

    #[test]
    fn text_holds_the_verdict_and_the_timeline() {
        let state = fixture::full_state();
        insta::assert_snapshot!(show_text(&session_show_report(&state), &state, Style::PLAIN), @r#"
        monday began 2026-05-01T12:00:00Z, 3 events, case loss

        symptom: 60.0 % of 24 trials fail; the lower bound 44.0 % over boots is above the floor of 15.0 %

        verdict    subject                          on        off  boots on/off  bound
        guilty     triton-indexer  15/24 fail (2 void)  1/24 fail           4/4  0.014
        acquitted  mhc-bf16        15/24 fail (2 void)  1/24 fail           4/4  0.014

        triton-indexer: because of the numbers
        mhc-bf16: because of the numbers

        trials 3, boots 1

        event  UTC       by   what
            1  12:00:00  ann  session began
        "#);
    }
}
