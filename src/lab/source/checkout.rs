//! The checkout that an installation may write: a tree with two patches that no gate switches, and their diffs.
//!
//! One patch loses what stood in the prompt, the other is harmless. They touch different files, so that each can be
//! taken out of the tree without the other.
//! Not responsible for reading the tree or for taking a patch out of it.

use std::path::{Path, PathBuf};

/// The folder of the checkout, below that of the lab.
pub const FOLDER: &str = "checkout";
/// The entry of `PYTHONPATH`, below the checkout.
pub const SEARCHED: &str = "python";

const FILES: [(&str, &str); 5] = [
    ("__init__.py", include_str!("../../../lab/source/python/patchlab/__init__.py")),
    ("cache.py", include_str!("../../../lab/source/python/patchlab/cache.py")),
    ("indexer.py", include_str!("../../../lab/source/python/patchlab/indexer.py")),
    ("mhc.py", include_str!("../../../lab/source/python/patchlab/mhc.py")),
    ("moe.py", include_str!("../../../lab/source/python/patchlab/moe.py")),
];

/// Diffs from the tree without a patch to the tree that is installed, in git's form.
const DIFFS: [(&str, &str); 2] = [
    ("index-page.diff", include_str!("../../../lab/source/patches/index-page.diff")),
    ("kv-fp8.diff", include_str!("../../../lab/source/patches/kv-fp8.diff")),
];

/// The two patches as a case has them; their diffs are named relative to the case.
pub(in crate::lab) const PATCHES: &str = r#"
[[patch]]
id = "index-page"
title = "Indexer keys begin after the page of the sinks"
site = "python/patchlab/indexer.py"
phases = ["extend", "decode"]
layers = "c4"
gate = { reverse = "patches/index-page.diff" }
suspect = "on"
changes = { order = "indexer keys one page on" }

[[patch]]
id = "kv-fp8"
title = "Keys and values stored in fp8"
site = "python/patchlab/cache.py"
phases = ["extend", "decode"]
layers = "all"
gate = { reverse = "patches/kv-fp8.diff" }
suspect = "on"
changes = { dtype = "fp32 -> fp8_e4m3 with one scale for each head" }
"#;

/// Writes the checkout and the diffs into the folder of a lab; returns the checkout.
///
/// # Errors
/// The file system refuses.
pub fn write(lab: &Path) -> std::io::Result<PathBuf> {
    let checkout = lab.join(FOLDER);
    let (package, patches) = (checkout.join(SEARCHED).join(super::PACKAGE), lab.join("patches"));
    for (folder, files) in [(&package, FILES.as_slice()), (&patches, DIFFS.as_slice())] {
        fs_err::create_dir_all(folder)?;
        for (name, text) in files {
            fs_err::write(folder.join(name), text)?;
        }
    }
    Ok(checkout)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::{Constants, PACKAGE, read};
    use super::*;
    use crate::lab::model::{Faults, KvDtype};

    struct Tree {
        root: tempfile::TempDir,
        checkout: PathBuf,
    }

    impl Tree {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let checkout = write(root.path()).unwrap();
            Self { root, checkout }
        }

        fn apply(&self, patch: &str, args: &[&str]) {
            let mut git = Command::new("git");
            git.arg("apply").args(args).arg(self.root.path().join("patches").join(patch));
            // A repository around the folder of the test would give the paths another meaning.
            git.current_dir(&self.checkout).env("GIT_CEILING_DIRECTORIES", self.root.path());
            let output = git.output().unwrap();
            assert!(output.status.success(), "{patch}: {}", String::from_utf8_lossy(&output.stderr));
        }

        fn constants(&self) -> Constants {
            read(&self.checkout.join(SEARCHED).join(PACKAGE), |_| ()).unwrap()
        }

        fn is_as_installed(&self) -> bool {
            let package = self.checkout.join(SEARCHED).join(PACKAGE);
            FILES.iter().all(|(name, text)| fs_err::read_to_string(package.join(name)).unwrap() == *text)
        }
    }

    #[test]
    fn each_diff_is_taken_out_alone_and_both_leave_the_clean_tree() {
        let index = Constants { faults: Faults { page_offset: 1, ..Faults::default() }, ..Constants::default() };
        let fp8 = Constants { kv: Some(KvDtype::Fp8E4m3), ..Constants::default() };
        let both = Constants { kv: fp8.kv, ..index.clone() };
        let check = |reversed: &[&str], expect: &Constants| {
            let tree = Tree::new();
            for patch in reversed {
                tree.apply(patch, &["-R", "-p1"]);
            }
            assert_eq!(tree.constants(), *expect, "without {reversed:?}");
            for patch in reversed.iter().rev() {
                tree.apply(patch, &["-p1"]);
            }
            assert!(tree.is_as_installed(), "{reversed:?} put back");
        };
        check(&[], &both);
        check(&["index-page.diff"], &fp8);
        check(&["kv-fp8.diff"], &index);
        check(&["index-page.diff", "kv-fp8.diff"], &Constants::default());
        check(&["kv-fp8.diff", "index-page.diff"], &Constants::default());
    }
}
