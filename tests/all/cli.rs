//! The real binary: help, self-description, the JSON contract, exit statuses, broken input.

use std::path::Path;
use std::process::{Output, Stdio};

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use tempfile::TempDir;

/// A user with empty folders.
struct User {
    home: TempDir,
}

impl User {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(cargo_bin("patchbench"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home.path()).env("LANG", "C.UTF-8").current_dir(self.home.path());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command().args(line.split_whitespace()).output().unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.home.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The only line of standard output, as JSON; the status in it must be the real one.
fn json(output: &Output) -> Value {
    let text = out(output);
    assert_eq!(text.lines().count(), 1, "not one object: {text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["exit"], output.status.code().unwrap(), "{text}");
    value
}

fn assert_valid(user: &User, value: &Value) {
    let name = value["schema"].as_str().unwrap().trim_start_matches("patchbench.").trim_end_matches("/1");
    let schema: Value = serde_json::from_str(&out(&user.run(&format!("schema {name}")))).unwrap();
    let validator = jsonschema::options().with_draft(jsonschema::Draft::Draft202012).build(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path)).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}");
}

/// Runs a command with `--json`; checks status, report name and schema.
fn check_json(user: &User, line: &str, status: i32, name: &str) -> Value {
    let output = user.run(&format!("{line} --json"));
    assert_eq!(output.status.code(), Some(status), "`{line}`: {}{}", out(&output), err(&output));
    let value = json(&output);
    assert_eq!(value["schema"], format!("patchbench.{name}/1"), "`{line}`");
    assert_valid(user, &value);
    value
}

/// The help of every command, without the options that all commands share.
fn every_help(user: &User, path: &str, help: &mut String) {
    let text = out(&user.run(&format!("{path} --help")));
    let own = text.split("\nGlobal options:").next().unwrap().trim_end();
    *help = format!("{help}$ patchbench {path} --help\n{own}\n\n");
    let commands = own.split("\nCommands:\n").nth(1).unwrap_or_default();
    for line in commands.lines().take_while(|line| line.starts_with("  ")) {
        if let Some(word) = line.split_whitespace().next()
            && line.starts_with("  ")
            && !line.starts_with("   ")
            && word != "help"
        {
            every_help(user, &format!("{path} {word}"), help);
        }
    }
}

#[test]
fn help_is_as_recorded() {
    let user = User::new();
    let output = user.run("--help");
    assert!(output.status.success());
    insta::assert_snapshot!("help", out(&output));
}

#[test]
fn help_of_every_command_is_as_recorded() {
    let user = User::new();
    let mut help = String::new();
    let top = out(&user.run("--help"));
    let commands = top.split("\nCommands:\n").nth(1).unwrap();
    for line in commands.lines().take_while(|line| line.starts_with("  ")) {
        match line.split_whitespace().next() {
            Some("help") | None => {}
            Some(word) if !line.starts_with("   ") => every_help(&user, word, &mut help),
            Some(_) => {}
        }
    }
    assert!(help.contains("$ patchbench session verify --help"), "nested commands are missing");
    insta::assert_snapshot!("help-commands", help);
}

#[test]
fn every_self_description_is_valid_json_and_not_empty() {
    let user = User::new();
    assert!(!check_json(&user, "keys", 0, "keys")["keys"].as_array().unwrap().is_empty());
    assert!(!check_json(&user, "commands", 0, "commands")["commands"].as_array().unwrap().is_empty());
    assert!(!check_json(&user, "config", 0, "config")["settings"].as_array().unwrap().is_empty());
    assert!(!check_json(&user, "doctor", 0, "doctor")["checks"].as_array().unwrap().is_empty());
    assert!(!check_json(&user, "schema", 0, "schemas")["schemas"].as_array().unwrap().is_empty());
    assert!(!check_json(&user, "man", 0, "text")["text"].as_str().unwrap().is_empty());
    assert!(!check_json(&user, "completions fish", 0, "text")["text"].as_str().unwrap().is_empty());
    assert!(check_json(&user, "session list", 0, "session-list")["sessions"].as_array().unwrap().is_empty());
    assert!(check_json(&user, "truth --help", 0, "text")["text"].as_str().unwrap().contains("Usage"));
}

#[test]
fn every_schema_that_is_listed_can_be_printed() {
    let user = User::new();
    let names = out(&user.run("schema"));
    for name in names.lines() {
        let schema: Value = serde_json::from_str(&out(&user.run(&format!("schema {name}")))).unwrap();
        assert_eq!(schema["title"], format!("patchbench.{name}/1"));
    }
    let output = user.run("schema recal");
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("hint: did you mean `recall`?"), "{}", err(&output));
}

