//! What a lab server is started with: its flags, its environment, and how it reports them.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::lab::cache::PAGE;
use crate::lab::model::{Arithmetic, KvDtype, MAX_CONTEXT, MhcGemm, RoutedScaling};
use crate::lab::router::RouterArgs;
use crate::lab::scheduler::{Config, Mode};

/// Flags of `lab serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Sealed deployment; without one the server is healthy
    #[arg(long, value_name = "PATH")]
    pub deployment: Option<PathBuf>,
    /// Folder with `model.safetensors`; without one the checkpoint in the program is used
    #[arg(long, visible_alias = "model-path", value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on
    #[arg(long, default_value_t = 30_000)]
    pub port: u16,
    /// Part in the deployment; without it, what `--disaggregation-mode` says
    #[arg(long, value_enum)]
    pub role: Option<ServeRole>,
    /// Which half of a request this server computes
    #[arg(long, value_enum, default_value_t)]
    pub disaggregation_mode: DisaggregationMode,
    /// Port on which a prefill server hands its keys over
    #[arg(long, value_name = "PORT", default_value_t = 8998)]
    pub disaggregation_bootstrap_port: u16,
    /// Workers of a router and how it looks at them.
    #[command(flatten)]
    pub router: RouterArgs,
    /// Name that clients use for the model
    #[arg(long, default_value = "patchbench-lab")]
    pub served_model_name: String,
    /// Prompt tokens in one prefill pass
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub chunked_prefill_size: u32,
    /// Tokens in the key cache
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    pub max_total_tokens: u32,
    /// Longest prompt and output together
    #[arg(long, default_value_t = MAX_CONTEXT as u32, value_parser = clap::value_parser!(u32).range(2..=131_072))]
    pub context_length: u32,
    /// Requests that decode together
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_running_requests: u32,
    /// Arithmetic of the hyper-connections' mixing product
    #[arg(long, value_enum, default_value_t)]
    pub mhc_gemm: MhcGemm,
    /// Where the routed scaling factor is multiplied in
    #[arg(long, value_enum, default_value_t)]
    pub routed_scaling: RoutedScaling,
    /// How keys and values are stored
    #[arg(long, value_enum, default_value_t)]
    pub kv_cache_dtype: KvDtype,
    /// Never reuse a prefix
    #[arg(long)]
    pub disable_radix_cache: bool,
    /// Report cached tokens in the usage of chat completions
    #[arg(long)]
    pub enable_cache_report: bool,
    /// Serve `/metrics`
    #[arg(long)]
    pub enable_metrics: bool,
    /// Decode steps between two log lines
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    pub decode_log_interval: u32,
    /// Seed for requests that bring none; without one it is drawn at the start
    #[arg(long)]
    pub random_seed: Option<u64>,
    /// Seconds that loading the weights takes at least; without it, what the deployment says
    #[arg(long, value_name = "SECONDS")]
    pub load_seconds: Option<f64>,
}

/// Part of a server in its deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServeRole {
    /// Prefill and decode in one process.
    Monolithic,
    /// The prompt and the first token; its keys go to a decode server.
    Prefill,
    /// The output, from the keys of a prefill server.
    Decode,
    /// No model: pairs prefill and decode servers for each request.
    Router,
}

/// `SGLang`'s name for the part of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DisaggregationMode {
    /// Both halves.
    #[default]
    Null,
    /// The prompt.
    Prefill,
    /// The output.
    Decode,
}

/// What the environment switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one variable of the environment")]
pub struct Switches {
    /// `SGLANG_SM120_MMA_FLASHMLA`
    pub mma_attention: bool,
    /// `SGLANG_SM120_TRITON_INDEXER`
    pub paged_indexer: bool,
    /// `SGLANG_FP8_PAGED_MQA_LOGITS_TORCH`
    pub bf16_indexer: bool,
    /// `SGLANG_RADIX_FORCE_MISS`
    pub radix_force_miss: bool,
    /// `SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION`
    pub health_generation: bool,
}

impl Switches {
    /// Reads the switches through `get`; also returns one warning for each value that is no boolean.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let mut switch = |name: &str, default: bool| match get(name).as_deref().map(boolean) {
            None => default,
            Some(Some(value)) => value,
            Some(None) => {
                let shown = get(name).unwrap_or_default();
                warnings.push(format!(
                    "Invalid value for {name}: invalid boolean value {shown:?}, using default {default}"
                ));
                default
            }
        };
        let switches = Self {
            mma_attention: switch("SGLANG_SM120_MMA_FLASHMLA", false),
            paged_indexer: switch("SGLANG_SM120_TRITON_INDEXER", false),
            bf16_indexer: switch("SGLANG_FP8_PAGED_MQA_LOGITS_TORCH", false),
            radix_force_miss: switch("SGLANG_RADIX_FORCE_MISS", false),
            health_generation: switch("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", true),
        };
        (switches, warnings)
    }
}

