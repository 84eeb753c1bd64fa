//! Plans a change of one target against its host as it is now, as plain data.
//!
//! Reads only. `look` reads the host, `script`, `systemd` and `container` make the steps of their managers, `source` those
//! that copy a package without a patch. Running the plan is `remote::execute`.

mod container;
mod look;
mod script;
mod source;
mod systemd;

use std::collections::BTreeMap;
use std::path::PathBuf;

use look::World;

use super::host::{Hosts, reach};
use super::lease::{self, Found};
use super::machine::Machine;
use super::script::{Ask, Override};
use super::{argv, http, levels, router, shell_text};
use crate::case::{Case, LevelValue, Manager, Patch, Role, Target};
use crate::engine::effect::ChangeWish;
use crate::engine::ids::ProcedureId;
use crate::engine::job::JobContext;
use crate::engine::procedure::{
    Action, BootExpectation, Failure, Lease, Load, Procedure, ProcessKey, Purpose, Readback, Step,
};
use crate::remote::source::look::Source;
use crate::serving::load;
use crate::truth::declared::Declared;
use crate::truth::service;

pub(crate) use look::{folder_of, roots};

/// Seconds that a server may take to be ready: large models load for many minutes.
const READY_TIMEOUT_S: f64 = 1800.0;

/// Where our own files on this machine are, and whose changes these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// Overrides of launch scripts and the traces of starts.
    pub overrides: PathBuf,
}

impl Folders {
    /// `patchbench/overrides` in the user's state folder.
    ///
    /// # Errors
    /// The user has no home folder.
    pub fn standard() -> Result<Self, Failure> {
        use etcetera::BaseStrategy as _;
        let base = etcetera::base_strategy::Xdg::new().map_err(|_| {
            Failure::new("there is no home folder for overrides").hint("set `HOME` or `XDG_STATE_HOME`")
        })?;
        let state = base.state_dir().unwrap_or_else(|| base.data_dir());
        Ok(Self { overrides: state.join("patchbench/overrides") })
    }
}

/// The way to the hosts, our files on this machine, and whose changes these are.
#[derive(Clone, Debug)]
pub struct Means {
    /// The links.
    pub hosts: Hosts,
    /// Our files on this machine.
    pub folders: Folders,
    /// Whose changes these are.
    pub owner: lease::Owner,
}

/// Plans a change. Levels that the wish does not name stay as the running server has them.
///
/// # Errors
/// The target cannot be changed this way, its host cannot be reached, its script cannot be read or overridden, its
/// port is owned by a stranger, its log cannot be written, or somebody else holds it. Nothing was changed.
pub async fn plan(
    means: &Means,
    case: &Case,
    target: &str,
    wish: &ChangeWish,
    ctx: &JobContext,
) -> Result<Procedure, Failure> {
    let target = case.target(target).ok_or_else(|| Failure::new(format!("the case has no target `{target}`")))?;
    let patches: Vec<&Patch> = case.patches_of(&target.name).collect();
    let wished = match wish {
        ChangeWish::Running(levels) => levels.clone(),
        ChangeWish::Stopped | ChangeWish::Original => BTreeMap::new(),
    };
    check_wish(&patches, &wished, &target.name)?;
    ctx.progress(
        0,
        None,
        if target.is_local() { "reading the host".into() } else { format!("reading `{}`", target.host) },
    );
    let machine = Machine::of(&means.hosts, target)?;
    let world = look::look(&machine, &means.folders, &patches, target, ctx).await?;
    // A container runs although nobody may be seen at its port.
    let contained = world.probe.container.as_ref().is_some_and(|c| c.current.as_ref().is_ok_and(|c| c.running));
    let runs = world.running.is_some() || contained;
    let load = if runs { load_of(&means.hosts, target).await } else { None };
    let lease = lease_of(&world, &means.owner, case.budget.restore_after_min)?;
    let routed = router::look(means, case, target, runs, &world.ground.workers).await;
    let readable = readable_env(&world, wish);
    let wish = Wish { kind: wish, wished, patches, readable };
    let own_levels = world.own_levels.clone();
    let mut plan =
        Plan { world: &world, lease, wish, own_levels, load, steps: Vec::new(), notes: Vec::new(), tag: tag() };
    match &target.manager {
        Manager::Script { script, log } => script::plan(&mut plan, script, log, means)?,
        Manager::Systemd { systemd } => systemd::plan(&mut plan, systemd, means)?,
        Manager::Docker { docker } => container::plan(&mut plan, docker, means)?,
        Manager::Unknown => {
            return Err(Failure::new(format!("nobody said what starts `{}`", target.name)).hint(
                "give the target a `manager`: { script = \"…\", log = \"…\" } or { systemd = \"NAME.service\" }",
            ));
        }
    }
    let note = environment_note(&world, &plan.wish);
    let mut procedure = plan.finish();
    procedure.notes.extend(note.filter(|_| !procedure.steps.is_empty()));
    let drain_s = f64::from(case.budget.drain_s);
    if contained && world.running.is_none() && procedure.load.is_none() && !procedure.steps.is_empty() {
        procedure
            .notes
            .push("the container runs and nobody is seen at its port: whether requests run there is not known".into());
    }
    router::plan::weave(&mut procedure, case, &routed, runs, drain_s)?;
    Ok(procedure)
}