#[test]
fn every_error_is_one_valid_object() {
    let user = User::new();
    let code = |line: &str, status: i32| check_json(&user, line, status, "error")["error"]["code"].clone();
    assert_eq!(code("truth", 2), "usage");
    assert_eq!(code("no-such-command more", 2), "usage");
    assert_eq!(code("keys --no-such-flag", 2), "usage");
    assert_eq!(code("session show none", 2), "session");
    assert_eq!(code("missing.toml keys", 2), "usage");
    assert_eq!(code("elevate c.toml decode --for 3", 2), "case");
    assert_eq!(code("watch monday", 2), "not-in-this-version");
    assert_eq!(code("keys --color pink", 2), "config");
    assert_eq!(code("keys --config none.toml", 2), "config");
    let output = user.run("keys --json=stream");
    assert_eq!(json(&output)["error"]["code"], "usage");
}

#[test]
fn what_this_version_cannot_do_is_one_sentence_and_a_hint() {
    let user = User::new();
    for line in ["proxy c.toml", "report s --out d", "session diff a b"] {
        let output = user.run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(out(&output), "", "{line}");
        let text = err(&output);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{line}: {text}");
        assert!(lines[0].starts_with("error: this version cannot "), "{text}");
        assert!(lines[1].starts_with("hint: "), "{text}");
    }
}

#[test]
fn changes_reads_this_machine_and_names_what_it_cannot_tell() {
    let user = User::new();
    user.write("model/config.json", "{}");
    user.write("serve.sh", "export HF_TOKEN=hunter2\n");
    let home = user.home.path().display();
    let case = format!(
        "name = \"c\"\n[[target]]\nname = \"t\"\nrole = \"monolithic\"\nengine = \"sglang\"\nhost = \"local\"\n\
         url = \"http://127.0.0.1:9\"\nmanager = {{ script = \"{home}/serve.sh\", log = \"{home}/log\" }}\n\
         checkpoint = \"{home}/model\"\n"
    );
    user.write("c.toml", &case);
    let value = json(&user.run("changes c.toml --since 1h --json"));
    assert_valid(&user, &value);
    assert_eq!((&value["exit"], &value["error"]), (&1.into(), &Value::Null), "{value}");
    let has = |list: &str, field: &str, part: &str| {
        value[list].as_array().unwrap().iter().any(|v| v[field].as_str().unwrap().contains(part))
    };
    assert!(has("changes", "what", "model/config.json: changed") && has("changes", "kind", "launch-script"), "{value}");
    assert!(has("gaps", "what", "earlier starts") && has("gaps", "because", "nothing listens on port 9"), "{value}");
    assert!(!value.to_string().contains("hunter2"));
    let text = out(&user.run("changes c.toml --since 1h"));
    assert!(text.contains("things cannot be told"), "{text}");
    for (line, code) in
        [("changes c.toml --since soon --json", "usage"), ("changes none.toml --since 1h --json", "case")]
    {
        let value = json(&user.run(line));
        assert_eq!((&value["error"]["code"], &value["exit"]), (&code.into(), &2.into()), "{value}");
    }
}

