//! The steps of a target that docker or podman runs: a copy of the container with other levels takes its place while it
//! stands by, stopped and as it was.
//!
//! A container cannot be given another variable. The copy is proven to be the same but for its levels before anything is
//! stopped, has no restart policy, and is taken away by a restore. Who looks after containers by themselves (quadlets,
//! Kubernetes) is not worked against.

use std::collections::BTreeMap;

use super::look::{World, levels_given};
use super::{Means, Plan, check_port, gives, is_bash, shell};
use crate::engine::effect::ChangeWish;
use crate::engine::procedure::{Action, BootExpectation, ContainerExpectation, Failure, Purpose, Step};
use crate::remote::container_text::{self, Copy};
use crate::remote::probe::container::{COPY, Inspect};
use crate::remote::proc::Unknown;
use crate::remote::script::{self, Ask};
use crate::remote::unit_text;
use crate::truth::declared::docker;

/// Above this many bytes, what was written in a container is kept whatever it is: weights may be among it.
const KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// Above this many, no copy is made of it.
const MOST_BYTES: u64 = 10 * 1024 * 1024 * 1024;
/// What a server may run or read wherever it lies.
const READ: &[&str] = &[".py", ".pth", ".so", ".sh", ".json", ".toml", ".yaml", ".cu"];

/// What runs leave behind, which a copy need not have.
const LITTER: &[&str] =
    &["/tmp", "/var/tmp", "/run", "/var/run", "/var/log", "/var/cache", "/root/.cache", "/root/.triton"];

/// What is known of the container.
struct Facts<'a> {
    tool: &'a str,
    own: &'a Inspect,
    /// The one that runs, or ran last.
    current: &'a Inspect,
    copies: &'a [String],
}

/// Makes the steps.
///
/// # Errors
/// See [`super::plan`]; also that the container is looked after by somebody else, or holds what a copy would not have.
pub(super) fn plan(plan: &mut Plan<'_>, name: &str, means: &Means) -> Result<(), Failure> {
    let world = plan.world;
    let facts = look(world, name)?;
    let purpose = plan.purpose();
    check(world, &facts, name)?;
    let declared = docker::inspected(facts.own, Some(world.port));
    let levels = plan.levels(levels_given(&plan.wish.patches, &declared));
    plan.own_levels.clone_from(&levels.own);
    if purpose == Purpose::Restore && facts.copies.is_empty() && facts.own.running && plan.nothing_to_restore() {
        return Ok(());
    }
    let steps = Steps { name, world, facts: &facts };
    let jobs = format!("{}/jobs/{}-", world.ground.folder, world.stem);
    // A container that waits while its copy runs is meant to run.
    let ran = facts.current.running;
    let back = container_text::put_back(facts.tool, &facts.own.name, &jobs, &steps.logs(), ran)?;
    plan.take_lease(&means.owner, &back)?;
    if matches!(plan.wish.kind, ChangeWish::Stopped) {
        if facts.current.running {
            plan.steps.push(steps.stop(plan)?);
        }
        return Ok(());
    }
    let asks = if purpose == Purpose::Restore { Vec::new() } else { steps.differing(plan.asks(&levels, &declared)?.0) };
    let next = if asks.is_empty() { facts.own.name.clone() } else { format!("{}{COPY}{}", facts.own.name, plan.tag) };
    if !asks.is_empty() {
        plan.steps.push(steps.copy(&next, &asks)?);
        plan.notes.extend(notes(world, &facts));
    }
    let restores = purpose == Purpose::Restore;
    let stays = restores && facts.own.running;
    if stays {
        // What a daemon started beside its copy is alone again before it is proven.
        plan.steps.push(steps.tidy()?);
    } else {
        if facts.current.running {
            plan.steps.push(steps.stop(plan)?);
        }
        plan.steps.push(steps.start(&next)?);
    }
    plan.prove(steps.expect(plan, &next, !stays, &levels.wanted));
    if restores && !stays {
        plan.steps.push(steps.tidy()?);
    }
    if restores {
        plan.give_lease_back()?;
    }
    Ok(())
}

fn look<'a>(world: &'a World, name: &str) -> Result<Facts<'a>, Failure> {
    let container = world.probe.container.as_ref().ok_or_else(|| Failure::new(format!("`{name}` was not read")))?;
    let unknown = |Unknown(why): &Unknown| {
        Failure::new(format!("cannot tell how `{name}` runs: {why}"))
            .hint("correct the container's name in the case, or give the target a `become`")
    };
    Ok(Facts {
        tool: container.tool.as_ref().map_err(unknown)?,
        own: container.own.as_ref().map_err(unknown)?,
        current: container.current.as_ref().map_err(unknown)?,
        copies: container.copies.as_ref().map_err(unknown)?,
    })
}

