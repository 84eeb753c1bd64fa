//! Reads the three layers of a target: launch script, process, and what the server says.
//!
//! Not responsible for the log grammar nor for comparing. A layer that cannot be read becomes a
//! diagnostic and leaves the others as they are.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::compare::{self, Layers};
use super::{ServerStatus, TargetTruth, flags};
use crate::case::{Case, Manager, Patch, Target};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::job::JobContext;
use crate::engine::live::Live;
use crate::engine::procedure::Failure;
use crate::redact;
use crate::remote::owner::{self, Marks, Running};
use crate::remote::proc::Unknown;
use crate::remote::script;
use crate::remote::{Folders, http, levels, local, procedures};
use crate::truth::declared::Declared;

/// Reads a target, with our overrides in the standard folder.
///
/// # Errors
/// The case has no such target, or the user has no home folder.
pub async fn probe(case: &Case, target: &str, ctx: &JobContext) -> Result<TargetTruth, Failure> {
    probe_in(&Folders::standard()?, case, target, ctx).await
}

/// Reads a target.
///
/// # Errors
/// The case has no such target.
pub async fn probe_in(folders: &Folders, case: &Case, target: &str, ctx: &JobContext) -> Result<TargetTruth, Failure> {
    let target = case.target(target).ok_or_else(|| Failure::new(format!("the case has no target `{target}`")))?;
    let overrides = folders.overrides.display().to_string();
    ctx.progress(0, Some(2), "reading the host");
    let mut seen = if target.is_local() {
        let own = target.clone();
        tokio::task::spawn_blocking(move || look(&own, &overrides))
            .await
            .map_err(|e| Failure::new(format!("reading broke off: {e}")))?
    } else {
        let message = format!("`{}` runs on `{}`, and only this machine can be read yet", target.name, target.host);
        Seen { diagnostics: vec![Diagnostic::warning("remote-host", message)], ..Seen::default() }
    };
    ctx.progress(1, Some(2), "asking the server");
    let mut status = seen.status();
    if matches!(seen.owner, Owner::Own(_)) || !target.is_local() {
        status = ask(target, &mut seen, status).await;
    }
    let patches: Vec<&Patch> =
        case.patches.iter().filter(|p| p.targets_in(case).any(|t| t.name == target.name)).collect();
    let rows = compare::rows(&seen.layers, &patches);
    let (levels, level_sources) = patch_levels(&seen.layers, &patches);
    let process = match &seen.owner {
        Owner::Own(running) => Some(running.process.key),
        Owner::Nobody | Owner::Stranger | Owner::NotRead => None,
    };
    Ok(TargetTruth {
        target: target.name.clone(),
        at: Timestamp::now(),
        status,
        process,
        rows,
        levels,
        level_sources,
        diagnostics: seen.diagnostics,
    })
}

/// What the host shows.
#[derive(Default)]
struct Seen {
    layers: Layers,
    owner: Owner,
    diagnostics: Vec<Diagnostic>,
}

#[derive(Default)]
enum Owner {
    Own(Running),
    Nobody,
    Stranger,
    #[default]
    NotRead,
}

impl Seen {
    fn status(&self) -> ServerStatus {
        match self.owner {
            Owner::Own(_) => ServerStatus::Loading,
            Owner::Nobody => ServerStatus::Down,
            Owner::Stranger | Owner::NotRead => ServerStatus::Unknown,
        }
    }

    fn say(&mut self, code: &str, failure: Failure, place: &str) {
        self.diagnostics.push(Diagnostic {
            severity: Severity::Warning,
            code: code.into(),
            message: failure.message,
            place: Some(place.to_owned()),
            hint: failure.hint,
        });
    }
}

