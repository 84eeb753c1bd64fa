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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::script;
    use crate::truth::declared::command::Reading;
    use crate::truth::declared::systemd::{self, UnitFiles};
    use crate::truth::declared::{Files, Place, Text};

    #[test]
    fn the_script_beats_the_unit_and_every_value_keeps_its_place() {
        let main = "[Service]\nEnvironment=A=0 B=1 C=2\nExecStart=/root/serve.sh --of-script 1\n";
        let files = UnitFiles { name: "s.service".into(), main: ("/u".into(), main.into()), ..UnitFiles::default() };
        let unit = systemd::read(&files, None).declared;
        let text = "#!/bin/bash\nexport A=1\nexport D=${B:-9}\nunset C\n. ./more\nexec srv --port 30002\n";
        let environment = unit.variables.iter().filter_map(|(n, v)| Some((n.clone(), v.value.clone()?))).collect();
        let script = script::parse_in(text, &environment).unwrap();
        let named = Files::default();
        let inner =
            script::declared_at(&script, &|line| Place::new("/root/serve.sh", line), Reading::new(None, &named));
        let both = chain(unit, inner);
        let of = |name: &str| {
            let variable = &both.variables[name];
            let text = variable.value.as_ref().and_then(Text::known);
            (text, variable.place.file.as_str(), variable.place.line, variable.all.len())
        };
        assert_eq!(of("A"), (Some("1"), "/root/serve.sh", 2, 2));
        assert_eq!(of("B"), (Some("1"), "/u", 2, 1));
        assert_eq!(of("C"), (None, "/root/serve.sh", 4, 2));
        assert_eq!(of("D"), (Some("1"), "/root/serve.sh", 3, 1));
        let flags: Vec<_> = both.flags.iter().map(|f| (f.name.as_str(), f.place.line)).collect();
        assert_eq!(flags, [("--port", 6)]);
        assert_eq!(both.blind_to.as_deref(), Some("what lines 5 bring in"));
    }

    #[test]
    fn a_script_without_a_server_leaves_the_flags_of_the_unit() {
        let mut unit = Declared::default();
        unit.give("--p", Place::new("/u", 1), Text::Known("1".into()));
        unit.argv = vec![Some("srv".into())];
        let both = chain(unit.clone(), Declared::default());
        assert_eq!(both, unit);
    }
}
