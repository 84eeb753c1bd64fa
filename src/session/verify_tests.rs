use super::*;
use crate::engine::input::Actor;
use crate::kernel::report::{Curve, MicroReport};
use crate::recall::trial::{Outcome, ProbeForm, Trial, TrialKey};
use crate::session::store;

fn event(seq: u64, what: Happened) -> Event {
    Event { seq, at: jiff::Timestamp::UNIX_EPOCH, actor: Actor::program(), what }
}

fn note(seq: u64) -> Event {
    event(seq, Happened::NoteAdded { text: format!("note {seq}") })
}

fn started() -> Event {
    let what = Happened::SessionStarted { id: uuid::Uuid::nil(), name: "s".into(), program: "0".into(), seed: 1 };
    event(1, what)
}

fn trial(transcript: BlobHash) -> Happened {
    let trial = Trial {
        id: crate::engine::ids::TrialId(1),
        at: jiff::Timestamp::UNIX_EPOCH,
        boots: Vec::new(),
        arm: std::collections::BTreeMap::new(),
        factors: std::collections::BTreeMap::new(),
        key: TrialKey { form: ProbeForm::Needle, length: 1, depth: 0.5, seed: 1 },
        prompt_tokens: None,
        cached_tokens: None,
        outcome: Outcome::Pass,
        expected: String::new(),
        got: "".into(),
        first_wrong: None,
        seconds: 0.0,
        transcript: Some(transcript),
    };
    Happened::TrialRecorded { trial: trial.into() }
}

/// A session of these events, with a `HEAD` that acknowledges the first `acknowledged` of them.
fn session(root: &Path, events: &[Event], acknowledged: u64) -> PathBuf {
    let mut open = store::create(root, "s").unwrap();
    let mut head = (0, ChainHash::start());
    for event in events {
        open.journal.append(std::slice::from_ref(event)).unwrap();
        if event.seq <= acknowledged {
            head = (event.seq, open.journal.head().1.clone());
        }
    }
    open.journal.sync().unwrap();
    write_head(&open.dir, &Head { seq: head.0, hash: head.1 }).unwrap();
    open.dir
}

fn codes(dir: &Path) -> (Vec<String>, Vec<String>) {
    let found = verify(dir).unwrap();
    let codes = |all: Vec<Diagnostic>| all.into_iter().map(|d| d.code).collect();
    (codes(found.problems), codes(found.remarks))
}

fn check(change: impl Fn(&Path), problems: &[&str], remarks: &[&str]) {
    let root = tempfile::tempdir().unwrap();
    let dir = session(root.path(), &[started(), note(2), note(3)], 3);
    change(&dir);
    let (got, said) = codes(&dir);
    assert_eq!((got.as_slice(), said.as_slice()), (&problems.map_vec()[..], &remarks.map_vec()[..]));
}

trait Owned {
    fn map_vec(&self) -> Vec<String>;
}

impl Owned for &[&str] {
    fn map_vec(&self) -> Vec<String> {
        self.iter().map(|s| (*s).to_owned()).collect()
    }
}

fn edit_journal(dir: &Path, edit: impl Fn(Vec<String>) -> Vec<String>) {
    let text = fs::read_to_string(journal_path(dir)).unwrap();
    let lines = edit(text.lines().map(str::to_owned).collect());
    fs::write(journal_path(dir), lines.join("\n") + "\n").unwrap();
}

#[test]
fn a_session_without_its_head_was_called_sound() {
    check(|_| {}, &[], &[]);
    check(|dir| fs::remove_file(dir.join("HEAD")).unwrap(), &["head-missing"], &[]);
    check(|dir| fs::write(dir.join("HEAD"), "{").unwrap(), &["head-unreadable"], &[]);
}

#[test]
fn lines_out_of_order_or_gone_are_found() {
    let swap = |mut lines: Vec<String>| {
        lines.swap(1, 2);
        lines
    };
    check(|dir| edit_journal(dir, swap), &["damaged-line", "short-journal"], &[]);
    check(|dir| edit_journal(dir, |l| l[..2].to_vec()), &["short-journal"], &[]);
    check(|dir| edit_journal(dir, |l| l[1..].to_vec()), &["damaged-line", "short-journal"], &[]);
}

#[test]
fn a_longer_journal_with_a_rewritten_beginning_was_called_sound() {
    let root = tempfile::tempdir().unwrap();
    let dir = session(root.path(), &[started(), note(2), note(3)], 2);
    assert_eq!(codes(&dir).0, Vec::<String>::new());
    let other = tempfile::tempdir().unwrap();
    let forged = event(2, Happened::NoteAdded { text: "something else".into() });
    let forged = session(other.path(), &[started(), forged, note(3)], 2);
    fs::copy(journal_path(&forged), journal_path(&dir)).unwrap();
    assert_eq!(codes(&dir).0, ["other-journal"]);
    assert!(matches!(store::open(&dir), Err(SessionError::Damaged(_))));
}

#[test]
fn a_journal_that_begins_with_something_else_is_no_whole_session() {
    let root = tempfile::tempdir().unwrap();
    let dir = session(root.path(), &[note(1)], 1);
    assert_eq!(codes(&dir).0, ["no-beginning"]);
}

