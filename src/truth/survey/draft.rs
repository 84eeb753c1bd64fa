//! Writes a case from a survey: a source for every line, and a TODO for what is not known. Pure.

use std::fmt::Write as _;

use super::{Fact, Keeper, Server, Survey};
use crate::case::{Role, ServingEngine};
use crate::untrusted::Untrusted;

/// Whether people depend on the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Production {
    /// Assumed, because nobody said otherwise.
    Assumed,
    /// The user said that nobody does.
    No,
}

/// The text of a case file that reads without an edit.
pub fn draft(survey: &Survey, production: Production, at: &str) -> String {
    let names = names(&survey.servers);
    let mut out = String::new();
    let shown = |text: &str| Untrusted::from(text).visible(300);
    let _ = writeln!(out, "# Written by `patchbench init {}` at {at}, reading only.", shown(&survey.host));
    let _ = writeln!(out, "# Behind each line stands where it was seen; TODO marks what nobody could tell.\n");
    let _ = writeln!(out, "name = {}  # TODO: a name for the incident", quoted(&format!("{}-incident", survey.host)));
    if survey.servers.len() > 1 {
        let (entry, why) = entry(survey, &names);
        let _ = writeln!(out, "entry = {}  # {why}", quoted(entry));
    }
    for card in &survey.cards {
        let _ = writeln!(out, "# card {}", shown(card));
    }
    for (port, why) in &survey.unknown {
        let _ = writeln!(out, "# TODO: port {port} listens, and its owner is not known: {}", shown(why));
    }
    for (server, name) in survey.servers.iter().zip(&names) {
        target(&mut out, survey, server, name, production);
    }
    out.push_str(
        "\n# TODO: the changes under suspicion, one block each; `patchbench patches` shows them.\n\
         # [[patch]]\n\
         # id = \"some-patch\"\n\
         # gate = { env = \"SOME_VARIABLE\", levels = { on = \"1\", off = { unset = true } } }\n",
    );
    out
}

fn target(out: &mut String, survey: &Survey, server: &Server, name: &str, production: Production) {
    let mut line = |key: &str, value: String, source: &str| {
        let _ = writeln!(out, "{key} = {value}  # {}", Untrusted::from(source).visible(300));
    };
    line("\n[[target]]\nname", quoted(name), "chosen by its role");
    line("role", quoted(role_word(server.role.value)), &server.role.source);
    line("engine", quoted(engine_word(server.engine.value)), &server.engine.source);
    line("host", quoted(&survey.host), "as given");
    if !survey.become_with.is_empty() {
        line("become", quoted(&survey.become_with.join(" ")), "as given");
    }
    let url = format!("http://127.0.0.1:{}", server.port);
    line("url", quoted(&url), &format!("/proc/net/tcp: pid {} listens", server.pid));
    match &server.keeper {
        Some(Fact { value: Keeper::Unit(unit), source }) => {
            line("manager", format!("{{ systemd = {} }}", quoted(unit)), source);
        }
        Some(Fact { value: Keeper::Script { script, log: Some(log) }, source }) => {
            line("manager", format!("{{ script = {}, log = {} }}", quoted(script), quoted(log)), source);
        }
        Some(Fact { value: Keeper::Container(id), source }) => {
            line("manager", format!("{{ docker = {} }}", quoted(id)), &format!("{source}; TODO: the container's name"));
        }
        Some(Fact { value: Keeper::Script { log: None, .. }, .. }) | None => {
            out.push_str("# TODO: manager = { systemd = \"…\" } or { script = \"…\", log = \"…\" }: what starts it, and where it logs, is not known\n");
        }
    }
    let mut line = |key: &str, fact: &Option<Fact<String>>, otherwise: &str| match fact {
        Some(fact) => {
            let _ = writeln!(
                out,
                "{key} = {}  # {}",
                quoted(&fact.value),
                Untrusted::from(fact.source.as_str()).visible(300)
            );
        }
        None => {
            let _ = writeln!(out, "# TODO: {key} = \"…\": {otherwise}");
        }
    };
    line("launch_script", &server.script, "no script was seen above the process");
    let folder = server.model.clone().filter(|m| m.value.starts_with('/'));
    line("checkpoint", &folder, "the command line names no folder of weights");
    line("checkout", &server.checkout, "no source tree was seen; name the fork's folder if it runs from one");
    if server.has_key {
        out.push_str("# TODO: api_key = { env = \"…\" }: it was started with a key, which is never written here\n");
    }
    for card in &server.cards {
        let _ = writeln!(out, "# uses card {}", Untrusted::from(card.as_str()).visible(100));
    }
    for (role, url) in &server.links {
        let where_it_is = if survey.servers.iter().any(|s| is_here(url, s.port)) {
            "above or below"
        } else {
            "TODO: not on this host, and not looked at; `patchbench init` its host if it is part of the case"
        };
        let _ = writeln!(
            out,
            "# sends to {} at {}: {where_it_is}",
            role_word(*role),
            Untrusted::from(url.as_str()).visible(200)
        );
    }
    let _ = match production {
        Production::Assumed => writeln!(out, "production = true  # assumed: nobody said otherwise"),
        Production::No => writeln!(out, "production = false  # as given"),
    };
}

/// Whether an URL means a port of the host itself.
fn is_here(url: &str, port: u16) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let Some((host, tail)) = rest.rsplit_once(':') else { return false };
    let given: Option<u16> = tail.split('/').next().and_then(|p| p.parse().ok());
    matches!(host, "127.0.0.1" | "localhost" | "0.0.0.0" | "[::1]") && given == Some(port)
}

/// The server that clients talk to.
fn entry<'n>(survey: &Survey, names: &'n [String]) -> (&'n str, &'static str) {
    let router = survey.servers.iter().position(|s| s.role.value == Role::Router);
    match router {
        Some(place) => (&names[place], "the router"),
        None => {
            (names.first().map_or("", String::as_str), "TODO: the server that clients talk to; the first one is taken")
        }
    }
}

/// A name for each server: its role, with the port where several have it.
fn names(servers: &[Server]) -> Vec<String> {
    let base = |s: &Server| match s.role.value {
        Role::Monolithic => "server",
        other => role_word(other),
    };
    servers
        .iter()
        .map(|s| match servers.iter().filter(|o| base(o) == base(s)).count() {
            1 => base(s).to_owned(),
            _ => format!("{}-{}", base(s), s.port),
        })
        .collect()
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Monolithic => "monolithic",
        Role::Router => "router",
    }
}

fn engine_word(engine: ServingEngine) -> &'static str {
    match engine {
        ServingEngine::Sglang => "sglang",
        ServingEngine::Vllm => "vllm",
        ServingEngine::LlamaServer => "llama-server",
    }
}

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
