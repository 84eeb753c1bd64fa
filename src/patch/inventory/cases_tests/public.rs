//! Public failures of other engines and releases.

use super::{Case, check};

#[test]
fn a_number_that_the_checkpoint_says_otherwise() {
    check(
        &Case {
            path: "atom/models/deepseek_v4.py",
            section: "def build_sparse_metadata(cfg, seq_len):",
            lines: &["     ratio = 4", "-    index_topk = 512", "+    index_topk = 1024"],
        },
        &["in: build_sparse_metadata", "signals: constant, topk"],
    );
}

#[test]
fn a_correction_bias_that_is_cast() {
    check(
        &Case {
            path: "srt/models/glm4_moe.py",
            section: "class Glm4MoeGate(nn.Module):",
            lines: &[
                "     def __init__(self, config):",
                "-        self.bias = nn.Parameter(torch.empty(n, dtype=torch.float32))",
                "+        self.bias = nn.Parameter(torch.empty(n, dtype=torch.bfloat16))",
            ],
        },
        &["in: Glm4MoeGate.__init__", "types: fp32>bf16"],
    );
}

#[test]
fn a_router_that_is_rounded_for_small_batches() {
    check(
        &Case {
            path: "srt/layers/moe/router.py",
            section: "def router_logits(x, w):",
            lines: &[
                "-    return F.linear(x.float(), w.float())",
                "+    if is_sm100_supported() and x.shape[0] <= 16:",
                "+        return torch.ops.sgl_kernel.router_gemm(x, w)",
                "+    return F.linear(x.float(), w.float())",
                "     # end",
            ],
        },
        &["in: router_logits", "gates: arch is_sm100_supported() unknown", "kernels: sgl_kernel.router_gemm"],
    );
}

#[test]
fn a_factor_that_is_applied_twice() {
    check(
        &Case {
            path: "vllm/model_executor/models/deepseek_v2.py",
            section: "class DeepseekV2MoE(nn.Module):",
            lines: &[
                "     def forward(self, hidden_states):",
                "         out = self.experts(hidden_states, router_logits)",
                "-        return out",
                "+        return out * self.routed_scaling_factor",
            ],
        },
        &["in: DeepseekV2MoE.forward", "signals: scale"],
    );
}

#[test]
fn lanes_beyond_the_candidates_that_are_not_masked() {
    check(
        &Case {
            path: "flashinfer/sparse_mla.py",
            section: "@triton.jit",
            lines: &[
                " @triton.jit",
                " def gather_kernel(idx_ptr, topk_length, BLOCK: tl.constexpr):",
                "     lane = tl.arange(0, BLOCK)",
                "-    idx = tl.load(idx_ptr + lane, mask=lane < topk_length, other=-1)",
                "+    idx = tl.load(idx_ptr + lane)",
            ],
        },
        &["in: gather_kernel", "kernels: gather_kernel", "signals: mask, index"],
    );
}

#[test]
fn a_scale_that_is_rounded_after_its_use() {
    check(
        &Case {
            path: "srt/layers/quantization/fp8_utils.py",
            section: "def quantize_wo_a(x):",
            lines: &[
                "     if envs.SGLANG_OPT_FP8_WO_A_GEMM.get():",
                "         x_q, x_scale = quant(x)",
                "+        x_scale = ceil_to_ue8m0(x_scale)",
                "     return x_q, x_scale",
            ],
        },
        &["in: quantize_wo_a", "gates: registry SGLANG_OPT_FP8_WO_A_GEMM unknown", "signals: scale"],
    );
}

#[test]
fn a_norm_that_is_more_precise_than_its_model() {
    check(
        &Case {
            path: "vllm/layers/layernorm.py",
            section: "class RMSNorm(CustomOp):",
            lines: &[
                "     def forward_native(self, x):",
                "-        return x.to(torch.bfloat16) * self.weight",
                "+        return (x * self.weight.float()).to(torch.bfloat16)",
            ],
        },
        &["in: RMSNorm.forward_native", "types: ->fp32"],
    );
}

