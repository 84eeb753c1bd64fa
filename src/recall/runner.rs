//! Runs the trials of a plan against the entry target of a case and reports each as it ends.
//!
//! No request is ever retried: what failed is a void with its reason. Not responsible for boots and arms,
//! which are given and only recorded, nor for tunnels; the URL of the case must be reachable.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::Value;

use super::fit::{FitError, Fitted, fit};
use super::grade::{Finish, grade, void_reason};
use super::pause;
use super::plan::{CacheLevel, Factors, factors, keys};
use super::prompts::{Conversation, Style, conversation};
use super::transcript::{self, Transcript};
use crate::case::{Budget, Case, Target};
use crate::engine::command::RecallPlan;
use crate::engine::diagnostic::Diagnostic;
use crate::engine::ids::{BootId, TrialId};
use crate::engine::input::JobReport;
use crate::engine::job::JobContext;
use crate::engine::live::Live;
use crate::engine::procedure::Failure;
use crate::recall::trial::{Outcome, ProbeForm, Trial, TrialKey};
use crate::serving::capabilities::ColdRun;
use crate::serving::chat::{ChatAnswer, ChatRequest, Delta};
use crate::serving::client::{Client, ModelInfo, Timeouts};
use crate::serving::error::ServingError;
use crate::serving::key;
use crate::serving::server_info::ServerInfo;
use crate::session::format::BlobHash;

/// Connection failures in a row after which the job ends.
const UNREACHABLE_LIMIT: u32 = 3;

/// How requests are made; the default suits real servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Limits of the client.
    pub timeouts: Timeouts,
    /// Longest answer in tokens, without thinking.
    pub answer_tokens: u32,
    /// Longest answer in tokens, with thinking.
    pub thinking_tokens: u32,
    /// Time between two looks at a busy server.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timeouts: Timeouts::default(), answer_tokens: 256, thinking_tokens: 8192, poll: Duration::from_secs(2) }
    }
}

/// The deployment that the trials of a run meet.
#[derive(Clone, Copy)]
pub struct Met<'a> {
    /// Boots that a request can meet.
    pub boots: &'a [BootId],
    /// Levels read back at those boots, for each `patch@target`.
    pub arm: &'a BTreeMap<String, String>,
    /// Why one of those boots does not run any more; `None` as long as they all do.
    pub gone: &'a (dyn Fn() -> Option<String> + Sync),
}

/// Runs the trials of a plan. Returns early without an error when the job is cancelled, and when the budget of
/// prompt tokens is spent, which is said.
///
/// # Errors
/// The case or plan cannot be used, a boot runs no more, the server cannot be reached or refuses for good, or nothing
/// can be recorded.
pub async fn run(case: &Case, plan: &RecallPlan, met: Met<'_>, ctx: &JobContext) -> Result<(), Failure> {
    run_with(case, plan, met, &Settings::default(), ctx).await
}

/// The same as [`run`] with other settings.
///
/// # Errors
/// Those of [`run`].
pub async fn run_with(
    case: &Case,
    plan: &RecallPlan,
    met: Met<'_>,
    settings: &Settings,
    ctx: &JobContext,
) -> Result<(), Failure> {
    let target = case.entry_target().ok_or_else(|| {
        Failure::new("the case names no target to send trials to").hint("add a `[[target]]`, or fix `entry`")
    })?;
    let factors = factors(plan)?;
    let client = way_to(target, settings).await?;
    // A router counts tokens with a tokenizer of its own, if with any.
    let reader = match case.reading_target().filter(|reading| reading.name != target.name) {
        Some(reading) => way_to(reading, settings).await?,
        None => client.clone(),
    };
    let tools = case.client.tools.as_deref().map(read_tools).transpose()?;
    let keys = keys(plan);
    let model = match stop_on_cancel(ctx, client.served_model()).await {
        None => return Ok(()),
        Some(model) => model.map_err(|e| e.to_failure())?,
    };
    if let Some(limit) = stop_on_cancel(ctx, context_limit(&reader)).await.flatten() {
        fits(&plan.lengths, limit)?;
    }
    let run = Run {
        client,
        reader,
        settings,
        budget: &case.budget,
        factors,
        tools,
        met,
        model,
        ctx,
        total: keys.len() as u64,
        done: AtomicU64::new(0),
        prompt_tokens: AtomicU64::new(0),
        warm_seen: AtomicBool::new(false),
        started: Instant::now(),
    };
    stop_on_cancel(ctx, run.all(keys, plan.concurrency)).await.unwrap_or(Ok(()))
}

