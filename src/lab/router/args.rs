//! Flags of the router, in the names of `SGLang`'s, and why it cannot start.

use super::workers::{Kind, NewWorker};

/// Flags of `lab serve --role router`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Router")]
pub struct RouterArgs {
    /// Pair a prefill and a decode server for each request; a router of the lab always does
    #[arg(long)]
    pub pd_disaggregation: bool,
    /// Prefill server and the port on which it hands its keys over
    #[arg(long, num_args = 1..=2, value_names = ["URL", "PORT"])]
    pub prefill: Vec<String>,
    /// Decode server
    #[arg(long, value_name = "URL")]
    pub decode: Vec<String>,
    /// Seconds between two looks at a worker
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    pub health_check_interval_secs: u64,
    /// Seconds after which a look has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub health_check_timeout_secs: u64,
    /// Failed looks in a row until a worker gets no new requests
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub health_failure_threshold: u32,
    /// Good looks in a row until it gets them again
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub health_success_threshold: u32,
    /// What is asked to see whether a worker lives; this one costs no inference
    #[arg(long, value_name = "PATH", default_value = "/model_info")]
    pub health_check_endpoint: String,
    /// How often a request is tried again while no worker is there for it
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub retry_max_retries: u32,
}

/// Why a router cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// A worker is no URL, or a port is none.
    #[error("`{0}` is neither the URL of a worker nor its bootstrap port")]
    Worker(String),
    /// The port belongs to someone else.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Host and port.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Threads, signals or sockets.
    #[error("the router failed: {0}")]
    Io(#[from] std::io::Error),
}

impl RouterError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Worker(_) => Some("give `--prefill http://HOST:PORT BOOTSTRAP_PORT --decode http://HOST:PORT`"),
            Self::Bind { .. } => Some("choose another `--port`, or stop the process that owns this one"),
            Self::Io(_) => None,
        }
    }
}

impl RouterArgs {
    /// The workers that the flags name, prefill first.
    ///
    /// # Errors
    /// A word is neither a URL nor, after one, a port.
    pub(super) fn workers(&self) -> Result<Vec<NewWorker>, RouterError> {
        let mut workers: Vec<NewWorker> = Vec::new();
        for word in &self.prefill {
            // The flag takes a URL and, if it likes, a port; both come as plain words.
            match (word.parse::<u16>(), workers.last_mut()) {
                (Ok(port), Some(last)) if last.bootstrap_port.is_none() => last.bootstrap_port = Some(port),
                (Err(_), _) if is_url(word) => workers.push(NewWorker::new(word, Kind::Prefill)),
                _ => return Err(RouterError::Worker(word.clone())),
            }
        }
        for word in &self.decode {
            if !is_url(word) {
                return Err(RouterError::Worker(word.clone()));
            }
            workers.push(NewWorker::new(word, Kind::Decode));
        }
        Ok(workers)
    }
}

/// Whether a word is the base URL of a worker.
pub(super) fn is_url(word: &str) -> bool {
    reqwest::Url::parse(word).is_ok_and(|url| url.scheme() == "http" && url.has_host())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::server::tests::flags;

    fn check(line: &str, expect: &[(&str, Kind, Option<u16>)]) {
        let workers = flags(line).router.workers().unwrap();
        let got: Vec<_> = workers.iter().map(|w| (w.url.as_str(), w.worker_type, w.bootstrap_port)).collect();
        assert_eq!(got, expect, "{line}");
    }

    #[test]
    fn workers_are_named_as_sglangs_router_names_them() {
        let (a, b, c) = ("http://127.0.0.1:30001", "http://127.0.0.1:30002", "http://127.0.0.1:30003");
        check(&format!("--prefill {a} 8998 --decode {b}"), &[(a, Kind::Prefill, Some(8998)), (b, Kind::Decode, None)]);
        check(
            &format!("--decode {b} --prefill {a} --prefill {c} 9000 --decode {c}"),
            &[
                (a, Kind::Prefill, None),
                (c, Kind::Prefill, Some(9000)),
                (b, Kind::Decode, None),
                (c, Kind::Decode, None),
            ],
        );
        check("", &[]);
        for bad in ["--prefill 8998", "--prefill gpu-box:1", "--decode 30002", "--prefill http://a:1 x"] {
            assert!(matches!(flags(bad).router.workers(), Err(RouterError::Worker(_))), "{bad}");
        }
    }
}
