//! Whether the switches of a change stand so that it acts. Pure.

use super::Obstacle;
use crate::patch::context::{Evidence, Level, Reading, Running, Value};
use crate::patch::types::{Entry, GateDefault, GateKind, GateRead};

/// What the switches of a change say.
pub(super) enum Switched {
    /// It acts, as far as its switches go.
    Yes { because: String, evidence: Vec<Evidence>, assumes: Vec<String> },
    /// It does not act; by what else than a switch, if by something else.
    No { by: Option<Obstacle>, because: String, evidence: Vec<Evidence> },
    /// Nothing reads its switch.
    NotRead { because: String, evidence: Vec<Evidence> },
    /// It cannot be told.
    Unknown { because: String, evidence: Vec<Evidence> },
}

/// What the level of the case says; without one, what all reads in the source say together.
pub(super) fn switched(entry: &Entry, level: Option<&Level>, running: &Running) -> Switched {
    // A switch without a name and without a reading says nothing that the source does not say better.
    if let Some(level) = level.filter(|l| l.switch.is_some() || l.level.is_some()) {
        return by_level(level, running);
    }
    let mut each: Vec<Switched> = entry.gates.iter().map(|gate| one(gate, running)).collect();
    if each.is_empty() {
        let place = entry.files.first().map_or("its diff", |f| f.path.as_str());
        let evidence = vec![Evidence { fact: "no read of a switch in the changed lines".into(), source: place.into() }];
        return Switched::Yes { because: "nothing switches it".into(), evidence, assumes: Vec::new() };
    }
    if let Some(at) = each.iter().position(|s| matches!(s, Switched::No { by: Some(_), .. })) {
        return each.swap_remove(at);
    }
    together(each)
}

/// All on is on, all off is off; a mixture is unknown, since how the reads depend on each other is not told.
fn together(each: Vec<Switched>) -> Switched {
    let (mut on, mut off, mut unread, mut unknown) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut evidence, mut assumes) = (Vec::new(), Vec::new());
    for one in each {
        match one {
            Switched::Yes { because, evidence: more, assumes: taken } => {
                on.push(because);
                evidence.extend(more);
                assumes.extend(taken);
            }
            Switched::No { because, evidence: more, .. } => {
                off.push(because);
                evidence.extend(more);
            }
            Switched::NotRead { because, evidence: more } => {
                unread.push(because);
                evidence.extend(more);
            }
            Switched::Unknown { because, evidence: more } => {
                unknown.push(because);
                evidence.extend(more);
            }
        }
    }
    if !unknown.is_empty() {
        return Switched::Unknown { because: unknown.join("; "), evidence };
    }
    match (on.is_empty(), off.is_empty(), unread.is_empty()) {
        (false, true, true) => Switched::Yes { because: on.join("; "), evidence, assumes },
        (true, false, true) => Switched::No { by: None, because: off.join("; "), evidence },
        (true, true, _) => Switched::NotRead { because: unread.join("; "), evidence },
        _ => {
            let all: Vec<String> = on.into_iter().chain(off).chain(unread).collect();
            let because = format!("its switches disagree, and which of them decides is not told: {}", all.join("; "));
            Switched::Unknown { because, evidence }
        }
    }
}

fn by_level(level: &Level, running: &Running) -> Switched {
    let name = level.switch.as_ref().map_or_else(|| "its source".to_owned(), |name| format!("`{name}`"));
    if let Some(unread) = level.switch.as_deref().and_then(|name| not_read(name, running)) {
        return unread;
    }
    let overwritten = level.switch.as_deref().and_then(|name| running.overwritten.get(name).map(|o| (name, o)));
    if let Some((name, overwrite)) = overwritten.filter(|(_, o)| o.applies != Some(false)) {
        let certainly = if overwrite.applies.is_some() { "sets" } else { "may set" };
        let fact = format!("the engine {certainly} `{name}` to `{}` by itself", overwrite.value);
        let because = format!("{fact}, so that the level that was read need not be the one in effect");
        return Switched::Unknown { because, evidence: vec![Evidence { fact, source: overwrite.source.clone() }] };
    }
    let evidence = |fact: String| vec![Evidence { fact, source: level.source.clone() }];
    match level.level.as_deref() {
        None => {
            let because = format!("the level of {name} is not known: {}", level.source);
            Switched::Unknown { evidence: evidence(because.clone()), because }
        }
        Some(has) if has == level.suspect => {
            let because = format!("{name} is at the suspect level `{has}`");
            Switched::Yes { evidence: evidence(because.clone()), because, assumes: Vec::new() }
        }
        Some(has) => {
            let because = format!("{name} is at level `{has}`, not at `{}`", level.suspect);
            Switched::No { by: None, evidence: evidence(because.clone()), because }
        }
    }
}

