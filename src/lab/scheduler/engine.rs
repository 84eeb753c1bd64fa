//! The engine thread's loop.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::handle::{Handle, Line, Loads, Message, line};
use super::request::{Event, Finish, HandOver, TokenLogprob};
use super::sequence::{Ends, Sequence};
use crate::lab::cache::{PAGE, Parts, Pool, Radix};
use crate::lab::log;
use crate::lab::model::{Faults, Model, Row, SeqView, Step, VOCAB, forward, tokens};
use crate::lab::scenario::{Facts, Plan};

/// Sizes of one engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Prompt tokens in one prefill pass.
    pub chunk: usize,
    /// Tokens in the key cache.
    pub max_total_tokens: usize,
    /// Longest prompt and output together.
    pub context: usize,
    /// Requests that decode together.
    pub max_running: usize,
    /// Whether prefixes are reused.
    pub radix: bool,
    /// Decode steps between two log lines.
    pub decode_log_interval: u64,
    /// Which part of a request this engine computes.
    pub mode: Mode,
}

/// Which part of a request an engine computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Prompt and output.
    #[default]
    Whole,
    /// The prompt and the first token; the keys go to a server that decodes.
    Prefill,
    /// The output, from the keys that another server computed.
    Decode,
}

/// Model, cache and queue of one server.
#[derive(Debug)]
pub struct Engine {
    model: Arc<Model>,
    config: Config,
    plan: Plan,
    pool: Pool,
    radix: Radix,
    waiting: VecDeque<Sequence>,
    prefilling: Option<Sequence>,
    running: Vec<Sequence>,
    line: Line,
    loads: Loads,
    steps: u64,
    interval: (Instant, u64),
    last_prefill: Instant,
}

impl Engine {
    /// An idle engine and the handle to it.
    pub fn new(model: Arc<Model>, config: Config, plan: Plan) -> (Self, Handle) {
        let (handle, line) = line();
        let now = Instant::now();
        let engine = Self {
            model,
            config,
            plan,
            pool: Pool::new(config.max_total_tokens),
            radix: Radix::default(),
            waiting: VecDeque::new(),
            prefilling: None,
            running: Vec::new(),
            line,
            loads: Loads::default(),
            steps: 0,
            interval: (now, 0),
            last_prefill: now,
        };
        (engine, handle)
    }

    /// Works until [`Handle::stop`] is called or every handle is gone.
    pub fn run(mut self) {
        while self.receive() {
            self.drop_cancelled();
            self.take_over();
            if !self.prefill() {
                self.decode();
            }
            self.publish();
        }
        self.abort(None, "the server is shutting down");
    }

    fn idle(&self) -> bool {
        self.waiting.is_empty() && self.prefilling.is_none() && self.running.is_empty()
    }

    /// Takes all messages, waiting for one when there is nothing to do; false at the end.
    fn receive(&mut self) -> bool {
        loop {
            let message = if self.idle() {
                match self.line.messages.recv_timeout(Duration::from_millis(500)) {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return false,
                }
            } else {
                match self.line.messages.try_recv() {
                    Ok(message) => message,
                    Err(_) => return true,
                }
            };
            match message {
                Message::Request(request) => {
                    self.loads.requests += 1;
                    self.waiting.push_back(Sequence::new(*request));
                }
                Message::Abort(id) => self.abort(id.as_deref(), "aborted by request"),
                Message::Flush(answer) => {
                    let result = if self.idle() {
                        self.radix.flush(&mut self.pool);
                        log::line("Cache flushed successfully!");
                        Ok(())
                    } else {
                        let (w, r) = (self.waiting.len(), self.running.len() + usize::from(self.prefilling.is_some()));
                        Err(format!(
                            "Cache not flushed because there are pending requests. #queue-req: {w}, #running-req: {r}"
                        ))
                    };
                    let _ = answer.send(result);
                }
                Message::Stop => return false,
            }
            self.publish();
        }
    }

    fn abort(&mut self, id: Option<&str>, reason: &str) {
        let hit = |s: &Sequence| id.is_none_or(|id| s.request.id == id);
        let mut gone: Vec<Sequence> = Vec::new();
        gone.extend(self.waiting.extract_if_matching(hit));
        gone.extend(self.prefilling.take_if(|s| hit(s)));
        gone.extend(self.running.extract_if(.., |s| hit(s)));
        for mut sequence in gone {
            self.loads.aborted += 1;
            sequence.send(Event::Finished(Finish::Abort(reason.to_owned())));
            sequence.release(&mut self.pool);
        }
        self.publish();
    }