#[test]
fn a_usage_error_goes_to_standard_error() {
    let output = User::new().run("toggle");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(out(&output), "");
    assert!(err(&output).contains("Usage:"));
}

#[test]
fn a_mistyped_command_is_named() {
    let output = User::new().run("dmeo");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(err(&output), "error: there is no case file `dmeo`\nhint: did you mean the command `demo`?\n");
}

#[test]
fn a_mistyped_command_with_arguments_is_named() {
    let user = User::new();
    let output = user.run("isolat case.toml");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(err(&output), "error: there is no case file `isolat`\nhint: did you mean the command `isolate`?\n");
    assert_eq!(check_json(&user, "isolat case.toml", 2, "error")["error"]["code"], "case");
}

#[test]
fn a_figure_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let user = User::new();
    let refused = |line: &str, message: &str| {
        let value = check_json(&user, line, 2, "error");
        assert_eq!(value["error"]["message"], message, "{line}");
    };
    refused("micro norm --figure x.pdf", "a figure ends in `.svg` or `.png`, which `x.pdf` does not");
    refused("micro norm router --figure x.svg", "`x.svg` holds one microtest, and 2 are asked for");
    refused("micro norm --csv no/x.csv", "`no/x.csv` cannot be written: its folder does not exist");
    let left = fs_err::read_dir(user.home.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| name.starts_with('.')), "only the user's own folders are there");
}

#[test]
fn a_microtest_is_drawn_and_written_from_the_same_numbers() {
    let user = User::new();
    let line = "micro quantise --figure one.png --figure all --csv points.csv";
    let output = user.run(&format!("{line} --json"));
    let value = json(&output);
    assert_valid(&user, &value);
    let files: Vec<&str> = value["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert!(files.len() > 8 && files[0] == "one.png", "{files:?}");
    for file in &files {
        let bytes = fs_err::read(user.home.path().join(file)).unwrap();
        let good = match file.rsplit('.').next() {
            Some("png") => bytes.starts_with(b"\x89PNG"),
            Some("svg") => bytes.starts_with(b"<svg ") && bytes.ends_with(b"</svg>\n"),
            _ => bytes.starts_with(b"spec,device,"),
        };
        assert!(good, "{file}");
    }
    let curve = &value["reports"][0]["curves"][0];
    let first = format!("{:e}", curve["rel_l2"][0].as_f64().unwrap());
    let text = fs_err::read_to_string(user.home.path().join("points.csv")).unwrap();
    let candidate = curve["candidate"].as_str().unwrap();
    let row = text.lines().find(|l| l.contains(&format!(",candidate,{candidate},"))).unwrap();
    let written: f64 =
        row.split(',').rfind(|c| c.parse::<f64>().is_ok_and(|v| format!("{v:e}") == first)).unwrap().parse().unwrap();
    assert_eq!(written, curve["rel_l2"][0].as_f64().unwrap(), "{row}");
}

#[test]
fn an_unknown_microtest_is_a_usage_error_that_names_the_known_ones() {
    let user = User::new();
    let value = check_json(&user, "micro nosuch", 2, "error");
    assert!(value["error"]["hint"].as_str().unwrap().contains("mhc-mix"), "{value}");
    assert!(value["session"].is_null());
}

#[test]
fn a_command_that_only_looks_leaves_no_session() {
    let user = User::new();
    user.write(
        "case.toml",
        "name = \"c\"\n[[target]]\nname = \"s\"\nrole = \"monolithic\"\nengine = \"sglang\"\nhost = \"local\"\n\
         url = \"http://127.0.0.1:9\"\nmanager = { script = \"serve.sh\", log = \"serve.log\" }\n",
    );
    let output = user.run("truth case.toml --json");
    let value = json(&output);
    assert_eq!(value["schema"], "patchbench.truth/1");
    assert!(value["session"].is_null());
    assert!(check_json(&user, "session list", 0, "session-list")["sessions"].as_array().unwrap().is_empty());
}

#[test]
fn lab_serve_with_json_is_one_error_object() {
    let user = User::new();
    assert_eq!(check_json(&user, "lab serve --deployment d", 2, "error")["error"]["code"], "usage");
}

#[test]
fn completions_name_the_commands() {
    let user = User::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = user.run(&format!("completions {shell}"));
        assert!(output.status.success());
        assert!(out(&output).contains("isolate"), "{shell}");
    }
}

