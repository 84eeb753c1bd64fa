//! The microtests by name, and the one door through which they are run.
//!
//! Responsible for names, devices and checkpoints of a run. Not responsible for any test itself.

use std::path::Path;

use jiff::Timestamp;

use crate::engine::procedure::Failure;
use crate::kernel::checkpoint::{Checkpoint, open_place};
use crate::kernel::mhc;
use crate::kernel::report::MicroReport;

/// A microtest that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecInfo {
    /// Name, such as `mhc-mix`.
    pub name: &'static str,
    /// What it asks, in one line.
    pub says: &'static str,
    /// The parts of the model whose arithmetic it varies or measures.
    pub parts: &'static [&'static str],
}

const SPECS: &[SpecInfo] = &[SpecInfo {
    name: mhc::SPEC,
    says: "how far does the mixing of the hyper-connections stray in bf16 and tf32, per site and compounded",
    parts: &["mixes", "site input", "new streams", "top choices", "experts"],
}];

/// All microtests of this version.
pub fn specs() -> &'static [SpecInfo] {
    SPECS
}

/// Runs a microtest. `checkpoint` is a folder, a file, or one on a host (`ssh:HOST:/FOLDER`); `None` is the lab's. `progress` is told
/// steps done, steps in all and the phase, from several threads; `now` is the time at the start.
///
/// # Errors
/// There is no such spec or device, the checkpoint does not fit, or somebody cancelled.
pub fn run(
    spec: &str,
    device: &str,
    checkpoint: Option<&Path>,
    progress: &(dyn Fn(u64, u64, &str) + Sync),
    cancelled: &(dyn Fn() -> bool + Sync),
    now: Timestamp,
) -> Result<MicroReport, Failure> {
    if !specs().iter().any(|s| s.name == spec) {
        let names: Vec<String> = specs().iter().map(|s| format!("`{}`", s.name)).collect();
        return Err(
            Failure::new(format!("there is no microtest `{spec}`")).hint(format!("there is {}", names.join(", ")))
        );
    }
    check_device(device)?;
    let checkpoint = match checkpoint {
        Some(place) => open_place(&place.to_string_lossy(), progress, cancelled)?,
        None => Checkpoint::lab()?,
    };
    mhc::run(&checkpoint, progress, cancelled, now)
}

fn check_device(device: &str) -> Result<(), Failure> {
    let gpu = device.strip_prefix("cuda:").is_some_and(|n| n.parse::<u32>().is_ok());
    match device {
        "cpu" => Ok(()),
        "all" => Err(Failure::new("GPUs are not in this version, so `all` is not either").hint("use `cpu`")),
        _ if gpu => Err(Failure::new(format!("device `{device}` is not in this version")).hint("use `cpu`")),
        _ => Err(Failure::new(format!("there is no device `{device}`")).hint("use `cpu`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(spec: &str, device: &str, checkpoint: Option<&Path>) -> Failure {
        run(spec, device, checkpoint, &|_, _, _| {}, &|| false, Timestamp::UNIX_EPOCH).unwrap_err()
    }

    #[test]
    fn what_there_is_not_is_named_with_what_there_is() {
        let check = |spec: &str, device: &str, message: &str, hint: &str| {
            let failure = failure(spec, device, None);
            assert_eq!((failure.message.as_str(), failure.hint.as_deref()), (message, Some(hint)));
        };
        check("indexer", "cpu", "there is no microtest `indexer`", "there is `mhc-mix`");
        check("mhc-mix", "cuda:0", "device `cuda:0` is not in this version", "use `cpu`");
        check("mhc-mix", "tpu", "there is no device `tpu`", "use `cpu`");
        check("mhc-mix", "cuda:", "there is no device `cuda:`", "use `cpu`");
        check("mhc-mix", "all", "GPUs are not in this version, so `all` is not either", "use `cpu`");
    }

    #[test]
    fn a_checkpoint_that_does_not_fit_fails_with_a_hint() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab");
        let other = failure("mhc-mix", "cpu", Some(&lab.join("golden.safetensors")));
        assert!(other.message.contains("has no tensor `hh.fn`"), "{}", other.message);
        assert!(failure("mhc-mix", "cpu", Some(&lab.join("nowhere"))).hint.is_some());
    }

    #[test]
    fn a_checkpoint_on_disk_is_measured_and_named() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab");
        let report = run("mhc-mix", "cpu", Some(&lab), &|_, _, _| {}, &|| false, Timestamp::UNIX_EPOCH).unwrap();
        assert!(report.provenance.contains(&lab.join("model.safetensors").display().to_string()));
        assert_eq!((report.curves.len(), report.verdicts.len()), (8, 4));
    }
}
