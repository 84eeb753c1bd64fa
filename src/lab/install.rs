//! Installing a lab: launch scripts, case file, checkpoint and sealed deployment in one folder.
//!
//! Scripts and case depend on folder, ports, program and sources only, never on the scenario, but for its shape.
//! Not responsible for starting the servers; the case's script managers do that.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::model::EMBEDDED;
use super::scenario::{Scenario, SealError, Shape, seal};
use super::source::checkout;

/// Where the arithmetic of the servers comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sources {
    /// The program alone.
    #[default]
    BuiltIn,
    /// A checkout in the folder of the lab, with two patches that only a reversed diff takes out.
    Checkout,
}

/// What an installation consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Folder of everything below.
    pub dir: PathBuf,
    /// `case.toml`.
    pub case: PathBuf,
    /// The launch script of the server that clients talk to.
    pub script: PathBuf,
    /// Where that server's output goes.
    pub log: PathBuf,
    /// The sealed deployment.
    pub deployment: PathBuf,
    /// Base URL of the server that clients talk to.
    pub url: String,
    /// `monolithic.toml`, the case of one server over the same deployment, where the deployment has several.
    pub monolithic: Option<PathBuf>,
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
    /// A path that no search path can hold.
    #[error("the path `{0}` holds a colon, so `PYTHONPATH` cannot name it")]
    SearchPath(String),
}

/// Writes a lab into `dir`, which is created; `exe` is the program that the launch scripts start.
///
/// A deployment of three servers has its router at `port` and the others at ports that are free now. Beside it stands
/// `monolithic.toml`: a server that does everything by itself, over the same checkpoint and deployment, to compare with.
///
/// # Errors
/// When a file cannot be written, or a path cannot be named in a script.
pub fn install(dir: &Path, scenario: &Scenario, seed: u64, port: u16, exe: &Path) -> Result<Installed, InstallError> {
    install_with(Sources::BuiltIn, dir, scenario, seed, port, exe)
}

/// The same as [`install`], with sources: a checkout stands in `checkout`, its diffs in `patches`.
///
/// # Errors
/// As for [`install`].
pub fn install_with(
    sources: Sources,
    dir: &Path,
    scenario: &Scenario,
    seed: u64,
    port: u16,
    exe: &Path,
) -> Result<Installed, InstallError> {
    fs_err::create_dir_all(dir)?;
    let dir = fs_err::canonicalize(dir)?;
    let model = dir.join("model");
    fs_err::create_dir_all(&model)?;
    fs_err::write(model.join("model.safetensors"), EMBEDDED)?;
    let deployment = seal(scenario, seed, &dir)?;
    let lab = Lab {
        dir: &dir,
        exe,
        checkout: match sources {
            Sources::BuiltIn => None,
            Sources::Checkout if plain(&dir)?.contains(':') => {
                return Err(InstallError::SearchPath(dir.display().to_string()));
            }
            Sources::Checkout => Some(checkout::write(&dir)?),
        },
    };
    let (servers, entry) = match scenario.shape {
        Shape::Monolithic => (vec![Server::monolithic(port)], "lab"),
        Shape::Disaggregated => (Server::disaggregated(port)?, "router"),
    };
    for server in &servers {
        lab.write_script(server)?;
    }
    let case = dir.join("case.toml");
    fs_err::write(&case, lab.case_text(entry, &servers)?)?;
    let mut monolithic = None;
    if scenario.shape == Shape::Disaggregated {
        let alone = Server::monolithic(free_ports::<1>()?[0]);
        lab.write_script(&alone)?;
        let path = dir.join("monolithic.toml");
        fs_err::write(&path, lab.case_text("lab", std::slice::from_ref(&alone))?)?;
        monolithic = Some(path);
    }
    let (script, log) = (servers[0].script(&dir), servers[0].log(&dir));
    Ok(Installed { url: format!("http://127.0.0.1:{port}"), dir, case, script, log, deployment, monolithic })
}

/// What all servers of a lab share.
struct Lab<'a> {
    dir: &'a Path,
    exe: &'a Path,
    /// The checkout whose arithmetic they run with.
    checkout: Option<PathBuf>,
}

