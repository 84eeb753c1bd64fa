//! Plans a change of one target against the host as it is now, as plain data.
//!
//! Reads only. Running the plan is `remote::execute`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::environment::{self, Difference};
use super::local;
use super::owner::{self, Marks, Running};
use super::script::{self, Ask, Override};
use super::{levels, prove, shell_text};
use crate::case::{Case, Gate, LevelValue, Manager, Patch, Target};
use crate::engine::effect::ChangeWish;
use crate::engine::ids::ProcedureId;
use crate::engine::job::JobContext;
use crate::engine::procedure::{Action, BootExpectation, Failure, Procedure, ProcessKey, Purpose, Readback, Step};
use crate::truth::declared::{Declared, Text};

/// Seconds that a server may take to be ready: large models load for many minutes.
const READY_TIMEOUT_S: f64 = 1800.0;
/// The largest launch script that is read, in bytes.
const SCRIPT_BYTES: usize = 1024 * 1024;

/// Where our own files on the host are.
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

/// Plans a change with our files in the standard folder; see [`plan_in`].
///
/// # Errors
/// See [`plan_in`].
pub async fn plan(case: &Case, target: &str, wish: &ChangeWish, ctx: &JobContext) -> Result<Procedure, Failure> {
    plan_in(&Folders::standard()?, case, target, wish, ctx).await
}

/// Plans a change. Levels that the wish does not name stay as the running server has them.
///
/// # Errors
/// The target cannot be changed this way, its script cannot be read or overridden, its port is owned by
/// a stranger, or its log cannot be written. Nothing was changed.
pub async fn plan_in(
    folders: &Folders,
    case: &Case,
    target: &str,
    wish: &ChangeWish,
    ctx: &JobContext,
) -> Result<Procedure, Failure> {
    let target = case.target(target).ok_or_else(|| Failure::new(format!("the case has no target `{target}`")))?.clone();
    let (folders, case, wish) = (folders.clone(), case.clone(), wish.clone());
    ctx.progress(0, None, "reading the host");
    // Reading /proc and the script blocks for some milliseconds.
    tokio::task::spawn_blocking(move || plan_now(&folders, &case, &target, &wish))
        .await
        .map_err(|e| Failure::new(format!("planning broke off: {e}")))?
}

/// A server of another user would come back as ours, with other rights and another home.
fn check_user(running: &Running, target: &str) -> Result<(), Failure> {
    let pid = running.process.key.pid;
    let ours = rustix::process::getuid().as_raw();
    match local::user(pid) {
        Some(uid) if uid != ours => Err(Failure::new(format!(
            "`{target}` runs as user {uid} (pid {pid}), and a start from here would run it as user {ours}"
        ))
        .hint("run patchbench as the user who runs the server")),
        _ => Ok(()),
    }
}

/// The host as it is at the moment of planning.
struct World {
    script: String,
    log: String,
    port: u16,
    text: String,
    declared: Declared,
    running: Option<Running>,
    /// What a start must change in its environment so that the script finds what it found before.
    environment: Difference,
    /// Traces of a start that has not come to its port yet.
    loading: Option<String>,
}