/// What the server is doing; one that does not answer says nothing.
async fn load_of(hosts: &Hosts, target: &Target) -> Option<Load> {
    let near = reach(hosts, target).await.ok()?;
    let (_, answer) = http::endpoint(&near).await.ok()?.load_answer().await.ok()?;
    let values = load::over_ranks(&answer)?;
    let count = |name: &str| values.get(name).map(|v| v.round() as u32);
    Some(Load { running: count("num_running_reqs")?, waiting: count("num_waiting_reqs")? })
}

/// Whether the change must keep the environment readable: the case asks for it, or the server that runs has it so.
fn readable_env(world: &World, wish: &ChangeWish) -> bool {
    let has = |pid| service::keeps_environment(&service::evidence(&world.probe, pid)).unwrap_or(false);
    matches!(wish, ChangeWish::Running(_))
        && world.target.role != Role::Router
        && (world.target.readable_env || world.running.as_ref().is_some_and(|r| has(r.key.pid)))
}

/// What is said of the environment of the server's processes.
fn environment_note(world: &World, wish: &Wish<'_>) -> Option<String> {
    let name = &world.target.name;
    if wish.readable {
        return Some(format!(
            "`{name}` is started with `{}=1`, so that each of its processes shows its environment; a restore takes it away",
            service::KEEPS_ENVIRONMENT
        ));
    }
    let running = world.running.as_ref().filter(|_| matches!(wish.kind, ChangeWish::Running(_)))?;
    match service::overwritten(&world.probe, running.key.pid) {
        (0, _) => None,
        (gone, all) => Some(format!(
            "{gone} of {all} processes of `{name}` wrote their title over their environment, so that it cannot be read \
             back; `--readable-env`, or `readable_env = true` at the target, starts it with `{}=1`",
            service::KEEPS_ENVIRONMENT
        )),
    }
}

/// What tells one plan from another on the host.
fn tag() -> String {
    format!("{:x}", jiff::Timestamp::now().as_millisecond())
}

/// The lease that the change needs: ours already, free, or left by a program that is gone.
///
/// # Errors
/// Somebody else holds the target, or it cannot be told.
fn lease_of(world: &World, owner: &lease::Owner, minutes: u32) -> Result<PlannedLease, Failure> {
    let path = format!("{}/leases/{}", world.ground.folder, world.lease);
    let target = &world.target;
    // On this machine the end of the workstation is the end of the server too.
    let minutes = (minutes > 0 && (!target.is_local() || target.production)).then_some(minutes);
    let (ours, instead_of) = match &world.ground.lease {
        Found::Nobody => (false, None),
        Found::Held(holder) if holder.token == owner.token => (true, None),
        Found::Held(holder) if is_gone(holder, owner) => (false, Some(holder.token.clone())),
        Found::Held(holder) => {
            let until = holder.until.map(|t| format!("; the host puts it back at {t}")).unwrap_or_default();
            let failed = if holder.failed { "; the host could not put it back by itself" } else { "" };
            let message = format!("`{}` is held by {}{until}{failed}", target.name, holder.said.visible(200));
            return Err(Failure::new(message).hint(format!(
                "resume that session, ask its owner, or put it back with `patchbench restore {}`",
                target.host
            )));
        }
        Found::Unknown(why) => {
            return Err(Failure::new(format!("cannot tell whether somebody else changes `{}`: {why}", target.name))
                .hint("reach the host as a user who may read patchbench's folder there"));
        }
    };
    Ok(PlannedLease { lease: Lease { path, token: owner.token.clone(), minutes }, ours, instead_of })
}

