//! Compose files: the services, and what the server of each is started with. Pure.

use std::collections::BTreeMap;

use super::command::Reading;
use super::container::{Asked, Container, Containers};
use super::words::{self, PlacedWord, Template};
use super::yaml::{self, Kind, Locator, Node};
use super::{Declared, FileText, Files, Place, Setting, Text, docker, interpolate, remark, remarks};

/// What a file is read with.
struct Source<'a> {
    text: &'a str,
    file: &'a str,
    /// Variables of the `.env` file.
    given: BTreeMap<String, String>,
    files: &'a Files,
}

impl Source<'_> {
    fn place(&self, node: &Node) -> Place {
        Place::new(self.file, node.line)
    }

    fn template(&self, text: &str) -> Template {
        interpolate::compose(text, &self.given)
    }

    fn setting(&self, node: Option<&Node>) -> Option<Setting> {
        let node = node?;
        Some(Setting { value: self.template(node.text()?).whole(), place: self.place(node) })
    }
}

/// Reads a compose file. `files` can hold `.env` and the files that `env_file` names.
pub fn read(text: &str, file: &str, asked: Asked<'_>, files: &Files) -> Containers {
    let (documents, troubles) = yaml::documents(text);
    let mut out = Containers::default();
    for trouble in troubles {
        out.diagnostics.push(remark("yaml", &trouble.message, &Place::new(file, trouble.line)));
    }
    let given = match files.get(".env") {
        FileText::Read(text) => dot_env(&text),
        FileText::Absent | FileText::Unread(_) => BTreeMap::new(),
    };
    let source = Source { text, file, given, files };
    for document in &documents {
        for service in document.get("services").map(Node::entries).unwrap_or_default() {
            let place = Place::new(file, service.line);
            let mut container = Container::new(place.clone());
            container.name = Some(Setting { value: Text::Known(service.key.clone()), place: place.clone() });
            fill(&mut container, &service.value, &source, asked.port);
            out.all.push(container);
        }
        if document.get("services").is_none() {
            out.diagnostics.push(remark(
                "compose",
                "this is no compose file: it has no `services`",
                &Place::new(file, document.line),
            ));
        }
    }
    // A container's own name is as good as that of its service.
    if let Some(name) = asked.name {
        for (container, service) in out
            .all
            .iter_mut()
            .zip(documents.iter().flat_map(|d| d.get("services").map(Node::entries).unwrap_or_default()))
        {
            if service.value.get("container_name").and_then(Node::text) == Some(name) {
                container.name = source.setting(service.value.get("container_name"));
            }
        }
    }
    out.choose(asked, file)
}

fn fill(container: &mut Container, service: &Node, source: &Source<'_>, port: Option<u16>) {
    if let Some(base) = service.get("extends") {
        container.declared.diagnostics.push(remark(
            "compose",
            "what this service `extends` is not read",
            &source.place(base),
        ));
        container.declared.blind("what the service that it extends sets");
    }
    container.image = source.setting(service.get("image"));
    container.network = source.setting(service.get("network_mode"));
    container.gpus = source.setting(service.get("gpus").or_else(|| service.get("runtime")));
    for port in service.get("ports").map(Node::items).unwrap_or_default() {
        match &port.kind {
            Kind::Map(_) => {
                container.ports.extend(source.setting(port.get("published")));
                container.ports.extend(source.setting(port.get("target")));
            }
            _ => container.ports.extend(source.setting(Some(port))),
        }
    }
    volumes(container, service.get("volumes"), source);
    // Files first: what stands in the compose file beats them.
    let env_files = service.get("env_file");
    let listed = env_files.map(Node::items).unwrap_or_default().iter();
    for node in env_files.into_iter().filter(|n| n.text().is_some()).chain(listed) {
        let required = node.get("required").and_then(Node::text) != Some("false");
        env_file(&mut container.declared, node.get("path").unwrap_or(node), required, source);
    }
    environment(&mut container.declared, service.get("environment"), source);
    let entrypoint = argv(service.get("entrypoint"), source, &mut container.declared);
    let arguments = argv(service.get("command"), source, &mut container.declared);
    container.entrypoint = entrypoint.first().map(|w| Setting { value: w.text.clone(), place: w.place.clone() });
    container.command(entrypoint, arguments, Reading::new(port, source.files));
    remarks::add(&mut container.declared, container.image.as_ref().and_then(|i| i.value.known()));
}

/// The volumes, and which of their folders are not known: a checkpoint or a cache may be another one than it looks.
fn volumes(container: &mut Container, node: Option<&Node>, source: &Source<'_>) {
    for item in node.map(Node::items).unwrap_or_default() {
        let whole = match &item.kind {
            Kind::Map(_) => item.get("source"),
            _ => Some(item),
        };
        let Some(setting) = source.setting(whole) else { continue };
        if let Text::Unresolved { raw, because } = &setting.value {
            let message = format!("which folder of the host `{raw}` is, is not known: {because}");
            container.declared.diagnostics.push(remark("volume", &message, &setting.place));
        }
        container.volumes.push(setting);
    }
}

