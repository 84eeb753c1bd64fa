//! Reads a case file and explains its errors by line and key.
//!
//! Parsing is pure; only [`read_file`] touches the disk. What the keys mean stands in `case::types`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::check;
use super::fields::{Remarks, Section};
use super::gate;
use super::types::{
    Budget, Case, ClientSpec, Gate, KeySource, Manager, Patch, PauseWhen, RecallSpec, Role, ServingEngine, Target,
};
use crate::engine::diagnostic::{Diagnostic, Severity};

const ROLES: &[(&str, Role)] =
    &[("prefill", Role::Prefill), ("decode", Role::Decode), ("monolithic", Role::Monolithic), ("router", Role::Router)];
const ENGINES: &[(&str, ServingEngine)] =
    &[("sglang", ServingEngine::Sglang), ("vllm", ServingEngine::Vllm), ("llama-server", ServingEngine::LlamaServer)];
const MANAGER_FORMS: &str = "write { script = \"…\", log = \"…\" }, { systemd = \"…\" } or { docker = \"…\" }";

/// Reads the text of a case. `path` is only used to name the place in remarks.
///
/// The case is `None` where any remark is an error: what is half understood must not act on servers.
pub fn read(text: &str, path: &str) -> (Option<Case>, Vec<Diagnostic>) {
    let mut remarks = Remarks::new(path, text);
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            let at = error.span().unwrap_or(0..0);
            let message = format!("not a TOML file: {}", error.message().replace('\n', ", "));
            remarks.error("case-syntax", &at, message, "check quotes, brackets and `=` on this line");
            return (None, remarks.list);
        }
    };
    if root.get_ref().is_empty() {
        remarks.error("case-empty", &(0..0), "the case is empty".into(), "`patchbench init HOST` writes one");
        return (None, remarks.list);
    }
    let root = Section { table: root.get_ref(), at: 0..0, name: String::new() };
    let case = top(&mut remarks, &root);
    check::check(&mut remarks, &root, &case);
    let case = (!remarks.has_errors()).then_some(case);
    (case, remarks.list)
}

/// Reads a case file. Relative paths of this machine are taken from the folder of the case.
pub fn read_file(path: &Path) -> (Option<Case>, Vec<Diagnostic>) {
    let shown = path.display().to_string();
    let fail = |code: &str, message: String, hint: &str| {
        let remark = Diagnostic {
            severity: Severity::Error,
            code: code.into(),
            message,
            place: Some(shown.clone()),
            hint: Some(hint.into()),
        };
        (None, vec![remark])
    };
    let bytes = match fs_err::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return fail(
                "case-missing",
                format!("there is no case file `{shown}`"),
                "`patchbench init HOST` writes one",
            );
        }
        Err(error) => return fail("case-unreadable", error.to_string(), "check the path and its permissions"),
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.split(|b| *b == b'\n').count();
            return fail("case-not-utf8", format!("line {line} is not UTF-8"), "save the file as UTF-8");
        }
    };
    let (mut case, remarks) = read(&text, &shown);
    let folder = std::path::absolute(path).ok().and_then(|p| p.parent().map(Path::to_path_buf));
    if let (Some(case), Some(folder)) = (&mut case, folder) {
        anchor(case, &folder);
    }
    (case, remarks)
}

/// Makes the relative paths of this machine absolute.
fn anchor(case: &mut Case, folder: &Path) {
    let fix = |text: &mut String| {
        let path = PathBuf::from(&*text);
        if path.is_relative() {
            *text = folder.join(path).display().to_string();
        }
    };
    case.client.tools.iter_mut().for_each(fix);
    for patch in &mut case.patches {
        if let Gate::Reverse { diff } = &mut patch.gate {
            fix(diff);
        }
    }
    for target in case.targets.iter_mut().filter(|t| t.is_local()) {
        target.launch_script.iter_mut().for_each(fix);
        target.checkpoint.iter_mut().for_each(fix);
        target.checkout.iter_mut().for_each(fix);
        if let Manager::Script { script, log } = &mut target.manager {
            fix(script);
            fix(log);
        }
    }
}

fn top(remarks: &mut Remarks<'_>, root: &Section<'_, '_>) -> Case {
    remarks.unknown_keys(root, &["name", "entry", "target", "patch", "recall", "client", "budget"]);
    Case {
        name: remarks.required_text(root, "name", "name the incident: name = \"…\"").unwrap_or_default(),
        entry: remarks.text(root, "entry"),
        targets: remarks.sections(root, "target").iter().filter_map(|s| target(remarks, s)).collect(),
        patches: remarks.sections(root, "patch").iter().filter_map(|s| patch(remarks, s)).collect(),
        recall: recall(remarks, root),
        client: client(remarks, root),
        budget: budget(remarks, root),
    }
}