#[test]
fn the_manual_is_roff() {
    let text = out(&User::new().run("man"));
    assert!(text.contains(".TH patchbench 1"), "{text}");
    assert!(text.contains(".SH \"PATCHBENCH ISOLATE\""));
}

#[test]
fn the_manual_renders() {
    let user = User::new();
    let page = out(&user.run("man"));
    // `man` is not installed everywhere; where it is, it must accept the page without a warning.
    let Ok(mut man) = std::process::Command::new("man")
        .args(["--warnings", "-l", "-"])
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        eprintln!("SKIP the_manual_renders: `man` is not installed");
        return;
    };
    std::io::Write::write_all(&mut man.stdin.take().unwrap(), page.as_bytes()).unwrap();
    let output = man.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(err(&output), "");
}

#[test]
fn a_broken_configuration_names_file_line_and_the_nearest_key() {
    let user = User::new();
    user.write(".config/patchbench/config.toml", "# colours\ntheme = \"default\"\nlayuot = \"kernels\"\n");
    let output = user.run("keys");
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    assert!(text.contains("patchbench/config.toml:3: there is no setting `layuot`"), "{text}");
    assert!(text.contains("hint: did you mean `layout`?"), "{text}");
    assert_eq!(check_json(&user, "keys", 2, "error")["error"]["code"], "config");
}

#[test]
fn doctor_runs_where_the_configuration_is_broken() {
    let user = User::new();
    user.write(".config/patchbench/config.toml", "nonsense\n");
    let value = check_json(&user, "doctor", 0, "doctor");
    assert!(value["diagnostics"].as_array().unwrap().iter().any(|d| d["code"] == "config"));
}

#[test]
fn every_layer_of_the_configuration_is_named() {
    let user = User::new();
    user.write(".config/patchbench/config.toml", "theme = \"dark\"\nlog = \"warn\"\n");
    let output = user.command().args(["config", "--json", "--ascii"]).env("PATCHBENCH_THEME", "mono").output().unwrap();
    let value = json(&output);
    assert_valid(&user, &value);
    let setting = |key: &str| {
        let settings = value["settings"].as_array().unwrap();
        settings.iter().find(|s| s["key"] == key).unwrap().clone()
    };
    assert_eq!((&setting("theme")["value"], &setting("theme")["origin"]["kind"]), (&"mono".into(), &"env".into()));
    assert_eq!(setting("log")["origin"]["line"], 2);
    assert_eq!(setting("ascii")["origin"]["name"], "--ascii");
    assert_eq!(setting("layout")["origin"]["kind"], "default");
}

#[test]
fn colour_is_off_in_a_pipe_and_on_when_asked_for() {
    let user = User::new();
    assert!(!out(&user.run("keys")).contains('\u{1b}'));
    assert!(out(&user.run("keys --color always")).contains('\u{1b}'));
    assert!(!err(&user.run("init x")).contains('\u{1b}'));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let user = User::new();
    let mut child = std::process::Command::new(cargo_bin("patchbench"))
        .arg("man")
        .env("HOME", user.home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(err(&output), "");
}

#[test]
fn a_full_disk_under_standard_output_is_said() {
    let user = User::new();
    let full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = std::process::Command::new(cargo_bin("patchbench"))
        .arg("keys")
        .env("HOME", user.home.path())
        .stdout(full.into_file())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("standard output cannot be written"), "{}", err(&output));
}

