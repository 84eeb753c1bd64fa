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

/// Exactly `length` bytes of filler.
fn filler_of(random: &mut Random, length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        text.push_str(&filler(random));
    }
    text.truncate(length);
    text
}

struct Conversation {
    messages: Vec<Value>,
    answer: String,
    /// Token at which the sentence with the answer starts.
    fact_at: usize,
}

fn say(messages: &mut Vec<Value>, used: &mut usize, role: &str, text: &str) {
    messages.push(json!({"role": role, "content": text}));
    *used += text.len() + if role == "assistant" { 2 } else { 1 };
}

/// Talk of about `length` tokens in turns of their own.
fn talk(random: &mut Random, messages: &mut Vec<Value>, used: &mut usize, length: usize) {
    let end = *used + length;
    while *used + 40 < end {
        let most = 150 + random.below(250);
        let text = filler_of(random, (end - *used - 12).min(most));
        say(messages, used, "user", &text);
        say(messages, used, "assistant", random.pick(&["Noted.", "OK.", "Got it."]));
    }
}

/// A conversation of about `length` tokens in the taught forms, the fact at `depth` of it.
fn conversation(seed: u64, length: usize, depth: f64) -> Conversation {
    let mut random = Random { seed, step: 0 };
    let facts: Vec<[String; 3]> = (0..=random.below(3))
        .map(|i| {
            let owner = format!("{} {}", random.pick(ADJECTIVES), NOUNS[(random.below(8) + 8 * i) % NOUNS.len()]);
            [random.pick(KINDS).to_owned(), owner, value(&mut random)]
        })
        .collect();
    let [kind, owner, answer] = facts[0].clone();
    let question = fill(random.pick(ASK), &kind, &owner, "") + random.pick(HINTS);
    let told: Vec<String> = facts.iter().map(|[k, n, c]| fill(random.pick(TELL), k, n, c)).collect();
    let mut messages = Vec::new();
    let mut used = 1;
    if random.below(10) < 3 {
        let text = filler_of(&mut random, 40);
        say(&mut messages, &mut used, "system", &text);
    }
    let last = length - question.len() - 3;
    // The deepest fact still leaves room for itself and the question.
    let target = ((length as f64 * depth) as usize).min(last - told[0].len() - 24);
    if seed.is_multiple_of(2) {
        let mut text = told[1..].join(" ");
        let before = filler_of(&mut random, target.saturating_sub(used + text.len() + 3));
        text = format!("{text} {before} ");
        let fact_at = used + 1 + text.len();
        text.push_str(&told[0]);
        let after = filler_of(&mut random, last.saturating_sub(used + text.len() + 1));
        say(&mut messages, &mut used, "user", &format!("{text} {after} {question}"));
        return Conversation { messages, answer, fact_at };
    }
    for other in &told[1..] {
        say(&mut messages, &mut used, "user", other);
        say(&mut messages, &mut used, "assistant", "Noted.");
    }
    let room = target.saturating_sub(used);
    talk(&mut random, &mut messages, &mut used, room);
    let fact_at = used + 1;
    say(&mut messages, &mut used, "user", &told[0]);
    say(&mut messages, &mut used, "assistant", "Noted.");
    let room = last.saturating_sub(used);
    talk(&mut random, &mut messages, &mut used, room);
    say(&mut messages, &mut used, "user", &question);
    Conversation { messages, answer, fact_at }
}

#[derive(Debug, Default)]
struct Score {
    right: usize,
    absent: usize,
    all: usize,
    /// Right and all of the trials whose fact lies in whole chunks and outside the last window.
    reached: (usize, usize),
}

impl Score {
    fn rate(&self) -> f64 {
        self.right as f64 / self.all as f64
    }
}

