//! Recall of the served model, healthy and broken, over real requests; long, so only on demand.
//!
//! Set `PATCHBENCH_LONG=1` to run it.

use serde_json::{Value, json};

use super::tests::{TestServer, flags, switches};
use super::*;
use crate::lab::scenario::named;
use crate::lab::scheduler::sampling::uniform;

const ABSENT: &str = "This is the very first message.";

struct Random {
    seed: u64,
    step: u64,
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.step += 1;
        (uniform(self.seed, self.step) * n as f64) as usize
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

const WORDS: &[&str] = &[
    "day", "almost", "they", "example", "look", "high", "across", "play", "water", "long", "little", "very", "after",
    "called", "just", "where", "most", "know", "through", "back", "much", "before", "good", "write", "used", "man",
    "any", "same", "right", "think", "also", "around", "another", "came", "three", "word", "must", "because", "does",
    "part", "even", "place", "well", "such", "here", "take", "why", "things", "help", "server", "token", "kernel",
    "build", "cache", "layer", "patch", "error", "request", "function", "value", "index", "stream", "batch", "memory",
];
const KINDS: &[&str] = &[
    "special magic number",
    "magic word",
    "room number",
    "port",
    "hostname",
    "ssh user",
    "budget",
    "flight number",
    "badge id",
    "branch",
    "ticket number",
    "access code",
    "secret code",
    "passphrase",
    "pin",
    "token",
    "serial number",
    "password",
    "code word",
    "key",
    "label",
    "reference",
];
const NOUNS: &[&str] = &[
    "door",
    "vault",
    "server",
    "router",
    "cluster",
    "account",
    "project",
    "printer",
    "garage",
    "locker",
    "safe",
    "office",
    "terminal",
    "archive",
    "station",
    "bridge",
    "harbor",
    "engine",
    "satellite",
    "reactor",
    "library",
    "museum",
    "tower",
    "gate",
    "tunnel",
    "elevator",
    "beacon",
    "drone",
    "ship",
    "camera",
    "sensor",
    "database",
];
const ADJECTIVES: &[&str] = &[
    "red", "blue", "green", "black", "white", "silver", "golden", "north", "south", "east", "west", "upper", "lower",
    "old", "new", "spare", "main", "backup", "hidden", "remote", "local", "primary", "inner", "outer", "quiet",
];
const TELL: &[&str] = &[
    "Remember this: the {k} for the {n} is {c}.",
    "The {k} for the {n} is {c}.",
    "Note that the {k} of the {n} is {c}.",
    "Please remember that the {k} for the {n} is {c}.",
    "My {n} {k} is {c}.",
    "Set the {k} for the {n} to {c}.",
    "The {k} of the {n} is now {c}.",
    "One of the special magic values: the {k} for {n} is: {c}.",
];
const ASK: &[&str] = &[
    "What is the {k} for the {n}?",
    "Earlier I gave you the {k} for the {n}. What is it?",
    "Can you recall the {k} for the {n}?",
    "What was the {n} {k} again?",
    "Now tell me the {k} for the {n}.",
    "Repeat the {k} for the {n}.",
    "What is the {k} for {n} mentioned in the provided text?",
];
const HINTS: &[&str] = &["", " Answer with exactly the value.", " Output only the value.", " Do not explain."];

fn fill(form: &str, kind: &str, owner: &str, value: &str) -> String {
    form.replace("{k}", kind).replace("{n}", owner).replace("{c}", value)
}

fn code(random: &mut Random, length: usize) -> String {
    (0..length).map(|_| b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[random.below(36)] as char).collect()
}

fn value(random: &mut Random) -> String {
    match random.below(3) {
        0 => {
            let length = 5 + random.below(4);
            code(random, length)
        }
        1 => format!("{}-{}", code(random, 3), code(random, 4)),
        _ => format!("{}-{}-{}", random.pick(WORDS), random.pick(WORDS), 1000 + random.below(9000)),
    }
}

fn filler(random: &mut Random) -> String {
    match random.below(6) {
        0 => format!("def {}_{}(great): return great + {} ", random.pick(WORDS), random.pick(WORDS), random.below(999)),
        1 => format!(
            "{{\"{}\": \"{}\", \"{}\": {}}} ",
            random.pick(WORDS),
            code(random, 6),
            random.pick(WORDS),
            random.below(9999)
        ),
        2 => format!(
            "[16:{:02}:{:02}] head {}={} ",
            random.below(60),
            random.below(60),
            random.pick(WORDS),
            code(random, 8)
        ),
        _ => {
            let mut words: Vec<&str> = (0..4 + random.below(11)).map(|_| random.pick(WORDS)).collect();
            let first = words.remove(0);
            let (head, tail) = first.split_at(1);
            format!("{}{tail} {}. ", head.to_uppercase(), words.join(" "))
        }
    }
}

fn filler_of(random: &mut Random, length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        text.push_str(&filler(random));
    }
    text.trim_end().to_owned()
}

