//! # The router: scores of all experts, the choice by bias or by table, and the weights as they
//! # leave the top-k. The experts and the sum over them, with the point `output` and the choice
//! # `scaling = "output"`, are the host's.
//! # Products are added by fused multiply-add, which rounds once where the rule of `accumulate`
//! # rounds twice. Tensor cores add the products of one instruction in an order of their own.
//! spec = "router"
//!
//! [[candidate]]
//! name = "fp32"
//! says = "everything in f32 without tensor cores, the factor in the top-k"
//! round = { logits = "f32", scores = "f32", weights = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "fp32-scaled-output"
//! says = "everything in f32 without tensor cores, the factor on the output"
//! round = { logits = "f32", scores = "f32", weights = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! choose = { scaling = "output" }
//! [candidate.cuda]
//! define = ["SCALING_TOPK=0"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "tf32-gate"
//! says = "the operands of the gate's product in TF32 on tensor cores, sums in f32"
//! round = { activation = "tf32", gate = "tf32", logits = "f32", scores = "f32", weights = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "tf32"
//! launch = [
//!   { function = "router_logits_tf32", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! # Tensor cores take both operands in bf16; activations that are bf16 already lose nothing.
//! [[candidate]]
//! name = "bf16-logits"
//! says = "the operands of the gate's product and the product in bf16 on tensor cores, sums in f32"
//! round = { activation = "bf16", gate = "bf16", logits = "bf16", scores = "f32", weights = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "bf16"
//! define = ["ROUND_LOGITS=BF16"]
//! launch = [
//!   { function = "router_logits_bf16", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "bf16-weights"
//! says = "the routed weights in bf16, the factor in the top-k, all else in f32"
//! round = { logits = "f32", scores = "f32", weights = "bf16", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! define = ["ROUND_WEIGHTS=BF16"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "bf16-weights-scaled-output"
//! says = "the routed weights in bf16, the factor on the output, all else in f32"
//! round = { logits = "f32", scores = "f32", weights = "bf16", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! choose = { scaling = "output" }
//! [candidate.cuda]
//! define = ["ROUND_WEIGHTS=BF16", "SCALING_TOPK=0"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! # Known-bad twins, in f32.
//!
//! [[candidate]]
//! name = "bias-in-weights"
//! says = "the bias that chooses also weighs"
//! round = { logits = "f32", scores = "f32", weights = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! fault = "bias-in-weights"
//! [candidate.cuda]
//! define = ["FAULT_BIAS_IN_WEIGHTS=1"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! # The weights have both applications of the factor in them, so that the host adds none.
//! [[candidate]]
//! name = "scaling-twice"
//! says = "the scaling factor is applied twice"
//! round = { logits = "f32", scores = "f32", weights = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! fault = "scaling-twice"
//! [candidate.cuda]
//! define = ["TIMES_SCALED=2"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "scaling-forgotten"
//! says = "the scaling factor is applied nowhere"
//! round = { logits = "f32", scores = "f32", weights = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! fault = "scaling-forgotten"
//! [candidate.cuda]
//! define = ["TIMES_SCALED=0"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "hash-by-scores"
//! says = "layers with a hash table choose by score"
//! round = { logits = "f32", scores = "f32", weights = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! fault = "hash-by-scores"
//! [candidate.cuda]
//! define = ["FAULT_HASH_BY_SCORES=1"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "root-forgotten"
//! says = "the score is the softplus without its root"
//! round = { logits = "f32", scores = "f32", weights = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! fault = "root-forgotten"
//! [candidate.cuda]
//! define = ["FAULT_ROOT_FORGOTTEN=1"]
//! launch = [
//!   { function = "router_logits", threads = 128, grid = [["rows", 16], ["experts", 64], ["splits", 1]] },
//!   { function = "router_choose", threads = 128, grid = [["rows", 1]] },
//! ]

#include "common.cuh"

#ifndef ROUND_LOGITS
#define ROUND_LOGITS F32
#endif
#ifndef ROUND_WEIGHTS
#define ROUND_WEIGHTS F32
#endif
// Whether the weights have the scaling factor in them, and how often.
#ifndef SCALING_TOPK
#define SCALING_TOPK 1
#endif
#ifndef TIMES_SCALED
#define TIMES_SCALED 1
#endif
#ifndef FAULT_BIAS_IN_WEIGHTS
#define FAULT_BIAS_IN_WEIGHTS 0
#endif
#ifndef FAULT_HASH_BY_SCORES
#define FAULT_HASH_BY_SCORES 0
#endif
#ifndef FAULT_ROOT_FORGOTTEN
#define FAULT_ROOT_FORGOTTEN 0
#endif

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
// Rows and experts of the product that one block makes, over one run of the inner index.
constexpr int TILE_ROWS = 16;
constexpr int TILE_EXPERTS = 64;

