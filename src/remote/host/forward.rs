//! A server's port on another host, reached through the link: a port of this machine stands for it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use openssh::{ForwardType, Session, Socket};

use super::{Host, HostError, Hosts, ssh};
use crate::case::{Case, Target};
use crate::engine::procedure::Failure;

/// How often another local port is tried when one was taken meanwhile.
const TRIES: u32 = 5;

/// The target with the URL under which this machine reaches it: its own where it is local, else that of a
/// forwarded port, which stays the same when the link is made anew.
///
/// # Errors
/// The host cannot be reached, or does not let ports be forwarded.
pub async fn reach(hosts: &Hosts, target: &Target) -> Result<Target, Failure> {
    let Host::Ssh(host) = Host::named(&target.host).map_err(HostError::failure)? else { return Ok(target.clone()) };
    let Some((scheme, there, port, path)) = parts(&target.url) else {
        return Err(Failure::new(format!("the url of `{}` has no host and port", target.name)));
    };
    if scheme != "http" {
        let message = format!("`{}` speaks `{scheme}`, and only `http` is forwarded from another host", target.name);
        return Err(Failure::new(message).hint("give the url of the server's plain port on its host"));
    }
    let here = local_port(hosts, &host, there, port).await.map_err(HostError::failure)?;
    Ok(Target { url: format!("http://127.0.0.1:{here}{path}"), ..target.clone() })
}

/// The case with every target's URL as this machine reaches it.
///
/// # Errors
/// One of them cannot be reached.
pub async fn reach_all(hosts: &Hosts, case: &Case) -> Result<Case, Failure> {
    let mut case = case.clone();
    for target in &mut case.targets {
        *target = reach(hosts, target).await?;
    }
    Ok(case)
}

/// Scheme, host, port and the rest of an URL.
fn parts(url: &str) -> Option<(&str, &str, u16, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = authority.rsplit_once(':')?;
    let host = host.rsplit('@').next()?;
    Some((scheme, host, port.parse().ok().filter(|p| *p != 0)?, path))
}

async fn local_port(hosts: &Hosts, host: &str, there: &str, port: u16) -> Result<u16, HostError> {
    let key = (there.to_owned(), port);
    for again in [true, false] {
        let session = hosts.session(host).await?;
        let link = hosts.link(host);
        let mut slot = link.slot.lock().await;
        if !slot.session.as_ref().is_some_and(|s| Arc::ptr_eq(s, &session)) {
            continue;
        }
        if let Some(here) = slot.forwards.get(&key) {
            return Ok(*here);
        }
        let mut last = String::new();
        for _ in 0..TRIES {
            let here = free_port().map_err(|why| HostError::Forward { host: host.into(), port, why })?;
            match request(&session, here, there, port).await {
                Ok(()) => {
                    slot.forwards.insert(key, here);
                    return Ok(here);
                }
                Err(why) => last = why,
            }
            if !ssh::stands(&session).await {
                break;
            }
        }
        drop(slot);
        if ssh::stands(&session).await || !again {
            let why = crate::untrusted::Untrusted::from(last).visible(160);
            return Err(HostError::Forward { host: host.into(), port, why });
        }
        // The link broke unseen, as after a long sleep; it is made anew once.
        hosts.lost(host, &session).await;
    }
    Err(HostError::LinkLost { host: host.into() })
}

/// A port that nobody uses at the moment; ssh opens it right after, and says where it was too late.
fn free_port() -> Result<u16, String> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    socket.local_addr().map(|a| a.port()).map_err(|e| e.to_string())
}

async fn request(session: &Session, here: u16, there: &str, port: u16) -> Result<(), String> {
    let listen = Socket::TcpSocket { host: Ipv4Addr::LOCALHOST.to_string().into(), port: here };
    let connect = Socket::TcpSocket { host: there.to_owned().into(), port };
    session.request_port_forward(ForwardType::Local, listen, connect).await.map_err(|error| {
        use std::error::Error as _;
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    })
}

/// Asks a new link for the forwards of the one before, on the same ports; one that is refused is forgotten
/// and asked for when it is wanted.
pub(super) async fn renew(host: &str, session: &Session, forwards: &mut BTreeMap<(String, u16), u16>) {
    let before = std::mem::take(forwards);
    for ((there, port), here) in before {
        match request(session, here, &there, port).await {
            Ok(()) => {
                forwards.insert((there, port), here);
            }
            Err(why) => tracing::warn!(host, port, why, "a forwarded port could not be renewed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_url_is_taken_apart() {
        for (url, expect) in [
            ("http://127.0.0.1:30000", Some(("http", "127.0.0.1", 30000, ""))),
            ("http://box:1/v1?x=2", Some(("http", "box", 1, "/v1?x=2"))),
            ("https://u:p@[::1]:2/", Some(("https", "[::1]", 2, "/"))),
            ("http://box", None),
            ("http://box:0", None),
            ("box:1", None),
        ] {
            assert_eq!(parts(url), expect, "{url}");
        }
    }
}
