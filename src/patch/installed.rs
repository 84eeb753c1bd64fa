//! Installed files against the hashes that their wheel recorded, where there is no git: which of them are not as the
//! wheel had them. A record holds hashes, so that what changed in a file is not told.
//!
//! `differing` is pure. Not responsible for files that no wheel lists as its own package.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::inventory;
use super::types::{Entry, Touch};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::procedure::Failure;
use crate::untrusted::Untrusted;

/// How the folder of an installation's record is called.
pub const DIST_INFO: &str = ".dist-info";
/// Stands between the record and the hashes.
const SUMS: &str = "== the hashes of the files as they are";

/// Says that a folder has files that could not be read.
const UNREAD: &str = "== not all could be read";

/// Prints the record of the installation whose `.dist-info` folder is `$1`, and the hash of every file in the folders
/// that it names; changes nothing.
pub(super) const SCRIPT: &str = "cd -- \"$1\" || exit 1\n\
    [ -r RECORD ] || { echo 'it has no RECORD that can be read' >&2; exit 1; }\n\
    cat RECORD || exit 1\n\
    echo \"== the hashes of the files as they are\"\n\
    folders=$(cut -d, -f1 RECORD | tr -d '\"' | awk -F/ 'NF > 1 && $1 != \"..\" && $1 !~ /\\.dist-info$/ { print $1 }' | sort -u)\n\
    cd .. || exit 1\n\
    printf '%s\\n' \"$folders\" | while read -r folder; do\n\
    \x20 [ -n \"$folder\" ] || continue\n\
    \x20 find \"./$folder\" -name __pycache__ -prune -o -type f ! -name '*.pyc' -exec sha256sum {} + || echo \"== not all could be read\"\n\
    done\n";

/// The entries of what an installation answered; `folder` is its `.dist-info` folder.
///
/// # Errors
/// The answer is cut off, or the installation has no files of its own, as an editable one.
pub(super) fn entries(answer: &str, folder: &str) -> Result<(Vec<Entry>, Vec<Diagnostic>), Failure> {
    let name = folder.trim_end_matches('/').rsplit('/').next().unwrap_or(folder);
    let distribution = name.strip_suffix(DIST_INFO).unwrap_or(name);
    let (record, sums) = answer
        .split_once(&format!("{SUMS}\n"))
        .ok_or_else(|| Failure::new(format!("the answer about `{folder}` broke off")).hint("ask again"))?;
    let whole = !sums.lines().any(|line| line == UNREAD);
    let (mut files, unread) = differing(record, &sums.replace(&format!("{UNREAD}\n"), ""));
    if sums.trim().is_empty() {
        return Err(Failure::new(format!("`{distribution}` has no files of its own beside its record"))
            .hint("an editable installation takes its files from a checkout: import a range of commits from there"));
    }
    let remark = |line: &String| {
        let shown = Untrusted::from(line.as_str()).visible(160);
        Diagnostic::warning("record", format!("this line of the record is not understood: `{shown}`")).at(folder)
    };
    let mut remarks: Vec<Diagnostic> = unread.iter().map(remark).collect();
    if !whole {
        // What could not be read is not gone.
        files.retain(|(_, how)| *how != Touch::Deleted);
        let message = "some files could not be read, so that it is not known which are as recorded and which are gone";
        remarks.push(Diagnostic::warning("record", message).at(folder));
    }
    Ok((inventory::of_record(distribution, &files), remarks))
}

