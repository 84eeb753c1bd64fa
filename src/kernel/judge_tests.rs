use super::*;
use crate::kernel::candidate::{Candidate, parse};
use crate::kernel::format::Rounding;
use crate::kernel::microtest::{KeptRow, KeptSets, Microtest, Outcome, PartValues};
use crate::kernel::specs::activations;
use crate::kernel::sweep::{Ticker, sweep};

/// Sums of rows, of which the largest is kept: a kernel that is small enough to know by heart.
struct Sums;

const INFO: SpecInfo = SpecInfo {
    name: "sums",
    says: "",
    parts: &["products", "sums"],
    stored: Rounding::Bf16,
    points: &[("weight", ""), ("output", "")],
    choices: &[],
    faults: &[("doubled", ""), ("not-a-number", ""), ("last-row-lost", "")],
    candidates: "",
    does_not_show: "anything else",
};

impl Microtest for Sums {
    type Case = Vec<f64>;

    fn spec(&self) -> &'static SpecInfo {
        &INFO
    }

    fn reference(&self, case: &Vec<f64>) -> Outcome {
        self.run(case, &Candidate::exact("sums"))
    }

    fn run(&self, case: &Vec<f64>, candidate: &Candidate) -> Outcome {
        let rows = candidate.at("weight").store(case, 8);
        let mut sums: Vec<f64> = rows.chunks_exact(8).map(|row| candidate.accumulate.sum(row)).collect();
        match candidate.fault.as_deref() {
            Some("doubled") => sums.iter_mut().for_each(|s| *s *= 2.0),
            Some("not-a-number") => sums[1] = f64::NAN,
            Some("last-row-lost") => *sums.last_mut().unwrap() = -1e3,
            _ => {}
        }
        let sums = candidate.at("output").store(&sums, 1);
        let best = (0..sums.len()).max_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap();
        let row = KeptRow { kept: vec![best as u32], scores: sums.clone(), planted: Some(sums.len() as u32 - 1) };
        Outcome {
            parts: vec![
                PartValues { name: "products", columns: 8, values: rows },
                PartValues { name: "sums", columns: 1, values: sums },
            ],
            sets: Some(KeptSets { kind: "rows", rows: vec![row] }),
        }
    }

    fn flipped(&self, case: &Vec<f64>, seed: u64) -> Vec<f64> {
        activations::moved(case, &mut activations::dice(seed, 0))
    }
}

fn cases() -> Cases<Vec<f64>> {
    // The last row is the largest by far.
    let case = |seed: f64| (0..64).map(|i| (f64::from(i) * 0.37 + seed).sin() + f64::from(i / 56)).collect();
    Cases {
        labels: (0..4).map(|i| format!("case {i}")).collect(),
        cases: (0..4).map(|i| case(f64::from(i))).collect(),
        shape: "8 rows of 8".into(),
        provenance: "sines".into(),
    }
}

fn report_of(text: &str) -> MicroReport {
    let candidates = parse(text, "here", &[&INFO]).unwrap();
    let swept = sweep(&Sums, &cases(), &candidates, None, &Ticker::new(1, &|_, _, _| {}, &|| false)).unwrap();
    report(&INFO, &cases(), &swept, None)
}

fn candidate(rest: &str) -> String {
    format!("[[candidate]]\nspec = \"sums\"\nname = \"c\"\n{rest}\n")
}

#[track_caller]
fn check(rest: &str, class: ErrorClass, part: &str) -> MicroReport {
    let report = report_of(&candidate(rest));
    let verdict = &report.verdicts[0];
    assert_eq!(verdict.class, class, "{}", verdict.says);
    assert!(verdict.says.contains(part), "{}", verdict.says);
    assert!(verdict.does_not_show.contains("only an A/B on the server does"));
    report
}

#[test]
fn classes_follow_the_numbers() {
    check("accumulate = { in = \"f32\" }", ErrorClass::BelowFloor, "above it at 0 of 4");
    check("round = { output = \"f16\" }", ErrorClass::BelowFloor, "100.00 % of the rows are kept, 0 of 4 rows differ");
    check("round = { weight = \"e4m3\", output = \"bf16\" }", ErrorClass::AboveFloor, "largest");
}

