//! The steps of a target that a systemd unit starts: one drop-in of our own under `/run`, which a reboot takes away, and
//! where a wrapper sets the variable, a copy of the wrapper that the drop-in names in its place.
//!
//! The user's unit, drop-ins and wrapper stay as they are. `systemctl revert`, which removes every drop-in, is never used.

use std::collections::BTreeMap;

use super::look::{World, levels_given};
use super::{Means, Plan, check_port, gives, is_bash, shell, source, write_override};
use crate::engine::effect::ChangeWish;
use crate::engine::procedure::{Action, BootExpectation, Failure, Purpose, Step, UnitExpectation};
use crate::redact;
use crate::remote::probe::files;
use crate::remote::probe::types::{Probe, Unit};
use crate::remote::proc::Unknown;
use crate::remote::script::{self, Ask, Override};
use crate::remote::source::tree;
use crate::remote::{shell_text, unit_text};
use crate::truth::declared::systemd::{self, UnitFacts};
use crate::truth::declared::{Declared, Text, chain};
use crate::truth::read::unit_files;
use crate::untrusted::Untrusted;

/// The last name among the drop-ins, so that nothing comes after ours.
pub(super) const DROP_IN: &str = "zzzz-patchbench.conf";

/// A unit with its own files, ours left out.
pub(super) struct Original {
    facts: UnitFacts,
    declared: Declared,
    /// Path and text of the wrapper that its command runs.
    wrapper: Option<(String, String)>,
    /// Our drop-in as it stands there.
    ours: Option<String>,
}

/// The wrapper that the unit's own command runs, for the question that brings its text.
pub(super) fn wrapper_path(probe: &Probe, port: u16) -> Option<String> {
    let unit = probe.unit.as_ref()?;
    let (own, _) = own_files(unit)?;
    let read = systemd::read(&unit_files(unit, &own, probe), Some(port));
    read.facts.script?.value.known().map(str::to_owned)
}

type UnitTexts = Vec<(String, String)>;

/// The files of a unit without our drop-in, and that drop-in.
fn own_files(unit: &Unit) -> Option<(UnitTexts, Option<String>)> {
    let files = unit.files.as_ref().ok().filter(|f| !f.is_empty())?;
    let is_ours = |path: &str| path.ends_with(&format!("/{DROP_IN}"));
    let ours = files.iter().find(|(path, _)| is_ours(path)).map(|(_, text)| text.clone());
    Some((files.iter().filter(|(path, _)| !is_ours(path)).cloned().collect(), ours))
}

/// Reads the unit as its owner wrote it.
///
/// # Errors
/// Its files or its wrapper cannot be read.
pub(super) fn original(world: &World, name: &str) -> Result<Original, Failure> {
    let unit = world.probe.unit.as_ref().ok_or_else(|| Failure::new(format!("`{name}` was not read")))?;
    let Some((own, ours)) = own_files(unit) else {
        let why = unit.files.as_ref().err().map_or("it has no file", |Unknown(why)| why.as_str());
        return Err(Failure::new(format!("the files of `{name}` cannot be read: {why}")));
    };
    if let Some((later, _)) = own.iter().skip(1).find(|(path, _)| path.rsplit('/').next() > Some(DROP_IN)) {
        return Err(Failure::new(format!("the drop-in `{later}` comes after every one that could be written"))
            .hint("give that file a name that comes earlier in the alphabet"));
    }
    let read = systemd::read(&unit_files(unit, &own, &world.probe), Some(world.port));
    let path = read.facts.script.as_ref().and_then(|s| s.value.known().map(str::to_owned));
    let outer: BTreeMap<String, Text> =
        read.declared.variables.iter().filter_map(|(n, v)| Some((n.clone(), v.value.clone()?))).collect();
    let wrapper = path.map(|path| files::script_text(&world.probe, &path).map(|text| (path, text))).transpose()?;
    let declared = match &wrapper {
        Some((path, text)) => {
            let inner = script::declared(&script::parse_in(text, &outer)?, path, Some(world.port));
            chain::chain(read.declared, inner)
        }
        None => read.declared,
    };
    Ok(Original { facts: read.facts, declared, wrapper, ours })
}

