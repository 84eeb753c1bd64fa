//! Holds trials back while the server is busier than the case allows.
//!
//! A load that cannot be read is not taken for an idle server.

use std::time::Duration;

use crate::case::PauseWhen;
use crate::engine::job::JobContext;
use crate::engine::procedure::Failure;
use crate::serving::client::{Client, Load};

/// Readings in a row that may fail before the job gives up.
const BLIND_LIMIT: u32 = 3;

/// What a load means for the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Trials may go on.
    No,
    /// They wait; why, in one clause.
    Yes(String),
    /// The server does not tell what a limit needs.
    Unknown(&'static str),
}

/// Compares a load with the limits; pure.
pub fn busy(load: &Load, limits: &PauseWhen) -> Busy {
    if let Some(limit) = limits.waiting {
        match load.waiting {
            Some(waiting) if waiting > u64::from(limit) => {
                return Busy::Yes(format!("{waiting} requests wait at the server, limit {limit}"));
            }
            Some(_) => {}
            None => return Busy::Unknown("the number of waiting requests"),
        }
    }
    if let Some(limit) = limits.kv_usage {
        match load.kv_usage {
            Some(usage) if usage > limit => {
                return Busy::Yes(format!(
                    "the key cache is {:.0} % full, limit {:.0} %",
                    usage * 100.0,
                    limit * 100.0
                ));
            }
            Some(_) => {}
            None => return Busy::Unknown("the use of the key cache"),
        }
    }
    Busy::No
}

/// Waits until the server is calm; shows the pause as the phase of the job. Ends at once on cancel.
///
/// # Errors
/// The load cannot be read, so the limits cannot be kept.
pub async fn until_calm(
    client: &Client,
    limits: &PauseWhen,
    poll: Duration,
    ctx: &JobContext,
    show: impl Fn(String),
) -> Result<(), Failure> {
    let cannot = |why: String| {
        Failure::new(format!("the load of the server cannot be read, so `pause_when` cannot be kept: {why}"))
            .hint("take `pause_when` out of `[budget]` if the server may be loaded")
    };
    let mut blind = 0;
    while !ctx.cancel.is_cancelled() {
        match client.loads().await {
            Ok(load) => match busy(&load, limits) {
                Busy::No => return Ok(()),
                Busy::Yes(why) => {
                    blind = 0;
                    show(format!("paused: {why}"));
                }
                Busy::Unknown(what) => return Err(cannot(format!("it does not tell {what}"))),
            },
            Err(e) if e.is_permanent() => return Err(cannot(e.to_string())),
            Err(e) => {
                blind += 1;
                if blind >= BLIND_LIMIT {
                    return Err(cannot(e.to_string()));
                }
                show(format!("paused: {e}"));
            }
        }
        tokio::select! {
            () = ctx.cancel.cancelled() => {}
            () = tokio::time::sleep(poll) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(waiting: Option<u64>, kv_usage: Option<f64>, limits: (Option<u32>, Option<f64>), expect: &str) {
        let load = Load { waiting, kv_usage, ..Load::default() };
        let got = match busy(&load, &PauseWhen { waiting: limits.0, kv_usage: limits.1 }) {
            Busy::No => "no".to_owned(),
            Busy::Yes(why) => why,
            Busy::Unknown(what) => format!("? {what}"),
        };
        assert_eq!(got, expect);
    }

    #[test]
    fn limits_are_kept_and_unknown_is_not_idle() {
        check(Some(0), None, (Some(1), None), "no");
        check(Some(1), None, (Some(1), None), "no");
        check(Some(2), None, (Some(1), None), "2 requests wait at the server, limit 1");
        check(None, Some(0.1), (Some(1), Some(0.8)), "? the number of waiting requests");
        check(Some(0), Some(0.9), (Some(1), Some(0.8)), "the key cache is 90 % full, limit 80 %");
        check(Some(0), None, (Some(1), Some(0.8)), "? the use of the key cache");
        check(None, None, (None, None), "no");
    }
}
