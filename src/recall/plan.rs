//! From a plan to the keys of its trials and their order. Pure.
//!
//! Seeds come from the plan's seed and the cell alone, so that equal plans in two arms ask the same questions.

use std::collections::BTreeMap;

use super::dice::{Dice, mix};
use crate::engine::command::RecallPlan;
use crate::engine::procedure::Failure;
use crate::recall::trial::TrialKey;

/// How the prefix cache is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLevel {
    /// No token of the prompt can be cached.
    Cold,
    /// The same prompt was sent once before.
    Warm,
}

/// The factors of a plan, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factors {
    /// How the prefix cache is met; `cold` unless asked otherwise.
    pub cache: CacheLevel,
    /// Whether the model thinks first; `None` leaves it to the server.
    pub thinking: Option<bool>,
    /// Whether an assistant turn before a tool's output carries the call, as clients send it; off unless asked.
    pub tool_calls: bool,
    /// All levels by name, with the defaults filled in, as they are recorded in each trial.
    pub levels: BTreeMap<String, String>,
}

/// Reads the factors of a plan.
///
/// # Errors
/// A factor or level that is not known; it must not be dropped silently.
pub fn factors(plan: &RecallPlan) -> Result<Factors, Failure> {
    let mut out = Factors { cache: CacheLevel::Cold, thinking: None, tool_calls: false, levels: plan.factors.clone() };
    out.levels.entry("cache".into()).or_insert_with(|| "cold".into());
    for (name, level) in &out.levels {
        match (name.as_str(), level.as_str()) {
            ("cache", "cold") => out.cache = CacheLevel::Cold,
            ("cache", "warm") => out.cache = CacheLevel::Warm,
            ("thinking", "on") => out.thinking = Some(true),
            ("thinking", "off") => out.thinking = Some(false),
            ("tool-calls", "on") => out.tool_calls = true,
            ("tool-calls", "off") => out.tool_calls = false,
            _ => {
                return Err(Failure::new(format!("factor `{name}` = `{level}` is not known"))
                    .hint("known are `cache` = `cold` or `warm`, `thinking` and `tool-calls` = `on` or `off`"));
            }
        }
    }
    Ok(out)
}

/// The keys of all trials, in an order that does not follow the cells: a drift of the server over the run then
/// does not look like an effect of length or depth.
pub fn keys(plan: &RecallPlan) -> Vec<TrialKey> {
    let mut keys = Vec::new();
    for &form in &plan.forms {
        for &length in &plan.lengths {
            for &depth in &plan.depths {
                for repeat in 0..plan.repeats {
                    let cell = [plan.seed, form as u64, u64::from(length), depth.to_bits(), u64::from(repeat)];
                    keys.push(TrialKey { form, length, depth, seed: mix("trial", &cell) });
                }
            }
        }
    }
    Dice::new("order", &[plan.seed]).shuffle(&mut keys);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::trial::ProbeForm;
    use std::collections::BTreeSet;

    fn plan() -> RecallPlan {
        RecallPlan {
            forms: vec![ProbeForm::MultiTurn, ProbeForm::Needle],
            lengths: vec![1024, 2048],
            depths: vec![0.1, 0.5, 0.9],
            repeats: 4,
            seed: 11,
            concurrency: 1,
            factors: BTreeMap::new(),
        }
    }

    #[test]
    fn every_cell_is_asked_as_often_as_planned_with_seeds_of_its_own() {
        let keys = keys(&plan());
        assert_eq!(keys.len(), 2 * 2 * 3 * 4);
        let seeds: BTreeSet<u64> = keys.iter().map(|k| k.seed).collect();
        assert_eq!(seeds.len(), keys.len());
        let cell = keys.iter().filter(|k| k.form == ProbeForm::Needle && k.length == 2048 && k.depth == 0.5);
        assert_eq!(cell.count(), 4);
    }

    #[test]
    fn equal_plans_are_paired_whatever_the_factors_and_concurrency() {
        let mut other = plan();
        other.factors.insert("cache".into(), "warm".into());
        other.concurrency = 8;
        assert_eq!(keys(&plan()), keys(&other));
        assert_ne!(keys(&plan())[0].seed, keys(&RecallPlan { seed: 12, ..plan() })[0].seed);
    }

    #[test]
    fn a_cell_keeps_its_seeds_when_other_cells_are_added() {
        let larger = RecallPlan { lengths: vec![512, 1024, 2048], repeats: 9, ..plan() };
        let seeds: BTreeSet<u64> = keys(&larger).iter().map(|k| k.seed).collect();
        assert!(keys(&plan()).iter().all(|k| seeds.contains(&k.seed)));
    }

    #[test]
    fn the_order_does_not_follow_the_cells() {
        let keys = keys(&plan());
        let changes = keys.windows(2).filter(|w| w[0].length != w[1].length).count();
        assert!(changes > keys.len() / 4, "{changes} changes of length in {} trials", keys.len());
    }

    #[test]
    fn factors_default_to_a_cold_cache_and_unknown_ones_are_refused() {
        let read = factors(&plan()).unwrap();
        assert_eq!((read.cache, read.thinking), (CacheLevel::Cold, None));
        assert_eq!(read.levels["cache"], "cold");
        let with = |name: &str, level: &str| {
            let mut plan = plan();
            plan.factors.insert(name.into(), level.into());
            factors(&plan)
        };
        assert_eq!(with("cache", "warm").unwrap().cache, CacheLevel::Warm);
        assert_eq!(with("thinking", "off").unwrap().thinking, Some(false));
        assert!(with("tool-calls", "on").unwrap().tool_calls && !read.tool_calls);
        assert!(with("cache", "lukewarm").is_err());
        assert!(with("chunks", "2").unwrap_err().message.contains("chunks"));
    }
}
