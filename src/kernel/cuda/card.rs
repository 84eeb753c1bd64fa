//! A card at work: one thread owns its context and does one thing after another.
//!
//! Responsible for that thread, for running candidates there, and for their bits and times. Not
//! responsible for which candidates, nor for judging what they give.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys};

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::cuda::busy::Use;
use crate::kernel::cuda::check;
use crate::kernel::cuda::found::{CardInfo, words};
use crate::kernel::cuda::job::{Loaded, Ready, tensors};
use crate::kernel::cuda::program::Programs;
use crate::kernel::outside::{Cuda, Unit};
use crate::kernel::report::{CardCheck, Ceilings, KernelRun};
use crate::kernel::task::{Outside, Task};
use crate::kernel::tensors::Tensor;

/// How often somebody is asked whether to go on while the card computes.
const LOOK: Duration = Duration::from_millis(50);
/// Runs whose bits are compared and whose times are taken.
const RUNS: u32 = 20;
/// Rows that are also run at a time.
const BATCHES: [usize; 6] = [1, 4, 8, 16, 17, 64];
/// Bytes that are written before a timed run, so that none of its inputs is in a cache.
const FLUSH: usize = 256 << 20;

type Work = Box<dyn FnOnce(&mut OnCard) + Send>;

/// A card whose thread waits for work.
#[expect(missing_debug_implementations, reason = "it holds the caller's function")]
pub struct Card<'a> {
    /// What it is.
    pub info: CardInfo,
    /// What makes code for it.
    pub compiler: String,
    /// The most that it does, measured when it was opened.
    pub ceilings: Ceilings,
    work: Option<mpsc::Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// What only the card's thread has.
pub(super) struct OnCard {
    pub(super) context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
    pub(super) info: CardInfo,
    programs: Programs,
    /// What is written before a timed run; made when first needed.
    flush: Option<CudaSlice<u8>>,
}

impl<'a> Card<'a> {
    /// Starts the thread of a card.
    ///
    /// # Errors
    /// The card cannot be used; why.
    pub fn open(info: CardInfo, cancelled: &'a (dyn Fn() -> bool + Sync)) -> Result<Self, Failure> {
        let (work, jobs) = mpsc::channel::<Work>();
        let (tell, told) = mpsc::channel();
        let of_thread = info.clone();
        let thread = std::thread::Builder::new()
            .name(info.device())
            .spawn(move || {
                let opened = OnCard::new(of_thread).and_then(|mut on_card| {
                    let ceilings = on_card.ceilings()?;
                    Ok((on_card, ceilings))
                });
                let mut on_card = match opened {
                    Ok((on_card, ceilings)) => {
                        let _ = tell.send(Ok((on_card.programs.compiler(), ceilings)));
                        on_card
                    }
                    Err(failure) => {
                        let _ = tell.send(Err(failure));
                        return;
                    }
                };
                for job in jobs {
                    job(&mut on_card);
                }
            })
            .map_err(|e| Failure::new(format!("no thread for {}: {e}", info.device())))?;
        let (compiler, ceilings) = wait(&told, cancelled, &info.device())?;
        Ok(Self { info, compiler, ceilings, work: Some(work), thread: Some(thread), cancelled })
    }

    /// Does something in the card's thread and waits for it, or for somebody to cancel.
    pub(super) fn on_card<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut OnCard) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let device = self.info.device();
        let (tell, told) = mpsc::channel();
        let job: Work = Box::new(move |on_card| {
            // Nobody waits any more after a cancel.
            let _ = tell.send(work(on_card));
        });
        // A thread that is gone drops its end, which the wait tells.
        if let Some(work) = &self.work {
            let _ = work.send(job);
        }
        wait(&told, self.cancelled, &device)
    }

    /// Copies with checksums to the card and back and to other cards, and what was counted of its faults.
    ///
    /// # Errors
    /// A copy fails.
    pub fn check(&self, peers: &[CardInfo], seen: Option<&Use>) -> Result<CardCheck, Failure> {
        let (own, peers) = (self.info.ordinal, peers.to_vec());
        let others: Vec<CardInfo> = peers.into_iter().filter(|p| p.ordinal != own).collect();
        let copied = self.on_card(move |on_card| check::copies(on_card, &others))?;
        Ok(check::counted(copied, seen))
    }
}

