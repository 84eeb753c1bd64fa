//! Asks the host of a target how its checkout stands to the diffs of its patches; changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use tokio_util::sync::CancellationToken;

use super::imported::Rules;
use super::reversal::{self, Reversal};
use super::text::Sources;
use super::{IN, OUT, SEARCH_PATH, obstacle, of_source, tree};
use crate::case::{Gate, Patch, Target};
use crate::engine::procedure::Failure;
use crate::remote::levels::LevelReading;
use crate::remote::machine::{Machine, ShellFailure};
use crate::remote::proc::Unknown;
use crate::truth::imports::NO_PYTHON;
use crate::untrusted::Untrusted;

/// Seconds that a host may take to read a checkout.
const TIME_S: f64 = 60.0;

/// How a checkout stands to a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It has it.
    Has,
    /// It is as if it had been taken out.
    Lacks,
}

/// What was read of a target's source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// The checkout.
    pub(crate) checkout: String,
    /// The diffs, in the order of the case.
    pub(crate) reversals: Vec<Reversal>,
    /// How the checkout stands to each patch.
    pub(crate) held: BTreeMap<String, Result<Held, Failure>>,
    /// Each package as one hash, in the order of their names, with the number of its files.
    pub(crate) listings: BTreeMap<reversal::Package, (String, u64)>,
    /// Size of the packages, in KiB.
    pub(crate) kib: u64,
    /// What is free where a copy would lie, in KiB; `None` where the host does not tell.
    pub(crate) free_kib: Option<u64>,
    /// Whether nothing may be run from where a copy would lie.
    pub(crate) noexec: bool,
    /// Whether the packages hold compiled programs.
    pub(crate) programs: bool,
}

/// Reads the source of a target; `None` where no patch of it is switched there. `folder` is where copies would lie.
pub(crate) async fn look(
    machine: &Machine,
    target: &Target,
    patches: &[&Patch],
    folder: &str,
    cancel: &CancellationToken,
) -> Option<Source> {
    let patches = of_source(patches);
    if patches.is_empty() {
        return None;
    }
    let mut source = Source { checkout: target.checkout.clone().unwrap_or_default(), ..Source::default() };
    if let Some(failure) = obstacle(target).or_else(|| has_colon(&[&source.checkout, folder], &target.name)) {
        let held = patches.iter().map(|p| (p.id.clone(), Err(failure.clone()))).collect();
        return Some(Source { held, ..source });
    }
    for patch in &patches {
        let Gate::Reverse { diff } = &patch.gate else { continue };
        match reversal::read(&patch.id, diff) {
            Ok(read) => source.reversals.push(read),
            Err(failure) => drop(source.held.insert(patch.id.clone(), Err(failure))),
        }
    }
    if source.reversals.is_empty() {
        return Some(source);
    }
    let asked = async {
        let text = source.sources(|_| true).text(|s| s.look(folder))?;
        let end = machine.read(&text, TIME_S, cancel).await.map_err(ShellFailure::failure)?;
        if !end.ok() {
            let said = Untrusted::from(end.last_line()).visible(200);
            return Err(Failure::new(format!("the checkout `{}` cannot be read: {said}", source.checkout)));
        }
        Ok(end.out)
    };
    match asked.await {
        Ok(said) => take(&mut source, &said, &target.host),
        Err(failure) => {
            for reversal in &source.reversals {
                source.held.insert(reversal.patch.clone(), Err(failure.clone()));
            }
        }
    }
    Some(source)
}

/// That a path cannot be an entry of a search path; `None` where each can.
fn has_colon(paths: &[&str], target: &str) -> Option<Failure> {
    let message = format!("the checkout of `{target}` has a colon in its path, which no search path can name");
    let failure = || Failure::new(message).hint("name it by a symbolic link without one");
    paths.iter().any(|path| path.contains(':')).then(failure)
}

/// Some of the diffs of a source.
pub(crate) struct Chosen<'s> {
    checkout: &'s str,
    reversals: Vec<&'s Reversal>,
}

impl Chosen<'_> {
    /// A text about them.
    pub(crate) fn text<T>(&self, of: impl FnOnce(&Sources<'_>) -> T) -> T {
        of(&Sources { checkout: self.checkout, reversals: &self.reversals })
    }

    /// The diffs.
    pub(crate) fn reversals(&self) -> &[&Reversal] {
        &self.reversals
    }
}