#[test]
fn a_home_that_cannot_be_written_is_a_remark_and_a_finding_of_the_doctor() {
    let user = User::new();
    user.write("file", "");
    let state = user.home.path().join("file/state");
    let run = |line: &str| user.command().args(line.split(' ')).env("XDG_STATE_HOME", &state).output().unwrap();
    let keys = run("keys");
    assert!(keys.status.success());
    assert!(err(&keys).starts_with("warning: there is no log of this run"), "{}", err(&keys));
    let doctor = json(&run("doctor --json"));
    assert_eq!(doctor["exit"], 1);
    assert_valid(&user, &doctor);
}

#[test]
fn the_log_goes_to_a_file_and_never_to_the_terminal() {
    let user = User::new();
    let output = user.run("keys --log trace");
    assert_eq!(err(&output), "");
    assert!(Path::new(&user.home.path().join(".local/state/patchbench/log")).is_dir());
}

#[test]
fn a_host_without_certificates_could_not_speak_plain_http() {
    use std::io::BufRead as _;
    let user = User::new();
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let none = user.home.path().join("none");
    let mut server = std::process::Command::new(crate::common::program())
        .args(["lab", "serve", "--host", "127.0.0.1", "--port", &port.to_string()])
        .env("SSL_CERT_FILE", &none)
        .env("SSL_CERT_DIR", &none)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|l| l.contains("ready to roll"));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(ready, "the server ended before it was ready");
}

const LOSS_BEFORE: &str = "\
import torch


class Model:
    def forward(self, x):
        y = x.float()
        return self.proj(y)
";

const LOSS_AFTER: &str = "\
import math

import torch


class Model:
    def forward(self, x):
        y = x.to(torch.bfloat16)
        y = y * math.sqrt(2)
        return self.proj(y)
";

/// A repository in `tree` with a commit for each text of `python/a.py`.
fn repository(user: &User, texts: &[&str]) {
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=A", "-c", "user.email=a@example.invalid"]).args(words);
        command.current_dir(user.home.path().join("tree")).env("HOME", user.home.path());
        let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
        assert!(output.status.success(), "git {words:?}: {}", err(&output));
    };
    for (at, text) in texts.iter().enumerate() {
        user.write("tree/python/a.py", text);
        if at == 0 {
            git(&["init", "-q"]);
        }
        git(&["add", "."]);
        git(&["commit", "-q", "-m", ["base", "Lower the precision", "Add a word"][at]]);
    }
}

/// The text of a file once git has applied a diff of this folder to the tree.
fn applied(user: &User, words: &[&str], diff: &str) -> String {
    let mut git = std::process::Command::new("git");
    git.arg("apply").args(words).arg(user.home.path().join(diff)).current_dir(user.home.path().join("tree"));
    let output = git.output().unwrap();
    assert!(output.status.success(), "git apply {diff}: {}", err(&output));
    fs_err::read_to_string(user.home.path().join("tree/python/a.py")).unwrap()
}

