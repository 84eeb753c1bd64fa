//! Tests of facts: each rule with lines that it means and lines that only look like it.

use super::{Facts, PHASES, SIGNALS, Sides, of_hunk, rules};
use crate::patch::diff::read;
use crate::patch::gates::Registry;
use crate::patch::types::{Phase, Signal};

/// The facts of a diff of one hunk.
fn facts(path: &str, section: &str, lines: &[&str]) -> Facts {
    let count = |mark| lines.iter().filter(|line| line.starts_with([' ', mark])).count();
    let (old, new) = (count('-'), count('+'));
    let body = lines.join("\n");
    let text = format!("--- a/{path}\n+++ b/{path}\n@@ -10,{old} +10,{new} @@ {section}\n{body}\n");
    let diff = read(&text);
    assert_eq!(diff.remarks, [], "{text}");
    let file = &diff.files[0];
    of_hunk(file, &Sides::new(file, None), 0, &Registry::default())
}

fn signals(path: &str, lines: &[&str]) -> Vec<Signal> {
    let mut found: Vec<Signal> = facts(path, "", lines).signals.iter().map(|fact| fact.value).collect();
    found.sort();
    found.dedup();
    found
}

/// A line that is added means these signals and no others.
fn check(line: &str, expect: &[Signal]) {
    check_in("srt/layers/a.py", line, expect);
}

fn check_in(path: &str, line: &str, expect: &[Signal]) {
    assert_eq!(signals(path, &[" before", &format!("+{line}")]), expect, "{path}: {line}");
}

#[test]
fn every_rule_is_a_pattern() {
    assert_eq!(rules::signals().iter().map(|compiled| compiled.rules.len()).sum::<usize>(), SIGNALS.len());
    assert_eq!(rules::phases().len(), PHASES.len());
}

#[test]
fn words_that_mean_a_signal_and_words_that_do_not() {
    use Signal::{Accumulation, CacheKey, Clamp, Index, Layout, Mask, Parser, Scale, Template, TopK, Transfer};
    check("acc += p", &[Accumulation]);
    check("acc_o = tl.dot(p, v)", &[Accumulation]);
    check("y = x.sum(-1)", &[Accumulation]);
    check("run(num_kv_splits=8)", &[Accumulation]);
    check("access += 1", &[]);
    check("summary(x)", &[]);
    check("topk_weights *= self.routed_scaling_factor", &[Scale]);
    check("q = q * sm_scale", &[Scale]);
    check("f(k_scale=x)", &[Scale]);
    check("self.k_scale = y", &[Scale]);
    check("rescale(x)", &[]);
    check("scalar = 1 * y", &[]);
    check("autoscale_pods()", &[]);
    check("x = x.clamp(min=0)", &[Clamp]);
    check("x = tl.minimum(x, y)", &[Clamp]);
    check("limit = self.swiglu_limit", &[Clamp]);
    check("clamped = False", &[]);
    check("ids = torch.topk(s, k)", &[TopK]);
    check("index_topk = 512", &[TopK]);
    check("i = x.argsort()", &[TopK]);
    check("names = sorted(files)", &[]);
    check("print(topk_weights)", &[]);
    check("m = torch.where(a, b, c)", &[Mask]);
    check("attn_mask = x", &[Mask]);
    check("s = s.masked_fill(m, v)", &[Mask]);
    check("x = -float('inf')", &[Mask]);
    check("x = tl.full(n, float('-inf'))", &[Mask]);
    check("print('-infinite')", &[]);
    check("if mask == y:", &[]);
    check("unmask(x)", &[]);
    check("kv_indices = base + i", &[Index]);
    check("x[offset + 1]", &[Index]);
    check("offs = pid * BLOCK", &[Index]);
    check("index = build()", &[]);
    check("position = 3", &[]);
    check("allocation = a + b", &[]);
    check("n = page_size", &[Layout]);
    check("x.stride(0)", &[Layout]);
    check("w = shuffle_weight(w)", &[Layout]);
    check("k = k.view(torch.uint8)", &[Layout]);
    check("web_page = 1", &[]);
    check("x = x.view(-1, 4)", &[]);
    check("r = cache.match_prefix(t)", &[CacheKey]);
    check("cache_key = f(t)", &[CacheKey]);
    check("key = d['a']", &[]);
    check("room = req.bootstrap_room", &[Transfer]);
    check_in("srt/disaggregation/conn.py", "self.send(x)", &[Transfer]);
    check("self.send(x)", &[]);
    check("p = tok.apply_chat_template(m)", &[Template]);
    check("DEFAULT_THINKING = x", &[Template]);
    check("thinking_about = x", &[]);
    check_in("a/glm_chat_template.py", "tools,", &[]);
    check_in("a/tool_chat_template.jinja", "{{ x }}", &[Template]);
    check("p = self.reasoning_parser", &[Parser]);
    check_in("srt/function_call/qwen_detector.py", "i = text.find(x)", &[Parser]);
    check("i = text.find(x)", &[]);
}