impl Lab<'_> {
    fn write_script(&self, server: &Server) -> Result<(), InstallError> {
        let path = server.script(self.dir);
        fs_err::write(&path, self.script_text(server)?)?;
        Ok(make_executable(&path)?)
    }

    fn script_text(&self, server: &Server) -> Result<String, InstallError> {
        let exe = bash_quoted(self.exe)?;
        let Server { part, port, .. } = server;
        if server.role == "router" {
            return Ok(format!(
                "#!/bin/bash\n\
                 # lab router\n\
                 set -e\n\
                 exec {exe} lab serve \\\n\
                 \x20 {part}--host 127.0.0.1 --port {port}\n"
            ));
        }
        let deployment = bash_quoted(&self.dir.join("lab.deployment"))?;
        let model = bash_quoted(&self.dir.join("model"))?;
        let search_path = match &self.checkout {
            Some(checkout) => format!("export PYTHONPATH={}\n", bash_quoted(&checkout.join(checkout::SEARCHED))?),
            None => String::new(),
        };
        Ok(format!(
            "#!/bin/bash\n\
             # lab server, CPU\n\
             set -e\n\
             export SGLANG_SM120_MMA_FLASHMLA=1\n\
             export SGLANG_SM120_TRITON_INDEXER=1\n\
             export SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1\n\
             {search_path}\
             exec {exe} lab serve \\\n\
             \x20 --deployment {deployment} \\\n\
             \x20 --checkpoint {model} --served-model-name patchbench-lab \\\n\
             \x20 {part}--host 127.0.0.1 --port {port} \\\n\
             \x20 --mhc-gemm bf16 --routed-scaling topk \\\n\
             \x20 --chunked-prefill-size 256 --context-length 32768 \\\n\
             \x20 --enable-cache-report --enable-metrics\n"
        ))
    }

    fn case_text(&self, entry: &str, servers: &[Server]) -> Result<String, InstallError> {
        let mut text = "name = \"lab\"\n".to_owned();
        if servers.len() > 1 {
            let _ = writeln!(text, "entry = \"{entry}\"");
        }
        for server in servers {
            let Server { name, role, port, .. } = server;
            let script = toml_quoted(&server.script(self.dir))?;
            let log = toml_quoted(&server.log(self.dir))?;
            let _ = write!(
                text,
                "\n\
                 [[target]]\n\
                 name = \"{name}\"\n\
                 role = \"{role}\"\n\
                 engine = \"sglang\"\n\
                 host = \"local\"\n\
                 url = \"http://127.0.0.1:{port}\"\n\
                 manager = {{ script = {script}, log = {log} }}\n\
                 launch_script = {script}\n"
            );
            if *role != "router" {
                let _ = writeln!(text, "checkpoint = {}", toml_quoted(&self.dir.join("model"))?);
                if let Some(checkout) = &self.checkout {
                    let _ = writeln!(text, "checkout = {}", toml_quoted(checkout)?);
                }
            }
            text.push_str("production = false\n");
        }
        text.push_str(PATCHES);
        if self.checkout.is_some() {
            text.push_str(checkout::PATCHES);
        }
        text.push_str(RECALL);
        Ok(text)
    }
}

/// One server of a lab.
struct Server {
    /// Target name, and part of the script's name.
    name: &'static str,
    role: &'static str,
    port: u16,
    /// Flags of its part, as lines of the script.
    part: String,
}

impl Server {
    fn monolithic(port: u16) -> Self {
        Self { name: "lab", role: "monolithic", port, part: String::new() }
    }

    /// The entry first.
    fn disaggregated(port: u16) -> std::io::Result<Vec<Self>> {
        let [prefill, decode, bootstrap] = free_ports()?;
        let router = format!(
            "--role router --pd-disaggregation \\\n\
             \x20 --prefill http://127.0.0.1:{prefill} {bootstrap} \\\n\
             \x20 --decode http://127.0.0.1:{decode} \\\n\
             \x20 "
        );
        let keys = format!("--disaggregation-mode prefill --disaggregation-bootstrap-port {bootstrap} \\\n\x20 ");
        let from_keys = "--disaggregation-mode decode \\\n\x20 ".to_owned();
        Ok(vec![
            Self { name: "router", role: "router", port, part: router },
            Self { name: "prefill", role: "prefill", port: prefill, part: keys },
            Self { name: "decode", role: "decode", port: decode, part: from_keys },
        ])
    }

