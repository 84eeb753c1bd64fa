//! Units by systemd's rules: small texts, one rule each.

use proptest::prelude::*;

use super::*;

const PATH: &str = "/etc/systemd/system/a@1.service";

fn unit(main: &str, drop_ins: &[(&str, &str)], named: Files) -> Unit {
    let drop_ins = drop_ins.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect();
    read(&UnitFiles { name: "a@1.service".into(), main: (PATH.into(), main.into()), drop_ins, named }, None)
}

fn values(unit: &Unit) -> Vec<(String, Option<String>)> {
    let text = |v: &Option<Text>| match v {
        Some(Text::Known(t)) => Some(t.clone()),
        Some(Text::Unresolved { because, .. }) => Some(format!("? {because}")),
        None => None,
    };
    unit.declared.variables.iter().map(|(n, v)| (n.clone(), text(&v.value))).collect()
}

fn check_variables(service: &str, expect: &[(&str, Option<&str>)]) {
    let unit = unit(&format!("[Service]\nExecStart=/bin/srv --a 1\n{service}\n"), &[], Files::default());
    let expect: Vec<(String, Option<String>)> =
        expect.iter().map(|(n, v)| ((*n).to_owned(), v.map(str::to_owned))).collect();
    assert_eq!(values(&unit), expect, "{service}");
}

#[test]
fn variables_by_the_order_of_their_settings() {
    for (service, expect) in [
        ("Environment=A=1 B=2\nEnvironment=A=3", &[("A", Some("3")), ("B", Some("2"))][..]),
        ("Environment=A=1\nEnvironment=\nEnvironment=B=2", &[("B", Some("2"))]),
        (
            "Environment=\"A=x y\" 'B={\"k\": 1}' C=\\x41",
            &[("A", Some("x y")), ("B", Some("{\"k\": 1}")), ("C", Some("A"))],
        ),
        ("Environment=A=1 word 1B=2", &[("A", Some("1"))]),
        ("Environment=A=%i B=%n C=%%", &[("A", Some("1")), ("B", Some("a@1.service")), ("C", Some("%"))]),
        ("Environment=A=%H", &[("A", Some("? `%H` is told by the host"))]),
        ("Environment=A=1\nUnsetEnvironment=A B\nEnvironment=A=2", &[("A", None), ("B", None)]),
        ("Environment=A=1 B=2\nUnsetEnvironment=A=2 B=2", &[("A", Some("1")), ("B", None)]),
        (
            "PassEnvironment=A B\nEnvironment=A=1",
            &[("A", Some("1")), ("B", Some("? it is passed on from the service manager"))],
        ),
        ("Environment=A=1 \\\n# no\n B=2", &[("A", Some("1")), ("B", Some("2"))]),
        ("EnvironmentFile=-/e\nEnvironment=A=1", &[("A", Some("? `/e` was not read and may replace it"))]),
    ] {
        check_variables(service, expect);
    }
}

#[test]
fn a_file_of_variables_beats_the_unit_and_its_absence_is_told() {
    let main = "[Service]\nEnvironmentFile=/e\nEnvironmentFile=-/f\nEnvironment=A=1\nExecStart=/bin/srv --a ${A}\n";
    let files = Files::default().with("/e", FileText::Read("A=2\nexport B=1\n".into()));
    let read = unit(main, &[], files.clone().with("/f", FileText::Absent));
    assert_eq!(values(&read), [("A".to_owned(), Some("2".to_owned()))]);
    assert_eq!(read.declared.variables["A"].place, Place::new("/e", 1));
    assert_eq!(read.declared.flag("--a").unwrap().value.known(), Some("2"));
    assert_eq!(read.declared.blind_to, None);
    // A later file beats an earlier one.
    let read = unit(main, &[], files.with("/f", FileText::Read("A=3".into())));
    assert_eq!(values(&read), [("A".to_owned(), Some("3".to_owned()))]);
    // Without the `-`, a missing file is an error; one that was not read is not known.
    let missing = unit(main, &[], Files::default().with("/e", FileText::Absent).with("/f", FileText::Absent));
    assert!(missing.declared.diagnostics.iter().any(|d| d.severity == Severity::Error && d.message.contains("`/e`")));
    let unread = unit(main, &[], Files::default());
    assert_eq!(unread.declared.blind_to.as_deref(), Some("what `/e` sets, and what `/f` sets"));
    assert_eq!(unread.declared.flag("--a").unwrap().value.known(), None);
}

