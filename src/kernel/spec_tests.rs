use std::sync::Mutex;

use super::*;
use crate::kernel::judge::FLOOR;
use crate::kernel::recorded::tests::{Written, wave, write};
use crate::kernel::report::{CurveMode, ErrorClass};

fn request<'a>(spec: &'a str, device: &'a str, checkpoint: Option<&'a Path>) -> Request<'a> {
    Request {
        spec,
        device,
        force_device: false,
        checkpoint,
        candidates: None,
        activations: None,
        now: Timestamp::UNIX_EPOCH,
    }
}

fn failure(spec: &str, device: &str, checkpoint: Option<&Path>) -> Failure {
    run(&request(spec, device, checkpoint), &|_, _, _| {}, &|| false).unwrap_err()
}

/// The one report of a run on one device.
fn only(reports: Result<Reports, Failure>) -> MicroReport {
    let mut reports = reports.unwrap();
    assert_eq!(reports.len(), 1);
    reports.remove(0).unwrap()
}

fn lab_report() -> MicroReport {
    only(run(&request("mhc-mix", "cpu", None), &|_, _, _| {}, &|| false))
}

#[test]
fn what_there_is_not_is_named_with_what_there_is() {
    let check = |spec: &str, device: &str, message: &str, hint: &str| {
        let failure = failure(spec, device, None);
        assert_eq!(failure.message, message);
        assert!(failure.hint.unwrap().contains(hint));
    };
    check("nothing", "cpu", "there is no microtest `nothing`", "`mhc-mix`");
    check("mhc-mix", "tpu", "there is no device `tpu`", "`cuda:0`");
    check("mhc-mix", "cuda:", "there is no device `cuda:`", "`all` for every card");
    check("compressor", "all", "`compressor` has no kernels of its own", "`--device cpu`");
}

#[test]
fn a_checkpoint_that_does_not_fit_fails_with_a_hint() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab");
    let other = failure("mhc-mix", "cpu", Some(&lab.join("golden.safetensors")));
    assert!(other.message.contains("has no tensor"), "{}", other.message);
    assert!(failure("mhc-mix", "cpu", Some(&lab.join("nowhere"))).hint.is_some());
}

#[test]
fn a_checkpoint_on_disk_is_measured_and_named() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab");
    let report = only(run(&request("mhc-mix", "cpu", Some(&lab)), &|_, _, _| {}, &|| false));
    assert!(report.provenance.contains(&lab.join("model.safetensors").display().to_string()));
    assert_eq!(report.verdicts.len(), 5);
}

#[test]
fn a_suspicion_from_a_file_is_measured_beside_the_built_in_ones() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let mut asked = request("mhc-mix", "cpu", None);
    asked.candidates = Some(&file);
    let run_with = |text: &str| {
        fs_err::write(&file, text).unwrap();
        candidates(&mhc::INFO, &Device::Cpu, Some(&file))
    };
    let text = "[[candidate]]\nspec = \"mhc-mix\"\nname = \"f16-output\"\nround = { output = \"f16\" }\n";
    run_with(text).unwrap();
    let report = only(run(&asked, &|_, _, _| {}, &|| false));
    assert_eq!(report.verdicts.last().unwrap().candidate, "f16-output");
    let taken = run_with(&text.replace("f16-output", "bf16")).unwrap_err();
    assert_eq!(taken.message, "there is a candidate `bf16` of `mhc-mix` already");
    assert!(
        run_with(&text.replace("output =", "outputs =")).unwrap_err().message.contains("no rounding point `outputs`")
    );
    assert!(candidates(&mhc::INFO, &Device::Cpu, Some(&dir.path().join("none.toml"))).unwrap_err().hint.is_some());
}

#[test]
fn every_built_in_candidate_is_read_and_every_fault_has_its_twin() {
    for spec in specs() {
        let (all, _) = candidates(spec, &Device::Cpu, None).unwrap();
        assert!(all.iter().any(|c| c.fault.is_none()), "{}", spec.name);
        for (fault, _) in spec.faults {
            assert!(all.iter().any(|c| c.has_fault(fault)), "{} {fault}", spec.name);
        }
    }
}

