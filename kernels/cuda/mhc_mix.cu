//! # The mixing product of the hyper-connections: 24 numbers out of four flattened streams, and the
//! # root mean square that divides them afterwards. Split, Sinkhorn and combination are the host's.
//! # Products are added by fused multiply-add, which rounds once where the rule of `accumulate`
//! # rounds twice. Tensor cores add the products of one instruction in an order of their own.
//! # The root mean square is always that of the streams before they are rounded, in f32.
//! spec = "mhc-mix"
//!
//! [[candidate]]
//! name = "fp32"
//! says = "everything in f32 without tensor cores, the inner index cut into 8 runs"
//! round = { weight = "f32", streams = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! launch = [
//!   { function = "mhc_products", threads = 128, grid = [["rows", 4], ["splits", 1]] },
//!   { function = "mhc_reduce", threads = 128, grid = [["rows", 4]] },
//! ]
//!
//! [[candidate]]
//! name = "fp32-split-k"
//! says = "f32 without tensor cores, the inner index cut into 16 runs"
//! round = { weight = "f32", streams = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 16 }
//! [candidate.cuda]
//! launch = [
//!   { function = "mhc_products", threads = 128, grid = [["rows", 4], ["splits", 1]] },
//!   { function = "mhc_reduce", threads = 128, grid = [["rows", 4]] },
//! ]
//!
//! [[candidate]]
//! name = "tf32"
//! says = "operands in TF32 on tensor cores, sums and output in f32"
//! round = { weight = "tf32", streams = "tf32", output = "f32" }
//! accumulate = { in = "f32", splits = 16 }
//! [candidate.cuda]
//! unit = "tf32"
//! launch = [
//!   { function = "mhc_products_tf32", threads = 128, grid = [["rows", 16], ["splits", 1]] },
//!   { function = "mhc_reduce", threads = 128, grid = [["rows", 4]] },
//! ]
//!
//! [[candidate]]
//! name = "bf16-weights"
//! says = "`fn` stored in bf16, streams, sums and output in f32, without tensor cores"
//! round = { weight = "bf16", streams = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! define = ["ROUND_WEIGHT=BF16"]
//! launch = [
//!   { function = "mhc_products", threads = 128, grid = [["rows", 4], ["splits", 1]] },
//!   { function = "mhc_reduce", threads = 128, grid = [["rows", 4]] },
//! ]
//!
//! [[candidate]]
//! name = "bf16"
//! says = "`fn`, streams and output in bf16 on tensor cores, sums in f32"
//! round = { weight = "bf16", streams = "bf16", output = "bf16" }
//! accumulate = { in = "f32", splits = 16 }
//! [candidate.cuda]
//! unit = "bf16"
//! define = ["ROUND_OUTPUT=BF16"]
//! launch = [
//!   { function = "mhc_products_bf16", threads = 128, grid = [["rows", 16], ["splits", 1]] },
//!   { function = "mhc_reduce", threads = 128, grid = [["rows", 4]] },
//! ]
//!
//! [[candidate]]
//! name = "bf16-f32-out"
//! says = "`fn` and streams in bf16 on tensor cores, sums and output in f32"
//! round = { weight = "bf16", streams = "bf16", output = "f32" }
//! accumulate = { in = "f32", splits = 16 }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "mhc_products_bf16", threads = 128, grid = [["rows", 16], ["splits", 1]] },
//!   { function = "mhc_reduce", threads = 128, grid = [["rows", 4]] },
//! ]
//!
//! # Known-bad twin, in f32.
//!
//! [[candidate]]
//! name = "one-stream-copied"
//! says = "the first stream stands in for all four in the product"
//! round = { weight = "f32", streams = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 8 }
//! fault = "one-stream-copied"
//! [candidate.cuda]
//! define = ["FAULT_ONE_STREAM=1"]
//! launch = [
//!   { function = "mhc_products", threads = 128, grid = [["rows", 4], ["splits", 1]] },
//!   { function = "mhc_reduce", threads = 128, grid = [["rows", 4]] },
//! ]

#include "common.cuh"

#ifndef ROUND_WEIGHT
#define ROUND_WEIGHT F32
#endif
#ifndef ROUND_OUTPUT
#define ROUND_OUTPUT F32
#endif
#ifndef FAULT_ONE_STREAM
#define FAULT_ONE_STREAM 0
#endif

// Numbers that are mixed out of a token.
constexpr int MIXES = 24;
// Places that a token has in the partial sums: the mixes, the sum of squares, and padding.
constexpr int PLACES = 32;
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;

// Where the partial sums of a token lie, [splits, rows, PLACES] in all.
__device__ __forceinline__ float* partial(u8* scratch, int split, int rows, int row) {
    return reinterpret_cast<float*>(scratch) + ((size_t)split * rows + row) * PLACES;
}

// Sums over a warp of 32 values a lane: lane i has the sum of values[i] in values[0] afterwards. In
// each step a lane hands the half of its values that the other half of the lanes will own to its
// partner there.
template <int HALF>
__device__ __forceinline__ void scatter_sums(float (&values)[PLACES]) {
    const bool upper = threadIdx.x & HALF;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const float own = upper ? values[i + HALF] : values[i];
        const float other = upper ? values[i] : values[i + HALF];
        values[i] = own + __shfl_xor_sync(FULL_WARP, other, HALF);
    }
    if constexpr (HALF > 1) {
        scatter_sums<HALF / 2>(values);
    }
}

// ---- f32 without tensor cores: four tokens and one run of the inner index a block ----

constexpr int TOKENS = 4;