/// The way to a target, with its key read now.
async fn way_to(target: &Target, settings: &Settings) -> Result<Client, Failure> {
    let key = match &target.api_key {
        Some(source) => Some(key::read(source).await.map_err(|e| e.to_failure())?),
        None => None,
    };
    Client::new(&target.url, target.engine, key, settings.timeouts).map_err(|e| e.to_failure())
}

/// The result, or `None` as soon as the job is cancelled; the work is dropped then, and its requests with it.
async fn stop_on_cancel<T>(ctx: &JobContext, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = ctx.cancel.cancelled() => None,
        result = work => Some(result),
    }
}

/// The longest prompt that the server says it takes, in tokens; `None` is not known.
///
/// The smallest of what its own endpoints say: one that is raised on the command line is still bounded by memory.
async fn context_limit(client: &Client) -> Option<u64> {
    // A server that does not answer here may still answer trials; its limit is then not known.
    let (info, model) = (client.server_info().await.ok(), client.model_info().await.ok());
    least_limit(info.as_ref(), model.as_ref())
}

fn least_limit(info: Option<&ServerInfo>, model: Option<&ModelInfo>) -> Option<u64> {
    const CONFIGURED: [&str; 4] = ["max_req_input_len", "context_length", "max_total_num_tokens", "max_total_tokens"];
    const REPORTED: [&str; 4] = ["/data/0/max_model_len", "/data/0/meta/n_ctx", "/max_model_len", "/context_length"];
    let known = |value: Option<&Value>| value.and_then(Value::as_u64).filter(|n| *n > 0);
    let configured = info.into_iter().flat_map(|info| CONFIGURED.iter().filter_map(|name| known(info.get(name))));
    let reported = model.into_iter().flat_map(|m| REPORTED.iter().filter_map(|path| known(m.answer.pointer(path))));
    configured.chain(reported).min()
}

/// Refuses lengths beyond what the server takes: each of their trials would be void.
fn fits(lengths: &[u32], limit: u64) -> Result<(), Failure> {
    let long: Vec<_> = lengths.iter().filter(|l| u64::from(**l) > limit).map(ToString::to_string).collect();
    if long.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("prompts of {} tokens do not fit: the server takes at most {limit}", long.join(", ")))
        .hint(format!("ask for lengths up to {limit}, with some room for the answer")))
}

fn read_tools(path: &str) -> Result<Vec<Value>, Failure> {
    let bad = |why: String| {
        Failure::new(format!("the tool definitions cannot be used: {why}"))
            .hint("`[client] tools` names a JSON file with the list that the client sends as `tools`")
    };
    let text = fs_err::read(Path::new(path)).map_err(|e| bad(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| bad(format!("`{path}`: {e}")))
}

struct Run<'a> {
    client: Client,
    /// The server whose tokens a prompt is measured in.
    reader: Client,
    settings: &'a Settings,
    budget: &'a Budget,
    factors: Factors,
    tools: Option<Vec<Value>>,
    met: Met<'a>,
    model: String,
    ctx: &'a JobContext,
    total: u64,
    done: AtomicU64,
    prompt_tokens: AtomicU64,
    warm_seen: AtomicBool,
    started: Instant,
}

/// How one trial went, for the run as a whole.
enum Step {
    /// The server spoke.
    Reached,
    /// There was no connection.
    Unreachable(ServingError),
    /// The budget does not allow it; it was not sent.
    OverBudget,
}

/// What was sent and what came of it.
struct Asked {
    conversation: Conversation,
    /// Tokens counted before sending; `None` if nothing was sent.
    sent: Option<u32>,
    result: Result<ChatAnswer, String>,
    error: Option<ServingError>,
}