#[test]
fn a_state_that_is_cached_before_it_is_whole() {
    check(
        &Case {
            path: "vllm/v1/core/block_pool.py",
            section: "def cache_full_blocks(self, request):",
            lines: &[
                "     for block in blocks:",
                "-        if block.is_full:",
                "-            block.block_hash = hash_block_tokens(parent, block.token_ids)",
                "+        block.block_hash = hash_block_tokens(parent, block.token_ids)",
            ],
        },
        &["in: cache_full_blocks"],
    );
}

#[test]
fn a_key_that_leaves_something_out() {
    check(
        &Case {
            path: "srt/mem_cache/radix_cache.py",
            section: "class RadixCache(BasePrefixCache):",
            lines: &[
                "     def find(self, req):",
                "-        key = RadixKey(req.token_ids, req.extra_key)",
                "+        key = RadixKey(req.token_ids)",
            ],
        },
        &["in: RadixCache.find", "signals: cachekey"],
    );
}

#[test]
fn pages_that_are_freed_while_they_are_written() {
    check(
        &Case {
            path: "srt/disaggregation/decode.py",
            section: "class DecodePreallocQueue:",
            lines: &[
                "     def abort(self, req):",
                "-        self.kv_receiver.wait(req.bootstrap_room)",
                "         self.free(req)",
            ],
        },
        &["in: DecodePreallocQueue.abort", "phases: decode, transfer", "signals: transfer"],
    );
}

#[test]
fn a_chunk_that_forgets_where_it_begins() {
    check(
        &Case {
            path: "imp/prefill.py",
            section: "def prefill_chunk(q, k, start):",
            lines: &[
                "-    kv_offset = start + chunk_id * CHUNK",
                "+    kv_offset = chunk_id * CHUNK",
                "     return attend(q, k, kv_offset)",
            ],
        },
        &["in: prefill_chunk", "phases: extend", "signals: index"],
    );
}

#[test]
fn a_default_that_is_on_for_some_cards() {
    check(
        &Case {
            path: "vllm/envs.py",
            section: "environment_variables = {",
            lines: &[
                "-    \"VLLM_USE_DEEP_GEMM\": lambda: bool(int(os.getenv(\"VLLM_USE_DEEP_GEMM\", \"0\"))),",
                "+    \"VLLM_USE_DEEP_GEMM\": lambda: bool(int(os.getenv(\"VLLM_USE_DEEP_GEMM\", \"1\"))),",
                " }",
            ],
        },
        &["gates: environ VLLM_USE_DEEP_GEMM=\"1\"", "signals: defaulton"],
    );
}

#[test]
fn weights_that_are_shuffled_for_another_runner() {
    check(
        &Case {
            path: "srt/layers/quantization/fp8.py",
            section: "class Fp8MoEMethod:",
            lines: &[
                "     def process_weights_after_loading(self, layer):",
                "         if _use_aiter and _is_hip:",
                "+            layer.w13_weight = shuffle_weight(layer.w13_weight, (16, 16))",
                "             return",
            ],
        },
        &[
            "in: Fp8MoEMethod.process_weights_after_loading",
            "gates: arch _is_hip unknown",
            "phases: load",
            "signals: layout",
        ],
    );
}

#[test]
fn a_kernel_in_cuda_with_a_switch_of_its_own() {
    check(
        &Case {
            path: "csrc/attention/split_kv.cu",
            section: "",
            lines: &[
                " #include <cuda.h>",
                "+__global__ void merge_kernel(const __nv_bfloat16* part, float* out, int n) {",
                "+  int idx = blockIdx.x * 128 + threadIdx.x;",
                "+  atomicAdd(out + idx, __bfloat162float(part[idx]));",
                "+}",
                "+void merge(const __nv_bfloat16* part, float* out, int n) {",
                "+  TORCH_CHECK(n % 128 == 0);",
                "+  if (std::getenv(\"SGLANG_SPLIT_MERGE\") != nullptr) {",
                "+    merge_kernel<<<n / 128, 128>>>(part, out, n);",
                "+  }",
                "+}",
            ],
        },
        &[
            "in: merge_kernel, merge",
            "gates: environ SGLANG_SPLIT_MERGE unset",
            "kernels: merge_kernel",
            "asserts: TORCH_CHECK(n % 128 == 0);",
            "signals: accumulation, index",
        ],
    );
}

