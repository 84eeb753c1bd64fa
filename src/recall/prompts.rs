//! The conversations of recall trials: a fact told, filler, a decoy, one question. Pure and seeded.
//!
//! The same key and the same size of filler give the same conversation on every machine and in every version.
//! All text is in the forms of `words.txt`, which small models are taught and large ones understand.
//! Not responsible for the length in tokens; see `fit`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dice::Dice;
use super::grade;
use super::words::Words;
use crate::recall::trial::{ProbeForm, TrialKey};
use crate::serving::chat::{ChatMessage, ChatRole};

/// One conversation with what its answer must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The messages; the last one asks.
    pub messages: Vec<ChatMessage>,
    /// Tool definitions in the form of the chat API.
    pub tools: Vec<Value>,
    /// The value that was told.
    pub expected: String,
    /// A value that was told of another owner.
    pub decoy: String,
    /// Index of the message that tells the fact.
    pub told_in: usize,
    /// Characters at the front that no other conversation has, so that the prefix cache misses.
    pub nonce: String,
}

/// A fact: the value that an owner has of a kind.
struct Fact {
    kind: &'static str,
    owner: String,
    value: String,
}

/// What a conversation has in common with those of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Style<'a> {
    /// Tool definitions instead of generated ones, in the form of the chat API.
    pub tools: Option<&'a [Value]>,
    /// Whether the assistant turn before a tool's output carries the call. Templates write calls in ways of their
    /// own, so a small model that was taught plain turns is asked without them.
    pub tool_calls: bool,
}

/// The conversation of a key with about `filler` bytes of filler.
pub fn conversation(key: &TrialKey, filler: usize, style: Style<'_>) -> Conversation {
    let words = Words::load();
    let parts = [key.form as u64, u64::from(key.length), key.depth.to_bits(), key.seed];
    let dice = |purpose| Dice::new(purpose, &parts);
    let mut choice = dice("fact");
    let fact = draw(&words, &mut choice, None);
    let decoy = draw(&words, &mut choice, Some(&fact));
    let builder = Builder {
        nonce: words.log_line(&mut dice("nonce")),
        fact: say(choice.pick(&words.tellings), &fact),
        decoy: say(choice.pick(&words.tellings), &decoy),
        question: ask(&words, &mut choice, &fact),
        filler: dice("filler"),
        tool_calls: style.tool_calls,
        words,
    };
    let (messages, tools, told_in, nonce) = match key.form {
        ProbeForm::Needle => builder.needle(key.depth, filler),
        ProbeForm::MultiTurn => {
            let mut drawn = dice("tools");
            let own = || (0..drawn.between(1, 2)).map(|_| builder.words.tool(&mut drawn)).collect();
            let tools = style.tools.map_or_else(own, <[Value]>::to_vec);
            builder.turns(key.depth, filler, tools, &mut dice("turns"))
        }
    };
    Conversation { messages, tools, expected: fact.value, decoy: decoy.value, told_in, nonce }
}

fn draw(words: &Words, dice: &mut Dice, other: Option<&Fact>) -> Fact {
    loop {
        let fact = Fact { kind: dice.pick(&words.kinds), owner: words.owner(dice), value: words.value(dice) };
        let clear = other.is_none_or(|o| {
            // One noun must not stand inside the other, and a slip must not lead from one value to the other.
            !o.owner.contains(&fact.owner)
                && !fact.owner.contains(&o.owner)
                && !o.kind.contains(fact.kind)
                && !fact.kind.contains(o.kind)
                && !grade::is_near(&o.value, &fact.value)
        });
        if clear {
            return fact;
        }
    }
}

fn say(form: &str, fact: &Fact) -> String {
    form.replace("{k}", fact.kind).replace("{n}", &fact.owner).replace("{c}", &fact.value)
}

fn ask(words: &Words, dice: &mut Dice, fact: &Fact) -> String {
    let mut question = dice.pick(&words.askings).to_owned();
    if dice.chance(60) {
        question = format!("{question} {}", dice.pick(&words.closings));
    }
    question.replace("{k}", fact.kind).replace("{n}", &fact.owner)
}

type Parts = (Vec<ChatMessage>, Vec<Value>, usize, String);

struct Builder {
    words: Words,
    nonce: String,
    fact: String,
    decoy: String,
    question: String,
    filler: Dice,
    tool_calls: bool,
}