impl Source {
    /// The diffs of these patches.
    pub(crate) fn sources(&self, wanted: impl Fn(&str) -> bool) -> Chosen<'_> {
        Chosen { checkout: &self.checkout, reversals: self.reversals.iter().filter(|r| wanted(&r.patch)).collect() }
    }

    /// The levels that the checkout itself gives, as far as they are known.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (String, String)> {
        let level = |held: Held| match held {
            Held::Has => IN,
            Held::Lacks => OUT,
        };
        self.held.iter().filter_map(move |(id, held)| Some((id.clone(), level(*held.as_ref().ok()?).to_owned())))
    }

    /// Settles the level of a patch that a process's search path leaves to the checkout: that of the checkout, where the
    /// process has its files as they stand there.
    pub(crate) fn settle(&self, readings: &mut BTreeMap<String, LevelReading>, rules: &Rules) {
        for (id, reading) in readings {
            let Some(held) = self.held.get(id).filter(|_| reading.level.as_ref().is_err_and(left_to_checkout)) else {
                continue;
            };
            reading.source = format!("{}, and `git apply --check` in {}", reading.source, self.checkout);
            let reversal = self.reversals.iter().find(|r| r.patch == *id);
            let otherwise = reversal.and_then(|r| otherwise(r, rules, held.as_ref().ok()));
            reading.level = match held {
                _ if otherwise.is_some() => Err(Unknown(otherwise.unwrap_or_default())),
                Ok(Held::Has) => Ok(IN.to_owned()),
                Ok(Held::Lacks) => Ok(OUT.to_owned()),
                Err(failure) => Err(Unknown(failure.message.clone())),
            };
        }
    }
}

/// Why a process does not have the checkout's files as they stand there; `None` where it has, or where its language
/// leaves that to its log.
fn otherwise(reversal: &Reversal, rules: &Rules, held: Option<&Held>) -> Option<String> {
    reversal.witnesses().iter().find_map(|file| match rules.get(file)? {
        // Every other patch of a copy is as in the checkout that it was made of.
        Ok(found) if tree::of_search_path(&found.folder).is_some() => (held == Some(&Held::Lacks))
            .then(|| "the copy that the process imports may be older than the checkout".to_owned()),
        Ok(found) => Some(format!("`{file}`: {}", found.otherwise.as_ref()?)),
        Err(Unknown(why)) if why == NO_PYTHON => None,
        Err(Unknown(why)) => Some(why.clone()),
    })
}

/// Why a search path alone does not tell a level.
pub(super) const LEFT: &str = "the process imports the checkout as it is";

/// The level of a patch that the source switches, as a process's search path tells it; a path without a copy of ours
/// leaves it to the checkout, see [`Source::settle`].
pub(crate) fn of_search_path(patch: &str, value: Option<&str>) -> (Result<String, Unknown>, String) {
    match value.and_then(tree::of_search_path) {
        Some(tree) if tree.without.contains(patch) => {
            (Ok(OUT.to_owned()), format!("{SEARCH_PATH} begins with {}", tree.path))
        }
        Some(tree) => (Err(Unknown(LEFT.to_owned())), format!("{} has it", tree.path)),
        None => (Err(Unknown(LEFT.to_owned())), format!("{SEARCH_PATH} names no copy without a patch")),
    }
}

fn left_to_checkout(unknown: &Unknown) -> bool {
    unknown.0 == LEFT
}

fn take(source: &mut Source, said: &str, host: &str) {
    let all: BTreeSet<_> = source.reversals.iter().map(|r| r.package.clone()).collect();
    let mut packages = all.into_iter();
    let mut why = Failure::new(format!("the answer of `{host}` about `{}` broke off", source.checkout));
    for line in said.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["no-git", ..] => {
                why = Failure::new(format!("`git` is not on `{host}`, so that no diff can be taken out there"))
                    .hint("install git there, or switch the patch by hand");
            }
            ["no-package", ..] => {
                let path = Untrusted::from(line.trim_start_matches("no-package ")).visible(200);
                why = Failure::new(format!("`{path}` is no folder on `{host}`"))
                    .hint("correct the target's `checkout`, or the paths in the diff");
            }
            ["free", kib] => source.free_kib = kib.parse().ok(),
            ["noexec", ..] => source.noexec = true,
            ["programs", ..] => source.programs = true,
            ["kib", kib] => source.kib += kib.parse().unwrap_or(0),
            ["listing", hash, count] => {
                if let Some(package) = packages.next() {
                    source.listings.insert(package, (hash.to_owned(), count.parse().unwrap_or(0)));
                }
            }
            ["patch", at, held, ..] => {
                let Some(reversal) = at.parse().ok().and_then(|at: usize| source.reversals.get(at)) else { continue };
                let held = match held {
                    "has" => Ok(Held::Has),
                    "lacks" => Ok(Held::Lacks),
                    _ => {
                        let git = Untrusted::from(words.get(3).copied().unwrap_or_default()).visible(200);
                        Err(Failure::new(format!(
                            "the diff of `{}` can be neither taken out of `{}` nor put in: {git}",
                            reversal.patch, source.checkout
                        ))
                        .hint(
                            "make the diff anew from the checkout as it is (`patchbench patches import … --diffs DIR`); where a later \
                             patch changed the same lines, put both into one",
                        ))
                    }
                };
                source.held.insert(reversal.patch.clone(), held);
            }
            _ => {}
        }
    }
    for reversal in &source.reversals {
        source.held.entry(reversal.patch.clone()).or_insert_with(|| Err(why.clone()));
    }
}