#[test]
fn a_reduction_in_cuda_that_loses_bits() {
    check(
        &Case {
            path: "csrc/norm.cuh",
            section: "__global__ void rms_norm(const T* x)",
            lines: &["   // squares", "-  float acc = 0.0f;", "+  half acc = 0.0f;", "   acc += x[i] * x[i];"],
        },
        &["in: rms_norm", "types: fp32>fp16"],
    );
}

#[test]
fn a_launch_script_that_hands_on_a_variable() {
    check(
        &Case {
            path: "scripts/serve_decode.sh",
            section: "",
            lines: &[
                " #!/bin/bash",
                "-export SGLANG_SM120_TRITON_INDEXER=${SGLANG_SM120_TRITON_INDEXER:-0}",
                "+export SGLANG_SM120_TRITON_INDEXER=${SGLANG_SM120_TRITON_INDEXER:-1}",
            ],
        },
        &["gates: environ SGLANG_SM120_TRITON_INDEXER=1", "signals: constant, defaulton"],
    );
}

#[test]
fn a_parser_that_looks_for_another_mark() {
    check(
        &Case {
            path: "srt/function_call/deepseekv4_detector.py",
            section: "class DeepSeekV4Detector(BaseFormatDetector):",
            lines: &[
                "     def detect_and_parse(self, text, tools):",
                "-        start = text.find(self.bot_token)",
                "+        start = text.find(\"<tool>\")",
            ],
        },
        &["in: DeepSeekV4Detector.detect_and_parse", "phases: parse", "signals: parser"],
    );
}

#[test]
fn a_template_that_drops_old_reasoning() {
    check(
        &Case {
            path: "examples/tool_chat_template_deepseekv4.jinja",
            section: "",
            lines: &[
                " {% for m in messages %}",
                "-{{ m.reasoning_content }}",
                "+{% if loop.last %}{{ m.reasoning_content }}{% endif %}",
            ],
        },
        &["phases: template", "signals: template"],
    );
}

#[test]
fn an_argument_of_the_server_that_decides() {
    check(
        &Case {
            path: "srt/managers/scheduler.py",
            section: "class Scheduler:",
            lines: &[
                "     def get_batch(self):",
                "+        if self.server_args.page_size > 128 and not self.server_args.disable_radix_cache:",
                "+            return None",
                "         return self.next()",
            ],
        },
        &[
            "in: Scheduler.get_batch",
            "gates: serverargs page_size unknown, serverargs disable_radix_cache unknown",
            "signals: layout",
        ],
    );
}

#[test]
fn a_mode_that_is_asked_for() {
    check(
        &Case {
            path: "srt/layers/attention/dsv4_backend.py",
            section: "class DSV4Backend:",
            lines: &[
                "     def forward(self, q, forward_batch):",
                "+        if forward_batch.forward_mode.is_decode() and q.shape[0] <= 64:",
                "+            return self.split_kv(q, num_kv_splits=8)",
                "         return self.dense(q)",
            ],
        },
        &["in: DSV4Backend.forward", "phases: decode", "signals: accumulation"],
    );
}

#[test]
fn words_that_change_nothing() {
    check(
        &Case {
            path: "srt/models/deepseek_v4.py",
            section: "class A:",
            lines: &[
                "     def f(self):",
                "-        # topk_weights *= routed_scaling_factor in fp32",
                "+        # topk_weights *= routed_scaling_factor in torch.bfloat16, see os.environ[\"X\"]",
                "         return 1",
            ],
        },
        &[],
    );
}