    fn script(&self, dir: &Path) -> PathBuf {
        dir.join(format!("serve_{}.sh", self.name))
    }

    fn log(&self, dir: &Path) -> PathBuf {
        dir.join(format!("serve_{}.log", self.name))
    }
}

/// Ports that are free now and differ from each other.
fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    let mut ports = [0; N];
    // All are held until the last one is found, so that none is given twice.
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))
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

const PATCHES: &str = r#"
[[patch]]
id = "mma-decode"
title = "MMA kernel for sparse attention"
site = "python/sglang/srt/layers/attention/flash_mla_sm120_triton.py"
phases = ["extend", "decode"]
gate = { env = "SGLANG_SM120_MMA_FLASHMLA", levels = { on = "1", off = { unset = true } } }
suspect = "on"
changes = { kernel = "mma", dtype = "query rounded to bf16" }
microtest = "decode-attention/mma"

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
microtest = "indexer/bf16-scores"

[[patch]]
id = "mhc-bf16"
title = "mHC mixing GEMM in bf16"
site = "python/sglang/srt/models/deepseek_v4.py:1244"
phases = ["extend", "decode"]
layers = "all"
gate = { flag = "--mhc-gemm", levels = { on = "bf16", off = { unset = true } } }
suspect = "on"
changes = { dtype = "fp32 -> bf16" }
microtest = "mhc-mix/bf16"

[[patch]]
id = "routed-scaling"
title = "Routed scaling factor fused into top-k"
site = "python/sglang/srt/layers/moe/hash_topk.py"
phases = ["extend", "decode"]
layers = "all"
gate = { flag = "--routed-scaling", levels = { on = "topk", off = { unset = true } } }
suspect = "on"
changes = { order = "factor into the weights instead of the output" }
microtest = "router/fp32"
"#;

const RECALL: &str = "
[recall]
lengths = [1024, 2048]
";

#[cfg(test)]
mod tests {
    use super::super::scenario::{named, names};
    use super::*;

    fn installed(name: &str, dir: &Path) -> (String, String) {
        installed_with(Sources::BuiltIn, name, dir)
    }

    fn installed_with(sources: Sources, name: &str, dir: &Path) -> (String, String) {
        let exe = Path::new("/opt/bin/patchbench");
        let installed = install_with(sources, dir, &named(name).unwrap(), 1, 31_999, exe).unwrap();
        (fs_err::read_to_string(installed.script).unwrap(), fs_err::read_to_string(installed.case).unwrap())
    }

    #[test]
    fn script_and_case_do_not_depend_on_the_scenario() {
        let dir = tempfile::tempdir().unwrap();
        let alone = |n: &&str| named(n).unwrap().shape == Shape::Monolithic;
        for sources in [Sources::BuiltIn, Sources::Checkout] {
            let written = |n| installed_with(sources, n, dir.path());
            let all: std::collections::BTreeSet<_> = names().filter(alone).map(written).collect();
            assert_eq!(all.len(), 1, "{sources:?}");
        }
    }

    #[test]
    fn a_checkout_adds_lines_and_changes_none() {
        let dir = tempfile::tempdir().unwrap();
        let (script, case) = installed("clean", dir.path());
        assert!(!dir.path().join("checkout").exists() && !dir.path().join("patches").exists());
        assert!(!script.contains("PYTHONPATH") && !case.contains("checkout"), "{script}{case}");
        let (with_script, with_case) = installed_with(Sources::Checkout, "clean", dir.path());
        let root = fs_err::canonicalize(dir.path()).unwrap();
        let export = format!("export PYTHONPATH=\"{}\"\n", root.join("checkout/python").display());
        assert_eq!(with_script, script.replace("exec ", &format!("{export}exec ")));
        let checkout = format!("checkout = \"{}\"\n", root.join("checkout").display());
        let with_checkout = case.replace("production", &format!("{checkout}production"));
        assert_eq!(with_case, with_checkout.replace("\n[recall]", &format!("{}\n[recall]", checkout::PATCHES)));
    }

