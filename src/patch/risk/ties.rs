//! Why patches have the same score, and what would tell them apart. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Open, Ranked, Term};

/// Scores this near to each other are the same: a weight chosen by hand is not surer than that.
pub const SAME: f64 = 0.25;

/// Two neighbours of the ranking with the same score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tie {
    /// Id of the one above.
    pub above: String,
    /// Id of the one below.
    pub below: String,
    /// Why the scores are the same.
    pub why: String,
    /// What would tell them apart.
    pub separates: String,
}

/// The ties between neighbours of a ranking, in its order.
pub fn ties(ranked: &[Ranked]) -> Vec<Tie> {
    let pairs = ranked.windows(2).filter_map(|pair| <&[Ranked; 2]>::try_from(pair).ok());
    pairs.filter(|[a, b]| (a.score - b.score).abs() < SAME).map(|[a, b]| tie(a, b)).collect()
}

fn tie(above: &Ranked, below: &Ranked) -> Tie {
    let (mine, theirs) = (only(above, below), only(below, above));
    let why = match (mine.is_empty(), theirs.is_empty()) {
        (true, true) => "the same rules apply with the same weights".to_owned(),
        (false, true) => format!("`{}` also has {}, which weighs little", above.id, said(&mine)),
        (true, false) => format!("`{}` also has {}, which weighs little", below.id, said(&theirs)),
        (false, false) => format!("`{}` has {}; `{}` has {}", above.id, said(&mine), below.id, said(&theirs)),
    };
    Tie { above: above.id.clone(), below: below.id.clone(), why, separates: separates(above, below) }
}

/// Terms that are named of each side.
const NAMED: usize = 3;

/// Terms of the one that the other lacks, or has with another weight; heaviest first, those without weight left out.
fn only<'a>(one: &'a Ranked, other: &Ranked) -> Vec<&'a Term> {
    let shared = |t: &&Term| !other.terms.iter().any(|o| o.rule == t.rule && o.weight == t.weight);
    let mut terms: Vec<&Term> = one.terms.iter().filter(|t| t.weight != 0.0).filter(shared).collect();
    terms.sort_by(|a, b| b.weight.abs().total_cmp(&a.weight.abs()).then_with(|| a.rule.cmp(&b.rule)));
    terms
}

fn said(terms: &[&Term]) -> String {
    let mut words: Vec<String> = terms.iter().take(NAMED).map(|t| format!("{} {:+.2}", t.rule, t.weight)).collect();
    if let Some(rest) = terms.get(NAMED..).filter(|rest| !rest.is_empty()) {
        words.push(format!("and {:+.2} of {} more", rest.iter().map(|t| t.weight).sum::<f64>(), rest.len()));
    }
    words.join(", ")
}

/// The cheapest question that is open for one or both: what needs no switch before what does.
fn separates(above: &Ranked, below: &Ranked) -> String {
    let cheapest = |r: &Ranked| -> Option<Open> {
        let cost = |o: &Open| u8::from(o.how.contains("restart") && !o.how.contains("no restart"));
        r.open.iter().min_by_key(|o| cost(o)).cloned()
    };
    let name = |r: &Ranked, open: &Open| format!("`{}`: {} ({})", r.id, open.unknown, open.how);
    match (cheapest(above), cheapest(below)) {
        (None, None) => "nothing that is known to be open".to_owned(),
        (Some(a), Some(b)) if (&a.unknown, &a.how) == (&b.unknown, &b.how) => {
            format!("for both, {} ({})", a.unknown, a.how)
        }
        (Some(a), Some(b)) => format!("{}; {}", name(above, &a), name(below, &b)),
        (Some(a), None) => name(above, &a),
        (None, Some(b)) => name(below, &b),
    }
}
