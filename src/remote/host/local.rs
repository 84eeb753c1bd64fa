//! Scripts on this machine, run by the same `sh -s` as on any other.

use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::{HostError, Limits, Output};
use crate::untrusted::Untrusted;

/// The most bytes of complaints that are kept.
const ERR_BYTES: usize = 16 * 1024;

pub(super) async fn run(
    words: &[String],
    script: &str,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Output, HostError> {
    let (program, args) = words.split_first().ok_or_else(|| no_program("", "no program"))?;
    let mut child = tokio::process::Command::new(program)
        .args(args)
        // What runs here is no part of a start of ours, even where this program is.
        .env_remove(crate::remote::MARK)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| no_program(program, &e.to_string()))?;
    let group = child.id();
    let (input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let work = async {
        let (out, err) = talk(script, input, out, err, limits.bytes).await;
        let status = child.wait().await.map_err(|e| no_program(program, &e.to_string()))?;
        Ok(Output { status: status.code(), out, err })
    };
    let failure = tokio::select! {
        end = work => return end,
        () = tokio::time::sleep(limits.time) => HostError::Timeout { host: "local".into(), seconds: limits.time.as_secs() },
        () = cancel.cancelled() => HostError::Cancelled,
    };
    if let Some(group) = group.and_then(|g| i32::try_from(g).ok()).and_then(rustix::process::Pid::from_raw) {
        // It may have ended by itself in the meantime.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    Err(failure)
}

fn no_program(program: &str, why: &str) -> HostError {
    HostError::Program { host: "local".into(), program: program.into(), why: why.into() }
}

/// Feeds the script and reads both outputs at once, so that neither side waits for the other; what goes
/// over the limits is read and dropped.
pub(super) async fn talk(
    script: &str,
    input: Option<impl tokio::io::AsyncWrite + Unpin>,
    out: Option<impl AsyncRead + Unpin>,
    err: Option<impl AsyncRead + Unpin>,
    bytes: usize,
) -> (Vec<u8>, Untrusted) {
    let feed = async {
        if let Some(mut input) = input {
            // A shell that ends early closes its end; its status and its output say why.
            let _ = input.write_all(script.as_bytes()).await;
            let _ = input.shutdown().await;
        }
    };
    // One byte more than the limit tells the reader that there was more.
    let ((), out, err) = tokio::join!(feed, bounded(out, bytes + 1), bounded(err, ERR_BYTES));
    (out, String::from_utf8_lossy(&err).into_owned().into())
}

async fn bounded(from: Option<impl AsyncRead + Unpin>, most: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let room = most.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
    kept
}
