//! Every lease that stands on a host, whoever took it: what to put back when no session is left to do it.
//!
//! Not responsible for one target's lease before a change, which `remote::ground` reads.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use super::lease::{self, Found};
use super::machine::{Machine, ShellFailure};
use super::probe::frame::{Frame, Section, Unread};
use super::probe::parse;
use super::probe::types::Reading;
use super::proc::Unknown;
use super::procedures::{Folders, roots};
use super::shell_text;
use crate::engine::procedure::Failure;
use crate::redact;
use crate::untrusted::Untrusted;

/// The script, which is the same for every host.
pub const SCRIPT: &str = concat!(include_str!("probe/frame.sh"), include_str!("leases.sh"));
/// A server may take minutes to end, and others are waited for.
const RESTORE_S: f64 = 600.0;

/// A lease that stands on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its folder.
    pub path: String,
    /// Who holds it; `Nobody` where the host has put the target back.
    pub found: Found,
    /// What the holder wrote down for people.
    pub said: Untrusted,
    /// The text that puts the target back, or why it cannot be read.
    pub script: Reading<String>,
}

/// Looks for leases; `local` is our folder where the host is this machine.
///
/// # Errors
/// The host cannot be asked, or its answer broke off.
pub async fn list(
    machine: &Machine,
    local: Option<&Folders>,
    cancel: &CancellationToken,
) -> Result<Vec<Standing>, Failure> {
    let frame = machine.framed(SCRIPT, &roots(local), cancel).await?;
    if !frame.whole {
        return Err(Failure::new(format!("the answer of `{}` broke off", machine.place().host.name())));
    }
    let unread = frame.sections.keys().find(|name| name.starts_with("unread.")).cloned();
    if let Some(folder) = unread.and_then(|name| parse::text(&frame, &name).ok()) {
        return Err(Failure::new(format!(
            "`{folder}` on `{}` cannot be read, and may hold leases",
            machine.place().host.name()
        ))
        .hint("look with more rights: `--become 'sudo -n'`"));
    }
    Ok((0..).map_while(|number| standing(&frame, number)).collect())
}

fn standing(frame: &Frame, number: usize) -> Option<Standing> {
    let name = |what: &str| format!("lease.{number}.{what}");
    let path = parse::text(frame, &name("path")).ok()?;
    let file = |what: &str| match frame.sections.get(&name(what)) {
        Some(Section::Unread(Unread::Gone(_))) => Ok(None),
        _ => parse::text(frame, &name(what)).map(Some),
    };
    let names = ["holder", "token", "until", "restored", "program"];
    let files: BTreeMap<String, Reading<Option<String>>> = names.iter().map(|n| ((*n).to_owned(), file(n))).collect();
    let said = match &files["holder"] {
        Ok(text) => redact::text(text.as_deref().unwrap_or("nobody said who").trim()),
        Err(Unknown(why)) => why.clone(),
    };
    Some(Standing {
        path,
        found: lease::read(&files),
        said: said.into(),
        script: parse::text(frame, &name("restore.sh")),
    })
}

/// The text that puts one target back and takes its lease away.
///
/// # Errors
/// Its path cannot stand in a shell text.
pub fn put_back(lease: &Standing) -> Result<String, Failure> {
    let path = shell_text::quote(&lease.path)?;
    Ok(format!("sh {path}/restore.sh restore && rm -rf {path}"))
}

/// Puts one target back; says what the host said.
///
/// # Errors
/// The host could not do it.
pub async fn restore(machine: &Machine, lease: &Standing, cancel: &CancellationToken) -> Result<String, Failure> {
    let (root, stem) = lease.path.rsplit_once("/leases/").unwrap_or((&lease.path, "lease"));
    // Not among the jobs of the target, which the text takes away.
    let job = format!("{root}/restores/{stem}");
    let text = put_back(lease)?;
    let end = machine.detached(&job, &text, RESTORE_S, cancel).await.map_err(ShellFailure::failure)?;
    if end.ok() {
        return Ok(redact::text(end.out.trim()));
    }
    Err(Failure::new(format!(
        "`{stem}` could not be put back: {}",
        Untrusted::from(redact::text(&end.last_line())).visible(200)
    ))
    .hint(format!("on the host, `sh {}/restore.sh` does the same", lease.path)))
}
