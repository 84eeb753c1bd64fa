//! Made-up search paths, as plain data.

use super::*;
use crate::case::{Manager, Role, ServingEngine};
use crate::remote::probe::types::Relation;
use crate::remote::proc;

fn target(checkout: Option<&str>) -> Target {
    Target {
        name: "t".into(),
        role: Role::Monolithic,
        engine: ServingEngine::Sglang,
        host: "local".into(),
        become_with: None,
        url: "http://127.0.0.1:7".into(),
        api_key: None,
        manager: Manager::Unknown,
        launch_script: None,
        checkpoint: None,
        checkout: checkout.map(Into::into),
        production: false,
        readable_env: false,
    }
}

fn unread<T>() -> Result<T, Unknown> {
    Err(Unknown("not asked".into()))
}

fn process(line: &[u8], environ: &[u8]) -> Process {
    Process {
        relation: Relation::Owner,
        stat: unread(),
        cmdline: proc::cmdline(line),
        environ: proc::environ(environ),
        cwd: unread(),
        exe: Ok("/usr/bin/python3.11".into()),
        cgroup: unread(),
        uid: unread(),
        out: unread(),
    }
}

fn imports(venv: Option<&str>) -> Imports {
    Imports {
        pid: Ok(7),
        same_files: Ok(true),
        started: Ok("/v/bin/python".into()),
        name_is_sure: true,
        version: Ok("3.11".into()),
        venv: venv.map(Into::into),
        complete: true,
        modules: Vec::new(),
    }
}

fn file(path: &str, text: &str, modified: i64, changed: i64) -> FileAt {
    let at = |s| jiff::Timestamp::from_second(s).unwrap();
    let times = Times { size: text.len() as u64, modified: at(modified), changed: at(changed) };
    FileAt { path: Ok(path.into()), times: Ok(Some(times)), sum: Ok(text.into()) }
}

fn at(entry: Entry, what: What, folder: &str) -> Found {
    let file = file(&format!("/{folder}/x/y.py"), folder, 0, 0);
    Found { entry, what, folder: folder.into(), by: String::new(), file, origin: None }
}

#[test]
fn a_site_is_a_module_below_the_search_path() {
    for (checkout, site, expect) in [
        (Some("/fork/"), "python/sglang/srt/a.py:12", Some(("sglang/srt/a.py", Some("/fork/python/sglang/srt/a.py")))),
        (Some("/fork"), "/fork/vllm/a.py", Some(("vllm/a.py", Some("/fork/vllm/a.py")))),
        (Some("/fork"), "sub/src/p/a.py:1-3", Some(("p/a.py", Some("/fork/sub/src/p/a.py")))),
        (None, "./src/p/a.py", Some(("p/a.py", None))),
        (None, "/elsewhere/a.py", None),
        (Some("/fork"), "csrc/a.cu", None),
        (Some("/fork"), "a.pyx", None),
    ] {
        let found = module(&target(checkout), site).map(|(_, w)| w);
        let expect = expect.map(|(path, source)| Wanted { path: path.into(), source: source.map(Into::into) });
        assert_eq!(found, expect, "{site}");
    }
}