/// A boolean as `SGLang` reads it from the environment.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "y" => Some(true),
        "false" | "0" | "no" | "n" => Some(false),
        _ => None,
    }
}

impl ServeArgs {
    /// The part of this server; `None` when the two flags that say it disagree.
    pub fn part(&self) -> Option<ServeRole> {
        let mode = match self.disaggregation_mode {
            DisaggregationMode::Null => return Some(self.role.unwrap_or(ServeRole::Monolithic)),
            DisaggregationMode::Prefill => ServeRole::Prefill,
            DisaggregationMode::Decode => ServeRole::Decode,
        };
        (self.role.is_none_or(|role| role == mode)).then_some(mode)
    }

    /// The name of its part, as `SGLang` reports it.
    fn mode_name(&self) -> &'static str {
        match self.part() {
            Some(ServeRole::Prefill) => "prefill",
            Some(ServeRole::Decode) => "decode",
            Some(ServeRole::Monolithic | ServeRole::Router) | None => "null",
        }
    }

    /// Whether prefixes are reused: a decode server has none to look up, as in `SGLang`.
    pub fn reuses_prefixes(&self) -> bool {
        !self.disable_radix_cache && self.part() != Some(ServeRole::Decode)
    }

    /// What the engine of this server does, in its sizes.
    pub fn engine(&self, switches: Switches) -> Config {
        Config {
            chunk: self.chunked_prefill_size as usize,
            max_total_tokens: self.max_total_tokens as usize,
            context: self.context_length as usize,
            max_running: self.running() as usize,
            radix: self.reuses_prefixes() && !switches.radix_force_miss,
            decode_log_interval: u64::from(self.decode_log_interval),
            mode: match self.part() {
                Some(ServeRole::Prefill) => Mode::Prefill,
                Some(ServeRole::Decode) => Mode::Decode,
                Some(ServeRole::Monolithic | ServeRole::Router) | None => Mode::Whole,
            },
        }
    }

    /// The model's arithmetic under these flags and switches.
    pub fn arithmetic(&self, switches: Switches) -> Arithmetic {
        Arithmetic {
            mhc: self.mhc_gemm,
            routed_scaling: self.routed_scaling,
            kv: self.kv_cache_dtype,
            bf16_indexer: switches.bf16_indexer,
            mma_attention: switches.mma_attention,
            paged_indexer: switches.paged_indexer,
        }
    }

    /// Requests that really decode together: each needs a page of the key cache of its own, so that a small cache
    /// lowers what was asked for. As in `SGLang`, no line says so, and the answers keep the number that was asked for.
    pub fn running(&self) -> u32 {
        self.max_running_requests.min(self.max_total_tokens / PAGE as u32)
    }

    /// Folder that is reported as the model.
    pub fn model_path(&self) -> String {
        self.checkpoint.as_ref().map_or_else(|| "embedded:patchbench-lab".into(), |p| p.display().to_string())
    }

    /// All resolved arguments in `SGLang`'s names, in a fixed order. Never the environment, never the
    /// deployment.
    pub fn resolved(&self, random_seed: u64) -> Vec<(&'static str, Value)> {
        let name = |v: &dyn erased::Name| Value::String(v.name());
        vec![
            ("model_path", json!(self.model_path())),
            ("tokenizer_path", json!(self.model_path())),
            ("tokenizer_mode", json!("auto")),
            ("load_format", json!("safetensors")),
            ("trust_remote_code", json!(false)),
            ("context_length", json!(self.context_length)),
            ("host", json!(self.host)),
            ("port", json!(self.port)),
            ("dtype", json!("float32")),
            ("quantization", Value::Null),
            ("kv_cache_dtype", name(&self.kv_cache_dtype)),
            ("max_running_requests", json!(self.max_running_requests)),
            ("max_total_tokens", json!(self.max_total_tokens)),
            ("chunked_prefill_size", json!(self.chunked_prefill_size)),
            ("max_prefill_tokens", json!(self.context_length)),
            ("schedule_policy", json!("fcfs")),
            ("page_size", json!(PAGE)),
            ("radix_eviction_policy", json!("lru")),
            ("device", json!("cpu")),
            ("tp_size", json!(1)),
            ("pp_size", json!(1)),
            ("dp_size", json!(1)),
            ("ep_size", json!(1)),
            ("random_seed", json!(random_seed)),
            ("log_level", json!("info")),
            ("api_key", Value::Null),
            ("served_model_name", json!(self.served_model_name)),
            ("chat_template", Value::Null),
            ("reasoning_parser", Value::Null),
            ("tool_call_parser", Value::Null),
            ("attention_backend", json!("dsv4")),
            ("mhc_gemm", name(&self.mhc_gemm)),
            ("routed_scaling", name(&self.routed_scaling)),
            ("disaggregation_mode", json!(self.mode_name())),
            ("disaggregation_bootstrap_port", json!(self.disaggregation_bootstrap_port)),
            ("disable_radix_cache", json!(!self.reuses_prefixes())),
            ("enable_cache_report", json!(self.enable_cache_report)),
            ("enable_metrics", json!(self.enable_metrics)),
            ("decode_log_interval", json!(self.decode_log_interval)),
        ]
    }
}

