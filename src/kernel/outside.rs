//! What a candidate says of a kernel or a command that does its arithmetic, as data.
//!
//! Responsible for the form and for refusing what cannot be. Not responsible for compiling, launching
//! or starting anything.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::procedure::Failure;

/// Kernels on a card, launched one after another with the same arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Cuda {
    /// The CUDA source, beside the candidate's file; a built-in candidate has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Macros, such as `OUTPUT_BF16=1`.
    #[serde(default)]
    pub define: Vec<String>,
    /// The least compute capability, such as 89 for 8.9.
    #[serde(default = "oldest")]
    pub least_arch: u32,
    /// The one family of cards that it can be compiled for, such as `sm_120a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Which units do its products.
    #[serde(default)]
    pub unit: Unit,
    /// Rows share something, such as the scale of a whole tensor, so that a row alone may have other bits.
    #[serde(default)]
    pub rows_together: bool,
    /// The launches, in their order.
    pub launch: Vec<Launch>,
}

/// The oldest compute capability that the kernels are written for.
fn oldest() -> u32 {
    80
}

/// Which units of a card do the products of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Plain f32 units.
    #[default]
    F32,
    /// Tensor cores with TF32 operands.
    Tf32,
    /// Tensor cores with bf16 operands.
    Bf16,
    /// Tensor cores with e4m3 operands.
    Fp8,
    /// Tensor cores with block-scaled e2m1 operands.
    Fp4,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Launch {
    /// The function, `extern "C" __global__`.
    pub function: String,
    /// Threads of a block.
    pub threads: u32,
    /// Up to three pairs: an extent (`rows`, `splits` or a size of the spec) and how much of it a block does.
    pub grid: Vec<(String, u32)>,
    /// Bytes of dynamic shared memory of a block.
    #[serde(default)]
    pub shared: u32,
}

/// A command that reads inputs as safetensors files from its standard input and writes outputs so to its
/// standard output, one for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ExternalCommand {
    /// A name that ssh knows, or `local`.
    #[serde(default = "local")]
    pub host: String,
    /// The program and its words, such as the server's own Python and the file of the fork's function.
    pub argv: Vec<String>,
    /// A command in front of it, such as `sudo -u serving`.
    #[serde(default)]
    pub r#become: String,
    /// The longest that it may take for all cases of a microtest, in seconds; at real size for each site.
    #[serde(default = "minutes")]
    pub timeout_s: u64,
}

fn local() -> String {
    "local".into()
}

fn minutes() -> u64 {
    300
}

impl Cuda {
    /// The same with its source looked for beside the file that names it.
    #[must_use]
    pub fn beside(self, folder: &Path) -> Self {
        Self { file: self.file.map(|file| folder.join(file).display().to_string()), ..self }
    }

    /// Whether a card of this compute capability (such as 90) can run it.
    ///
    /// # Errors
    /// It cannot; why.
    pub fn suits(&self, capability: u32) -> Result<(), String> {
        if let Some(arch) = &self.arch {
            let family = arch.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic);
            if family != capability.to_string() {
                return Err(format!("it is for {arch} alone, and this card is sm_{capability}"));
            }
        }
        if capability < self.least_arch {
            return Err(format!("it needs sm_{} or newer, and this card is sm_{capability}", self.least_arch));
        }
        Ok(())
    }
}

/// Checks what a candidate says of its kernels or its command.
///
/// # Errors
/// It has both, or one of them cannot be launched.
pub fn check(cuda: Option<&Cuda>, command: Option<&ExternalCommand>) -> Result<(), Failure> {
    let refuse = |what: &str, hint: &str| Err(Failure::new(what).hint(hint));
    match (cuda, command) {
        (Some(_), Some(_)) => refuse("it has both `cuda` and `command`", "make it two candidates"),
        (None, Some(command)) if command.argv.is_empty() => {
            refuse("its command has no program", "say `command = { argv = [\"python3\", \"fork.py\"] }`")
        }
        (Some(cuda), None) => {
            if cuda.launch.is_empty() {
                return refuse("it launches nothing", "say `launch = [{ function, threads, grid }]`");
            }
            for launch in &cuda.launch {
                let threads = launch.threads;
                if !(1..=1024).contains(&threads) {
                    return refuse(&format!("a block cannot have {threads} threads"), "1 to 1024");
                }
                if !(1..=3).contains(&launch.grid.len()) || launch.grid.iter().any(|(_, per_block)| *per_block == 0) {
                    return refuse(
                        &format!("`{}` has no grid", launch.function),
                        "say `grid = [[\"rows\", 1]]`: up to three extents and how much of each a block does",
                    );
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuda(text: &str) -> Cuda {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_card_suits_by_its_capability() {
        let check = |text: &str, capability, expect: Result<(), &str>| {
            let cuda = cuda(&format!("launch = []\n{text}"));
            assert_eq!(cuda.suits(capability), expect.map_err(str::to_owned), "{text} {capability}");
        };
        check("", 80, Ok(()));
        check("", 75, Err("it needs sm_80 or newer, and this card is sm_75"));
        check("least-arch = 89", 90, Ok(()));
        check("arch = \"sm_120a\"", 120, Ok(()));
        check("arch = \"sm_120a\"", 90, Err("it is for sm_120a alone, and this card is sm_90"));
    }

    #[test]
    fn what_cannot_be_launched_is_refused() {
        let refused = |text: &str, expect: &str| {
            assert_eq!(super::check(Some(&cuda(text)), None).unwrap_err().message, expect);
        };
        refused("launch = []", "it launches nothing");
        let launch =
            |threads: u32, grid: &str| format!("launch = [{{ function = \"f\", threads = {threads}, grid = {grid} }}]");
        refused(&launch(0, "[[\"rows\", 1]]"), "a block cannot have 0 threads");
        refused(&launch(32, "[]"), "`f` has no grid");
        refused(&launch(32, "[[\"rows\", 0]]"), "`f` has no grid");
        assert_eq!(super::check(Some(&cuda(&launch(32, "[[\"rows\", 4]]"))), None), Ok(()));
        let command: ExternalCommand = toml::from_str("argv = []").unwrap();
        assert_eq!(super::check(None, Some(&command)).unwrap_err().message, "its command has no program");
        assert_eq!((command.host.as_str(), command.timeout_s), ("local", 300));
    }

    #[test]
    fn a_source_lies_beside_the_file_that_names_it() {
        let cuda = cuda("file = \"mine.cu\"\nlaunch = []").beside(Path::new("/srv/suspects"));
        assert_eq!(cuda.file.as_deref(), Some("/srv/suspects/mine.cu"));
    }
}
