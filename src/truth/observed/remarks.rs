//! What a server and its log say that has no row of its own: damage, restarts, changes, signs of a loop. Pure.

use super::{Change, Observed};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::truth::flags;
use crate::untrusted::Untrusted;

/// Characters of a value that a remark shows.
const SHOWN: usize = 80;

impl Observed {
    /// Remarks for people, most of them worth knowing and none of them a verdict.
    pub fn remarks(&self) -> Vec<Diagnostic> {
        let mut out = Vec::new();
        for damage in &self.damaged {
            let lines: Vec<String> = damage.lines.iter().map(ToString::to_string).collect();
            let which =
                if lines.is_empty() { String::new() } else { format!(", the first in line {}", lines.join(", ")) };
            let message = match damage.count {
                1 if lines.is_empty() => "the answer cannot be read".to_owned(),
                count => format!("{count} of its lines are damaged{which}"),
            };
            out.push(Diagnostic::warning("damaged-lines", message).at(damage.source.clone()));
        }
        if let Some(now) = self.starts.last().filter(|s| !s.changes.is_empty()) {
            let all: Vec<String> = now.changes.iter().map(change).collect();
            out.push(info("changed-start", format!("the last two starts differ: {}", all.join("; "))));
        }
        if let Some(count) = self.restarts {
            out.push(Diagnostic::warning(
                "restarts",
                format!("systemd restarted the unit by itself, {count} times so far"),
            ));
        }
        for line in &self.unit_warnings {
            out.push(Diagnostic::warning("unit-line-ignored", line.visible(300)));
        }
        let batches = &self.batches;
        if batches.looks_like_a_loop {
            let message = "two windows in a row accepted every drafted token, as a text that repeats itself does";
            out.push(Diagnostic::warning("draft-always-accepted", message));
        }
        if batches.all_rejected > 0 {
            let message = format!(
                "every drafted token was rejected in {} of {} windows",
                batches.all_rejected,
                batches.acceptance.len()
            );
            out.push(Diagnostic::warning("draft-always-rejected", message));
        }
        if batches.retracted > 0 {
            let message = format!("{} requests were taken back for want of memory", batches.retracted);
            out.push(Diagnostic::warning("retracted", message));
        }
        for warned in &self.warnings {
            let place = format!("{}:{}", warned.source, warned.line);
            let remark = Diagnostic::warning("server-warned", warned.text.visible(300)).at(place);
            out.push(if warned.is_error { Diagnostic { code: "server-error".into(), ..remark } } else { remark });
        }
        out
    }
}

fn info(code: &str, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Info, ..Diagnostic::warning(code, message) }
}

fn change(change: &Change) -> String {
    let show = |value: &Option<serde_json::Value>| match value {
        Some(value) => format!("`{}`", Untrusted::from(flags::shown(value)).visible(SHOWN)),
        None => "not in the line".to_owned(),
    };
    format!("`{}` was {}, is {}", change.name, show(&change.before), show(&change.now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_remark_has_its_ground() {
        let mut seen = Observed::default();
        seen.add_log("/l", include_str!("../../../tests/artefacts/A28_journal_prefix.log"));
        let said = |seen: &Observed, code: &str| seen.remarks().into_iter().find(|r| r.code == code).map(|r| r.message);
        let change = "the last two starts differ: `moe_runner_backend` was `triton`, is `flashinfer_trtllm_routed`";
        assert_eq!(said(&seen, "changed-start").as_deref(), Some(change));
        assert_eq!(said(&seen, "restarts").as_deref(), Some("systemd restarted the unit by itself, 3 times so far"));
        assert!(said(&seen, "unit-line-ignored").unwrap().contains("lemond.service:18"));
        let mut seen = Observed::default();
        seen.add_log("/l", include_str!("../../../tests/artefacts/A23_sglang_batch_lines.log"));
        assert_eq!(said(&seen, "damaged-lines").as_deref(), Some("1 of its lines are damaged, the first in line 14"));
        assert_eq!(
            said(&seen, "draft-always-rejected").as_deref(),
            Some("every drafted token was rejected in 1 of 2 windows")
        );
        assert!(Observed::default().remarks().is_empty());
    }
}