#[test]
fn a_line_with_other_blanks_is_the_same_and_one_elsewhere_is_not() {
    use Signal::{Clamp, Scale};
    assert_eq!(signals("a.py", &["-x = x * scale", "+if a:", "+    x = x * scale"]), []);
    assert_eq!(signals("a.py", &["-x = x * scale", " y", "+x = x * scale"]), [Scale]);
    assert_eq!(signals("a.py", &["-x = x * scale", "+    x = x * scale", "+x = x * scale"]), [Scale]);
    assert_eq!(
        signals("a.py", &["-x = x.clamp(0)", "-x = x * scale", "+x = x * scale", "+x = x.clamp(0)"]),
        [Scale, Clamp]
    );
}

#[test]
fn comments_and_strings_mean_nothing() {
    check("x = 1  # clamp(topk) * scale", &[]);
    check("x = \"mask = page_size\"", &[]);
    check("# acc += p", &[]);
    check_in("csrc/k.cu", "x = y; // acc += p", &[]);
}

fn check_pair(old: &str, new: &str, expect: &[Signal]) {
    let found = signals("a.py", &[&format!("-{old}"), &format!("+{new}")]);
    assert_eq!(found, expect, "{old} -> {new}");
}

#[test]
fn what_differs_between_two_lines() {
    use Signal::{Constant, DefaultOn};
    check_pair("x = 512", "x = 1024", &[Constant]);
    check_pair("eps = 1e-6", "eps = 1e-5", &[Constant]);
    check_pair("x = fp32", "x = fp16", &[]);
    check_pair("x = 512", "y = 1024", &[]);
    check_pair("x = 1  # 2", "x = 1  # 3", &[]);
    check_pair("FAST = False", "FAST = True", &[DefaultOn]);
    check_pair("FAST = True", "FAST = False", &[]);
    check_pair("X = EnvBool(False)", "X = EnvBool(True)", &[DefaultOn]);
    check_pair("a = os.environ.get('X', '0') == '1'", "a = os.environ.get('X', '1') == '1'", &[DefaultOn]);
    check_pair("return False", "return True", &[]);
    check_pair("f(a, False)", "f(a, True)", &[]);
    check_pair("f(a=False)", "f(a=True)", &[DefaultOn]);
    check("X = EnvBool(True)", &[DefaultOn]);
    check("X = EnvBool(False)", &[]);
    check("a = get_bool_env_var('X', 'true')", &[DefaultOn]);
    check("a = os.getenv('X', '1') != '0'", &[DefaultOn]);
    check("n = int(os.environ.get('WORLD_SIZE', '1'))", &[]);
}

fn check_dtypes(path: &str, lines: &[&str], expect: &[&str]) {
    let facts = facts(path, "", lines);
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let found: Vec<String> =
        facts.dtypes.iter().map(|f| format!("{}>{}", name(&f.value.from), name(&f.value.to))).collect();
    assert_eq!(found, expect, "{lines:?}");
}