fn look(target: &Target, overrides: &str) -> Seen {
    let mut seen = Seen { layers: Layers { target: target.name.clone(), ..Layers::default() }, ..Seen::default() };
    let path = match &target.manager {
        Manager::Script { script, .. } => Some(script),
        Manager::Systemd { .. } | Manager::Docker { .. } => target.launch_script.as_ref(),
    };
    if let Some(path) = path {
        seen.layers.declared = read_declared(&mut seen, path, target.port());
    }
    let Some(port) = target.port() else {
        seen.say("no-port", Failure::new("the url has no port"), &target.url);
        return seen;
    };
    let declared = seen.layers.declared.as_ref();
    let argv = declared.map(|d| d.argv.clone()).unwrap_or_default();
    let marks = Marks { script: path.map_or("", String::as_str), overrides, argv: &argv };
    let running = if argv.is_empty() { owner_by_port(port) } else { owner::running(&target.name, port, &marks) };
    match running {
        Ok(Some(running)) => {
            let pid = running.process.key.pid;
            let (environ, cmdline) = (local::environ(pid), local::cmdline(pid));
            for (name, unread) in [("environ", environ.as_ref().err()), ("cmdline", cmdline.as_ref().err())] {
                if let Some(Unknown(why)) = unread {
                    let failure = Failure::new(why.clone()).hint("read the process that started it");
                    seen.say("process-unread", failure, &format!("/proc/{pid}/{name}"));
                }
            }
            if let Some(file) = running.started_from.as_deref().filter(|f| f.starts_with(overrides)) {
                seen.layers.replaced = read_declared(&mut seen, file, target.port()).map(|d| (file.to_owned(), d));
            }
            seen.layers.process = Some((pid, environ, cmdline));
            seen.owner = Owner::Own(running);
        }
        Ok(None) => seen.owner = Owner::Nobody,
        Err(failure) => {
            seen.owner = Owner::Stranger;
            seen.say("port-owner", failure, &target.url);
        }
    }
    seen
}

/// Without a script that declares a server, the port's word is all there is.
fn owner_by_port(port: u16) -> Result<Option<Running>, Failure> {
    match local::port_owner(port) {
        local::PortOwner::Nobody => Ok(None),
        local::PortOwner::Process(process) => Ok(Some(Running { process, started_from: None, launcher: None })),
        local::PortOwner::Unknown(Unknown(why)) => Err(Failure::new(why)),
    }
}

fn read_declared(seen: &mut Seen, path: &str, port: Option<u16>) -> Option<Declared> {
    let read = procedures::read_script(path).and_then(|text| script::parse(&text));
    match read {
        Ok(script) => {
            let mut declared = script::declared(&script, path, port);
            seen.diagnostics.append(&mut declared.diagnostics);
            Some(declared)
        }
        Err(failure) => {
            seen.say("script-unread", failure, path);
            None
        }
    }
}

/// Asks the server who it is and what it resolved; says whether it serves.
async fn ask(target: &Target, seen: &mut Seen, status: ServerStatus) -> ServerStatus {
    let endpoint = match http::endpoint(target).await {
        Ok(endpoint) => endpoint,
        Err(failure) => {
            seen.say("no-client", failure, &target.url);
            return status;
        }
    };
    if let Err(error) = endpoint.identity().await {
        seen.say("not-ready", Failure::new(format!("the server does not serve: {error}")), &target.url);
        return status;
    }
    seen.layers.observed = Some(match endpoint.configuration().await {
        Ok((url, answer)) => Ok((url, flags::observed(&answer))),
        Err(error) => {
            let why = format!("the server's configuration cannot be read: {error}");
            seen.say("configuration-unread", Failure::new(why.clone()), &target.url);
            Err(why)
        }
    });
    ServerStatus::Ready
}

type Levels = BTreeMap<String, Option<String>>;

fn patch_levels(layers: &Layers, patches: &[&Patch]) -> (Levels, BTreeMap<String, String>) {
    let Some((pid, environ, cmdline)) = &layers.process else {
        let none = patches.iter().map(|p| (p.id.clone(), None)).collect();
        let why = patches.iter().map(|p| (p.id.clone(), "no process was read".to_owned())).collect();
        return (none, why);
    };
    let mut levels = BTreeMap::new();
    let mut sources = BTreeMap::new();
    for (patch, reading) in levels::read(patches.iter().copied(), *pid, environ, cmdline) {
        let source = match &reading.level {
            Ok(_) => format!("{}: {}", reading.source, reading.seen),
            Err(Unknown(why)) => redact::text(&format!("{}: {why}", reading.source)),
        };
        sources.insert(patch.clone(), source);
        levels.insert(patch, reading.level.ok());
    }
    (levels, sources)
}

/// Reads the load of a server once.
///
/// # Errors
/// It does not answer, or with another form.
pub async fn load_once(target: &Target) -> Result<Live, Diagnostic> {
    let endpoint = http::endpoint(target).await.map_err(|f| Diagnostic::warning("load", f.message))?;
    let (url, answer) =
        endpoint.load_answer().await.map_err(|e| Diagnostic::warning("load", e.to_string()).at(target.url.clone()))?;
    let values = load_values(&answer);
    if values.is_empty() {
        return Err(Diagnostic::warning("load", "the answer holds no load").at(url));
    }
    Ok(Live::Load { target: target.name.clone(), at: Timestamp::now(), values })
}

