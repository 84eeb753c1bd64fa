//! A checkpoint on another host: what is moved, what is not, and what is said when it cannot be read.

use std::sync::Mutex;

use patchbench::kernel::checkpoint::{Checkpoint, open_place_over, size};

use super::sshd::Sshd;
use super::{hosts, json, skipped};
use crate::common::sparse::{bytes_of, content, write_config, write_flash};

/// Opens the checkpoint in a folder of the host `lab`, with its ranges kept in a folder.
fn open(sshd: &Sshd, place: &std::path::Path, cache: &std::path::Path) -> Checkpoint {
    let place = format!("ssh:lab:{}", place.display());
    open_place_over(&place, &hosts(sshd), Some(cache.to_owned()), &|_, _, _| {}, &|| false).unwrap()
}

#[test]
fn a_large_checkpoint_is_read_by_range_and_the_second_time_not_at_all() {
    if skipped("ssh").is_some() {
        return;
    }
    let (sshd, folder, cache) = (Sshd::start(""), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sparse = write_flash(folder.path());
    let first = open(&sshd, folder.path(), cache.path());
    assert_eq!((first.transfer().bytes, first.transfer().requests), (sparse.index, 2));
    let seen = Mutex::new(Vec::new());
    let note = |done: u64, all: u64, says: &str| seen.lock().unwrap().push((done, all, says.to_owned()));
    first.fetch(&sparse.names(), &note, &|| false).unwrap();
    let moved = first.transfer();
    assert_eq!(moved.bytes, sparse.index + sparse.headers + sparse.hc_bytes());
    assert_eq!(sshd.commands() as u64, moved.requests, "each question is one command");
    assert!(moved.requests < 30, "{moved:?}");
    let seen = seen.into_inner().unwrap();
    let (done, all, says) = seen.last().unwrap();
    assert_eq!((*done, *all), (sparse.hc_bytes(), sparse.hc_bytes()));
    assert!(says.contains(" from lab, ") && says.contains(" s left"), "{says}");

    for (number, tensor) in sparse.hc.iter().enumerate() {
        let stored = first.stored(&tensor.name).unwrap();
        assert_eq!((stored.dtype, &stored.shape), (tensor.dtype, &tensor.shape), "{}", tensor.name);
        assert!(stored.bytes == content(number, bytes_of(tensor)), "{}", tensor.name);
    }
    assert_eq!(first.transfer().requests, moved.requests, "what was fetched is here");
    println!("{}", first.summary());

    let second = open(&sshd, folder.path(), cache.path());
    second.fetch(&sparse.names(), &|_, _, _| {}, &|| false).unwrap();
    for tensor in &sparse.hc {
        second.stored(&tensor.name).unwrap();
    }
    let again = second.transfer();
    assert_eq!((again.bytes, again.requests, again.refetched), (0, 1, 0));
    assert_eq!(again.cached, moved.bytes);
}

/// Bytes of all that is kept in a folder, without the hash in front of each entry.
fn kept_in(folder: &std::path::Path) -> u64 {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| if entry.path().is_dir() { kept_in(&entry.path()) } else { entry.metadata().unwrap().len() - 32 })
        .sum()
}

