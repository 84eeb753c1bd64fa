//! The router in front of a target: how it stands to the target before a change, and what a change asks of it.
//!
//! `plan` decides and is pure, `text` is what a host can do by itself, `ready` whether a router can serve. A router is asked from this machine, over the
//! link of its host, so that its host needs no program for it.

pub(crate) mod plan;
pub(crate) mod ready;
pub(crate) mod text;

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::plan::{Place, Routed};
use super::host::reach;
use super::http;
use super::procedures::Means;
use super::prove::seen;
use crate::case::{Case, Role, Target};
use crate::engine::job::JobContext;
use crate::engine::procedure::{Evidence, Failure, RoutedWorker, RouterAsk};
use crate::redact;
use crate::serving::client::Client;
use crate::serving::error::ServingError;
use crate::serving::key;
use crate::serving::workers::{self, Drained, Worker};

/// Between two looks at a router or at a worker that drains.
const POLL: Duration = Duration::from_millis(250);
/// After so long a router that was told and does not show the worker is told again.
const TELL_AGAIN: Duration = Duration::from_secs(15);

/// How every router of the case stands to a target that runs or does not; `kept` are the workers that an earlier change of ours took out.
pub(crate) async fn look(
    means: &Means,
    case: &Case,
    target: &Target,
    running: bool,
    kept: &[RoutedWorker],
) -> Vec<Routed> {
    let mut out = Vec::new();
    if target.role == Role::Router {
        return out;
    }
    for router in case.targets.iter().filter(|t| t.role == Role::Router) {
        let kept = kept.iter().find(|w| w.router == router.name);
        let (place, whole) = look_at(means, router, (target, running), kept).await;
        out.push(Routed { router: router.name.clone(), place, whole, way_back: text::way_back(router, target) });
    }
    out
}

async fn look_at(
    means: &Means,
    router: &Target,
    (target, running): (&Target, bool),
    kept: Option<&RoutedWorker>,
) -> (Place, bool) {
    let asked = match client(means, router).await {
        Ok(client) => workers::list(&client).await.map_err(|e| (e, Some(client))),
        Err(failure) => return (Place::Silent(failure.message), false),
    };
    let listed = match asked {
        Ok(listed) => listed,
        Err((error @ (ServingError::Connection { .. } | ServingError::TimedOut { .. }), _)) => {
            return (Place::Silent(error.to_string()), false);
        }
        Err((error, client)) => {
            let answers = match &client {
                Some(client) => client.identity().await.is_ok(),
                None => false,
            };
            let why = match error {
                ServingError::NotSupported { .. } | ServingError::Status { code: 404 | 405, .. } => {
                    "it has no list of workers that could be changed".to_owned()
                }
                other => other.to_string(),
            };
            return (Place::Cannot(why), answers);
        }
    };
    let whole = plan::is_whole(&listed, target);
    let place = match plan::pick(&listed, router, target) {
        Err(why) => Place::Cannot(why),
        Ok(None) => kept.map_or(Place::Strange, |w| Place::Missing(w.clone())),
        Ok(Some(own)) => listed_place(means, router, (target, running), own, &listed).await,
    };
    (place, whole)
}

async fn listed_place(
    means: &Means,
    router: &Target,
    (target, running): (&Target, bool),
    own: &Worker,
    all: &[Worker],
) -> Place {
    let mut plain = own.body.clone();
    redact::json(&mut plain);
    if plain != own.body {
        return Place::Cannot("what it says of the worker holds a secret, which would have to be written down".into());
    }
    let load = match client(means, target).await {
        Ok(client) => client.loads().await.map_err(|e| e.to_string()),
        Err(failure) => Err(failure.message),
    };
    // A target that is down is not drained, and needs not tell.
    let told = load.map(|l| l.running.is_some() && l.waiting.is_some());
    let why = match told {
        Ok(true) => None,
        Ok(false) => Some(String::new()),
        Err(why) => Some(format!(" ({why})")),
    };
    if let Some(why) = why.filter(|_| running) {
        return Place::Cannot(format!("`{}` does not tell how many requests run at it{why}", target.name));
    }
    let others = all.iter().filter(|w| w.role == own.role && w.url != own.url && w.healthy == Some(true)).count();
    let worker = RoutedWorker { router: router.name.clone(), url: own.url.clone(), body: own.body.clone() };
    Place::Listed { worker, others }
}

