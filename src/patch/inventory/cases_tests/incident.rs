//! The eight patches of the incident.

use super::{Case, check};

#[test]
fn one_a_decode_kernel_on_tensor_cores() {
    check(
        &Case {
            path: "srt/layers/attention/flash_mla_sm120_triton.py",
            section: "",
            lines: &[
                "+import os",
                "+import triton",
                "+import triton.language as tl",
                "+",
                "+_USE_MMA = os.environ.get(\"SGLANG_SM120_MMA_FLASHMLA\", \"0\") == \"1\"",
                "+",
                "+",
                "+@triton.jit",
                "+def _split_kernel(Q, K, O, sm_scale, BLOCK: tl.constexpr):",
                "+    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
                "+    q = (tl.load(Q + offs) * sm_scale).to(tl.bfloat16)",
                "+    acc = tl.dot(q, tl.load(K))",
                "+    tl.store(O, acc)",
                "+",
                "+",
                "+def sparse_decode(q, k, o):",
                "+    assert q.shape[1] == 1",
                "+    if _USE_MMA:",
                "+        _split_kernel[(q.shape[0],)](q, k, o, 0.04, BLOCK=64)",
            ],
        },
        &[
            "in: _split_kernel, sparse_decode",
            "gates: environ SGLANG_SM120_MMA_FLASHMLA=\"0\"",
            "phases: decode",
            "types: ->bf16",
            "kernels: _split_kernel",
            "asserts: assert q.shape[1] == 1",
            "signals: accumulation, scale, index",
        ],
    );
}

#[test]
fn two_an_indexer_behind_a_registry() {
    check(
        &Case {
            path: "srt/layers/attention/dsv4/indexer.py",
            section: "class C4Indexer(nn.Module):",
            lines: &[
                "     def forward(self, q, k, page_table):",
                "-        logits = self.torch_logits(q, k)",
                "+        if envs.SGLANG_SM120_TRITON_INDEXER.get():",
                "+            logits = paged_logits_kernel[grid](q, k, page_table)",
                "+        else:",
                "+            logits = self.torch_logits(q, k)",
                "         return logits.topk(self.index_topk)",
            ],
        },
        &[
            "in: C4Indexer.forward",
            "gates: registry SGLANG_SM120_TRITON_INDEXER unknown",
            "kernels: paged_logits_kernel",
            "signals: layout",
        ],
    );
}

#[test]
fn three_a_fallback_in_lower_precision() {
    check(
        &Case {
            path: "srt/layers/attention/dsv4/indexer.py",
            section: "def fp8_paged_mqa_logits(q, kv):",
            lines: &[
                "     if get_bool_env_var(\"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH\"):",
                "-        return torch.einsum(\"bhd,nd->bhn\", q.float(), kv.float())",
                "+        return torch.einsum(\"bhd,nd->bhn\", q.to(torch.bfloat16), kv.to(torch.bfloat16))",
            ],
        },
        &["in: fp8_paged_mqa_logits", "gates: helper SGLANG_FP8_PAGED_MQA_LOGITS_TORCH unknown", "types: fp32>bf16"],
    );
}

#[test]
fn four_a_mixing_in_lower_precision_without_a_gate() {
    check(
        &Case {
            path: "srt/models/deepseek_v4.py",
            section: "class DeepseekV4DecoderLayer(nn.Module):",
            lines: &[
                "     def hc_pre(self, hidden, rsqrt):",
                "         x_flat = hidden.flatten(2)",
                "-        mixes = F.linear(x_flat.float(), self.hc_fn)",
                "+        mixes = F.linear(x_flat.to(torch.bfloat16), self.hc_fn_bf16).float()",
                "         return mixes * rsqrt",
            ],
        },
        &["in: DeepseekV4DecoderLayer.hc_pre", "types: fp32>bf16, ->fp32"],
    );
}

#[test]
fn five_a_scaling_in_the_place_of_an_assert() {
    check(
        &Case {
            path: "srt/layers/moe/hash_topk.py",
            section: "class HashTopK(nn.Module):",
            lines: &[
                "     def forward(self, w):",
                "         topk_weights, topk_ids = self.select(w)",
                "-        assert not self.apply_routed_scaling_factor_on_output, \"not implemented\"",
                "+        if self.apply_routed_scaling_factor_on_output:",
                "+            topk_weights *= self.routed_scaling_factor",
                "         return topk_weights, topk_ids",
            ],
        },
        &["in: HashTopK.forward", "signals: scale, assertremoved"],
    );
}

#[test]
fn six_a_hybrid_of_weights_at_load() {
    check(
        &Case {
            path: "srt/layers/quantization/modelopt_quant.py",
            section: "class ModelOptNvFp4FusedMoEMethod(FusedMoEMethodBase):",
            lines: &[
                "     def process_weights_after_loading(self, layer):",
                "-        w13 = layer.w13_weight.data",
                "+        w13 = swizzle_blockscale(layer.w13_weight.data)",
                "+        layer.w13_weight_scale = w13.view(torch.float8_e4m3fn)",
            ],
        },
        &[
            "in: ModelOptNvFp4FusedMoEMethod.process_weights_after_loading",
            "phases: load",
            "types: ->fp8_e4m3",
            "signals: scale, layout",
        ],
    );
}

#[test]
fn seven_a_clamp_of_another_back_end() {
    check(
        &Case {
            path: "srt/layers/moe/flashinfer_trtllm_moe.py",
            section: "def forward_trtllm(layer, x):",
            lines: &[
                "     if get_moe_runner_backend().is_flashinfer_trtllm():",
                "-        out = trtllm_fp4_block_scale_moe(x, layer.w13)",
                "+        out = trtllm_fp4_block_scale_moe(x, layer.w13, gemm1_clamp_limit=layer.gemm1_clamp_limit)",
            ],
        },
        &["in: forward_trtllm", "signals: clamp"],
    );
}

#[test]
fn eight_another_default_of_the_template() {
    check(
        &Case {
            path: "srt/entrypoints/openai/serving_chat.py",
            section: "",
            lines: &[" # chat defaults", "-DEFAULT_THINKING = False", "+DEFAULT_THINKING = True"],
        },
        &["phases: template", "signals: template, defaulton"],
    );
}