// Where the logit of one run lies, [splits, rows, experts] in all.
__device__ __forceinline__ float* partial(u8* scratch, int split, int rows, int row, int experts, int expert) {
    return reinterpret_cast<float*>(scratch) + ((size_t)split * rows + row) * experts + expert;
}

// ---- f32 without tensor cores ----

// What is loaded at a time along the inner index.
constexpr int CHUNK = 32;

extern "C" __global__ void __launch_bounds__(THREADS) router_logits(
    const float* inputs, const float* gate, const float* bias, const int* table, float* scores, int* chosen,
    float* weights, u8* scratch, int rows, int splits, int width, int experts, int active, float scaling) {
    // The inner index first, so that a thread's neighbours are one load; padded against conflicts.
    __shared__ __align__(16) float x[CHUNK][TILE_ROWS + 4];
    __shared__ __align__(16) float w[CHUNK][TILE_EXPERTS + 4];
    const int first_row = blockIdx.x * TILE_ROWS, first_expert = blockIdx.y * TILE_EXPERTS, split = blockIdx.z;
    const int begin = (int)((long long)split * width / splits), end = (int)((long long)(split + 1) * width / splits);
    // A thread makes two rows of four experts.
    const int row = threadIdx.x / 16 * 2, expert = threadIdx.x % 16 * 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sums[2][4] = {};
    for (int at = begin; at < end; at += CHUNK) {
        const int k = at + lane;
#pragma unroll
        for (int r = warp; r < TILE_ROWS; r += WARPS) {
            x[lane][r] = first_row + r < rows && k < end ? inputs[(size_t)(first_row + r) * width + k] : 0.0f;
        }
#pragma unroll
        for (int e = warp; e < TILE_EXPERTS; e += WARPS) {
            w[lane][e] = first_expert + e < experts && k < end ? gate[(size_t)(first_expert + e) * width + k] : 0.0f;
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < CHUNK; i++) {
            const float2 a = *reinterpret_cast<const float2*>(&x[i][row]);
            const float4 b = *reinterpret_cast<const float4*>(&w[i][expert]);
            sums[0][0] = fmaf(a.x, b.x, sums[0][0]);
            sums[0][1] = fmaf(a.x, b.y, sums[0][1]);
            sums[0][2] = fmaf(a.x, b.z, sums[0][2]);
            sums[0][3] = fmaf(a.x, b.w, sums[0][3]);
            sums[1][0] = fmaf(a.y, b.x, sums[1][0]);
            sums[1][1] = fmaf(a.y, b.y, sums[1][1]);
            sums[1][2] = fmaf(a.y, b.z, sums[1][2]);
            sums[1][3] = fmaf(a.y, b.w, sums[1][3]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (first_row + row + r < rows && first_expert + expert + e < experts) {
                *partial(scratch, split, rows, first_row + row + r, experts, first_expert + expert + e) = sums[r][e];
            }
        }
    }
}

// ---- tensor cores: each warp makes 16 experts, straight from memory ----

template <int RULE>
__device__ __forceinline__ void logits_by_mma(
    const float* inputs, const float* gate, u8* scratch, int rows, int splits, int width, int experts) {
    constexpr int TILES = TILE_EXPERTS / WARPS / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = lane / 4, member = lane % 4;
    const int split = blockIdx.z;
    const int upper = blockIdx.x * TILE_ROWS + group, lower = upper + 8;
    const int first_expert = blockIdx.y * TILE_EXPERTS + warp * TILES * 8;
    const int units = ceil_div(width, 16);
    const int begin = split * units / splits, end = (split + 1) * units / splits;
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
    float d[TILES][4] = {};
#pragma unroll 4
    for (int unit = begin; unit < end; unit++) {
        const int at = unit * 16 + member * 4;
        const float4 x = upper < rows ? load4(inputs + (size_t)upper * width, at, width) : zero;
        const float4 y = lower < rows ? load4(inputs + (size_t)lower * width, at, width) : zero;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const int expert = first_expert + 8 * n + group;
            const float4 w = expert < experts ? load4(gate + (size_t)expert * width, at, width) : zero;
            mma_16<RULE>(d[n], x, y, w);
        }
    }
#pragma unroll
    for (int n = 0; n < TILES; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = i < 2 ? upper : lower, expert = first_expert + 8 * n + 2 * member + i % 2;
            if (row < rows && expert < experts) {
                *partial(scratch, split, rows, row, experts, expert) = d[n][i];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) router_logits_tf32(
    const float* inputs, const float* gate, const float* bias, const int* table, float* scores, int* chosen,
    float* weights, u8* scratch, int rows, int splits, int width, int experts, int active, float scaling) {
    logits_by_mma<TF32>(inputs, gate, scratch, rows, splits, width, experts);
}

extern "C" __global__ void __launch_bounds__(THREADS) router_logits_bf16(
    const float* inputs, const float* gate, const float* bias, const int* table, float* scores, int* chosen,
    float* weights, u8* scratch, int rows, int splits, int width, int experts, int active, float scaling) {
    logits_by_mma<BF16>(inputs, gate, scratch, rows, splits, width, experts);
}

// ---- scores, choice and weights: a block a token ----

// sqrt(ln(1 + e^x)). Far below zero the softplus is e^x itself, to less than half a unit of f32, and
// is too small for f32 long before its root is.
__device__ __forceinline__ float score_of(float logit) {
    const float softplus = fmaxf(logit, 0.0f) + log1pf(expf(-fabsf(logit)));
    if (FAULT_ROOT_FORGOTTEN) {
        return softplus;
    }
    return logit < -17.0f ? expf(0.5f * logit) : sqrtf(softplus);
}

// A number that is larger for the expert that is chosen before: by value, where NaN is above all
// numbers, then by lower index. It is never 0.
__device__ __forceinline__ u64 rank(float value, int expert) {
    const u32 bits = __float_as_uint(value);
    const u32 ordered = is_nan(value) ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)ordered << 32 | (0xffffffffu - (u32)expert);
}

extern "C" __global__ void __launch_bounds__(THREADS) router_choose(
    const float* inputs, const float* gate, const float* bias, const int* table, float* scores, int* chosen,
    float* weights, u8* scratch, int rows, int splits, int width, int experts, int active, float scaling) {
    __shared__ u64 best[WARPS];
    const int row = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* own_scores = scores + (size_t)row * experts;
    int* own_chosen = chosen + (size_t)row * active;
    for (int expert = threadIdx.x; expert < experts; expert += THREADS) {
        float logit = 0.0f;
        for (int split = 0; split < splits; split++) {
            logit += *partial(scratch, split, rows, row, experts, expert);
        }
        own_scores[expert] = score_of(round_to<ROUND_LOGITS>(logit));
    }
    const int* listed = table + (size_t)row * active;
    const bool hashed = active > 0 && listed[0] >= 0;
    if (hashed && !FAULT_HASH_BY_SCORES) {
        for (int i = threadIdx.x; i < active; i += THREADS) {
            own_chosen[i] = listed[i];
        }
    } else {
        // The best of those after the last one taken, as often as there are experts to take.
        u64 last = ~0ull;
        for (int i = 0; i < active; i++) {
            u64 next = 0;
            for (int expert = threadIdx.x; expert < experts; expert += THREADS) {
                const u64 own = rank(own_scores[expert] + (hashed ? 0.0f : bias[expert]), expert);
                next = own < last && own > next ? own : next;
            }
#pragma unroll
            for (int apart = 16; apart > 0; apart >>= 1) {
                const u64 other = __shfl_xor_sync(FULL_WARP, next, apart);
                next = other > next ? other : next;
            }
            if (lane == 0) {
                best[warp] = next;
            }
            __syncthreads();
            last = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                last = best[w] > last ? best[w] : last;
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                // No key is left where more are asked for than there are experts: the index is -1.
                own_chosen[i] = (int)(0xffffffffu - (u32)last);
            }
        }
    }
    __syncthreads();
    if (warp > 0) {
        return;
    }
    // The first lane adds up, so that the order of the sum is that of the choice.
    const auto weighs = [&](int i) {
        const int expert = own_chosen[i];
        if (expert < 0 || expert >= experts) {
            return 0.0f;
        }
        return own_scores[expert] + (FAULT_BIAS_IN_WEIGHTS && !hashed ? bias[expert] : 0.0f);
    };
    float sum = 0.0f;
    if (lane == 0) {
        for (int i = 0; i < active; i++) {
            sum += weighs(i);
        }
    }
    sum = __shfl_sync(FULL_WARP, sum, 0);
    const float factor = !SCALING_TOPK || TIMES_SCALED == 0 ? 1.0f : TIMES_SCALED == 2 ? scaling * scaling : scaling;
    for (int i = lane; i < active; i += 32) {
        weights[(size_t)row * active + i] = round_to<ROUND_WEIGHTS>(weighs(i) / sum * factor);
    }
}
