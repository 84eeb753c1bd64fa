//! Tells model servers from everything else that listens, and what started each. Pure, over probes.

use super::{Fact, Keeper, Server};
use crate::case::{Role, ServingEngine};
use crate::remote::argv::{self, Word};
use crate::remote::probe::owner::{is_shell, lineage};
use crate::remote::probe::types::{PortOwners, Probe, Process};
use crate::remote::proc::{Cmdline, Unknown};

/// Identity of a program, its engine, and its role where the program alone tells it.
type Program = (&'static str, ServingEngine, Option<Role>);

/// Programs that are model servers, by what `argv::identity` says of their command line.
const PROGRAMS: &[Program] = &[
    ("-m sglang.launch_server", ServingEngine::Sglang, None),
    ("sglang serve", ServingEngine::Sglang, None),
    ("patchbench lab", ServingEngine::Sglang, None),
    ("-m sglang_router", ServingEngine::Sglang, Some(Role::Router)),
    ("-m sglang_router.launch_router", ServingEngine::Sglang, Some(Role::Router)),
    ("-m sglang_router.launch_server", ServingEngine::Sglang, Some(Role::Router)),
    ("sglang-router", ServingEngine::Sglang, Some(Role::Router)),
    ("vllm serve", ServingEngine::Vllm, None),
    ("-m vllm.entrypoints.openai.api_server", ServingEngine::Vllm, None),
    ("llama-server", ServingEngine::LlamaServer, None),
];

/// The model servers among the owners of the ports that were asked for.
pub fn servers(probe: &Probe) -> Vec<Server> {
    let mut out: Vec<Server> = Vec::new();
    for (port, owners) in &probe.ports {
        let PortOwners::Processes(pids) = owners else { continue };
        let Some(pid) = pids.first().copied() else { continue };
        let Some(mut server) = server(probe, *port, pid) else { continue };
        // A server has further ports, such as those of its ranks; the one that it was told is the one for clients.
        match out.iter().position(|s| s.pid == pid) {
            Some(place) if told_port(probe, pid) == Some(*port) => {
                server.links.clone_from(&out[place].links);
                out[place] = server;
            }
            Some(_) => {}
            None => out.push(server),
        }
    }
    out
}

/// Ports whose owner is not known, with the reason.
pub fn unknown_owners(probe: &Probe) -> Vec<(u16, String)> {
    let why = |(port, owners): (&u16, &PortOwners)| match owners {
        PortOwners::Unknown(Unknown(why)) => Some((*port, why.clone())),
        PortOwners::Nobody | PortOwners::Processes(_) => None,
    };
    probe.ports.iter().filter_map(why).collect()
}

/// Index, name and memory of each card; none where they could not be read.
pub fn cards(probe: &Probe) -> Vec<String> {
    let list = probe.gpus.as_ref().and_then(|g| g.list.as_ref().ok());
    let shown = |row: &Vec<crate::untrusted::Untrusted>| {
        let field = |i: usize| row.get(i).map(|f| f.visible(60)).unwrap_or_default();
        format!("{}: {}, {} MiB, driver {}", field(0), field(2), field(4), field(3))
    };
    list.into_iter().flatten().map(shown).collect()
}

fn words(process: &Process) -> Option<Vec<Word>> {
    match process.cmdline.as_ref().ok()? {
        Cmdline::Words(words) => Some(argv::known(words)),
        Cmdline::Title(_) => None,
    }
}

/// The command line that says what a server is: its own, or that of what started it where a title stands in its place.
fn telling<'p>(probe: &'p Probe, pid: u32) -> Option<(u32, Vec<Word>, &'static Program)> {
    lineage(probe, pid).into_iter().filter(|(_, p)| !is_shell(p)).find_map(|(pid, process): (u32, &'p Process)| {
        let words = words(process)?;
        let program = program_of(&words)?;
        Some((pid, words, program))
    })
}

/// The model server that a command line starts.
fn program_of(words: &[Word]) -> Option<&'static Program> {
    let identity = argv::identity(words)?;
    let same = |name: &str| identity == name || (!name.contains(' ') && identity.split(' ').next() == Some(name));
    PROGRAMS.iter().find(|(name, ..)| same(name))
}

/// Whether a command line starts a model server.
pub fn is_server_command(words: &[Word]) -> bool {
    program_of(words).is_some()
}

/// Whether a process, or what started it, is a model server by its command line.
pub fn is_model_server(probe: &Probe, pid: u32) -> bool {
    telling(probe, pid).is_some()
}