/// Whether a lease was left by a program of the same user and machine that runs no more.
fn is_gone(holder: &lease::Holder, owner: &lease::Owner) -> bool {
    let same = holder.said.raw().starts_with(&format!("{} in ", owner.who));
    let (theirs, ours): (Vec<&str>, Vec<&str>) =
        (holder.program.split_whitespace().collect(), owner.program.split_whitespace().collect());
    // A program of another machine, or of a container, cannot be looked for here.
    let ([pid, ticks, boot, machine, space], [_, _, own_boot, own_machine, own_space]) = (&theirs[..], &ours[..])
    else {
        return false;
    };
    let (Ok(pid), Ok(start_ticks)) = (pid.parse(), ticks.parse()) else { return false };
    if !same || machine != own_machine {
        return false;
    }
    boot != own_boot || (space == own_space && !super::local::runs(ProcessKey { pid, start_ticks }))
}

/// A lease and how it is come by.
struct PlannedLease {
    lease: Lease,
    /// Whether we hold it already.
    ours: bool,
    /// The lease that it takes the place of.
    instead_of: Option<String>,
}

/// What was asked for.
struct Wish<'a> {
    kind: &'a ChangeWish,
    /// Levels that were named.
    wished: BTreeMap<String, String>,
    /// Patches of the target.
    patches: Vec<&'a Patch>,
    /// Whether titles must leave the environment of its processes readable.
    readable: bool,
}

/// A plan in the making.
struct Plan<'a> {
    world: &'a World,
    lease: PlannedLease,
    wish: Wish<'a>,
    /// Levels that the target's own files give.
    own_levels: BTreeMap<String, String>,
    load: Option<Load>,
    steps: Vec<Step>,
    /// What a person must know.
    notes: Vec<String>,
    /// What tells the traces of this change from those of others.
    tag: String,
}

/// The levels that a change keeps and asks for.
struct Levels {
    /// What the server must have afterwards.
    wanted: BTreeMap<String, String>,
    /// What the target's own files give by themselves.
    own: BTreeMap<String, String>,
}

