//! Reads the diff of a patch as something that can be taken out of a checkout: which package it changes, which files.
//!
//! Not responsible for whether it fits the checkout; see `look`.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::procedure::Failure;
use crate::patch::diff::{self, Diff, FileDiff, Form};
use crate::patch::inventory::{self, Group, Part};
use crate::patch::types::Origin;
use crate::redact;

/// Folders of a repository in which its packages stand.
const ROOTS: &[&str] = &["python", "src"];
/// Folders of a repository that no server imports from.
const ASIDE: &[&str] =
    &["test", "tests", "doc", "docs", "benchmark", "benchmarks", "example", "examples", "scripts", ".github", "docker"];
/// Endings of sources that a compiler reads.
const COMPILED: &[&str] = &["c", "cc", "cpp", "cxx", "cu", "cuh", "h", "hpp", "inc", "rs"];

/// A package within a checkout.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    /// The folder that stands in a search path, below the checkout, such as `python`; empty is the checkout itself.
    pub(crate) root: String,
    /// The package's folder below that, such as `sglang`.
    pub(crate) name: String,
}

/// A diff that can be taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reversal {
    /// The patch.
    pub(crate) patch: String,
    /// The package whose files it changes.
    pub(crate) package: Package,
    /// The diff of those files.
    pub(crate) diff: String,
    /// Leading parts of its paths that are left out to come below the package's root.
    pub(crate) strip: usize,
    /// Files that it changes, below the package's root.
    pub(crate) files: BTreeSet<String>,
    /// Those that are there once it is taken out.
    pub(crate) left: BTreeSet<String>,
    /// Files that it changes outside of any package: they stay as they are.
    pub(crate) outside: Vec<String>,
    /// Whether what it changes is compiled while the server runs.
    pub(crate) kernels: bool,
}

impl Reversal {
    /// The Python files whose import shows that the copy is in use: what is left of what it changes, else the package.
    pub(crate) fn witnesses(&self) -> Vec<String> {
        let python = |file: &&String| file.rsplit_once('.').is_some_and(|(_, ending)| ending == "py");
        let left: Vec<String> = self.left.iter().filter(python).cloned().collect();
        if left.is_empty() { vec![format!("{}/__init__.py", self.package.name)] } else { left }
    }
}

/// Reads the diff of a patch at a path of this machine.
///
/// # Errors
/// It cannot be read whole, changes what is compiled before, or more than one package.
pub(crate) fn read(patch: &str, path: &str) -> Result<Reversal, Failure> {
    let text = fs_err::read_to_string(path).map_err(|error| {
        Failure::new(format!("the diff of `{patch}` cannot be read: {error}"))
            .hint("correct `gate = { reverse = \"…\" }` in the case; the path counts from the case file")
    })?;
    of_text(patch, &text)
}

/// Reads the text of a diff.
///
/// # Errors
/// See [`read`].
pub(crate) fn of_text(patch: &str, text: &str) -> Result<Reversal, Failure> {
    let refuse = |why: String| {
        Failure::new(format!("the diff of `{patch}` {why}"))
            .hint("make it anew from the checkout: `git diff`, or `patchbench patches import … --diffs DIR`")
    };
    let diff = diff::read(text);
    if let Some(remark) = diff.remarks.first() {
        return Err(refuse(format!("cannot be read whole: line {}: {}", remark.line, remark.text)));
    }
    if let Some(file) = diff.files.iter().find(|f| f.form != Form::Text || f.hunks.iter().any(|h| !h.complete)) {
        return Err(refuse(format!("does not give every line of `{}`, so that it cannot be taken out", file.path())));
    }
    if redact::text(text) != text {
        return Err(refuse("holds what looks like a secret, which would be written into the journal".into())
            .hint("take that file out of the diff"));
    }
    let mut packages: BTreeMap<Package, Vec<usize>> = BTreeMap::new();
    let mut outside = Vec::new();
    for (at, file) in diff.files.iter().enumerate() {
        match package(file) {
            Ok(package) => packages.entry(package).or_default().push(at),
            Err(Outside::Aside) => outside.push(file.path().to_owned()),
            Err(Outside::Compiled) => {
                return Err(refuse(format!(
                    "changes `{}`, which is compiled before the server starts: its source alone switches nothing",
                    file.path()
                ))
                .hint("build the package without the patch and install it yourself"));
            }
        }
    }
    let mut packages = packages.into_iter();
    let (Some((package, inside)), None) = (packages.next(), packages.next()) else {
        return Err(refuse("changes no package, or more than one".into())
            .hint("give one diff for each package, such as those below `python/sglang`"));
    };
    let below = |path: &Option<String>| path.as_deref().map(|p| below(p, &package.root).to_owned());
    let files = inside.iter().flat_map(|at| [below(&diff.files[*at].old), below(&diff.files[*at].new)]).flatten();
    let left = inside.iter().filter_map(|at| below(&diff.files[*at].old)).collect();
    Ok(Reversal {
        patch: patch.to_owned(),
        strip: prefixes(text) + package.root.split('/').filter(|p| !p.is_empty()).count(),
        files: files.collect(),
        left,
        outside,
        kernels: has_kernels(&diff),
        diff: part(text, &diff, &inside),
        package,
    })
}

/// Why a file belongs to no package.
enum Outside {
    /// No server imports it.
    Aside,
    /// It is built into one.
    Compiled,
}