#[test]
fn the_order_of_the_search_is_pythons_own() {
    use Entry::{Base, Environment, Folder, User, Variable};
    use What::{Finder, Namespace, Package};
    let all = [
        at(Folder, Namespace, "folder"),
        at(Variable, Package, "variable"),
        at(Environment, Package, "environment"),
        at(User, Package, "user"),
        at(Base, Package, "base"),
    ];
    let last = [at(Folder, Namespace, "folder"), at(Environment, Finder, "finder")];
    let system = Some("include-system-site-packages = true\n");
    let only = Some("home = /usr/bin\ninclude-system-site-packages = false\n");
    for (line, environ, venv, found, expect) in [
        (&b"python\0s.py\0"[..], &b"A=1\0"[..], only, &all[..], Some("variable")),
        (b"python\0-E\0s.py\0", b"A=1\0", only, &all[..], Some("environment")),
        (b"python\0-uIm\0s\0", b"A=1\0", only, &all[..], Some("environment")),
        (b"python\0-X\0dev\0-E\0s.py\0", b"A=1\0", only, &all[2..], Some("environment")),
        (b"python\0s.py\0-S\0", b"A=1\0", only, &all[2..], Some("environment")),
        (b"python\0-S\0s.py\0", b"A=1\0", only, &all[2..], None),
        (b"python\0s.py\0", b"A=1\0", only, &all[3..], None),
        (b"python\0s.py\0", b"A=1\0", system, &all[3..], Some("user")),
        (b"python\0s.py\0", b"A=1\0", None, &all[3..], Some("user")),
        (b"python\0s.py\0", b"PYTHONNOUSERSITE=1\0", None, &all[3..], Some("base")),
        (b"python\0-s\0s.py\0", b"A=1\0", None, &all[3..], Some("base")),
        // A bare folder hides what only a finder would bring, unless the folder does not count.
        (b"python\0s.py\0", b"A=1\0", only, &last[..], Some("folder")),
        (b"python\0s.py\0", b"PYTHONSAFEPATH=1\0", only, &last[..], Some("finder")),
    ] {
        let path = search_path(&imports(venv), &process(line, environ), 7).unwrap().unwrap();
        let module = Module { source: None, found: found.to_vec() };
        let chosen = path.choose(&module).map(|f| f.folder.as_str());
        assert_eq!(chosen, expect, "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn a_search_path_that_cannot_be_told_is_unknown() {
    let (line, environ) = (&b"python\0s.py\0"[..], &b"A=1\0"[..]);
    let usual = || (imports(None), process(line, environ));
    type Change = fn(&mut (Imports, Process));
    let changes: [(Change, &str); 9] = [
        (|all| all.0.pid = Ok(8), "another process"),
        (|all| all.0.same_files = Ok(false), "as in a container"),
        (|all| all.0.same_files = unread(), "not asked"),
        (|all| all.0.name_is_sure = false, "virtual environment"),
        (|all| all.0.version = unread(), "not asked"),
        (|all| all.0.complete = false, "not listed to its end"),
        (|all| all.1.environ = proc::environ(&[0; 90]), "`PYTHONPATH` is not known: the environment block is"),
        (|all| all.1.cmdline = proc::cmdline(b"sglang::server\0\0\0\0"), "overwritten by the title"),
        (|all| all.1.exe = unread(), "its program cannot be read"),
    ];
    for (change, expect) in changes {
        let mut all = usual();
        change(&mut all);
        let Err(Unknown(why)) = search_path(&all.0, &all.1, 7) else { panic!("{expect}") };
        assert!(why.contains(expect), "{why}");
        let wanted = Wanted { path: "x/y.py".into(), source: Some("/fork/x/y.py".into()) };
        let module =
            Module { source: Some(file("/fork/x/y.py", "a", 0, 0)), found: vec![at(Entry::Base, What::Package, "b")] };
        let row = row(&target(None), "x/y.py", &wanted, &module, Err(&Unknown(why.clone())), None);
        assert_eq!((row.status, row.note), (RowStatus::UnknownBecause, why));
        assert!(row.effective.is_some_and(|e| e.value.is_none() && e.known != Known::Yes));
    }
}

#[test]
fn a_file_is_compared_by_place_text_and_date() {
    let found = |file: FileAt| Found { file, ..at(Entry::Base, What::Package, "b") };
    let source = file("/fork/x/y.py", "a", 50, 50);
    let gone = FileAt { times: Ok(None), ..source.clone() };
    let closed = FileAt { times: unread(), sum: unread(), ..source.clone() };
    for (source, file, started, expect) in [
        (Some(&source), source.clone(), Some(100), RowStatus::Agrees),
        (Some(&source), file("/b/x/y.py", "a", 50, 50), Some(100), RowStatus::Agrees),
        (Some(&source), file("/b/x/y.py", "b", 50, 50), Some(100), RowStatus::Differs),
        (
            Some(&source),
            FileAt { sum: unread(), ..file("/b/x/y.py", "b", 50, 50) },
            Some(100),
            RowStatus::UnknownBecause,
        ),
        (None, source.clone(), Some(100), RowStatus::OneSource),
        (Some(&source), gone.clone(), Some(100), RowStatus::Differs),
        (Some(&gone), source.clone(), Some(100), RowStatus::UnknownBecause),
        (Some(&source), closed.clone(), Some(100), RowStatus::UnknownBecause),
        (Some(&source), source.clone(), None, RowStatus::UnknownBecause),
        // The start is known to a second.
        (Some(&source), source.clone(), Some(49), RowStatus::Agrees),
        (Some(&source), source.clone(), Some(40), RowStatus::UnknownBecause),
        (Some(&source), file("/fork/x/y.py", "a", 500, 500), Some(100), RowStatus::Differs),
        (Some(&source), file("/fork/x/y.py", "a", 50, 500), Some(100), RowStatus::UnknownBecause),
        // What is surely another text stays a disagreement, whatever its date.
        (Some(&source), file("/b/x/y.py", "b", 50, 500), Some(100), RowStatus::Differs),
    ] {
        let (status, note) = judge(source, &found(file.clone()), started);
        assert_eq!(status, expect, "{file:?}: {note}");
        assert!(!note.is_empty());
    }
}