#[test]
fn a_twin_is_caught_by_its_error_or_by_what_it_keeps() {
    let twin = |fault: &str| {
        let report = report_of(&candidate(&format!("fault = \"{fault}\"")));
        assert!(report.verdicts.is_empty());
        report.controls.into_iter().next().unwrap()
    };
    let doubled = twin("doubled");
    assert!(doubled.caught && doubled.says.contains("nearly all of it the factor 2.0000"), "{}", doubled.says);
    assert!(twin("not-a-number").says.contains("1 values are not numbers"));
    assert!(twin("last-row-lost").caught);
}

#[test]
fn a_fault_shows_through_the_rounding_of_its_candidate_and_its_rounding_is_no_excuse() {
    let report = report_of(&candidate("round = { weight = \"bf16\" }\nfault = \"doubled\""));
    assert!(report.controls[0].caught, "{}", report.controls[0].says);
}

#[test]
fn causes_are_told_apart_and_their_shares_are_a_whole() {
    let report = check(
        "round = { weight = \"e4m3\", output = \"f16\" }\naccumulate = { in = \"f32\" }",
        ErrorClass::AboveFloor,
        "",
    );
    let shares: f64 = report.causes.iter().map(|c| c.share).sum();
    assert!((shares - 1.0).abs() < 1e-12);
    let of = |point: &str| report.causes.iter().find(|c| c.point == point).unwrap();
    assert!(of("weight").share > of("output").share && of("output").share > of("sums").share);
    assert_eq!((of("weight").rounding.as_str(), of("sums").rounding.as_str()), ("e4m3", "f32"));
}

#[test]
fn the_floor_is_the_top_of_the_band_and_names_its_members() {
    let report = check("accumulate = { in = \"f32\" }", ErrorClass::BelowFloor, "");
    let band = &report.bands[1];
    assert_eq!((band.part.as_str(), &report.floor[0].rel_l2), ("sums", &band.high));
    assert!(band.low.iter().zip(&band.high).all(|(low, high)| low <= high));
    let names: Vec<&str> = band.members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names[..2], ["stored", "input-ulp"]);
    assert_eq!(names.len(), 7);
    assert_eq!(report.sets[0].candidate, FLOOR);
    assert_eq!(report.heats[0].values.len(), 4);
}

#[test]
fn a_compounded_error_and_a_flipped_choice_are_seen() {
    let candidates = parse(&candidate("accumulate = { in = \"f32\" }"), "here", &[&INFO]).unwrap();
    let swept = sweep(&Sums, &cases(), &candidates, None, &Ticker::new(1, &|_, _, _| {}, &|| false)).unwrap();
    let with = |compounded: f64, flips_beyond_floor: u64| {
        let decisions = Decisions {
            candidate: "c".into(),
            positions: 10,
            flips: flips_beyond_floor,
            flips_beyond_floor,
            widest_flipped: None,
            largest_shift: Some(0.1),
            expert_choices: 0,
            expert_flips: 0,
        };
        let whole =
            |error: f64| Whole { compounded: vec![Ok(error); 4], injected: vec![], decisions: Some(decisions.clone()) };
        let through = Through { candidates: vec![whole(compounded)], floor: whole(1e-3) };
        report(&INFO, &cases(), &swept, Some(&through)).verdicts[0].class
    };
    assert_eq!(with(1e-4, 0), ErrorClass::BelowFloor);
    assert_eq!(with(2e-3, 0), ErrorClass::AboveFloor);
    assert_eq!(with(1e-4, 1), ErrorClass::FlipsDecisions);
}

#[test]
fn a_point_that_is_no_number_compounded_is_broken() {
    let candidates = parse(&candidate("accumulate = { in = \"f32\" }"), "here", &[&INFO]).unwrap();
    let swept = sweep(&Sums, &cases(), &candidates, None, &Ticker::new(1, &|_, _, _| {}, &|| false)).unwrap();
    let bad = Whole { compounded: vec![Err(Unfit::AllZero); 4], injected: vec![], decisions: None };
    let through = Through { candidates: vec![bad], floor: Whole::default() };
    let report = report(&INFO, &cases(), &swept, Some(&through));
    assert_eq!(report.verdicts[0].class, ErrorClass::Broken);
    assert!(report.verdicts[0].says.starts_with("compounded, "));
}