fn check(world: &World, facts: &Facts<'_>, name: &str) -> Result<(), Failure> {
    let own = facts.own;
    if own.at(&["HostConfig", "AutoRemove"]).as_bool() == Some(true) {
        return Err(Failure::new(format!(
            "`{name}` was started with `--rm`, so that a stop would take it away for good"
        ))
        .hint("start it anew without `--rm`, or name the script that starts it as the target's manager"));
    }
    let labels = own.at(&["Config", "Labels"]).as_object();
    let label = |key: &str| labels.and_then(|l| l.get(key)?.as_str());
    if let Some(unit) = label("PODMAN_SYSTEMD_UNIT") {
        return Err(Failure::new(format!("`{name}` is run by systemd, which would start it again"))
            .hint(format!("name the unit as the target's manager: {{ systemd = {unit:?} }}")));
    }
    if labels.is_some_and(|l| l.keys().any(|k| k.starts_with("io.kubernetes."))) {
        return Err(Failure::new(format!("`{name}` is run by Kubernetes, which would start it again"))
            .hint("change the variable in its manifest; patchbench can read this target, not change it"));
    }
    if own.at(&["State", "Paused"]).as_bool() == Some(true) {
        return Err(Failure::new(format!("`{name}` is paused")).hint(format!("`{} unpause {name}`", facts.tool)));
    }
    check_port(world, name, "container")
}

/// What a person must know while the copy stands.
fn notes(world: &World, facts: &Facts<'_>) -> Vec<String> {
    let policy = facts.own.at(&["HostConfig", "RestartPolicy", "Name"]).as_str().unwrap_or_default();
    let mut out = vec![format!(
        "while the copy stands, `{}` waits stopped: whoever prunes stopped containers takes the way back away",
        facts.own.name
    )];
    if !matches!(policy, "" | "no") {
        let after =
            if policy == "always" { "brings the container itself back beside the copy" } else { "starts neither" };
        out.push(format!(
            "nothing starts the copy again after a crash, and a reboot {after}: the container's own policy is `{policy}`"
        ));
    }
    let edited = world.probe.container.as_ref().map(|c| &c.edited[..]).unwrap_or_default();
    let lost = edited.iter().filter(|line| matters(line, edited, &[])).count();
    if lost > 0 {
        out.push(format!(
            "{lost} files were changed in the copy that runs, `{}`, and are lost with it",
            facts.current.name
        ));
    }
    out
}

/// Whether files were changed in the container that a copy of its image would not have.
///
/// # Errors
/// It cannot be told, or there is too much of it.
fn committed(world: &World, name: &str) -> Result<bool, Failure> {
    let container = world.probe.container.as_ref().ok_or_else(|| Failure::new(format!("`{name}` was not read")))?;
    let unknown =
        |Unknown(why): &Unknown| Failure::new(format!("cannot tell which files of `{name}` were changed: {why}"));
    let changed = container.changed.as_ref().map_err(unknown)?;
    let bytes = *container.written.as_ref().map_err(unknown)?;
    let said: Vec<&str> =
        container.own.iter().flat_map(|own| own.argv.iter().chain(&own.env)).map(String::as_str).collect();
    if !(changed.iter().any(|line| matters(line, changed, &said)) || bytes > KEPT_BYTES) {
        return Ok(false);
    }
    if bytes > MOST_BYTES {
        return Err(Failure::new(format!(
            "{:.1} GiB were written within `{name}`, and a copy of it would take as much again",
            bytes as f64 / 1024.0 / 1024.0 / 1024.0
        ))
        .hint("keep weights and caches on a volume"));
    }
    Ok(true)
}

/// Whether a line of `docker diff` names a file that a server may read, and not what runs leave behind; `said` are the
/// words and variables of the container, which may name it.
fn matters(line: &str, all: &[String], said: &[&str]) -> bool {
    let Some((kind, path)) = line.split_once(' ') else { return true };
    let within = |folder: &str| path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    if path.contains("__pycache__") {
        return false;
    }
    if LITTER.iter().any(|folder| within(folder)) {
        let runs = READ.iter().any(|end| path.ends_with(end)) && !within("/root/.cache") && !within("/root/.triton");
        return runs || said.iter().any(|word| word.contains(path));
    }
    // A folder is said to be changed for what is within it.
    let folder = format!("{path}/");
    !(kind == "C" && all.iter().any(|other| other.split_once(' ').is_some_and(|(_, p)| p.starts_with(&folder))))
}

struct Steps<'a> {
    name: &'a str,
    world: &'a World,
    facts: &'a Facts<'a>,
}

