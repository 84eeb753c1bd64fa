//! One task on one card: its buffers and its launches.
//!
//! Responsible for memory and arguments. Not responsible for compiling, nor for what came out.

#![expect(unsafe_code, reason = "kernels are launched, which the compiler cannot check")]

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys};

use crate::engine::procedure::Failure;
use crate::kernel::cuda::busy::gib;
use crate::kernel::cuda::found::words;
use crate::kernel::outside::Launch;
use crate::kernel::task::Task;
use crate::kernel::tensors::Tensor;

/// The most memory that one task may take.
const CAP: usize = 2 << 30;
/// What a block has of shared memory without asking for more.
const SHARED: u32 = 48 * 1024;

/// A launch with its function and its grid.
pub(super) struct Ready {
    pub(super) function: CudaFunction,
    config: LaunchConfig,
    name: String,
}

impl Ready {
    /// Lays out the grid of a launch for a task.
    ///
    /// # Errors
    /// It names an extent that the task does not have, or more blocks than a card takes.
    pub(super) fn new(function: CudaFunction, launch: &Launch, task: &Task, splits: usize) -> Result<Self, Failure> {
        let [x, y, z] = grid(launch, task, splits)?;
        if launch.shared > SHARED {
            let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(most, launch.shared as i32).map_err(|e| {
                let (name, shared) = (&launch.function, launch.shared);
                Failure::new(format!("`{name}` cannot have {shared} bytes of shared memory: {}", words(e)))
            })?;
        }
        let config =
            LaunchConfig { grid_dim: (x, y, z), block_dim: (launch.threads, 1, 1), shared_mem_bytes: launch.shared };
        Ok(Self { function, config, name: launch.function.clone() })
    }
}

/// Blocks along each dimension.
fn grid(launch: &Launch, task: &Task, splits: usize) -> Result<[u32; 3], Failure> {
    let mut blocks = [1; 3];
    for (at, (extent, per_block)) in launch.grid.iter().take(3).enumerate() {
        let Some(size) = task.extent(extent, splits) else {
            let names: Vec<&str> = task.ints.iter().map(|(name, _)| *name).collect();
            return Err(Failure::new(format!("`{}`: there is no extent `{extent}`", launch.function))
                .hint(format!("there is rows, splits, {}", names.join(", "))));
        };
        let most = if at == 0 { i32::MAX as usize } else { 65_535 };
        let count = size.div_ceil(*per_block as usize).max(1);
        if count > most {
            return Err(Failure::new(format!("`{}`: {count} blocks are more than a card takes", launch.function)));
        }
        blocks[at] = count as u32;
    }
    Ok(blocks)
}

/// A task in the memory of a card.
pub(super) struct Loaded {
    stream: Arc<CudaStream>,
    inputs: Vec<CudaSlice<u8>>,
    outputs: Vec<CudaSlice<u8>>,
    scratch: CudaSlice<u8>,
    ints: Vec<i32>,
    floats: Vec<f32>,
}

impl Loaded {
    /// Brings the inputs there.
    ///
    /// # Errors
    /// It takes more than the cap or than is free, or the card fails.
    pub(super) fn new(stream: &Arc<CudaStream>, task: &Task, splits: usize, device: &str) -> Result<Self, Failure> {
        let needed = task.bytes() + task.scratch_bytes(splits);
        if needed > CAP {
            let (needed, cap) = (gib(needed as u64), gib(CAP as u64));
            return Err(Failure::new(format!("this case takes {needed} of {device}, and {cap} is the most")));
        }
        let failed = |e: DriverError| Failure::new(format!("{device} cannot take the case: {}", words(e)));
        let (free, _) = stream.context().mem_get_info().map_err(failed)?;
        if needed > free {
            return Err(Failure::new(format!(
                "{device} is full: this case takes {}, and {} is free",
                gib(needed as u64),
                gib(free as u64)
            )));
        }
        // A buffer of no bytes has no address; kernels get one of a few bytes instead.
        let zeros = |bytes: usize| stream.alloc_zeros::<u8>(bytes.max(16)).map_err(failed);
        let mut inputs = Vec::new();
        for tensor in &task.inputs {
            let mut buffer = zeros(tensor.bytes().len())?;
            if !tensor.bytes().is_empty() {
                stream.memcpy_htod(tensor.bytes(), &mut buffer).map_err(failed)?;
            }
            inputs.push(buffer);
        }
        let outputs = task.outputs.iter().map(|slot| zeros(4 * slot.count())).collect::<Result<_, _>>()?;
        let ints = [task.rows, splits].into_iter().chain(task.ints.iter().map(|(_, v)| *v));
        Ok(Self {
            stream: Arc::clone(stream),
            inputs,
            outputs,
            scratch: zeros(task.scratch_bytes(splits))?,
            ints: ints.map(|v| v as i32).collect(),
            floats: task.floats.iter().map(|(_, v)| *v).collect(),
        })
    }