/// Makes the steps.
///
/// # Errors
/// See [`super::plan`]; also that the unit is masked, waits for a reload, or was started too often.
pub(super) fn plan(plan: &mut Plan<'_>, name: &str, means: &Means) -> Result<(), Failure> {
    let world = plan.world;
    let unit = look(world, name)?;
    let purpose = plan.purpose();
    check_rights(world, name)?;
    check_loaded(&unit, name)?;
    let original = original(world, name)?;
    check_unit(world, &unit, name, purpose)?;
    let levels = plan.levels(levels_given(&plan.wish.patches, &original.declared));
    plan.own_levels.clone_from(&levels.own);
    if purpose == Purpose::Restore && original.ours.is_none() && plan.nothing_to_restore() {
        return Ok(());
    }
    let steps = Steps { name, world, unit: &unit, original: &original };
    plan.take_lease(&means.owner, &steps.restore()?)?;
    if matches!(plan.wish.kind, ChangeWish::Stopped) {
        if unit.active {
            plan.steps.push(steps.stop(plan)?);
        }
        return Ok(());
    }
    let (asks, copy) =
        if purpose == Purpose::Restore { (Vec::new(), None) } else { plan.asks(&levels, &original.declared)? };
    plan.steps.extend(copy);
    let made = match &original.wrapper {
        Some((path, text)) => Some(script::make_override(text, path, &asks, Some(world.port))?).filter(|m| m.changes),
        None => None,
    };
    if let (Some(made), Some((path, text))) = (&made, &original.wrapper) {
        let readable = unit_text::as_readable_as(path, &world.ground.folder, &world.override_file(made))?;
        plan.steps.push(write_override(world, made, path, text, &format!("\n{readable}"))?);
    }
    let wanted = steps.drop_in(made.as_ref(), &asks)?;
    if wanted != original.ours {
        plan.steps.push(steps.put(plan, wanted.as_deref())?);
    }
    let restart = steps.restart(plan)?;
    plan.steps.push(restart);
    plan.prove(steps.expect(plan, unit.invocation.clone(), &levels.wanted));
    if purpose == Purpose::Restore {
        let away = source::take_away(plan)?;
        plan.steps.extend(away);
        plan.steps.push(steps.tidy()?);
        plan.give_lease_back()?;
    }
    Ok(())
}

/// What systemd says of the unit.
struct Facts {
    active: bool,
    invocation: Option<String>,
    load: String,
    result: String,
    reload: bool,
    burst: Option<u32>,
    restarts: Option<u32>,
}

fn look(world: &World, name: &str) -> Result<Facts, Failure> {
    let unit = world.probe.unit.as_ref().map(|u| &u.properties);
    let properties = match unit {
        Some(Ok(properties)) => properties,
        Some(Err(Unknown(why))) => return Err(Failure::new(format!("systemd does not tell of `{name}`: {why}"))),
        None => return Err(Failure::new(format!("`{name}` was not read"))),
    };
    let text = |key: &str| properties.get(key).map_or("", Untrusted::raw);
    Ok(Facts {
        active: matches!(text("ActiveState"), "active" | "activating" | "reloading"),
        invocation: Some(text("InvocationID").to_owned()).filter(|i| !i.is_empty()),
        load: text("LoadState").to_owned(),
        result: text("Result").to_owned(),
        reload: text("NeedDaemonReload") == "yes",
        burst: text("StartLimitBurst").parse().ok(),
        restarts: text("NRestarts").parse().ok(),
    })
}

fn check_rights(world: &World, name: &str) -> Result<(), Failure> {
    match &world.ground.uid {
        Ok(0) => Ok(()),
        Ok(uid) => Err(Failure::new(format!("`{name}` can be changed by root alone, and this is user {uid}"))
            .hint("give the target `become = \"sudo -n\"`")),
        Err(Unknown(why)) => {
            Err(Failure::new(format!("cannot tell with what rights `{name}` would be changed: {why}")))
        }
    }
}

fn check_loaded(unit: &Facts, name: &str) -> Result<(), Failure> {
    match unit.load.as_str() {
        "loaded" => Ok(()),
        "masked" => Err(Failure::new(format!("`{name}` is masked, so systemd does not start it"))
            .hint(format!("`systemctl unmask {name}` is for its owner to decide"))),
        other => {
            let said = Untrusted::from(other).visible(40);
            Err(Failure::new(format!("systemd has not loaded `{name}`: it says `{said}`"))
                .hint("correct the unit's name in the case"))
        }
    }
}

fn check_unit(world: &World, unit: &Facts, name: &str, purpose: Purpose) -> Result<(), Failure> {
    // The way back is never held up: what waits for a reload there may be a change of ours that was cut off.
    if unit.reload && purpose != Purpose::Restore {
        return Err(Failure::new(format!(
            "files of `{name}` were changed and not loaded: a reload would change more than what is asked for"
        ))
        .hint("find out who changed them (`patchbench changes CASE --since 1d`), then `systemctl daemon-reload`"));
    }
    check_port(world, name, "unit")?;
    if matches!(purpose, Purpose::Stop | Purpose::Restore) {
        return Ok(());
    }
    check_starts(world, unit, name)
}

