//! A checkpoint as large as a published one, read by range.

use std::os::unix::fs::MetadataExt as _;

use patchbench::kernel::checkpoint::Checkpoint;

use crate::common::sparse::{bytes_of, content, write_flash};

#[test]
fn of_168_gigabytes_only_the_hyper_connections_and_their_headers_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = write_flash(folder.path());
    let files = || fs_err::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.metadata().unwrap());
    let (apparent, on_disk) = (files().map(|m| m.len()).sum::<u64>(), files().map(|m| m.blocks() * 512).sum::<u64>());
    assert!(apparent > 160_000_000_000 && on_disk < 400_000_000, "{apparent} {on_disk}");

    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let totals = checkpoint.totals();
    assert_eq!((totals.tensors, totals.shards, totals.hc_tensors), (135_235, 46, 270));
    assert_eq!(totals.bytes, Some(sparse.data));
    assert_eq!(checkpoint.transfer().bytes, sparse.index);

    checkpoint.fetch(&sparse.names(), &|_, _, _| {}, &|| false).unwrap();
    assert_eq!(checkpoint.totals().headers, 45, "the shard with the embedding holds none of them");
    for (number, tensor) in sparse.hc.iter().enumerate() {
        let stored = checkpoint.stored(&tensor.name).unwrap();
        assert_eq!((stored.dtype, &stored.shape), (tensor.dtype, &tensor.shape), "{}", tensor.name);
        assert!(stored.bytes == content(number, bytes_of(tensor)), "{}", tensor.name);
    }
    let moved = checkpoint.transfer();
    assert_eq!(moved.bytes, sparse.index + sparse.headers + sparse.hc_bytes());
    assert_eq!(sparse.hc_bytes(), 88 * (24 * 16384 + 24 + 3) * 4 + 2 * (4 * 16384 + 4 + 1) * 4);
    assert_eq!(moved.requests, 1 + 2 * 45 + 270);
    println!("{}", checkpoint.summary());
}
