//! The steps of patches that only the source switches: a copy of the package without them before the restart, `PYTHONPATH`
//! for the server, and the copies taken away when the target is put back. The checkout is only read.

use std::collections::BTreeSet;

use super::look::World;
use super::{Levels, Plan, shell};
use crate::case::Manager;
use crate::engine::effect::ChangeWish;
use crate::engine::procedure::{Action, Failure, Step};
use crate::remote::proc::{Environ, Unknown};
use crate::remote::script::Ask;
use crate::remote::source::look::{self, Chosen, Source};
use crate::remote::source::text::{self, Runs, Sources};
use crate::remote::source::{self, SEARCH_PATH, tree};
use crate::truth::declared::Declared;
use crate::truth::service;
use crate::untrusted::Untrusted;

/// Variables that lead compilers of kernels to a folder of their own, and that folder's name.
const CACHES: [(&str, &str); 4] = [
    ("TRITON_CACHE_DIR", "triton"),
    ("TILELANG_CACHE_DIR", "tilelang"),
    ("TVM_FFI_CACHE_DIR", "tvm-ffi"),
    ("FLASHINFER_WORKSPACE_BASE", "flashinfer"),
];
/// Seconds that copying a package may take.
const COPY_S: f64 = 300.0;

/// A copy that a change needs.
pub(super) struct Copy {
    /// Makes it.
    pub(super) step: Step,
    /// What leads the server to it.
    pub(super) asks: Vec<Ask>,
    /// What a person must know.
    pub(super) notes: Vec<String>,
}

/// The copy that the wanted levels need; `None` where the checkout as it is gives them.
///
/// # Errors
/// A diff cannot be taken out of the checkout, or nothing tells what the server's search path must hold beside it.
pub(super) fn copy(plan: &Plan<'_>, levels: &Levels, declared: &Declared) -> Result<Option<Copy>, Failure> {
    let Some(source) = &plan.world.source else { return Ok(None) };
    let out = taken_out(plan, source, levels)?;
    if out.is_empty() {
        return Ok(None);
    }
    let world = plan.world;
    let chosen = source.sources(|id| out.contains(id));
    let (path, key) = place(world, source, &chosen)?;
    let kernels = chosen.reversals().iter().any(|r| r.kernels);
    if source.noexec && (kernels || source.programs) {
        return Err(Failure::new(format!(
            "nothing may be run from {} on `{}` (`noexec`), and the package has or makes compiled programs",
            world.ground.folder, world.target.host
        ))
        .hint("mount it without `noexec`, or switch the patch by hand"));
    }
    let stood = world.ground.trees.contains(&path);
    if let Some(free) = source.free_kib.filter(|free| !stood && *free < source.kib + source.kib / 10) {
        return Err(Failure::new(format!(
            "a copy of the package needs {} MiB, and {} MiB are free on `{}`",
            source.kib / 1024,
            free / 1024,
            world.target.host
        ))
        .hint("free some space first"));
    }
    let step = Step {
        name: "copy-source".into(),
        check: Action::Nothing,
        apply: shell(make(world, source, &chosen, &path, &key)?, COPY_S),
        // A copy that stood there before may be the one that the server runs from.
        undo: if stood { None } else { Some(shell(text::take_away(&path)?, 60.0)) },
        undo_proof: None,
        proof: shell(Sources::stands(&path, &key)?, 30.0),
    };
    let others = others(world, declared)?;
    let value = others.as_ref().map_or_else(|| path.clone(), |rest| format!("{path}:{rest}"));
    let set = |switch: &str, value: String| Ask { switch: switch.to_owned(), value: Some(value), takes_value: true };
    let mut asks = vec![set(SEARCH_PATH, value)];
    if kernels {
        asks.extend(CACHES.map(|(variable, folder)| set(variable, format!("{path}/.caches/{folder}"))));
    }
    Ok(Some(Copy { step, asks, notes: notes(source, &chosen, &path, kernels) }))
}

/// The patches that must be taken out: those whose level is not what the checkout itself gives.
fn taken_out(plan: &Plan<'_>, source: &Source, levels: &Levels) -> Result<BTreeSet<String>, Failure> {
    let mut out = BTreeSet::new();
    for patch in source::of_source(&plan.wish.patches) {
        let Some(wanted) = levels.wanted.get(&patch.id) else { continue };
        let world = plan.world;
        let named = plan.wish.wished.contains_key(&patch.id) || matches!(plan.wish.kind, ChangeWish::Original);
        if !named && world.running.is_some() && !world.ground.trees.is_empty() && !world.current.contains_key(&patch.id)
        {
            return Err(Failure::new(format!(
                "a copy of the source stands on `{}`, and whether what runs imports it without `{}` is not known",
                world.target.host, patch.id
            ))
            .hint(format!("name its level too, as in `restart {} {}=off`", world.target.name, patch.id)));
        }
        match (wanted.as_str(), source.held.get(&patch.id)) {
            (_, Some(Err(failure))) if wanted == source::OUT => return Err(failure.clone()),
            (source::OUT, Some(Ok(look::Held::Has))) => {
                out.insert(patch.id.clone());
            }
            (source::IN, Some(Ok(look::Held::Lacks))) => {
                return Err(Failure::new(format!("`{}` does not have `{}`", source.checkout, patch.id))
                    .hint("the level `on` is the checkout as it is: put the patch in there by hand"));
            }
            _ => {}
        }
    }
    Ok(out)
}