fn plan_now(folders: &Folders, case: &Case, target: &Target, wish: &ChangeWish) -> Result<Procedure, Failure> {
    let overrides = folders.overrides.display().to_string();
    let world = look(target, &overrides)?;
    let patches: Vec<&Patch> =
        case.patches.iter().filter(|p| p.targets_in(case).any(|t| t.name == target.name)).collect();
    let wished = match wish {
        ChangeWish::Running(levels) => levels.clone(),
        ChangeWish::Stopped | ChangeWish::Original => BTreeMap::new(),
    };
    check_wish(&patches, &wished, &target.name)?;
    let own = declared_levels(&patches, &world);
    let current = world.running.as_ref().map(|r| current_levels(&patches, r.process.key.pid));
    let mut levels = own.clone();
    if !matches!(wish, ChangeWish::Original) {
        levels.extend(current.iter().flatten().map(|(p, l)| (p.clone(), l.clone())));
    }
    levels.extend(wished.clone());
    let asks = asks(&patches, &levels, &own, &wished, current.as_ref());
    let tag = jiff::Timestamp::now().as_millisecond();
    let run = format!("{overrides}/runs/{}-{tag:x}", owner::run_stem(&target.name, &world.script));
    let before = Before { levels: current.clone().unwrap_or_default(), patches: &patches };
    let mut plan = Plan { target, world: &world, run, before, steps: Vec::new() };
    let old = world.running.as_ref().map(|r| r.process.key);
    let purpose = match (wish, old) {
        (ChangeWish::Stopped, _) => Purpose::Stop,
        (ChangeWish::Original, _) => Purpose::Restore,
        (ChangeWish::Running(_), None) => Purpose::Start,
        (ChangeWish::Running(_), Some(_)) => Purpose::Restart,
    };
    if purpose == Purpose::Stop {
        if let Some(running) = &world.running {
            plan.stop(running)?;
        }
        if let Some(run) = &world.loading {
            plan.end_loading(run)?;
        }
    } else {
        if let Some(run) = &world.loading {
            return Err(Failure::new(format!(
                "an earlier start of `{}` is still loading, see `{run}.pid`",
                target.name
            ))
            .hint("resume or undo that change, or stop the target first"));
        }
        check_log(&world.log)?;
        check_environment(&world.environment)?;
        let made = script::make_override(&world.text, &world.script, &asks, Some(world.port))?;
        let file = if made.changes { Some(plan.write(&made, &overrides)?) } else { None };
        if let Some(running) = &world.running {
            plan.stop(running)?;
        }
        plan.start(file.as_deref().unwrap_or(&world.script), &made.options)?;
        plan.prove(old, &levels);
        if purpose == Purpose::Restore {
            plan.retire(world.running.as_ref(), &overrides)?;
            plan.tidy(&overrides)?;
        }
    }
    let steps = plan.steps;
    Ok(Procedure {
        id: ProcedureId(0),
        purpose,
        target: target.name.clone(),
        title: title(purpose, target, &differing(&wished, current.as_ref().unwrap_or(&own))),
        levels,
        steps,
    })
}

/// The wished levels that the server does not have, or its script does not give, yet.
fn differing(wished: &BTreeMap<String, String>, have: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    wished.iter().filter(|(p, l)| have.get(*p) != Some(*l)).map(|(p, l)| (p.clone(), l.clone())).collect()
}

fn title(purpose: Purpose, target: &Target, wished: &BTreeMap<String, String>) -> String {
    let verb = match purpose {
        Purpose::Start => "start",
        Purpose::Restart => "restart",
        Purpose::Stop => "stop",
        Purpose::Restore => "restore",
    };
    let levels: Vec<String> = wished.iter().map(|(p, l)| format!("{p}={l}")).collect();
    if levels.is_empty() {
        return format!("{verb} {}", target.name);
    }
    format!("{verb} {} with {}", target.name, levels.join(" "))
}

fn look(target: &Target, overrides: &str) -> Result<World, Failure> {
    let Manager::Script { script, log } = &target.manager else {
        return Err(Failure::new(format!(
            "`{}` is not started by a script, and no other manager can be driven yet",
            target.name
        ))
        .hint("give the target a manager of the form { script = \"…\", log = \"…\" }"));
    };
    if !target.is_local() {
        return Err(Failure::new(format!(
            "`{}` runs on `{}`, and only this machine can be changed yet",
            target.name, target.host
        )));
    }
    let port = target.port().ok_or_else(|| Failure::new(format!("the url of `{}` has no port", target.name)))?;
    let text = read_script(script)?;
    script::bash_options(&text, script)?;
    let declared = script::declared(&script::parse(&text)?, script, Some(port));
    let marks = Marks { script, overrides, argv: &declared.argv };
    let running = owner::running(&target.name, port, &marks)?;
    if let Some(running) = &running {
        check_user(running, &target.name)?;
    }
    let loading = if running.is_none() { loading_start(overrides, &target.name, script) } else { None };
    let environment = match &running {
        Some(running) => environment_of(running, &declared, script, port)?,
        None => Difference::default(),
    };
    Ok(World { loading, environment, script: script.clone(), log: log.clone(), port, text, declared, running })
}

fn environment_of(running: &Running, declared: &Declared, script: &str, port: u16) -> Result<Difference, Failure> {
    let mut assigned = assigned_names(declared);
    if let Some(file) = running.started_from.as_deref().filter(|f| *f != script)
        && let Ok(text) = read_script(file)
    {
        assigned.extend(assigned_names(&script::declared(&script::parse(&text)?, file, Some(port))));
    }
    Ok(environment::of(running, &assigned))
}

