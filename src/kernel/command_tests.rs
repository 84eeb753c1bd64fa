use std::path::Path;

use super::*;
use crate::kernel::mhc::site;
use crate::kernel::outside::ExternalCommand;
use crate::remote::host::Settings;

/// A fork's function in plain Python: safetensors in, safetensors out.
const PYTHON: &str = r#"
import json, struct, sys
data = sys.stdin.buffer.read()[8:]
length = int.from_bytes(data[:8], "little")
head = json.loads(data[8 : 8 + length])
notes = head.pop("__metadata__")
def numbers(name):
    start, end = head[name]["data_offsets"]
    return struct.unpack("<%df" % ((end - start) // 4), data[8 + length + start : 8 + length + end])
inner, rows = int(notes["inner"]), int(notes["rows"])
weight, streams = numbers("weight"), numbers("streams")
products, roots = [], []
for t in range(rows):
    x = streams[t * inner : (t + 1) * inner]
    products += [sum(w * v for w, v in zip(weight[m * inner : (m + 1) * inner], x)) for m in range(24)]
    roots.append((sum(v * v for v in x) / inner + float(notes["eps"])) ** -0.5)
body = struct.pack("<%df" % len(products), *products) + struct.pack("<%df" % rows, *roots)
out = json.dumps({
    "products": {"dtype": "F32", "shape": [rows, 24], "data_offsets": [0, 96 * rows]},
    "inverse_rms": {"dtype": "F32", "shape": [rows], "data_offsets": [96 * rows, 100 * rows]},
}).encode()
sys.stderr.write("one of many\n")
file = len(out).to_bytes(8, "little") + out + body
sys.stdout.buffer.write(len(file).to_bytes(8, "little") + file)
"#;

fn candidate(argv: &[&str]) -> Candidate {
    let argv = argv.iter().map(|w| (*w).to_owned()).collect();
    let command = ExternalCommand { host: "local".into(), argv, r#become: String::new(), timeout_s: 20 };
    Candidate { name: "fork".into(), command: Some(command), ..Candidate::exact("mhc-mix") }
}

fn task() -> Task {
    let values = |n: usize| (0..n).map(|i| (i as f64 * 0.37).sin()).collect::<Vec<_>>();
    site::task(Tensor::whole("weight", &[24, 8], &values(24 * 8)), Tensor::rows("streams", &[3, 8], &values(24)))
}

fn run(argv: &[&str]) -> Result<Vec<Tensor>, Failure> {
    Commands::new(Hosts::new(Settings::from_environment()), &|| false)?.run(&candidate(argv), &task())
}

#[test]
fn a_function_in_python_gives_its_outputs_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fork's.py");
    fs_err::write(&file, PYTHON).unwrap();
    let outputs = run(&["python3", file.to_str().unwrap()]).unwrap();
    let task = task();
    let (weight, streams) = (task.inputs[0].numbers(), task.inputs[1].numbers());
    let expect: f64 = (0..8).map(|k| weight[8 + k] * streams[16 + k]).sum();
    let got = outputs[0].numbers()[2 * 24 + 1];
    assert!((got - expect).abs() < 1e-6, "{got} {expect}");
    assert_eq!(outputs[1].shape, [3]);
    let left: Vec<_> = fs_err::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["fork's.py"]);
}

#[test]
fn what_does_not_answer_rightly_is_one_sentence_with_its_last_words() {
    let check = |argv: &[&str], expect: &str| {
        let failure = run(argv).unwrap_err();
        assert!(failure.message.contains(expect), "{}", failure.message);
        assert!(failure.message.starts_with("candidate `fork`: "), "{}", failure.message);
    };
    check(&["sh", "-c", "echo no module >&2; exit 3"], "ended with status 3: no module");
    check(&["sh", "-c", "cat > /dev/null; echo hello"], "answered with too few bytes");
    check(&["/nonexistent/python3"], "ended with status 127");
    check(&["true"], "answered with too few bytes");
}

#[test]
fn a_cancel_ends_the_command() {
    let begun = std::time::Instant::now();
    let cancelled = || begun.elapsed() > Duration::from_millis(200);
    let commands = Commands::new(Hosts::new(Settings::from_environment()), &cancelled).unwrap();
    let failure = commands.run(&candidate(&["sleep", "30"]), &task()).unwrap_err();
    assert!(failure.message.to_lowercase().contains("cancel"), "{}", failure.message);
}

#[test]
fn the_command_is_said_as_it_would_be_typed() {
    let check = |text: &str, expect: &str| {
        let command: ExternalCommand = toml::from_str(text).unwrap();
        assert_eq!(says(&command), expect);
    };
    check("argv = [\"python3\", \"a b.py\"]", "python3 'a b.py'");
    check("host = \"box\"\nbecome = \"sudo -u me\"\nargv = [\"x\"]", "box: sudo -u me x");
    assert!(Path::new("kernels/external.py").is_file() || !Path::new("Cargo.toml").is_file());
}
