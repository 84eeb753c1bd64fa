//! The workers of a router: who they are, whether they live, how many requests each has.
//!
//! Not responsible for asking them. A worker that is removed gets no new request; those that it has run to their end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a worker computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Prompts.
    Prefill,
    /// Outputs.
    Decode,
}

/// A worker as it is named by a flag or by a request to add it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct NewWorker {
    pub(super) url: String,
    pub(super) worker_type: Kind,
    #[serde(default)]
    pub(super) bootstrap_port: Option<u16>,
}

impl NewWorker {
    pub(super) fn new(url: &str, worker_type: Kind) -> Self {
        Self { url: url.to_owned(), worker_type, bootstrap_port: None }
    }
}

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: String,
    pub(super) url: String,
    pub(super) kind: Kind,
    /// Where it hands its keys over; `None` is `SGLang`'s own port.
    pub(super) bootstrap_port: Option<u16>,
    healthy: AtomicBool,
    in_flight: AtomicUsize,
}

impl Worker {
    fn new(new: &NewWorker) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            url: new.url.trim_end_matches('/').to_owned(),
            kind: new.worker_type,
            bootstrap_port: new.bootstrap_port,
            healthy: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// Says whether it lives; true when that is news.
    pub(super) fn set_healthy(&self, healthy: bool) -> bool {
        self.healthy.swap(healthy, Ordering::Relaxed) != healthy
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// As `/workers` shows it.
    pub(super) fn info(&self) -> Value {
        json!({
            "id": self.id,
            "url": self.url,
            "model_id": "unknown",
            "priority": 50,
            "cost": 1.0,
            "worker_type": self.kind,
            "is_healthy": self.is_healthy(),
            "load": self.in_flight(),
            "connection_mode": "http",
            "bootstrap_port": self.bootstrap_port,
            "metadata": {},
        })
    }
}

/// One request of a worker, until it is dropped; the worker may be removed meanwhile.
#[derive(Debug)]
pub(super) struct Taken(pub(super) Arc<Worker>);

impl Taken {
    pub(super) fn new(worker: Arc<Worker>) -> Self {
        worker.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(worker)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All workers of a router.
#[derive(Debug, Default)]
pub(super) struct Workers(RwLock<Vec<Arc<Worker>>>);

impl Workers {
    /// Adds a worker, which gets requests once it was seen to live; the worker that has its URL already is the error.
    pub(super) fn add(&self, new: &NewWorker) -> Result<Arc<Worker>, Arc<Worker>> {
        let worker = Arc::new(Worker::new(new));
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|w| w.url == worker.url) {
            return Err(Arc::clone(known));
        }
        all.push(Arc::clone(&worker));
        Ok(worker)
    }

    /// Takes a worker out of the list.
    pub(super) fn remove(&self, id: &str) -> Option<Arc<Worker>> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = all.iter().position(|w| w.id == id)?;
        Some(all.remove(place))
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Worker>> {
        self.all().into_iter().find(|w| w.id == id)
    }

    pub(super) fn all(&self) -> Vec<Arc<Worker>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A living worker of a kind with the fewest requests; the first of equals.
    pub(super) fn pick(&self, kind: Kind) -> Option<Taken> {
        let all = self.all();
        let live = all.into_iter().filter(|w| w.kind == kind && w.is_healthy());
        live.min_by_key(|w| w.in_flight()).map(Taken::new)
    }

    /// How many there are of a kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.all().iter().filter(|w| w.kind == kind).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(urls: &[(&str, Kind)]) -> Workers {
        let workers = Workers::default();
        for (url, kind) in urls {
            workers.add(&NewWorker::new(url, *kind)).unwrap().set_healthy(true);
        }
        workers
    }

    #[test]
    fn the_least_busy_living_worker_of_the_kind_is_taken() {
        let workers =
            workers(&[("http://a:1", Kind::Decode), ("http://b:1", Kind::Decode), ("http://p:1", Kind::Prefill)]);
        let first = workers.pick(Kind::Decode).unwrap();
        let second = workers.pick(Kind::Decode).unwrap();
        assert_eq!((first.0.url.as_str(), second.0.url.as_str()), ("http://a:1", "http://b:1"));
        drop(first);
        assert_eq!(workers.pick(Kind::Decode).unwrap().0.url, "http://a:1");
        workers.all()[0].set_healthy(false);
        assert_eq!(workers.pick(Kind::Decode).unwrap().0.url, "http://b:1");
        workers.all()[2].set_healthy(false);
        assert!(workers.pick(Kind::Prefill).is_none());
    }

    #[test]
    fn a_removed_worker_keeps_what_it_has_and_gets_nothing_new() {
        let workers = workers(&[("http://a:1", Kind::Decode)]);
        let running = workers.pick(Kind::Decode).unwrap();
        let removed = workers.remove(&running.0.id).unwrap();
        assert_eq!((removed.in_flight(), workers.count(Kind::Decode)), (1, 0));
        assert!(workers.pick(Kind::Decode).is_none() && workers.remove(&removed.id).is_none());
        drop(running);
        assert_eq!(removed.in_flight(), 0);
    }

    #[test]
    fn a_url_is_a_worker_once() {
        let workers = workers(&[("http://a:1", Kind::Decode)]);
        let known = workers.add(&NewWorker::new("http://a:1/", Kind::Decode)).unwrap_err();
        assert_eq!(known.url, "http://a:1");
        workers.remove(&known.id).unwrap();
        assert!(!workers.add(&NewWorker::new("http://a:1", Kind::Decode)).unwrap().is_healthy(), "seen first");
    }
}