/// That a variable is set and no code reads it; `None` where it is not set, or where that is not known.
fn not_read(name: &str, running: &Running) -> Option<Switched> {
    let reading = running.variables.get(name)?;
    let Value::Set(value) = &reading.value else { return None };
    let (known, source) = running.read_by_checkout.as_ref().ok()?;
    if known.contains(name) {
        return None;
    }
    let because = format!("`{name}={value}` is set, and no code of the checkout reads it");
    let evidence = vec![
        Evidence { fact: format!("`{name}` is `{value}`"), source: reading.source.clone() },
        Evidence {
            fact: format!("{} variables are read, this one is not among them", known.len()),
            source: source.clone(),
        },
    ];
    Some(Switched::NotRead { because, evidence })
}

fn one(gate: &GateRead, running: &Running) -> Switched {
    let place = match gate.place.line {
        Some(line) => format!("{}:{line}", gate.place.path),
        None => gate.place.path.clone(),
    };
    let read_at = Evidence { fact: format!("read as `{}`", gate.text), source: place };
    match gate.kind {
        GateKind::Arch => arch(gate, running, &read_at),
        GateKind::Constant => match &gate.default {
            GateDefault::Written(text) => by_text(gate, text, "the source", vec![read_at], Vec::new()),
            _ => unknown(format!("the value of `{}` is not told where it is read", gate.name), vec![read_at]),
        },
        GateKind::ServerArgs => {
            let key = gate.name.rsplit('.').next().unwrap_or(&gate.name).trim_start_matches('-').replace('-', "_");
            by_reading(gate, &running.setting(&key), &read_at)
        }
        GateKind::Environ | GateKind::Helper | GateKind::Registry => variable(gate, running, read_at),
    }
}

fn variable(gate: &GateRead, running: &Running, read_at: Evidence) -> Switched {
    let name = gate.name.as_str();
    if let Some(unread) = not_read(name, running) {
        return unread;
    }
    let reading = running.variables.get(name).unwrap_or(&running.unlisted);
    match running.overwritten.get(name) {
        Some(o) if o.applies == Some(true) => {
            let fact = format!("the engine sets `{name}` to `{}` by itself on this model and card", o.value);
            let why = format!("{fact}, whatever the process was started with");
            let evidence = vec![read_at, Evidence { fact, source: o.source.clone() }];
            by_text(gate, &o.value, &why, evidence, Vec::new())
        }
        Some(o) if o.applies.is_none() && !matches!(&reading.value, Value::Set(v) if *v == o.value) => {
            let fact = format!("the engine may set `{name}` to `{}` by itself", o.value);
            let because = format!("{fact}: model, card or version are not known");
            unknown(because, vec![read_at, Evidence { fact, source: o.source.clone() }])
        }
        _ => by_reading(gate, reading, &read_at),
    }
}

fn by_reading(gate: &GateRead, reading: &Reading, read_at: &Evidence) -> Switched {
    let name = gate.name.as_str();
    let assumes: Vec<String> = reading
        .blind_to
        .iter()
        .map(|blind| format!("nothing changed `{name}` that {} cannot show ({blind})", reading.source))
        .collect();
    let with = |fact: String| vec![read_at.clone(), Evidence { fact, source: reading.source.clone() }];
    match &reading.value {
        Value::Unknown(why) => unknown(format!("the value of `{name}` is not known: {why}"), with(why.clone())),
        Value::Set(value) => by_text(gate, value, &reading.source, with(format!("`{name}` is `{value}`")), assumes),
        Value::Unset if reading.blind_to.is_some() => {
            let blind = reading.blind_to.as_deref().unwrap_or_default();
            let because = format!("`{name}` is absent where it was read, which cannot show {blind}");
            unknown(because.clone(), with(because))
        }
        Value::Unset => match &gate.default {
            GateDefault::Written(default) => {
                let evidence = with(format!("`{name}` is not set, and its default is `{default}`"));
                by_text(gate, default, "its default", evidence, assumes)
            }
            GateDefault::Unset => {
                let because = format!("`{name}` is not set, and what the code does then is not told");
                unknown(because.clone(), with(because))
            }
            GateDefault::Required => {
                let because = format!("`{name}` is not set, though the code cannot do without it");
                unknown(because.clone(), with(because))
            }
            GateDefault::Unknown => {
                let because = format!("`{name}` is not set, and its default is not told where it is read");
                unknown(because.clone(), with(because))
            }
        },
    }
}