fn check_exec(exec: &str, expect: &[&str]) {
    let unit = unit(&format!("[Service]\nEnvironment='W=a \"b c\"' E= 'S=x y'\n{exec}\n"), &[], Files::default());
    let words: Vec<&str> = unit.declared.argv.iter().map(|w| w.as_deref().unwrap_or("?")).collect();
    assert_eq!(words, expect, "{exec}");
}

#[test]
fn commands_by_systemds_words() {
    for (exec, expect) in [
        ("ExecStart=/bin/srv --a '${W}' b", &["/bin/srv", "--a", "a \"b c\"", "b"][..]),
        ("ExecStart=/bin/srv $W $E ${E} x$S ${S}", &["/bin/srv", "a", "b c", "", "x$S", "x y"]),
        ("ExecStart=/bin/srv $$W ${S}z $NONE", &["/bin/srv", "$W", "x yz", "?"]),
        ("ExecStart=:/bin/srv $W", &["/bin/srv", "$W"]),
        ("ExecStart=-/bin/srv --f %i 5%%", &["/bin/srv", "--f", "1", "5%"]),
        ("ExecStart=@/bin/srv name --f", &["/bin/srv", "--f"]),
        ("ExecStart=+!/bin/srv \\\n  # comment\n  --f", &["/bin/srv", "--f"]),
        ("ExecStart=/bin/srv --q \"a\\\"b\" \\; c\\qd", &["/bin/srv", "--q", "a\"b", ";", "c\\qd"]),
        ("ExecStart=/bin/old\nExecStart=\nExecStart=/bin/srv --f", &["/bin/srv", "--f"]),
        ("ExecStart=/bin/a ; /bin/b\nType=oneshot", &["/bin/b"]),
        ("ExecStart=/bin/a\nExecStart=/bin/b", &[]),
        ("ExecStart=/bin/a 'open", &[]),
        ("ExecStart=", &[]),
    ] {
        check_exec(exec, expect);
    }
}

#[test]
fn two_commands_are_an_error_and_no_command_is_said() {
    let twice = unit("[Service]\nExecStart=/bin/a --f\nExecStart=/bin/b --f\n", &[], Files::default());
    assert!(twice.declared.flags.is_empty());
    let remark = &twice.declared.diagnostics[0];
    assert_eq!((remark.severity, remark.code.as_str()), (Severity::Error, "unit-exec-twice"));
    assert_eq!(remark.place.as_deref(), Some("/etc/systemd/system/a@1.service:3"));
    let dropped = unit(
        "[Service]\nExecStart=/bin/a --f\n",
        &[("/etc/systemd/system/a@1.service.d/x.conf", "[Service]\nExecStart=/bin/b\n")],
        Files::default(),
    );
    assert_eq!(dropped.declared.diagnostics[0].code, "unit-exec-twice");
    assert_eq!(unit("", &[], Files::default()).declared.diagnostics[0].code, "unit-exec");
}

#[test]
fn drop_ins_count_by_name_and_keep_their_places() {
    let (etc, run) = ("/etc/systemd/system/a@1.service.d/20.conf", "/run/systemd/system/a@1.service.d/20.conf");
    let usr = "/usr/lib/systemd/system/a@1.service.d/90.conf";
    let read = unit(
        "[Service]\nEnvironment=A=0\nExecStart=/bin/srv --f\n",
        &[
            (usr, "[Service]\nEnvironment=A=usr\n"),
            (run, "[Service]\nEnvironment=A=run B=run\n"),
            (etc, "[Service]\nEnvironment=A=etc\n"),
        ],
        Files::default(),
    );
    let a = &read.declared.variables["A"];
    let places: Vec<&str> = a.all.iter().map(|(p, _)| p.file.as_str()).collect();
    assert_eq!(places, [PATH, etc, usr]);
    assert!(!read.declared.variables.contains_key("B"));
    assert!(
        read.declared.diagnostics.iter().any(|d| d.code == "drop-in-shadowed" && d.place == Some(format!("{run}:1")))
    );
}