async fn client(means: &Means, target: &Target) -> Result<Client, Failure> {
    http::endpoint(&reach(&means.hosts, target).await?).await
}

/// What a router is asked with.
pub(crate) struct Asking<'a> {
    pub(crate) means: &'a Means,
    pub(crate) case: &'a Case,
    /// The target that the worker is.
    pub(crate) target: &'a Target,
    pub(crate) worker: &'a RoutedWorker,
    pub(crate) ctx: &'a JobContext,
    /// Whether requests that still run may be cut off.
    pub(crate) anyway: bool,
    /// Whether the change is the way back, which no router holds up.
    pub(crate) way_back: bool,
}

impl Asking<'_> {
    /// Whether a question is answered with yes; nothing is changed.
    ///
    /// # Errors
    /// The router cannot be asked.
    pub(crate) async fn holds(&self, ask: RouterAsk) -> Result<bool, Failure> {
        let listed = match self.patiently().await {
            Ok(listed) => listed,
            Err(_) if self.way_back => return Ok(false),
            Err(failure) => return Err(failure),
        };
        Ok(match ask {
            RouterAsk::Has => listed.is_some_and(|w| w.healthy != Some(false)),
            RouterAsk::Lacks => listed.is_none(),
            RouterAsk::Remove | RouterAsk::Add | RouterAsk::Idle { .. } => false,
        })
    }

    /// Does what is asked, or finds it done.
    ///
    /// # Errors
    /// The router cannot be asked or does not do it in time, or requests still run.
    pub(crate) async fn act(&self, ask: RouterAsk, timeout_s: f64) -> Result<Vec<Evidence>, Failure> {
        let limit = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
        match ask {
            RouterAsk::Has if self.holds(ask).await? => Ok(vec![self.said("it routes to it and sees it live")]),
            RouterAsk::Has => Err(self.failure("does not route to it, or does not see it live")),
            RouterAsk::Lacks if self.holds(ask).await? => Ok(vec![self.said("it does not route to it")]),
            RouterAsk::Lacks => Err(self.failure("still routes to it")),
            RouterAsk::Remove => self.remove(limit).await,
            RouterAsk::Add => self.add(limit).await,
            RouterAsk::Idle { anyway } => {
                let drained = self.idle(limit, anyway || self.anyway || self.way_back).await;
                match drained {
                    Ok(evidence) => Ok(evidence),
                    Err(failure) => Err(self.put_back(failure).await),
                }
            }
        }
    }

    fn router(&self) -> Result<&Target, Failure> {
        let name = &self.worker.router;
        self.case.target(name).ok_or_else(|| Failure::new(format!("the case has no target `{name}`")))
    }

    /// The worker in the router's list; a link that is being mended is waited for.
    async fn patiently(&self) -> Result<Option<Worker>, Failure> {
        let router = self.router()?;
        let end = Instant::now() + if router.is_local() { Duration::from_secs(2) } else { Duration::from_secs(20) };
        loop {
            let failure = match self.listed(router).await {
                Ok(found) => return Ok(found),
                Err(failure) => failure,
            };
            if Instant::now() >= end {
                return Err(failure);
            }
            self.pause().await?;
        }
    }

    async fn listed(&self, router: &Target) -> Result<Option<Worker>, Failure> {
        let client = client(self.means, router).await?;
        let all = workers::list(&client).await.map_err(|e| self.broke(&e))?;
        Ok(all.into_iter().find(|w| w.url == self.worker.url))
    }

    async fn pause(&self) -> Result<(), Failure> {
        tokio::select! {
            () = self.ctx.cancel.cancelled() => Err(Failure::new(format!("cancelled while asking `{}`", self.worker.router))),
            () = tokio::time::sleep(POLL) => Ok(()),
        }
    }

    async fn remove(&self, limit: Duration) -> Result<Vec<Evidence>, Failure> {
        let end = Instant::now() + limit;
        let mut told = false;
        loop {
            let failure = match self.patiently().await {
                Ok(None) => return Ok(vec![self.said("it does not route to it any more")]),
                Ok(Some(_)) if told => self.failure("was told and still routes to it"),
                Ok(Some(worker)) => {
                    let client = client(self.means, self.router()?).await?;
                    match workers::change::remove(&client, &worker.id).await {
                        // A router may do it a moment later than it says so.
                        Ok(()) | Err(ServingError::Status { code: 404, .. }) => told = true,
                        Err(error) => return self.or_way_back(self.broke(&error)),
                    }
                    continue;
                }
                Err(failure) => return self.or_way_back(failure),
            };
            if Instant::now() >= end {
                return self.or_way_back(failure);
            }
            self.pause().await?;
        }
    }

    /// A router that cannot be told does not hold up the way back.
    fn or_way_back(&self, failure: Failure) -> Result<Vec<Evidence>, Failure> {
        if self.way_back {
            return Ok(vec![self.said(&format!("nothing is drained there: {}", failure.message))]);
        }
        Err(failure)
    }

    async fn add(&self, limit: Duration) -> Result<Vec<Evidence>, Failure> {
        let end = Instant::now() + limit;
        let mut told: Option<Instant> = None;
        loop {
            let failure = match self.patiently().await {
                Ok(Some(worker)) if worker.healthy != Some(false) => {
                    let how = if told.is_some() { "it was told and routes to it again" } else { "it routes to it" };
                    return Ok(vec![self.said(how)]);
                }
                Ok(Some(_)) => self.failure("has it and does not see it live"),
                Ok(None) => {
                    if told.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
                        self.tell().await?;
                        told = Some(Instant::now());
                    }
                    self.failure("was told to bring it back and does not show it")
                }
                Err(failure) => failure,
            };
            if Instant::now() >= end {
                let worker = self.worker;
                return Err(failure.hint(format!(
                    "`{}` itself runs; once `{}` answers, resume this change, or POST {} to its `/workers`",
                    self.target.name, worker.router, worker.body
                )));
            }
            self.ctx.progress(0, None, format!("waiting for `{}` to route to it", self.worker.router));
            self.pause().await?;
        }
    }

    async fn tell(&self) -> Result<(), Failure> {
        let client = client(self.means, self.router()?).await?;
        let key = match &self.target.api_key {
            Some(source) => Some(key::read(source).await.map_err(|e| self.broke(&e))?),
            None => None,
        };
        match workers::change::add(&client, &self.worker.body, key.as_ref()).await {
            // Somebody was quicker.
            Ok(()) | Err(ServingError::Status { code: 409, .. }) => Ok(()),
            Err(error) => Err(self.broke(&error)),
        }
    }

    async fn idle(&self, limit: Duration, anyway: bool) -> Result<Vec<Evidence>, Failure> {
        let name = &self.target.name;
        let ended = match client(self.means, self.target).await {
            Ok(client) => {
                let seen = |n: u64| {
                    self.ctx.progress(0, None, format!("draining: {}", still_run(n, name)));
                };
                workers::until_idle(&client, POLL, limit, seen, &self.ctx.cancel).await.map_err(|e| e.to_string())
            }
            Err(failure) => Err(failure.message),
        };
        let left = match ended {
            Ok(Drained::Idle) => {
                return Ok(vec![seen("drained", "no request runs or waits", self.target.url.as_str())]);
            }
            Ok(Drained::Busy(n)) => format!("{} after {} s", still_run(n, name), limit.as_secs_f64()),
            Ok(Drained::Unknown) => format!("`{name}` does not tell how many requests still run"),
            Err(why) => format!("it cannot be told how many requests still run at `{name}`: {why}"),
        };
        if anyway && !self.ctx.cancel.is_cancelled() {
            return Ok(vec![seen("drained", &format!("{left}; they are cut off"), self.target.url.as_str())]);
        }
        Err(Failure::new(left)
            .hint(format!("try again when less runs, or confirm with `{name} anyway`, which cuts them off")))
    }

    /// A drain that came to nothing leaves the worker where it was, also where the change is cancelled.
    async fn put_back(&self, failure: Failure) -> Failure {
        let mut ctx = self.ctx.clone();
        ctx.cancel = CancellationToken::new();
        let asking = Asking { ctx: &ctx, ..*self };
        match asking.add(Duration::from_mins(1)).await {
            Ok(_) => Failure {
                message: format!(
                    "{}; nothing was stopped, and `{}` routes to it again",
                    failure.message, self.worker.router
                ),
                ..failure
            },
            Err(second) => Failure { message: format!("{}; {}", failure.message, second.message), hint: second.hint },
        }
    }

    fn said(&self, what: &str) -> Evidence {
        seen("router", &format!("{}: {what}", self.worker.url), format!("workers of `{}`", self.worker.router))
    }

    fn failure(&self, what: &str) -> Failure {
        Failure::new(format!("`{}` {what}: `{}` is {}", self.worker.router, self.target.name, self.worker.url))
    }

    fn broke(&self, error: &ServingError) -> Failure {
        let failure = error.to_failure();
        Failure { message: format!("`{}`: {}", self.worker.router, failure.message), ..failure }
    }
}

