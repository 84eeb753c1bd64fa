//! A container of docker or podman as a probe found it: what it was made with, its copies of ours, its log. Pure.
//!
//! Not responsible for what its command and variables mean, nor for changing it.

use serde_json::Value;

use super::frame::Frame;
use super::parse;
use super::types::{Reading, Text};
use crate::remote::proc::Unknown;
use crate::untrusted::Untrusted;

/// A container that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its name or id.
    pub name: String,
    /// Whether the files that were changed in it are wanted.
    pub changed: bool,
}

/// What a host says of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// The name that it was asked for by.
    pub name: String,
    /// `docker` or `podman`.
    pub tool: Reading<String>,
    /// Names of our copies of it.
    pub copies: Reading<Vec<String>>,
    /// The container itself.
    pub own: Reading<Inspect>,
    /// The one that runs, of it and its copies; the container itself where none does.
    pub current: Reading<Inspect>,
    /// Last lines of the log of the one that runs.
    pub log: Reading<Text>,
    /// Files that differ from the image's, as `docker diff` prints them; unknown where they were not asked for.
    pub changed: Reading<Vec<String>>,
    /// The same of our copy that runs; nothing where the container itself does, or where they were not asked for.
    pub edited: Vec<String>,
    /// Bytes that were written within it; unknown where they were not asked for.
    pub written: Reading<u64>,
}

/// What `docker container inspect` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspect {
    /// Its whole id.
    pub id: String,
    /// Its name without a slash.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// Program and arguments, the image's own entrypoint among them.
    pub argv: Vec<String>,
    /// `NAME=value`, those of the image among them; a name alone takes a variable of the image away.
    pub env: Vec<String>,
    /// Everything that was said.
    pub all: Value,
}

impl Inspect {
    /// The value of a variable; `None` where the container does not have it.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
    }

    /// Something that was said, by the names on the way to it.
    pub fn at(&self, path: &[&str]) -> &Value {
        path.iter().fold(&self.all, |value, key| &value[*key])
    }
}

/// The end of the name of a copy of ours.
pub const COPY: &str = ".patchbench-";

pub(super) fn read(frame: &Frame, asked: &Asked) -> Container {
    let name = asked.name.clone();
    let tool = parse::line(frame, "container.tool").map(|t| t.trim().to_owned());
    // Without the command that knows it, nothing else was asked.
    let known = |reading: &Reading<String>| reading.as_ref().map(|_| ()).map_err(Clone::clone);
    let inspect = |section: &str| known(&tool).and_then(|()| read_inspect(&parse::text(frame, section)?));
    let own = inspect("container.own");
    // It may be asked for by its id.
    let prefix = format!("{}{COPY}", own.as_ref().map_or(name.as_str(), |own| own.name.as_str()));
    let copies = known(&tool).and_then(|()| parse::text(frame, "container.names")).map(|text| {
        text.lines().map(str::trim).filter(|n| n.starts_with(&prefix)).map(str::to_owned).collect::<Vec<_>>()
    });
    let log = known(&tool)
        .and_then(|()| parse::bytes(frame, "container.log"))
        .map(|(bytes, truncated)| Text { text: String::from_utf8_lossy(bytes).into_owned(), truncated });
    let asked_for = |section: &str| match (&tool, asked.changed) {
        (Err(why), _) => Err(why.clone()),
        (Ok(_), false) => Err(Unknown("it was not asked for".into())),
        (Ok(_), true) => parse::text(frame, section),
    };
    let changed = asked_for("container.changed").map(|t| t.lines().map(str::to_owned).collect());
    let written =
        asked_for("container.written").and_then(|t| t.trim().parse().map_err(|_| parse::odd("container.written", &t)));
    let edited = parse::text(frame, "container.edited").unwrap_or_default().lines().map(str::to_owned).collect();
    Container { own, current: inspect("container.current"), name, tool, copies, log, changed, edited, written }
}

/// Reads what `container inspect` prints.
pub(crate) fn read_inspect(text: &str) -> Reading<Inspect> {
    let odd = |what: &str| Unknown(format!("what is said of the container {what}"));
    let mut said: Value = serde_json::from_str(text).map_err(|_| odd("is no JSON"))?;
    let all = said.get_mut(0).map(Value::take).ok_or_else(|| odd("is empty"))?;
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let words = |value: &Value| -> Option<Vec<String>> {
        if value.is_null() { Some(Vec::new()) } else { value.as_array()?.iter().map(word).collect() }
    };
    let id = word(&all["Id"]).ok_or_else(|| odd("has no id"))?;
    let name = word(&all["Name"]).ok_or_else(|| odd("has no name"))?.trim_start_matches('/').to_owned();
    let running = all["State"]["Running"].as_bool().ok_or_else(|| odd("does not tell whether it runs"))?;
    let program = word(&all["Path"]).ok_or_else(|| odd("names no program"))?;
    let arguments = words(&all["Args"]).ok_or_else(|| odd("has arguments that are no words"))?;
    let env = words(&all["Config"]["Env"]).ok_or_else(|| odd("has variables that are no texts"))?;
    Ok(Inspect { id, name, running, argv: [vec![program], arguments].concat(), env, all })
}

/// Whether a process is in a container, by its control groups.
pub fn holds(id: &str, cgroup: &Untrusted) -> bool {
    id.len() >= 12 && cgroup.raw().lines().any(|line| line.contains(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_and_podman_are_read_alike() {
        for (name, text) in [
            ("docker", include_str!("testdata/docker-inspect.json")),
            ("podman", include_str!("testdata/podman-inspect.json")),
        ] {
            let read = read_inspect(text).unwrap();
            assert_eq!(read.name, "t1", "{name}");
            assert_eq!((read.argv[0].as_str(), read.argv.len()), ("bash", 3), "{name}");
            assert_eq!((read.variable("B"), read.variable("NONE"), read.variable("A")), (Some("x y"), None, Some("1")));
            assert!(read.running, "{name}");
            assert_eq!(read.at(&["HostConfig", "NetworkMode"]), "host", "{name}");
        }
    }

    #[test]
    fn what_is_no_answer_is_unknown() {
        for text in ["", "[]", "{}", "[{}]", "[{\"Id\":\"a\",\"Name\":\"/b\"}]"] {
            assert!(read_inspect(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_process_belongs_to_the_container_whose_id_its_groups_name() {
        let id = "cb2519f0efb387bcffe4338605b32998c85fd50a72f5a5a9fc6b8cd2efa8da2d";
        for (line, expect) in [
            ("9:name=systemd:/libpod_parent/libpod-ID", true),
            ("0::/system.slice/docker-ID.scope", true),
            ("0::/docker/ID/child", true),
            ("0::/user.slice/session-1.scope", false),
        ] {
            assert_eq!(holds(id, &Untrusted::from(line.replace("ID", id))), expect, "{line}");
        }
        assert!(!holds("", &Untrusted::from("0::/docker/x")), "an empty id is in every line");
    }
}
