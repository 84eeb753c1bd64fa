//! Candidates: how a kernel under suspicion does its arithmetic, as data.
//!
//! Responsible for the form of a candidate, for reading candidates from TOML, and for sums in a
//! stated order and width. Not responsible for where a spec rounds, which each microtest says with
//! its vocabulary, nor for judging an error.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::procedure::Failure;
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::microtest::SpecInfo;
use crate::kernel::outside::{self, Cuda, ExternalCommand};

/// A chain of rounding points through a kernel, and the order of its sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Candidate {
    /// The microtest it belongs to, such as `mhc-mix`.
    pub spec: String,
    /// Name, such as `bf16`.
    pub name: String,
    /// One line: which real arithmetic it stands for.
    #[serde(default)]
    pub says: String,
    /// What is done at each rounding point; a point that is not named stays exact.
    #[serde(default)]
    pub round: BTreeMap<String, Storage>,
    /// How sums are made.
    #[serde(default)]
    pub accumulate: Accumulate,
    /// Variants that are no rounding, such as `query-scale = "before-rounding"`.
    #[serde(default)]
    pub choose: BTreeMap<String, String>,
    /// What is wrong with it on purpose, which makes it a known-bad twin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Kernels on a card that do it; without them it is emulated on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<Cuda>,
    /// A command that does it, on this machine or another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<ExternalCommand>,
}

/// How sums of products are made.
///
/// The terms are cut into `splits` runs of nearly equal length; each run is summed in `order`, and
/// the runs' sums are added in ascending order. Every product and every partial sum is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Accumulate {
    /// What products and partial sums are held in.
    #[serde(rename = "in")]
    pub dtype: Rounding,
    /// Into how many runs the terms are cut.
    pub splits: usize,
    /// In which order the terms of a run are added.
    pub order: Order,
}

impl Default for Accumulate {
    fn default() -> Self {
        Self { dtype: Rounding::Exact, splits: 1, order: Order::Ascending }
    }
}

/// In which order terms are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// From the first to the last.
    #[default]
    Ascending,
    /// From the last to the first.
    Descending,
    /// Halves, and halves of halves.
    Pairwise,
}

impl Candidate {
    /// The candidate of a spec that does everything exactly.
    pub fn exact(spec: &str) -> Self {
        Self { spec: spec.into(), name: "exact".into(), ..Self::default() }
    }

    /// Whether something outside this program does it.
    pub fn is_outside(&self) -> bool {
        self.cuda.is_some() || self.command.is_some()
    }

    /// Whether a user brought its kernels or its command.
    pub fn is_brought(&self) -> bool {
        self.command.is_some() || self.cuda.as_ref().is_some_and(|cuda| cuda.file.is_some())
    }

    /// What is done at a rounding point.
    pub fn at(&self, point: &str) -> Storage {
        self.round.get(point).copied().unwrap_or_default()
    }

    /// Whether it takes this variant; a variant that is not named is the first of its choice, which
    /// the caller tests as the absence of all others.
    pub fn chooses(&self, choice: &str, value: &str) -> bool {
        self.choose.get(choice).is_some_and(|v| v == value)
    }

    /// Whether this is wrong with it on purpose.
    pub fn has_fault(&self, fault: &str) -> bool {
        self.fault.as_deref() == Some(fault)
    }

    /// The same candidate with one rounding point alone, emulated and without its fault. Its choices stay.
    #[must_use]
    pub fn only(&self, point: &str) -> Self {
        let round = self.round.get_key_value(point).map(|(k, v)| (k.clone(), *v)).into_iter().collect();
        Self { round, accumulate: Accumulate::default(), fault: None, cuda: None, command: None, ..self.clone() }
    }

    /// The same candidate with its sums alone, emulated and without its fault. Its choices stay.
    #[must_use]
    pub fn only_sums(&self) -> Self {
        Self { round: BTreeMap::new(), fault: None, cuda: None, command: None, ..self.clone() }
    }
}

impl Accumulate {
    /// Sums in f32 with that many runs.
    pub fn f32(splits: usize) -> Self {
        Self { dtype: Rounding::F32, splits, order: Order::Ascending }
    }

    /// The sum of the products of two rows of equal length.
    pub fn dot(&self, a: &[f64], b: &[f64]) -> f64 {
        match self.dtype {
            Rounding::Exact => self.total(a.len(), |i| a[i] * b[i], |x| x),
            // Plain f32 arithmetic rounds as the rule does, and much faster.
            Rounding::F32 => f64::from(self.total(a.len(), |i| a[i] as f32 * b[i] as f32, |x: f32| x)),
            dtype => self.total(a.len(), |i| dtype.round(a[i] * b[i]), |x| dtype.round(x)),
        }
    }

    /// The sum of the terms.
    pub fn sum(&self, terms: &[f64]) -> f64 {
        match self.dtype {
            Rounding::Exact => self.total(terms.len(), |i| terms[i], |x| x),
            Rounding::F32 => f64::from(self.total(terms.len(), |i| terms[i] as f32, |x: f32| x)),
            dtype => self.total(terms.len(), |i| dtype.round(terms[i]), |x| dtype.round(x)),
        }
    }