/// A restart and the way back are two starts; systemd refuses more than its limit allows.
fn check_starts(world: &World, unit: &Facts, name: &str) -> Result<(), Failure> {
    let hint = format!("wait, or `systemctl reset-failed {name}`");
    if unit.result == "start-limit-hit" {
        return Err(Failure::new(format!("systemd refuses to start `{name}`: its start limit is reached")).hint(hint));
    }
    let (Some(Ok(starts)), Some(burst)) = (&world.ground.starts, unit.burst.filter(|b| *b > 0)) else { return Ok(()) };
    if starts + 2 <= burst {
        return Ok(());
    }
    Err(Failure::new(format!(
        "`{name}` was started {starts} times within the interval of its start limit, which allows {burst}: a restart \
         and the way back need two"
    ))
    .hint(hint))
}

struct Steps<'a> {
    name: &'a str,
    world: &'a World,
    unit: &'a Facts,
    original: &'a Original,
}

impl Steps<'_> {
    fn folder(&self) -> String {
        format!("/run/systemd/system/{}.d", self.name)
    }

    fn file(&self) -> String {
        format!("{}/{DROP_IN}", self.folder())
    }

    fn overrides(&self) -> String {
        format!("{}/{}-", self.world.ground.folder, self.world.stem)
    }

    /// What runs now, where it runs as its owner wrote it; a changed server is no way back.
    fn original_invocation(&self) -> Option<&str> {
        self.unit.invocation.as_deref().filter(|_| self.original.ours.is_none() && self.unit.active)
    }

    fn restore(&self) -> Result<String, Failure> {
        let state = match (self.unit.active || self.original.ours.is_some(), self.original_invocation()) {
            (false, _) => unit_text::Before::Stopped,
            (true, Some(invocation)) => unit_text::Before::Runs(invocation),
            (true, None) => unit_text::Before::Changed,
        };
        let jobs = format!("{}/jobs/{}-", self.world.ground.folder, self.world.stem);
        let trees = tree::prefix(&self.world.ground.folder, &self.world.lease);
        unit_text::put_back(self.name, &self.file(), &jobs, (&self.overrides(), &trees), &state)
    }

    /// The text of the drop-in that gives what is asked for; `None` where the unit's own files do.
    fn drop_in(&self, made: Option<&Override>, asks: &[Ask]) -> Result<Option<String>, Failure> {
        let Original { facts, wrapper, .. } = self.original;
        if let Some(made) = made {
            let path = wrapper.as_ref().map(|(path, _)| path.as_str()).unwrap_or_default();
            let words = with_copy(facts, path, &self.world.override_file(made), &made.options)?;
            return unit_text::drop_in(&facts.exec_prefix, &words).map(Some);
        }
        // A wrapper that already gives every level leaves nothing to do here.
        if wrapper.is_some() || asks.is_empty() {
            return Ok(None);
        }
        let differing: Vec<&Ask> = asks.iter().filter(|ask| !gives(&self.original.declared, ask)).collect();
        if differing.is_empty() {
            return Ok(None);
        }
        let (flags, variables): (Vec<&Ask>, Vec<&Ask>) = differing.into_iter().partition(|a| a.switch.starts_with('-'));
        let words = unit_text::with_flags(&known_words(facts)?, &flags)?;
        unit_text::drop_in(&facts.exec_prefix, &unit_text::with_variables(words, &variables)).map(Some)
    }

    /// Puts the drop-in there, or takes it away; its undo brings back what stood there and what ran.
    fn put(&self, plan: &Plan<'_>, wanted: Option<&str>) -> Result<Step, Failure> {
        let file = self.file();
        let before = self.original.ours.as_deref();
        let stands = unit_text::stands(self.name, &file, wanted)?;
        let undo = unit_text::put(self.name, &file, before, Some(self.back()))?;
        let undo_proof = if self.unit.active {
            let expect = self.expect(plan, None, &self.world.current);
            Action::ProveBoot { expect, timeout_s: super::READY_TIMEOUT_S }
        } else {
            shell(unit_text::is_stopped(self.name)?, 10.0)
        };
        Ok(Step {
            name: if wanted.is_some() { "write-drop-in" } else { "take-drop-in-away" }.into(),
            check: shell(stands.clone(), 20.0),
            apply: shell(unit_text::put(self.name, &file, wanted, None)?, 60.0),
            undo: Some(shell(undo, 200.0)),
            undo_proof: Some(undo_proof),
            proof: shell(stands, 20.0),
        })
    }

    fn back(&self) -> unit_text::Before<'_> {
        match (self.unit.active, self.unit.invocation.as_deref()) {
            (true, Some(invocation)) => unit_text::Before::Runs(invocation),
            (true, None) => unit_text::Before::Changed,
            (false, _) => unit_text::Before::Stopped,
        }
    }

    fn restart(&self, plan: &Plan<'_>) -> Result<Step, Failure> {
        let old = self.unit.invocation.as_deref().unwrap_or_default();
        let began = unit_text::began(self.name, old, 0)?;
        Ok(Step {
            name: "restart".into(),
            check: shell(began, 20.0),
            apply: shell(unit_text::restart(self.name, old, plan.purpose() == Purpose::Restore)?, 60.0),
            // The drop-in's undo restarts what ran before; without a change of it nothing needs to come back.
            undo: None,
            undo_proof: None,
            proof: shell(unit_text::began(self.name, old, 1800)?, 200.0),
        })
    }

    fn stop(&self, plan: &Plan<'_>) -> Result<Step, Failure> {
        let stopped = unit_text::is_stopped(self.name)?;
        let expect = self.expect(plan, None, &self.world.current);
        Ok(Step {
            name: "stop".into(),
            check: shell(stopped.clone(), 20.0),
            apply: shell(unit_text::stop(self.name)?, 200.0),
            undo: Some(shell(unit_text::start(self.name)?, 60.0)),
            undo_proof: Some(Action::ProveBoot { expect, timeout_s: super::READY_TIMEOUT_S }),
            proof: shell(stopped, 20.0),
        })
    }

    fn tidy(&self) -> Result<Step, Failure> {
        Ok(Step {
            name: "tidy".into(),
            check: Action::Nothing,
            apply: shell(format!("rm -f {}*.sh", shell_text::quote(&self.overrides())?), 10.0),
            undo: None,
            undo_proof: None,
            proof: Action::Nothing,
        })
    }

    fn expect(&self, plan: &Plan<'_>, old: Option<String>, levels: &BTreeMap<String, String>) -> BootExpectation {
        // A start that somebody asks for begins to count anew; one that is met may have crashed before.
        let restarts = if old.is_some() { Some(0) } else { self.unit.restarts };
        BootExpectation {
            old: old.as_ref().and_then(|_| self.world.running.as_ref().map(|r| r.key)),
            port: self.world.port,
            url: self.world.target.url.clone(),
            log: String::new(),
            log_offset: 0,
            pid_file: None,
            unit: Some(UnitExpectation { name: self.name.to_owned(), old_invocation: old, restarts }),
            container: None,
            readback: plan.readback(levels),
        }
    }
}