/// Names of enum values on the command line, for a mixed list of enums.
mod erased {
    use clap::ValueEnum;

    pub(super) trait Name {
        fn name(&self) -> String;
    }

    impl<T: ValueEnum> Name for T {
        fn name(&self) -> String {
            self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
        }
    }
}

/// The arguments as the log line shows them: `ServerArgs(model_path='…', …)`.
pub fn python_repr(arguments: &[(&str, Value)]) -> String {
    let fields: Vec<String> = arguments.iter().map(|(name, value)| format!("{name}={}", python(value))).collect();
    format!("ServerArgs({})", fields.join(", "))
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn parse(line: &str) -> Result<ServeArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).map(|l| l.serve)
    }

    #[test]
    fn booleans_are_read_as_sglang_reads_them() {
        let read = |value: Option<&str>| {
            let (switches, warnings) =
                Switches::read(|n| (n == "SGLANG_SM120_TRITON_INDEXER").then(|| value.map(str::to_owned)).flatten());
            (switches.paged_indexer, warnings.len())
        };
        for yes in ["1", "true", "True", "YES", "y"] {
            assert_eq!(read(Some(yes)), (true, 0), "{yes}");
        }
        for no in ["0", "false", "No", "n"] {
            assert_eq!(read(Some(no)), (false, 0), "{no}");
        }
        for bad in ["", "on", "2"] {
            assert_eq!(read(Some(bad)), (false, 1), "{bad}");
        }
        assert_eq!(read(None), (false, 0));
    }

    #[test]
    fn health_generates_unless_told() {
        assert!(Switches::read(|_| None).0.health_generation);
    }

    #[test]
    fn the_log_line_is_a_python_repr_without_the_deployment() {
        let args = parse("--deployment /secret/place --port 31000 --mhc-gemm bf16 --kv-cache-dtype fp8_e4m3").unwrap();
        let line = python_repr(&args.resolved(5));
        assert!(line.starts_with("ServerArgs(model_path='embedded:patchbench-lab', "), "{line}");
        for part in
            ["port=31000", "mhc_gemm='bf16'", "kv_cache_dtype='fp8_e4m3'", "api_key=None", "enable_metrics=False"]
        {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("secret"));
    }

    #[test]
    fn a_small_cache_lowers_what_runs_together_and_no_answer_but_one_tells() {
        let args = parse("--max-total-tokens 1024 --max-running-requests 32").unwrap();
        assert_eq!(args.running(), 16);
        assert!(python_repr(&args.resolved(5)).contains("max_running_requests=32"));
        assert_eq!(parse("").unwrap().running(), 32);
    }

    #[test]
    fn the_part_is_said_by_either_flag_and_never_by_two_that_disagree() {
        let part = |line: &str| parse(line).unwrap().part();
        assert_eq!(part(""), Some(ServeRole::Monolithic));
        assert_eq!(part("--role prefill"), Some(ServeRole::Prefill));
        assert_eq!(part("--disaggregation-mode decode"), Some(ServeRole::Decode));
        assert_eq!(part("--disaggregation-mode null --role decode"), Some(ServeRole::Decode));
        assert_eq!(part("--disaggregation-mode decode --role decode"), Some(ServeRole::Decode));
        assert_eq!(part("--disaggregation-mode decode --role prefill"), None);
        assert_eq!(part("--disaggregation-mode prefill --role router"), None);
    }

    #[test]
    fn a_decode_server_reports_its_mode_and_that_it_reuses_no_prefix() {
        let resolved = parse("--disaggregation-mode decode").unwrap().resolved(1);
        let of = |name: &str| resolved.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        assert_eq!((of("disaggregation_mode"), of("disable_radix_cache")), (json!("decode"), json!(true)));
        let resolved = parse("--role prefill").unwrap().resolved(1);
        assert!(resolved.contains(&("disaggregation_mode", json!("prefill"))));
        assert!(resolved.contains(&("disable_radix_cache", json!(false))));
    }

    #[test]
    fn bad_flags_are_refused() {
        assert!(parse("--chunked-prefill-size 0").is_err());
        assert!(parse("--mhc-gemm fp4").is_err());
        assert!(parse("--routed-scaling topk --disable-radix-cache").is_ok());
    }
}