fn target(remarks: &mut Remarks<'_>, section: &Section<'_, '_>) -> Option<Target> {
    remarks.unknown_keys(
        section,
        &[
            "name",
            "role",
            "engine",
            "host",
            "become",
            "url",
            "api_key",
            "manager",
            "launch_script",
            "checkpoint",
            "checkout",
            "production",
            "readable_env",
        ],
    );
    let name = remarks.required_text(section, "name", "name the server: name = \"decode\"");
    let url = remarks.required_text(section, "url", "write it as the host sees it: url = \"http://127.0.0.1:30000\"");
    let manager = manager(remarks, section);
    let target = Target {
        role: remarks.choice(section, "role", ROLES).unwrap_or(Role::Monolithic),
        engine: remarks.choice(section, "engine", ENGINES).unwrap_or(ServingEngine::Sglang),
        host: remarks.text(section, "host").unwrap_or_else(|| "local".into()),
        become_with: remarks.text(section, "become"),
        api_key: api_key(remarks, section),
        launch_script: remarks.text(section, "launch_script").or_else(|| match &manager {
            Some(Manager::Script { script, .. }) => Some(script.clone()),
            _ => None,
        }),
        checkpoint: remarks.text(section, "checkpoint"),
        checkout: remarks.text(section, "checkout"),
        production: remarks.boolean(section, "production").unwrap_or(false),
        readable_env: remarks.boolean(section, "readable_env").unwrap_or(false),
        name: name?,
        url: url?,
        manager: manager?,
    };
    check::url(remarks, section, &target.url);
    Some(target)
}

fn manager(remarks: &mut Remarks<'_>, target: &Section<'_, '_>) -> Option<Manager> {
    if target.find("manager").is_none() {
        let message =
            format!("`{}` is missing: the target can be read, not started or stopped", target.full_name("manager"));
        remarks.add(Severity::Info, "case-no-manager", target.at.start, message, Some(MANAGER_FORMS.into()));
        return Some(Manager::Unknown);
    }
    let section = remarks.section(target, "manager")?;
    remarks.unknown_keys(&section, &["script", "log", "systemd", "docker"]);
    let given: Vec<&str> = ["script", "systemd", "docker"].into_iter().filter(|k| section.find(k).is_some()).collect();
    let [kind] = given[..] else {
        let message = if given.is_empty() {
            format!("`{}` names no manager", section.name)
        } else {
            format!("`{}` names {} managers: {}", section.name, given.len(), given.join(", "))
        };
        remarks.error("case-manager", &section.at, message, MANAGER_FORMS);
        return None;
    };
    let name = remarks.required_text(&section, kind, MANAGER_FORMS);
    match kind {
        "script" => {
            let log = remarks.required_text(&section, "log", "say which file the server's output goes to");
            Some(Manager::Script { script: name?, log: log? })
        }
        _ if section.find("log").is_some() => {
            let message = format!("`{}` goes with `script` only", section.full_name("log"));
            remarks.error("case-manager", &section.place_of("log"), message, MANAGER_FORMS);
            None
        }
        "systemd" => Some(Manager::Systemd { systemd: name? }),
        _ => Some(Manager::Docker { docker: name? }),
    }
}

fn api_key(remarks: &mut Remarks<'_>, target: &Section<'_, '_>) -> Option<KeySource> {
    const FORMS: &str = "write { env = \"NAME\" } or { command = \"…\" }; the key itself never stands in a case";
    let found = target.find("api_key")?;
    if found.value.as_table().is_none() {
        remarks.error(
            "case-key-in-clear",
            &found.at,
            format!("`{}` must say where the key is found", found.name),
            FORMS,
        );
        return None;
    }
    let section = remarks.section(target, "api_key")?;
    remarks.unknown_keys(&section, &["env", "command"]);
    match (remarks.text(&section, "env"), remarks.text(&section, "command")) {
        (Some(name), None) => Some(KeySource::Env(name)),
        (None, Some(command)) => Some(KeySource::Command(command)),
        _ => {
            remarks.error("case-key", &section.at, format!("`{}` needs exactly one source", section.name), FORMS);
            None
        }
    }
}