#[test]
fn a_bad_blob_fails_verification_and_is_a_remark_when_the_session_is_opened() {
    let root = tempfile::tempdir().unwrap();
    let hash = BlobHash::of(b"transcript");
    let dir = session(root.path(), &[started(), event(2, trial(hash.clone()))], 2);
    assert_eq!(codes(&dir).0, ["bad-blob"]);
    assert!(store::open(&dir).unwrap().remarks.iter().any(|d| d.code == "bad-blobs"));
    fs::write(dir.join(WITHHELD), format!("{}\n", hash.0)).unwrap();
    assert_eq!(codes(&dir), (Vec::new(), vec!["withheld-blobs".to_owned()]));
    let store = BlobStore::open(dir.join("blobs")).unwrap();
    store.put(b"transcript").unwrap();
    fs::remove_file(dir.join(WITHHELD)).unwrap();
    assert_eq!(codes(&dir), (Vec::new(), Vec::new()));
    store.put(b"another").unwrap();
    assert_eq!(codes(&dir), (Vec::new(), vec!["unnamed-blobs".to_owned()]));
    fs::write(store.path(&hash), "damaged").unwrap();
    assert_eq!(codes(&dir).0, ["bad-blob"]);
}

#[test]
fn verification_changes_nothing_on_disk() {
    let root = tempfile::tempdir().unwrap();
    let dir = session(root.path(), &[started()], 1);
    fs::remove_dir(dir.join("blobs")).unwrap();
    verify(&dir).unwrap();
    assert!(!dir.join("blobs").exists());
}

#[test]
fn snapshots_of_another_form_are_said_and_stale_ones_fail() {
    let write = |dir: &Path, change: &dyn Fn(&mut snapshot::Snapshot)| {
        let bytes = fs::read(journal_path(dir)).unwrap();
        let loaded = decode(&bytes, 0, ChainHash::start()).unwrap();
        let mut made = snapshot::Snapshot {
            schema: snapshot::schema_hash(),
            seq: 3,
            hash: loaded.hash,
            offset: loaded.good_bytes,
            state: replay_to(&loaded.events, 3),
        };
        change(&mut made);
        snapshot::write(&dir.join("snapshots"), &made).unwrap();
    };
    check(|dir| write(dir, &|_| {}), &[], &[]);
    check(|dir| write(dir, &|s| s.schema = "older".into()), &[], &["other-snapshot"]);
    check(|dir| write(dir, &|s| s.hash = ChainHash::start()), &["stale-snapshot"], &[]);
    check(|dir| write(dir, &|s| s.state.seq = 9), &["stale-snapshot"], &[]);
    check(
        |dir| {
            fs::create_dir_all(dir.join("snapshots")).unwrap();
            fs::write(dir.join("snapshots/1.json.zst"), "x").unwrap();
        },
        &[],
        &["unreadable-snapshot"],
    );
}

#[test]
fn a_snapshot_with_a_value_that_is_no_number_is_not_stale() {
    let root = tempfile::tempdir().unwrap();
    let curve = Curve { labels: vec!["a".into()], rel_l2: vec![f64::NAN], ..Curve::default() };
    let report = MicroReport { curves: vec![curve], ..MicroReport::default() };
    let events = [started(), event(2, Happened::MicroMeasured { report: report.into() })];
    let dir = session(root.path(), &events, 2);
    let loaded = decode(&fs::read(journal_path(&dir)).unwrap(), 0, ChainHash::start()).unwrap();
    let made = snapshot::Snapshot {
        schema: snapshot::schema_hash(),
        seq: 2,
        hash: loaded.hash,
        offset: loaded.good_bytes,
        state: replay_to(&loaded.events, 2),
    };
    snapshot::write(&dir.join("snapshots"), &made).unwrap();
    assert_eq!(codes(&dir).0, Vec::<String>::new());
}

#[test]
fn a_lock_that_was_left_behind_is_not_a_session_that_is_open() {
    let root = tempfile::tempdir().unwrap();
    let dir = session(root.path(), &[started()], 1);
    assert!(dir.join("lock").exists());
    assert_eq!(lock::holder(&dir.join("lock")).unwrap(), None);
    let open = store::open(&dir).unwrap();
    assert_eq!(lock::holder(&dir.join("lock")).unwrap(), Some(std::process::id().to_string()));
    assert_eq!(codes(&dir).1, ["open"]);
    drop(open);
    assert_eq!(codes(&dir).1, Vec::<String>::new());
}

#[test]
fn a_repair_leaves_a_session_that_verifies() {
    for damage in ["HEAD", "torn"] {
        let root = tempfile::tempdir().unwrap();
        let dir = session(root.path(), &[started(), note(2)], 2);
        if damage == "HEAD" {
            fs::remove_file(dir.join("HEAD")).unwrap();
        } else {
            let text = fs::read_to_string(journal_path(&dir)).unwrap();
            fs::write(journal_path(&dir), text + "{\"seq\":3").unwrap();
        }
        assert!(repair(&dir).unwrap().is_some(), "{damage}");
        assert_eq!(codes(&dir).0, Vec::<String>::new(), "{damage}");
        assert!(repair(&dir).unwrap().is_none(), "{damage}");
    }
}