fn by_text(gate: &GateRead, value: &str, from: &str, evidence: Vec<Evidence>, assumes: Vec<String>) -> Switched {
    let name = gate.name.as_str();
    if names_an_absence(gate) {
        let because =
            format!("`{name}` is `{value}`, and its name or line negates: on which side the change stands is not told");
        return unknown(because, evidence);
    }
    match reads_as(gate, value) {
        Some(true) => Switched::Yes { because: format!("`{name}` is on: `{value}` by {from}"), evidence, assumes },
        Some(false) => Switched::No { by: None, because: format!("`{name}` is off: `{value}` by {from}"), evidence },
        None => unknown(format!("`{name}` is `{value}`, and which values lead to the change is not told"), evidence),
    }
}

/// Whether true may mean that the change does not act.
fn names_an_absence(gate: &GateRead) -> bool {
    let name = gate.name.to_ascii_uppercase();
    let words = ["DISABLE", "SKIP", "BYPASS"];
    words.iter().any(|w| name.contains(w)) || name.split('_').any(|w| w == "NO") || gate.text.contains("not ")
}

/// Whether a value switches on, as the line that reads it says; `None` where the line does not say.
fn reads_as(gate: &GateRead, value: &str) -> Option<bool> {
    let words = |text: &str| match text.trim_matches(['"', '\'']).to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "y" | "on" => Some(true),
        "0" | "false" | "no" | "n" | "off" | "none" => Some(false),
        _ => None,
    };
    if gate.kind != GateKind::Environ {
        return words(value);
    }
    let bare = value.trim_matches(['"', '\'']);
    if let Some((_, wanted)) = gate.text.split_once("==") {
        return quoted(wanted).first().map(|wanted| *wanted == bare);
    }
    if let Some((_, wanted)) = gate.text.split_once(" in ") {
        let wanted = quoted(wanted);
        return (!wanted.is_empty()).then(|| wanted.contains(&bare));
    }
    let is_number = gate.text.contains("int(") || gate.text.contains("atoi(");
    match words(value) {
        // Python takes every text but the empty one for true, so that "0" may be on where nothing compares it.
        Some(false) if !is_number => None,
        read => read,
    }
}

/// Literals of a line.
fn quoted(text: &str) -> Vec<&str> {
    let quote = if text.contains('"') { '"' } else { '\'' };
    text.split(quote).skip(1).step_by(2).collect()
}

fn arch(gate: &GateRead, running: &Running, read_at: &Evidence) -> Switched {
    let card = running.setting("capability");
    let with = |fact: String| vec![read_at.clone(), Evidence { fact, source: card.source.clone() }];
    let wanted = capability_of(&gate.name).or_else(|| capability_of(&gate.text));
    let (wanted, has) = match (wanted, &card.value) {
        (Some(wanted), Value::Set(has)) if !names_an_absence(gate) => (wanted, has),
        (_, Value::Unknown(why)) => {
            return unknown(format!("the card is not known: {why}"), with(why.clone()));
        }
        _ => return unknown(format!("which cards `{}` asks for is not told", gate.name), with("the card".into())),
    };
    if *has == wanted.to_string() {
        let because = format!("the card is sm{wanted}, as `{}` asks", gate.name);
        return Switched::Yes { evidence: with(because.clone()), because, assumes: Vec::new() };
    }
    let because = format!("the card is sm{has}, and `{}` asks for sm{wanted}", gate.name);
    Switched::No { by: Some(Obstacle::Architecture), evidence: with(because.clone()), because }
}

/// The compute capability that a test names, as 120 in `is_sm120_supported` or `sm_120a`.
fn capability_of(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("sm")?;
    let digits: String = rest.trim_start_matches('_').chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|n| (50..=999).contains(n))
}

fn unknown(because: String, evidence: Vec<Evidence>) -> Switched {
    Switched::Unknown { because, evidence }
}
