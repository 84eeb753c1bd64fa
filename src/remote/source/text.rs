//! The POSIX shell texts that read a checkout, make a copy without patches, and look for its compiled files. Pure.

use std::collections::BTreeSet;

use super::reversal::{Package, Reversal};
use crate::engine::procedure::Failure;
use crate::remote::shell_text::quote;

/// `git apply` without the settings of whoever runs it. The repository around is not looked for: paths count from here.
const APPLY: &str = "applies() { GIT_CEILING_DIRECTORIES=${PWD%/*} GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 \\\n\
    \x20 LC_ALL=C git -c core.autocrlf=false apply --whitespace=nowarn \"$@\"; }";

/// Every file of a package with size and date, as one hash, and how many there are; `listing ROOT NAME`.
const LISTING: &str = "files() { (cd \"$1\" && find \"$2\" -name __pycache__ -prune -o -type f -printf '%P %s %T@\\n' | LC_ALL=C sort); }\n\
    listing() { files \"$1\" \"$2\" | sha256sum | cut -c1-64; }";

/// How a copy is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs<'a> {
    /// The user whom a manager starts the server as; `None` is whoever makes the copy.
    pub(crate) user: Option<&'a str>,
    /// Empty folders for what is compiled while it runs.
    pub(crate) caches: &'a [&'a str],
}

/// Where a checkout stands on the host, and what is taken out of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    /// The checkout.
    pub(crate) checkout: &'a str,
    /// What is taken out, in the order of the case.
    pub(crate) reversals: &'a [&'a Reversal],
}