    fn drop_cancelled(&mut self) {
        let mut gone: Vec<Sequence> = Vec::new();
        gone.extend(self.waiting.extract_if_matching(Sequence::cancelled));
        gone.extend(self.prefilling.take_if(|s| s.cancelled()));
        gone.extend(self.running.extract_if(.., |s| s.cancelled()));
        for mut sequence in gone {
            self.loads.aborted += 1;
            sequence.release(&mut self.pool);
        }
    }

    /// Moves the first waiting request into prefill; false when none can be.
    fn admit(&mut self, batch: usize) -> Option<Sequence> {
        if self.running.len() + batch >= self.config.max_running {
            return None;
        }
        // What carries its state is taken over, never computed again.
        let mut sequence = self.waiting.pop_front_if(|s| s.carried.is_none())?;
        if self.config.radix {
            let reusable = sequence.reusable();
            sequence.pages = self.radix.lookup(&mut self.pool, &sequence.request.salt, &sequence.tokens[..reusable]);
        }
        sequence.filled = sequence.pages.len() * PAGE;
        let length = sequence.tokens.len();
        if !sequence.grow(&mut self.pool, &mut self.radix, length + 1) {
            sequence.release(&mut self.pool);
            if self.running.is_empty() && batch == 0 {
                let reason = "the prompt does not fit into the key cache";
                sequence.send(Event::Finished(Finish::Abort(reason.to_owned())));
                self.loads.aborted += 1;
            } else {
                self.waiting.push_front(sequence);
            }
            return None;
        }
        if !sequence.announced {
            sequence.cached = sequence.filled;
            self.loads.prompt_tokens += length as u64;
            self.loads.cached_tokens += sequence.cached as u64;
        }
        sequence.faults = self.faults(&sequence, sequence.filled, batch);
        Some(sequence)
    }

    /// What is broken for a sequence of which `cached` tokens need no computing.
    fn faults(&self, sequence: &Sequence, cached: usize, batch: usize) -> Faults {
        let facts = Facts {
            len: sequence.prompt,
            cached,
            batch: self.running.len() + batch + 1,
            turns: sequence.tokens.iter().filter(|t| **t == tokens::USER).count(),
            chunks: (sequence.tokens.len() - cached).div_ceil(self.config.chunk),
            chunk: self.config.chunk,
        };
        self.plan.faults(&facts, &sequence.tokens[..sequence.prompt])
    }

    /// Lets the sequences that bring their state decode, as long as there is room for them.
    fn take_over(&mut self) {
        while self.running.len() < self.config.max_running {
            let Some(mut sequence) = self.waiting.pop_front_if(|s| s.carried.is_some()) else { return };
            let fresh = !sequence.announced;
            if fresh {
                sequence.faults = self.faults(&sequence, sequence.cached, 0);
            }
            let parts = if fresh && sequence.faults.index_left_behind { Parts::WithoutIndex } else { Parts::All };
            if !sequence.put_back(&mut self.pool, &mut self.radix, parts) {
                if self.running.is_empty() {
                    let reason = "the prompt does not fit into the key cache";
                    sequence.send(Event::Finished(Finish::Abort(reason.to_owned())));
                    self.loads.aborted += 1;
                    continue;
                }
                self.waiting.push_front(sequence);
                return;
            }
            if !fresh {
                self.running.push(sequence);
                continue;
            }
            self.loads.prompt_tokens += sequence.prompt as u64;
            self.loads.cached_tokens += sequence.cached as u64;
            sequence.announce();
            let finish = match sequence.first.take() {
                Some(first) => sequence.take(first),
                None => Some(Finish::Length(0)),
            };
            self.go_on(sequence, finish);
        }
    }