#[test]
fn value_types_that_took_the_place_of_others() {
    let python = |lines: &[&str], expect: &[&str]| check_dtypes("a.py", lines, expect);
    python(&["-y = f(x.float())", "+y = f(x.to(torch.bfloat16))"], &["fp32>bf16"]);
    python(&["-acc = tl.zeros([M], dtype=tl.float32)", "+acc = tl.zeros([M], dtype=tl.bfloat16)"], &["fp32>bf16"]);
    python(&["-b = torch.empty(n, dtype=torch.float32)", "+c = torch.empty(n, dtype=torch.float32)"], &[]);
    python(&["-y = x.float()", "+y = x"], &["fp32>-"]);
    python(&["-y = x", "+y = x.half()"], &["->fp16"]);
    python(&["-f(dtype=\"float32\")", "+f(dtype='bfloat16')"], &["fp32>bf16"]);
    python(&["-y = float(x)", "+y = int(x)"], &[]);
    python(&["-# x.float()", "+# x.to(torch.bfloat16)"], &[]);
    python(&["-y = x.float()", " z", "+y = x.to(torch.bfloat16)"], &["->bf16"]);
    python(&["+y = x.to(torch.bfloat16)", "+z = torch.empty(n, dtype=torch.bfloat16)", "+w = x.float()"], &["->bf16"]);
    python(&["-assert x.dtype == torch.uint8"], &[]);
    python(&["-i = i.to(torch.int32)", "+i = i.to(torch.int64)"], &["int32>int64"]);
    python(&["-w = w.view(torch.uint8)", "+w = w.view(torch.float8_e4m3fn)"], &["uint8>fp8_e4m3"]);
    python(&["-    y = x.float()", "+        y = x.float()"], &[]);
    python(&["-y = f(g(x)[0].float(), z)", "+y = f(g(x)[0].bfloat16(), z)"], &["fp32>bf16"]);
    let cuda = |lines: &[&str], expect: &[&str]| check_dtypes("a.cu", lines, expect);
    cuda(&["-float acc = 0;", "+__nv_bfloat16 acc = 0;"], &["fp32>bf16"]);
    cuda(&["-x = static_cast<float>(y);", "+x = static_cast<half>(y);"], &["fp32>fp16"]);
    cuda(&["-// float", "+// half"], &[]);
    check_dtypes("a.md", &["-float", "+half"], &[]);
}

fn check_names(found: &[super::Fact<String>], expect: &[&str]) {
    assert_eq!(found.iter().map(|fact| fact.value.as_str()).collect::<Vec<_>>(), expect);
}

#[test]
fn kernels_that_are_defined_changed_and_launched() {
    let kernels = |path: &str, lines: &[&str]| facts(path, "", lines).kernels;
    check_names(&kernels("a.py", &["+@triton.jit", "+def k(x):", "+    y = x", " z = 1"]), &["k"]);
    check_names(
        &kernels("a.py", &[" @triton.autotune(configs=[])", " @triton.jit", " def k(x):", "+    y = x"]),
        &["k"],
    );
    check_names(&kernels("a.py", &["+def k(x):", "+    y = x"]), &[]);
    check_names(&kernels("a.py", &["+fwd_kernel[grid](x)", "+rows[0](x)", "+run[(n,)](x)"]), &["fwd_kernel", "run"]);
    check_names(
        &kernels("a.py", &["-old_kernel[", "-    (n,)", "-](x)", "+y = torch.ops.sgl_kernel.fast.default(x)"]),
        &["sgl_kernel.fast", "old_kernel"],
    );
    check_names(&kernels("a.cu", &["+__global__ void k(float* x) {", "+  x[0] = 1;", "+}"]), &["k"]);
    check_names(&kernels("a.cu", &[" void f() {", "+  ns::k<float, 3><<<g, b>>>(x);", " }"]), &["ns::k"]);
    check_names(&kernels("a.cu", &[" void f() {", "+  std::cout << 1 << 2;", " }"]), &[]);
}

#[test]
fn asserts_that_come_and_go() {
    let both = |lines: &[&str]| {
        let facts = facts("a.py", "", lines);
        let removed = facts.signals.iter().filter(|fact| fact.value == Signal::AssertRemoved).count();
        (facts.asserts.iter().map(|fact| fact.value.clone()).collect::<Vec<_>>(), removed)
    };
    assert_eq!(both(&["+assert q.shape[1] == 1"]), (vec!["assert q.shape[1] == 1".to_owned()], 0));
    assert_eq!(both(&["-assert not x, 'no'", "+y = 1"]), (vec![], 1));
    assert_eq!(both(&["-assert x", "+assert x, 'why'"]), (vec![], 0));
    assert_eq!(both(&["-assert x", "+assert y"]), (vec!["assert y".to_owned()], 1));
    assert_eq!(both(&["-assert x", " y", "+    assert x"]), (vec![], 0));
    assert_eq!(both(&["+assert (", "+    a", "+    and b", "+)"]), (vec!["assert ( a and b )".to_owned()], 0));
    assert_eq!(both(&["+tl.static_assert(B == 64)"]).0.len(), 1);
    assert_eq!(both(&["+# assert x", "+s = 'assert x'", "+self.assertTrue(x)"]), (vec![], 0));
    let cuda =
        facts("a.cu", "", &[" void f() {", "-  TORCH_CHECK(x == 1);", "+  CHECK_EQ(x, 2);", "+  check(x);", " }"]);
    assert_eq!(cuda.asserts.len(), 1);
    assert!(cuda.signals.iter().any(|fact| fact.value == Signal::AssertRemoved));
}