    fn total<T: Copy + Default + std::ops::Add<Output = T>>(
        &self,
        terms: usize,
        term: impl Fn(usize) -> T,
        round: impl Fn(T) -> T,
    ) -> T {
        let splits = self.splits.clamp(1, terms.max(1));
        (0..splits).fold(T::default(), |sum, split| {
            let run = split * terms / splits..(split + 1) * terms / splits;
            round(sum + self.run(run, &term, &round))
        })
    }

    fn run<T: Copy + Default + std::ops::Add<Output = T>>(
        &self,
        range: std::ops::Range<usize>,
        term: &impl Fn(usize) -> T,
        round: &impl Fn(T) -> T,
    ) -> T {
        match self.order {
            Order::Ascending => range.fold(T::default(), |sum, i| round(sum + term(i))),
            Order::Descending => range.rev().fold(T::default(), |sum, i| round(sum + term(i))),
            Order::Pairwise => pairwise(range, term, round),
        }
    }

    /// What is done to sums, in words.
    pub fn words(&self) -> String {
        let splits = if self.splits > 1 { format!(", {} runs", self.splits) } else { String::new() };
        let order = match self.order {
            Order::Ascending => "",
            Order::Descending => ", descending",
            Order::Pairwise => ", pairwise",
        };
        format!("{}{splits}{order}", self.dtype.word())
    }
}

fn pairwise<T: Copy + Default + std::ops::Add<Output = T>>(
    range: std::ops::Range<usize>,
    term: &impl Fn(usize) -> T,
    round: &impl Fn(T) -> T,
) -> T {
    match range.len() {
        0 => T::default(),
        1 => term(range.start),
        n => {
            let middle = range.start + n / 2;
            round(pairwise(range.start..middle, term, round) + pairwise(middle..range.end, term, round))
        }
    }
}

/// Reads candidates of `specs` from TOML: `[[candidate]]` tables.
///
/// # Errors
/// The text is no TOML of that form, or a candidate names a spec, point, choice or fault that there
/// is not; `place` names the text.
pub fn parse(text: &str, place: &str, specs: &[&SpecInfo]) -> Result<Vec<Candidate>, Failure> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Candidates {
        #[serde(default)]
        candidate: Vec<Candidate>,
    }
    let read: Candidates = toml::from_str(text).map_err(|e| {
        Failure::new(format!("{place}: {}", e.to_string().trim_end()))
            .hint("a candidate is `[[candidate]]` with spec, name and round = { POINT = \"bf16\" }")
    })?;
    for candidate in &read.candidate {
        check(candidate, specs).map_err(|f| Failure { message: format!("{place}: {}", f.message), ..f })?;
    }
    Ok(read.candidate)
}

/// The most runs that sums are cut into.
const MOST_SPLITS: usize = 65_535;