fn root_mean_square(values: &[f64]) -> f64 {
    (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt()
}

#[test]
fn the_lab_report_orders_the_candidates_against_the_floor() {
    let report = lab_report();
    let of = |name: &str, mode: CurveMode| {
        let all = report.curves.iter().chain(&report.floor);
        all.filter(|c| c.mode == mode && c.candidate == name).map(|c| c.rel_l2.clone()).next().unwrap()
    };
    let site = |name: &str| root_mean_square(&of(name, CurveMode::PerSite));
    assert!(site("fp32") < site("tf32") / 30.0 && site("tf32") < site("bf16-weights") / 3.0);
    assert!(site("bf16-weights") < site("bf16") / 3.0);
    // bfloat16 of any smooth value errs by 1.65e-3 on average, whatever the model.
    let stored = &report.bands.last().unwrap().members[0];
    assert!(stored.name == "stored" && (stored.rms - 1.65e-3).abs() < 0.05e-3, "{stored:?}");
    assert!(site(FLOOR) >= stored.rms);
    assert!((0.3..1.0).contains(&(site("bf16") / stored.rms)), "{}", site("bf16"));
    let class = |name: &str| report.verdicts.iter().find(|v| v.candidate == name).unwrap().class;
    assert_eq!([class("fp32"), class("fp32-split-k"), class("tf32")], [ErrorClass::BelowFloor; 3]);
    assert!(class("bf16") <= ErrorClass::AboveFloor);
    assert!(report.controls.len() == 5 && report.controls.iter().all(|c| c.caught), "{:?}", report.controls);
    assert!(report.decisions.iter().all(|d| d.positions == 224 && d.flips_beyond_floor == 0));
    assert_eq!(of("bf16", CurveMode::SingleInjection).len(), 12);
    assert!(report.curves.iter().any(|c| c.mode == CurveMode::Compounded && c.growth.is_some()));
}

#[test]
fn twins_are_caught_within_bf16_too_and_a_misplaced_eps_cannot_be() {
    let (all, _) = candidates(&mhc::INFO, &Device::Cpu, None).unwrap();
    let bf16 = all.iter().find(|c| c.name == "bf16").unwrap();
    let noisy: Vec<Candidate> = all
        .iter()
        .filter(|c| c.fault.is_some())
        .map(|twin| Candidate { fault: twin.fault.clone(), name: twin.name.clone(), ..bf16.clone() })
        .collect();
    let places: Vec<Place<'_>> = Device::Cpu.open(false, &|| false).unwrap().into_iter().map(Result::unwrap).collect();
    let doer =
        Doer { candidates: &noisy, dropped: &[], places: &places, progress: &|_, _, _| {}, cancelled: &|| false };
    let report = only(mhc_mix(&Inputs::of(None, &|_, _, _| {}, &|| false).unwrap(), &doer));
    for control in report.controls {
        assert_eq!(control.caught, control.name != "eps-misplaced", "{}", control.says);
    }
}

#[test]
fn an_older_report_without_the_newer_fields_still_loads() {
    let old = r#"{"spec":"mhc-mix","device":"cpu","at":"2026-01-01T00:00:00Z","provenance":"p","shape":"s",
        "curves":[{"candidate":"a","mode":"per-site","labels":["x"],"rel_l2":[1.0]}],
        "parts":[{"part":"site-input","curve":{"candidate":"a","mode":"per-site","labels":["x"],"rel_l2":["NaN"]}}],
        "floor":[],"verdicts":[],"seconds":1.0}"#;
    let read: MicroReport = serde_json::from_str(old).unwrap();
    assert!(read.controls.is_empty() && read.bands.is_empty() && read.curves[0].calc_diff.is_empty());
}