/// `entrypoint` or `command`: a list, or a text that is split as a shell would.
fn argv(node: Option<&Node>, source: &Source<'_>, out: &mut Declared) -> Vec<PlacedWord> {
    let Some(node) = node else { return Vec::new() };
    match &node.kind {
        Kind::List(items) => items.iter().filter_map(|item| element(item, source)).collect(),
        Kind::Scalar(scalar) => {
            let template = source.template(&scalar.text);
            let words = match words::split(&template) {
                Ok(words) => words,
                Err(why) => {
                    out.diagnostics.push(remark(
                        "compose",
                        &format!("this command cannot be split: {why}"),
                        &source.place(node),
                    ));
                    return Vec::new();
                }
            };
            let mut locator = Locator::new(source.text, node);
            words
                .into_iter()
                .map(|w| {
                    let raw = &template.text[w.at.clone()];
                    let place = Place::new(source.file, locator.line(raw));
                    let splits = w.text.known().is_none() && !raw.contains('"');
                    PlacedWord { last_line: node.last_line().max(place.line), text: w.text, place, splits }
                })
                .collect()
        }
        Kind::Null | Kind::Map(_) => Vec::new(),
    }
}

fn element(item: &Node, source: &Source<'_>) -> Option<PlacedWord> {
    let text = source.template(item.text()?).whole();
    Some(PlacedWord { text, place: source.place(item), last_line: item.last_line(), splits: false })
}

/// `environment` as a map or a list; a name alone is taken from the shell.
fn environment(out: &mut Declared, node: Option<&Node>, source: &Source<'_>) {
    let Some(node) = node else { return };
    let from_host = |name: &str| Text::Unresolved {
        raw: name.to_owned(),
        because: format!("`{name}` comes from the shell that runs compose"),
    };
    for entry in node.entries() {
        let place = Place::new(source.file, entry.line);
        let value = entry.value.text().map_or_else(|| from_host(&entry.key), |t| source.template(t).whole());
        out.assign(&entry.key, place, Some(value));
    }
    for item in node.items() {
        let Some(text) = item.text() else { continue };
        match text.split_once('=') {
            Some((name, value)) => out.assign(name, source.place(item), Some(source.template(value).whole())),
            None => out.assign(text, source.place(item), Some(from_host(text))),
        }
    }
}

fn env_file(out: &mut Declared, node: &Node, required: bool, source: &Source<'_>) {
    let Some(path) = node.text() else { return };
    let path = match source.template(path).whole() {
        Text::Known(path) => path,
        Text::Unresolved { because, .. } => {
            out.diagnostics.push(remark(
                "env-file",
                &format!("which file is read is not known: {because}"),
                &source.place(node),
            ));
            out.blind("what a file of variables sets");
            return;
        }
    };
    match source.files.get(&path) {
        FileText::Read(text) => {
            let shell = Declared::default();
            for (line, name, value) in dot_env_lines(&text) {
                let place = Place::new(&path, line);
                match value {
                    Some(value) => out.assign(&name, place, Some(source.template(&value).whole())),
                    None => docker::env_file_text(out, &shell, &path, &name),
                }
            }
        }
        FileText::Absent if !required => {}
        FileText::Absent => {
            out.diagnostics.push(remark(
                "env-file",
                &format!("`{path}` does not exist: the service does not start"),
                &source.place(node),
            ));
        }
        FileText::Unread(why) => {
            out.diagnostics.push(remark("env-file", &why, &source.place(node)));
            out.blind(&format!("what `{path}` sets"));
        }
    }
}

fn dot_env(text: &str) -> BTreeMap<String, String> {
    dot_env_lines(text).into_iter().filter_map(|(_, name, value)| Some((name, value?))).collect()
}

/// The lines of a `.env` file: `export` is allowed, quotes are taken away, ` #` begins a comment.
///
/// A single-quoted value is literal: its dollars are doubled so that nothing is put in.
fn dot_env_lines(text: &str) -> Vec<(u32, String, Option<String>)> {
    let mut out = Vec::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            out.push((number, line.to_owned(), None));
            continue;
        };
        let value = value.trim_start();
        let quoted = |q: char| value.strip_prefix(q).and_then(|v| v.find(q).map(|end| v[..end].to_owned()));
        let value = if let Some(literal) = quoted('\'') {
            literal.replace('$', "$$")
        } else if let Some(text) = quoted('"') {
            text.replace("\\n", "\n").replace("\\\"", "\"")
        } else {
            value.split(" #").next().unwrap_or_default().trim_end().to_owned()
        };
        out.push((number, name.trim_end().to_owned(), Some(value)));
    }
    out
}
