//! A container: its image, how it is reached, and what its server is started with.
//!
//! Pure. Where it is declared is the business of `docker`, `compose`, `kubernetes` and `quadlet`.

use super::command::{self, Reading};
use super::words::PlacedWord;
use super::{Declared, Place, Setting, Text};
use crate::engine::diagnostic::Diagnostic;
use crate::remote::argv::base_name;

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Name, or that of its service.
    pub name: Option<Setting>,
    /// Image with its tag.
    pub image: Option<Setting>,
    /// Program that replaces the image's own.
    pub entrypoint: Option<Setting>,
    /// Network mode.
    pub network: Option<Setting>,
    /// Devices that are asked for.
    pub gpus: Option<Setting>,
    /// Published ports, as written.
    pub ports: Vec<Setting>,
    /// Folders of the host and where the container has them, as a compose file writes them.
    pub volumes: Vec<Setting>,
    /// Where it is declared.
    pub place: Place,
    /// What its server is started with.
    pub declared: Declared,
}

/// Which container is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Name of the container or service.
    pub name: Option<&'a str>,
    /// Port on which the server answers, inside or outside of the container.
    pub port: Option<u16>,
}

/// The containers of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Containers {
    /// All of them, in order.
    pub all: Vec<Container>,
    /// Index of the one that is meant.
    pub chosen: Option<usize>,
    /// What could not be read or told.
    pub diagnostics: Vec<Diagnostic>,
}

impl Containers {
    /// The one that is meant.
    pub fn chosen(&self) -> Option<&Container> {
        self.all.get(self.chosen?)
    }

    /// Chooses by name, by port, or the only one that carries flags; says where that is not enough.
    pub(super) fn choose(mut self, asked: Asked<'_>, file: &str) -> Self {
        let matching = |wanted: &dyn Fn(&Container) -> bool| -> Vec<usize> {
            self.all.iter().enumerate().filter(|(_, c)| wanted(c)).map(|(i, _)| i).collect()
        };
        let by_name = asked.name.map(|n| matching(&|c| c.is_called(n)));
        let by_port = asked.port.map(|p| matching(&|c| c.answers_on(p)));
        let serving = matching(&|c| !c.declared.flags.is_empty());
        let pools = [by_name.clone(), by_port, (by_name.is_none() || self.all.len() == 1).then_some(serving)];
        let only = pools.iter().flatten().find_map(|pool| if let [only] = pool[..] { Some(only) } else { None });
        self.chosen = only;
        if only.is_none() {
            let message = match self.all.len() {
                0 => "no container is declared here".to_owned(),
                n => {
                    format!("{n} containers are declared here, and which one is meant is not clear: {}", self.listed())
                }
            };
            let remark = Diagnostic::warning("container-choice", message).at(file);
            self.diagnostics.push(remark.hint("give the name of the container, or the server's own port"));
        }
        self
    }

    fn listed(&self) -> String {
        let names: Vec<String> = self
            .all
            .iter()
            .map(|c| {
                let name = c.name.as_ref().and_then(|n| n.value.known()).unwrap_or("without a name");
                format!("{name} on line {}", c.place.line)
            })
            .collect();
        names.join(", ")
    }
}

impl Container {
    pub(super) fn new(place: Place) -> Self {
        Self {
            name: None,
            image: None,
            entrypoint: None,
            network: None,
            gpus: None,
            ports: Vec::new(),
            volumes: Vec::new(),
            place,
            declared: Declared::default(),
        }
    }

    fn is_called(&self, name: &str) -> bool {
        self.name.as_ref().and_then(|n| n.value.known()) == Some(name)
    }

    fn answers_on(&self, port: u16) -> bool {
        let of_flag = self.declared.flag("--port").and_then(|f| f.value.known()?.trim().parse().ok()) == Some(port);
        of_flag || self.ports.iter().filter_map(|p| p.value.known()).any(|p| publishes(p, port))
    }

    /// Reads the command: the entrypoint if there is one, then the arguments.
    pub(super) fn command(&mut self, entrypoint: Vec<PlacedWord>, arguments: Vec<PlacedWord>, reading: Reading<'_>) {
        let own = arguments.first().is_some_and(names_a_program);
        self.declared.blind("what the image sets by itself");
        let mut words = entrypoint;
        if words.is_empty() && !own {
            let because = "the image's own entrypoint runs".to_owned();
            let text = Text::Unresolved { raw: "(entrypoint)".into(), because };
            words.push(PlacedWord::new(text, self.place.clone()));
            if arguments.is_empty() {
                return;
            }
        }
        words.extend(arguments);
        command::declare(&mut self.declared, words, reading);
    }
}

/// Whether a word after the image is a program of its own and not an argument of the image's entrypoint.
fn names_a_program(word: &PlacedWord) -> bool {
    const PROGRAMS: &[&str] = &[
        "vllm",
        "sglang",
        "llama-server",
        "trtllm-serve",
        "tritonserver",
        "env",
        "nohup",
        "numactl",
        "exec",
        "taskset",
        "bash",
        "sh",
        "node",
        "ray",
        "torchrun",
        "uv",
        "text-generation-launcher",
        "patchbench",
    ];
    let Some(text) = word.known() else { return false };
    text.starts_with("./")
        || text.starts_with('/') && !text.starts_with("/model")
        || PROGRAMS.contains(&text)
        || base_name(text).starts_with("python")
}

/// Whether `8000`, `8000:30000`, `127.0.0.1:8000-8009:8000-8009/tcp` publishes a port, on either side.
fn publishes(spec: &str, port: u16) -> bool {
    let spec = spec.split('/').next().unwrap_or_default();
    spec.split(':').any(|part| match part.split_once('-') {
        Some((from, to)) => {
            matches!((from.parse::<u16>(), to.parse::<u16>()), (Ok(f), Ok(t)) if (f..=t).contains(&port))
        }
        None => part.parse() == Ok(port),
    })
}