#[test]
fn progress_ends_at_its_total_and_the_report_survives_its_own_json() {
    let seen = Mutex::new(Vec::new());
    let note = |done: u64, total: u64, _: &str| seen.lock().unwrap().push((done, total));
    let report = only(run(&request("mhc-mix", "cpu", None), &note, &|| false));
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.iter().map(|(done, _)| *done).max(), Some(seen[0].1));
    assert_eq!(seen.len() as u64, seen[0].1);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<MicroReport>(&text).unwrap(), report);
}

#[test]
fn a_cancelled_sweep_says_so() {
    let failure = run(&request("mhc-mix", "cpu", None), &|_, _, _| {}, &|| true).unwrap_err();
    assert!(failure.message.contains("cancelled"));
}

/// Two cards that stand behind the same trait, one of them broken: a single bad card must show, alone.
#[test]
fn a_single_bad_card_shows_and_the_other_does_not_suffer() {
    use crate::kernel::cuda::fake::{FakeCard, Health};
    let (all, _) = candidates(&mhc::INFO, &Device::Cards("all".into()), None).unwrap();
    let fp32: Vec<Candidate> =
        all.into_iter().filter(|c| c.name == "fp32" || c.has_fault("one-stream-copied")).collect();
    assert_eq!(fp32.len(), 2);
    let model = Model::load(&crate::kernel::checkpoint::Checkpoint::lab().unwrap()).unwrap();
    let ticker = Ticker::new(1, &|_, _, _| {}, &|| false);
    let reference = mhc::chain::reference(&model, model.embed(&mhc::golden_ids().unwrap()[..16]), &ticker).unwrap();
    let cases = mhc::cases(&model, &reference, "the lab");
    let shared = sweep::shared(&mhc::MhcMix, &cases, &fp32, &ticker).unwrap();
    let report = |health| {
        let card = FakeCard { health };
        let swept = shared.tried(Some(&card), &|_| true, &ticker)?;
        Ok::<_, Failure>((judge::report(&mhc::INFO, &cases, &swept, None), swept.kernels))
    };
    let (well, kernels) = report(Health::Well).unwrap();
    assert_eq!(well.verdicts[0].class, ErrorClass::BelowFloor, "{}", well.verdicts[0].says);
    assert!(well.controls[0].caught);
    assert_eq!((kernels.len(), kernels[0].candidate.as_str()), (1, "fp32"));
    assert!(well.bands[0].members.iter().any(|m| m.name == "card-16-runs"), "{:?}", well.bands[0].members);
    let (broken, _) = report(Health::OneBit).unwrap();
    assert_eq!(broken.verdicts[0].class, ErrorClass::Broken, "{}", broken.verdicts[0].says);
    let split = |health| {
        let card = FakeCard { health };
        shared.tried(Some(&card), &|_| true, &ticker).unwrap()
    };
    assert_eq!(split(Health::Well).astray, [""; 0]);
    let astray = split(Health::OneBit).astray;
    assert!(astray.len() == 3 && astray[0].starts_with("card-1-runs: "), "{astray:?}");
    assert_eq!(report(Health::Dead).unwrap_err().message, "the fake card does not answer");
}