#[test]
fn a_patch_of_a_range_is_put_under_a_variable_by_a_diff_that_git_applies() {
    let user = User::new();
    let last = format!("{LOSS_AFTER}\n\n# The end.\n");
    repository(&user, &[LOSS_BEFORE, LOSS_AFTER, &last]);
    let range = "HEAD~2..HEAD --checkout tree";
    let import = check_json(&user, &format!("patches import {range}"), 0, "patches-import");
    let id = import["entries"][0]["id"].as_str().unwrap();
    let report = check_json(&user, &format!("patches guard {id} --of {range}"), 0, "patches-guard");
    let variable = format!("PATCHBENCH_{}", id.to_uppercase().replace('-', "_"));
    assert_eq!((report["variable"].as_str(), report["guards"].as_u64()), (Some(variable.as_str()), Some(1)));
    let remark = "the import of `math` stays: nothing else had that name";
    assert_eq!(report["remarks"], serde_json::json!([{ "place": "python/a.py:1", "text": remark }]));
    let gate = format!("gate = {{ env = \"{variable}\", levels = {{ on = {{ unset = true }}, off = \"0\" }} }}");
    assert!(report["case_text"].as_str().unwrap().contains(&gate), "{report}");
    let printed = user.run(&format!("patches guard {id} --of {range} --variable P"));
    assert_eq!(err(&printed), format!("warning: {remark} (python/a.py:1)\n"));
    user.write("guard.diff", &out(&printed));
    insta::assert_snapshot!(applied(&user, &[], "guard.diff"), @r#"
    import os
    import math

    import torch


    class Model:
        def forward(self, x):
            if os.environ.get("P", "1") == "1":
                y = x.to(torch.bfloat16)
                y = y * math.sqrt(2)
            else:
                y = x.float()
            return self.proj(y)


    # The end.
    "#);
}

#[test]
fn a_patch_that_no_variable_can_switch_is_refused_with_its_place() {
    let user = User::new();
    repository(&user, &[LOSS_BEFORE, &LOSS_BEFORE.replace("self, x)", "self, x, mask=None)")]);
    let id = check_json(&user, "patches import HEAD~1..HEAD --checkout tree", 0, "patches-import")["entries"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let guard = |rest: &str, status| {
        let report = check_json(&user, &format!("patches guard {rest}"), status, "patches-guard");
        assert!(report["diff"].is_null() && report["gate"].is_null(), "{report}");
        report["error"].clone()
    };
    let error = guard(&format!("{id} --of HEAD~1..HEAD --checkout tree"), 3);
    let message = format!(
        "python/a.py:5: no variable can switch `{id}`: the patch changes how `forward` is defined, not only what it does"
    );
    assert_eq!((error["code"].as_str(), error["message"].as_str()), (Some("refused"), Some(message.as_str())));
    let wrong = |rest: &str, expect: &str| {
        let output = user.run(&format!("patches guard {rest}"));
        assert_eq!((output.status.code(), err(&output).as_str()), (Some(2), expect));
    };
    wrong(
        &format!("{id}x --of HEAD~1..HEAD --checkout tree"),
        &format!("error: `HEAD~1..HEAD` holds no patch `{id}x`\nhint: did you mean `{id}`?\n"),
    );
    wrong(
        &format!("{id} --of HEAD~1..HEAD --checkout tree --variable 1-2"),
        "error: `1-2` can be no name of a variable\nhint: give `--variable NAME` of letters, digits and `_`\n",
    );
}

#[test]
fn each_imported_patch_is_written_as_a_diff_of_its_own_that_can_be_taken_out() {
    let user = User::new();
    let last = format!("{LOSS_AFTER}\n\n# The end.\n");
    repository(&user, &[LOSS_BEFORE, LOSS_AFTER, &last]);
    let line = "patches import HEAD~2..HEAD --checkout tree --toml";
    assert!(!out(&user.run(line)).contains("reverse"));
    let text = out(&user.run(&format!("{line} --diffs d")));
    let diffs: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix("gate = { reverse = \"")?.split('"').next()).collect();
    assert_eq!(diffs.len(), 2, "{text}");
    assert_eq!(applied(&user, &["-R"], diffs[1]), LOSS_AFTER);
    assert_eq!(applied(&user, &["-R"], diffs[0]), LOSS_BEFORE);
    // The same again is nothing new; another content stays.
    assert_eq!(out(&user.run(&format!("{line} --diffs d"))), text);
    user.write(diffs[0], "mine\n");
    let output = user.run(&format!("{line} --diffs d"));
    assert_eq!(output.status.code(), Some(2));
    let expect = format!(
        "error: `{}` is there with another content, and no diff was written\nhint: name an empty folder with `--diffs DIR`\n",
        diffs[0]
    );
    assert_eq!((err(&output), out(&output)), (expect, String::new()));
}
