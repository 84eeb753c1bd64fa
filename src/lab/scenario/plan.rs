//! A scenario compiled for one boot: decides the faults of each request.

use statrs::distribution::{Beta, ContinuousCDF};

use super::expr::{Expr, Fact};
use super::{FaultKind, Rate, Scenario, ScenarioError};
use crate::lab::cache::PAGE;
use crate::lab::model::arith::PageShift;
use crate::lab::model::{Faults, ROUTED_SCALE};

/// What conditions can ask about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Prompt tokens.
    pub len: usize,
    /// Prompt tokens from the prefix cache.
    pub cached: usize,
    /// Requests in the engine, this one included.
    pub batch: usize,
    /// User turns.
    pub turns: usize,
    /// Prefill chunks.
    pub chunks: usize,
    /// Tokens in a prefill chunk.
    pub chunk: usize,
}

/// The faults of one boot; the default has none.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    gates: Vec<String>,
    faults: Vec<Armed>,
    seed: u64,
    boot: u64,
    /// What every request suffers.
    always: Faults,
}

#[derive(Clone, Debug)]
struct Armed {
    kind: FaultKind,
    when: Expr,
    rate: f64,
}

impl Plan {
    /// Compiles a scenario for the active `gates` and for one boot.
    ///
    /// # Errors
    /// When a condition or a rate is not valid.
    pub fn compile(scenario: &Scenario, gates: &[String], seed: u64, boot: u64) -> Result<Self, ScenarioError> {
        let mut faults = Vec::new();
        for (index, fault) in scenario.faults.iter().enumerate() {
            let when = Expr::parse(&fault.when).map_err(|source| ScenarioError::When {
                name: scenario.name.clone(),
                when: fault.when.clone(),
                source,
            })?;
            let bad = |rate: String| ScenarioError::Rate { name: scenario.name.clone(), rate };
            let rate = match &fault.rate {
                Rate::Fixed(rate) if (0.0..=1.0).contains(rate) => *rate,
                Rate::Fixed(rate) => return Err(bad(rate.to_string())),
                Rate::PerBoot { per_boot } => {
                    let beta = beta(per_boot).ok_or_else(|| bad(per_boot.clone()))?;
                    let draw = share(&[&seed.to_le_bytes(), &boot.to_le_bytes(), b"rate", &index.to_le_bytes()]);
                    beta.inverse_cdf(draw)
                }
            };
            faults.push(Armed { kind: fault.kind, when, rate });
        }
        Ok(Self { gates: gates.to_vec(), faults, seed, boot, always: Faults::default() })
    }

    /// The same plan over what is broken for every request, such as what the source says.
    #[must_use]
    pub fn over(self, always: Faults) -> Self {
        Self { always, ..self }
    }

    /// The faults of one request; the same request in the same boot gets the same.
    pub fn faults(&self, facts: &Facts, prompt: &[u16]) -> Faults {
        let mut out = self.always.clone();
        for (index, fault) in self.faults.iter().enumerate() {
            let fact = |f| match f {
                Fact::Len => facts.len as i64,
                Fact::Cached => facts.cached as i64,
                Fact::Batch => facts.batch as i64,
                Fact::Turns => facts.turns as i64,
                Fact::Chunks => facts.chunks as i64,
            };
            if fault.when.holds(&self.gates, fact) && self.strikes(index, fault.rate, prompt) {
                apply(fault.kind, facts, &mut out);
            }
        }
        out
    }

    fn strikes(&self, index: usize, rate: f64, prompt: &[u16]) -> bool {
        let content: Vec<u8> = prompt.iter().flat_map(|t| t.to_le_bytes()).collect();
        let (seed, boot, index) = (self.seed.to_le_bytes(), self.boot.to_le_bytes(), index.to_le_bytes());
        rate >= 1.0 || share(&[&seed, &boot, &index, &content]) < rate
    }
}

/// Adds a fault to what is broken already: the shorter window stays, and factors multiply.
fn apply(kind: FaultKind, facts: &Facts, out: &mut Faults) {
    match kind {
        FaultKind::IndexPageOff => {
            let whole_chunks = facts.len / facts.chunk.max(1) * facts.chunk;
            out.page_shift = Some(PageShift { pages: whole_chunks / PAGE, by: 1 });
        }
        FaultKind::StalePrefix => out.page_shift = Some(PageShift { pages: facts.cached / PAGE, by: 1 }),
        FaultKind::IndexLayout => out.index_interleaved = true,
        FaultKind::IndexSign => out.index_sign = true,
        FaultKind::WindowShort => out.window = Some(out.window.map_or(16, |window| window.min(16))),
        FaultKind::RoutedScale => out.routed_factor = Some(out.routed_factor.unwrap_or(1.0) * ROUTED_SCALE),
        FaultKind::KvInt4 => out.kv_int4 = true,
        FaultKind::StateLeftBehind => out.index_left_behind = true,
    }
}

