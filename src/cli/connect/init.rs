//! `init HOST`: looks for model servers on a host, reading only, and writes a case.

use std::io::Write as _;
use std::path::Path;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::cli::answer::{Answer, Failed};
use crate::cli::args::InitArgs;
use crate::cli::connect::run::block_on;
use crate::cli::exit::Status;
use crate::cli::json::ErrorCode;
use crate::cli::{Context, init, output};
use crate::remote::host::{Host, HostError, Hosts, Place};
use crate::truth::survey::draft::{Production, draft};
use crate::truth::survey::{self, Survey};

/// Answers `init HOST`.
///
/// # Errors
/// The host cannot be reached, no model server was found, or the file is there already or cannot be written.
pub fn init(context: &Context, args: &InitArgs) -> Result<Answer, Failed> {
    let prints = args.out == Path::new("-");
    if !prints && args.out.exists() && !args.force {
        let message = format!("`{}` is there already", args.out.display());
        return Err(Failed::usage(ErrorCode::Usage, message).hint("`--out FILE` writes another, `--force` replaces it"));
    }
    let place = place(args).map_err(|e| Failed::from_failure(ErrorCode::Usage, &e.failure()))?;
    let survey = block_on(look(context, &place))?;
    if survey.servers.is_empty() {
        let failed = Failed::world(ErrorCode::Unreachable, format!("no model server was found on `{}`", args.host));
        let hidden = survey.unknown.len();
        return Err(failed.hint(match hidden {
            0 => "is it started? `patchbench init` looks for SGLang, vLLM, llama-server and the lab by their command lines".to_owned(),
            _ => format!("the owners of {hidden} ports could not be read: reach the host as the user who runs the servers, or give `--become 'sudo -n'`"),
        }));
    }
    let production = if args.not_production { Production::No } else { Production::Assumed };
    let text = draft(&survey, production, &Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    if prints {
        return Ok(init::answer(&survey, text, None, context.style));
    }
    write(&args.out, &text, args.force)?;
    Ok(init::answer(&survey, text, Some(&args.out), context.style))
}

fn place(args: &InitArgs) -> Result<Place, HostError> {
    let become_with = args.become_with.as_deref().unwrap_or_default();
    Place::new(Host::named(&args.host)?, become_with)
}

async fn look(context: &Context, place: &Place) -> Result<Survey, Failed> {
    let hosts = Hosts::default();
    let cancel = CancellationToken::new();
    let quiet = context.quiet;
    let host = place.host.name().to_owned();
    let progress = move |what: &str| {
        if !quiet {
            output::stderr_line(&format!("{host}: {what}"));
        }
    };
    tokio::select! {
        found = survey::find(&hosts, place, &progress, &cancel) => {
            found.map_err(|f| Failed::from_failure(ErrorCode::Unreachable, &f))
        }
        _ = tokio::signal::ctrl_c() => {
            cancel.cancel();
            Err(Failed::new(Status::Interrupted, ErrorCode::Interrupted, "interrupted; nothing was written"))
        }
    }
}

/// Whole or not at all.
fn write(path: &Path, text: &str, force: bool) -> Result<(), Failed> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrong = |e: std::io::Error| {
        Failed::world(ErrorCode::Io, format!("`{}` cannot be written: {e}", path.display())).hint("give `--out FILE`")
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(wrong)?;
    file.write_all(text.as_bytes()).map_err(wrong)?;
    // Somebody may have written one while the host was asked.
    let kept = if force { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map(|_| ()).map_err(|e| wrong(e.error))
}