    #[test]
    fn the_case_of_a_checkout_names_the_diffs_that_are_there() {
        use crate::case::Gate;
        let dir = tempfile::tempdir().unwrap();
        let exe = Path::new("/opt/bin/patchbench");
        let check = |path: &Path| {
            let (case, remarks) = crate::case::read_file(path);
            assert!(remarks.is_empty(), "{remarks:?}");
            let case = case.unwrap();
            let diff_of = |gate: &Gate| match gate {
                Gate::Reverse { diff } => Some(PathBuf::from(diff)),
                _ => None,
            };
            let diffs = case.patches.iter().filter_map(|p| Some((p, diff_of(&p.gate)?)));
            assert_eq!(diffs.clone().count(), 2);
            for (patch, diff) in diffs {
                let text = fs_err::read_to_string(diff).unwrap();
                assert!(text.contains(&format!("+++ b/{}\n", patch.site.as_deref().unwrap())), "{text}");
                for target in patch.targets_in(&case) {
                    let checkout = Path::new(target.checkout.as_deref().unwrap());
                    assert!(checkout.join(patch.site.as_deref().unwrap()).is_file());
                }
            }
        };
        for name in ["clean", "pd-state"] {
            let made = install_with(Sources::Checkout, dir.path(), &named(name).unwrap(), 1, 31_999, exe).unwrap();
            check(&made.case);
            made.monolithic.iter().for_each(|path| check(path));
        }
        let colon = dir.path().join("a:b");
        let error = install_with(Sources::Checkout, &colon, &named("clean").unwrap(), 1, 31_999, exe).unwrap_err();
        assert!(error.to_string().ends_with("a:b` holds a colon, so `PYTHONPATH` cannot name it"), "{error}");
    }

    #[test]
    fn a_divided_deployment_is_a_case_of_three_and_one_to_compare_with() {
        let dir = tempfile::tempdir().unwrap();
        let exe = Path::new("/opt/bin/patchbench");
        let made = install(dir.path(), &named("pd-state").unwrap(), 1, 31_999, exe).unwrap();
        let (case, remarks) = crate::case::read_file(&made.case);
        assert!(remarks.is_empty(), "{remarks:?}");
        let case = case.unwrap();
        let roles: Vec<_> = case.targets.iter().map(|t| (t.name.as_str(), t.role)).collect();
        use crate::case::Role;
        assert_eq!(roles, [("router", Role::Router), ("prefill", Role::Prefill), ("decode", Role::Decode)]);
        assert_eq!(
            (case.entry_target().unwrap().name.as_str(), case.entry_target().unwrap().port()),
            ("router", Some(31_999))
        );
        assert_eq!(case.patches[0].targets_in(&case).count(), 2, "a router has no patches");
        let ports: std::collections::BTreeSet<_> = case.targets.iter().filter_map(crate::case::Target::port).collect();
        assert_eq!(ports.len(), 3);
        let text = |name: &str| fs_err::read_to_string(made.dir.join(name)).unwrap();
        let (prefill, decode) = (case.targets[1].port().unwrap(), case.targets[2].port().unwrap());
        assert!(text("serve_router.sh").contains(&format!("--prefill http://127.0.0.1:{prefill} ")));
        assert!(text("serve_router.sh").contains(&format!("--decode http://127.0.0.1:{decode} ")));
        assert!(text("serve_prefill.sh").contains("--disaggregation-mode prefill --disaggregation-bootstrap-port "));
        assert!(text("serve_decode.sh").contains("--disaggregation-mode decode "));
        let (alone, _) = crate::case::read_file(&made.monolithic.unwrap());
        assert_eq!(alone.unwrap().targets[0].role, Role::Monolithic);
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