/// Names whose value the script alone decides: what it makes of an inherited value (`X=${X:-1}`) is not among them.
fn assigned_names(declared: &Declared) -> BTreeSet<String> {
    let decided = |value: &Option<Text>| value.as_ref().is_none_or(|v| v.known().is_some());
    declared.variables.iter().filter(|(_, v)| decided(&v.value)).map(|(name, _)| name.clone()).collect()
}

/// Refuses a start that could not give the server a secret that it was started with.
fn check_environment(environment: &Difference) -> Result<(), Failure> {
    if environment.secrets.is_empty() {
        return Ok(());
    }
    let names = environment.secrets.join("`, `");
    Err(Failure::new(format!("the server was started with `{names}`, which this shell does not have or has otherwise"))
        .hint("export the same value before starting patchbench, or in the launch script: a secret is never written into a command"))
}

/// A start of ours that still lives.
fn loading_start(overrides: &str, target: &str, script: &str) -> Option<String> {
    let prefix = format!("{overrides}/runs/{}-", owner::run_stem(target, script));
    let ours = |run: &str| {
        let tag = run.strip_prefix(&prefix).map(|t| t.trim_end_matches("-undo"));
        tag.is_some_and(|t| t.chars().all(|c| c.is_ascii_hexdigit()))
    };
    if let Some(run) = local::living_runs().into_iter().find(|run| ours(run)) {
        return Some(run);
    }
    fs_err::read_dir(format!("{overrides}/runs")).ok()?.flatten().find_map(|entry| {
        let run = format!("{overrides}/runs/{}", entry.file_name().to_str()?.strip_suffix(".pid")?);
        (ours(&run) && prove::leader(&run).is_some_and(local::runs)).then_some(run)
    })
}

/// The text of a launch script.
///
/// # Errors
/// It is missing, unreadable, too long, or no text.
pub fn read_script(path: &str) -> Result<String, Failure> {
    let bytes = fs_err::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::new(format!("the launch script `{path}` does not exist"))
            .hint("correct the target's script in the case"),
        std::io::ErrorKind::PermissionDenied => {
            Failure::new(format!("the launch script `{path}` cannot be read")).hint("run as a user who may read it")
        }
        _ => Failure::new(format!("the launch script cannot be read: {e}")),
    })?;
    if bytes.len() > SCRIPT_BYTES {
        return Err(Failure::new(format!("the launch script `{path}` is longer than {SCRIPT_BYTES} bytes")));
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|t| !t.contains('\0'))
        .ok_or_else(|| Failure::new(format!("the launch script `{path}` is no text")).hint("name a bash script"))
}

fn check_wish(patches: &[&Patch], wished: &BTreeMap<String, String>, target: &str) -> Result<(), Failure> {
    for (id, level) in wished {
        let Some(patch) = patches.iter().find(|p| p.id == *id) else {
            return Err(Failure::new(format!("`{target}` has no patch `{id}`")));
        };
        let Some(levels) = patch.gate.levels() else {
            return Err(Failure::new(format!("patch `{id}` has no variable or flag that a restart could set"))
                .hint("give it a gate with levels, or take it out of the source by hand"));
        };
        if !levels.contains_key(level) {
            let names: Vec<&str> = levels.keys().map(String::as_str).collect();
            return Err(Failure::new(format!("patch `{id}` has no level `{level}`"))
                .hint(format!("levels: {}", names.join(", "))));
        }
    }
    Ok(())
}

/// The level that the script by itself gives each patch, where the script alone tells.
fn declared_levels(patches: &[&Patch], world: &World) -> BTreeMap<String, String> {
    let declared = &world.declared;
    // A script that says nothing lets the variable through.
    let inherited = |name: &str| match world.environment.changes.iter().find(|(n, _)| n == name) {
        Some((_, value)) => value.clone(),
        None => std::env::var(name).ok(),
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
                super::argv::flag_value(&declared.argv, flag, levels::takes_value(levels)).ok()?
            }
            Gate::Reverse { .. } | Gate::None => return None,
        };
        levels::level_of(patch.gate.switch_name(), value.as_deref(), levels).ok()
    };
    patches.iter().filter_map(|p| Some((p.id.clone(), level(p)?))).collect()
}