impl Sources<'_> {
    /// The packages that they change.
    pub(crate) fn packages(&self) -> BTreeSet<&Package> {
        self.reversals.iter().map(|r| &r.package).collect()
    }

    fn root(&self, package: &Package) -> String {
        root(self.checkout, package)
    }

    /// Whether git takes a diff out of what lies here (`-R`), or would put it in.
    fn apply(reversal: &Reversal, options: &str) -> Result<String, Failure> {
        Ok(format!("printf '%s' {} | applies {options} -p{} -", quote(&reversal.diff)?, reversal.strip))
    }

    /// Reads how the checkout stands to each diff; `folder` is where a copy would lie.
    pub(crate) fn look(&self, folder: &str) -> Result<String, Failure> {
        let mut out = vec![format!(
            "command -v git >/dev/null || {{ echo 'no-git'; exit 0; }}\n{APPLY}\n{LISTING}\n\
             there={folder}; while [ ! -d \"$there\" ] && [ \"$there\" != / ]; do there=$(dirname \"$there\"); done\n\
             case \",$(findmnt -no OPTIONS -T \"$there\" 2>/dev/null),\" in *,noexec,*) echo noexec ;; esac\n\
             df -Pk \"$there\" | awk 'NR == 2 {{ print \"free\", $4 }}'\n",
            folder = quote(folder)?
        )];
        for package in self.packages() {
            let (root, name) = (quote(&self.root(package))?, quote(&package.name)?);
            out.push(format!(
                "[ -d {root}/{name} ] || {{ echo 'no-package' {root}/{name}; exit 0; }}\n\
                 echo \"listing $(listing {root} {name}) $(files {root} {name} | wc -l)\"\n\
                 [ -z \"$(find {root}/{name} -name '*.so*' -print -quit)\" ] || echo programs\n\
                 echo \"kib $(du -sk {root}/{name} | cut -f1)\"\n"
            ));
        }
        for (at, reversal) in self.reversals.iter().enumerate() {
            out.push(format!(
                "cd -P {root} || exit 1\n\
                 has=no lacks=no; why=$({out_of} 2>&1) && has=yes; {into} >/dev/null 2>&1 && lacks=yes\n\
                 [ -n \"$({names} 2>/dev/null)\" ] || {{ has=no lacks=no; why='git sees no file of it here'; }}\n\
                 [ $has$lacks != yesyes ] || why='its lines stand in more than one place'\n\
                 if [ $has$lacks = yesno ]; then echo 'patch {at} has'\n\
                 elif [ $has$lacks = noyes ]; then echo 'patch {at} lacks'\n\
                 else echo \"patch {at} neither $(printf '%s' \"$why\" | head -n 1)\"; fi\n",
                root = quote(&self.root(&reversal.package))?,
                out_of = Self::apply(reversal, "-R --check")?,
                into = Self::apply(reversal, "--check")?,
                names = Self::apply(reversal, "--numstat")?,
            ));
        }
        Ok(out.concat())
    }

    /// Whether a copy stands at `tree` with every file as it was made.
    pub(crate) fn stands(tree: &str, key: &str) -> Result<String, Failure> {
        Ok(format!(
            "tree={}; made=$tree/.patchbench\n\
             [ \"$(cat \"$made/key\" 2>/dev/null)\" = {} ] && (cd \"$tree\" && sha256sum -c --status .patchbench/sums)",
            quote(tree)?,
            quote(key)?
        ))
    }

    /// Makes a copy without the patches, unless it stands; what other servers compiled of it is taken away, so that what
    /// lies there afterwards shows who imported it. `listings` are those of the packages when this was planned.
    pub(crate) fn make(&self, tree: &str, key: &str, listings: &[String], runs: &Runs<'_>) -> Result<String, Failure> {
        let changed = quote(&format!("{} has changed since this was planned", self.checkout))?;
        let mut before = Vec::new();
        let mut steps = vec!["mkdir -p \"$new/.patchbench\"".to_owned()];
        let mut compare = vec![": >\"$new/.patchbench/differ\"".to_owned()];
        for (package, listing) in self.packages().into_iter().zip(listings) {
            let (root, name) = (quote(&self.root(package))?, quote(&package.name)?);
            before.push(format!(
                "\x20 [ \"$(listing {root} {name})\" = {listing} ] || {{ echo {changed} >&2; exit 1; }}\n"
            ));
            steps.push(format!("cp -a --reflink=auto -- {root}/{name} \"$new/\""));
            steps.push(format!("chmod -R u+w \"$new\"/{name}"));
            steps.push(format!("find \"$new\"/{name} -name __pycache__ -prune -exec rm -rf {{}} +"));
            compare.push(format!(
                "sums {root} {name} >\"$new/.patchbench/was\" && sums \"$new\" {name} >\"$new/.patchbench/is\" && cat \"$new/.patchbench/is\" >>\"$new/.patchbench/all\" && \
                 {{ LC_ALL=C comm -3 \"$new/.patchbench/was\" \"$new/.patchbench/is\" | tr -d '\\t' | cut -c67- >>\"$new/.patchbench/differ\"; }}"
            ));
        }
        steps.push("cd -P \"$new\"".to_owned());
        // What came last goes first.
        for reversal in self.reversals.iter().rev() {
            steps.push(Self::apply(reversal, "-R")?);
        }
        steps.extend(compare);
        let union = |of: fn(&Reversal) -> &BTreeSet<String>| -> Result<Vec<String>, Failure> {
            let all: BTreeSet<&String> = self.reversals.iter().flat_map(|r| of(r)).collect();
            all.into_iter().map(|f| quote(f)).collect()
        };
        let files = union(|r| &r.files)?;
        let nothing_else = "{ echo 'more than the diff differs in the copy' >&2; false; }";
        steps.push(format!(
            "[ \"$(LC_ALL=C sort -u .patchbench/differ)\" = \"$(printf '%s\\n' {} | LC_ALL=C sort -u)\" ] || {nothing_else}",
            files.join(" ")
        ));
        steps.push(format!(
            "mv .patchbench/all .patchbench/sums && rm -f .patchbench/was .patchbench/is .patchbench/differ && echo {} >.patchbench/key",
            quote(key)?
        ));
        // The copy is as closed as the checkout may be: its own server alone reads it, and writes what it compiles there.
        let owned = match runs.user {
            Some(user) => format!(
                "chmod 711 \"${{tree%/trees/*}}\" \"${{tree%/*}}\" && chown -R -- {} \"$tree\" && ",
                quote(user)?
            ),
            None => String::new(),
        };
        let folders: Result<Vec<String>, Failure> =
            runs.caches.iter().map(|c| Ok(format!("\"$tree/.caches/\"{}", quote(c)?))).collect();
        let folders = folders?;
        let caches = if folders.is_empty() {
            String::new()
        } else {
            format!("rm -rf \"$tree/.caches\" && mkdir -p {} && ", folders.join(" "))
        };
        let compiled: Result<Vec<String>, Failure> =
            self.compiled(tree)?.iter().map(|c| Ok(format!("{c}*.pyc"))).collect();
        let compiled = compiled?.join(" ");
        let forget = if compiled.is_empty() { String::new() } else { format!("rm -f {compiled}\n") };
        Ok(format!(
            "stands() {{ {stands}; }}\n\
             tree={tree}; new=$tree.new\n{APPLY}\n{LISTING}\n\
             sums() {{ (cd \"$1\" && find \"$2\" -name __pycache__ -prune -o -type f -exec sha256sum {{}} + | LC_ALL=C sort); }}\n\
             stands || {{\n\
             \x20 [ ! -e \"$tree\" ] || {{ echo \"$tree was changed since it was made\" >&2; exit 1; }}\n{before}\
             \x20 rm -rf \"$new\"\n\
             \x20 ( {steps} ) && mv \"$new\" \"$tree\" || {{ rm -rf \"$new\"; exit 1; }}\n\
             }}\n\
             {caches}{owned}chmod 700 \"$tree\" || exit 1\n\
             {forget}echo {said}",
            before = before.concat(),
            stands = Self::stands(tree, key)?,
            tree = quote(tree)?,
            steps = steps.join(" &&\n  "),
            said = quote(&format!("{} differs from the checkout in {} and in nothing else", tree, files.join(", ")))?,
        ))
    }

    /// Where Python puts what it compiles of the witnesses: quoted beginnings of names.
    fn compiled(&self, tree: &str) -> Result<Vec<String>, Failure> {
        let files: BTreeSet<String> = self.reversals.iter().flat_map(|r| r.witnesses()).collect();
        files.iter().filter_map(|file| compiled_at(tree, file)).map(|at| quote(&at)).collect()
    }
}

