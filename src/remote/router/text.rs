//! The text by which the host of a target brings it back into its routers without us, and its place beside the way back.
//! Pure: it is shown, journaled and run exactly as built here.
//!
//! A host needs `curl` for it, or bash, which can speak plain HTTP by itself. A router's key is never written down, so
//! that a router that wants one cannot be told by a host.

use std::fmt::Write as _;

use super::plan::{host_of, is_loopback};
use crate::case::{Target, port_of};
use crate::engine::procedure::{Failure, RoutedWorker};
use crate::remote::shell_text::quote;

/// Base URL of the router as the host of the target reaches it, or why it cannot be told anything from there.
pub(crate) type WayBack = Result<String, String>;

/// How the host of `target` reaches a router.
///
/// # Errors
/// It does not, or may not: in one clause.
pub(crate) fn way_back(router: &Target, target: &Target) -> WayBack {
    if router.api_key.is_some() || target.api_key.is_some() {
        return Err("that needs a key, which is never written down on a host".into());
    }
    let host = host_of(&router.url).unwrap_or_default();
    if router.host != target.host && is_loopback(host) {
        return Err(format!("its address `{}` is known on its own host alone", router.url));
    }
    Ok(router.url.trim_end_matches('/').to_owned())
}

/// Asks a router: `curl` where it is, else bash itself. Needs `base`, `host`, `port` and `prefix`.
const ASK: &str = r#"ask() {
  if command -v curl >/dev/null 2>&1; then
    if [ $# = 3 ]; then curl -sSf -m 5 -X "$1" -H 'Content-Type: application/json' -d "$3" "$base$2"
    else curl -sSf -m 5 -X "$1" "$base$2"; fi
  elif [ "${base#http://}" != "$base" ] && command -v bash >/dev/null 2>&1; then
    LC_ALL=C timeout 5 bash -c '
      exec 3<>"/dev/tcp/$1/$2" || exit 1
      printf "%s %s HTTP/1.0\r\nHost: %s:%s\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s" \
        "$3" "$4" "$1" "$2" "${#5}" "$5" >&3
      IFS= read -r status <&3
      case $status in "HTTP/1."?" 2"*) ;; *) echo "it answered ${status%?}"; exit 1 ;; esac
      cat <&3
    ' patchbench "$host" "$port" "$1" "$prefix$2" "${3-}"
  else echo 'neither curl nor bash can ask it from here'; return 1; fi
}
listens() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v p="$own" '$4 == "0A" && $2 ~ ":" p "$" { f = 1 } END { exit !f }'; }
# A router may give a worker up that does not answer yet, so that its server gets some time first.
back() {
  i=0; until listens || [ $i -ge 240 ]; do sleep 1; i=$((i+1)); done
  i=0; while :; do
    if said=$(ask GET /workers 2>&1); then
      case $said in *"\"$url\""*) echo "$router has $url"; return 0 ;; esac
      if said=$(ask POST /workers "$body" 2>&1); then echo "$router was told to bring $url back"; return 0; fi
    fi
    [ $i -lt 10 ] || break
    sleep 2; i=$((i+1))
  done
  echo "$router does not have $url and could not be told: $said"
  echo "bring it back by hand: POST $base/workers with $body"
  return 1
}"#;

/// The text that brings workers back where their routers lack them, and says plainly where it cannot.
///
/// # Errors
/// A value cannot stand in a shell text.
pub(super) fn bring_back(target: &Target, workers: &[(&RoutedWorker, &WayBack)]) -> Result<String, Failure> {
    let mut out = format!(
        "# Brings {} back into its router, where it is not there; restore.sh runs it\n\
         own={:04X} all=0\n\
         {ASK}\n",
        target.name,
        target.port().unwrap_or_default()
    );
    for (worker, way) in workers {
        let router = quote(&worker.router)?;
        match way {
            Ok(base) => {
                let host = host_of(base).unwrap_or_default().trim_matches(['[', ']']);
                let port = port_of(base).unwrap_or_default();
                let prefix = base.split_once("://").and_then(|(_, rest)| rest.find('/').map(|i| &rest[i..]));
                // Writing to a text cannot fail.
                let _ = writeln!(
                    out,
                    "router={router} base={} host={} port={port} prefix={} url={}\nbody={}\nback || all=1",
                    quote(base)?,
                    quote(host)?,
                    quote(prefix.unwrap_or_default())?,
                    quote(&worker.url)?,
                    quote(&worker.body.to_string())?,
                );
            }
            Err(why) => {
                let line = format!(
                    "{} must be told by hand to bring {} back, if it lacks it: {why}",
                    worker.router, worker.url
                );
                let _ = writeln!(out, "echo {}; all=1", quote(&line)?);
            }
        }
    }
    out.push_str("exit $all\n");
    Ok(out)
}

/// Puts what brings the workers back into the lease.
pub(super) fn keep(lease: &str, record: &str, script: &str) -> Result<String, Failure> {
    Ok(format!(
        "lease={}; [ -d \"$lease\" ] || {{ echo 'the lease is gone' >&2; exit 1; }}\n\
         umask 077\n\
         printf '%s' {} >\"$lease/router.new\" && mv \"$lease/router.new\" \"$lease/router.sh\" &&\n\
         printf '%s\\n' {} >\"$lease/worker.new\" && mv \"$lease/worker.new\" \"$lease/worker\"",
        quote(lease)?,
        quote(script)?,
        quote(record)?
    ))
}

/// Whether it stands there.
pub(super) fn is_kept(lease: &str, record: &str) -> Result<String, Failure> {
    Ok(format!(
        "lease={}; [ -r \"$lease/router.sh\" ] && [ \"$(cat \"$lease/worker\" 2>/dev/null)\" = {} ]",
        quote(lease)?,
        quote(record)?
    ))
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