impl Run<'_> {
    async fn all(&self, keys: Vec<TrialKey>, concurrency: u32) -> Result<(), Failure> {
        self.show("asking");
        let width = concurrency.max(1) as usize;
        let mut steps = stream::iter(keys).map(|key| self.trial(key)).buffer_unordered(width);
        let mut unreachable = 0;
        while let Some(step) = steps.next().await {
            match step? {
                Step::Reached => unreachable = 0,
                Step::Unreachable(error) => {
                    unreachable += 1;
                    if unreachable >= UNREACHABLE_LIMIT {
                        let done = self.done.load(Ordering::Relaxed);
                        return Err(Failure {
                            message: format!(
                                "{error}, {unreachable} times in a row; {done} of {} trials ended",
                                self.total
                            ),
                            hint: error.hint(),
                        });
                    }
                }
                Step::OverBudget => return self.say_over_budget().await,
            }
        }
        Ok(())
    }

    async fn say_over_budget(&self) -> Result<(), Failure> {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total);
        let limit = self.budget.prompt_tokens.unwrap_or_default();
        let remark = Diagnostic::warning(
            "prompt-budget-spent",
            format!("the budget of {limit} prompt tokens is spent; {} of {total} trials were not run", total - done),
        )
        .hint("raise `prompt_tokens` in `[budget]`, or ask fewer or shorter conversations");
        self.report(JobReport::Said(remark)).await
    }

    async fn trial(&self, key: TrialKey) -> Result<Step, Failure> {
        if let Some(limits) = &self.budget.pause_when {
            pause::until_calm(&self.client, limits, self.settings.poll, self.ctx, |phase| self.show(&phase)).await?;
        }
        if let Some(why) = (self.met.gone)() {
            let message = format!("{why}; its trials would be booked on another server");
            return Err(Failure::new(message).hint("read the target again, so that the server that runs now is met"));
        }
        self.show(&phase(&key));
        let fitted = match fit(&self.reader, &key, self.style()).await {
            Ok(fitted) => fitted,
            Err(FitError::Serving(error)) => {
                if error.is_permanent() {
                    return Err(error.to_failure());
                }
                let why = format!("before sending: {}", void_reason(&error));
                return self.record(key.clone(), self.unsent(&key, why, Some(error))).await;
            }
            Err(FitError::OffTarget { reached }) => {
                let why = format!("length off target: {reached} tokens instead of {}", key.length);
                return self.record(key.clone(), self.unsent(&key, why, None)).await;
            }
        };
        if !self.reserve(fitted.tokens) {
            return Ok(Step::OverBudget);
        }
        let asked = self.ask(fitted).await?;
        self.record(key, asked).await
    }

    fn style(&self) -> Style<'_> {
        Style { tools: self.tools.as_deref(), tool_calls: self.factors.tool_calls }
    }

    fn unsent(&self, key: &TrialKey, why: String, error: Option<ServingError>) -> Asked {
        let conversation = conversation(key, key.length as usize, self.style());
        Asked { conversation, sent: None, result: Err(why), error }
    }

    /// Takes the tokens of a trial from the budget; false if there are not enough.
    fn reserve(&self, tokens: u32) -> bool {
        let sends = if self.factors.cache == CacheLevel::Warm { 2 } else { 1 };
        let Some(limit) = self.budget.prompt_tokens else { return true };
        let wanted = u64::from(tokens) * sends;
        let add = |spent: u64| (spent + wanted <= limit).then_some(spent + wanted);
        self.prompt_tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    async fn ask(&self, fitted: Fitted) -> Result<Asked, Failure> {
        let Fitted { conversation, tokens } = fitted;
        let answer_tokens = match self.factors.thinking {
            Some(true) => self.settings.thinking_tokens,
            _ => self.settings.answer_tokens,
        };
        let mut request = ChatRequest {
            model: self.model.clone(),
            messages: conversation.messages.clone(),
            tools: conversation.tools.clone(),
            temperature: 0.0,
            max_tokens: answer_tokens,
            cache_salt: Some(uuid::Uuid::now_v7().to_string()),
            thinking: self.factors.thinking,
        };
        if self.factors.cache == CacheLevel::Warm {
            // The salt, if the engine has one, keeps the warm prefix to this trial.
            if self.client.dialect().cold == ColdRun::CachePromptOff {
                request.cache_salt = None;
            }
            let first = ChatRequest { max_tokens: 1, ..request.clone() };
            if let Err(error) = self.client.chat_stream(&first, |_| {}, &self.ctx.cancel).await {
                return failed(conversation, tokens, "warming the cache: ", error);
            }
        }
        let show = |delta: Delta<'_>| {
            if let Delta::Text(text) = delta {
                self.ctx.live(Live::Token { job: self.ctx.job, text: text.into() });
            }
        };
        match self.client.chat_stream(&request, show, &self.ctx.cancel).await {
            Ok(answer) => Ok(Asked { conversation, sent: Some(tokens), result: Ok(answer), error: None }),
            Err(error) => failed(conversation, tokens, "", error),
        }
    }

    async fn record(&self, key: TrialKey, asked: Asked) -> Result<Step, Failure> {
        let Asked { conversation, sent, result, error } = asked;
        let (answer, (outcome, first_wrong)) = match result {
            Ok(answer) => {
                let finish = Finish::from_reason(answer.finish_reason.as_deref());
                let graded = grade(&conversation.expected, &answer.text, finish);
                (answer, graded)
            }
            Err(why) => (ChatAnswer::default(), (Outcome::Void { why }, None)),
        };
        // An answer that came while the server was exchanged says nothing about either.
        let outcome = (self.met.gone)().map_or(outcome, |why| Outcome::Void { why });
        self.note_unexpected_hit(&answer).await?;
        let mut trial = Trial {
            id: TrialId(0),
            at: Timestamp::now(),
            boots: self.met.boots.to_vec(),
            arm: self.met.arm.clone(),
            factors: self.factors.levels.clone(),
            key: key.clone(),
            prompt_tokens: answer.prompt_tokens,
            cached_tokens: answer.cached_tokens,
            outcome: outcome.clone(),
            expected: conversation.expected.clone(),
            got: answer.text.as_str().into(),
            first_wrong,
            seconds: answer.seconds,
            transcript: None,
        };
        if sent.is_some() {
            let transcript = Transcript {
                version: transcript::VERSION,
                key,
                messages: conversation.messages,
                tools: conversation.tools,
                expected: conversation.expected,
                decoy: conversation.decoy,
                told_in: conversation.told_in,
                answer: answer.text.into(),
                reasoning: answer.reasoning.into(),
                outcome,
                first_wrong,
                finish_reason: answer.finish_reason.map(Into::into),
                tokenized: sent,
                prompt_tokens: answer.prompt_tokens,
                cached_tokens: answer.cached_tokens,
                first_token_s: answer.first_token_s,
                seconds: answer.seconds,
                error: error.as_ref().map(|e| e.to_string().into()),
            };
            trial.transcript = Some(self.put(&transcript).await?);
        }
        self.report(JobReport::TrialDone(Arc::new(trial))).await?;
        self.done.fetch_add(1, Ordering::Relaxed);
        self.show("asking");
        Ok(match error {
            Some(error) if error.is_unreachable() => Step::Unreachable(error),
            _ => Step::Reached,
        })
    }

    /// A cold run that met the cache is worth a word: the factor then does not say what it should.
    async fn note_unexpected_hit(&self, answer: &ChatAnswer) -> Result<(), Failure> {
        let hit = answer.cached_tokens.unwrap_or(0);
        if self.factors.cache != CacheLevel::Cold || hit == 0 || self.warm_seen.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let message =
            format!("the server took {hit} prompt tokens from its prefix cache although a cold run was asked for");
        self.report(JobReport::Said(Diagnostic::warning("cold-run-hit-cache", message).at(self.client.base()))).await
    }

    async fn put(&self, transcript: &Transcript) -> Result<BlobHash, Failure> {
        let cannot = |why: String| {
            Failure::new(format!("the transcript cannot be kept: {why}"))
                .hint("free space in the folder of the session")
        };
        let bytes = transcript.to_bytes().map_err(|e| cannot(e.to_string()))?;
        let blobs = self.ctx.blobs.clone();
        let put = tokio::task::spawn_blocking(move || blobs.put(&bytes)).await;
        put.map_err(|e| cannot(e.to_string()))?.map_err(|e| cannot(e.to_string()))
    }

    async fn report(&self, report: JobReport) -> Result<(), Failure> {
        self.ctx.report(report).await.map_err(|e| Failure::new(e.to_string()))
    }

    fn show(&self, phase: &str) {
        let done = self.done.load(Ordering::Relaxed);
        let mean = self.started.elapsed().as_secs_f64() / done as f64;
        let eta_s = (done > 0).then(|| mean * (self.total - done) as f64);
        let total = Some(self.total);
        self.ctx.live(Live::Progress { job: self.ctx.job, done, total, phase: phase.to_owned(), eta_s });
    }
}

/// A request that failed: a void, or the end of the job where no later request can do better.
fn failed(conversation: Conversation, tokens: u32, when: &str, error: ServingError) -> Result<Asked, Failure> {
    if error.is_permanent() {
        return Err(error.to_failure());
    }
    let why = format!("{when}{}", void_reason(&error));
    Ok(Asked { conversation, sent: Some(tokens), result: Err(why), error: Some(error) })
}

fn phase(key: &TrialKey) -> String {
    let form = match key.form {
        ProbeForm::MultiTurn => "several turns",
        ProbeForm::Needle => "one message",
    };
    format!("asking: {form}, {} tokens, depth {}", key.length, key.depth)
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
