//! The steps of a target that a launch script starts: an override of the script beside it, a stop, a start, the proof.

use std::collections::BTreeSet;

use super::look::{Launch, World};
use super::{Levels, Means, Plan, shell, source, write_override};
use crate::engine::procedure::{Action, BootExpectation, Failure, ProcessKey, Purpose, Step};
use crate::remote::environment::Difference;
use crate::remote::ground::LogPlace;
use crate::remote::probe::owner::Own;
use crate::remote::proc::Unknown;
use crate::remote::script;
use crate::remote::shell_text;
use crate::remote::source::tree;
use crate::truth::declared::Declared;

/// Makes the steps.
///
/// # Errors
/// See [`super::plan`].
pub(super) fn plan(plan: &mut Plan<'_>, script: &str, log: &str, means: &Means) -> Result<(), Failure> {
    let world = plan.world;
    let launch = world.launch.as_ref().ok_or_else(|| Failure::new("the launch script was not read"))?;
    let purpose = plan.purpose();
    let own_script = |r: &Own| r.started_from.as_deref().is_none_or(|f| f == script);
    if purpose == Purpose::Restore && world.running.as_ref().is_some_and(own_script) && plan.nothing_to_restore() {
        return Ok(());
    }
    let steps = Steps { world, launch, script, log, run: format!("{}-{}", runs(world), plan.tag) };
    if purpose == Purpose::Stop {
        if world.running.is_none() && world.ground.runs.is_empty() {
            return Ok(());
        }
        plan.take_lease(&means.owner, &steps.restore()?)?;
        if let Some(running) = &world.running {
            let stop = steps.stop(plan, running)?;
            plan.steps.push(stop);
        }
        for run in world.ground.runs.iter().filter(|_| world.running.is_none()) {
            plan.steps.push(end_loading(run)?);
        }
        return Ok(());
    }
    if world.running.is_none()
        && let Some(run) = world.ground.runs.first()
    {
        return Err(Failure::new(format!(
            "an earlier start of `{}` is still loading, see `{run}.pid`",
            world.target.name
        ))
        .hint("resume or undo that change, or stop the target first"));
    }
    check_log(log, &world.ground.log)?;
    check_environment(&launch.environment)?;
    let levels = plan.levels(world.own_levels.clone());
    let (asks, copy) = plan.asks(&levels, &launch.declared)?;
    let made = script::make_override(&launch.text, script, &asks, Some(world.port))?;
    plan.take_lease(&means.owner, &steps.restore()?)?;
    plan.steps.extend(copy);
    let file = world.override_file(&made);
    if made.changes {
        plan.steps.push(write_override(world, &made, script, &launch.text, "")?);
    }
    if let Some(running) = &world.running {
        let stop = steps.stop(plan, running)?;
        plan.steps.push(stop);
    }
    plan.steps.push(steps.start(if made.changes { &file } else { script }, &made.options)?);
    let old = world.running.as_ref().map(|r| r.key);
    plan.prove(steps.expect(plan, old, &steps.run, &levels));
    if purpose == Purpose::Restore {
        if let Some(step) = steps.retire()? {
            plan.steps.push(step);
        }
        let away = source::take_away(plan)?;
        plan.steps.extend(away);
        let tidy = steps.tidy(&plan.tag)?;
        plan.steps.push(tidy);
        plan.give_lease_back()?;
    }
    Ok(())
}

/// Path of the traces of this target's starts, without what tells one from another.
fn runs(world: &World) -> String {
    format!("{}/runs/{}", world.ground.folder, world.stem)
}

struct Steps<'a> {
    world: &'a World,
    launch: &'a Launch,
    script: &'a str,
    log: &'a str,
    run: String,
}