fn check_phases(path: &str, section: &str, lines: &[&str], expect: &[(Phase, &str)]) {
    let facts = facts(path, section, lines);
    let found: Vec<(Phase, &str)> = facts.phases.iter().map(|(phase, fact)| (*phase, fact.value.as_str())).collect();
    assert_eq!(found, expect, "{path} {section} {lines:?}");
}

#[test]
fn phases_by_paths_names_and_words() {
    use Phase::{Decode, Extend, Load, Parse, Template, Transfer};
    let model = "srt/models/m.py";
    check_phases(model, "", &["+x = 1"], &[]);
    check_phases(model, "def hc_pre(self):", &["+    x = 1"], &[]);
    check_phases(model, "def load_weights(self):", &["+    x = 1"], &[(Load, "`load_weights` is named so")]);
    check_phases(model, "def reload_weightsets(self):", &["+    x = 1"], &[]);
    check_phases(model, "def forward_decode(self):", &["+    x = 1"], &[(Decode, "`forward_decode` is named so")]);
    check_phases(model, "def decoder(self):", &["+    x = 1"], &[]);
    check_phases("srt/tokenizer_utils.py", "def decode(self):", &["+    x = 1"], &[]);
    check_phases("srt/api/types.py", "def decode_params(self):", &["+    x = 1"], &[]);
    check_phases(
        model,
        "",
        &["+if forward_batch.forward_mode.is_extend():", "+    x"],
        &[(Extend, "the line says `is_extend()`")],
    );
    check_phases(model, "", &["+# is_decode()"], &[]);
    check_phases(
        "srt/disaggregation/decode.py",
        "",
        &["+x = 1"],
        &[(Decode, "the path holds `/decode.`"), (Transfer, "the path holds `/disaggregation/`")],
    );
    check_phases("srt/model_loader/loader.py", "", &["+x = 1"], &[(Load, "the path holds `/model_loader/`")]);
    check_phases("openai/serving_chat.py", "", &["+x = 1"], &[(Template, "the path holds `serving_chat`")]);
    check_phases("srt/function_call/a.py", "", &["+x = 1"], &[(Parse, "the path holds `/function_call/`")]);
    check_phases("srt/parser/conversation.py", "", &["+x = 1"], &[(Template, "the path holds `conversation.py`")]);
    check_phases("srt/prefill_delayer.py", "", &["+x = 1"], &[(Extend, "the path holds `/prefill_`")]);
}

#[test]
fn symbols_and_gates_of_a_hunk() {
    let found = facts(
        "a.py",
        "class A(B):",
        &[
            "     def f(self):",
            "         if envs.SGLANG_A.get():",
            "-            x = 1",
            "+            x = g(server_args.tp_size)",
            "+        if self.server_args.enable_b:",
            "+            y = os.environ.get('SGLANG_C', '0')",
        ],
    );
    check_names(&found.symbols, &["A.f"]);
    let gates: Vec<&str> = found.gates.iter().map(|gate| gate.name.as_str()).collect();
    assert_eq!(gates, ["enable_b", "SGLANG_C", "SGLANG_A"]);
}

#[test]
fn a_text_that_disagrees_with_the_diff_is_not_used() {
    let diff = read("--- a/f.py\n+++ b/f.py\n@@ -2,1 +2,2 @@\n a = 1\n+b = 2\n");
    let file = &diff.files[0];
    let good = Sides::new(file, Some("def f():\r\na = 1\r\nb = 2\r\n"));
    assert!(!good.disagrees && good.new_of(0).unwrap().is_whole());
    for text in ["x\na = 1\nb = 3\n", "a = 1\nb = 2\n", ""] {
        let bad = Sides::new(file, Some(text));
        assert!(bad.disagrees && !bad.new_of(0).unwrap().is_whole(), "{text:?}");
    }
}