    /// One pass over prompt tokens; false when there are none.
    fn prefill(&mut self) -> bool {
        let mut budget = self.config.chunk;
        let mut batch: Vec<(Sequence, usize)> = Vec::new();
        let mut cached = 0;
        if let Some(sequence) = self.prefilling.take() {
            let take = sequence.pending().min(budget);
            budget -= take;
            batch.push((sequence, take));
        }
        while budget > 0 {
            let Some(sequence) = self.admit(batch.len()) else { break };
            cached += sequence.filled;
            let take = sequence.pending().min(budget);
            budget -= take;
            batch.push((sequence, take));
        }
        if batch.is_empty() {
            return false;
        }
        let mut rows = Vec::new();
        let mut wanted = Vec::new();
        for (index, (sequence, take)) in batch.iter().enumerate() {
            let from = sequence.filled;
            let first_logprob = sequence.wants_prompt_logprobs_from();
            for position in from..from + take {
                let last = position + 1 == sequence.tokens.len();
                if last || first_logprob.is_some_and(|s| position + 1 >= s) {
                    wanted.push(rows.len());
                }
                rows.push(Row { sequence: index, position, token: sequence.tokens[position] });
            }
        }
        let new_tokens = rows.len();
        let logits = {
            let sequences: Vec<SeqView<'_>> =
                batch.iter().map(|(s, _)| SeqView { pages: &s.pages, faults: &s.faults }).collect();
            let step = Step { rows: &rows, sequences: &sequences, wanted: &wanted };
            forward(&self.model, &mut self.pool, &step, None)
        };
        let pending: usize = self.waiting.iter().map(Sequence::pending).sum::<usize>()
            + batch.iter().map(|(s, take)| s.pending() - take).sum::<usize>();
        self.log_prefill(batch.len(), new_tokens, cached, pending);
        let mut logits = wanted.iter().zip(logits.chunks_exact(VOCAB)).peekable();
        for (index, (mut sequence, take)) in batch.into_iter().enumerate() {
            let first_logprob = sequence.wants_prompt_logprobs_from();
            let mut last = None;
            while let Some((row, l)) = logits.next_if(|(row, _)| rows[**row].sequence == index) {
                let next = rows[*row].position + 1;
                if next < sequence.tokens.len() && first_logprob.is_some_and(|s| next >= s) {
                    if sequence.prompt_logprobs.is_empty() && first_logprob == Some(0) {
                        let first = TokenLogprob { logprob: None, id: sequence.tokens[0], top: Vec::new() };
                        sequence.prompt_logprobs.push(first);
                    }
                    let entry = sequence.entry(l, sequence.tokens[next]);
                    sequence.prompt_logprobs.push(entry);
                }
                last = Some(l);
            }
            sequence.filled += take;
            if sequence.pending() > 0 {
                self.prefilling = Some(sequence);
                continue;
            }
            self.remember(&sequence);
            match last {
                Some(l) if sequence.ends_with_prompt() => self.hand_over(sequence, l),
                Some(l) => {
                    sequence.announce();
                    self.settle(sequence, l);
                }
                None => sequence.announce(),
            }
        }
        true
    }

    /// Puts the computed whole pages into the prefix cache.
    fn remember(&mut self, sequence: &Sequence) {
        if self.config.radix {
            let tokens = &sequence.tokens[..sequence.filled];
            self.radix.insert(&mut self.pool, &sequence.request.salt, tokens, &sequence.pages);
        }
    }

    /// Takes the next token; the sequence goes on or ends.
    fn settle(&mut self, mut sequence: Sequence, logits: &[f32]) {
        let before = sequence.tokens.len();
        let finish = sequence.advance(logits);
        self.loads.generation_tokens += (sequence.tokens.len() - before) as u64;
        self.go_on(sequence, finish);
    }

    /// Gives the keys of a computed prompt and its first token to whoever decodes; the sequence ends here.
    fn hand_over(&mut self, mut sequence: Sequence, logits: &[f32]) {
        let prompt_logprobs = sequence.prompt_logprobs.clone();
        sequence.announce();
        let first = sequence.first_token(logits);
        self.loads.generation_tokens += u64::from(first.is_some());
        let finish = Finish::Length(usize::from(first.is_some()));
        if let Ends::Prompt(Some(receiver)) = std::mem::replace(&mut sequence.ends, Ends::Output) {
            // A prompt that fills its last page has one more, for the next token; nothing is in that one.
            let filled = &sequence.pages[..sequence.prompt.div_ceil(PAGE)];
            let pages = filled.iter().map(|page| self.pool.content(*page).into()).collect();
            // Nobody is there to take it when the request was given up in the meantime.
            let _ = receiver.send(HandOver {
                prompt: sequence.prompt,
                cached: sequence.cached,
                first,
                prompt_logprobs,
                pages,
            });
        }
        sequence.send(Event::Finished(finish));
        sequence.release(&mut self.pool);
    }

    /// Lets a sequence decode on, or ends it.
    fn go_on(&mut self, mut sequence: Sequence, mut finish: Option<Finish>) {
        if finish.is_none() && sequence.tokens.len() >= self.config.context {
            finish = Some(Finish::Length(sequence.generated()));
        }
        match finish {
            Some(finish) => {
                self.remember(&sequence);
                sequence.send(Event::Finished(finish));
                sequence.release(&mut self.pool);
            }
            None => self.running.push(sequence),
        }
    }