fn check(candidate: &Candidate, specs: &[&SpecInfo]) -> Result<(), Failure> {
    let refuse = |what: String, there: Vec<&str>| {
        let names: Vec<String> = there.iter().map(|name| format!("`{name}`")).collect();
        let hint = if names.is_empty() { "there is none".to_owned() } else { format!("there is {}", names.join(", ")) };
        Err(Failure::new(format!("candidate `{}`: {what}", candidate.name)).hint(hint))
    };
    let Some(spec) = specs.iter().find(|s| s.name == candidate.spec) else {
        let names = specs.iter().map(|s| s.name).collect();
        return refuse(format!("there is no microtest `{}`", candidate.spec), names);
    };
    if let Some(point) = candidate.round.keys().find(|p| !spec.points.iter().any(|(name, _)| name == p)) {
        let points = spec.points.iter().map(|(name, _)| *name).collect();
        return refuse(format!("`{}` has no rounding point `{point}`", spec.name), points);
    }
    for (choice, value) in &candidate.choose {
        let Some((_, values)) = spec.choices.iter().find(|(name, _)| name == choice) else {
            let choices = spec.choices.iter().map(|(name, _)| *name).collect();
            return refuse(format!("`{}` has no choice `{choice}`", spec.name), choices);
        };
        if !values.contains(&value.as_str()) {
            return refuse(format!("choice `{choice}` has no value `{value}`"), values.to_vec());
        }
    }
    let splits = candidate.accumulate.splits;
    if !(1..=MOST_SPLITS).contains(&splits) {
        return refuse(format!("sums cannot be cut into {splits} runs"), vec!["1"]);
    }
    outside::check(candidate.cuda.as_ref(), candidate.command.as_ref())
        .map_err(|f| Failure { message: format!("candidate `{}`: {}", candidate.name, f.message), ..f })?;
    match &candidate.fault {
        Some(fault) if !spec.faults.iter().any(|(name, _)| name == fault) => {
            let faults = spec.faults.iter().map(|(name, _)| *name).collect();
            refuse(format!("`{}` has no fault `{fault}`", spec.name), faults)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPEC: SpecInfo = SpecInfo {
        name: "x",
        says: "",
        parts: &["out"],
        stored: Rounding::Bf16,
        points: &[("weight", ""), ("output", "")],
        choices: &[("scaling", &["topk", "output"])],
        faults: &[("twice", "")],
        candidates: "",
        does_not_show: "",
    };

    #[test]
    fn a_new_suspicion_is_data() {
        let text = "[[candidate]]\nspec = \"x\"\nname = \"f16\"\nround = { output = \"f16\" }\n\
                    accumulate = { in = \"f32\", splits = 4 }\nchoose = { scaling = \"topk\" }\n";
        let read = parse(text, "here", &[&SPEC]).unwrap();
        assert_eq!(read[0].at("output"), Storage::Element(Rounding::F16));
        assert_eq!(read[0].at("weight"), Storage::default());
        assert_eq!(read[0].accumulate, Accumulate::f32(4));
        assert!(read[0].chooses("scaling", "topk") && !read[0].chooses("scaling", "output"));
    }

    #[test]
    fn what_there_is_not_is_named_with_what_there_is() {
        let check = |body: &str, message: &str, hint: &str| {
            let failure = parse(&format!("[[candidate]]\nname = \"n\"\n{body}"), "f.toml", &[&SPEC]).unwrap_err();
            assert_eq!(failure.message, format!("f.toml: candidate `n`: {message}"));
            assert_eq!(failure.hint.as_deref(), Some(hint));
        };
        check("spec = \"y\"", "there is no microtest `y`", "there is `x`");
        check(
            "spec = \"x\"\nround = { weights = \"bf16\" }",
            "`x` has no rounding point `weights`",
            "there is `weight`, `output`",
        );
        check("spec = \"x\"\nchoose = { a = \"b\" }", "`x` has no choice `a`", "there is `scaling`");
        check(
            "spec = \"x\"\nchoose = { scaling = \"b\" }",
            "choice `scaling` has no value `b`",
            "there is `topk`, `output`",
        );
        check("spec = \"x\"\nfault = \"b\"", "`x` has no fault `b`", "there is `twice`");
        check("spec = \"x\"\naccumulate = { splits = 0 }", "sums cannot be cut into 0 runs", "there is `1`");
        let failure = parse("[[candidate]]\nspec = \"x\"\nname = \"n\"\nround = 3", "f.toml", &[&SPEC]).unwrap_err();
        assert!(failure.message.starts_with("f.toml: TOML parse error at line 4"), "{}", failure.message);
    }

    #[test]
    fn one_point_alone_has_neither_the_others_nor_the_fault() {
        let text = "[[candidate]]\nspec = \"x\"\nname = \"n\"\nround = { output = \"f16\", weight = \"bf16\" }\n\
                    accumulate = { in = \"f32\" }\nfault = \"twice\"\n";
        let candidate = parse(text, "here", &[&SPEC]).unwrap().remove(0);
        let alone = candidate.only("weight");
        assert_eq!((alone.round.len(), alone.at("weight")), (1, Storage::Element(Rounding::Bf16)));
        assert_eq!((alone.accumulate, alone.fault), (Accumulate::default(), None));
        let sums = candidate.only_sums();
        assert_eq!((sums.round.len(), sums.accumulate.dtype), (0, Rounding::F32));
    }

    #[test]
    fn order_and_splits_are_as_stated() {
        // In f32, 2^24 + 1 is 2^24: what is added when decides.
        let terms = [16_777_216.0, 1.0, 1.0, 1.0];
        let sum = |splits, order| Accumulate { dtype: Rounding::F32, splits, order }.sum(&terms);
        assert_eq!(sum(1, Order::Ascending), 16_777_216.0);
        assert_eq!(sum(1, Order::Descending), 16_777_220.0);
        assert_eq!(sum(1, Order::Pairwise), 16_777_218.0);
        assert_eq!(sum(2, Order::Ascending), 16_777_218.0);
        assert_eq!(Accumulate::f32(3).dot(&[], &[]), 0.0);
        assert_eq!(Accumulate::f32(9).dot(&[2.0], &[3.0]), 6.0);
    }

    proptest! {
        #[test]
        fn f32_sums_are_those_of_the_rule(
            a in prop::collection::vec(-1e3_f64..1e3, 0..40), splits in 1_usize..6, order in 0_usize..3,
        ) {
            let order = [Order::Ascending, Order::Descending, Order::Pairwise][order];
            let rule = Accumulate { dtype: Rounding::F32, splits, order };
            let terms: Vec<f64> = a.iter().map(|x| Rounding::F32.round(*x)).collect();
            let slow = rule.total(terms.len(), |i| Rounding::F32.round(terms[i] * terms[i]), |x| Rounding::F32.round(x));
            prop_assert_eq!(rule.dot(&terms, &terms), slow);
            let exact: f64 = terms.iter().map(|x| x * x).sum();
            prop_assert!((slow - exact).abs() <= exact * 1e-5);
        }
    }
}