fn patch(remarks: &mut Remarks<'_>, section: &Section<'_, '_>) -> Option<Patch> {
    remarks.unknown_keys(
        section,
        &[
            "id",
            "title",
            "site",
            "targets",
            "phases",
            "layers",
            "gate",
            "suspect",
            "changes",
            "microtest",
            "requires",
            "excludes",
        ],
    );
    let id = remarks.required_text(section, "id", "give it a short kebab-case id");
    let gate = gate::read(remarks, section);
    let site = remarks.text(section, "site");
    let title = remarks.text(section, "title").or_else(|| site.clone());
    let changes = changes(remarks, section);
    let id = id?;
    Some(Patch {
        title: title.unwrap_or_else(|| id.clone()),
        id,
        site,
        targets: remarks.texts(section, "targets"),
        phases: remarks.texts(section, "phases"),
        layers: remarks.text(section, "layers"),
        gate,
        suspect: remarks.text(section, "suspect").unwrap_or_else(|| "on".into()),
        changes,
        microtest: remarks.text(section, "microtest"),
        requires: remarks.texts(section, "requires"),
        excludes: remarks.texts(section, "excludes"),
    })
}

fn changes(remarks: &mut Remarks<'_>, patch: &Section<'_, '_>) -> BTreeMap<String, String> {
    let Some(section) = remarks.section(patch, "changes") else { return BTreeMap::new() };
    let keys: Vec<String> = section.table.iter().map(|(k, _)| k.get_ref().as_ref().to_owned()).collect();
    keys.into_iter().filter_map(|k| remarks.text(&section, &k).map(|v| (k, v))).collect()
}

fn recall(remarks: &mut Remarks<'_>, root: &Section<'_, '_>) -> RecallSpec {
    let mut spec = RecallSpec::default();
    let Some(section) = remarks.section(root, "recall") else { return spec };
    remarks.unknown_keys(&section, &["suite", "floor", "lengths", "depths"]);
    if let Some(suite) = remarks.text(&section, "suite") {
        spec.suite = suite;
    }
    if let Some(floor) = remarks.number_in(&section, "floor", 0.0, 1.0) {
        spec.floor = floor;
    }
    if let Some(lengths) = list_in(remarks, &section, "lengths", 1.0, 1e9) {
        spec.lengths = lengths.into_iter().map(|v| v as u32).collect();
    }
    if let Some(depths) = list_in(remarks, &section, "depths", 0.0, 1.0) {
        spec.depths = depths;
    }
    spec
}

fn list_in(remarks: &mut Remarks<'_>, section: &Section<'_, '_>, key: &str, low: f64, high: f64) -> Option<Vec<f64>> {
    let items = remarks.numbers(section, key)?;
    let full = section.full_name(key);
    if items.is_empty() {
        remarks.error("case-empty-value", &section.place_of(key), format!("`{full}` is empty"), "name at least one");
    }
    for (value, at) in &items {
        if !(low..=high).contains(value) {
            let message = format!("`{full}` must hold numbers from {low} to {high}, not {value}");
            remarks.error("case-out-of-range", at, message, "see the case format");
        }
    }
    Some(items.into_iter().map(|(value, _)| value).collect())
}

fn client(remarks: &mut Remarks<'_>, root: &Section<'_, '_>) -> ClientSpec {
    let Some(section) = remarks.section(root, "client") else { return ClientSpec::default() };
    remarks.unknown_keys(&section, &["temperature", "tools"]);
    ClientSpec {
        temperature: remarks.number_in(&section, "temperature", 0.0, 100.0),
        tools: remarks.text(&section, "tools"),
    }
}

fn budget(remarks: &mut Remarks<'_>, root: &Section<'_, '_>) -> Budget {
    let mut budget = Budget::default();
    let Some(section) = remarks.section(root, "budget") else { return budget };
    remarks.unknown_keys(
        &section,
        &["concurrency", "prompt_tokens", "pause_when", "downtime_min", "restore_after_min", "drain_s"],
    );
    if let Some(concurrency) = remarks.whole(&section, "concurrency", 1) {
        budget.concurrency = u32::try_from(concurrency).unwrap_or(u32::MAX);
    }
    budget.prompt_tokens = remarks.whole(&section, "prompt_tokens", 0);
    if let Some(minutes) = remarks.number_in(&section, "downtime_min", 0.0, f64::INFINITY) {
        budget.downtime_min = minutes;
    }
    if let Some(minutes) = remarks.number_in(&section, "restore_after_min", 0.0, 1440.0) {
        budget.restore_after_min = minutes.round() as u32;
    }
    if let Some(seconds) = remarks.number_in(&section, "drain_s", 0.0, 86_400.0) {
        budget.drain_s = seconds.round() as u32;
    }
    if let Some(pause) = remarks.section(&section, "pause_when") {
        remarks.unknown_keys(&pause, &["waiting", "kv_usage"]);
        let waiting = remarks.whole(&pause, "waiting", 0).map(|v| u32::try_from(v).unwrap_or(u32::MAX));
        budget.pause_when = Some(PauseWhen { waiting, kv_usage: remarks.number_in(&pause, "kv_usage", 0.0, 1.0) });
    }
    budget
}
