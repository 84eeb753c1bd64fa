//! Compiled kernels on one card.
//!
//! Responsible for compiling each source once for the card, and for taking shipped PTX where there is
//! no compiler. Not responsible for launching.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::cuda::found::{CardInfo, words};
use crate::kernel::cuda::nvrtc::{self, Code, Nvrtc};
use crate::kernel::cuda::shipped::{self, Archive};
use crate::kernel::cuda::source::{self, CEILINGS};
use crate::kernel::outside::Cuda;

/// What makes code for the card.
enum Compiler {
    Nvrtc(Box<Nvrtc>),
    Shipped { archive: Archive, without: String },
}

/// Modules of one card.
pub(super) struct Programs {
    context: Arc<CudaContext>,
    capability: u32,
    device: String,
    compiler: Compiler,
    modules: HashMap<String, Arc<CudaModule>>,
}

impl Programs {
    /// With the compiler if there is one, else with the PTX of this program.
    ///
    /// # Errors
    /// The PTX is damaged.
    pub(super) fn new(context: Arc<CudaContext>, card: &CardInfo) -> Result<Self, Failure> {
        let compiler = match Nvrtc::load(&nvrtc::places(&|name| std::env::var(name).ok())) {
            Ok(nvrtc) => Compiler::Nvrtc(Box::new(nvrtc)),
            Err(failure) => Compiler::Shipped { archive: shipped::archive()?, without: failure.message },
        };
        let (capability, device) = (card.capability, card.device());
        Ok(Self { context, capability, device, compiler, modules: HashMap::new() })
    }

    /// What makes code, in words.
    pub(super) fn compiler(&self) -> String {
        match &self.compiler {
            Compiler::Nvrtc(nvrtc) => format!("NVRTC {}.{} at {}", nvrtc.version.0, nvrtc.version.1, nvrtc.place),
            Compiler::Shipped { without, .. } => format!("shipped PTX, compiled by the driver ({without})"),
        }
    }

    /// What a candidate is compiled for.
    pub(super) fn arch(&self, cuda: &Cuda) -> String {
        source::arch(cuda, self.capability)
    }

    /// A function of a candidate.
    ///
    /// # Errors
    /// Its source cannot be read or does not compile, or has no such function.
    pub(super) fn function(&mut self, candidate: &Candidate, cuda: &Cuda, name: &str) -> Result<CudaFunction, Failure> {
        let (text, place) = match &cuda.file {
            Some(file) => (fs_err::read_to_string(file).map_err(|e| Failure::new(e.to_string()))?, file.clone()),
            None => match source::of(&candidate.spec) {
                Some(built_in) => (built_in.text.to_owned(), built_in.file.to_owned()),
                None => {
                    return Err(Failure::new(format!("`{}` has no kernels of its own", candidate.spec))
                        .hint("name a source with `cuda = { file = \"mine.cu\", … }`"));
                }
            },
        };
        let shipped = cuda.file.is_none().then(|| shipped::key(candidate));
        let module = self.module(&text, &place, cuda, shipped.as_deref())?;
        module.load_function(name).map_err(|e| {
            Failure::new(format!("`{place}` has no function `{name}`: {}", words(e)))
                .hint("it must be `extern \"C\" __global__`")
        })
    }

    /// A kernel of the ceilings; `None` where this card has no such units.
    ///
    /// # Errors
    /// They do not compile.
    pub(super) fn ceiling(&mut self, name: &str) -> Result<Option<CudaFunction>, Failure> {
        let module = self.module(CEILINGS, "ceilings.cu", &Cuda::default(), Some("ceilings"))?;
        Ok(module.load_function(name).ok())
    }

    fn module(
        &mut self,
        text: &str,
        place: &str,
        cuda: &Cuda,
        shipped: Option<&str>,
    ) -> Result<Arc<CudaModule>, Failure> {
        let options = source::options(cuda, &self.arch(cuda));
        let key = blake3::hash(format!("{}\n{text}", options.join(" ")).as_bytes()).to_hex().to_string();
        if let Some(known) = self.modules.get(&key) {
            return Ok(Arc::clone(known));
        }
        let code = match &self.compiler {
            Compiler::Nvrtc(nvrtc) => {
                let compiled = nvrtc.compile(place, &source::expanded(text, place)?, &options, Code::Cubin)?;
                Ptx::from_binary(compiled.code)
            }
            Compiler::Shipped { archive, without } => {
                let ptx = shipped.and_then(|name| archive.get(name));
                Ptx::from_src(ptx.cloned().ok_or_else(|| {
                    Failure::new(format!("`{place}` cannot be compiled: {without}"))
                        .hint("`pip install nvidia-cuda-nvrtc`, or set CUDA_HOME")
                })?)
            }
        };
        let module = self.context.load_module(code).map_err(|e| {
            Failure::new(format!("{} does not take the code of `{place}`: {}", self.device, words(e)))
                .hint("the driver may be older than the compiler: update it, or use an NVRTC of its version")
        })?;
        self.modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}
