//! Reads a diff for commands that need its text, and writes each of its patches as a diff of its own.
//!
//! Not responsible for what the patches are; see `patch::inventory`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::case_file;
use crate::case::Case;
use crate::cli::answer::Failed;
use crate::cli::args::ImportArgs;
use crate::cli::connect::run::block_on;
use crate::cli::exit::Status;
use crate::cli::json::ErrorCode;
use crate::patch::diff;
use crate::patch::import::{self, ImportFrom, inventory_of};
use crate::patch::inventory;
use crate::remote::host::Hosts;

/// Where changes are read from: a file of that name, an installation, else a range of commits.
pub(super) fn source(named: &str, target: Option<&str>, checkout: Option<&Path>) -> ImportFrom {
    let checkout = checkout.map(|folder| folder.display().to_string());
    if target.is_none() && Path::new(named).is_file() {
        return ImportFrom::File { path: named.to_owned(), tree: checkout };
    }
    match ImportFrom::named(named, target, checkout) {
        // What is no file there is said to be neither.
        ImportFrom::File { path, tree } => ImportFrom::Range { target: None, folder: tree, range: path },
        other => other,
    }
}

/// The text of a diff.
///
/// # Errors
/// It cannot be read, or the user gave it up.
pub(super) fn read_diff(case: Option<&Case>, from: &ImportFrom) -> Result<Vec<u8>, Failed> {
    block_on(async {
        let (hosts, cancel) = (Hosts::default(), CancellationToken::new());
        tokio::select! {
            text = import::bytes(&hosts, case, from, &cancel) => {
                text.map_err(|failure| Failed::from_failure(ErrorCode::Refused, &failure))
            }
            _ = tokio::signal::ctrl_c() => {
                cancel.cancel();
                Err(Failed::new(Status::Interrupted, ErrorCode::Interrupted, "interrupted; nothing was written"))
            }
        }
    })
}

/// Writes the diff of each patch as `FOLDER/ID.diff`, and returns their paths by id. A file that is there with another
/// content stays as it is, and then none is written.
///
/// # Errors
/// The diff cannot be read, or a file cannot be written.
pub(super) fn write(args: &ImportArgs, from: &ImportFrom, folder: &Path) -> Result<BTreeMap<String, String>, Failed> {
    let case = args.case.as_deref().map(case_file).transpose()?;
    let text = read_diff(case.as_ref().map(|(case, _)| case), from)?;
    let diff = diff::read_bytes(&text);
    let groups = inventory_of(&diff, from.tree()).groups;
    let pieces = inventory::Pieces::new(&text, &diff);
    let wanted = groups.iter().map(|group| {
        let path = folder.join(format!("{}.diff", group.id));
        (group.id.clone(), path, pieces.of(group))
    });
    let wanted: Vec<_> = wanted.collect();
    for (_, path, piece) in &wanted {
        match fs_err::read(path) {
            Ok(there) if there != *piece => {
                let message = format!("`{}` is there with another content, and no diff was written", path.display());
                return Err(Failed::usage(ErrorCode::Io, message).hint("name an empty folder with `--diffs DIR`"));
            }
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
    }
    fs_err::create_dir_all(folder)?;
    for (_, path, piece) in &wanted {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(piece)?;
        // Somebody may have written one in the meantime; the same content is no loss.
        match file.persist_noclobber(path) {
            Err(e) if e.error.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.error.into()),
            _ => {}
        }
    }
    Ok(wanted.into_iter().map(|(id, path, _)| (id, path.display().to_string())).collect())
}