/// Depths run evenly from the start to the end, so that facts in the last window are among them.
fn measure(label: &str, scenario: &str, patched: bool, chunk: usize, length: usize, count: u64) -> Score {
    let patches = if patched { "--mhc-gemm bf16 --routed-scaling topk" } else { "" };
    let line = format!("--chunked-prefill-size {chunk} {patches}");
    let mut on = switches(patched);
    on.bf16_indexer = patched;
    let scenario = named(scenario).unwrap();
    let server = TestServer::start(flags(&line), on, |gates| Plan::compile(&scenario, gates, 1, 1).unwrap());
    let mut score = Score::default();
    for i in 0..count {
        let depth = (i as f64 + 0.5) / count as f64 * 0.95;
        let Conversation { messages, answer, fact_at } = conversation(i + 1000 * length as u64, length, depth);
        let body = json!({"messages": messages, "temperature": 0, "max_tokens": 60});
        let (status, reply) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{reply}");
        let said = reply["choices"][0]["message"]["content"].as_str().unwrap();
        let tokens = reply["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
        assert!(tokens.abs_diff(length) <= 64, "asked for {length} tokens, made {tokens}");
        let right = usize::from(said == answer);
        score.all += 1;
        score.right += right;
        score.absent += usize::from(said == ABSENT);
        if fact_at + 60 < tokens / chunk * chunk && fact_at + 60 < tokens - 128 {
            score.reached = (score.reached.0 + right, score.reached.1 + 1);
        }
    }
    let Score { right, all, absent, reached } = &score;
    println!(
        "recall: {label}, chunk {chunk}, {length} tokens: {right}/{all} right, {absent} first message; \
         {}/{} right where a page fault can reach the fact",
        reached.0, reached.1
    );
    score
}

#[test]
fn healthy_remembers_and_the_incident_forgets() {
    if std::env::var("PATCHBENCH_LONG").as_deref() != Ok("1") {
        println!("skipped: takes minutes; set PATCHBENCH_LONG=1 to run it");
        return;
    }
    let chunk = flags("").chunked_prefill_size as usize;
    for (length, count) in [(1024, 40), (2048, 40), (512, 40), (4096, 12), (8192, 12)] {
        let off = measure("clean, all off", "clean", false, chunk, length, count);
        let on = measure("clean, all on", "clean", true, chunk, length, count);
        assert!(off.rate() >= 0.85 && on.rate() >= 0.85, "{length}: {off:?} {on:?}");
        assert!((off.rate() - on.rate()).abs() <= 0.1, "{length}: {off:?} {on:?}");
        if matches!(length, 1024 | 2048) {
            // One length just under a whole chunk more, where the fault reaches least, and one at it.
            for length in [length - 64, length] {
                let broken = measure("incident, all on", "incident", true, chunk, length, count);
                assert!(broken.rate() + 0.4 <= off.rate(), "{length}: {off:?} {broken:?}");
                assert!(2 * broken.absent >= broken.all - broken.right, "{broken:?}");
            }
        }
    }
}

#[test]
fn a_stale_prefix_forgets_when_warm_only() {
    let scenario = named("stale-prefix").unwrap();
    let server = TestServer::start(flags(""), switches(false), |gates| Plan::compile(&scenario, gates, 1, 1).unwrap());
    let (mut cold, mut warm) = (0, 0);
    for seed in 0..4 {
        let Conversation { messages, answer, .. } = conversation(seed, 700, 0.3);
        let body = json!({"messages": messages, "temperature": 0, "max_tokens": 60});
        for right in [&mut cold, &mut warm] {
            let (_, reply) = server.post("/v1/chat/completions", &body);
            *right += usize::from(reply["choices"][0]["message"]["content"] == answer.as_str());
        }
    }
    assert!(cold >= 3 && warm <= 1, "cold {cold}/4, warm {warm}/4 right");
}

#[test]
fn the_fault_by_chunk_size() {
    let Ok(chunks) = std::env::var("PATCHBENCH_CHUNKS") else {
        println!("skipped: set PATCHBENCH_CHUNKS to chunk sizes, such as `256,512`");
        return;
    };
    for chunk in chunks.split(',').map(|c| c.parse().unwrap()) {
        for length in [960, 1024, 1088] {
            let broken = measure("incident, all on", "incident", true, chunk, length, 20);
            assert!(broken.rate() < 1.0, "{broken:?}");
        }
    }
}