/// What the thread of a card answers, unless somebody cancels meanwhile.
fn wait<T>(
    told: &mpsc::Receiver<Result<T, Failure>>,
    cancelled: &(dyn Fn() -> bool + Sync),
    device: &str,
) -> Result<T, Failure> {
    loop {
        match told.recv_timeout(LOOK) {
            Ok(end) => return end,
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new(format!("the thread of {device} broke"))),
            Err(RecvTimeoutError::Timeout) if cancelled() => {
                return Err(Failure::new(format!("cancelled while {device} was at work")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Drop for Card<'_> {
    fn drop(&mut self) {
        self.work = None;
        // A kernel that does not end would hold this program for ever: after a cancel the thread is left.
        if !(self.cancelled)()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

impl Outside for Card<'_> {
    fn run(&self, candidate: &Candidate, task: &Task) -> Result<Vec<Tensor>, Failure> {
        let (candidate, task) = (candidate.clone(), task.clone());
        self.on_card(move |on_card| on_card.run(&candidate, &task))
    }

    fn measure(&self, candidate: &Candidate, task: &Task) -> Result<Option<KernelRun>, Failure> {
        let (candidate, task, ceilings) = (candidate.clone(), task.clone(), self.ceilings.clone());
        self.on_card(move |on_card| on_card.measure(&candidate, &task, &ceilings)).map(Some)
    }
}

impl OnCard {
    #[expect(unsafe_code, reason = "who uses several streams must not do this")]
    fn new(info: CardInfo) -> Result<Self, Failure> {
        let wrong = |e| Failure::new(format!("{} cannot be used: {}", info.device(), words(e)));
        let context = CudaContext::new(info.ordinal as usize).map_err(wrong)?;
        // SAFETY: all work of this context goes into the one stream below, which keeps its order.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(wrong)?;
        let programs = Programs::new(Arc::clone(&context), &info)?;
        Ok(Self { context, stream, info, programs, flush: None })
    }

    /// What the card says of an error in the middle of work.
    pub(super) fn failed(&self, doing: &str) -> impl Fn(DriverError) -> Failure + use<> {
        let (device, doing) = (self.info.device(), doing.to_owned());
        move |e| {
            Failure::new(format!("{doing} failed on {device}: {}", words(e)))
                .hint("after such a fault this process cannot use the card any more; look at the kernel's addresses")
        }
    }

    fn ready(&mut self, candidate: &Candidate, task: &Task) -> Result<(Vec<Ready>, Unit), Failure> {
        let Some(cuda) = candidate.cuda.clone() else {
            return Err(Failure::new(format!("candidate `{}` has no kernel", candidate.name)));
        };
        let splits = candidate.accumulate.splits;
        let ready = cuda
            .launch
            .iter()
            .map(|launch| Ready::new(self.programs.function(candidate, &cuda, &launch.function)?, launch, task, splits))
            .collect::<Result<_, Failure>>()
            .map_err(|f| Failure { message: format!("candidate `{}`: {}", candidate.name, f.message), ..f })?;
        Ok((ready, cuda.unit))
    }

    fn run(&mut self, candidate: &Candidate, task: &Task) -> Result<Vec<Tensor>, Failure> {
        let (ready, _) = self.ready(candidate, task)?;
        let mut loaded = Loaded::new(&self.stream, task, candidate.accumulate.splits, &self.info.device())?;
        loaded.launch(&ready)?;
        let bytes = loaded.bytes(task).map_err(self.failed(&format!("candidate `{}`", candidate.name)))?;
        Ok(tensors(task, &bytes))
    }

    /// Bits and times of many runs, and the bits of batches.
    fn measure(&mut self, candidate: &Candidate, task: &Task, ceilings: &Ceilings) -> Result<KernelRun, Failure> {
        let (ready, unit) = self.ready(candidate, task)?;
        let failed = self.failed(&format!("candidate `{}`", candidate.name));
        let splits = candidate.accumulate.splits;
        let mut loaded = Loaded::new(&self.stream, task, splits, &self.info.device())?;
        let mut first: Option<Vec<Vec<u8>>> = None;
        let mut run = KernelRun { candidate: candidate.name.clone(), runs: RUNS, ..KernelRun::default() };
        for one in &ready {
            run.registers = run.registers.max(one.function.num_regs().map_err(&failed)? as u32);
            run.local = run.local.max(one.function.local_size_bytes().map_err(&failed)? as u32);
        }
        let mut times = Vec::new();
        for _ in 0..RUNS {
            loaded.clear().map_err(&failed)?;
            self.empty_caches().map_err(&failed)?;
            let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
            let start = self.stream.record_event(timed).map_err(&failed)?;
            loaded.launch(&ready)?;
            let end = self.stream.record_event(timed).map_err(&failed)?;
            times.push(f64::from(start.elapsed_ms(&end).map_err(&failed)?) / 1e3);
            let bytes = loaded.bytes(task).map_err(&failed)?;
            match &first {
                None => first = Some(bytes),
                Some(first) if *first != bytes => run.other_bits += 1,
                Some(_) => {}
            }
        }
        drop(loaded);
        times.sort_by(f64::total_cmp);
        run.seconds = times[times.len() / 2];
        run.bytes = (task.bytes() - task.unread) as u64;
        run.flops = task.flops;
        if let Some((least, bound)) = ceilings.least(run.bytes, run.flops, unit) {
            run.share = least / run.seconds;
            run.bound = bound;
        }
        let apart = candidate.cuda.as_ref().is_some_and(|cuda| !cuda.rows_together);
        for rows in BATCHES.into_iter().filter(|rows| apart && *rows < task.rows) {
            run.batches.push(rows as u64);
            for from in [0, task.rows - rows] {
                if !self.same_alone(candidate, task, from..from + rows, first.as_deref().unwrap_or_default())? {
                    run.other_batches.push(rows as u64);
                    break;
                }
            }
        }
        Ok(run)
    }

    /// Whether some rows alone come out with the bits that they have among all.
    fn same_alone(
        &mut self,
        candidate: &Candidate,
        task: &Task,
        rows: std::ops::Range<usize>,
        whole: &[Vec<u8>],
    ) -> Result<bool, Failure> {
        let part = task.part(rows.clone());
        let (ready, _) = self.ready(candidate, &part)?;
        let mut loaded = Loaded::new(&self.stream, &part, candidate.accumulate.splits, &self.info.device())?;
        loaded.launch(&ready)?;
        let got = loaded.bytes(&part).map_err(self.failed(&format!("candidate `{}`", candidate.name)))?;
        let same = |((slot, got), whole): ((&crate::kernel::tensors::Slot, &Vec<u8>), &Vec<u8>)| {
            let row = whole.len() / task.rows.max(1);
            !slot.by_row || got[..] == whole[rows.start * row..rows.end * row]
        };
        Ok(task.outputs.iter().zip(&got).zip(whole).all(same))
    }

    fn empty_caches(&mut self) -> Result<(), DriverError> {
        if self.flush.is_none() {
            self.flush = Some(self.stream.alloc_zeros::<u8>(FLUSH)?);
        }
        match &mut self.flush {
            Some(buffer) => self.stream.memset_zeros(buffer),
            None => Ok(()),
        }
    }

    /// Copies within the card, and independent products of each of its units.
    fn ceilings(&mut self) -> Result<Ceilings, Failure> {
        let failed = self.failed("measuring the ceilings");
        let from = self.stream.alloc_zeros::<u8>(FLUSH).map_err(&failed)?;
        let mut to = self.stream.alloc_zeros::<u8>(FLUSH).map_err(&failed)?;
        let seconds = self.best(|stream| stream.memcpy_dtod(&from, &mut to)).map_err(&failed)?;
        let mut ceilings = Ceilings { bytes_per_second: 2.0 * FLUSH as f64 / seconds, flops: Vec::new() };
        drop((from, to));
        let multiprocessors = self
            .context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(&failed)? as u32;
        for (unit, name, per_thread) in CEILINGS {
            // On Hopper `mma.sync` with e4m3 is done by other units; its own are reached by `wgmma` alone.
            if unit == Unit::Fp8 && self.info.capability == 90 {
                continue;
            }
            let Some(function) = self.programs.ceiling(name)? else { continue };
            let (blocks, threads, loops) = (8 * multiprocessors, 256_u32, 2048_i32);
            let mut out = self.stream.alloc_zeros::<f32>((blocks * threads) as usize).map_err(&failed)?;
            let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
            let seconds = self.best(|stream| launch_ceiling(stream, &function, config, &mut out, loops));
            let operations = per_thread * f64::from(blocks) * f64::from(threads) * f64::from(loops);
            ceilings.flops.push((unit, operations / seconds.map_err(&failed)?));
        }
        Ok(ceilings)
    }

    /// Seconds of the fastest of some runs.
    fn best(&self, mut work: impl FnMut(&Arc<CudaStream>) -> Result<(), DriverError>) -> Result<f64, DriverError> {
        let mut best = f64::INFINITY;
        for _ in 0..6 {
            let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
            let start = self.stream.record_event(timed)?;
            work(&self.stream)?;
            let end = self.stream.record_event(timed)?;
            best = best.min(f64::from(start.elapsed_ms(&end)?) / 1e3);
        }
        Ok(best)
    }
}

/// Units, their kernel, and operations of a thread and loop: eight independent sums each; a fragment of
/// 16 x 8 x k belongs to a warp of 32 threads.
const CEILINGS: [(Unit, &str, f64); 4] = [
    (Unit::F32, "ceiling_f32", 2.0 * 8.0),
    (Unit::Tf32, "ceiling_tf32", 2.0 * 16.0 * 8.0 * 8.0 * 8.0 / 32.0),
    (Unit::Bf16, "ceiling_bf16", 2.0 * 16.0 * 8.0 * 16.0 * 8.0 / 32.0),
    (Unit::Fp8, "ceiling_fp8", 2.0 * 16.0 * 8.0 * 32.0 * 8.0 / 32.0),
];

#[expect(unsafe_code, reason = "a kernel is launched, which the compiler cannot check")]
fn launch_ceiling(
    stream: &Arc<CudaStream>,
    function: &cudarc::driver::CudaFunction,
    config: LaunchConfig,
    out: &mut CudaSlice<f32>,
    loops: i32,
) -> Result<(), DriverError> {
    let mut launch = stream.launch_builder(function);
    launch.arg(out).arg(&loops);
    // SAFETY: every thread writes one number of `out`, which has one for each.
    unsafe { launch.launch(config) }.map(|_| ())
}

/// Why a candidate cannot run on a card; `None` where it can.
pub fn unsuited(candidate: &Candidate, card: &CardInfo) -> Option<String> {
    let suits = |cuda: &Cuda| cuda.suits(card.capability).err();
    candidate.cuda.as_ref().and_then(suits).map(|why| format!("{}: {why}", candidate.name))
}
