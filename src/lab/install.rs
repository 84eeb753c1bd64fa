//! Installing a lab: launch script, case file, checkpoint and sealed deployment in one folder.
//!
//! Script and case depend on folder, port and program only, never on the scenario.
//! Not responsible for starting the server; the case's script manager does that.

use std::path::{Path, PathBuf};

use super::model::EMBEDDED;
use super::scenario::{Scenario, SealError, seal};

/// What an installation consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Folder of everything below.
    pub dir: PathBuf,
    /// `case.toml`.
    pub case: PathBuf,
    /// `serve_lab.sh`.
    pub script: PathBuf,
    /// Where the server's output goes.
    pub log: PathBuf,
    /// The sealed deployment.
    pub deployment: PathBuf,
    /// Base URL of the server.
    pub url: String,
}

/// Why a lab cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The file system refused.
    #[error("cannot install the lab: {0}")]
    Io(#[from] std::io::Error),
    /// The deployment cannot be written.
    #[error("cannot install the lab: {0}")]
    Seal(#[from] SealError),
    /// A path that neither a script nor a case can hold.
    #[error("the path `{0}` is not UTF-8 or holds a control character, so no launch script can name it")]
    Path(String),
}

/// Writes a lab into `dir`, which is created; `exe` is the program that the launch script starts.
///
/// # Errors
/// When a file cannot be written, or a path cannot be named in a script.
pub fn install(dir: &Path, scenario: &Scenario, seed: u64, port: u16, exe: &Path) -> Result<Installed, InstallError> {
    fs_err::create_dir_all(dir)?;
    let dir = fs_err::canonicalize(dir)?;
    let model = dir.join("model");
    fs_err::create_dir_all(&model)?;
    fs_err::write(model.join("model.safetensors"), EMBEDDED)?;
    let deployment = seal(scenario, seed, &dir)?;
    let script = dir.join("serve_lab.sh");
    let case = dir.join("case.toml");
    let log = dir.join("serve_lab.log");
    fs_err::write(&script, script_text(exe, &dir, port)?)?;
    make_executable(&script)?;
    fs_err::write(&case, case_text(&dir, port)?)?;
    Ok(Installed { url: format!("http://127.0.0.1:{port}"), dir, case, script, log, deployment })
}

fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

fn script_text(exe: &Path, dir: &Path, port: u16) -> Result<String, InstallError> {
    let exe = bash_quoted(exe)?;
    let deployment = bash_quoted(&dir.join("lab.deployment"))?;
    let model = bash_quoted(&dir.join("model"))?;
    Ok(format!(
        "#!/bin/bash\n\
         # lab server, CPU\n\
         set -e\n\
         export SGLANG_SM120_MMA_FLASHMLA=1\n\
         export SGLANG_SM120_TRITON_INDEXER=1\n\
         export SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1\n\
         exec {exe} lab serve \\\n\
         \x20 --deployment {deployment} \\\n\
         \x20 --checkpoint {model} --served-model-name patchbench-lab \\\n\
         \x20 --host 127.0.0.1 --port {port} \\\n\
         \x20 --mhc-gemm bf16 --routed-scaling topk \\\n\
         \x20 --chunked-prefill-size 256 --context-length 32768 \\\n\
         \x20 --enable-cache-report --enable-metrics\n"
    ))
}

/// A path in double quotes, safe in bash.
fn bash_quoted(path: &Path) -> Result<String, InstallError> {
    let mut out = String::from("\"");
    for c in plain(path)?.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    Ok(out)
}

fn toml_quoted(path: &Path) -> Result<String, InstallError> {
    Ok(format!("\"{}\"", plain(path)?.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn plain(path: &Path) -> Result<&str, InstallError> {
    path.to_str()
        .filter(|p| !p.chars().any(char::is_control))
        .ok_or_else(|| InstallError::Path(path.display().to_string()))
}

fn case_text(dir: &Path, port: u16) -> Result<String, InstallError> {
    let script = toml_quoted(&dir.join("serve_lab.sh"))?;
    let log = toml_quoted(&dir.join("serve_lab.log"))?;
    let model = toml_quoted(&dir.join("model"))?;
    let head = format!(
        "name = \"lab\"\n\n\
         [[target]]\n\
         name = \"lab\"\n\
         role = \"monolithic\"\n\
         engine = \"sglang\"\n\
         host = \"local\"\n\
         url = \"http://127.0.0.1:{port}\"\n\
         manager = {{ script = {script}, log = {log} }}\n\
         launch_script = {script}\n\
         checkpoint = {model}\n\
         production = false\n"
    );
    Ok(head + PATCHES)
}

const PATCHES: &str = r#"
[[patch]]
id = "mma-decode"
title = "MMA kernel for sparse attention"
site = "python/sglang/srt/layers/attention/flash_mla_sm120_triton.py"
phases = ["extend", "decode"]
gate = { env = "SGLANG_SM120_MMA_FLASHMLA", levels = { on = "1", off = { unset = true } } }
suspect = "on"
changes = { kernel = "mma", dtype = "query rounded to bf16" }

[[patch]]
id = "triton-indexer"
title = "Triton kernel for paged indexer logits"
site = "python/sglang/srt/layers/attention/dsv4/indexer.py"
phases = ["extend", "decode"]
layers = "c4"
gate = { env = "SGLANG_SM120_TRITON_INDEXER", levels = { on = "1", off = { unset = true } } }
suspect = "on"
changes = { kernel = "triton" }

[[patch]]
id = "bf16-indexer"
title = "Indexer logits in bf16"
site = "python/sglang/srt/layers/attention/dsv4/indexer.py"
phases = ["extend", "decode"]
layers = "c4"
gate = { env = "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH", levels = { on = "1", off = { unset = true } } }
suspect = "on"
changes = { dtype = "fp32 -> bf16" }

[[patch]]
id = "mhc-bf16"
title = "mHC mixing GEMM in bf16"
site = "python/sglang/srt/models/deepseek_v4.py:1244"
phases = ["extend", "decode"]
layers = "all"
gate = { flag = "--mhc-gemm", levels = { on = "bf16", off = { unset = true } } }
suspect = "on"
changes = { dtype = "fp32 -> bf16" }
microtest = "mhc-mix"

[[patch]]
id = "routed-scaling"
title = "Routed scaling factor fused into top-k"
site = "python/sglang/srt/layers/moe/hash_topk.py"
phases = ["extend", "decode"]
layers = "all"
gate = { flag = "--routed-scaling", levels = { on = "topk", off = { unset = true } } }
suspect = "on"
changes = { order = "factor into the weights instead of the output" }

[recall]
lengths = [1024, 2048]
"#;

#[cfg(test)]
mod tests {
    use super::super::scenario::{named, names};
    use super::*;

    fn installed(name: &str, dir: &Path) -> (String, String) {
        let installed = install(dir, &named(name).unwrap(), 1, 31_999, Path::new("/opt/bin/patchbench")).unwrap();
        (fs_err::read_to_string(installed.script).unwrap(), fs_err::read_to_string(installed.case).unwrap())
    }

    #[test]
    fn script_and_case_do_not_depend_on_the_scenario() {
        let dir = tempfile::tempdir().unwrap();
        let all: std::collections::BTreeSet<_> = names().map(|n| installed(n, dir.path())).collect();
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn the_case_is_toml_with_five_patches_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let (_, case) = installed("incident", dir.path());
        let case: toml::Value = toml::from_str(&case).unwrap();
        let ids: Vec<&str> = case["patch"].as_array().unwrap().iter().map(|p| p["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["mma-decode", "triton-indexer", "bf16-indexer", "mhc-bf16", "routed-scaling"]);
        assert_eq!(case["target"][0]["production"].as_bool(), Some(false));
        assert_eq!(case["recall"]["lengths"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn the_script_is_valid_bash_even_with_an_odd_folder() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a \"b\" $HOME `id`");
        let (script, _) = installed("clean", &odd);
        assert!(
            script.starts_with("#!/bin/bash\n") && script.contains("\nexec \"/opt/bin/patchbench\" lab serve \\\n")
        );
        let echo = script.replacen("exec \"/opt/bin/patchbench\"", "printf '%s\\n'", 1);
        let output = std::process::Command::new("bash").arg("-c").arg(echo).output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        assert!(words.lines().any(|w| w.ends_with("a \"b\" $HOME `id`/lab.deployment")), "{words}");
        assert!(!words.lines().any(|w| w.trim().is_empty()), "{words}");
    }

    #[test]
    fn the_script_can_be_executed() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        installed("clean", dir.path());
        let mode = fs_err::metadata(dir.path().join("serve_lab.sh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111);
    }
}