fn beta(text: &str) -> Option<Beta> {
    let inside = text.trim().strip_prefix("beta(")?.strip_suffix(')')?;
    let (a, b) = inside.split_once(',')?;
    Beta::new(a.trim().parse().ok()?, b.trim().parse().ok()?).ok()
}

/// A number in [0, 1) from a hash of the parts, each with its length.
fn share(parts: &[&[u8]]) -> f64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let mut word = [0; 8];
    word.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    (u64::from_le_bytes(word) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::super::{FaultSpec, named};
    use super::*;

    const FACTS: Facts = Facts { len: 1100, cached: 0, batch: 1, turns: 3, chunks: 3, chunk: 512 };

    fn plan(name: &str, gates: &[&str], boot: u64) -> Plan {
        let gates: Vec<String> = gates.iter().map(ToString::to_string).collect();
        Plan::compile(&named(name).unwrap(), &gates, 7, boot).unwrap()
    }

    fn struck(plan: &Plan) -> usize {
        (0..1000_u16).filter(|i| plan.faults(&FACTS, &[*i, 3]) != Faults::default()).count()
    }

    #[test]
    fn the_incident_strikes_with_its_gate_only() {
        assert_eq!(struck(&plan("incident", &["triton-indexer", "mhc-bf16"], 1)), 1000);
        assert_eq!(struck(&plan("incident", &["mhc-bf16"], 1)), 0);
        let shift = plan("incident", &["triton-indexer"], 1).faults(&FACTS, &[1]).page_shift.unwrap();
        assert_eq!(shift.pages, 16, "two whole chunks of 512 tokens");
    }

    #[test]
    fn clean_never_strikes() {
        assert_eq!(struck(&plan("clean", &super::super::expr::GATES, 1)), 0);
    }

    #[test]
    fn flaky_boots_differ_and_repeat() {
        let rates: Vec<usize> = (0..12).map(|boot| struck(&plan("flaky", &["triton-indexer"], boot))).collect();
        let again: Vec<usize> = (0..12).map(|boot| struck(&plan("flaky", &["triton-indexer"], boot))).collect();
        assert_eq!(rates, again);
        assert!(rates.iter().max().unwrap() - rates.iter().min().unwrap() > 200, "{rates:?}");
    }

    #[test]
    fn what_is_always_broken_stays_beside_what_strikes() {
        let check = |kind: FaultKind, always: Faults, expect: Faults| {
            let fault = FaultSpec { kind, when: "len > 1000".into(), rate: Rate::default() };
            let scenario = Scenario { faults: vec![fault], ..named("clean").unwrap() };
            let plan = Plan::compile(&scenario, &[], 1, 1).unwrap().over(always.clone());
            assert_eq!(plan.faults(&FACTS, &[1]), expect, "{kind:?}");
            assert_eq!(plan.faults(&Facts { len: 9, ..FACTS }, &[1]), always, "{kind:?} that does not strike");
        };
        let none = Faults::default();
        let window = |window| Faults { window: Some(window), ..none.clone() };
        check(FaultKind::WindowShort, window(64), window(16));
        check(FaultKind::WindowShort, window(8), window(8));
        let factor = |factor| Faults { routed_factor: Some(factor), ..none.clone() };
        check(FaultKind::RoutedScale, factor(2.0), factor(3.0));
        let sign = Faults { index_sign: true, ..none.clone() };
        check(FaultKind::IndexSign, sign.clone(), sign.clone());
        check(FaultKind::KvInt4, sign.clone(), Faults { kv_int4: true, ..sign });
        let offset = Faults { page_offset: -1, ..none };
        let shift = Some(PageShift { pages: 16, by: 1 });
        check(FaultKind::IndexPageOff, offset.clone(), Faults { page_shift: shift, ..offset });
    }

    #[test]
    fn a_stale_prefix_needs_a_cached_one() {
        let plan = plan("stale-prefix", &[], 1);
        assert_eq!(plan.faults(&FACTS, &[1]), Faults::default());
        let warm = Facts { cached: 640, ..FACTS };
        assert_eq!(plan.faults(&warm, &[1]).page_shift.map(|s| s.pages), Some(10));
    }
}