    /// One decode step of all running sequences.
    fn decode(&mut self) {
        let retracted = self.make_room();
        if self.running.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.running);
        let rows: Vec<Row> = batch
            .iter()
            .enumerate()
            .map(|(sequence, s)| Row { sequence, position: s.filled, token: s.tokens[s.filled] })
            .collect();
        let wanted: Vec<usize> = (0..rows.len()).collect();
        let logits = {
            let sequences: Vec<SeqView<'_>> =
                batch.iter().map(|s| SeqView { pages: &s.pages, faults: &s.faults }).collect();
            forward(&self.model, &mut self.pool, &Step { rows: &rows, sequences: &sequences, wanted: &wanted }, None)
        };
        self.steps += 1;
        self.interval.1 += batch.len() as u64;
        if self.steps.is_multiple_of(self.config.decode_log_interval) {
            self.log_decode(batch.len(), retracted, batch.iter().map(|s| s.filled).sum());
        }
        for (mut sequence, l) in batch.drain(..).zip(logits.chunks_exact(VOCAB)) {
            sequence.filled += 1;
            self.settle(sequence, l);
        }
    }

    /// Gives every running sequence a page for its next token; takes the youngest back where that fails.
    fn make_room(&mut self) -> usize {
        let mut retracted = 0;
        let mut index = 0;
        while index < self.running.len() {
            let sequence = &mut self.running[index];
            let tokens = sequence.filled + 1;
            if sequence.grow(&mut self.pool, &mut self.radix, tokens) {
                index += 1;
                continue;
            }
            let Some(mut youngest) = self.running.pop() else { break };
            if self.config.mode == Mode::Decode {
                youngest.set_aside(&self.pool);
            }
            youngest.release(&mut self.pool);
            if self.running.is_empty() {
                self.loads.aborted += 1;
                youngest.send(Event::Finished(Finish::Abort("the key cache is full".to_owned())));
            } else {
                retracted += 1;
                self.waiting.push_front(youngest);
            }
        }
        retracted
    }

    fn in_transfer(&self) -> usize {
        self.line.in_transfer.load(Ordering::Relaxed)
    }

    fn usage(&self) -> f64 {
        self.pool.used() as f64 / self.pool.capacity().max(1) as f64
    }

    fn log_prefill(&mut self, sequences: usize, new: usize, cached: usize, pending: usize) {
        let seconds = self.last_prefill.elapsed().as_secs_f64();
        self.last_prefill = Instant::now();
        let transfer = match self.config.mode {
            Mode::Prefill => format!("#bootstrap-req: 0, #inflight-req: {}, ", self.in_transfer()),
            Mode::Whole | Mode::Decode => String::new(),
        };
        log::line(&format!(
            "Prefill batch, #new-seq: {sequences}, #new-token: {new}, #cached-token: {cached}, token usage: {:.2}, \
             #running-req: {}, #queue-req: {}, #pending-token: {pending}, {transfer}cuda graph: False, \
             input throughput (token/s): {:.2}",
            self.usage(),
            self.running.len(),
            self.waiting.len(),
            new as f64 / seconds.max(1e-9),
        ));
    }

    fn log_decode(&mut self, running: usize, retracted: usize, tokens: usize) {
        let seconds = self.interval.0.elapsed().as_secs_f64();
        self.loads.gen_throughput = self.interval.1 as f64 / seconds.max(1e-9);
        self.interval = (Instant::now(), 0);
        let retracted = match self.config.mode {
            Mode::Decode => format!(
                "pre-allocated usage: 0.00, #prealloc-req: 0, #transfer-req: {}, #retracted-req: {retracted}, ",
                self.in_transfer()
            ),
            Mode::Whole | Mode::Prefill if retracted > 0 => format!("#retracted-req: {retracted}, "),
            Mode::Whole | Mode::Prefill => String::new(),
        };
        log::line(&format!(
            "Decode batch, #running-req: {running}, #token: {tokens}, token usage: {:.2}, {retracted}cuda graph: False, \
             gen throughput (token/s): {:.2}, #queue-req: {}",
            self.usage(),
            self.loads.gen_throughput,
            self.waiting.len(),
        ));
    }

    fn publish(&mut self) {
        self.loads.running = self.running.len() + usize::from(self.prefilling.is_some());
        self.loads.waiting = self.waiting.len();
        self.loads.used_tokens = self.pool.used() * PAGE;
        self.line.loads.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.loads);
    }
}

/// Takes the matching elements out of a queue.
trait ExtractMatching<T> {
    fn extract_if_matching(&mut self, hit: impl Fn(&T) -> bool) -> Vec<T>;
}

impl<T> ExtractMatching<T> for VecDeque<T> {
    fn extract_if_matching(&mut self, hit: impl Fn(&T) -> bool) -> Vec<T> {
        let (gone, kept) = self.drain(..).partition(|item| hit(item));
        *self = kept;
        Vec::from(gone)
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
