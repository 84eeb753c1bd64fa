//! A server whose `/server_info` or log contradicts what it was started with: each contradiction is one row, and a
//! server without any has none.

use serde_json::{Value, json};

use super::served::{Served, room};
use super::skipped;

/// Answers and logs in `SGLang`'s form what its own command line says, but for what `planted.json` beside it changes:
/// values of `/server_info`, values of the arguments line, and lines before it.
const SERVER: &str = r#"
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

planted = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "planted.json")))
given = {sys.argv[i][2:].replace("-", "_"): sys.argv[i + 1] for i in range(1, len(sys.argv), 2)}
def typed(text):
    for kind in (int, float):
        try: return kind(text)
        except ValueError: pass
    return text
args = {"model_path": "m", "page_size": 1, "mem_fraction_static": 0.9, "chunked_prefill_size": 8192, "tp_size": 1,
        "attention_backend": "triton", "device": "cuda", "api_key": None, "schedule_policy": "fcfs"}
args.update({name: typed(text) for name, text in given.items()})
info = {**args, **planted.get("server_info", {})}
info["internal_states"] = [{**info, **planted.get("internal_states", {})}]

class H(BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        known = {"/model_info": {"model_path": args["model_path"]}, "/server_info": info}
        if self.path not in known: return self.send_error(404)
        body = json.dumps(known[self.path]).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)

def log(text): print("[2026-06-18 11:02:16] " + text, flush=True)
for line in planted.get("lines", []): log(line)
said = {**args, **planted.get("arguments", {})}
log("server_args=ServerArgs(" + ", ".join(f"{n}={v!r}" for n, v in said.items()) + ")")
log("The server is fired up and ready to roll!")
HTTPServer(("127.0.0.1", args["port"]), H).serve_forever()
"#;

/// What an earlier start left in the log: it speaks of another process.
const BEFORE: &str = "[2026-06-18 10:00:00] Setting attention_backend to fa3 for this model.\n\
    [2026-06-18 10:00:00] server_args=ServerArgs(model_path='m', page_size=64, attention_backend='fa3')\n\
    [2026-06-18 10:00:00] The server is fired up and ready to roll!\n";

fn served(planted: &Value) -> (i32, Value) {
    let (root, port) = room();
    let path = |name: &str| root.path().join(name);
    fs_err::write(path("server.py"), SERVER).unwrap();
    fs_err::write(path("planted.json"), planted.to_string()).unwrap();
    fs_err::write(path("log"), BEFORE).unwrap();
    let script = format!(
        "#!/bin/bash\nexport SGLANG_DEFAULT_THINKING=1\nexec python3 {}/server.py --model-path m --port {port} \\\n\
         \x20 --page-size 1 --mem-fraction-static 0.85 --chunked-prefill-size 8192 --attention-backend triton\n",
        root.path().display()
    );
    Served::start((root, port), &script, "", "").truth()
}

/// Names of the rows with these states.
fn rows<'v>(truth: &'v Value, states: &[&str]) -> Vec<&'v str> {
    let rows = truth["rows"].as_array().unwrap().iter();
    let mut names: Vec<&str> =
        rows.filter(|r| states.contains(&r["status"].as_str().unwrap())).map(|r| r["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

const DISAGREE: [&str; 6] =
    ["differs", "conflicts-with", "accepted-but-off", "looks-misspelt", "unknown-to-this-version", "given-twice"];

#[track_caller]
fn check(truth: &Value, name: &str, status: &str, observed: &str, note: &str) {
    let all: Vec<&Value> = truth["rows"].as_array().unwrap().iter().filter(|r| r["name"] == name).collect();
    let [row] = all[..] else { panic!("{} rows of {name}: {all:#?}", all.len()) };
    assert_eq!((row["status"].as_str(), row["observed"]["value"].as_str()), (Some(status), Some(observed)), "{row:#}");
    assert!(row["observed"]["source"].as_str().unwrap().ends_with("/server_info"), "{row:#}");
    assert!(row["effective"]["source"].as_str().unwrap().ends_with("/cmdline"), "{row:#}");
    assert!(row["declared"]["source"].as_str().unwrap().ends_with("/serve.sh"), "{row:#}");
    assert!(row["note"].as_str().unwrap().contains(note), "{note} is not in {row:#}");
}

#[test]
fn what_server_info_and_the_log_contradict_is_one_row_each() {
    if skipped("ssh").is_some() {
        return;
    }
    let planted = json!({
        "server_info": { "mem_fraction_static": 0.8, "attention_backend": "fa3" },
        "lines": [
            "Setting page size to 64 for this card.",
            "Use fa3 as attention backend for this model.",
        ],
        "arguments": { "chunked_prefill_size": 2048 },
    });
    let (status, truth) = served(&planted);
    assert_eq!(status, 1, "{truth:#}");
    let names = ["--chunked-prefill-size", "--mem-fraction-static", "--page-size"];
    assert_eq!(rows(&truth, &DISAGREE), names, "{truth:#}");
    check(&truth, "--mem-fraction-static", "differs", "0.8", "started with `0.85`, the server says `0.8`");
    check(&truth, "--page-size", "differs", "1", "/server_info says `1`, ");
    check(&truth, "--page-size", "differs", "1", "/log line 4 says `64`");
    check(&truth, "--chunked-prefill-size", "differs", "8192", "/server_info says `8192`, ");
    check(&truth, "--chunked-prefill-size", "differs", "8192", "/log line 6 says `2048`");
    // A choice that the log explains is no contradiction, and is not silent either.
    assert_eq!(rows(&truth, &["overridden-by"]), ["--attention-backend"]);
    let note = "the server chose `fa3` instead of `triton`";
    check(&truth, "--attention-backend", "overridden-by", "fa3", note);
}

#[test]
fn what_only_the_internal_state_says_otherwise_is_a_row() {
    if skipped("ssh").is_some() {
        return;
    }
    let (status, truth) = served(&json!({ "internal_states": { "mem_fraction_static": 0.8 } }));
    assert_eq!((status, rows(&truth, &DISAGREE)), (1, vec!["--mem-fraction-static"]), "{truth:#}");
    check(&truth, "--mem-fraction-static", "differs", "0.8", "started with `0.85`, the server says `0.8`");
}

#[test]
fn a_server_that_says_what_it_was_started_with_has_no_disagreement() {
    if skipped("ssh").is_some() {
        return;
    }
    let (status, truth) = served(&json!({}));
    let none: Vec<&str> = Vec::new();
    assert_eq!(
        (status, rows(&truth, &DISAGREE), rows(&truth, &["overridden-by"])),
        (0, none.clone(), none),
        "{truth:#}"
    );
}