/// The unit's command, every word of it.
fn known_words(facts: &UnitFacts) -> Result<Vec<String>, Failure> {
    let words: Option<Vec<String>> = facts.command.iter().map(|w| w.known().map(str::to_owned)).collect();
    let words = words.filter(|w| !w.is_empty()).ok_or_else(|| {
        Failure::new("a word of the unit's command is known to systemd alone, so that no other command can be written")
            .hint("set the switch in a wrapper script that the unit runs")
    })?;
    if facts.exec_prefix.contains(['@', ':']) {
        return Err(Failure::new(format!(
            "the unit's command has `{}` in front, which a copy of it would not keep",
            facts.exec_prefix
        )));
    }
    if facts.kind.as_ref().and_then(|k| k.value.known()) == Some("oneshot") {
        return Err(Failure::new("the unit runs its commands once (`Type=oneshot`), and a server does not end")
            .hint("name the unit that keeps the server running"));
    }
    if redact::argv(&words) != words {
        return Err(Failure::new("the unit's command holds a secret, which would have to be written into a drop-in")
            .hint("give the secret in a file that `EnvironmentFile=` names"));
    }
    Ok(words)
}

/// The unit's command with the copy of its wrapper in the wrapper's place.
fn with_copy(facts: &UnitFacts, wrapper: &str, copy: &str, options: &[String]) -> Result<Vec<String>, Failure> {
    let words = known_words(facts)?;
    let place = words
        .iter()
        .position(|w| w == wrapper)
        .ok_or_else(|| Failure::new(format!("the unit's command does not name its wrapper `{wrapper}` as a word")))?;
    let mut out: Vec<String> = words[..place].to_vec();
    if !out.last().is_some_and(|w| is_bash(w) || w.starts_with('-')) {
        // The wrapper is run by its first line, and the copy cannot be made a program where files may not be executed.
        out.push("/bin/bash".to_owned());
        out.extend(options.iter().cloned());
    }
    out.push(copy.to_owned());
    out.extend(words[place + 1..].iter().cloned());
    Ok(out)
}