impl Builder {
    /// One long user message; the decoy stands in the middle of the longer side.
    fn needle(mut self, depth: f64, filler: usize) -> Parts {
        let before = (filler as f64 * depth.clamp(0.0, 1.0)) as usize;
        let after = filler - before;
        let mut pieces = vec![self.nonce.clone()];
        let mut side = |pieces: &mut Vec<String>, bytes: usize, decoy: Option<&str>| match decoy {
            None => pieces.push(self.words.talk(&mut self.filler, bytes)),
            Some(decoy) => {
                pieces.push(self.words.talk(&mut self.filler, bytes / 2));
                pieces.push(decoy.to_owned());
                pieces.push(self.words.talk(&mut self.filler, bytes - bytes / 2));
            }
        };
        side(&mut pieces, before, (before > after).then_some(self.decoy.as_str()));
        pieces.push(self.fact);
        side(&mut pieces, after, (before <= after).then_some(self.decoy.as_str()));
        pieces.push(self.question);
        (vec![ChatMessage::new(ChatRole::User, join(&pieces))], Vec::new(), 0, self.nonce)
    }

    /// The fact in the first user turn, after as much filler as the depth says; then talk and tool output.
    fn turns(mut self, depth: f64, filler: usize, tools: Vec<Value>, layout: &mut Dice) -> Parts {
        let before = (filler as f64 * depth.clamp(0.0, 1.0)) as usize;
        let rest = filler - before;
        let opening = join(&[self.words.talk(&mut self.filler, before), self.fact.clone()]);
        let mut messages =
            vec![ChatMessage::new(ChatRole::System, self.nonce.clone()), ChatMessage::new(ChatRole::User, opening)];
        let told_in = messages.len() - 1;
        let steps = (rest / 200).clamp(2, 24);
        for step in 0..steps {
            let bytes = rest * (step + 1) / steps - rest * step / steps;
            if step == steps / 2 {
                self.answer(&mut messages, layout);
                messages.push(ChatMessage::new(ChatRole::User, self.decoy.clone()));
            }
            if step % 2 == 1 {
                self.call_tool(&mut messages, &tools, layout, bytes);
            } else {
                self.answer(&mut messages, layout);
                let talk = self.words.talk(&mut self.filler, bytes);
                messages.push(ChatMessage::new(ChatRole::User, or_word(talk)));
            }
        }
        self.answer(&mut messages, layout);
        messages.push(ChatMessage::new(ChatRole::User, self.question));
        (messages, tools, told_in, self.nonce)
    }

    fn answer(&self, messages: &mut Vec<ChatMessage>, layout: &mut Dice) {
        messages.push(ChatMessage::new(ChatRole::Assistant, layout.pick(&self.words.acknowledgements)));
    }

    fn call_tool(&mut self, messages: &mut Vec<ChatMessage>, tools: &[Value], layout: &mut Dice, bytes: usize) {
        let id = format!("call_{}", messages.len());
        let name = tools.get(layout.below(tools.len())).and_then(|t| t.pointer("/function/name")).cloned();
        self.answer(messages, layout);
        let mut output = ChatMessage::new(ChatRole::Tool, or_word(self.words.tool_output(&mut self.filler, bytes)));
        if let Some(call) = messages.last_mut().filter(|_| self.tool_calls) {
            let function = json!({ "name": name.unwrap_or_else(|| "run".into()), "arguments": "{}" });
            call.tool_calls = vec![json!({ "id": id, "type": "function", "function": function })];
            output.tool_call_id = Some(id);
        }
        messages.push(output);
    }
}

/// Some servers refuse an empty message.
fn or_word(text: String) -> String {
    if text.is_empty() { "Go on.".to_owned() } else { text }
}