fn told_port(probe: &Probe, pid: u32) -> Option<u16> {
    let (_, words, _) = telling(probe, pid)?;
    flag(&words, &["--port", "-p"])?.parse().ok()
}

fn flag(words: &[Word], names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| argv::flag_value(words, name, true).ok().flatten()).filter(|v| !v.is_empty())
}

fn server(probe: &Probe, port: u16, pid: u32) -> Option<Server> {
    let (told_by, words, (_, engine, fixed_role)) = telling(probe, pid)?;
    let source = format!("/proc/{told_by}/cmdline");
    let mode = flag(&words, &["--disaggregation-mode", "--role"]);
    let role = match (fixed_role, mode.as_deref()) {
        (Some(role), _) => *role,
        (None, Some("prefill")) => Role::Prefill,
        (None, Some("decode")) => Role::Decode,
        (None, Some("router")) => Role::Router,
        (None, _) => Role::Monolithic,
    };
    let process = probe.processes.get(&pid)?;
    let script = script(probe, pid);
    let keeper = keeper(process, pid).or_else(|| {
        let script = script.as_ref()?;
        let log = process.out.as_ref().ok().filter(|f| f.starts_with('/') && !f.starts_with("/dev/")).cloned();
        let from = match &log {
            Some(_) => format!("{}; output: /proc/{pid}/fd/1", script.source),
            None => script.source.clone(),
        };
        Some(Fact::new(Keeper::Script { script: script.value.clone(), log }, from))
    });
    Some(Server {
        pid,
        port,
        engine: Fact::new(*engine, source.clone()),
        role: Fact::new(role, source.clone()),
        keeper,
        script,
        model: model(&words).map(|m| Fact::new(m, source.clone())),
        checkout: None,
        has_key: argv::flags(&words).iter().any(|f| f.name == "--api-key" || f.name == "--admin-api-key"),
        links: links(&words),
        cards: used_cards(probe, pid),
    })
}

fn model(words: &[Word]) -> Option<String> {
    let given = flag(words, &["--model-path", "--model", "-m", "--checkpoint"]).filter(|m| !m.starts_with("sglang"));
    given.or_else(|| {
        // `vllm serve MODEL` has it as its operand.
        let serve = words.iter().position(|w| w.as_deref() == Some("serve"))?;
        words.get(serve + 1)?.clone().filter(|w| !w.starts_with('-'))
    })
}

/// URLs after the flags by which a router is told its servers.
fn links(words: &[Word]) -> Vec<(Role, String)> {
    const FLAGS: &[(&str, Role)] =
        &[("--prefill", Role::Prefill), ("--decode", Role::Decode), ("--worker-urls", Role::Monolithic)];
    let mut out = Vec::new();
    for used in argv::flags(words) {
        let Some((_, role)) = FLAGS.iter().find(|(name, _)| *name == used.name) else { continue };
        let given: Vec<String> = match used.value {
            argv::FlagValue::None => Vec::new(),
            argv::FlagValue::Joined(value) => vec![value],
            argv::FlagValue::Words(range) => words[range].iter().flatten().cloned().collect(),
        };
        out.extend(given.into_iter().filter(|g| g.contains("://")).map(|url| (*role, url)));
    }
    out
}

/// The unit or container of a process, from its control group.
fn keeper(process: &Process, pid: u32) -> Option<Fact<Keeper>> {
    let groups = process.cgroup.as_ref().ok()?;
    let source = format!("/proc/{pid}/cgroup");
    for path in groups.raw().lines().filter_map(|l| l.rsplit_once(':')).map(|(_, path)| path) {
        for part in path.rsplit('/') {
            if let Some(id) = container_id(part) {
                return Some(Fact::new(Keeper::Container(id.to_owned()), source));
            }
            // Sessions of ssh and the user's own manager keep everything that was started by hand.
            let by_hand = part.starts_with("ssh") || part.starts_with("user@") || part.starts_with("getty@");
            if part.ends_with(".service") && !by_hand {
                return Some(Fact::new(Keeper::Unit(part.to_owned()), source));
            }
        }
    }
    None
}

fn container_id(part: &str) -> Option<&str> {
    let id = part.strip_prefix("docker-").or_else(|| part.strip_prefix("libpod-")).unwrap_or(part);
    let id = id.strip_suffix(".scope").unwrap_or(id);
    (id.len() == 64 && id.chars().all(|c| c.is_ascii_hexdigit())).then(|| &id[..12])
}