/// Where the copy stands, and what tells it from others: the package as it is, and the diffs.
fn place(world: &World, source: &Source, chosen: &Chosen<'_>) -> Result<(String, String), Failure> {
    let mut hash = blake3::Hasher::new();
    for listing in listings(source, chosen)? {
        hash.update(listing.as_bytes());
    }
    for reversal in chosen.reversals() {
        hash.update(reversal.diff.as_bytes());
    }
    let key = hash.finalize().to_hex()[..12].to_owned();
    let prefix = tree::prefix(&world.ground.folder, &world.lease);
    let path = tree::path(&prefix, &key, chosen.reversals().iter().map(|r| r.patch.as_str()))?;
    Ok((path, key))
}

fn listings(source: &Source, chosen: &Chosen<'_>) -> Result<Vec<String>, Failure> {
    let all: Option<Vec<String>> =
        chosen.text(|s| s.packages().iter().map(|p| source.listings.get(*p).map(|(hash, _)| hash.clone())).collect());
    all.ok_or_else(|| Failure::new(format!("the files of `{}` could not be listed", source.checkout)))
}

fn make(world: &World, source: &Source, chosen: &Chosen<'_>, path: &str, key: &str) -> Result<String, Failure> {
    let listings = listings(source, chosen)?;
    let user = world.probe.unit.as_ref().and_then(|u| u.properties.as_ref().ok()?.get("User")).map(Untrusted::raw);
    let user = match world.target.manager {
        Manager::Systemd { .. } => Some(user.filter(|u| !u.is_empty()).unwrap_or("root")),
        _ => None,
    };
    let kernels = chosen.reversals().iter().any(|r| r.kernels);
    let caches = CACHES.map(|(_, folder)| folder);
    let runs = Runs { user, caches: if kernels { &caches } else { &[] } };
    chosen.text(|s| s.make(path, key, &listings, &runs))
}

/// What the search path of the server holds beside copies of ours: as it runs, else as its own files say.
fn others(world: &World, declared: &Declared) -> Result<Option<String>, Failure> {
    let unknown = |why: &str| {
        Failure::new(format!("`{SEARCH_PATH}` of `{}` is not known: {why}", world.target.name))
            .hint("start the server first, or set the variable to a plain text in its script")
    };
    if let Some(running) = &world.running {
        let evidence = service::evidence(&world.probe, running.key.pid);
        return match evidence.get(SEARCH_PATH) {
            Ok(value) => Ok(value.and_then(tree::others)),
            Err(Unknown(why)) => Err(unknown(&why)),
        };
    }
    match declared.variables.get(SEARCH_PATH).map(|v| &v.value) {
        Some(Some(value)) => match value.known() {
            Some(value) => Ok(tree::others(value)),
            None => Err(unknown("its script computes it")),
        },
        Some(None) => Ok(None),
        // systemd gives a unit nothing of the shell that asks for its start.
        None if matches!(world.target.manager, Manager::Systemd { .. }) => Ok(None),
        None => Ok(world.ground.environ.as_ref().ok().and_then(|e: &Environ| tree::others(e.get(SEARCH_PATH)?))),
    }
}

fn notes(source: &Source, chosen: &Chosen<'_>, path: &str, kernels: bool) -> Vec<String> {
    let names = |of: Vec<&str>| of.join("`, `");
    let patches = names(chosen.reversals().iter().map(|r| r.patch.as_str()).collect());
    let packages = chosen.text(|s| s.packages().iter().map(|p| p.name.clone()).collect::<Vec<_>>().join("`, `"));
    let files: u64 = source.listings.values().map(|(_, count)| count).sum();
    let mut out = vec![format!(
        "`{packages}` ({files} files, {} MiB) is copied to {path} without `{patches}` and without its `__pycache__`, and \
         `{SEARCH_PATH}` leads this server alone to the copy; `{}` is only read",
        source.kib / 1024,
        source.checkout
    )];
    let outside: Vec<&str> = chosen.reversals().iter().flat_map(|r| r.outside.iter().map(String::as_str)).collect();
    if !outside.is_empty() {
        out.push(format!("what the diff changes outside of the package stays as it is: `{}`", names(outside)));
    }
    out.push(if kernels {
        let variables: Vec<&str> = CACHES.iter().map(|(variable, _)| *variable).collect();
        format!(
            "the diff changes kernels that are compiled while the server runs, so that this start gets empty caches \
             (`{}`) and compiles them anew",
            names(variables)
        )
    } else {
        "no kernel that is compiled while the server runs is seen in the lines of the diff: the caches of Triton, TileLang, TVM FFI and \
         FlashInfer stay in use"
            .to_owned()
    });
    out
}

/// Takes the copies away when the target is put back; its undo makes the one anew that the server ran from.
pub(super) fn take_away(plan: &Plan<'_>) -> Result<Option<Step>, Failure> {
    let world = plan.world;
    if world.ground.trees.is_empty() {
        return Ok(None);
    }
    let prefix = tree::prefix(&world.ground.folder, &world.lease);
    let again = || -> Option<Action> {
        let source = world.source.as_ref()?;
        let is_out = |id: &str| world.current.get(id).is_some_and(|level| level == source::OUT);
        let chosen = source.sources(is_out);
        let (path, key) = place(world, source, &chosen).ok()?;
        let text = make(world, source, &chosen, &path, &key).ok()?;
        world.ground.trees.contains(&path).then(|| shell(text, COPY_S))
    };
    Ok(Some(Step {
        name: "take-copy-away".into(),
        check: Action::Nothing,
        apply: shell(text::take_away(&prefix)?, 60.0),
        undo: again(),
        undo_proof: None,
        proof: shell(text::is_away(&prefix)?, 10.0),
    }))
}
