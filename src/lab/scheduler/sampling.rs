//! Choosing the next token: greedy, or seeded sampling. Pure.

use crate::lab::model::VOCAB;

/// How tokens are chosen and when generation ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Smallest set of tokens with this probability; 1 is all.
    pub top_p: f32,
    /// The most probable tokens; 0 is all.
    pub top_k: usize,
    /// Seed of the request.
    pub seed: u64,
    /// Limit of new tokens; may be 0.
    pub max_new: usize,
    /// Texts that end the generation.
    pub stop: Vec<String>,
    /// Go on after the end token.
    pub ignore_eos: bool,
}

/// Natural log probabilities of one row of logits.
pub fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let max = logits.iter().fold(f32::NEG_INFINITY, |a, x| a.max(*x));
    let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
    let log = sum.ln() as f32;
    logits.iter().map(|x| x - max - log).collect()
}

/// The `count` largest entries, largest first; among equals the lower token first.
pub fn top(values: &[f32], count: usize) -> Vec<(f32, u16)> {
    let mut all: Vec<(f32, u16)> = values.iter().copied().zip(0..).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    all.truncate(count);
    all
}

/// The next token for one row of logits; `step` counts the tokens that the request has so far.
pub fn choose(logits: &[f32], sampling: &Sampling, step: usize) -> u16 {
    debug_assert_eq!(logits.len(), VOCAB);
    if sampling.temperature < 1e-6 {
        return top(logits, 1)[0].1;
    }
    let scaled: Vec<f32> = logits.iter().map(|x| x / sampling.temperature).collect();
    let count = if sampling.top_k == 0 { VOCAB } else { sampling.top_k.min(VOCAB) };
    let ranked = top(&log_softmax(&scaled), count);
    let mut kept = Vec::new();
    let mut mass = 0.0_f64;
    for (log, id) in ranked {
        let p = f64::from(log).exp();
        kept.push((p, id));
        mass += p;
        if mass >= f64::from(sampling.top_p) {
            break;
        }
    }
    let mut left = uniform(sampling.seed, step as u64) * mass;
    for (p, id) in &kept {
        left -= p;
        if left < 0.0 {
            return *id;
        }
    }
    kept.last().map_or(0, |k| k.1)
}

/// A number in [0, 1) that depends on nothing but its two arguments.
pub fn uniform(seed: u64, step: u64) -> f64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(&step.to_le_bytes());
    let bytes = hasher.finalize();
    let mut word = [0; 8];
    word.copy_from_slice(&bytes.as_bytes()[..8]);
    (u64::from_le_bytes(word) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(temperature: f32, top_p: f32, seed: u64) -> Sampling {
        Sampling { temperature, top_p, top_k: 0, seed, max_new: 1, stop: Vec::new(), ignore_eos: false }
    }

    fn logits() -> Vec<f32> {
        let mut l = vec![-20.0; VOCAB];
        (l[65], l[66], l[67]) = (2.0, 2.0, 1.0);
        l
    }

    #[test]
    fn greedy_takes_the_lower_of_equals() {
        assert_eq!(choose(&logits(), &sampling(0.0, 1.0, 1), 0), 65);
    }

    #[test]
    fn a_seed_repeats_and_frequencies_follow_the_probabilities() {
        let mut counts = [0; VOCAB];
        for seed in 0..4000 {
            let s = sampling(1.0, 1.0, seed);
            assert_eq!(choose(&logits(), &s, 3), choose(&logits(), &s, 3));
            counts[usize::from(choose(&logits(), &s, 3))] += 1;
        }
        let share = f64::from(counts[67]) / 4000.0;
        assert!((share - 0.155).abs() < 0.03, "{share}");
        assert_eq!(counts[65] + counts[66] + counts[67], 4000);
    }

    #[test]
    fn top_p_leaves_out_the_tail() {
        assert!((0..200).all(|seed| choose(&logits(), &sampling(1.0, 0.5, seed), 0) != 67));
    }

    #[test]
    fn log_probabilities_sum_to_one() {
        let sum: f64 = log_softmax(&logits()).iter().map(|l| f64::from(*l).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }
}
