//! The word lists of the prompts, and the pieces that are made of them: owners, values, filler, tool definitions.

use serde_json::{Value, json};

use super::dice::Dice;

const CAPITALS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const CAPITALS_DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const DIGITS: &str = "0123456789";
const HEX: &str = "0123456789abcdef";

/// The lists of `words.txt`.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub(super) tellings: Vec<&'static str>,
    pub(super) askings: Vec<&'static str>,
    pub(super) closings: Vec<&'static str>,
    pub(super) acknowledgements: Vec<&'static str>,
    pub(super) kinds: Vec<&'static str>,
    pub(super) owners: Vec<&'static str>,
    pub(super) adjectives: Vec<&'static str>,
    pub(super) common: Vec<&'static str>,
}

impl Words {
    /// Reads the lists that are built in.
    pub(super) fn load() -> Self {
        let mut words = Self::default();
        let mut section = "";
        for line in include_str!("words.txt").lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name;
                continue;
            }
            match section {
                "tellings" => words.tellings.push(line),
                "askings" => words.askings.push(line),
                "closings" => words.closings.push(line),
                "acknowledgements" => words.acknowledgements.push(line),
                "kinds," => words.kinds.extend(line.split(", ")),
                "owners," => words.owners.extend(line.split(", ")),
                "adjectives," => words.adjectives.extend(line.split(", ")),
                "words," => words.common.extend(line.split(", ")),
                _ => {}
            }
        }
        words
    }

    /// An owner such as `north vault`.
    pub(super) fn owner(&self, dice: &mut Dice) -> String {
        let noun = dice.pick(&self.owners);
        if dice.chance(80) { format!("{} {noun}", dice.pick(&self.adjectives)) } else { noun.to_owned() }
    }

    /// A value that nobody can guess: at least six characters that carry information.
    pub(super) fn value(&self, dice: &mut Dice) -> String {
        match dice.below(10) {
            0..4 => {
                let count = dice.between(5, 9);
                format!(
                    "{}{}{}",
                    dice.letters(CAPITALS, 1),
                    dice.letters(CAPITALS_DIGITS, count - 1),
                    dice.letters(DIGITS, 1)
                )
            }
            4..6 => {
                let groups = dice.between(2, 3);
                let group = |dice: &mut Dice| {
                    let count = dice.between(3, 5);
                    dice.letters(CAPITALS_DIGITS, count)
                };
                (0..groups).map(|_| group(dice)).collect::<Vec<_>>().join("-")
            }
            6..8 => {
                let count = dice.between(6, 8);
                dice.letters(DIGITS, count)
            }
            8 => {
                let mut parts: Vec<String> =
                    (0..dice.between(1, 3)).map(|_| dice.pick(&self.common).to_owned()).collect();
                parts.push(dice.letters(DIGITS, 4));
                parts.join("-")
            }
            _ => {
                let count = dice.between(8, 12);
                dice.letters(HEX, count)
            }
        }
    }

    /// A log line that occurs nowhere else: eight characters of it are drawn.
    pub(super) fn log_line(&self, dice: &mut Dice) -> String {
        let (h, m, s) = (dice.below(24), dice.below(60), dice.below(60));
        let (what, name) = (dice.pick(&self.common), dice.pick(&self.common));
        format!("[{h:02}:{m:02}:{s:02}] {what} {name}={}", dice.letters(CAPITALS_DIGITS, 8))
    }

    fn json_line(&self, dice: &mut Dice) -> String {
        let (a, b) = (dice.pick(&self.common), dice.pick(&self.common));
        format!("{{\"{a}\": \"{}\", \"{b}\": {}}}", dice.letters(CAPITALS_DIGITS, 6), dice.below(10_000))
    }

    fn python_line(&self, dice: &mut Dice) -> String {
        let (f, a, b) = (dice.pick(&self.common), dice.pick(&self.common), dice.pick(&self.common));
        format!("def {f}_{a}({b}): return {b} + {}", dice.below(1000))
    }

    fn sentence(&self, dice: &mut Dice, longest: usize) -> String {
        let count = dice.between(4, 14);
        let mut out = String::new();
        for i in 0..count {
            let word = dice.pick(&self.common);
            if out.len() + 1 + word.len() + 1 > longest {
                break;
            }
            if i == 0 {
                let (first, rest) = word.split_at(1);
                out.push_str(&first.to_uppercase());
                out.push_str(rest);
            } else {
                out.push(' ');
                out.push_str(word);
            }
        }
        if !out.is_empty() {
            out.push('.');
        }
        out
    }

    /// Talk of at most `bytes` bytes and at least that less 16, if it is more than a few words.
    pub(super) fn talk(&self, dice: &mut Dice, bytes: usize) -> String {
        self.fill(dice, bytes, |w, dice, longest| match dice.below(10) {
            0 => w.log_line(dice),
            1 => w.json_line(dice),
            2 => w.python_line(dice),
            _ => w.sentence(dice, longest),
        })
    }

    /// The same as [`Words::talk`], in the form that tools print.
    pub(super) fn tool_output(&self, dice: &mut Dice, bytes: usize) -> String {
        self.fill(dice, bytes, |w, dice, _| if dice.chance(50) { w.log_line(dice) } else { w.json_line(dice) })
    }

    fn fill(&self, dice: &mut Dice, bytes: usize, piece: impl Fn(&Self, &mut Dice, usize) -> String) -> String {
        let mut out = String::new();
        loop {
            let left = bytes.saturating_sub(out.len() + usize::from(!out.is_empty()));
            if left < 8 {
                return out;
            }
            let mut next = piece(self, dice, left);
            if next.len() > left {
                next = self.sentence(dice, left);
            }
            if next.is_empty() {
                return out;
            }
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(&next);
        }
    }

    /// A tool definition in the form of the chat API; its name holds six drawn characters.
    pub(super) fn tool(&self, dice: &mut Dice) -> Value {
        let name = format!("{}_{}", dice.pick(&self.common), dice.letters("abcdefghijklmnopqrstuvwxyz0123456789", 6));
        let argument = dice.pick(&self.common);
        json!({
            "type": "function",
            "function": {
                "name": name,
                "description": self.sentence(dice, 40),
                "parameters": { "type": "object", "properties": { argument: { "type": "string" } } },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_read_whole() {
        let w = Words::load();
        let sizes = [w.tellings.len(), w.askings.len(), w.closings.len(), w.acknowledgements.len()];
        assert_eq!(sizes, [12, 16, 7, 3]);
        assert_eq!([w.kinds.len(), w.owners.len(), w.adjectives.len(), w.common.len()], [27, 57, 39, 311]);
    }

    #[test]
    fn forms_name_all_that_they_need_and_no_list_repeats() {
        let w = Words::load();
        for form in &w.tellings {
            assert!(["{k}", "{n}", "{c}"].iter().all(|p| form.contains(p)), "{form}");
        }
        for form in &w.askings {
            assert!(form.contains("{k}") && form.contains("{n}") && !form.contains("{c}"), "{form}");
        }
        for list in [&w.tellings, &w.askings, &w.kinds, &w.owners, &w.adjectives, &w.common] {
            let set: std::collections::BTreeSet<_> = list.iter().collect();
            assert_eq!(set.len(), list.len());
        }
    }

    #[test]
    fn filler_keeps_to_its_size() {
        let w = Words::load();
        for bytes in [0, 5, 40, 100, 1000, 7000] {
            for seed in 0..20 {
                for text in [
                    w.talk(&mut Dice::new("talk", &[seed]), bytes),
                    w.tool_output(&mut Dice::new("tool", &[seed]), bytes),
                ] {
                    assert!(text.len() <= bytes, "{} > {bytes}", text.len());
                    assert!(bytes < 40 || text.len() + 20 > bytes, "{} of {bytes}: {text}", text.len());
                }
            }
        }
    }

    #[test]
    fn values_are_long_enough_to_be_told_apart() {
        let w = Words::load();
        let mut dice = Dice::new("value", &[]);
        for _ in 0..500 {
            let value = w.value(&mut dice);
            assert!((6..=40).contains(&value.len()), "{value}");
            assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{value}");
        }
    }
}
