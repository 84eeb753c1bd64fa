use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const NONCE: &str = "n1";
const SINCE: i64 = 1_777_629_600; // 2026-05-01T10:00:00Z

/// What a section says: the bytes, or the flag and the reason of one that could not be read.
enum Said<'t> {
    Is(&'t str),
    Cut(&'t str),
    Not(&'t str, &'t str),
}
use Said::{Cut, Is, Not};

fn answer(sections: &[(&str, Said<'_>)]) -> Vec<u8> {
    let mut out = format!("patchbench-probe 1 {NONCE}\n");
    for (name, said) in sections {
        let (text, encoding, flag) = match said {
            Is(text) => (text, "base64", "whole"),
            Cut(text) => (text, "base64", "truncated"),
            Not(flag, why) => (why, "unread", *flag),
        };
        let payload = STANDARD.encode(text);
        out += &["section", name, &payload.len().to_string(), encoding, flag].join(" ");
        out += &["\n", &payload, "\n"].concat();
    }
    (out + &format!("end {NONCE} {}\n", sections.len())).into_bytes()
}

fn question(subject: Subject) -> Question {
    Question { host: "box".into(), since: Timestamp::from_second(SINCE).unwrap(), subjects: vec![subject] }
}

fn parsed(sections: &[(&str, Said<'_>)], subject: Subject) -> History {
    parse::parse(&answer(sections), &question(subject), NONCE).unwrap()
}

fn kind_word(kind: Kind) -> String {
    serde_json::to_value(kind).unwrap().as_str().unwrap().to_owned()
}

/// `seconds-after kind: what` of each change; `?` where there is no time.
fn told(history: &History) -> Vec<String> {
    let line = |c: &Change| {
        let at = c.at.map_or_else(|| "?".to_owned(), |at| (at.as_second() - SINCE).to_string());
        format!("{at} {}: {}", kind_word(c.kind), c.what.raw())
    };
    history.changes.iter().map(line).collect()
}

/// The changes are exactly these, and each of the gaps is there.
fn check(sections: &[(&str, Said<'_>)], subject: Subject, changes: &[&str], gaps: &[&str]) -> History {
    let history = parsed(sections, subject);
    assert_eq!(told(&history), changes);
    let all: Vec<String> = history.gaps.iter().map(|g| format!("{}: {}", g.what, g.because)).collect();
    for gap in gaps {
        assert!(all.iter().any(|g| g.contains(gap)), "no `{gap}` in {all:#?}");
    }
    history
}

fn no_gap(history: &History, part: &str) {
    assert!(!history.gaps.iter().any(|g| g.what.contains(part)), "{part}: {:#?}", history.gaps);
}

fn record(after: i64, id: &str, message: &str) -> String {
    let at = (SINCE + after) * 1_000_000;
    serde_json::json!({ "__REALTIME_TIMESTAMP": at.to_string(), "MESSAGE": message, "MESSAGE_ID": id }).to_string()
        + "\n"
}

fn unit() -> Subject {
    Subject { name: "decode".into(), starter: Starter::Unit("a.service".into()), ..Subject::default() }
}

fn btime(after: i64) -> String {
    (SINCE + after).to_string()
}

#[test]
fn an_empty_answer_is_all_gaps_and_no_change() {
    let gaps = [
        "when the host booted",
        "the graphics driver",
        "in the journal",
        "packages of the host",
        "everything of the target",
    ];
    check(&[], unit(), &[], &gaps);
    let torn = b"patchbench-probe 1 n1\n";
    let history = parse::parse(torn, &question(unit()), NONCE).unwrap();
    assert!(history.gaps.iter().any(|g| g.because == "the answer broke off"), "{:?}", history.gaps);
}

#[test]
fn boots_are_told_from_the_beginning_of_the_journal() {
    let boots = "IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY\n\
         \x20-2 00000000000000000000000000000001 Fri 2026-05-01 11:00:00 UTC Fri 2026-05-01 11:30:00 UTC\n\
         \x20-1 00000000000000000000000000000002 Fri 2026-05-01 12:00:00 UTC—Fri 2026-05-01 12:30:00 UTC\n\
         \x20 0 00000000000000000000000000000003 Fri 2026-05-01 13:00:05 UTC—Fri 2026-05-01 14:00:00 UTC\n";
    let (begins, booted) = (record(3600, "", "x"), btime(3 * 3600));
    for (journal, why) in [("volatile", "it is kept in memory"), ("persistent", "what was older is rotated away")] {
        let sections = [
            ("host.btime", Is(&booted)),
            ("host.boot_id", Is("00000000-0000-0000-0000-000000000003\n")),
            ("host.journal", Is(journal)),
            ("host.oldest", Is(&begins)),
            ("host.boots", Is(boots)),
        ];
        let changes = ["7200 reboot: the host booted", "10800 reboot: the host booted; it runs since"];
        let begins = format!("it begins at 2026-05-01T11:00:00Z: {why}");
        let oldest = "whether the host booted at 2026-05-01T11:00:00Z: the journal begins there";
        check(&sections, unit(), &changes, &[oldest, &begins]);
    }
    // A host that has run since before needs no journal to say that it did not boot.
    let history = check(&[("host.btime", Is(&btime(-5)))], unit(), &[], &[]);
    no_gap(&history, "earlier boots");
    no_gap(&history, "when the host booted");
    check(&[("host.btime", Is(&btime(5)))], unit(), &["5 reboot: the host booted; it runs since"], &["earlier boots"]);
}

#[test]
fn kernel_and_driver_are_compared_with_what_ran_before() {
    let loading = |v: &str| format!("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {v}  Tue Mar 1 00:00:00 UTC 2026");
    let before = record(-90, "", "Linux version 6.1.0-1 (x) #1") + &record(-80, "", &loading("550.54.15"));
    let log = [
        record(30, "", "NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=python, DBE"),
        record(25, "", "EDAC MC0: 1 CE memory read error on CPU"),
        record(24, "", "EDAC MC: Ver: 3.0.0"),
        record(20, "", &loading("570.86.10")),
        record(10, "", "Linux version 6.1.0-2 (x) #1"),
        "ended 0\n".to_owned(),
    ]
    .concat();
    let (oldest, booted) = (record(-9999, "", "x"), btime(9));
    let mut sections = vec![
        ("host.btime", Is(&booted)),
        ("host.oldest", Is(&oldest)),
        ("host.kernel_log", Is(&log)),
        ("host.kernel_before", Is(&before)),
        ("host.driver", Is("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Tue\n")),
        ("host.ecc", Is("0, 00000000:3B:00.0, 570.86.10, 4, 1\n1, 00000000:3C:00.0, 570.86.10, [N/A], [N/A]\n")),
    ];
    let changes = [
        "? gpu-error: 1 uncorrected and 4 corrected memory errors of card 0 (00000000:3B:00.0) since the driver was loaded",
        "9 reboot: the host booted; it runs since",
        "10 kernel: kernel 6.1.0-1 became 6.1.0-2",
        "20 driver: NVIDIA driver 550.54.15 became 570.86.10",
        "25 hardware-error: EDAC MC0: 1 CE memory read error on CPU",
        "30 gpu-error: NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=python, DBE",
    ];
    let history =
        check(&sections, unit(), &changes, &["memory errors of card 1 (00000000:3C:00.0): nvidia-smi says `[N/A]`"]);
    assert_eq!(history.driver.unwrap().unwrap().raw(), "570.86.10");
    // The same without what ran before, and with a reader that was stopped: no version changed, and that is said.
    let log = log.replace("ended 0", "ended 124");
    sections[2] = ("host.kernel_log", Is(&log));
    sections.remove(3);
    let without: Vec<&str> = changes.iter().copied().filter(|c| !c.contains("became")).collect();
    let gaps = [
        "the kernel before the last boots",
        "the graphics driver before it was loaded again",
        "reading them took too long",
    ];
    check(&sections, unit(), &without, &gaps);
}

#[test]
fn the_ring_buffer_stands_in_for_a_journal_and_says_what_it_lacks() {
    let (old, new) = (btime(-100), btime(100));
    let xid = "first [    0.000000] Linux version 6\n[   50.1] NVRM: Xid (PCI:1): 31\n[  150.2] NVRM: Xid (PCI:1): 79\nended 0\n";
    let later = "first [<5>   90.0] x\n";
    let oldest = ("host.oldest", || Not("no-command", ""));
    check(
        &[("host.btime", Is(&old)), (oldest.0, oldest.1()), ("host.dmesg", Is(xid))],
        unit(),
        &["50 gpu-error: NVRM: Xid (PCI:1): 79"],
        &["in the journal: the program for it is not on the host"],
    );
    let changes = [
        "100 reboot: the host booted; it runs since",
        "150 gpu-error: NVRM: Xid (PCI:1): 31",
        "250 gpu-error: NVRM: Xid (PCI:1): 79",
    ];
    let gaps = ["kernel before the last boot: its buffer holds one boot", "earlier boots: there is no journal"];
    check(&[("host.btime", Is(&new)), ("host.dmesg", Is(xid))], unit(), &changes, &gaps);
    let refused = "dmesg: read kernel buffer failed: Operation not permitted\nfirst \nended 1\n";
    for (text, gap) in [
        (refused, "messages of the kernel: dmesg: read kernel buffer failed: Operation not permitted"),
        (refused, "did not end well"),
        (later, "messages of the kernel: [<5>"),
        ("first [  300.0] x\nended 0\n", "before its buffer begins: it begins at 2026-05-01T10:03:20Z"),
    ] {
        check(&[("host.btime", Is(&old)), ("host.dmesg", Is(text))], unit(), &[], &[gap]);
    }
}

#[test]
fn packages_of_the_host() {
    let line = |after: i64, rest: &str| format!("{} {rest}\n", SINCE + after);
    let lines = [
        line(-5, "upgrade old:amd64 1 2"),
        line(5, "upgrade nvidia-driver:amd64 550 570"),
        line(6, "install a:all <none> 1.0"),
        line(7, "remove b:all 2 <none>"),
    ]
    .concat();
    let changes = [
        "5 system-package: upgrade nvidia-driver:amd64 550 to 570",
        "6 system-package: install a:all 1.0",
        "7 system-package: remove b:all 2",
    ];
    let dpkg = |begins: &str, gaps: &[&str]| {
        let text = format!("begins {begins}\n{lines}");
        check(&[("host.packages", Is("dpkg")), ("host.dpkg", Is(&text))], unit(), &changes, gaps)
    };
    no_gap(&dpkg("before", &[]), "packages of the host");
    no_gap(&dpkg(&(SINCE - 9).to_string(), &[]), "packages of the host");
    dpkg(
        &(SINCE + 1).to_string(),
        &["packages of the host before their log begins: it begins at 2026-05-01T10:00:01Z"],
    );
    dpkg("unknown", &["where their log begins is not known"]);
    dpkg("before\nmore than 1000 lines", &["all packages of the host: more than 1000 lines"]);
    let rpm = format!("{} a 1-2\n{} b 3-4\n", SINCE - 1, SINCE + 1);
    let changes = ["1 system-package: b 3-4 was installed or updated"];
    check(&[("host.packages", Is("rpm")), ("host.rpm", Is(&rpm))], unit(), &changes, &["packages that were removed"]);
    let denied = ("host.dpkg", Not("failed", "cat: /var/log/dpkg.log: Permission denied"));
    check(&[("host.packages", Is("dpkg")), denied], unit(), &[], &["packages of the host: permission denied"]);
    check(&[("host.packages", Is("none"))], unit(), &[], &["keeps no log of packages that this program knows"]);
}

#[test]
fn a_unit_tells_its_starts_its_files_and_what_it_cannot() {
    let journal = [
        record(60, "39f53479d3a045ac8e11786248231fbf", "Started a.service - A."),
        record(59, "7d4958e842da4a758f6c1cdc7b36dcc5", "Starting a.service - A..."),
        record(50, "98e322203f7a4ed290d09fe03c09fe15", "a.service: Main process exited, code=killed, status=9/KILL"),
        record(40, "98e322203f7a4ed290d09fe03c09fe15", "a.service: Main process exited, code=exited, status=0/SUCCESS"),
        record(30, "9d1aaa27d60140bd96365438aad20286", "Stopped a.service; key sk-REDACTED"),
        "Hint: You are currently not seeing messages from other users and the system.\n".to_owned(),
    ]
    .concat();
    let show = "Id=a.service\nLoadState=loaded\nNeedDaemonReload=yes\nNRestarts=2\nExecMainStartTimestamp=Fri 2026-05-01 10:01:01 UTC\n";
    let (new, old) = (SINCE + 5, SINCE - 5);
    let unitfiles = format!(
        "{new}|{new}|10|regular file|/etc/a.service\n{old}|{new}|4096|directory|/etc/a.service.d\n{old}|{old}|1|regular file|/etc/b\n"
    );
    let envfiles = format!(
        "{old}|{new}|10|regular file|/etc/a|b.env\nstat: cannot statx '/etc/c.env': No such file or directory\n"
    );
    let sections = [
        ("t0.name", Is("decode")),
        ("t0.show", Is(show)),
        ("t0.unitfiles", Is(&unitfiles)),
        ("t0.envfiles", Is(&envfiles)),
        ("t0.journal", Is(&journal)),
    ];
    let changes = [
        "5 unit-file: /etc/a.service: changed",
        "5 unit-file: /etc/a.service.d: moved, or its mode or owner changed",
        "5 environment-file: /etc/a|b.env: its content is dated before, and it was put there, moved, linked or given to another since",
        "30 service-stop: Stopped a.service; key [redacted]",
        "40 service-stop: a.service: Main process exited, code=exited, status=0/SUCCESS",
        "50 service-failure: a.service: Main process exited, code=killed, status=9/KILL",
        "60 service-start: Started a.service - A.",
        "61 service-start: a.service: its main process started; restarted 2 times by systemd",
    ];
    let gaps = [
        "the environment files of the unit: stat: cannot statx '/etc/c.env': No such file",
        "earlier starts: Hint: You are currently not seeing messages from other users",
        "the checkout: the case names none",
        "when the server's process started: the case names no port",
    ];
    let history = check(&sections, unit(), &changes, &gaps);
    assert!(history.remarks.iter().any(|r| r.code == "daemon-reload"));
    assert!(history.changes.iter().all(|c| c.target.as_deref() == Some("decode")));
    check(
        &[("t0.name", Is("decode")), ("t0.show", Is("LoadState=not-found\n"))],
        unit(),
        &[],
        &["systemd knows no unit"],
    );
    let script = Subject { starter: Starter::Script, port: Some(80), ..unit() };
    let sections = [("t0.name", Is("decode")), ("port.80", Is("hidden 3\nlisten 77"))];
    check(&sections, script, &[], &["keeps no record of its starts", "the open files of 3 processes cannot be read"]);
}

#[test]
fn a_checkout_tells_its_moves_and_what_is_lost() {
    let subject = || Subject { checkout: Some("/src".into()), ..unit() };
    let (new, old) = (SINCE + 5, SINCE - 5);
    let moves = format!(
        "aaa HEAD@{{{new} +0200}} pull https://me-token@host/x: Fast-forward\nbbb HEAD@{{{old} +0000}} commit: odd }} name\n"
    );
    let dirty = format!(
        " M|{new}|{new}|a.py\n??|{old}|{new}|new|file\n M|{old}|{old}|before.py\n D|-|-|gone.py\nsaid|warning: x\n"
    );
    let sections = [
        ("t0.name", Is("decode")),
        ("t0.reflog", Is(&moves)),
        ("t0.filters", Is("yes")),
        ("t0.dirty", Is(&dirty)),
        ("t0.built", Is("")),
        ("t0.built_by", Is("content")),
    ];
    let changes = [
        "5 checkout: pull https://[redacted]@host/x: Fast-forward, to aaa",
        "5 dirty-file: a.py differs from the commit",
        "5 dirty-file: new|file is not in the commit",
    ];
    let gaps = [
        "when gone.py changed, which is deleted and in the commit: it has no date",
        "go through a filter",
        "files that differ from their commit: warning: x",
        "with an older date: the host's `find`",
    ];
    let history = check(&sections, subject(), &changes, &gaps);
    assert!(history.remarks.iter().any(|r| r.code == "dirty-before" && r.message.contains("before.py")));
    no_gap(&history, "moves of the checkout");
    let reflog = |said, gap: &str| check(&[("t0.name", Is("decode")), ("t0.reflog", said)], subject(), &[], &[gap]);
    reflog(Is(""), "moves of the checkout: its reflog is empty");
    reflog(Not("no-command", ""), "moves of the checkout: the program for it is not on the host");
    reflog(Not("failed", "fatal: not a git repository"), "could not read it: fatal: not a git repository");
    reflog(Cut(&format!("bbb HEAD@{{{old} +0000}} x\nccc HEAD@{{17")), "all of moves of the checkout: there is more");
    for (subject_line, lost) in [("clone: from x", false), ("commit: x", true)] {
        let moves = format!("aaa HEAD@{{{new} +0000}} {subject_line}\n");
        let history = parsed(&[("t0.name", Is("decode")), ("t0.reflog", Is(&moves))], subject());
        assert_eq!(history.gaps.iter().any(|g| g.because == "its reflog begins there"), lost, "{subject_line}");
    }
}

#[test]
fn a_module_is_compared_with_its_wheel() {
    let subject = || Subject { modules: vec!["python/p/m.py".into()], ..unit() };
    // SHA-256 of nothing, in the two forms.
    let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  /s/p/m.py\n";
    let record =
        |hash: &str| format!("/s/p-1.dist-info/RECORD:p/m.py,{hash},0\n/s/p-1.dist-info/RECORD:x/p/m.py,sha256=AA,0\n");
    let same = record("sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
    let other = record("sha256=57DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
    let run = |content: i64, hash: Said<'_>, record: Said<'_>, changes: &[&str], gaps: &[&str]| {
        let times = format!("{0}|{0}|0|regular empty file|/s/p/m.py\n", SINCE + content);
        let sections = [
            ("t0.name", Is("decode")),
            ("t0.module.0.times", Is(&times)),
            ("t0.module.0.inner", Is("p/m.py")),
            ("t0.module.0.hash", hash),
            ("t0.module.0.record", record),
        ];
        check(&sections, subject(), changes, gaps)
    };
    let sha = &hash[..64];
    let is = format!("5 module: python/p/m.py: changed; it is as its wheel has it (sha256 {sha})");
    let is_not = format!("5 module: python/p/m.py: changed; it is not as its wheel has it (sha256 {sha})");
    let plain = "5 module: python/p/m.py: changed";
    run(5, Is(hash), Is(&same), &[&is], &[]);
    run(5, Is(hash), Is(&other), &[&is_not], &[]);
    run(5, Is(hash), Is(""), &[plain], &["is as its wheel has it: no wheel lists it"]);
    run(
        5,
        Not("no-command", ""),
        Is(&same),
        &[plain],
        &["is as its wheel has it: the program for it is not on the host"],
    );
    run(5, Is(hash), Is(&record("md5=x")), &[plain], &["its wheel has no sha256 of it"]);
    let history = run(-5, Is(hash), Is(&other), &[], &[]);
    assert!(history.remarks.iter().any(|r| r.code == "not-as-wheel"), "{:?}", history.remarks);
    let lost = ("t0.module.0.times", Not("failed", "it was not found"));
    check(
        &[("t0.name", Is("decode")), lost],
        subject(),
        &[],
        &["the module python/p/m.py: the host could not read it: it was not found"],
    );
}

#[test]
fn the_file_of_a_site() {
    for (site, file) in
        [("a/b.py:12", "a/b.py"), ("a/b.py:12-40", "a/b.py"), ("a/b.py", "a/b.py"), ("a:b", "a:b"), ("a:", "a:")]
    {
        assert_eq!(file_of(site), file);
    }
}
