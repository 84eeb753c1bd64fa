//! What a source checkout says of the server's arithmetic: the constants of the Python package `patchlab`.
//!
//! Responsible for finding the package as Python would, for its constants, and for what they change.
//! Not responsible for the text of Python (`text`) or for writing a checkout ([`checkout`]).

pub mod checkout;
mod constants;
mod text;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::model::{Arithmetic, Faults, KvDtype, MhcGemm, RoutedScaling};

/// The package that is looked for.
pub const PACKAGE: &str = "patchlab";

/// What the constants of a checkout ask for; the default is what the program computes without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants {
    /// The mixing product, instead of what its flag says.
    pub mhc: Option<MhcGemm>,
    /// The routed scaling factor, instead of what its flag says.
    pub routed_scaling: Option<RoutedScaling>,
    /// Stored keys and values, instead of what their flag says.
    pub kv: Option<KvDtype>,
    /// What is broken for every request.
    pub faults: Faults,
}

/// Why a checkout cannot be run, as Python would end with a traceback.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file of the package cannot be read, or a folder cannot be named.
    #[error("cannot read the source: {0}")]
    Read(#[from] std::io::Error),
    /// A line does not say what the lab can run.
    #[error("cannot run `{}`, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A file lacks a constant.
    #[error("cannot run `{}`: it never sets `{name}`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The constant.
        name: &'static str,
    },
}

impl Constants {
    /// The arithmetic of a server whose flags and variables say `told`.
    pub fn arithmetic(&self, told: Arithmetic) -> Arithmetic {
        Arithmetic {
            mhc: self.mhc.unwrap_or(told.mhc),
            routed_scaling: self.routed_scaling.unwrap_or(told.routed_scaling),
            kv: self.kv.unwrap_or(told.kv),
            ..told
        }
    }
}

/// The folder of the package by the value of `PYTHONPATH`, as a whole path; `None` where no entry has one.
///
/// As in Python an empty entry is the working folder, and a folder without `__init__.py` counts only where no entry
/// has one with it.
///
/// # Errors
/// The working folder cannot be named.
pub fn folder(search_path: Option<&OsStr>) -> std::io::Result<Option<PathBuf>> {
    let Some(search_path) = search_path.filter(|p| !p.is_empty()) else { return Ok(None) };
    let folders: Vec<PathBuf> = std::env::split_paths(search_path).map(|entry| entry.join(PACKAGE)).collect();
    let regular = folders.iter().find(|folder| folder.join("__init__.py").is_file());
    let found = regular.or_else(|| folders.iter().find(|folder| folder.is_dir()));
    found.map(std::path::absolute).transpose()
}

/// Reads the files of the package in `folder`, and tells each one that was read.
///
/// # Errors
/// A file is missing or no UTF-8, or says anything that the lab cannot run.
pub fn read(folder: &Path, mut loaded: impl FnMut(&Path)) -> Result<Constants, SourceError> {
    let mut constants = Constants::default();
    for file in constants::FILES {
        let path = folder.join(file.name);
        let bytes = fs_err::read(&path)?;
        file.take(&bytes, &mut constants).map_err(|e| e.at(path.clone()))?;
        loaded(&path);
    }
    Ok(constants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, names: &[&str]) {
        for name in names {
            fs_err::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs_err::write(root.join(name), "").unwrap();
        }
    }

    #[test]
    fn the_package_is_found_as_python_finds_it() {
        let root = tempfile::tempdir().unwrap();
        let files = ["a/other/x.py", "b/patchlab/cache.py", "c/patchlab/__init__.py", "d/patchlab/__init__.py"];
        put(root.path(), &files);
        let check = |entries: &[&str], expect: Option<&str>| {
            let path = std::env::join_paths(entries.iter().map(|e| root.path().join(e))).unwrap();
            let expect = expect.map(|e| root.path().join(e).join(PACKAGE));
            assert_eq!(folder(Some(&path)).unwrap(), expect, "{entries:?}");
        };
        check(&[], None);
        check(&["a", "nowhere"], None);
        check(&["a", "c", "d"], Some("c"));
        check(&["d", "c"], Some("d"));
        check(&["a", "b"], Some("b"));
        check(&["b", "c"], Some("c"));
        assert_eq!(folder(None).unwrap(), None);
    }

    #[test]
    fn an_entry_that_is_relative_is_named_whole() {
        // Tests run in the root of the repository.
        let found = folder(Some(OsStr::new("/nowhere:lab/source/python"))).unwrap().unwrap();
        assert_eq!(found, Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/source/python/patchlab"));
    }

    #[test]
    fn a_file_that_is_missing_or_no_text_is_named() {
        let root = tempfile::tempdir().unwrap();
        let checkout = checkout::write(root.path()).unwrap();
        let package = checkout.join("python/patchlab");
        let mut told = Vec::new();
        read(&package, |path| told.push(path.to_owned())).unwrap();
        assert_eq!(told, ["indexer.py", "mhc.py", "moe.py", "cache.py"].map(|name| package.join(name)));

        fs_err::write(package.join("moe.py"), b"ROUTED_SCALING = None\n\"\xff\"\n").unwrap();
        let error = read(&package, |_| ()).unwrap_err().to_string();
        assert_eq!(error, format!("cannot run `{}`, line 2: it is not UTF-8", package.join("moe.py").display()));
        fs_err::remove_file(package.join("mhc.py")).unwrap();
        let error = read(&package, |_| ()).unwrap_err().to_string();
        assert!(error.contains("mhc.py"), "{error}");
    }

    #[test]
    fn a_constant_goes_before_a_flag_and_none_leaves_it() {
        let told = Arithmetic { mhc: MhcGemm::Bf16, paged_indexer: true, ..Arithmetic::default() };
        assert_eq!(Constants::default().arithmetic(told), told);
        let constants = Constants { mhc: Some(MhcGemm::Fp32), kv: Some(KvDtype::Fp8E4m3), ..Constants::default() };
        let expect = Arithmetic { mhc: MhcGemm::Fp32, kv: KvDtype::Fp8E4m3, ..told };
        assert_eq!(constants.arithmetic(told), expect);
    }
}
