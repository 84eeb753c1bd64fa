//! One connection for each host, kept, shared, and made anew when it breaks.
//!
//! The state of every link is data that others can watch. Not responsible for how a connection is made.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use openssh::Session;
use tokio::sync::watch;

use super::{HostError, forward, ssh};
use crate::engine::live::LinkState;

/// How hosts are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The ssh config file; `None` is the user's own.
    pub config: Option<PathBuf>,
    /// How long a connection may take.
    pub connect: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { config: None, connect: Duration::from_secs(15) }
    }
}

impl Settings {
    /// The user's own settings; the variable `PATCHBENCH_SSH_CONFIG` names another ssh config file.
    pub fn from_environment() -> Self {
        let config = std::env::var_os("PATCHBENCH_SSH_CONFIG").filter(|v| !v.is_empty()).map(PathBuf::from);
        Self { config, ..Self::default() }
    }
}

/// The links of this program. Clones share them; when the last one is gone, the connections are closed.
#[derive(Clone, Debug)]
pub struct Hosts {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    states: watch::Sender<BTreeMap<String, LinkState>>,
}

/// The link to one host; the lock is held while it is made, so that nobody makes a second one.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) slot: tokio::sync::Mutex<Slot>,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) session: Option<Arc<Session>>,
    /// Ports here by host and port there; renewed with the link.
    pub(super) forwards: BTreeMap<(String, u16), u16>,
    /// Whether a task makes the link anew.
    mending: bool,
}

impl Default for Hosts {
    /// No links yet, as the user's own settings say.
    fn default() -> Self {
        Self::new(Settings::from_environment())
    }
}

/// How long to wait before the next attempt: one second, doubled each time, at most half a minute.
pub fn back_off(attempt: u32) -> Duration {
    Duration::from_secs((1 << attempt.saturating_sub(1).min(5)).min(30))
}

impl Hosts {
    /// No links yet.
    pub fn new(settings: Settings) -> Self {
        let (states, _) = watch::channel(BTreeMap::new());
        Self { inner: Arc::new(Inner { settings, links: Mutex::default(), states }) }
    }

    /// The state of every link that was ever wanted, by host; changes can be awaited.
    pub fn states(&self) -> watch::Receiver<BTreeMap<String, LinkState>> {
        self.inner.states.subscribe()
    }

    /// Looks whether every link still stands, and begins to mend those that do not.
    pub async fn check(&self) {
        let links: Vec<(String, Arc<Link>)> = {
            let links = self.inner.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.iter().map(|(n, l)| (n.clone(), l.clone())).collect()
        };
        for (host, link) in links {
            // A link that is being made needs no check.
            let Some(session) = link.slot.try_lock().ok().and_then(|slot| slot.session.clone()) else { continue };
            if !ssh::stands(&session).await {
                self.lost(&host, &session).await;
            }
        }
    }

    pub(super) fn link(&self, host: &str) -> Arc<Link> {
        let mut links = self.inner.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.entry(host.to_owned()).or_default().clone()
    }

    /// The link to a host, made now if there is none; waits while another task makes it.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) async fn session(&self, host: &str) -> Result<Arc<Session>, HostError> {
        let link = self.link(host);
        let mut slot = link.slot.lock().await;
        if let Some(session) = &slot.session {
            return Ok(session.clone());
        }
        if !slot.mending {
            self.inner.publish(host, LinkState::Connecting);
        }
        let made = self.inner.make(host, &mut slot).await;
        if let Err(error) = &made
            && !slot.mending
        {
            self.inner.publish(host, LinkState::Down { why: error.to_string() });
        }
        made
    }

    /// Forgets a link that broke and begins to make it anew; does nothing where that was done already.
    pub(super) async fn lost(&self, host: &str, session: &Arc<Session>) {
        let link = self.link(host);
        let mut slot = link.slot.lock().await;
        if !slot.session.as_ref().is_some_and(|s| Arc::ptr_eq(s, session)) {
            return;
        }
        slot.session = None;
        let next = soon(1);
        self.inner.publish(host, LinkState::Reconnecting { attempt: 1, next });
        if !std::mem::replace(&mut slot.mending, true) {
            tokio::spawn(mend(Arc::downgrade(&self.inner), Arc::downgrade(&link), host.to_owned()));
        }
    }
}

impl Inner {
    async fn make(&self, host: &str, slot: &mut Slot) -> Result<Arc<Session>, HostError> {
        let session = Arc::new(ssh::connect(&self.settings, host).await?);
        forward::renew(host, &session, &mut slot.forwards).await;
        slot.session = Some(session.clone());
        self.publish(host, LinkState::Up { since: Timestamp::now() });
        Ok(session)
    }

    fn publish(&self, host: &str, state: LinkState) {
        self.states.send_modify(|all| {
            all.insert(host.to_owned(), state);
        });
    }
}

fn soon(attempt: u32) -> Timestamp {
    Timestamp::now() + back_off(attempt)
}

/// Makes a link anew until it stands, somebody else made it, trying is of no use, or nobody wants it any more.
async fn mend(inner: Weak<Inner>, link: Weak<Link>, host: String) {
    for attempt in 1_u32.. {
        tokio::time::sleep(back_off(attempt)).await;
        let (Some(inner), Some(link)) = (inner.upgrade(), link.upgrade()) else { return };
        let mut slot = link.slot.lock().await;
        if slot.session.is_some() {
            slot.mending = false;
            return;
        }
        match inner.make(&host, &mut slot).await {
            Ok(_) => {
                slot.mending = false;
                return;
            }
            Err(error) if error.is_lasting() => {
                slot.mending = false;
                inner.publish(&host, LinkState::Down { why: error.to_string() });
                return;
            }
            Err(_) => {
                let next = soon(attempt + 1);
                inner.publish(&host, LinkState::Reconnecting { attempt: attempt + 1, next });
            }
        }
    }
}