#[test]
fn settings_in_the_wrong_section_do_nothing() {
    let read = unit(
        "[Unit]\nEnvironment=A=1\nStartLimitBurst=3\n[Service]\nStartLimitIntervalSec=5\nStartLimitInterval=7\nExecStart=/bin/srv\nUser=u\nRestart=always\n",
        &[],
        Files::default(),
    );
    assert!(read.declared.variables.is_empty());
    let text = |s: &Option<Setting>| s.as_ref().and_then(|s| s.value.known().map(|t| (t.to_owned(), s.place.line)));
    assert_eq!(text(&read.facts.start_limit_interval), Some(("7".into(), 6)));
    assert_eq!(text(&read.facts.start_limit_burst), Some(("3".into(), 3)));
    assert_eq!(text(&read.facts.user), Some(("u".into(), 8)));
    assert_eq!(text(&read.facts.restart), Some(("always".into(), 9)));
    let ignored: Vec<&str> =
        read.declared.diagnostics.iter().filter(|d| d.code == "unit-section").map(|d| d.message.as_str()).collect();
    assert_eq!(
        ignored,
        [
            "`Environment` belongs into [Service] and is ignored in [Unit]",
            "`StartLimitIntervalSec` belongs into [Unit] and is ignored in [Service]"
        ]
    );
}

fn check_script(exec: &str, expect: Option<&str>) {
    let unit = unit(&format!("[Service]\nExecStart={exec}\n"), &[], Files::default());
    assert_eq!(unit.facts.script.as_ref().and_then(|s| s.value.known()), expect, "{exec}");
}

#[test]
fn the_script_behind_a_unit() {
    for (exec, expect) in [
        ("/root/serve.sh", Some("/root/serve.sh")),
        ("/bin/bash -e /root/serve", Some("/root/serve")),
        ("/usr/bin/env bash /root/serve.sh --x", Some("/root/serve.sh")),
        ("/usr/bin/numactl --membind=1 /root/serve.sh", Some("/root/serve.sh")),
        ("/bin/bash -c 'srv --a'", None),
        ("/bin/srv --config x.sh", None),
    ] {
        check_script(exec, expect);
    }
}

#[test]
fn an_inline_script_goes_on_from_the_unit() {
    let read = unit(
        "[Service]\nEnvironment=A=1 B=1\nExecStart=/bin/bash -lc 'export B=2 C=${A:-x}; exec srv --port $$A --b \"$$B\"'\n",
        &[],
        Files::default(),
    );
    let expect = [("A", "1"), ("B", "2"), ("C", "1")].map(|(n, v)| (n.to_owned(), Some(v.to_owned())));
    assert_eq!(values(&read), expect);
    assert_eq!(read.declared.flag("--port").unwrap().value.known(), Some("1"));
    assert_eq!(read.declared.flag("--b").unwrap().value.known(), Some("2"));
    assert_eq!(read.declared.variables["B"].all.len(), 2);
    assert_eq!(read.declared.flag("--b").unwrap().place, Place::new(PATH, 3));
}

#[test]
fn a_container_behind_a_unit() {
    let read = unit(
        "[Service]\nEnvironment=TAG=v1 A=1\nExecStart=/usr/bin/docker run --rm -e A -e B=2 img:${TAG} python3 -m srv --tp 2\n",
        &[],
        Files::default(),
    );
    let container = read.container.as_ref().unwrap();
    assert_eq!(container.image.as_ref().unwrap().value.known(), Some("img:v1"));
    let expect = [("A", "1"), ("B", "2")].map(|(n, v)| (n.to_owned(), Some(v.to_owned())));
    assert_eq!(values(&read), expect);
    assert_eq!(read.declared.flag("--tp").unwrap().value.known(), Some("2"));
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in "[ -~\n\t]{0,200}", service in "[A-Za-z0-9$%{}'\"\\\\=;:@+! \n-]{0,80}") {
        let _ = unit(&text, &[("/etc/systemd/system/a@1.service.d/x.conf", &service)], Files::default());
        let _ = unit(&format!("[Service]\nExecStart={service}\nEnvironment={service}\n"), &[], Files::default());
    }
}