/// Folder of a checkout that a search path names for a package.
pub(crate) fn root(checkout: &str, package: &Package) -> String {
    let checkout = checkout.trim_end_matches('/');
    if package.root.is_empty() { checkout.to_owned() } else { format!("{checkout}/{}", package.root) }
}

/// Beginning of the paths of what Python compiles of a file of a copy; `None` where it is no Python.
fn compiled_at(tree: &str, file: &str) -> Option<String> {
    let stem = file.strip_suffix(".py")?;
    let (folder, name) = stem.rsplit_once('/')?;
    Some(format!("{tree}/{folder}/__pycache__/{name}."))
}

/// Lists what Python has compiled of these files of a copy: seconds since 1970 of each, and the path.
pub(crate) fn compiled<'f>(tree: &str, files: impl Iterator<Item = &'f str>) -> Result<String, Failure> {
    let each = files.filter_map(|file| Some((file, compiled_at(tree, file)?)));
    let texts: Result<Vec<String>, Failure> = each
        .map(|(file, at)| {
            Ok(format!(
                "stat -c '%Y {}' -- {}*.pyc 2>/dev/null | sort -n | tail -n 1",
                file.replace('%', "%%").replace('\'', ""),
                quote(&at)?
            ))
        })
        .collect();
    Ok(format!("{}\n:", texts?.join("\n")))
}

/// Takes every copy of a target away. What tells that a copy is whole goes first, so that the rest of one is never used.
pub(crate) fn take_away(prefix: &str) -> Result<String, Failure> {
    let prefix = quote(prefix)?;
    Ok(format!(
        "for tree in {prefix}*; do rm -rf \"$tree/.patchbench\"; chmod -R u+w \"$tree\" 2>/dev/null; rm -rf \"$tree\"; done\n\
         for tree in {prefix}*; do [ ! -e \"$tree\" ] || {{ echo \"$tree is left\" >&2; false; }}; done"
    ))
}

/// Whether no copy of a target is left.
pub(crate) fn is_away(prefix: &str) -> Result<String, Failure> {
    Ok(format!("for tree in {}*; do [ ! -e \"$tree\" ] || exit 1; done; echo 'no copy is left'", quote(prefix)?))
}
