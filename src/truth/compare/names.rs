//! What is known of a variable by its name: misspelt, old, ignored, no truth value, overwritten by the server. Pure.
//!
//! Nothing here makes a disagreement of what could not be read: such a row keeps its status and gains a remark.

use super::judge::{Cells, join, show};
use super::view::View;
use crate::truth::RowStatus;
use crate::truth::knowledge::{self, Reading, Standing, Tables, Variable, names};

/// A remark about a variable, and what the row becomes if the layers alone found no trouble.
struct Remark {
    status: Option<RowStatus>,
    text: String,
}

impl Remark {
    fn note(text: impl Into<String>) -> Self {
        Self { status: None, text: text.into() }
    }

    fn becomes(status: RowStatus, text: impl Into<String>) -> Self {
        Self { status: Some(status), text: text.into() }
    }
}

/// Judges a variable by its layers and by its name.
pub(super) fn judge(view: &View<'_>, name: &str, cells: &Cells<'_>) -> (RowStatus, String) {
    let tables = view.tables_of(name);
    let known = tables.and_then(|t| t.variables.get(name));
    let is_boolean = known.is_some_and(|v| v.reading == Some(Reading::Boolean)) && name.starts_with("SGLANG_");
    let same = |a: &str, b: &str| {
        is_boolean && knowledge::boolean(a).is_some() && knowledge::boolean(a) == knowledge::boolean(b)
    };
    let (mut status, mut note) = cells.judge_variable(name, &same);
    let Some(tables) = tables else { return (status, note) };
    let remarks = match cells.set() {
        Some(value) => set(view, tables, known, name, value, is_boolean),
        None => unset(view, tables, known, name, status, &note),
    };
    for remark in remarks {
        if let Some(graver) = remark.status.filter(|_| status >= RowStatus::OneSource) {
            status = graver;
        }
        note = if note == "not set" { join(String::new(), &remark.text) } else { join(note, &remark.text) };
    }
    (status, note)
}

fn set(
    view: &View<'_>,
    tables: &Tables,
    known: Option<&Variable>,
    name: &str,
    value: &str,
    is_boolean: bool,
) -> Vec<Remark> {
    let mut out = Vec::new();
    match known {
        Some(variable) => out.extend(standing(view, variable)),
        None => out.extend(stranger(view, tables, name)),
    }
    if is_boolean {
        out.extend(truth_value(known, name, value));
    }
    out.extend(overwritten(view, tables, name, Some(value)));
    out
}

fn unset(
    view: &View<'_>,
    tables: &Tables,
    known: Option<&Variable>,
    name: &str,
    status: RowStatus,
    note: &str,
) -> Vec<Remark> {
    if let Some(overwritten) = overwritten(view, tables, name, None) {
        return vec![overwritten];
    }
    let default = known.and_then(|v| v.default.as_deref());
    match default {
        Some(default) if status == RowStatus::OneSource && note == "not set" => {
            vec![Remark::becomes(RowStatus::DefaultInEffect, format!("not set; the default is `{default}`"))]
        }
        _ => Vec::new(),
    }
}

fn standing(view: &View<'_>, variable: &Variable) -> Option<Remark> {
    let note = variable.note.as_deref();
    match variable.standing {
        Standing::Read => None,
        Standing::Renamed => {
            let now = variable.now.as_deref().unwrap_or_default();
            Some(renamed(view, &variable.name, now))
        }
        Standing::Ignored => {
            let note = note.map(|n| format!(": {n}")).unwrap_or_default();
            match variable.span.covers(view.version.as_deref()) {
                Some(true) => Some(Remark::becomes(
                    RowStatus::UnknownToThisVersion,
                    format!("set, ignored by this version{note}"),
                )),
                Some(false) => None,
                None => {
                    let since = variable.span.since.as_deref().map(|v| format!(" from {v} on")).unwrap_or_default();
                    Some(Remark::note(format!("newer versions ignore it{since}{note}")))
                }
            }
        }
        Standing::Local if view.gates.contains(variable.name.as_str()) => None,
        Standing::Local => Some(Remark::note("no upstream version reads it: only a patch of one's own does")),
        Standing::Misleading => {
            Some(Remark::becomes(RowStatus::AcceptedButOff, note.unwrap_or("it means something else than its name")))
        }
    }
}

