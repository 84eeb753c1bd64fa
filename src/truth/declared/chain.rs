//! One declaration after another: what a unit passes on, and what the script that it starts makes of it.
//!
//! Pure.

use super::Declared;

/// What a server gets of a unit (or any outer command) that starts a script: the script's assignments beat the
/// unit's, and every value keeps its place.
///
/// The script should have been read with the unit's variables (`script::parse_in`), so that `${X:-d}` is known there.
#[must_use]
pub fn chain(unit: Declared, script: Declared) -> Declared {
    let mut out = unit;
    for (name, variable) in script.variables {
        for (place, value) in variable.all {
            out.assign(&name, place, value);
        }
    }
    // Without a server of its own, the script says nothing about flags.
    if !script.argv.is_empty() {
        (out.argv, out.flags) = (script.argv, script.flags);
    }
    out.diagnostics.extend(script.diagnostics);
    if let Some(to) = script.blind_to {
        out.blind(&to);
    }
    out
}
