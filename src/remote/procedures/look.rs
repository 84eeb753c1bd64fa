//! The host of a target as it is at the moment of planning: two questions, one to its processes and files, one to our
//! own folder there.

use std::collections::BTreeMap;

use super::script::assigned_names;
use super::{Folders, systemd};
use crate::case::{Gate, Manager, Patch, Target};
use crate::engine::job::JobContext;
use crate::engine::procedure::Failure;
use crate::remote::environment::{self, Difference};
use crate::remote::ground::{self, Ground};
use crate::remote::levels;
use crate::remote::machine::Machine;
use crate::remote::owner::{self, Marks};
use crate::remote::probe::owner::Own;
use crate::remote::probe::types::Probe;
use crate::remote::probe::{self, Ask, container, files};
use crate::remote::proc::{Environ, Unknown};
use crate::remote::script::{self, Override};
use crate::remote::source::{self, look::Source};
use crate::truth::declared::{Declared, Text};
use crate::truth::{imports, service};

/// Folder of our files on another host, for who asks there.
const ELSEWHERE: &str = "~/.local/state/patchbench/overrides";
/// Folder of our files for units: what lies here is gone after a reboot, as is the drop-in.
const OF_UNITS: &str = "/run/patchbench";

/// The host as it is at the moment of planning.
pub(super) struct World {
    pub(super) target: Target,
    pub(super) ground: Ground,
    pub(super) probe: Probe,
    /// What names the target among our files.
    pub(super) stem: String,
    /// What names its lease: the unit or script alone, since another case may call the target otherwise.
    pub(super) lease: String,
    pub(super) port: u16,
    pub(super) running: Option<Own>,
    /// Levels that the running server shows.
    pub(super) current: BTreeMap<String, String>,
    /// Levels that the target's own files give by themselves, as far as they tell.
    pub(super) own_levels: BTreeMap<String, String>,
    /// The source of the patches that it alone switches; `None` where there is no such patch.
    pub(super) source: Option<Source>,
    /// The launch script; `None` where another manager starts the target.
    pub(super) launch: Option<Launch>,
}

impl World {
    /// Where a copy of a script with other levels stands: named by its text.
    pub(super) fn override_file(&self, made: &Override) -> String {
        let hash = blake3::hash(made.text.as_bytes()).to_hex();
        format!("{}/{}-{}.sh", self.ground.folder, self.stem, &hash.as_str()[..12])
    }
}

/// A launch script.
pub(super) struct Launch {
    pub(super) text: String,
    /// What it declares.
    pub(super) declared: Declared,
    /// What a start must change in its environment so that the script finds what it found before.
    pub(super) environment: Difference,
}

/// Every folder that may hold our files on a host; `local` is the one on this machine.
pub(crate) fn roots(local: Option<&Folders>) -> Vec<String> {
    let own = local.map_or_else(|| ELSEWHERE.to_owned(), |f| f.overrides.display().to_string());
    vec![OF_UNITS.to_owned(), own]
}

/// Folder of our files on the host of a target, and what names the target there.
pub(crate) fn folder_of(folders: &Folders, target: &Target) -> (String, String) {
    let folder = match (&target.manager, target.is_local()) {
        (Manager::Systemd { .. }, _) => OF_UNITS.to_owned(),
        (_, true) => folders.overrides.display().to_string(),
        (_, false) => ELSEWHERE.to_owned(),
    };
    (folder, owner::run_stem(&target.name, started_by(target)))
}

fn started_by(target: &Target) -> &str {
    match &target.manager {
        Manager::Script { script, .. } => script,
        Manager::Systemd { systemd } => systemd,
        Manager::Docker { docker } => docker,
        Manager::Unknown => &target.url,
    }
}

fn lease_name(target: &Target) -> String {
    let whole = started_by(target);
    owner::run_stem(whole.rsplit('/').next().unwrap_or(whole), whole)
}