fn still_run(requests: u64, target: &str) -> String {
    match requests {
        1 => format!("1 request still runs at `{target}`"),
        n => format!("{n} requests still run at `{target}`"),
    }
}

/// Has the deployment behind an entry compute a whole request.
///
/// # Errors
/// There is no answer in time.
pub(crate) async fn entry_token(
    means: &Means,
    case: &Case,
    target: &Target,
    entry: &str,
    timeout_s: f64,
    ctx: &JobContext,
) -> Result<Vec<Evidence>, Failure> {
    let router = case.target(entry).ok_or_else(|| Failure::new(format!("the case has no target `{entry}`")))?;
    ctx.progress(0, None, format!("asking a whole request through `{entry}`"));
    let end = Instant::now() + Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
    loop {
        let asked = async {
            let client = client(means, router).await?;
            let others = match workers::list(&client).await {
                Ok(all) => all.iter().filter(|w| w.role == Some(target.role) && w.healthy == Some(true)).count(),
                Err(_) => 0,
            };
            let answer = client.whole_request().await.map_err(|e| e.to_failure())?;
            Ok::<_, Failure>((answer, others, client.base().to_owned()))
        };
        let failure = tokio::select! {
            () = ctx.cancel.cancelled() => return Err(Failure::new(format!("cancelled while asking `{entry}`"))),
            () = tokio::time::sleep_until(end) => Failure::new("it did not answer in time"),
            asked = asked => match asked {
                Ok(((url, text), workers, near)) => {
                    let text = text.map_or_else(|| "an answer without text".into(), |t| format!("{:?}", t.raw()));
                    // Of several workers, any may have computed it.
                    let which = match workers {
                        0 | 1 => String::new(),
                        n => format!(", computed by one of {n} such workers"),
                    };
                    let far = url.replace(near.trim_end_matches('/'), router.url.trim_end_matches('/'));
                    return Ok(vec![seen("entry-token", &format!("{text}{which}"), far)]);
                }
                Err(failure) => failure,
            },
        };
        if Instant::now() >= end {
            let message =
                format!("`{entry}` gives no whole answer after the change of `{}`: {}", target.name, failure.message);
            return Err(Failure { message, ..failure });
        }
        tokio::time::sleep(POLL).await;
    }
}
