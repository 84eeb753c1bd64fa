//! Looks at the workers from time to time, and says when one dies or comes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::workers::Worker;
use crate::lab::log;

/// Looks at all workers for ever.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut streaks: HashMap<String, Streak> = HashMap::new();
    let mut tick = tokio::time::interval(Duration::from_secs(shared.args.health_check_interval_secs.max(1)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let workers = shared.workers.all();
        streaks.retain(|id, _| workers.iter().any(|w| w.id == *id));
        for worker in workers {
            let alive = lives(&shared, &worker).await;
            let streak = streaks.entry(worker.id.clone()).or_default();
            streak.saw(alive);
            let args = &shared.args;
            let needed = if alive { args.health_success_threshold } else { args.health_failure_threshold };
            if streak.length >= needed {
                settle(&worker, alive);
            }
        }
    }
}

/// Looks at all workers once, now; one good look is enough.
pub(super) async fn look_now(shared: &Shared) {
    for worker in shared.workers.all() {
        if !worker.is_healthy() && lives(shared, &worker).await {
            settle(&worker, true);
        }
    }
}

/// What the last looks at a worker agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Streak {
    alive: bool,
    length: u32,
}

impl Streak {
    fn saw(&mut self, alive: bool) {
        self.length = if self.alive == alive { self.length.saturating_add(1) } else { 1 };
        self.alive = alive;
    }
}

fn settle(worker: &Worker, alive: bool) {
    if worker.set_healthy(alive) {
        let word = if alive { "healthy" } else { "unhealthy" };
        log::line(&format!("Worker {} is now {word}", worker.url));
    }
}

async fn lives(shared: &Shared, worker: &Worker) -> bool {
    let url = format!("{}{}", worker.url, shared.args.health_check_endpoint);
    let limit = Duration::from_secs(shared.args.health_check_timeout_secs.max(1));
    let answer = shared.http.get(url).timeout(limit).send().await;
    answer.is_ok_and(|r| r.status().is_success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_count_as_long_as_they_agree() {
        let mut streak = Streak::default();
        let lengths: Vec<u32> = [false, false, true, true, false]
            .map(|alive| {
                streak.saw(alive);
                streak.length
            })
            .to_vec();
        assert_eq!(lengths, [1, 2, 1, 2, 1]);
    }
}