fn package(file: &FileDiff) -> Result<Package, Outside> {
    let path = file.path();
    let parts: Vec<&str> = path.split('/').collect();
    let at = parts.iter().take(2).position(|part| ROOTS.contains(part));
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let root = match at {
        Some(at) => parts[..=at].join("/"),
        None if ASIDE.contains(&parts[0]) || parts.len() < 2 => return Err(Outside::Aside),
        None if COMPILED.contains(&ending) => return Err(Outside::Compiled),
        None => String::new(),
    };
    // A file beside the packages, such as `python/pyproject.toml`.
    match below(path, &root).split_once('/') {
        Some((name, _)) => Ok(Package { root, name: name.to_owned() }),
        None => Err(Outside::Aside),
    }
}

fn below<'p>(path: &'p str, root: &str) -> &'p str {
    path.strip_prefix(root).map_or(path, |rest| rest.trim_start_matches('/'))
}

/// How many leading parts git itself put in front of the paths: `a/` and `b/`, unless it was told not to.
fn prefixes(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    // A line that was taken away may begin as the name of a file does, and no name of the new file follows it.
    let named = lines.windows(2).filter(|pair| pair[0].starts_with("--- ") && pair[1].starts_with("+++ "));
    let mut marked = named.map(|pair| pair[0] == "--- /dev/null" || pair[0].starts_with("--- a/")).peekable();
    let git = lines.iter().any(|line| line.starts_with("diff --git a/"));
    usize::from(if marked.peek().is_some() { marked.all(|m| m) } else { git })
}

fn part(text: &str, diff: &Diff, files: &[usize]) -> String {
    let parts = files.iter().flat_map(|file| {
        let hunks = (0..diff.files[*file].hunks.len()).map(Some);
        std::iter::once(None).chain(hunks).map(|hunk| Part { file: *file, hunk })
    });
    let origin = Origin::Several { parts: Vec::new() };
    let group = Group { id: String::new(), title: String::new(), origin, parts: parts.collect() };
    String::from_utf8_lossy(&inventory::piece(text.as_bytes(), diff, &group)).into_owned()
}

/// Whether a change is of something that is compiled while the server runs.
fn has_kernels(diff: &Diff) -> bool {
    let other = diff.files.iter().any(|f| f.path().rsplit_once('.').is_some_and(|(_, e)| COMPILED.contains(&e)));
    other || inventory::take(diff, &BTreeMap::new()).entries.iter().any(|entry| !entry.kernels.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(files: &[&str]) -> String {
        let one = |path: &&str| {
            format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x = 1\n+x = 2\n")
        };
        files.iter().map(one).collect()
    }

    #[track_caller]
    fn check(files: &[&str], expect: Result<(&str, &str, usize, &[&str]), &str>) {
        match (of_text("p", &diff(files)), expect) {
            (Ok(read), Ok((root, name, strip, inside))) => {
                assert_eq!((read.package.root.as_str(), read.package.name.as_str(), read.strip), (root, name, strip));
                assert_eq!(read.files, inside.iter().map(|f| (*f).to_owned()).collect());
                assert_eq!(read.files, read.left);
            }
            (Err(failure), Err(part)) => assert!(failure.message.contains(part), "{}", failure.message),
            (got, expect) => panic!("{got:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn a_diff_changes_one_package_below_its_root() {
        check(&["python/sglang/srt/a.py", "README.md"], Ok(("python", "sglang", 2, &["sglang/srt/a.py"])));
        check(&["vllm/a.py", "tests/test_a.py"], Ok(("", "vllm", 1, &["vllm/a.py"])));
        check(&["src/pkg/a.py", "src/pkg/b.cuh"], Ok(("src", "pkg", 2, &["pkg/a.py", "pkg/b.cuh"])));
        check(&["python/pyproject.toml", "python/sglang/a.py"], Ok(("python", "sglang", 2, &["sglang/a.py"])));
        check(&["python/a/x.py", "python/b/x.py"], Err("more than one"));
        check(&["csrc/kernel.cu", "vllm/a.py"], Err("compiled before the server starts"));
        check(&["README.md"], Err("changes no package"));
    }

    #[test]
    fn what_cannot_be_taken_out_is_refused() {
        let refused = |text: &str, part: &str| {
            let failure = of_text("p", text).unwrap_err();
            assert!(failure.message.contains(part), "{}", failure.message);
        };
        let whole = diff(&["python/s/a.py"]);
        refused(&whole.replace("@@ -1 +1 @@", "@@ -1,9 +1,9 @@"), "");
        refused("diff --git a/s/a.so b/s/a.so\nBinary files a/s/a.so and b/s/a.so differ\n", "");
        refused(&whole.replace("x = 2", "HF_TOKEN = \"hf_abcdefghijklmnopqrstuvwxyz012345\""), "secret");
    }

    #[test]
    fn a_file_that_came_with_the_patch_goes_with_it() {
        let text = "diff --git a/s/new.py b/s/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/s/new.py\n@@ -0,0 +1 @@\n+x = 1\n";
        let read = of_text("p", text).unwrap();
        assert_eq!((read.files.len(), read.left.len(), read.strip), (1, 0, 1));
    }

    #[test]
    fn kernels_are_those_that_are_compiled_while_the_server_runs() {
        assert!(!of_text("p", &diff(&["s/a.py"])).unwrap().kernels);
        assert!(of_text("p", &diff(&["python/s/a.cuh"])).unwrap().kernels);
        let triton = diff(&["s/a.py"])
            .replace("@@ -1 +1 @@\n", "@@ -1,3 +1,3 @@\n @triton.jit\n def k(p):\n")
            .replace("x = ", "    x = ");
        assert!(of_text("p", &triton).unwrap().kernels);
    }
}