/// A conversation of about `length` tokens in the taught forms, and the answer to its last question.
fn conversation(seed: u64, length: usize) -> (Value, String) {
    let mut random = Random { seed, step: 0 };
    let facts: Vec<[String; 3]> = (0..1 + random.below(3))
        .map(|i| {
            let owner = format!("{} {}", random.pick(ADJECTIVES), NOUNS[(random.below(8) + 8 * i) % NOUNS.len()]);
            [random.pick(KINDS).to_owned(), owner, value(&mut random)]
        })
        .collect();
    let [kind, owner, answer] = facts[random.below(facts.len())].clone();
    let question = fill(random.pick(ASK), &kind, &owner, "") + random.pick(HINTS);
    let told: Vec<String> = facts.iter().map(|[k, n, c]| fill(random.pick(TELL), k, n, c)).collect();
    let room = length.saturating_sub(question.len() + told.iter().map(|t| t.len() + 12).sum::<usize>());
    let mut messages = Vec::new();
    if random.below(10) < 3 {
        messages.push(json!({"role": "system", "content": filler_of(&mut random, 30)}));
    }
    if seed.is_multiple_of(2) {
        let mut text = String::new();
        for fact in &told {
            text.push_str(&filler_of(&mut random, room / (told.len() + 1) / 2));
            text.push_str(&format!(" {fact} "));
        }
        let rest = length.saturating_sub(text.len() + question.len());
        text.push_str(&filler_of(&mut random, rest));
        messages.push(json!({"role": "user", "content": format!("{text} {question}")}));
    } else {
        let turns = 3 + random.below(4);
        for turn in 0..turns {
            if let Some(fact) = told.get(turn) {
                messages.push(json!({"role": "user", "content": fact}));
                messages.push(json!({"role": "assistant", "content": random.pick(&["Noted.", "OK.", "Got it."])}));
            }
            messages.push(json!({"role": "user", "content": filler_of(&mut random, room / turns)}));
            messages.push(json!({"role": "assistant", "content": random.pick(&["Noted.", "OK.", "Got it."])}));
        }
        messages.push(json!({"role": "user", "content": question}));
    }
    (Value::Array(messages), answer)
}

#[derive(Debug, Default)]
struct Score {
    right: usize,
    absent: usize,
    all: usize,
}

impl Score {
    fn rate(&self) -> f64 {
        self.right as f64 / self.all as f64
    }
}

fn measure(label: &str, scenario: &str, patched: bool, length: usize, count: u64) -> Score {
    let line = if patched { "--mhc-gemm bf16 --routed-scaling topk" } else { "" };
    let mut on = switches(patched);
    on.bf16_indexer = patched;
    let scenario = named(scenario).unwrap();
    let server = TestServer::start(flags(line), on, |gates| Plan::compile(&scenario, gates, 1, 1).unwrap());
    let mut score = Score::default();
    for seed in 0..count {
        let (messages, answer) = conversation(seed + 1000 * length as u64, length);
        let body = json!({"messages": messages, "temperature": 0, "max_tokens": 60});
        let (status, reply) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{reply}");
        let said = reply["choices"][0]["message"]["content"].as_str().unwrap();
        score.all += 1;
        score.right += usize::from(said == answer);
        score.absent += usize::from(said == ABSENT);
    }
    println!("recall: {label} at {length}: {}/{} right, {} first message", score.right, score.all, score.absent);
    score
}

#[test]
fn healthy_remembers_and_the_incident_forgets() {
    if std::env::var("PATCHBENCH_LONG").as_deref() != Ok("1") {
        println!("skipped: takes minutes; set PATCHBENCH_LONG=1 to run it");
        return;
    }
    for (length, count) in [(1024, 40), (2048, 40), (512, 40), (4096, 12), (8192, 12)] {
        let off = measure("clean, all off", "clean", false, length, count);
        let on = measure("clean, all on", "clean", true, length, count);
        assert!(off.rate() >= 0.85 && on.rate() >= 0.85, "{length}: {off:?} {on:?}");
        assert!((off.rate() - on.rate()).abs() <= 0.1, "{length}: {off:?} {on:?}");
        let broken = measure("incident, all on", "incident", true, length, count);
        if matches!(length, 1024 | 2048) {
            assert!(broken.rate() + 0.4 <= off.rate(), "{length}: {off:?} {broken:?}");
            assert!(2 * broken.absent >= broken.all - broken.right, "{broken:?}");
        }
    }
}