    /// Fills outputs and scratch with zeros again.
    ///
    /// # Errors
    /// The card fails.
    pub(super) fn clear(&mut self) -> Result<(), DriverError> {
        for buffer in self.outputs.iter_mut().chain([&mut self.scratch]) {
            self.stream.memset_zeros(buffer)?;
        }
        Ok(())
    }

    /// Launches one function after another; they need not have ended when this returns.
    ///
    /// # Errors
    /// The card refuses a launch.
    pub(super) fn launch(&mut self, ready: &[Ready]) -> Result<(), Failure> {
        for one in ready {
            let mut launch = self.stream.launch_builder(&one.function);
            self.inputs.iter().for_each(|buffer| {
                launch.arg(buffer);
            });
            self.outputs.iter_mut().for_each(|buffer| {
                launch.arg(buffer);
            });
            launch.arg(&mut self.scratch);
            self.ints.iter().for_each(|value| {
                launch.arg(value);
            });
            self.floats.iter().for_each(|value| {
                launch.arg(value);
            });
            // SAFETY: the buffers have the sizes that the spec's interface states and live until the stream has ended;
            // what a kernel does within them is its author's.
            let launched = unsafe { launch.launch(one.config) };
            launched.map_err(|e| Failure::new(format!("`{}` cannot be launched: {}", one.name, words(e))))?;
        }
        Ok(())
    }

    /// The bytes of each output, once everything before has ended.
    ///
    /// # Errors
    /// A kernel failed.
    pub(super) fn bytes(&self, task: &Task) -> Result<Vec<Vec<u8>>, DriverError> {
        let mut all = Vec::new();
        for (buffer, slot) in self.outputs.iter().zip(&task.outputs) {
            let mut bytes = self.stream.clone_dtoh(buffer)?;
            bytes.truncate(4 * slot.count());
            all.push(bytes);
        }
        self.stream.synchronize()?;
        Ok(all)
    }
}

/// The outputs as tensors.
pub(super) fn tensors(task: &Task, bytes: &[Vec<u8>]) -> Vec<Tensor> {
    task.outputs.iter().zip(bytes).map(|(slot, bytes)| slot.filled(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_covers_its_extents() {
        let task = Task { rows: 17, ints: vec![("outputs", 130), ("huge", 10_000_000)], ..Task::default() };
        let blocks = |pairs: &[(&str, u32)]| {
            let grid_of = pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            grid(&Launch { function: "f".into(), threads: 32, grid: grid_of, shared: 0 }, &task, 4)
        };
        assert_eq!(blocks(&[("rows", 16), ("outputs", 64), ("splits", 1)]), Ok([2, 3, 4]));
        assert_eq!(blocks(&[("rows", 1)]), Ok([17, 1, 1]));
        let wrong = |pairs: &[(&str, u32)], expect: &str| assert_eq!(blocks(pairs).unwrap_err().message, expect);
        wrong(&[("columns", 1)], "`f`: there is no extent `columns`");
        wrong(&[("rows", 1), ("huge", 1)], "`f`: 10000000 blocks are more than a card takes");
    }
}