impl Steps<'_> {
    /// What the container does not already give.
    fn differing(&self, asks: Vec<Ask>) -> Vec<Ask> {
        let declared = docker::inspected(self.facts.own, Some(self.world.port));
        asks.into_iter().filter(|ask| !gives(&declared, ask)).collect()
    }

    /// Makes the copy with these switches; its undo takes it away.
    fn copy(&self, copy: &str, asks: &[Ask]) -> Result<Step, Failure> {
        let Facts { tool, own, .. } = *self.facts;
        let (argv, variables) = command(own, asks, self.world.port)?;
        let committed = committed(self.world, self.name)?;
        let copy = Copy { tool, of: own, name: copy, argv: &argv, variables: &variables, committed };
        let same = shell(copy.is_same()?, 60.0);
        Ok(Step {
            name: "copy-container".into(),
            check: same.clone(),
            apply: shell(copy.make()?, 600.0),
            undo: Some(shell(copy.remove()?, 100.0)),
            undo_proof: None,
            proof: same,
        })
    }

    fn stop(&self, plan: &Plan<'_>) -> Result<Step, Failure> {
        let Facts { tool, current, .. } = *self.facts;
        let stopped = shell(container_text::runs(tool, &current.name, false)?, 30.0);
        let expect = self.expect(plan, &current.name, true, &self.world.current);
        Ok(Step {
            name: "stop".into(),
            check: stopped.clone(),
            apply: shell(container_text::stop(tool, &current.name)?, 300.0),
            // A stop that a killed program has begun is finished first, so that nothing ends later what is called restored.
            undo: Some(shell(
                format!(
                    "{}; {}",
                    container_text::stop(tool, &current.name)?,
                    container_text::start(tool, &current.name)?
                ),
                400.0,
            )),
            undo_proof: Some(Action::ProveBoot { expect, timeout_s: super::READY_TIMEOUT_S }),
            proof: stopped,
        })
    }

    fn start(&self, next: &str) -> Result<Step, Failure> {
        let Facts { tool, .. } = *self.facts;
        let began = shell(container_text::began(tool, next, self.started_before(next))?, 30.0);
        Ok(Step {
            name: "start".into(),
            check: began.clone(),
            apply: shell(container_text::start(tool, next)?, 100.0),
            undo: Some(shell(container_text::stop(tool, next)?, 300.0)),
            undo_proof: Some(shell(container_text::runs(tool, next, false)?, 30.0)),
            proof: began,
        })
    }

    /// When the container that comes next was started before this change.
    fn started_before(&self, next: &str) -> &str {
        let Facts { own, .. } = *self.facts;
        if own.name == next { own.at(&["State", "StartedAt"]).as_str().unwrap_or_default() } else { "" }
    }

    /// Where the logs of copies are kept.
    fn logs(&self) -> String {
        format!("{}/logs", self.world.ground.folder)
    }

    fn tidy(&self) -> Result<Step, Failure> {
        Ok(Step {
            name: "tidy".into(),
            check: Action::Nothing,
            apply: shell(container_text::tidy(self.facts.tool, &self.facts.own.name, &self.logs())?, 300.0),
            undo: None,
            undo_proof: None,
            proof: Action::Nothing,
        })
    }

    /// What a start of the container of that name must show; one that is `new` is not the process that runs now.
    fn expect(&self, plan: &Plan<'_>, name: &str, new: bool, levels: &BTreeMap<String, String>) -> BootExpectation {
        BootExpectation {
            old: self.world.running.as_ref().filter(|_| new).map(|r| r.key),
            port: self.world.port,
            url: self.world.target.url.clone(),
            log: format!("log of container {name}"),
            log_offset: 0,
            pid_file: None,
            unit: None,
            container: Some(ContainerExpectation { name: name.to_owned(), met: !new }),
            readback: plan.readback(levels),
        }
    }
}

/// The command of a copy, and the variables that the container itself must give it.
///
/// # Errors
/// A switch cannot be set.
fn command<'a>(own: &Inspect, asks: &'a [Ask], port: u16) -> Result<(Vec<String>, Vec<&'a Ask>), Failure> {
    let shell = own.argv.first().is_some_and(|w| is_bash(w));
    let inline = own.argv.iter().position(|w| w.starts_with('-') && !w.starts_with("--") && w.ends_with('c'));
    if let (true, Some(place)) = (shell, inline)
        && let Some(text) = own.argv.get(place + 1)
    {
        // What the text exports beats the container's own variables, so that both are set in the text.
        let made = script::make_override(text, "the command of the container", asks, Some(port))?;
        let mut argv = own.argv.clone();
        argv[place + 1] = made.text;
        return Ok((argv, Vec::new()));
    }
    let (flags, variables): (Vec<&Ask>, Vec<&Ask>) = asks.iter().partition(|a| a.switch.starts_with('-'));
    Ok((unit_text::with_flags(&own.argv, &flags)?, variables))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_person_changed_are_told_from_what_runs_leave() {
        let all: Vec<String> = [
            "C /root",
            "A /root/.cache",
            "A /root/.cache/x",
            "C /opt",
            "C /opt/sglang",
            "C /opt/sglang/indexer.py",
            "A /opt/sglang/__pycache__/indexer.pyc",
            "A /var/tmp/x",
            "A /var/tmp/patched/indexer.py",
            "A /run/serve",
            "A /run/lock",
            "D /etc/motd",
            "C /var",
            "C /var/log",
        ]
        .map(str::to_owned)
        .to_vec();
        let kept: Vec<&str> =
            all.iter().filter(|l| matters(l, &all, &["bash", "/run/serve"])).map(String::as_str).collect();
        assert_eq!(kept, ["C /opt/sglang/indexer.py", "A /var/tmp/patched/indexer.py", "A /run/serve", "D /etc/motd"]);
    }
}
