//! One request inside the engine: its tokens, its pages, how far it is computed.

use tokio::sync::oneshot;

use super::request::{Event, Finish, HandOver, LogprobSpec, Part, Request, TokenLogprob};
use super::sampling;
use crate::lab::cache::{PAGE, PageId, Parts, Pool, Radix};
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
    /// Where its work in this engine ends.
    pub(super) ends: Ends,
    /// State that waits for pages: it came from another server, or was set aside.
    pub(super) carried: Option<Carried>,
    /// The first token, where another server chose it and it was not taken yet.
    pub(super) first: Option<TokenLogprob>,
}

/// Where the work on a sequence ends.
#[derive(Debug)]
pub(super) enum Ends {
    /// With its output.
    Output,
    /// With its prompt, whose state goes to the other end.
    Prompt(Option<oneshot::Sender<HandOver>>),
}

/// Contents of pages outside the pool.
#[derive(Debug)]
pub(super) struct Carried {
    pages: Vec<Box<[f32]>>,
    /// Tokens whose keys are in them.
    filled: usize,
}

impl Sequence {
    pub(super) fn new(mut request: Request) -> Self {
        let (tokens, prompt) = (request.ids.clone(), request.ids.len());
        let part = std::mem::take(&mut request.part);
        let new = Self {
            request,
            tokens,
            prompt,
            pages: Vec::new(),
            filled: 0,
            cached: 0,
            faults: Faults::default(),
            prompt_logprobs: Vec::new(),
            announced: false,
            ends: Ends::Output,
            carried: None,
            first: None,
        };
        match part {
            Part::Whole => new,
            Part::Prompt(receiver) => Self { ends: Ends::Prompt(receiver), ..new },
            Part::Output(state) => Self {
                carried: Some(Carried { pages: state.pages, filled: state.prompt }),
                cached: state.cached,
                prompt_logprobs: state.prompt_logprobs,
                first: state.first,
                ..new
            },
        }
    }

    pub(super) fn ends_with_prompt(&self) -> bool {
        matches!(self.ends, Ends::Prompt(_))
    }

    /// Copies the state out of the pool, so that it need not be computed again.
    pub(super) fn set_aside(&mut self, pool: &Pool) {
        let pages = self.pages.iter().map(|page| pool.content(*page).into()).collect();
        self.carried = Some(Carried { pages, filled: self.filled });
    }

    /// Puts the carried state into pages of the pool; false, with nothing changed, when there are too few.
    pub(super) fn put_back(&mut self, pool: &mut Pool, radix: &mut Radix, parts: Parts) -> bool {
        let Some(carried) = self.carried.take() else { return true };
        let tokens = (self.tokens.len() + 1).max(carried.pages.len() * PAGE);
        if !self.grow(pool, radix, tokens) {
            self.carried = Some(carried);
            return false;
        }
        for (page, content) in self.pages.iter().zip(&carried.pages) {
            pool.put(*page, content, parts);
        }
        self.filled = carried.filled;
        true
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
        match self.choose(logits) {
            Some(token) => self.take(token),
            None => Some(Finish::Length(0)),
        }
    }

    /// Chooses the first token and tells it, without taking it; `None` when nothing is to be generated.
    pub(super) fn first_token(&self, logits: &[f32]) -> Option<TokenLogprob> {
        let first = self.choose(logits)?;
        self.send(Event::Token(first.clone()));
        Some(first)
    }

    fn choose(&self, logits: &[f32]) -> Option<TokenLogprob> {
        debug_assert_eq!(logits.len(), VOCAB);
        if self.request.sampling.max_new == 0 {
            return None;
        }
        let id = sampling::choose(logits, &self.request.sampling, self.generated());
        Some(self.entry(logits, id))
    }

    /// Takes a chosen token; says why the request is over, if it is.
    pub(super) fn take(&mut self, token: TokenLogprob) -> Option<Finish> {
        let (id, limit) = (token.id, self.request.sampling.max_new);
        self.send(Event::Token(token));
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