/// Looks.
///
/// # Errors
/// The host cannot be asked, the script cannot be read, or the port is a stranger's.
pub(super) async fn look(
    machine: &Machine,
    folders: &Folders,
    patches: &[&Patch],
    target: &Target,
    ctx: &JobContext,
) -> Result<World, Failure> {
    let port = target.port().ok_or_else(|| Failure::new(format!("the url of `{}` has no port", target.name)))?;
    let (folder, stem) = folder_of(folders, target);
    let (script, log) = match &target.manager {
        Manager::Script { script, log } => (Some(script.clone()), Some(log.clone())),
        Manager::Systemd { .. } | Manager::Docker { .. } | Manager::Unknown => (None, None),
    };
    let (unit, container) = match &target.manager {
        Manager::Systemd { systemd } => (Some(systemd.clone()), None),
        Manager::Docker { docker } => (None, Some(container::Asked { name: docker.clone(), changed: true })),
        Manager::Script { .. } | Manager::Unknown => (None, None),
    };
    let lease = lease_name(target);
    let question = ground::Question { folder, stem: stem.clone(), lease: lease.clone(), log, unit: unit.clone() };
    let ground = ground::ask(machine, &question, &ctx.cancel).await?;
    let source = source::look::look(machine, target, patches, &ground.folder, &ctx.cancel).await;
    let ask = Ask {
        ports: vec![port],
        modules: source.as_ref().map(source::imported::wanted).unwrap_or_default(),
        files: script.iter().cloned().collect(),
        overrides: Some(ground.folder.clone()),
        unit,
        container,
        ..Ask::default()
    };
    let mut probe = probe::ask(machine.hosts(), machine.place(), &ask, &ctx.cancel).await?;
    // While our drop-in stands there, the unit names our copy; its owner's wrapper is known from its own files.
    if let Some(path) = systemd::wrapper_path(&probe, port).filter(|p| !probe.files.contains_key(p)) {
        let ask = Ask { files: vec![path], ..ask };
        probe = probe::ask(machine.hosts(), machine.place(), &ask, &ctx.cancel).await?;
    }
    if !probe.whole {
        return Err(
            Failure::new(format!("the answer of `{}` broke off", target.host)).hint("nothing was changed; ask again")
        );
    }
    let mut world = World {
        target: target.clone(),
        ground,
        probe,
        stem,
        lease,
        port,
        running: None,
        current: BTreeMap::new(),
        own_levels: BTreeMap::new(),
        source,
        launch: None,
    };
    if let Some(script) = &script {
        look_at_script(&mut world, script, patches)?;
    } else {
        let marks = Marks { script: "", overrides: &world.ground.folder, argv: &[] };
        world.running = probe::owner::running(&world.probe, &target.name, port, &marks)?;
    }
    if let Some(running) = &world.running {
        let mut read = service::levels(&world.probe, running.key.pid, patches);
        if let Some(source) = &world.source {
            let modules = source::imported::wanted(source);
            source.settle(&mut read, &imports::files(&world.probe, running.key.pid, &modules));
        }
        world.current = read.into_iter().filter_map(|(patch, reading)| Some((patch, reading.level.ok()?))).collect();
    }
    Ok(world)
}

fn look_at_script(world: &mut World, path: &str, patches: &[&Patch]) -> Result<(), Failure> {
    let text = files::script_text(&world.probe, path)?;
    script::bash_options(&text, path)?;
    let declared = script::declared(&script::parse(&text)?, path, Some(world.port));
    let marks = Marks { script: path, overrides: &world.ground.folder, argv: &declared.argv };
    world.running = probe::owner::running(&world.probe, &world.target.name, world.port, &marks)?;
    if let Some(running) = &world.running {
        check_user(world, running.key.pid)?;
    }
    let environment = environment_of(world, &declared, path)?;
    world.own_levels = declared_levels(patches, &declared, &environment, world.ground.environ.as_ref().ok());
    world.launch = Some(Launch { text, declared, environment });
    Ok(())
}

/// A server of another user would come back as ours, with other rights and another home.
fn check_user(world: &World, pid: u32) -> Result<(), Failure> {
    let target = &world.target.name;
    let is = world.probe.processes.get(&pid).map(|p| &p.uid);
    match (is, &world.ground.uid) {
        (Some(Ok(uid)), Ok(ours)) if uid != ours => Err(Failure::new(format!(
            "`{target}` runs as user {uid} (pid {pid}), and a start from here would run it as user {ours}"
        ))
        .hint("run patchbench, or reach the host, as the user who runs the server")),
        _ => Ok(()),
    }
}

fn environment_of(world: &World, declared: &Declared, path: &str) -> Result<Difference, Failure> {
    let Some(running) = &world.running else { return Ok(Difference::default()) };
    let shell = match &world.ground.environ {
        Ok(environ) => environ,
        Err(Unknown(why)) => {
            return Err(Failure::new(format!("the environment that a start would get cannot be read: {why}")));
        }
    };
    let mut assigned = assigned_names(declared);
    if let Some(file) = running.started_from.as_deref().filter(|f| *f != path)
        && let Ok(text) = files::script_text(&world.probe, file)
    {
        assigned.extend(assigned_names(&script::declared(&script::parse(&text)?, file, Some(world.port))));
    }
    Ok(environment::of(&world.probe, running, shell, &assigned))
}

/// The level that the script by itself gives each patch, where the script alone tells.
fn declared_levels(
    patches: &[&Patch],
    declared: &Declared,
    environment: &Difference,
    shell: Option<&Environ>,
) -> BTreeMap<String, String> {
    // A script that says nothing lets the variable through.
    let inherited = |name: &str| match environment.changes.iter().find(|(n, _)| n == name) {
        Some((_, value)) => value.clone(),
        None => shell.and_then(|s| s.get(name).map(str::to_owned)),
    };
    let level = |patch: &Patch| {
        let levels = patch.gate.levels()?;
        let value = match &patch.gate {
            Gate::Env { name, .. } => match declared.variables.get(name).map(|v| &v.value) {
                Some(Some(Text::Known(value))) => Some(value.clone()),
                Some(Some(Text::Unresolved { .. })) => return None,
                Some(None) => None,
                None => inherited(name),
            },
            Gate::Flag { flag, .. } => {
                crate::remote::argv::flag_value(&declared.argv, flag, levels::takes_value(levels)).ok()?
            }
            Gate::Reverse { .. } | Gate::None => return None,
        };
        levels::level_of(patch.gate.switch_name(), value.as_deref(), levels).ok()
    };
    patches.iter().filter_map(|p| Some((p.id.clone(), level(p)?))).collect()
}

/// The levels that a unit or container gives by itself, once it is read.
pub(super) fn levels_given(patches: &[&Patch], declared: &Declared) -> BTreeMap<String, String> {
    declared_levels(patches, declared, &Difference::default(), None)
}