fn current_levels(patches: &[&Patch], pid: u32) -> BTreeMap<String, String> {
    let read = levels::read(patches.iter().copied(), pid, &local::environ(pid), &local::cmdline(pid));
    read.into_iter().filter_map(|(patch, reading)| Some((patch, reading.level.ok()?))).collect()
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
            None => continue,
        };
        let takes_value = levels::takes_value(known);
        out.push(Ask { switch: patch.gate.switch_name().to_owned(), value, takes_value });
    }
    out
}

/// Says whether the log could be written; changes nothing.
fn check_log(log: &str) -> Result<(), Failure> {
    let path = Path::new(log);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hint = "correct the target's log in the case, or make the folder writable";
    if !folder.is_dir() {
        return Err(Failure::new(format!("the folder of the log `{log}` does not exist")).hint(hint));
    }
    let subject = if path.exists() { path } else { folder };
    if path.is_dir() || rustix::fs::access(subject, rustix::fs::Access::WRITE_OK).is_err() {
        return Err(Failure::new(format!("the log `{log}` cannot be written")).hint(hint));
    }
    if rustix::fs::statvfs(folder).is_ok_and(|s| s.f_bavail == 0) {
        return Err(Failure::new(format!("the disk of the log `{log}` is full")).hint("free some space first"));
    }
    Ok(())
}

/// The processes that a stop ends: first the shell that would start the server again, then the server.
fn keys_of(running: &Running) -> Vec<ProcessKey> {
    let wrapper = running.launcher.as_ref().map(|l| l.key);
    wrapper.into_iter().chain([running.process.key]).collect()
}

/// What the server that runs now is like.
struct Before<'a> {
    levels: BTreeMap<String, String>,
    patches: &'a [&'a Patch],
}

impl Before<'_> {
    /// What a process with these levels must show.
    fn readback(&self, levels: &BTreeMap<String, String>) -> Vec<Readback> {
        let one = |patch: &&Patch| {
            let level = levels.get(&patch.id)?;
            let value = match patch.gate.levels()?.get(level)? {
                LevelValue::Set(value) => Some(value.clone()),
                LevelValue::Unset => None,
            };
            let switch = patch.gate.switch_name().to_owned();
            Some(Readback { patch: patch.id.clone(), level: level.clone(), switch, value })
        };
        self.patches.iter().filter_map(one).collect()
    }
}

struct Plan<'a> {
    target: &'a Target,
    world: &'a World,
    run: String,
    before: Before<'a>,
    steps: Vec<Step>,
}