/// An old name is mapped, and loses where the new one is set too.
fn renamed(view: &View<'_>, old: &str, now: &str) -> Remark {
    let value = |name: &str| match &view.layers.process {
        Some((_, Ok(environ), _)) => environ.get(name).map(str::to_owned),
        _ => view.layers.declared.as_ref()?.variables.get(name)?.value.as_ref()?.known().map(str::to_owned),
    };
    match (value(old), value(now)) {
        (Some(a), Some(b)) if a != b => {
            let text = format!("old name of `{now}`, which is set to `{}` too", show(now, &b));
            Remark::becomes(RowStatus::ConflictsWith, text)
        }
        _ => Remark::note(format!("old name of `{now}`")),
    }
}

/// A name of the engine's own prefix that the tables do not have.
fn stranger(view: &View<'_>, tables: &Tables, name: &str) -> Option<Remark> {
    if view.gates.contains(name) {
        return None;
    }
    if let Some(new) = name.strip_prefix("SGL_").map(|rest| format!("SGLANG_{rest}")) {
        return Some(renamed(view, name, &new));
    }
    if let Some((source, installed)) = view.layers.installed.as_ref().filter(|_| view.engine == names::engine(name)) {
        if installed.contains(name) {
            return None;
        }
        let near = names::nearest(name, installed.iter().map(String::as_str));
        return Some(match near {
            Some(near) => Remark::becomes(RowStatus::LooksMisspelt, format!("not in {source}, which has `{near}`")),
            None => {
                Remark::becomes(RowStatus::UnknownToThisVersion, format!("not in {source}, so set and not read there"))
            }
        });
    }
    let near = names::nearest(name, tables.variables.keys().map(String::as_str))?;
    Some(Remark::becomes(RowStatus::LooksMisspelt, format!("not known here, unlike `{near}`")))
}

/// `SGLang` reads truth values by its own rules and falls back to the default without an error.
fn truth_value(known: Option<&Variable>, name: &str, value: &str) -> Option<Remark> {
    match knowledge::boolean(value) {
        Some(_) if matches!(value, "0" | "1" | "true" | "false") => None,
        Some(on) => Some(Remark::note(if on { "means on" } else { "means off" })),
        None => {
            let default = known?.default.as_deref()?;
            let text = format!("`{}` is no truth value here, so the default `{default}` counts", show(name, value));
            let status = if default == "false" { RowStatus::AcceptedButOff } else { RowStatus::OverriddenBy };
            Some(Remark::becomes(status, text))
        }
    }
}

/// What the server sets by itself at its start, which no reading of the process can show.
fn overwritten(view: &View<'_>, tables: &Tables, name: &str, value: Option<&str>) -> Option<Remark> {
    let own = tables.overwrites.iter().find(|o| o.variable == name)?;
    let architecture = view.architecture();
    let fits = own.fits(architecture.as_deref(), view.runs_on(own.capability), view.version.as_deref());
    if fits.contains(&Some(false)) {
        return None;
    }
    let [model, card, _] = fits;
    let sets = format!("the server itself sets it to `{}` for this model on sm{}", own.value, own.capability);
    if (model, card) != (Some(true), Some(true)) {
        // One of both fits and the other is not known.
        let likely = model == Some(true) || card == Some(true);
        return likely.then(|| Remark::note(format!("{sets}, where that is what runs ({})", own.source)));
    }
    let text = format!("{sets} after its start, unless a patch guards it; /proc cannot show that ({})", own.source);
    let (asked, forced) = (value.map(knowledge::boolean), knowledge::boolean(&own.value));
    Some(match asked {
        Some(asked) if asked == forced => Remark::note("the server itself sets the same after its start"),
        Some(Some(true)) => Remark::becomes(RowStatus::AcceptedButOff, text),
        _ => Remark::becomes(RowStatus::OverriddenBy, text),
    })
}
