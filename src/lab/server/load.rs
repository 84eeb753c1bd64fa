//! Loading the weights and preparing to run them, with the progress that `SGLang` writes while it does.
//!
//! A start can be made to take as long as that of a large model; what is loaded is the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ServeArgs;
use super::error::ServeError;
use crate::lab::log;
use crate::lab::model::{Arithmetic, EMBEDDED, Model};

/// Shards that are told for every second of a slow load.
const SHARDS_A_SECOND: f64 = 2.0;
/// Most shards that are told.
const MOST_SHARDS: u32 = 46;
/// Share of a slow start that goes to the weights; the rest goes to what stands for the capture of graphs.
const WEIGHTS: f64 = 0.7;
/// Batch sizes of which a capture is told, the largest first.
const CAPTURED: [u32; 8] = [32, 24, 16, 12, 8, 4, 2, 1];

/// The model with its arithmetic, after at least `seconds`.
pub(super) fn load(args: &ServeArgs, arithmetic: Arithmetic, seconds: f64) -> Result<Arc<Model>, ServeError> {
    let begin = Instant::now();
    log::line("Load weight begin. avail mem=0.00 GB");
    let model = match &args.checkpoint {
        None => Model::load(EMBEDDED, arithmetic)?,
        Some(folder) => {
            let bytes = fs_err::read(folder.join("model.safetensors")).map_err(ServeError::CheckpointRead)?;
            Model::load(&bytes, arithmetic)?
        }
    };
    // What is no time at all, such as NaN, is none.
    let all = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let least = all.mul_f64(WEIGHTS);
    let shards = ((seconds * SHARDS_A_SECOND) as u32).clamp(1, MOST_SHARDS);
    for done in 0..=shards {
        std::thread::sleep((least * done / shards).saturating_sub(begin.elapsed()));
        log::plain(&shards_line(done, shards, begin.elapsed()));
    }
    log::line(&format!(
        "Load weight end. elapsed={:.2} s, type=DeepseekV4ForCausalLM, dtype=torch.float32, avail mem=0.00 GB, mem usage=0.01 GB.",
        begin.elapsed().as_secs_f64()
    ));
    log::line(&format!("KV Cache is allocated. #tokens: {}, K size: 0.00 GB, V size: 0.00 GB", args.max_total_tokens));
    log::line("Memory pool end. avail mem=0.00 GB");
    if !all.is_zero() {
        capture(all.saturating_sub(least));
    }
    Ok(Arc::new(model))
}

/// Takes as long as it is told, in the words of a capture of graphs, which the lab has none of.
fn capture(least: Duration) {
    let begin = Instant::now();
    log::line("Capture cuda graph begin. This can take up to several minutes. avail mem=0.00 GB");
    let total = CAPTURED.len() as u32;
    for (done, size) in (1..).zip(CAPTURED) {
        std::thread::sleep((least * done / total).saturating_sub(begin.elapsed()));
        log::plain(&format!(
            "Capturing batches (bs={size} avail_mem=0.00 GB): {:3}%|{}| {done}/{total} [{}<{}]",
            100 * done / total,
            "█".repeat(done as usize),
            clock(begin.elapsed()),
            clock(least.saturating_sub(begin.elapsed())),
        ));
    }
    log::line(&format!(
        "Capture cuda graph end. Time elapsed: {:.2} s. mem usage=0.00 GB. avail mem=0.00 GB.",
        begin.elapsed().as_secs_f64()
    ));
}

/// One line of the progress bar, as `SGLang`'s loader writes it: without a time in front.
fn shards_line(done: u32, shards: u32, elapsed: Duration) -> String {
    let percent = 100 * done / shards;
    let head = format!("Loading safetensors checkpoint shards: {percent:3}% Completed | {done}/{shards}");
    if done == 0 {
        return format!("{head} [00:00<?, ?it/s]");
    }
    let each = elapsed.as_secs_f64() / f64::from(done);
    let left = Duration::try_from_secs_f64(each * f64::from(shards - done)).unwrap_or_default();
    let rate = if each > 1.0 { format!("{each:5.2}s/it") } else { format!("{:5.2}it/s", 1.0 / each.max(1e-9)) };
    format!("{head} [{}<{}, {rate}]", clock(elapsed), clock(left))
}

fn clock(time: Duration) -> String {
    format!("{:02}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_tells_what_is_done_and_how_long_it_takes() {
        let check = |done, shards, seconds, expect: &str| {
            let line = shards_line(done, shards, Duration::from_secs_f64(seconds));
            assert_eq!(line, format!("Loading safetensors checkpoint shards: {expect}"));
        };
        check(0, 46, 0.0, "  0% Completed | 0/46 [00:00<?, ?it/s]");
        check(1, 46, 1.5, "  2% Completed | 1/46 [00:01<01:07,  1.50s/it]");
        check(23, 46, 115.0, " 50% Completed | 23/46 [01:55<01:55,  5.00s/it]");
        check(46, 46, 11.5, "100% Completed | 46/46 [00:11<00:00,  4.00it/s]");
    }

    #[test]
    fn a_start_takes_as_long_as_is_said() {
        let args = crate::lab::server::tests::flags("");
        let begin = Instant::now();
        load(&args, Arithmetic::default(), 0.3).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(300));
        load(&args, Arithmetic::default(), f64::NAN).unwrap();
    }
}