fn join(pieces: &[String]) -> String {
    pieces.iter().filter(|p| !p.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(form: ProbeForm, depth: f64, seed: u64) -> TrialKey {
        TrialKey { form, length: 1024, depth, seed }
    }

    fn text(c: &Conversation) -> String {
        c.messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_same_key_gives_the_same_conversation_for_ever() {
        let c = conversation(&key(ProbeForm::MultiTurn, 0.1, 7), 400, Style::default());
        assert_eq!(c, conversation(&key(ProbeForm::MultiTurn, 0.1, 7), 400, Style::default()));
        // A change here changes every recorded conversation: pairs across versions would be lost.
        insta::assert_json_snapshot!("multi_turn", c);
        insta::assert_json_snapshot!("needle", conversation(&key(ProbeForm::Needle, 0.5, 7), 300, Style::default()));
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let base = key(ProbeForm::Needle, 0.5, 1);
        let one = conversation(&base, 300, Style::default());
        for other in [
            TrialKey { seed: 2, ..base.clone() },
            TrialKey { depth: 0.4, ..base.clone() },
            TrialKey { length: 2048, ..base.clone() },
            TrialKey { form: ProbeForm::MultiTurn, ..base.clone() },
        ] {
            let other = conversation(&other, 300, Style::default());
            assert_ne!(one.expected, other.expected);
            assert_ne!(one.nonce, other.nonce);
        }
    }

    #[test]
    fn the_fact_does_not_change_with_the_filler() {
        for form in [ProbeForm::MultiTurn, ProbeForm::Needle] {
            let small = conversation(&key(form, 0.3, 4), 100, Style::default());
            let large = conversation(&key(form, 0.3, 4), 5000, Style::default());
            assert_eq!(small.expected, large.expected);
            assert_eq!(
                small.messages.last().unwrap().content.rsplit(' ').next(),
                large.messages.last().unwrap().content.rsplit(' ').next()
            );
        }
    }

    #[test]
    fn a_multi_turn_conversation_has_the_parts_that_clients_send() {
        let c = conversation(&key(ProbeForm::MultiTurn, 0.0, 3), 2000, Style { tool_calls: true, ..Style::default() });
        let roles: Vec<ChatRole> = c.messages.iter().map(|m| m.role).collect();
        assert_eq!(roles[..3], [ChatRole::System, ChatRole::User, ChatRole::Assistant]);
        assert_eq!(roles.last(), Some(&ChatRole::User));
        assert!(roles.contains(&ChatRole::Tool) && !c.tools.is_empty());
        assert!(c.messages[c.told_in].content.contains(&c.expected));
        assert!(c.messages[c.told_in].content.len() < 120, "depth 0 tells the fact at once");
        for pair in c.messages[1..].windows(2) {
            let turns = [pair[0].role == ChatRole::Assistant, pair[1].role == ChatRole::Assistant];
            assert!(turns[0] != turns[1], "the model speaks every second time");
        }
        for (i, message) in c.messages.iter().enumerate().filter(|(_, m)| m.role == ChatRole::Tool) {
            let call = &c.messages[i - 1].tool_calls[0];
            assert_eq!(call["id"].as_str(), message.tool_call_id.as_deref());
            assert!(c.tools.iter().any(|t| t["function"]["name"] == call["function"]["name"]));
        }
    }

    #[test]
    fn a_needle_stands_at_its_depth() {
        for depth in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let c = conversation(&key(ProbeForm::Needle, depth, 5), 6000, Style::default());
            let text = text(&c);
            let at = text.find(&c.expected).unwrap() as f64 / text.len() as f64;
            assert!((at - depth).abs() < 0.05, "depth {depth}, found at {at:.3}");
        }
    }

    #[test]
    fn the_clients_own_tools_are_used() {
        let tools = [json!({"type": "function", "function": {"name": "shell"}})];
        let c = conversation(&key(ProbeForm::MultiTurn, 0.5, 5), 900, Style { tools: Some(&tools), tool_calls: true });
        assert_eq!(c.tools, tools);
        assert!(c.messages.iter().flat_map(|m| &m.tool_calls).all(|call| call["function"]["name"] == "shell"));
        let none = conversation(&key(ProbeForm::MultiTurn, 0.5, 5), 900, Style { tools: Some(&[]), tool_calls: false });
        assert!(none.tools.is_empty());
    }

    proptest! {
        #[test]
        fn laws_of_every_conversation(
            seed in any::<u64>(),
            depth in 0.0..=1.0_f64,
            filler in 0_usize..4000,
            needle in any::<bool>(),
        ) {
            let form = if needle { ProbeForm::Needle } else { ProbeForm::MultiTurn };
            let c = conversation(&key(form, depth, seed), filler, Style::default());
            let text = text(&c);
            prop_assert_eq!(text.matches(&c.expected).count(), 1, "the value is told once");
            prop_assert_eq!(text.matches(&c.decoy).count(), 1);
            prop_assert!(text.starts_with(&c.nonce));
            prop_assert!(!c.messages.last().unwrap().content.is_empty());
            let unfilled = ["{k}", "{n}", "{c}"].iter().any(|p| text.contains(p));
            prop_assert!(!unfilled);
            prop_assert!(c.messages.iter().all(|m| !m.content.is_empty()));
            prop_assert!(!grade::is_near(&c.expected, &c.decoy));
        }
    }
}