impl Plan<'_> {
    fn purpose(&self) -> Purpose {
        match (self.wish.kind, &self.world.running) {
            (ChangeWish::Stopped, _) => Purpose::Stop,
            (ChangeWish::Original, _) => Purpose::Restore,
            (ChangeWish::Running(_), None) => Purpose::Start,
            (ChangeWish::Running(_), Some(_)) => Purpose::Restart,
        }
    }

    /// Levels wanted: those of the target's own files, those that the server has unless it is put back, and the wish.
    fn levels(&self, mut own: BTreeMap<String, String>) -> Levels {
        own.extend(self.world.source.iter().flat_map(Source::levels));
        let mut wanted = own.clone();
        if !matches!(self.wish.kind, ChangeWish::Original) {
            wanted.extend(self.world.current.iter().map(|(p, l)| (p.clone(), l.clone())));
        }
        wanted.extend(self.wish.wished.clone());
        Levels { wanted, own }
    }

    /// What the server must be started with. Where patches are taken out of its source, the step that copies it comes
    /// with that, before whatever leads the server to the copy.
    fn asks(&mut self, levels: &Levels, declared: &Declared) -> Result<(Vec<Ask>, Option<Step>), Failure> {
        let current = self.world.running.as_ref().map(|_| &self.world.current);
        let kept = if matches!(self.wish.kind, ChangeWish::Original) { None } else { current };
        let mut asks = asks(&self.wish.patches, &levels.wanted, &levels.own, &self.wish.wished, kept);
        if self.wish.readable {
            let switch = service::KEEPS_ENVIRONMENT.to_owned();
            asks.push(Ask { switch, value: Some("1".into()), takes_value: true });
        }
        let Some(copy) = source::copy(self, levels, declared)? else { return Ok((asks, None)) };
        asks.extend(copy.asks);
        self.notes.extend(copy.notes);
        Ok((asks, Some(copy.step)))
    }

    /// Whether the target runs as its own files say and nothing of ours stands on its host: a restart would cost time and
    /// change nothing.
    fn nothing_to_restore(&self) -> bool {
        let World { ground, running, current, .. } = self.world;
        let as_written = self.own_levels.iter().all(|(patch, level)| current.get(patch) == Some(level));
        let nothing_of_ours = ground.overrides.is_empty() && ground.trees.is_empty();
        running.is_some() && as_written && ground.lease == Found::Nobody && nothing_of_ours
    }

    /// Takes the lease, which holds the way back, before anything else.
    fn take_lease(&mut self, owner: &lease::Owner, restore: &str) -> Result<(), Failure> {
        let Lease { path, token, minutes } = &self.lease.lease;
        let new = lease::New {
            path,
            owner,
            since: jiff::Timestamp::now(),
            target: &self.world.target.name,
            instead_of: self.lease.instead_of.as_deref(),
            restore,
            minutes: *minutes,
            unit: matches!(self.world.target.manager, Manager::Systemd { .. }),
        };
        // A change that comes on top of another is taken back to that one, which still needs the lease.
        let undo = if self.lease.ours || self.lease.instead_of.is_some() {
            None
        } else {
            Some(shell(lease::give_back(path, token)?, 10.0))
        };
        self.steps.push(Step {
            name: "lease".into(),
            check: shell(lease::is_ours(path, token)?, 10.0),
            apply: shell(lease::take(&new)?, 30.0),
            undo,
            undo_proof: None,
            proof: shell(lease::is_ours(path, token)?, 10.0),
        });
        Ok(())
    }

    /// Gives the lease back after everything stands as it was.
    fn give_lease_back(&mut self) -> Result<(), Failure> {
        let Lease { path, token, .. } = &self.lease.lease;
        self.steps.push(Step {
            name: "give-lease-back".into(),
            check: shell(lease::is_given_back(path, token)?, 10.0),
            apply: shell(lease::give_back(path, token)?, 10.0),
            undo: None,
            undo_proof: None,
            proof: shell(lease::is_given_back(path, token)?, 10.0),
        });
        Ok(())
    }

    fn prove(&mut self, expect: BootExpectation) {
        self.steps.push(Step {
            name: "prove".into(),
            check: Action::Nothing,
            apply: Action::Nothing,
            undo: None,
            undo_proof: None,
            proof: Action::ProveBoot { expect, timeout_s: READY_TIMEOUT_S },
        });
    }

    /// What a process with these levels must show.
    fn readback(&self, levels: &BTreeMap<String, String>) -> Vec<Readback> {
        let one = |patch: &&Patch| {
            let level = levels.get(&patch.id)?;
            let value = match patch.gate.levels()?.get(level)? {
                LevelValue::Set(value) => Some(value.clone()),
                LevelValue::Unset | LevelValue::In | LevelValue::Out => None,
            };
            let switch = patch.gate.switch_name().to_owned();
            Some(Readback { patch: patch.id.clone(), level: level.clone(), switch, value })
        };
        self.wish.patches.iter().filter_map(one).collect()
    }

    fn finish(self) -> Procedure {
        let purpose = self.purpose();
        let wanted = &self.wish.wished;
        let shown = wanted.iter().filter(|(p, l)| self.world.current.get(*p) != Some(*l));
        Procedure {
            id: ProcedureId(0),
            purpose,
            target: self.world.target.name.clone(),
            title: title(purpose, &self.world.target, shown),
            levels: self.levels(self.own_levels.clone()).wanted,
            load: self.load,
            jobs: Some(format!("{}/jobs/{}-{}", self.world.ground.folder, self.world.stem, self.tag)),
            lease: Some(self.lease.lease),
            notes: self.notes,
            steps: self.steps,
        }
    }
}