extern "C" __global__ void __launch_bounds__(THREADS) mhc_products(
    const float* weight, const float* streams, float* products, float* inverse_rms, u8* scratch, int rows, int splits,
    int inner, float eps) {
    __shared__ float shared[WARPS][TOKENS][PLACES];
    const int first = blockIdx.x * TOKENS, split = blockIdx.y;
    const int begin = (int)((long long)split * inner / splits), end = (int)((long long)(split + 1) * inner / splits);
    float sums[TOKENS][MIXES] = {}, squares[TOKENS] = {};
    for (int k = begin + threadIdx.x; k < end; k += THREADS) {
        float x[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; token++) {
            const bool there = first + token < rows;
            const float* row = streams + (size_t)(first + token) * inner;
            x[token] = there ? row[k] : 0.0f;
            squares[token] = fmaf(x[token], x[token], squares[token]);
            if (FAULT_ONE_STREAM) {
                x[token] = there ? row[k % max(inner / 4, 1)] : 0.0f;
            }
        }
#pragma unroll
        for (int mix = 0; mix < MIXES; mix++) {
            const float w = round_to<ROUND_WEIGHT>(weight[(size_t)mix * inner + k]);
#pragma unroll
            for (int token = 0; token < TOKENS; token++) {
                sums[token][mix] = fmaf(w, x[token], sums[token][mix]);
            }
        }
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int token = 0; token < TOKENS; token++) {
        float values[PLACES] = {};
#pragma unroll
        for (int mix = 0; mix < MIXES; mix++) {
            values[mix] = sums[token][mix];
        }
        values[MIXES] = squares[token];
        scatter_sums<PLACES / 2>(values);
        shared[warp][token][lane] = values[0];
    }
    __syncthreads();
    // Each warp adds up one token.
    if (first + warp < rows) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            sum += shared[w][warp][lane];
        }
        partial(scratch, split, rows, first + warp)[lane] = sum;
    }
}

static_assert(TOKENS == WARPS, "each warp adds up one token");

// ---- tensor cores: 16 tokens and one run of the inner index a block, whose warps take turns ----

constexpr int TILE = 16;
// What a warp takes at a time along the inner index.
constexpr int UNIT = 32;

template <int RULE>
__device__ __forceinline__ void products_by_mma(
    const float* weight, const float* streams, u8* scratch, int rows, int splits, int inner,
    float (&shared)[WARPS][TILE][PLACES]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = lane / 4, member = lane % 4;
    const int first = blockIdx.x * TILE, split = blockIdx.y;
    const int upper = first + group, lower = first + group + 8;
    const int units = ceil_div(inner, UNIT);
    const int begin = split * units / splits, end = (split + 1) * units / splits;
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
    float d[MIXES / 8][4] = {}, squares[2] = {};
    for (int unit = begin + warp; unit < end; unit += WARPS) {
#pragma unroll
        for (int part = 0; part < UNIT / 16; part++) {
            const int at = unit * UNIT + part * 16 + member * 4;
            const float4 x = upper < rows ? load4(streams + (size_t)upper * inner, at, inner) : zero;
            const float4 y = lower < rows ? load4(streams + (size_t)lower * inner, at, inner) : zero;
            squares[0] = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, squares[0]))));
            squares[1] = fmaf(y.x, y.x, fmaf(y.y, y.y, fmaf(y.z, y.z, fmaf(y.w, y.w, squares[1]))));
#pragma unroll
            for (int n = 0; n < MIXES / 8; n++) {
                mma_16<RULE>(d[n], x, y, load4(weight + (size_t)(8 * n + group) * inner, at, inner));
            }
        }
    }
#pragma unroll
    for (int n = 0; n < MIXES / 8; n++) {
        shared[warp][group][8 * n + 2 * member] = d[n][0];
        shared[warp][group][8 * n + 2 * member + 1] = d[n][1];
        shared[warp][group + 8][8 * n + 2 * member] = d[n][2];
        shared[warp][group + 8][8 * n + 2 * member + 1] = d[n][3];
    }
    // The four lanes of a group share its rows.
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
        squares[0] += __shfl_xor_sync(FULL_WARP, squares[0], apart);
        squares[1] += __shfl_xor_sync(FULL_WARP, squares[1], apart);
    }
    if (member == 0) {
        shared[warp][group][MIXES] = squares[0];
        shared[warp][group + 8][MIXES] = squares[1];
    }
    __syncthreads();
    for (int row = warp; row < TILE; row += WARPS) {
        if (first + row < rows && lane <= MIXES) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                sum += shared[w][row][lane];
            }
            partial(scratch, split, rows, first + row)[lane] = sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) mhc_products_bf16(
    const float* weight, const float* streams, float* products, float* inverse_rms, u8* scratch, int rows, int splits,
    int inner, float eps) {
    __shared__ float shared[WARPS][TILE][PLACES];
    products_by_mma<BF16>(weight, streams, scratch, rows, splits, inner, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS) mhc_products_tf32(
    const float* weight, const float* streams, float* products, float* inverse_rms, u8* scratch, int rows, int splits,
    int inner, float eps) {
    __shared__ float shared[WARPS][TILE][PLACES];
    products_by_mma<TF32>(weight, streams, scratch, rows, splits, inner, shared);
}

// ---- the runs' sums, added in ascending order, and the root mean square: a warp a token ----

extern "C" __global__ void __launch_bounds__(THREADS) mhc_reduce(
    const float* weight, const float* streams, float* products, float* inverse_rms, u8* scratch, int rows, int splits,
    int inner, float eps) {
    const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows || lane > MIXES) {
        return;
    }
    float sum = 0.0f;
    for (int split = 0; split < splits; split++) {
        sum += partial(scratch, split, rows, row)[lane];
    }
    if (lane < MIXES) {
        products[(size_t)row * MIXES + lane] = round_to<ROUND_OUTPUT>(sum);
    } else {
        inverse_rms[row] = 1.0f / sqrtf(sum / (float)inner + eps);
    }
}
