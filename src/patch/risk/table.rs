//! The rules of risk as data: name, when it applies, weight, why that weight. Pure.
//!
//! Not responsible for finding out whether a rule applies; see `apply`.

use super::reports::Class;
use crate::patch::context::{ErrorClass, Finding};
use crate::patch::types::Signal;

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Name, kebab-case; fixed, since notes and reports quote it.
    pub name: &'static str,
    /// When it applies.
    pub when: When,
    /// What it adds, in the manner of log-odds; of a rule that counts, what it adds for each logarithm.
    pub weight: f64,
    /// Why it weighs that much, in one clause.
    pub because: &'static str,
}

/// When a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nothing switches the patch.
    NoGate,
    /// It reaches a phase that the symptom points to.
    PhaseLikely,
    /// It reaches only phases from which the symptom does not come, or none that its targets have.
    PhaseExcluded,
    /// Counts places of a forward pass.
    Sites,
    /// A value type with fewer bits took the place of another.
    DtypeLowered,
    /// A value type with fewer bits took the place of another, and nothing switches it.
    DtypeLoweredAlways,
    /// A narrow value type is named where none was.
    DtypeNamed,
    /// A value type was changed otherwise.
    DtypeOther,
    /// A line does this.
    Does(Signal),
    /// Counts public reports with a cause of its kind.
    BaseRate,
    /// What was changed cannot be read.
    Unread,
    /// It acts on a target.
    Live,
    /// It acts on no target.
    Dead,
    /// The failing requests met the factor.
    Met,
    /// The failing requests did not meet the factor.
    NotMet,
    /// Nothing was run with the other level of the factor.
    Untried,
    /// A microtest has this class.
    Measured(ErrorClass),
    /// A verdict says so.
    Found(Finding),
}

const fn rule(name: &'static str, when: When, weight: f64, because: &'static str) -> Rule {
    Rule { name, when, weight, because }
}

/// Every rule, in the order in which terms are shown.
pub const RULES: &[Rule] = &[
    rule("verdict-guilty", When::Found(Finding::Guilty), 40.0, "switching it alone makes and unmakes the symptom"),
    rule("verdict-acquitted", When::Found(Finding::Acquitted), -40.0, "it was on and the symptom was not there"),
    rule("verdict-not-shown", When::Found(Finding::NotShown), -0.5, "another culprit may have masked it"),
    rule("dead-here", When::Dead, -20.0, "what does not act cannot be the cause, as far as its state was read right"),
    rule("live-here", When::Live, 0.3, "everything that was read says that it acts"),
    rule("no-gate", When::NoGate, 1.0, "it acts on every request, and no run without it can have been made"),
    rule("phase-likely", When::PhaseLikely, 1.5, "it acts where the symptom arises"),
    rule("phase-excluded", When::PhaseExcluded, -2.0, "it acts where the symptom does not arise"),
    rule("sites", When::Sites, 0.3, "every place of a forward pass is a chance to do damage, the first ones most"),
    rule("dtype-lowered", When::DtypeLowered, 1.2, "the same computation with fewer bits is another computation"),
    rule(
        "dtype-lowered-always",
        When::DtypeLoweredAlways,
        0.3,
        "no request was ever computed with the bits that it had",
    ),
    rule("dtype-named", When::DtypeNamed, 0.6, "a cast to a narrow type, from what is not told"),
    rule("dtype-changed", When::DtypeOther, 0.4, "more bits than the reference has rounded wrongly, too"),
    rule("accumulation", When::Does(Signal::Accumulation), 0.6, "sums of many terms lose small ones"),
    rule("scale", When::Does(Signal::Scale), 0.8, "a factor left out or applied twice is off everywhere and runs well"),
    rule("clamp", When::Does(Signal::Clamp), 0.6, "a bound cuts off what is large and rare"),
    rule("constant", When::Does(Signal::Constant), 0.4, "a number that the model fixes may be another one"),
    rule("top-k", When::Does(Signal::TopK), 0.7, "what is not chosen is forgotten without a trace"),
    rule("mask", When::Does(Signal::Mask), 0.7, "what is masked is forgotten without a trace"),
    rule("index", When::Does(Signal::Index), 0.5, "an offset by one reads a neighbour's values"),
    rule("layout", When::Does(Signal::Layout), 0.7, "what is written in one order and read in another is noise"),
    rule("cache-key", When::Does(Signal::CacheKey), 1.0, "two contexts under one key answer for each other"),
    rule("transfer", When::Does(Signal::Transfer), 0.8, "what is not moved is not there when tokens are generated"),
    rule("template", When::Does(Signal::Template), 0.8, "a turn that is not in the prompt cannot be recalled"),
    rule("parser", When::Does(Signal::Parser), 0.4, "an answer may be read into the wrong field"),
    rule("assert-removed", When::Does(Signal::AssertRemoved), 0.6, "somebody had ruled this case out"),
    rule("default-on", When::Does(Signal::DefaultOn), 0.4, "it acts where nobody asked for it"),
    rule("unread", When::Unread, 0.4, "what it does is not known"),
    rule(
        "base-rate",
        When::BaseRate,
        0.5,
        "half the logarithm: reports are of others' patches, and of what is easily found",
    ),
    rule(
        "measured-below-floor",
        When::Measured(ErrorClass::BelowFloor),
        -1.8,
        "it adds less than the reference's own rounding",
    ),
    rule(
        "measured-above-floor",
        When::Measured(ErrorClass::AboveFloor),
        0.5,
        "its error shows, though no decision changes",
    ),
    rule("measured-flips", When::Measured(ErrorClass::FlipsDecisions), 2.5, "it changes what the model chooses"),
    rule("measured-broken", When::Measured(ErrorClass::Broken), 4.0, "it computes something else"),
    rule("met", When::Met, 1.5, "the failing requests went through it"),
    rule("not-met", When::NotMet, -2.0, "the failing requests did not go through it"),
    rule("untried", When::Untried, 0.5, "it can be tried without a restart, and was not"),
];

/// The classes of causes that a changed line may belong to.
pub(super) fn classes(signal: Signal) -> &'static [Class] {
    match signal {
        Signal::TopK | Signal::Mask | Signal::Index => &[Class::Index],
        Signal::Layout => &[Class::Layout],
        Signal::CacheKey => &[Class::State],
        Signal::Transfer => &[Class::Transfer],
        Signal::Scale => &[Class::Scale],
        Signal::Accumulation => &[Class::Precision],
        Signal::Template | Signal::Parser => &[Class::Prompt],
        Signal::DefaultOn => &[Class::Setting],
        Signal::Clamp | Signal::Constant | Signal::AssertRemoved => &[],
    }
}