/// The load over all ranks: requests and throughput are added up, of shares the largest counts.
fn load_values(answer: &Value) -> BTreeMap<String, f64> {
    const NAMES: &[(&str, &str, bool)] = &[
        ("num_running_reqs", "running", true),
        ("num_waiting_reqs", "waiting", true),
        ("gen_throughput", "gen_throughput", true),
        ("num_used_tokens", "used_tokens", true),
        ("token_usage", "kv_usage", false),
        ("cache_hit_rate", "cache_hit_rate", false),
    ];
    let ranks: Vec<&Value> =
        answer.get("loads").and_then(Value::as_array).map(|l| l.iter().collect()).unwrap_or_default();
    let mut out = BTreeMap::new();
    for (key, name, adds) in NAMES {
        let all: Vec<f64> = ranks.iter().filter_map(|r| r.get(*key)?.as_f64()).collect();
        if !all.is_empty() {
            let value = if *adds { all.iter().sum() } else { all.iter().copied().fold(f64::MIN, f64::max) };
            out.insert((*name).to_owned(), value);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::remote::execute::tests::{bench, running};
    use crate::truth::{Known, RowStatus};

    #[test]
    fn load_of_several_ranks() {
        let answer = json!({"loads": [
            {"num_running_reqs": 2, "num_waiting_reqs": 1, "token_usage": 0.2},
            {"num_running_reqs": 3, "num_waiting_reqs": 0, "token_usage": 0.6, "cache_hit_rate": 0.5},
        ]});
        let expect = [("cache_hit_rate", 0.5), ("kv_usage", 0.6), ("running", 5.0), ("waiting", 1.0)];
        let values: Vec<(String, f64)> = load_values(&answer).into_iter().collect();
        assert_eq!(values, expect.map(|(n, v)| (n.to_owned(), v)));
        assert!(load_values(&json!({"loads": "x"})).is_empty());
    }

    #[tokio::test]
    async fn three_layers_of_a_real_server() {
        let bench = bench();
        let (ctx, _ends) = bench.context();
        let down = probe_in(&bench.folders, &bench.case, "lab", &ctx).await.unwrap();
        assert_eq!((down.status, down.process), (ServerStatus::Down, None));
        assert!(down.rows.iter().any(|r| r.name == "PB_X" && r.declared.is_some()));
        assert_eq!(down.levels["x"], None);
        assert!(load_once(&bench.case.targets[0]).await.is_err());

        let proof = bench.change(running(&[("x", "off")])).await;
        let truth = probe_in(&bench.folders, &bench.case, "lab", &ctx).await.unwrap();
        assert_eq!((truth.status, truth.process), (ServerStatus::Ready, Some(proof.process)));
        assert_eq!(truth.levels["x"].as_deref(), Some("off"));
        assert_eq!(truth.levels["mode"].as_deref(), Some("fp32"));
        assert_eq!(truth.levels["source"], None);
        assert!(truth.level_sources["x"].contains("PB_X is absent"), "{}", truth.level_sources["x"]);
        let row = |name: &str| truth.rows.iter().find(|r| r.name == name).unwrap();
        assert_eq!(row("PB_X").status, RowStatus::OverriddenBy);
        assert_eq!(row("PB_X").declared.as_ref().unwrap().line, Some(5));
        assert_eq!(
            (row("--mode").status, row("--mode").observed.as_ref().unwrap().known.clone()),
            (RowStatus::Agrees, Known::Yes)
        );
        assert_eq!(row("--tp-size").note, "default in effect");
        let json = serde_json::to_string(&truth).unwrap();
        assert!(!json.contains("hf_secret1") && !json.contains("hunter2"));
        let Ok(Live::Load { values, .. }) = load_once(&bench.case.targets[0]).await else { panic!() };
        assert_eq!((values["running"], values["kv_usage"]), (2.0, 0.25));
    }

    #[tokio::test]
    async fn a_broken_script_leaves_the_other_layers() {
        let bench = bench();
        let (ctx, _ends) = bench.context();
        bench.change(running(&[])).await;
        fs_err::remove_file(bench.folder.path().join("serve.sh")).unwrap();
        let truth = probe_in(&bench.folders, &bench.case, "lab", &ctx).await.unwrap();
        assert_eq!(truth.status, ServerStatus::Ready);
        assert!(truth.rows.iter().any(|r| r.name == "PB_X" && r.declared.is_none()));
        assert!(truth.diagnostics.iter().any(|d| d.message.contains("does not exist")));
    }
}