impl Plan<'_> {
    fn shell(script: String, timeout_s: f64) -> Action {
        Action::Shell { script, timeout_s }
    }

    /// Writes the override; returns its path.
    fn write(&mut self, made: &Override, overrides: &str) -> Result<String, Failure> {
        let hash = blake3::hash(made.text.as_bytes()).to_hex();
        let stem = owner::run_stem(&self.target.name, &self.world.script);
        let file = format!("{overrides}/{stem}-{}.sh", &hash.as_str()[..12]);
        let stands = shell_text::override_stands(made, &file)?;
        // An override that stands there already may be the one that runs: it is not ours to take away.
        let undo = if Path::new(&file).exists() { None } else { Some(format!("rm -f {}", shell_text::quote(&file)?)) };
        let apply = shell_text::write_override(made, &self.world.script, self.world.text.as_bytes(), &file)?;
        self.steps.push(Step {
            name: "write-override".into(),
            check: Self::shell(stands.clone(), 10.0),
            apply: Self::shell(apply, 30.0),
            undo: undo.map(|script| Self::shell(script, 10.0)),
            undo_proof: None,
            proof: Self::shell(stands, 10.0),
        });
        Ok(file)
    }

    fn stop(&mut self, running: &Running) -> Result<(), Failure> {
        let ProcessKey { pid, start_ticks } = running.process.key;
        let file = running.started_from.clone().unwrap_or_else(|| self.world.script.clone());
        let gone = |timeout_s| Action::ProcessGone { pid, start_ticks, timeout_s };
        let options = script::bash_options(&self.world.text, &self.world.script)?;
        let again = format!("{}-undo", self.run);
        let undo = self.start_text(&file, &options, &again)?;
        let old = Some(running.process.key);
        let proof = self.prove_start(old, &again, self.before.readback(&self.before.levels));
        self.steps.push(Step {
            name: "stop".into(),
            check: gone(0.0),
            apply: Self::shell(shell_text::stop(&keys_of(running)), 90.0),
            undo: Some(Self::shell(undo, 30.0)),
            undo_proof: Some(proof),
            proof: gone(5.0),
        });
        Ok(())
    }

    /// Ends a start that is still loading.
    fn end_loading(&mut self, run: &str) -> Result<(), Failure> {
        self.steps.push(Step {
            name: "stop".into(),
            check: Action::Nothing,
            apply: Self::shell(shell_text::end_start(run)?, 60.0),
            undo: None,
            undo_proof: None,
            proof: Self::shell(shell_text::not_started(run)?, 10.0),
        });
        Ok(())
    }

    fn start_text(&self, file: &str, options: &[String], run: &str) -> Result<String, Failure> {
        let folder = self.world.script.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let folder = if folder.is_empty() { "/" } else { folder };
        let World { log, port, environment, .. } = self.world;
        let mut remarks = Vec::new();
        if let Some(why) = &environment.unknown {
            remarks.push(format!(
                "The environment that the server was started in is not known ({why}): it gets this shell's."
            ));
        }
        for name in &environment.secrets {
            remarks.push(format!("`{name}`, which the server was started with, is a secret and is not given here."));
        }
        let environment = &environment.changes;
        shell_text::start(&shell_text::Start {
            file,
            options,
            folder,
            log,
            run,
            port: *port,
            environment,
            remarks: &remarks,
        })
    }

    fn start(&mut self, file: &str, options: &[String]) -> Result<(), Failure> {
        let apply = self.start_text(file, options, &self.run)?;
        self.steps.push(Step {
            name: "start".into(),
            check: Self::shell(shell_text::started(&self.run)?, 10.0),
            apply: Self::shell(apply, 30.0),
            undo: Some(Self::shell(shell_text::end_start(&self.run)?, 60.0)),
            undo_proof: None,
            proof: Self::shell(shell_text::was_started(&self.run)?, 10.0),
        });
        Ok(())
    }

    fn prove_start(&self, old: Option<ProcessKey>, run: &str, readback: Vec<Readback>) -> Action {
        let expect = BootExpectation {
            old,
            port: self.world.port,
            url: self.target.url.clone(),
            log: self.world.log.clone(),
            log_offset: local::file_len(&self.world.log),
            pid_file: Some(format!("{run}.pid")),
            readback,
        };
        Action::ProveBoot { expect, timeout_s: READY_TIMEOUT_S }
    }

    fn prove(&mut self, old: Option<ProcessKey>, levels: &BTreeMap<String, String>) {
        self.steps.push(Step {
            name: "prove".into(),
            check: Action::Nothing,
            apply: Action::Nothing,
            undo: None,
            undo_proof: None,
            proof: self.prove_start(old, &self.run, self.before.readback(levels)),
        });
    }

    /// Takes away what earlier changes of this target left, but for what this one needs to be taken back.
    fn tidy(&mut self, overrides: &str) -> Result<(), Failure> {
        let name = owner::run_stem(&self.target.name, &self.world.script);
        let (stem, aside) = (format!("{overrides}/runs/{name}-"), format!("{overrides}/{name}-"));
        let kept = self.world.running.as_ref().and_then(|r| r.started_from.clone()).unwrap_or_default();
        let text = shell_text::tidy(&stem, &self.run, &aside, &format!("{kept}.retired"))?;
        self.steps.push(Step {
            name: "tidy".into(),
            check: Action::Nothing,
            apply: Self::shell(text, 10.0),
            undo: None,
            undo_proof: None,
            proof: Action::Nothing,
        });
        Ok(())
    }

    /// Puts the override of the server that ran before aside; its undo brings it back.
    fn retire(&mut self, running: Option<&Running>, overrides: &str) -> Result<(), Failure> {
        let Some(file) = running.and_then(|r| r.started_from.as_deref()).filter(|f| f.starts_with(overrides)) else {
            return Ok(());
        };
        let (file, aside) = (shell_text::quote(file)?, shell_text::quote(&format!("{file}.retired"))?);
        self.steps.push(Step {
            name: "retire-override".into(),
            check: Self::shell(format!("[ ! -e {file} ]"), 10.0),
            apply: Self::shell(format!("mv {file} {aside}"), 10.0),
            undo: Some(Self::shell(format!("[ ! -e {aside} ] || mv {aside} {file}"), 10.0)),
            undo_proof: None,
            proof: Self::shell(format!("[ ! -e {file} ]"), 10.0),
        });
        Ok(())
    }
}