#[test]
fn the_mixing_of_a_large_checkpoint_is_measured_on_the_bytes_of_its_sites_alone() {
    if skipped("ssh").is_some() {
        return;
    }
    let (sshd, folder, root) = (Sshd::start(""), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sparse = write_flash(folder.path());
    let config = write_config(folder.path());
    let place = format!("ssh:lab:{}", folder.path().display());
    let measure = || {
        let before = sshd.commands();
        let (status, found) = json(root.path(), Some(&sshd), &["micro", "mhc-mix", "--checkpoint", &place]);
        assert!(status < 2, "{found:#}");
        (found["reports"][0].clone(), sshd.commands() - before)
    };
    let (first, asked) = measure();
    let moved = sparse.index + config + sparse.layer_headers + sparse.site_bytes();
    assert_eq!(sparse.site_bytes(), 86 * (24 * 16384 + 24 + 3) * 4);
    assert_eq!(kept_in(&root.path().join("cache")), moved, "nothing else was moved");
    let provenance = first["provenance"].as_str().unwrap();
    let says = format!("weights of lab:{}: 135235 tensors in 46 files, ", folder.path().display());
    assert!(provenance.starts_with(&says), "{provenance}");
    let says = format!("; {} moved in {asked} reads, ", size(moved));
    assert!(asked < 30 && provenance.contains(&says), "{says} in {provenance}");
    assert!(provenance.contains("; streams and sublayer outputs: synthetic"), "{provenance}");
    assert_eq!(first["curves"][0]["labels"].as_array().map(Vec::len), Some(86));
    assert!(
        first["shape"].as_str().unwrap().contains("256 tokens") && first["shape"].as_str().unwrap().contains("4096")
    );
    assert!(first["controls"].as_array().unwrap().iter().all(|c| c["caught"] == true), "{:#}", first["controls"]);
    assert!(first["verdicts"].as_array().unwrap().iter().all(|v| v["class"] != "broken"), "{:#}", first["verdicts"]);

    let (second, asked) = measure();
    let says = format!("; {} moved in 1 reads, ", size(0));
    assert!(second["provenance"].as_str().unwrap().contains(&says), "{says}: {}", second["provenance"]);
    assert_eq!(
        (asked, kept_in(&root.path().join("cache"))),
        (1, moved),
        "it is only asked whether the files are the same"
    );
    assert_eq!(second["curves"], first["curves"]);
}

#[test]
fn a_login_shell_that_talks_does_no_harm_to_bytes() {
    if skipped("ssh").is_some() {
        return;
    }
    let sshd = Sshd::start("ForceCommand echo Welcome; echo oops >&2; sh -c \"$SSH_ORIGINAL_COMMAND\"; echo bye");
    let (lab, cache) = (std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("lab"), tempfile::tempdir().unwrap());
    let (here, there) = (Checkpoint::open(&lab).unwrap(), open(&sshd, &lab, cache.path()));
    let names = here.names();
    there.fetch(&names, &|_, _, _| {}, &|| false).unwrap();
    for name in &names {
        assert_eq!(there.stored(name).unwrap(), here.stored(name).unwrap());
    }
}

#[test]
fn a_microtest_measures_a_checkpoint_on_a_host_as_here() {
    if skipped("ssh").is_some() {
        return;
    }
    let (sshd, root) = (Sshd::start(""), tempfile::tempdir().unwrap());
    let lab = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("lab");
    let place = format!("ssh:lab:{}", lab.display());
    let (status, there) = json(root.path(), Some(&sshd), &["micro", "mhc-mix", "--checkpoint", &place]);
    assert_eq!(status, 0, "{there}");
    let provenance = there["reports"][0]["provenance"].as_str().unwrap();
    assert!(provenance.contains(&format!("lab:{}", lab.join("model.safetensors").display())), "{provenance}");
    let (_, here) = json(root.path(), None, &["micro", "mhc-mix", "--checkpoint", lab.to_str().unwrap()]);
    assert_eq!(there["reports"][0]["curves"], here["reports"][0]["curves"]);
}

#[test]
fn a_place_on_a_host_that_cannot_be_read_is_one_sentence_with_a_hint() {
    if skipped("ssh").is_some() {
        return;
    }
    let (sshd, root) = (Sshd::start(""), tempfile::tempdir().unwrap());
    for (place, message) in [
        ("ssh:lab:/nowhere/model", "`/nowhere/model` is not on `lab`"),
        ("ssh:lab:model", "`ssh:lab:model` names no absolute path on a host"),
        ("ssh:wrong-key:/m", "accepts none of our keys"),
        ("ssh:-oProxyCommand=touch x:/m", "is no name of a host"),
    ] {
        let (status, answer) = json(root.path(), Some(&sshd), &["micro", "mhc-mix", "--checkpoint", place]);
        assert_ne!(status, 0, "{answer}");
        let text = answer.to_string();
        assert!(text.contains(message) && text.contains("\"hint\""), "{place}: {answer:#}");
    }
}