impl Steps<'_> {
    /// Puts the target back without us, whatever was done: every start of ours ends, and where the server that runs now
    /// is gone, the script is started as it is.
    fn restore(&self) -> Result<String, Failure> {
        let World { ground, stem, lease, .. } = self.world;
        let folder = &ground.folder;
        let again = match &self.world.running {
            Some(running) => {
                let options = script::bash_options(&self.launch.text, self.script)?;
                let start = self.start_text(self.script, &options, &format!("{}-back", self.run))?;
                let ours = running.started_from.as_deref().is_some_and(|f| f.starts_with(folder));
                Some(((!ours).then_some(running.key), start))
            }
            None => None,
        };
        shell_text::put_back(
            &format!("{folder}/jobs/{stem}-"),
            &format!("{}-", runs(self.world)),
            (&format!("{folder}/{stem}-"), &tree::prefix(folder, lease)),
            again.as_ref().map(|(key, start)| (*key, start.as_str())),
        )
    }

    fn stop(&self, plan: &Plan<'_>, running: &Own) -> Result<Step, Failure> {
        let ProcessKey { pid, start_ticks } = running.key;
        let file = running.started_from.clone().unwrap_or_else(|| self.script.to_owned());
        let gone = |timeout_s| Action::ProcessGone { pid, start_ticks, timeout_s };
        let options = script::bash_options(&self.launch.text, self.script)?;
        let again = format!("{}-undo", self.run);
        let undo = self.start_text(&file, &options, &again)?;
        let levels = Levels { wanted: self.world.current.clone(), own: self.world.own_levels.clone() };
        let proof = self.expect(plan, Some(running.key), &again, &levels);
        Ok(Step {
            name: "stop".into(),
            check: gone(0.0),
            apply: shell(shell_text::stop(&keys_of(running)), 90.0),
            undo: Some(shell(undo, 30.0)),
            undo_proof: Some(Action::ProveBoot { expect: proof, timeout_s: super::READY_TIMEOUT_S }),
            proof: gone(5.0),
        })
    }

    fn start_text(&self, file: &str, options: &[String], run: &str) -> Result<String, Failure> {
        let folder = self.script.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let folder = if folder.is_empty() { "/" } else { folder };
        let environment = &self.launch.environment;
        let mut remarks = Vec::new();
        if let Some(why) = &environment.unknown {
            remarks.push(format!(
                "The environment that the server was started in is not known ({why}): it gets this shell's."
            ));
        }
        for name in &environment.secrets {
            remarks.push(format!("`{name}`, which the server was started with, is a secret and is not given here."));
        }
        shell_text::start(&shell_text::Start {
            file,
            options,
            folder,
            log: self.log,
            run,
            port: self.world.port,
            environment: &environment.changes,
            remarks: &remarks,
        })
    }

    fn start(&self, file: &str, options: &[String]) -> Result<Step, Failure> {
        Ok(Step {
            name: "start".into(),
            check: shell(shell_text::started(&self.run)?, 10.0),
            apply: shell(self.start_text(file, options, &self.run)?, 30.0),
            undo: Some(shell(shell_text::end_start(&self.run)?, 60.0)),
            undo_proof: None,
            proof: shell(shell_text::was_started(&self.run)?, 10.0),
        })
    }

    fn expect(&self, plan: &Plan<'_>, old: Option<ProcessKey>, run: &str, levels: &Levels) -> BootExpectation {
        let log_offset = match self.world.ground.log {
            Ok(LogPlace::Writable(bytes)) => bytes,
            _ => 0,
        };
        BootExpectation {
            old,
            port: self.world.port,
            url: self.world.target.url.clone(),
            log: self.log.to_owned(),
            log_offset,
            pid_file: Some(format!("{run}.pid")),
            unit: None,
            container: None,
            readback: plan.readback(&levels.wanted),
        }
    }

    /// Takes away what earlier changes of this target left, but for what this one needs to be taken back.
    fn tidy(&self, tag: &str) -> Result<Step, Failure> {
        let World { ground, stem, running, .. } = self.world;
        let aside = format!("{}/{stem}-", ground.folder);
        let kept = running.as_ref().and_then(|r| r.started_from.clone()).unwrap_or_default();
        let jobs = format!("{}/jobs/{stem}-", ground.folder);
        let text = shell_text::tidy(
            (&format!("{}-", runs(self.world)), &self.run),
            (&jobs, &format!("{jobs}{tag}")),
            &aside,
            &format!("{kept}.retired"),
        )?;
        Ok(Step {
            name: "tidy".into(),
            check: Action::Nothing,
            apply: shell(text, 10.0),
            undo: None,
            undo_proof: None,
            proof: Action::Nothing,
        })
    }

    /// Puts the override of the server that ran before aside; its undo brings it back.
    fn retire(&self) -> Result<Option<Step>, Failure> {
        let running = self.world.running.as_ref();
        let ours = running.and_then(|r| r.started_from.as_deref()).filter(|f| f.starts_with(&self.world.ground.folder));
        let Some(file) = ours else { return Ok(None) };
        let (file, aside) = (shell_text::quote(file)?, shell_text::quote(&format!("{file}.retired"))?);
        Ok(Some(Step {
            name: "retire-override".into(),
            check: shell(format!("[ ! -e {file} ]"), 10.0),
            apply: shell(format!("mv {file} {aside}"), 10.0),
            undo: Some(shell(format!("[ ! -e {aside} ] || mv {aside} {file}"), 10.0)),
            undo_proof: None,
            proof: shell(format!("[ ! -e {file} ]"), 10.0),
        }))
    }
}

/// Ends a start that is still loading.
fn end_loading(run: &str) -> Result<Step, Failure> {
    Ok(Step {
        name: "stop".into(),
        check: Action::Nothing,
        apply: shell(shell_text::end_start(run)?, 60.0),
        undo: None,
        undo_proof: None,
        proof: shell(shell_text::not_started(run)?, 10.0),
    })
}

/// The processes that a stop ends: first the shell that would start the server again, then the server.
fn keys_of(running: &Own) -> Vec<ProcessKey> {
    running.launcher.into_iter().chain([running.key]).collect()
}

/// Names whose value the script alone decides: what it makes of an inherited value (`X=${X:-1}`) is not among them.
pub(super) fn assigned_names(declared: &Declared) -> BTreeSet<String> {
    let decided = |value: &Option<crate::truth::declared::Text>| value.as_ref().is_none_or(|v| v.known().is_some());
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

/// Says whether the log could be written.
fn check_log(log: &str, place: &Result<LogPlace, Unknown>) -> Result<(), Failure> {
    let hint = "correct the target's log in the case, or make the folder writable";
    match place {
        Ok(LogPlace::Writable(_)) => Ok(()),
        Ok(LogPlace::NoFolder) => Err(Failure::new(format!("the folder of the log `{log}` does not exist")).hint(hint)),
        Ok(LogPlace::NotWritable) => Err(Failure::new(format!("the log `{log}` cannot be written")).hint(hint)),
        Ok(LogPlace::Full) => {
            Err(Failure::new(format!("the disk of the log `{log}` is full")).hint("free some space first"))
        }
        Err(Unknown(why)) => Err(Failure::new(format!("cannot tell whether the log `{log}` can be written: {why}"))),
    }
}
