//! A unit that runs as another user than root, seen and changed by an ordinary user of the host.

use serde_json::Value;

use super::{CASE, Unit, not_run};
use crate::systemd_host::UNIT;

/// Who comes over ssh, and who the server runs as.
const VISITOR: &str = "pbvisitor";
const RUNNER: &str = "pbrunner";
/// A copy of `setpriv` that the visitor may run with the rights of root, in place of a `sudo` that the host lacks.
const BECOME: &str = "/srv/lab/become";

/// The case as the visitor has it, with this `become`.
fn case(become_with: Option<&str>) -> String {
    let prefix = become_with.map_or_else(String::new, |words| format!("become = \"{words}\"\n"));
    CASE.replace("host = \"pbhost\"\n", &format!("host = \"{VISITOR}\"\n{prefix}")).replace("production = true\n", "")
}

fn become_user(user: &str) -> String {
    format!("{BECOME} --reuid={user} --regid={user} --clear-groups")
}

/// The level of a patch as `patches` has it.
fn state<'v>(patches: &'v Value, id: &str) -> &'v Value {
    let all = patches["patches"].as_array().unwrap_or_else(|| panic!("{patches:#}"));
    &all.iter().find(|p| p["id"] == id).unwrap()["state"][0]
}

impl Unit {
    /// The same unit under a user of its own, and the visitor let in.
    fn of_runner(mut self) -> Self {
        self.host.let_in(VISITOR);
        self.host.sh(&format!("id -u {RUNNER} >/dev/null 2>&1 || useradd --system {RUNNER}"));
        self.host.sh(&format!("install -m 4750 -g {VISITOR} /usr/bin/setpriv {BECOME}"));
        let text = UNIT.replace("[Service]\n", &format!("[Service]\nUser={RUNNER}\nRestart=on-failure\n"));
        self.host.write("/etc/systemd/system/sglang-lab.service", &text);
        // The server counts its boots in a file beside its deployment.
        self.host.sh(&format!(
            "cd /srv/lab; chmod 644 lab.deployment; chmod 755 serve.sh; touch lab.boots; chown {RUNNER}: lab.boots"
        ));
        self.host.start();
        assert_eq!(self.user(), RUNNER);
        self.owners = self.hashes();
        self
    }

    /// The user that the server runs as.
    fn user(&self) -> String {
        self.host.sh("stat -c %U /proc/$(systemctl show -P MainPID sglang-lab)").trim().to_owned()
    }

    fn with_case(&self, become_with: Option<&str>) {
        fs_err::write(&self.case, case(become_with)).unwrap();
    }

    /// That a change is refused for want of rights.
    fn refuses(&self, level: &str) {
        let (status, end) = self.toggle(level);
        let (message, hint) = (end["error"]["message"].as_str(), end["error"]["hint"].as_str());
        assert!(status != 0 && hint.is_some_and(|h| h.contains("become")), "{end:#}");
        assert!(message.is_some(), "{end:#}");
    }
}

#[test]
fn a_unit_of_another_user_is_unknown_to_a_stranger_and_changed_with_the_rights_of_root() {
    let Some(unit) = Unit::up().map(Unit::of_runner) else { return not_run() };

    // To a stranger, whose kernel shows neither sockets nor environment of others, everything is unknown and nothing unset.
    unit.with_case(None);
    let (_, truth) = unit.run(&["truth"]);
    assert_eq!(truth["targets"][0]["pid"], Value::Null, "{truth:#}");
    let rows = truth["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["effective"].is_null(), "nothing is claimed of a process that was not read: {row:#}");
    }
    let declared = rows.iter().find(|row| row["name"] == "SGLANG_SM120_TRITON_INDEXER").unwrap();
    assert_eq!(declared["declared"]["value"], "1", "files are open to everybody: {declared:#}");
    let (_, patches) = unit.run(&["patches"]);
    for id in ["triton-indexer", "mhc-bf16"] {
        let state = state(&patches, id);
        assert_eq!((&state["level"], &state["state"]), (&Value::Null, &"unknown".into()), "{id}: {state:#}");
    }
    unit.refuses("off");
    unit.is_original();

    // As the user of the unit it is read and not changed: a unit is root's.
    unit.with_case(Some(&become_user(RUNNER)));
    let (_, patches) = unit.run(&["patches"]);
    assert_eq!(state(&patches, "triton-indexer")["level"], "on", "{patches:#}");
    unit.refuses("off");
    unit.is_original();

    // As root it is switched off and back, and runs as its own user all the while.
    unit.with_case(Some(&become_user("root")));
    let (_, patches) = unit.run(&["patches"]);
    assert_eq!(state(&patches, "triton-indexer")["level"], "on", "{patches:#}");
    assert!(state(&patches, "triton-indexer")["source"].as_str().unwrap().contains("/environ"), "{patches:#}");
    let (status, off) = unit.toggle("off");
    assert_eq!((status, unit.indexer().as_str()), (0, "absent"), "{off:#}");
    assert_eq!((&off["proofs"][0]["levels"]["triton-indexer"], unit.user().as_str()), (&"off".into(), RUNNER));
    let (_, patches) = unit.run(&["patches"]);
    assert_eq!(state(&patches, "triton-indexer")["level"], "off", "{patches:#}");
    // What is unset there is no more known to a stranger than what was set.
    unit.with_case(None);
    let (_, patches) = unit.run(&["patches"]);
    assert_eq!(state(&patches, "triton-indexer")["level"], Value::Null, "{patches:#}");
    unit.refuses("on");
    assert_eq!(unit.indexer(), "absent");

    unit.with_case(Some(&become_user("root")));
    let (status, back) = unit.run(&["restore", "--yes", "lab"]);
    assert_eq!(status, 0, "{back:#}");
    unit.is_original();
    assert_eq!(unit.user(), RUNNER);
    unit.host.sh(&format!("rm -f /srv/lab/lab.boots {BECOME}"));
}
