//! Kubernetes manifests: every container of every pod that a document describes. Pure.

use std::collections::BTreeMap;

use super::command::Reading;
use super::container::{Asked, Container, Containers};
use super::interpolate;
use super::words::PlacedWord;
use super::yaml::{self, Kind, Node};
use super::{Declared, Files, Place, Setting, Text, remark, remarks};

/// Kinds that describe no process.
const OTHER_KINDS: &[&str] = &[
    "Service",
    "ConfigMap",
    "Secret",
    "Namespace",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Ingress",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "HorizontalPodAutoscaler",
    "ServiceMonitor",
    "PodMonitor",
    "NetworkPolicy",
    "StorageClass",
    "PodDisruptionBudget",
    "ResourceQuota",
];

/// Reads a manifest of one or several documents.
pub fn read(text: &str, file: &str, asked: Asked<'_>) -> Containers {
    let (documents, troubles) = yaml::documents(text);
    let mut out = Containers::default();
    for trouble in troubles {
        out.diagnostics.push(remark("yaml", &trouble.message, &Place::new(file, trouble.line)));
    }
    let mut objects: Vec<&Node> = Vec::new();
    for document in &documents {
        match document.get("kind").and_then(Node::text) {
            Some("List") => objects.extend(document.get("items").map(Node::items).unwrap_or_default()),
            _ => objects.push(document),
        }
    }
    for object in objects.into_iter().filter(|o| o.kind != Kind::Null) {
        let kind = object.get("kind").and_then(Node::text).unwrap_or_default();
        let mut pods = Vec::new();
        pod_specs(object, 0, &mut pods);
        if pods.is_empty() && !OTHER_KINDS.contains(&kind) {
            let message = format!("this object of kind `{kind}` has no containers that are known here");
            out.diagnostics.push(remark("kubernetes", &message, &Place::new(file, object.line)));
        }
        for pod in pods {
            for node in pod.get("containers").map(Node::items).unwrap_or_default() {
                out.all.push(container(pod, node, file, asked.port, &documents));
            }
        }
    }
    out.choose(asked, file)
}

/// The pods of an object, wherever its kind keeps them: a mapping with `containers`.
fn pod_specs<'n>(node: &'n Node, depth: usize, out: &mut Vec<&'n Node>) {
    const MAX_DEPTH: usize = 10;
    if depth > MAX_DEPTH {
        return;
    }
    if node.get("containers").is_some_and(|c| !c.items().is_empty()) {
        out.push(node);
        return;
    }
    for entry in node.entries() {
        pod_specs(&entry.value, depth + 1, out);
    }
    for item in node.items() {
        pod_specs(item, depth + 1, out);
    }
}