/// Whether a word names a shell script.
fn is_script(word: &str) -> bool {
    word.strip_suffix(".sh").is_some_and(|stem| !stem.is_empty())
}

/// The script that a shell above the server runs.
fn script(probe: &Probe, pid: u32) -> Option<Fact<String>> {
    lineage(probe, pid).into_iter().filter(|(_, p)| is_shell(p)).find_map(|(shell, process)| {
        let words = process.cmdline.as_ref().ok()?.words().ok()?;
        let file = words.get(1..)?.iter().find(|w| !w.starts_with('-') && is_script(w))?;
        let path = if file.starts_with('/') {
            file.clone()
        } else {
            format!("{}/{}", process.cwd.as_ref().ok()?.trim_end_matches('/'), file.trim_start_matches("./"))
        };
        Some(Fact::new(path, format!("/proc/{shell}/cmdline")))
    })
}

/// The cards that the server or what it started uses.
fn used_cards(probe: &Probe, pid: u32) -> Vec<String> {
    let Some(gpus) = &probe.gpus else { return Vec::new() };
    let (Ok(apps), Ok(list)) = (&gpus.apps, &gpus.list) else { return Vec::new() };
    let field = |row: &[crate::untrusted::Untrusted], i: usize| row.get(i).map(|f| f.raw().trim().to_owned());
    let ours = |row: &&Vec<crate::untrusted::Untrusted>| {
        let user: Option<u32> = field(row, 0).and_then(|p| p.parse().ok());
        user.is_some_and(|user| lineage(probe, user).iter().any(|(p, _)| *p == pid))
    };
    let mut out: Vec<String> = Vec::new();
    for app in apps.iter().filter(ours) {
        let card = list.iter().find(|card| field(card, 1) == field(app, 1));
        if let Some(card) = card {
            let name = format!("{} ({})", card[0].visible(8), card.get(2).map(|n| n.visible(60)).unwrap_or_default());
            if !out.contains(&name) {
                out.push(name);
            }
        }
    }
    out
}

/// Files whose presence says that a server runs from a source tree.
pub fn checkout_marks(server: &Server, owners: &Probe) -> Vec<String> {
    folders(server, owners).into_iter().map(|(folder, _)| format!("{folder}/.git/HEAD")).collect()
}

fn folders(server: &Server, probe: &Probe) -> Vec<(String, String)> {
    let Some(process) = probe.processes.get(&server.pid) else { return Vec::new() };
    let mut out: Vec<(String, String)> = Vec::new();
    if let Ok(cwd) = &process.cwd {
        out.push((cwd.trim_end_matches('/').to_owned(), format!("/proc/{}/cwd", server.pid)));
    }
    let paths = process.environ.as_ref().ok().and_then(|e| e.get("PYTHONPATH"));
    for part in paths.into_iter().flat_map(|p| p.split(':')).filter(|p| p.starts_with('/')) {
        let folder = part.trim_end_matches('/').trim_end_matches("/python").to_owned();
        out.push((folder, format!("PYTHONPATH in /proc/{}/environ", server.pid)));
    }
    out
}

/// Adds what a second look at what started the server told.
pub fn complete(server: &mut Server, answer: &Probe) {
    let mark = answer.files.iter().find(|(path, file)| path.ends_with("/.git/HEAD") && file.bytes.is_ok());
    if let Some((path, _)) = mark {
        server.checkout = Some(Fact::new(path.trim_end_matches("/.git/HEAD").to_owned(), path.clone()));
    }
    let Some(unit) = &answer.unit else { return };
    let Ok(properties) = &unit.properties else { return };
    // A job of cron, or of a user's own manager, is in a unit that does not start it.
    let main: Option<u32> = properties.get("MainPID").and_then(|p| p.raw().trim().parse().ok());
    let starts = main.is_some_and(|main| lineage(answer, server.pid).iter().take(4).any(|(pid, _)| *pid == main));
    let known = properties.get("LoadState").is_some_and(|s| s.raw().trim() == "loaded");
    if !known || !starts {
        server.keeper = None;
        return;
    }
    if let Some(started) = properties.get("ExecStart")
        && server.script.is_none()
    {
        // `{ path=/bin/bash ; argv[]=/bin/bash /root/serve.sh ; … }`
        let command =
            started.raw().split("argv[]=").nth(1).and_then(|rest| rest.split(" ;").next()).unwrap_or_default();
        let file = command.split_whitespace().find(|w| w.starts_with('/') && is_script(w));
        server.script = file.map(|f| Fact::new(f.to_owned(), format!("ExecStart of {}", unit.name)));
    }
}
