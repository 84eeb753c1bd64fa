//! Scripts on a host for code that has a thread of its own and is no part of the program's runtime.
//!
//! Responsible for waiting, and for asking whether to go on meanwhile. Not responsible for the way to
//! the host.

use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

use super::{HostError, Hosts, Limits, Output, Place};

/// How often somebody is asked whether to go on.
const LOOK: Duration = Duration::from_millis(50);

/// What waits for a host.
#[derive(Debug)]
pub enum Blocking {
    /// The program's own runtime.
    Given(Handle),
    /// One of its own, where the program has none.
    Own(Runtime),
}

impl Blocking {
    /// The runtime of whoever calls, or else a new one.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new() -> std::io::Result<Self> {
        Ok(match Handle::try_current() {
            Ok(handle) => Self::Given(handle),
            Err(_) => Self::Own(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?),
        })
    }

    /// [`super::run`], until it ends or `stop` says so; not from within a runtime's own thread.
    ///
    /// # Errors
    /// See there.
    pub fn run(
        &self,
        hosts: &Hosts,
        place: &Place,
        script: &str,
        args: &[String],
        limits: &Limits,
        stop: &dyn Fn() -> bool,
    ) -> Result<Output, HostError> {
        let token = CancellationToken::new();
        let work = async {
            let asked = super::run(hosts, place, script, args, limits, &token);
            tokio::pin!(asked);
            loop {
                tokio::select! {
                    end = &mut asked => return end,
                    () = tokio::time::sleep(LOOK) => if stop() { token.cancel() },
                }
            }
        };
        match self {
            Self::Given(handle) => handle.block_on(work),
            Self::Own(runtime) => runtime.block_on(work),
        }
    }
}
