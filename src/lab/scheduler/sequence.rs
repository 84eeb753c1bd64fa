//! One request inside the engine: its tokens, its pages, how far it is computed.

use super::request::{Event, Finish, LogprobSpec, Request, TokenLogprob};
use super::sampling;
use crate::lab::cache::{PAGE, PageId, Pool, Radix};
use crate::lab::model::{Faults, VOCAB, tokens};

#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) request: Request,
    /// Prompt and output.
    pub(super) tokens: Vec<u16>,
    pub(super) prompt: usize,
    pub(super) pages: Vec<PageId>,
    /// Tokens whose keys are in the cache.
    pub(super) filled: usize,
    /// Tokens that came from the prefix cache.
    pub(super) cached: usize,
    pub(super) faults: Faults,
    pub(super) prompt_logprobs: Vec<TokenLogprob>,
    pub(super) announced: bool,
}

impl Sequence {
    pub(super) fn new(request: Request) -> Self {
        let (tokens, prompt) = (request.ids.clone(), request.ids.len());
        Self {
            request,
            tokens,
            prompt,
            pages: Vec::new(),
            filled: 0,
            cached: 0,
            faults: Faults::default(),
            prompt_logprobs: Vec::new(),
            announced: false,
        }
    }

    pub(super) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    pub(super) fn pending(&self) -> usize {
        self.tokens.len() - self.filled
    }

    pub(super) fn cancelled(&self) -> bool {
        self.request.events.is_closed()
    }

    /// How many leading tokens may come from the prefix cache: the last one must be computed, and so
    /// must those whose successors' log probabilities are wanted.
    pub(super) fn reusable(&self) -> usize {
        let last = self.tokens.len() - 1;
        match self.request.logprobs {
            Some(LogprobSpec { start: Some(start), .. }) => last.min(start.saturating_sub(1)),
            _ => last,
        }
    }

    /// Makes the page table cover `tokens` tokens; false when the pool has no page left.
    pub(super) fn grow(&mut self, pool: &mut Pool, radix: &mut Radix, tokens: usize) -> bool {
        let wanted = tokens.div_ceil(PAGE);
        let missing = wanted.saturating_sub(self.pages.len());
        if missing > pool.available() {
            radix.evict(pool, missing - pool.available());
        }
        if missing > pool.available() {
            return false;
        }
        while self.pages.len() < wanted {
            match pool.allocate() {
                Some(page) => self.pages.push(page),
                None => return false,
            }
        }
        true
    }

    /// Gives all pages back and starts over: everything is to be computed again.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        for page in self.pages.drain(..) {
            pool.release(page);
        }
        self.filled = 0;
        self.prompt_logprobs.clear();
    }

    pub(super) fn wants_prompt_logprobs_from(&self) -> Option<usize> {
        if self.announced {
            return None;
        }
        self.request.logprobs.and_then(|l| l.start).filter(|s| *s < self.prompt)
    }

    /// Log probability entry for `id` given the logits before it.
    pub(super) fn entry(&self, logits: &[f32], id: u16) -> TokenLogprob {
        let Some(spec) = self.request.logprobs else { return TokenLogprob { logprob: None, id, top: Vec::new() } };
        let log = sampling::log_softmax(logits);
        TokenLogprob { logprob: Some(log[usize::from(id)]), id, top: sampling::top(&log, spec.top) }
    }

    pub(super) fn send(&self, event: Event) {
        // A receiver that is gone is noticed by `cancelled` before the next step.
        let _ = self.request.events.send(event);
    }

    pub(super) fn announce(&mut self) {
        if !self.announced {
            self.announced = true;
            let logprobs = std::mem::take(&mut self.prompt_logprobs);
            self.send(Event::Prefilled { cached: self.cached, logprobs });
        }
    }

    /// Takes the next token from its logits; says why the request is over, if it is.
    pub(super) fn advance(&mut self, logits: &[f32]) -> Option<Finish> {
        debug_assert_eq!(logits.len(), VOCAB);
        let limit = self.request.sampling.max_new;
        if limit == 0 {
            return Some(Finish::Length(0));
        }
        let id = sampling::choose(logits, &self.request.sampling, self.generated());
        self.send(Event::Token(self.entry(logits, id)));
        self.tokens.push(id);
        if id == tokens::EOS && !self.request.sampling.ignore_eos {
            return Some(Finish::Eos);
        }
        if let Some(stop) = self.stop_text() {
            return Some(Finish::StopText(stop));
        }
        (self.generated() >= limit).then_some(Finish::Length(limit))
    }

    fn stop_text(&self) -> Option<String> {
        let output = &self.tokens[self.prompt..];
        let ends = |stop: &&String| {
            let ids: Vec<u16> = tokens::encode(stop).collect();
            !ids.is_empty() && output.ends_with(&ids)
        };
        self.request.sampling.stop.iter().find(ends).cloned()
    }
}