/// Writes a copy of the script at `path`, and does `then` with it.
fn write_override(world: &World, made: &Override, path: &str, text: &str, then: &str) -> Result<Step, Failure> {
    let file = world.override_file(made);
    let stands = shell_text::override_stands(made, &file)?;
    // An override that stands there already may be the one that runs: it is not ours to take away.
    let stood = world.ground.overrides.contains(&file);
    let undo = if stood { None } else { Some(shell(format!("rm -f {}", shell_text::quote(&file)?), 10.0)) };
    let apply = format!("{}{then}", shell_text::write_override(made, path, text.as_bytes(), &file)?);
    Ok(Step {
        name: "write-override".into(),
        check: shell(stands.clone(), 10.0),
        apply: shell(apply, 30.0),
        undo,
        undo_proof: None,
        proof: shell(stands, 10.0),
    })
}

/// Whether what is declared gives a switch the value that is asked for.
fn gives(declared: &Declared, ask: &Ask) -> bool {
    let value = if ask.switch.starts_with('-') {
        argv::flag_value(&declared.argv, &ask.switch, ask.takes_value).ok().flatten()
    } else {
        declared.variables.get(&ask.switch).and_then(|v| v.value.as_ref()?.known().map(str::to_owned))
    };
    value == ask.value
}

/// Refuses a target whose port somebody else has; `manager` is what the case names it by.
fn check_port(world: &World, name: &str, manager: &str) -> Result<(), Failure> {
    let Some(running) = world.running.as_ref().filter(|r| r.by_port_alone.is_some()) else { return Ok(()) };
    let message = format!("port {} is owned by pid {}, which does not belong to `{name}`", world.port, running.key.pid);
    Err(Failure::new(message)
        .hint(format!("stop that process yourself, or correct the target's url or {manager} in the case")))
}

/// Whether a word of a command is a shell that runs scripts.
fn is_bash(word: &str) -> bool {
    matches!(argv::base_name(word), "bash" | "sh" | "dash")
}

fn shell(script: String, timeout_s: f64) -> Action {
    Action::Shell { script, timeout_s }
}

fn title<'l>(purpose: Purpose, target: &Target, wished: impl Iterator<Item = (&'l String, &'l String)>) -> String {
    let verb = match purpose {
        Purpose::Start => "start",
        Purpose::Restart => "restart",
        Purpose::Stop => "stop",
        Purpose::Restore => "restore",
    };
    let levels: Vec<String> = wished.map(|(p, l)| format!("{p}={l}")).collect();
    if levels.is_empty() {
        return format!("{verb} {}", target.name);
    }
    format!("{verb} {} with {}", target.name, levels.join(" "))
}

fn check_wish(patches: &[&Patch], wished: &BTreeMap<String, String>, target: &str) -> Result<(), Failure> {
    for (id, level) in wished {
        let Some(patch) = patches.iter().find(|p| p.id == *id) else {
            return Err(Failure::new(format!("`{target}` has no patch `{id}`")));
        };
        let Some(levels) = patch.gate.levels() else {
            return Err(Failure::new(format!("patch `{id}` has no gate, so that no restart could switch it")).hint(
                "give it a variable (`patchbench patches guard`), or a diff to take out: `gate = { reverse = \"…\" }`",
            ));
        };
        if !levels.contains_key(level) {
            let names: Vec<&str> = levels.keys().map(String::as_str).collect();
            return Err(Failure::new(format!("patch `{id}` has no level `{level}`"))
                .hint(format!("levels: {}", names.join(", "))));
        }
    }
    Ok(())
}

/// What the override must state: what was wished, and what the running server has against its script.
fn asks(
    patches: &[&Patch],
    levels: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
    wished: &BTreeMap<String, String>,
    current: Option<&BTreeMap<String, String>>,
) -> Vec<Ask> {
    let mut out = Vec::new();
    for patch in patches {
        let (Some(level), Some(known)) = (levels.get(&patch.id), patch.gate.levels()) else { continue };
        let kept = current.is_some_and(|c| c.get(&patch.id) == Some(level)) && own.get(&patch.id) != Some(level);
        if !wished.contains_key(&patch.id) && !kept {
            continue;
        }
        let value = match known.get(level) {
            Some(LevelValue::Set(value)) => Some(value.clone()),
            Some(LevelValue::Unset) => None,
            // The source is no switch of the command; see `source`.
            Some(LevelValue::In | LevelValue::Out) | None => continue,
        };
        let takes_value = levels::takes_value(known);
        out.push(Ask { switch: patch.gate.switch_name().to_owned(), value, takes_value });
    }
    out
}