/// The files that are not as recorded, by path, and the lines that were not understood.
fn differing(record: &str, sums: &str) -> (Vec<(String, Touch)>, Vec<String>) {
    let mut wanted: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut unread = Vec::new();
    for line in record.lines().filter(|line| !line.trim().is_empty()) {
        let mut parts = line.rsplitn(3, ',').skip(1);
        match (parts.next(), parts.next()) {
            (Some(hash), Some(path)) => {
                let path = path.trim_matches('"').replace("\"\"", "\"");
                drop(wanted.insert(path, hash.strip_prefix("sha256=").and_then(hex)));
            }
            _ => unread.push(line.to_owned()),
        }
    }
    let mut out = Vec::new();
    let mut there = Vec::new();
    for line in sums.lines() {
        // A name that holds odd characters is quoted with a stroke before the line.
        let Some((hash, path)) = line.trim_start_matches('\\').split_once("  ") else {
            unread.push(line.to_owned());
            continue;
        };
        let path = path.trim_start_matches("./").to_owned();
        match wanted.get(&path) {
            Some(Some(recorded)) if recorded == hash => {}
            Some(Some(_)) => out.push((path.clone(), Touch::Modified)),
            Some(None) => unread.push(format!("{path}: no sha256 of it")),
            None => out.push((path.clone(), Touch::Added)),
        }
        there.push(path);
    }
    there.sort_unstable();
    let own = |path: &String| {
        let top = path.split('/').next().unwrap_or_default();
        path.contains('/') && top != ".." && !top.ends_with(DIST_INFO) && !path.contains("__pycache__")
    };
    let gone = wanted.keys().filter(|p| own(p) && there.binary_search(*p).is_err() && !is_compiled(p));
    out.extend(gone.map(|path| (path.clone(), Touch::Deleted)));
    out.sort_by(|a, b| a.0.cmp(&b.0));
    (out, unread)
}

/// Whether a file is what Python makes of a source by itself.
fn is_compiled(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, ending)| ending == "pyc")
}

/// A hash as wheels write it, in hexadecimal.
fn hex(text: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
    Some(bytes.iter().fold(String::new(), |out, byte| out + &format!("{byte:02x}")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Asks as a host is asked.
    fn answer(folder: &std::path::Path) -> String {
        let end = Command::new("sh").args(["-c", SCRIPT, "sh"]).arg(folder).output().unwrap();
        assert!(end.status.success(), "{end:?}");
        String::from_utf8(end.stdout).unwrap()
    }

    fn recorded(text: &str) -> String {
        let end = Command::new("sh").args(["-c", &format!("printf '{text}' | sha256sum")]).output().unwrap();
        let hash = String::from_utf8(end.stdout).unwrap();
        let bytes: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&hash[2 * i..2 * i + 2], 16).unwrap()).collect();
        format!("sha256={}", URL_SAFE_NO_PAD.encode(bytes))
    }

    #[test]
    fn files_that_are_not_as_the_wheel_had_them_are_patches_of_unknown_content() {
        let site = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = site.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        };
        write("pkg/same.py", "x");
        write("pkg/layers/attention/decode.py", "theirs");
        write("pkg/new one.py", "x");
        write("pkg/__pycache__/same.cpython-311.pyc", "x");
        let x = recorded("x");
        let record = format!(
            "pkg/same.py,{x},1\n\"pkg/layers/attention/decode.py\",{x},1\npkg/gone.py,{x},1\npkg-1.0.dist-info/RECORD,,\n\
             ../../bin/pkg,{x},1\npkg/__pycache__/same.cpython-311.pyc,,\nnonsense\n"
        );
        write("pkg-1.0.dist-info/RECORD", &record);
        let folder = site.path().join("pkg-1.0.dist-info");
        let (entries, remarks) = entries(&answer(&folder), folder.to_str().unwrap()).unwrap();
        let files: Vec<_> = entries.iter().map(|e| (e.files[0].path.as_str(), e.files[0].how.clone())).collect();
        let expect = [
            ("pkg/gone.py", Touch::Deleted),
            ("pkg/layers/attention/decode.py", Touch::Modified),
            ("pkg/new one.py", Touch::Added),
        ];
        assert_eq!(files, expect);
        assert!(entries[1].title.contains("is not as pkg-1.0 has it"), "{}", entries[1].title);
        assert_eq!((remarks.len(), entries[1].added), (1, 0), "{remarks:?}");
    }

    #[test]
    fn an_editable_installation_has_no_files_to_compare() {
        let site = tempfile::tempdir().unwrap();
        let folder = site.path().join("pkg-1.0.dist-info");
        fs_err::create_dir(&folder).unwrap();
        fs_err::write(folder.join("RECORD"), "__editable__.pkg-1.0.pth,sha256=AA,1\npkg-1.0.dist-info/RECORD,,\n")
            .unwrap();
        let failure = entries(&answer(&folder), folder.to_str().unwrap()).unwrap_err();
        assert!(failure.message.contains("no files of its own"), "{failure:?}");
        assert!(entries("pkg/a.py,sha256=AA,1\n", "x.dist-info").unwrap_err().message.contains("broke off"));
    }
}