/// A report on a recording of these tensors.
fn on_recording(spec: &str, checkpoint: Option<&str>, tensors: &[Written<'_>]) -> Result<MicroReport, Failure> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "d.safetensors", tensors);
    let mut asked = request(spec, "cpu", checkpoint.map(Path::new));
    asked.activations = Some(folder.path());
    run(&asked, &|_, _, _| {}, &|| false)?.remove(0)
}

fn caught(report: &MicroReport) {
    assert!(!report.controls.is_empty());
    assert!(report.controls.iter().all(|c| c.caught), "{}: {:#?}", report.spec, report.controls);
    let broken = report.verdicts.iter().find(|v| v.class == ErrorClass::Broken);
    assert!(broken.is_none(), "{}: {broken:?}", report.spec);
}

#[test]
fn every_microtest_that_takes_a_recording_catches_its_twins_on_one() {
    let check = |spec: &str, tensors: &[Written<'_>], labels: &[&str]| {
        let report = on_recording(spec, None, tensors).unwrap();
        caught(&report);
        assert_eq!(report.curves[0].labels, labels);
        assert_eq!(report.recorded.len(), tensors.len());
        let first = &report.recorded[0];
        let named = format!("recorded: `{}` of ", first.tensor);
        assert!(report.provenance.starts_with(&named), "{}", report.provenance);
        assert!(report.provenance.contains(&first.hash[..12]), "{}", report.provenance);
    };
    let attention = "layers.3.attn_norm_input";
    check("norm", &[wave(attention, &[40, 128])], &["layer 3 attention", "layer 3 attention, quiet rows"]);
    check(
        "norm",
        &[wave("layers.1.kv_norm_input", &[9, 32]), wave("layers.1.q_heads_input", &[9, 128])],
        &["layer 1 query heads", "layer 1 latent key", "layer 1 query heads, quiet rows"],
    );
    check("router", &[wave("layers.2.ffn_input", &[1, 40, 128])], &["layer 2, biased", "layer 2, hash table made up"]);
    check(
        "quantise",
        &[wave("layers.2.ffn_input", &[40, 256]), wave("layers.2.down_input", &[40, 128])],
        &[
            "layer 2 into experts, 256 wide",
            "layer 2 out of experts, 128 wide",
            "layer 2 out of experts, 128 wide, weights already MXFP4",
        ],
    );
}

#[test]
fn a_twin_that_cannot_show_in_rows_of_one_block_is_left_out_and_named() {
    let report = on_recording("quantise", None, &[wave("layers.2.down_input", &[40, 128])]).unwrap();
    caught(&report);
    let names = "; cannot show here: neighbour-scale, grid-transposed";
    assert!(report.provenance.ends_with(names), "{}", report.provenance);
}

#[test]
fn a_router_with_recorded_inputs_at_the_real_size_has_layers_of_both_kinds() {
    let check = |layer: usize, labels: [&str; 2]| {
        let name = format!("layers.{layer}.ffn_input");
        let report = on_recording("router", Some("synthetic:flash"), &[wave(&name, &[8, 4096])]).unwrap();
        assert_eq!(report.curves[0].labels, labels);
        assert!(report.controls.iter().all(|c| c.caught), "{:#?}", report.controls);
    };
    check(1, ["layer 1, hash", "layer 1, as if biased"]);
    check(7, ["layer 7, biased", "layer 7, as if hash"]);
}

#[test]
fn recorded_streams_pass_through_the_lab_model() {
    let streams = wave("layers.0.hc_attn_input", &[24, 4, 128]);
    let later = wave("layers.4.hc_ffn_input", &[16, 512]);
    let report = on_recording("mhc-mix", None, &[streams, later]).unwrap();
    caught(&report);
    assert!(report.decisions.iter().all(|d| d.positions == 24), "{:?}", report.decisions);
    assert!(report.shape.starts_with("2 of 12 sites on recorded streams, at most 24 tokens; 24 tokens through"));
    assert!(report.provenance.contains("over those recorded before the first site"), "{}", report.provenance);
    let heat = &report.heats[0];
    assert_eq!(heat.values[9].0.iter().filter(|v| v.is_finite()).count(), 16, "16 tokens were recorded at site 9");

    let report = on_recording("mhc-mix", None, &[wave("layers.4.hc_ffn_input", &[16, 512])]).unwrap();
    caught(&report);
    assert!(report.provenance.contains("over the lab's golden prompt"), "{}", report.provenance);
    assert!(report.decisions.iter().all(|d| d.positions == 224));
    let lab = lab_report();
    let alone = |report: &MicroReport| report.curves[0].rel_l2.clone();
    let (got, own) = (alone(&report), alone(&lab));
    let same: Vec<bool> = got.iter().zip(&own).map(|(a, b)| a == b).collect();
    assert!(same.iter().enumerate().all(|(site, same)| *same == (site != 9)), "{same:?}");
}

#[test]
fn what_a_microtest_cannot_take_is_said_before_anything_is_measured() {
    let check = |spec: &str, tensors: &[Written<'_>], message: &str, hint: &str| {
        let failure = on_recording(spec, None, tensors).unwrap_err();
        assert!(failure.message.contains(message), "{}", failure.message);
        assert!(failure.hint.as_deref().is_some_and(|h| h.contains(hint)), "{failure:?}");
    };
    let one = || [wave("layers.0.ffn_input", &[8, 128])];
    check("indexer", &one(), "microtest `indexer` takes no recorded activations", "mhc-mix, router, norm, quantise do");
    check("norm", &one(), "has no tensor that microtest `norm` takes", "`layers.N.kv_norm_input` [tokens, 32]");
    let mut asked = request("norm", "cpu", None);
    let nowhere = Path::new("/nowhere/dump");
    asked.activations = Some(nowhere);
    let failure = run(&asked, &|_, _, _| {}, &|| false).unwrap_err();
    assert_eq!(failure.message, "`/nowhere/dump` is not there");
}

#[test]
fn a_candidate_of_another_device_is_named_and_a_file_of_such_alone_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let kernel = "[[candidate]]\nspec = \"norm\"\nname = \"mine\"\ncuda = { file = \"mine.cu\", launch = [{ function = \"f\", \
                  threads = 32, grid = [[\"rows\", 1]] }] }\n";
    fs_err::write(&file, kernel).unwrap();
    let refused = candidates(&norm::INFO, &Device::Cpu, Some(&file)).unwrap_err();
    let why = "no candidate of the file runs there; mine: it has kernels for a card: use `--device cuda:0`";
    assert_eq!(refused.message, why);
    let (all, dropped) = candidates(&norm::INFO, &Device::Cards("all".into()), Some(&file)).unwrap();
    assert!(dropped.is_empty());
    let mine = all.last().unwrap().cuda.as_ref().unwrap().file.as_deref().unwrap();
    assert_eq!(mine, dir.path().join("mine.cu").display().to_string());
    let both = format!("{kernel}[[candidate]]\nspec = \"norm\"\nname = \"f16\"\nround = {{ output = \"f16\" }}\n");
    fs_err::write(&file, both).unwrap();
    let (_, dropped) = candidates(&norm::INFO, &Device::Cpu, Some(&file)).unwrap();
    assert_eq!(dropped, ["mine: it has kernels for a card: use `--device cuda:0`"]);
}

