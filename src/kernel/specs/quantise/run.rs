//! Quantising two operands and multiplying what comes back.

use super::case::Case;
use crate::kernel::candidate::{Accumulate, Candidate};
use crate::kernel::format::Storage;
use crate::kernel::microtest::{Outcome, PartValues};
use crate::kernel::oracle::quantise::{Element, Quantised, Rule, Scales, quantise, round_up_to_power_of_two};
use crate::kernel::specs::product::product;

/// The reference: nothing is quantised.
pub(super) fn reference(case: &Case) -> Outcome {
    let products = product(Accumulate::default(), &case.weight, &case.activation, case.width);
    outcome(case, case.activation.clone(), case.weight.to_vec(), products)
}

/// A candidate's arithmetic.
pub(super) fn run(case: &Case, candidate: &Candidate) -> Outcome {
    let fault = candidate.fault.as_deref();
    let activation = stored(candidate.at("activation"), fault, &case.activation, case.width);
    let weight = stored(candidate.at("weight"), fault, &case.weight, case.width);
    let products = product(candidate.accumulate, &weight, &activation, case.width);
    let products = candidate.at("output").store(&products, case.weight.len() / case.width);
    outcome(case, activation, weight, products)
}

/// What comes back of an operand, `[rows, columns]`.
fn stored(storage: Storage, fault: Option<&str>, values: &[f64], columns: usize) -> Vec<f64> {
    let faulty = fault.and_then(|fault| read_wrongly(Rule::named(&storage.word())?, fault, values, columns));
    faulty.unwrap_or_else(|| storage.store(values, columns))
}

/// The same by a faulty writer or reader; `None` where the format has nothing that this fault spoils.
fn read_wrongly(rule: Rule, fault: &str, values: &[f64], columns: usize) -> Option<Vec<f64>> {
    let right = |rule| quantise(values, columns, rule);
    match fault {
        "late-scale" if rule.scales == Scales::PowerOfTwo => {
            let mut late = right(Rule { scales: Scales::F32, ..rule });
            late.scales.iter_mut().for_each(|s| *s = round_up_to_power_of_two(*s));
            Some(late.dequantise())
        }
        "neighbour-scale" => {
            let mut shifted = right(rule);
            shifted.scales.chunks_mut(shifted.across).for_each(|row| row.rotate_left(1));
            Some(shifted.dequantise())
        }
        "nibbles-swapped" if rule.element == Element::E2m1 => {
            let mut swapped = right(rule);
            swapped.codes.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.swap(0, 1));
            Some(swapped.dequantise())
        }
        "e4m3-as-e5m2" if rule.element == Element::E4m3 => Some(right(rule).read_as(Element::E5m2)),
        "second-scale-forgotten" if rule.scales == Scales::TwoLevels => {
            Some(Quantised { second: 1.0, ..right(rule) }.dequantise())
        }
        "grid-transposed" if rule.rows > 1 => {
            let right = right(rule);
            let down = right.scales.len() / right.across;
            let column_major = |block: usize| right.scales[block % right.across * down + block / right.across];
            let scales = (0..right.scales.len()).map(column_major).collect();
            Some(Quantised { scales, ..right }.dequantise())
        }
        _ => None,
    }
}

pub(super) fn outcome(case: &Case, activation: Vec<f64>, weight: Vec<f64>, products: Vec<f64>) -> Outcome {
    let part = |name, columns, values| PartValues { name, columns, values };
    let parts = vec![
        part("activation", case.width, activation),
        part("weight", case.width, weight),
        part("product", case.weight.len() / case.width, products),
    ];
    Outcome { parts, sets: None }
}