fn container(pod: &Node, node: &Node, file: &str, port: Option<u16>, documents: &[Node]) -> Container {
    let place = |n: &Node| Place::new(file, n.line);
    let setting = |n: Option<&Node>| {
        let node = n?;
        Some(Setting { value: Text::Known(node.text()?.to_owned()), place: place(node) })
    };
    let mut out = Container::new(place(node));
    out.name = setting(node.get("name"));
    out.image = setting(node.get("image"));
    out.network = pod
        .get("hostNetwork")
        .filter(|n| n.text() == Some("true"))
        .map(|n| Setting { value: Text::Known("host".into()), place: place(n) });
    let resources = node.get("resources");
    out.gpus = ["limits", "requests"].iter().find_map(|k| {
        let entries = resources?.get(k)?.entries();
        let gpu = entries.iter().find(|e| e.key.ends_with("/gpu"))?;
        setting(Some(&gpu.value))
    });
    for port in node.get("ports").map(Node::items).unwrap_or_default() {
        out.ports.extend(setting(port.get("containerPort")));
        out.ports.extend(setting(port.get("hostPort")));
    }
    let mut known: BTreeMap<String, Text> = BTreeMap::new();
    env_from(&mut out.declared, node.get("envFrom"), file, documents, &mut known);
    for variable in node.get("env").map(Node::items).unwrap_or_default() {
        let Some(name) = variable.get("name").and_then(Node::text) else { continue };
        let value = match (variable.get("value"), variable.get("valueFrom")) {
            (Some(value), _) => interpolate::kubernetes(value.text().unwrap_or_default(), &known),
            (None, Some(from)) => elsewhere(name, from, documents),
            (None, None) => Text::Known(String::new()),
        };
        known.insert(name.to_owned(), value.clone());
        let line = variable.get("value").or_else(|| variable.get("valueFrom")).unwrap_or(variable).line;
        let line = variable.get("name").map_or(line, |n| n.line.max(line));
        out.declared.assign(name, Place::new(file, line), Some(value));
    }
    let words = |key: &str| -> Vec<PlacedWord> {
        let items = node.get(key).map(Node::items).unwrap_or_default().iter();
        items
            .filter_map(|item| {
                let text = interpolate::kubernetes(item.text()?, &known);
                Some(PlacedWord { text, place: place(item), last_line: item.last_line(), splits: false })
            })
            .collect()
    };
    let (command, arguments) = (words("command"), words("args"));
    out.entrypoint = command.first().map(|w| Setting { value: w.text.clone(), place: w.place.clone() });
    let files = Files::default();
    out.command(command, arguments, Reading::new(port, &files));
    remarks::add(&mut out.declared, out.image.as_ref().and_then(|i| i.value.known()));
    out
}

/// A value that stands elsewhere: a secret, a map of the same file, a field of the pod.
fn elsewhere(name: &str, from: &Node, documents: &[Node]) -> Text {
    let named = |key: &str| Some((from.at(&[key, "name"])?.text()?, from.at(&[key, "key"])?.text()?));
    let unresolved = |because: String| Text::Unresolved { raw: name.to_owned(), because };
    if let Some((secret, key)) = named("secretKeyRef") {
        return unresolved(format!("it comes from a secret: key `{key}` of `{secret}`"));
    }
    if let Some((map, key)) = named("configMapKeyRef") {
        let data = config_map(map, documents).and_then(|m| m.at(&["data", key])).and_then(Node::text);
        let because = format!("it comes from a map that is not in this file: key `{key}` of `{map}`");
        return data.map_or_else(|| unresolved(because), |t| Text::Known(t.to_owned()));
    }
    if let Some(path) = from.at(&["fieldRef", "fieldPath"]).and_then(Node::text) {
        return unresolved(format!("it is told by the cluster: `{path}`"));
    }
    unresolved("it is told by the cluster".into())
}

fn config_map<'n>(name: &str, documents: &'n [Node]) -> Option<&'n Node> {
    documents.iter().find(|d| {
        d.get("kind").and_then(Node::text) == Some("ConfigMap")
            && d.at(&["metadata", "name"]).and_then(Node::text) == Some(name)
    })
}

/// `envFrom`: whole maps and secrets, beneath the variables that are named one by one.
fn env_from(
    out: &mut Declared,
    node: Option<&Node>,
    file: &str,
    documents: &[Node],
    known: &mut BTreeMap<String, Text>,
) {
    for source in node.map(Node::items).unwrap_or_default() {
        let prefix = source.get("prefix").and_then(Node::text).unwrap_or_default();
        let name = |key: &str| source.at(&[key, "name"]).and_then(Node::text);
        let map = name("configMapRef").and_then(|n| config_map(n, documents)).and_then(|m| m.get("data"));
        if let Some(data) = map {
            for entry in data.entries() {
                let text = Text::Known(entry.value.text().unwrap_or_default().to_owned());
                let variable = format!("{prefix}{}", entry.key);
                known.insert(variable.clone(), text.clone());
                out.assign(&variable, Place::new(file, entry.line), Some(text));
            }
            continue;
        }
        let what = name("secretRef").map(|n| format!("the secret `{n}`"));
        let what = what.or_else(|| name("configMapRef").map(|n| format!("the map `{n}`")));
        out.blind(&format!("what {} sets", what.unwrap_or_else(|| "an `envFrom`".into())));
    }
}