#[test]
fn a_command_that_fails_is_named_and_the_others_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let text = "[[candidate]]\nspec = \"norm\"\nname = \"fork\"\ncommand = { argv = [\"sh\", \"-c\", \"echo no module >&2; exit 3\"] }\n";
    fs_err::write(&file, text).unwrap();
    let mut asked = request("norm", "cpu", None);
    asked.candidates = Some(&file);
    assert!(commands(&asked).unwrap()[0].starts_with("`fork` is `sh -c "));
    let report = only(run(&asked, &|_, _, _| {}, &|| false));
    assert!(report.verdicts.len() >= 4 && report.verdicts.iter().all(|v| v.candidate != "fork"));
    assert!(report.left_out[0].contains("candidate `fork`: `sh -c "), "{:?}", report.left_out);
    assert!(report.left_out[0].ends_with("ended with status 3: no module"), "{:?}", report.left_out);
    assert!(report.provenance.contains("`fork` is `sh -c "), "{}", report.provenance);
}

#[test]
fn inputs_of_one_site_at_a_time_are_not_shared_by_two_places_at_work_together() {
    let places: Vec<Place<'_>> =
        (0..3).map(|_| Device::Cpu.open(false, &|| false).unwrap().remove(0).unwrap()).collect();
    let doer = Doer { candidates: &[], dropped: &[], places: &places, progress: &|_, _, _| {}, cancelled: &|| false };
    let at_work = Mutex::new(());
    let reports = doer.in_every_place(Pace::InTurn, |_| {
        let alone = at_work.try_lock().map_err(|_| Failure::new("two at once"))?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(alone);
        Ok(Done { report: MicroReport::default(), kernels: Vec::new(), failed: Vec::new(), astray: Vec::new() })
    });
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(Result::is_ok), "{reports:?}");
}
