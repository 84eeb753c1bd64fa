//! # Sparse attention of one query while decoding, with a sink: the part between the rotations.
//! #
//! # The keys of a row are cut into splits; each split goes through its keys in tiles of 32 and keeps the
//! # largest score so far, as such kernels do, in base 2. The splits are merged by their logarithms in a
//! # launch of its own, also where there is one split. An lse of a row without keys is plus infinity.
//! # The output is that before the rotation back, so that the twin rope-not-back is not here.
//! spec = "decode-attention"
//!
//! [[candidate]]
//! name = "stock"
//! says = "bf16 query to f32, then times scale, everything in f32, output in bf16: the stock Triton kernel"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "stock-splits-16"
//! says = "the stock kernel with the keys in 16 splits"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 16 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "query-rounded"
//! says = "the stock kernel, but the scaled query is rounded back to bf16: that patch of the incident alone"
//! round = { scaled-query = "bf16", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! launch = [
//!   { function = "attend_query_rounded", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! # Latents are exact in bf16, and so are their products in f32. A cache in f32 is not: there the second
//! # launch does the same in plain f32 arithmetic, and the first does nothing.
//! [[candidate]]
//! name = "mma"
//! says = "the incident's MMA kernel on bf16 tensor cores: scaled query and probabilities in bf16"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "attend_mma", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 16]] },
//!   { function = "attend_mma_aside", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "mma-splits-2"
//! says = "the incident's MMA kernel on bf16 tensor cores, the keys in 2 splits, merged in f32"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 2 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "attend_mma", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 16]] },
//!   { function = "attend_mma_aside", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "mma-splits-4"
//! says = "the incident's MMA kernel on bf16 tensor cores, the keys in 4 splits, merged in f32"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 4 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "attend_mma", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 16]] },
//!   { function = "attend_mma_aside", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "mma-splits-8"
//! says = "the incident's MMA kernel on bf16 tensor cores, the keys in 8 splits, merged in f32"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "attend_mma", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 16]] },
//!   { function = "attend_mma_aside", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "mma-splits-16"
//! says = "the incident's MMA kernel on bf16 tensor cores, the keys in 16 splits, merged in f32"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 16 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "attend_mma", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 16]] },
//!   { function = "attend_mma_aside", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "mma-rounded-denominator"
//! says = "the MMA kernel with 16 splits that sums the rounded probabilities"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 16 }
//! choose = { exponential = "base-2", denominator = "rounded" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "attend_mma_rounded_denominator", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 16]] },
//!   { function = "attend_mma_rounded_denominator_aside", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "bf16-partials"
//! says = "the MMA kernel with 16 splits whose outputs wait for the merge in bf16"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "bf16", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 16 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "attend_mma_bf16_partials", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 16]] },
//!   { function = "attend_mma_bf16_partials_aside", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "mma-simt"
//! says = "the rounding points of the MMA kernel in plain f32 arithmetic, without tensor cores"
//! round = { scaled-query = "bf16", score = "f32", probability = "bf16", partial = "f32", lse = "f32", output = "bf16" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! launch = [
//!   { function = "attend_rounded", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_bf16", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! # Known-bad twins, in f32.
//!
//! [[candidate]]
//! name = "sink-in-every-split"
//! says = "each of 4 splits of the keys has the sink in its denominator"
//! fault = "sink-in-every-split"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 4 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! define = ["FAULT_SINK_IN_EVERY_SPLIT=1"]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_f32", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "sink-forgotten"
//! says = "the sink is not in the denominator"
//! fault = "sink-forgotten"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "f32" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! define = ["FAULT_SINK_FORGOTTEN=1"]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_f32", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "scale-twice"
//! says = "products are scaled twice"
//! fault = "scale-twice"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "f32" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! define = ["FAULT_SCALE_TWICE=1"]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_f32", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "plain-mean-merge"
//! says = "4 splits of the keys are averaged without their weights"
//! fault = "plain-mean-merge"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 4 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! define = ["FAULT_PLAIN_MEAN_MERGE=1"]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_f32", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "page-off"
//! says = "every key is read one page too far"
//! fault = "page-off"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "f32" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! define = ["FAULT_PAGE_OFF=1"]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_f32", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "lse-base-mixed"
//! says = "4 splits in base 2 are merged in base e"
//! fault = "lse-base-mixed"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 4 }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! define = ["FAULT_LSE_BASE_MIXED=1"]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_f32", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "neighbour-scale"
//! says = "each fp8 block is read with the scale of the next one"
//! fault = "neighbour-scale"
//! round = { scaled-query = "f32", score = "f32", probability = "f32", partial = "f32", lse = "f32", output = "f32" }
//! accumulate = { in = "f32" }
//! choose = { exponential = "base-2" }
//! [candidate.cuda]
//! define = ["FAULT_NEIGHBOUR_SCALE=1"]
//! launch = [
//!   { function = "attend_f32", threads = 256, grid = [["rows", 1], ["splits", 1], ["heads", 8]] },
//!   { function = "merge_f32", threads = 128, grid = [["rows", 1], ["heads", 1]] },
//! ]

#include "common.cuh"
#include "formats.cuh"

#ifndef FAULT_SINK_IN_EVERY_SPLIT
#define FAULT_SINK_IN_EVERY_SPLIT 0
#endif
#ifndef FAULT_SINK_FORGOTTEN
#define FAULT_SINK_FORGOTTEN 0
#endif
#ifndef FAULT_SCALE_TWICE
#define FAULT_SCALE_TWICE 0
#endif
#ifndef FAULT_PLAIN_MEAN_MERGE
#define FAULT_PLAIN_MEAN_MERGE 0
#endif
#ifndef FAULT_PAGE_OFF
#define FAULT_PAGE_OFF 0
#endif
#ifndef FAULT_LSE_BASE_MIXED
#define FAULT_LSE_BASE_MIXED 0
#endif
#ifndef FAULT_NEIGHBOUR_SCALE
#define FAULT_NEIGHBOUR_SCALE 0
#endif

// Keys at a time.
#define TILE 32
#define THREADS 256
#define WARPS (THREADS / 32)
// What the kernel on tensor cores can hold of a latent.
#define WIDEST 512

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// How a cache that is not paged would be stored, for faults that lie in the bytes.
#define ASIDE_PAGE 64
#define ASIDE_BLOCK 16

struct Call {
    const float* queries;
    const float* keys;
    const float* values;
    const u8* pages;
    const int* table;
    const int* seen;
    const float* sinks;
    float* lse;
    float* output;
    float* scratch;
    int rows, splits, heads, width, entries, most, plain, rotated, block, page, paged;
    float scale;
};

// ---- splits ----

// The output of a split waits in scratch for the merge, and its logarithm of the sum behind all outputs.
__device__ __forceinline__ float* split_output(const Call& call, int row, int split, int head) {
    return call.scratch + (((size_t)row * call.splits + split) * call.heads + head) * call.width;
}

__device__ __forceinline__ float* split_lse(const Call& call, int row, int split, int head) {
    return split_output(call, call.rows, 0, 0) + ((size_t)row * call.splits + split) * call.heads + head;
}

struct Run {
    int begin, end;
};

// The keys of a split, as places in the row's list. The list ends with the first place that is
// negative. The whole block looks.
__device__ __forceinline__ Run run_of(const Call& call, int row, int split) {
    const int* seen = call.seen + (size_t)row * call.most;
    int count = 0;
    for (int first = 0; first < call.most; first += THREADS) {
        const int i = first + threadIdx.x;
        count += __syncthreads_count(i < call.most && seen[i] >= 0);
    }
    return {(int)((long long)split * count / call.splits), (int)((long long)(split + 1) * count / call.splits)};
}

__device__ __forceinline__ float factor_of(const Call& call) {
    return FAULT_SCALE_TWICE ? call.scale * call.scale : call.scale;
}

// ---- the cache ----

__device__ __forceinline__ int blocks_of(const Call& call) {
    return call.plain > 0 ? ceil_div(call.plain, call.block) : 0;
}

// Where an entry begins: its data, and its scales if it is paged. In bytes of the pages, or in
// values of keys and values.
struct Place {
    long long data, scales;
};

__device__ __forceinline__ Place place_of(const Call& call, int entry) {
    if (!call.paged) {
        const int index = FAULT_PAGE_OFF ? (int)(((long long)entry + ASIDE_PAGE) % call.entries) : entry;
        return {(long long)index * call.width, 0};
    }
    // A page holds the data of all its entries and then their scales, padded to multiples of 8.
    const int data = call.plain + 2 * call.rotated, scales = ceil_div(blocks_of(call), 8) * 8;
    int number = entry / call.page;
    const int slot = entry % call.page;
    if (FAULT_PAGE_OFF) {
        number = (number + 1) % ceil_div(call.entries, call.page);
    }
    const long long first = (long long)call.table[number] * call.page * (data + scales);
    return {first + (long long)slot * data, first + (long long)call.page * data + (long long)slot * scales};
}

__device__ __forceinline__ int scale_at(const Call& call, int d) {
    const int block = d / call.block;
    return FAULT_NEIGHBOUR_SCALE ? (block + 1) % blocks_of(call) : block;
}

// The scale that a block of values would be cached with.
__device__ float aside_scale(const float* row, int width, int block) {
    float largest = 1e-4f;
    for (int d = block * ASIDE_BLOCK; d < min(width, (block + 1) * ASIDE_BLOCK); d++) {
        largest = fmaxf(largest, fabsf(row[d]));
    }
    return ue8m0_decode(ue8m0_encode_up(__fdiv_rn(largest, E4M3_LARGEST)));
}

// A value of an entry; `rows` are the keys or the values, of which there are two kinds if not paged.
__device__ __forceinline__ float cached(const Call& call, const float* rows, const Place& place, int d) {
    if (!call.paged) {
        const float x = rows[place.data + d];
        if (FAULT_NEIGHBOUR_SCALE) {
            const int block = d / ASIDE_BLOCK, next = (block + 1) % ceil_div(call.width, ASIDE_BLOCK);
            const float scale = aside_scale(rows + place.data, call.width, block);
            return e4m3_decode(e4m3_encode(__fdiv_rn(x, scale))) * aside_scale(rows + place.data, call.width, next);
        }
        return x;
    }
    if (d < call.plain) {
        return e4m3_decode(call.pages[place.data + d]) * ue8m0_decode(call.pages[place.scales + scale_at(call, d)]);
    }
    const u8* pair = call.pages + place.data + call.plain + 2 * (d - call.plain);
    return from_bf16((u16)(pair[0] | pair[1] << 8));
}

// ---- the softmax ----

// The largest score so far of a head, in base 2, and the sum of the powers relative to it.
struct Softmax {
    float most, sum;
};

struct Step {
    float probability, factor;
};

// A warp takes the scores of a tile in, one a lane. What was summed before is to be multiplied with
// the factor.
template <int PROBABILITY, bool ROUNDED_DENOMINATOR>
__device__ __forceinline__ Step take(Softmax& softmax, float score) {
    const float most = fmaxf(softmax.most, warp_max(score));
    const float factor = exp2f(softmax.most - most), exact = exp2f(score - most);
    const float probability = round_to<PROBABILITY>(exact);
    softmax.sum = softmax.sum * factor + warp_sum(ROUNDED_DENOMINATOR ? probability : exact);
    softmax.most = most;
    return {probability, factor};
}

__device__ __forceinline__ float lse_of(const Softmax& softmax) {
    return softmax.sum == 0.0f ? -infinity() : softmax.most + log2f(softmax.sum);
}

template <int PARTIAL>
__device__ __forceinline__ void write_partial(float* output, int d, float out, float sum) {
    output[d] = sum == 0.0f ? 0.0f : round_to<PARTIAL>(__fdiv_rn(out, sum));
}

// In plain arithmetic. A warp has a head and a lane a key of the tile, and adds up their product
// from the first dimension to the last; then a thread has two columns of the output of all heads.
template <int QUERY, int PROBABILITY, bool ROUNDED_DENOMINATOR, int PARTIAL>
__device__ __forceinline__ void attend_in_f32(const Call& call) {
    constexpr int HEADS = WARPS, CHUNK = 64, PITCH = CHUNK + 1, COLUMNS = 2;
    __shared__ __align__(16) float query_values[HEADS * CHUNK];
    __shared__ float key_values[TILE * PITCH];
    __shared__ __align__(16) float probabilities[TILE * HEADS];
    __shared__ float factors[HEADS], sums[HEADS];
    __shared__ Place places[TILE];
    const int row = blockIdx.x, split = blockIdx.y, first_head = blockIdx.z * HEADS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = first_head + warp;
    const Run run = run_of(call, row, split);
    const int* seen = call.seen + (size_t)row * call.most;
    const float* queries = call.queries + ((size_t)row * call.heads + first_head) * call.width;
    const float scale = factor_of(call);
    const int heads_here = min(HEADS, call.heads - first_head);
    // Rows wider than the columns of all threads are gone through again for each part of the output.
    for (int first_column = 0; first_column < call.width; first_column += COLUMNS * THREADS) {
        Softmax softmax = {-infinity(), 0.0f};
        float out[HEADS][COLUMNS] = {};
        for (int first = run.begin; first < run.end; first += TILE) {
            const int count = min(TILE, run.end - first);
            __syncthreads();
            if (threadIdx.x < count) {
                places[threadIdx.x] = place_of(call, seen[first + threadIdx.x]);
            }
            float dot = 0.0f;
            for (int first_d = 0; first_d < call.width; first_d += CHUNK) {
                __syncthreads();
                const int d = first_d + threadIdx.x % CHUNK;
                for (int h = threadIdx.x / CHUNK; h < HEADS; h += THREADS / CHUNK) {
                    const bool there = h < heads_here && d < call.width;
                    const float query = there ? queries[(size_t)h * call.width + d] * scale : 0.0f;
                    query_values[h * CHUNK + d - first_d] = round_to<QUERY>(query);
                }
                for (int j = threadIdx.x / CHUNK; j < TILE; j += THREADS / CHUNK) {
                    const bool there = j < count && d < call.width;
                    key_values[j * PITCH + d - first_d] = there ? cached(call, call.keys, places[j], d) : 0.0f;
                }
                __syncthreads();
#pragma unroll
                for (int k = 0; k < CHUNK; k += 4) {
                    const float4 query = *(const float4*)(query_values + warp * CHUNK + k);
                    const float* key = key_values + lane * PITCH + k;
                    dot = fmaf(query.x, key[0], dot);
                    dot = fmaf(query.y, key[1], dot);
                    dot = fmaf(query.z, key[2], dot);
                    dot = fmaf(query.w, key[3], dot);
                }
            }
            const float score = lane < count ? dot * LOG2_E : -infinity();
            const Step step = take<PROBABILITY, ROUNDED_DENOMINATOR>(softmax, score);
            probabilities[lane * HEADS + warp] = step.probability;
            if (lane == 0) {
                factors[warp] = step.factor;
            }
            __syncthreads();
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    out[h][c] *= factors[h];
                }
            }
#pragma unroll 4
            for (int j = 0; j < count; j++) {
                float value[COLUMNS];
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    const int d = first_column + c * THREADS + threadIdx.x;
                    value[c] = d < call.width ? cached(call, call.values, places[j], d) : 0.0f;
                }
#pragma unroll
                for (int h = 0; h < HEADS; h += 4) {
                    const float4 weight = *(const float4*)(probabilities + j * HEADS + h);
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++) {
                        out[h][c] = fmaf(weight.x, value[c], out[h][c]);
                        out[h + 1][c] = fmaf(weight.y, value[c], out[h + 1][c]);
                        out[h + 2][c] = fmaf(weight.z, value[c], out[h + 2][c]);
                        out[h + 3][c] = fmaf(weight.w, value[c], out[h + 3][c]);
                    }
                }
            }
        }
        float last = 1.0f;
        if (FAULT_SINK_IN_EVERY_SPLIT && head < call.heads) {
            const float sink = call.sinks[head] * LOG2_E, most = fmaxf(softmax.most, sink);
            last = exp2f(softmax.most - most);
            softmax = {most, softmax.sum * last + exp2f(sink - most)};
        }
        __syncthreads();
        if (lane == 0) {
            factors[warp] = last;
            sums[warp] = softmax.sum;
            if (head < call.heads && first_column == 0) {
                *split_lse(call, row, split, head) = lse_of(softmax);
            }
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const int d = first_column + c * THREADS + threadIdx.x;
                if (h < heads_here && d < call.width) {
                    float* output = split_output(call, row, split, first_head + h);
                    write_partial<PARTIAL>(output, d, out[h][c] * factors[h], sums[h]);
                }
            }
        }
    }
}

// ---- on tensor cores ----

// Whether the kernel on tensor cores takes the call; if not, the one beside it does.
__device__ __forceinline__ bool for_tensor_cores(const Call& call) {
    return call.paged && call.width <= WIDEST;
}

// Four matrices of 8 by 8 in 16 bits, each turned: lane l gives the address of row l % 8 of matrix
// l / 8, and of matrix i it gets the rows 2 (l % 4) and the next in column l / 4, as a fragment b
// wants them of a matrix that lies in rows.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
    const u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// A latent into a row of shared memory, in bf16, in which it is exact. A warp.
__device__ __forceinline__ void load_latent(const Call& call, const Place& place, u16* row) {
    const int lane = threadIdx.x % 32;
    // Then all data begin at multiples of 4 bytes, and four codes have one scale.
    if (call.plain % 4 == 0 && call.rotated % 2 == 0 && (call.block % 4 == 0 || call.plain == 0)) {
        const u32* words = (const u32*)(call.pages + place.data);
        for (int w = lane; w < call.plain / 4; w += 32) {
            const u32 codes = words[w];
            const float scale = ue8m0_decode(call.pages[place.scales + scale_at(call, 4 * w)]);
            u32* pair = (u32*)(row + 4 * w);
            pair[0] = pack_bf16(e4m3_decode(codes & 0xffu) * scale, e4m3_decode(codes >> 8 & 0xffu) * scale);
            pair[1] = pack_bf16(e4m3_decode(codes >> 16 & 0xffu) * scale, e4m3_decode(codes >> 24) * scale);
        }
        for (int w = lane; w < call.rotated / 2; w += 32) {
            *(u32*)(row + call.plain + 2 * w) = words[call.plain / 4 + w];
        }
        return;
    }
    for (int d = lane; d < call.width; d += 32) {
        row[d] = bf16_bits(cached(call, call.keys, place, d));
    }
}

// 16 heads of a split. A tile of latents is in shared memory as keys and as values. For the scores,
// a warp has half of the keys and a quarter of the dimensions, and the quarters are added in f32;
// for the output, a warp has 64 columns.
template <bool ROUNDED_DENOMINATOR, int PARTIAL>
__device__ __forceinline__ void attend_on_tensor_cores(const Call& call) {
    // Rows begin 4 banks apart, so that a fragment comes from 32 of them.
    constexpr int HEADS = 16, PITCH = WIDEST + 8, QUARTERS = 4, QUARTER = WIDEST / QUARTERS, WEIGHTS = TILE + 8;
    __shared__ __align__(16) u16 latents[TILE * PITCH];
    __shared__ __align__(16) u16 probabilities[HEADS * WEIGHTS];
    __shared__ float scores[QUARTERS][HEADS][TILE + 1];
    __shared__ float factors[HEADS], sums[HEADS];
    __shared__ Place places[TILE];
    if (!for_tensor_cores(call)) {
        return;
    }
    const int row = blockIdx.x, split = blockIdx.y, first_head = blockIdx.z * HEADS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    const int quarter = warp / 2, half = warp % 2;
    const Run run = run_of(call, row, split);
    const int* seen = call.seen + (size_t)row * call.most;
    // Columns beyond the width stay zero, and what is left in the rows of a short tile is finite, so
    // that a probability of zero makes zero of it.
    for (int i = threadIdx.x; i < TILE * PITCH / 2; i += THREADS) {
        ((u32*)latents)[i] = 0u;
    }
    u32 query[QUARTER / 16][4];
    const float* queries = call.queries + ((size_t)row * call.heads + first_head) * call.width;
    const float scale = factor_of(call);
    auto scaled = [&](int h, int d) {
        return first_head + h < call.heads && d < call.width ? queries[(size_t)h * call.width + d] * scale : 0.0f;
    };
#pragma unroll
    for (int s = 0; s < QUARTER / 16; s++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int h = group + i % 2 * 8, d = quarter * QUARTER + s * 16 + i / 2 * 8 + member * 2;
            query[s][i] = pack_bf16(scaled(h, d), scaled(h, d + 1));
        }
    }
    Softmax softmax[2] = {{-infinity(), 0.0f}, {-infinity(), 0.0f}};
    float out[8][4] = {};
    for (int first = run.begin; first < run.end; first += TILE) {
        const int count = min(TILE, run.end - first);
        if (threadIdx.x < count) {
            places[threadIdx.x] = place_of(call, seen[first + threadIdx.x]);
        }
        __syncthreads();
        for (int j = warp; j < count; j += WARPS) {
            load_latent(call, places[j], latents + j * PITCH);
        }
        __syncthreads();
        float dots[2][4] = {};
#pragma unroll
        for (int s = 0; s < QUARTER / 16; s++) {
            const int d = quarter * QUARTER + s * 16;
            if (d < call.width) {
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const u16* key = latents + (half * 16 + n * 8 + group) * PITCH + d + member * 2;
                    const u32 b[2] = {*(const u32*)key, *(const u32*)(key + 8)};
                    mma_bf16(dots[n], query[s], b);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                scores[quarter][group + i / 2 * 8][half * 16 + n * 8 + member * 2 + i % 2] = dots[n][i];
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int h = warp * 2 + i;
            float dot = scores[0][h][lane];
            for (int q = 1; q < QUARTERS; q++) {
                dot += scores[q][h][lane];
            }
            const Step step = take<BF16, ROUNDED_DENOMINATOR>(softmax[i], lane < count ? dot * LOG2_E : -infinity());
            probabilities[h * WEIGHTS + lane] = bf16_bits(step.probability);
            if (lane == 0) {
                factors[h] = step.factor;
            }
        }
        __syncthreads();
        if (warp * 64 < call.width) {
            const float low = factors[group], high = factors[group + 8];
#pragma unroll
            for (int n = 0; n < 8; n++) {
                out[n][0] *= low;
                out[n][1] *= low;
                out[n][2] *= high;
                out[n][3] *= high;
            }
#pragma unroll
            for (int k = 0; k < TILE; k += 16) {
                const u16* weight = probabilities + group * WEIGHTS + k + member * 2;
                const u32 a[4] = {*(const u32*)weight, *(const u32*)(weight + 8 * WEIGHTS), *(const u32*)(weight + 8),
                                  *(const u32*)(weight + 8 * WEIGHTS + 8)};
#pragma unroll
                for (int n = 0; n < 8; n += 2) {
                    // Matrices: keys k and k + 8 of the first 8 columns, then of the next 8.
                    u32 r[4];
                    const int key = k + lane / 8 % 2 * 8 + lane % 8, column = warp * 64 + n * 8 + lane / 16 * 8;
                    ldmatrix_x4_trans(r, latents + key * PITCH + column);
                    const u32 first_b[2] = {r[0], r[1]}, next_b[2] = {r[2], r[3]};
                    mma_bf16(out[n], a, first_b);
                    mma_bf16(out[n + 1], a, next_b);
                }
            }
        }
    }
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int head = first_head + warp * 2 + i;
            sums[warp * 2 + i] = softmax[i].sum;
            if (head < call.heads) {
                *split_lse(call, row, split, head) = lse_of(softmax[i]);
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int h = group + i / 2 * 8, d = warp * 64 + n * 8 + member * 2 + i % 2;
            if (first_head + h < call.heads && d < call.width) {
                write_partial<PARTIAL>(split_output(call, row, split, first_head + h), d, out[n][i], sums[h]);
            }
        }
    }
}

// What the kernel on tensor cores leaves, with the same rounding points.
template <bool ROUNDED_DENOMINATOR, int PARTIAL>
__device__ __forceinline__ void attend_aside(const Call& call) {
    if (!for_tensor_cores(call)) {
        attend_in_f32<BF16, BF16, ROUNDED_DENOMINATOR, PARTIAL>(call);
    }
}

// ---- the merge ----

template <int OUTPUT>
__device__ __forceinline__ void merge(const Call& call) {
    const int row = blockIdx.x, head = blockIdx.y;
    float* output = call.output + ((size_t)row * call.heads + head) * call.width;
    float* lse = call.lse + (size_t)row * call.heads + head;
    float most = -infinity();
    for (int split = 0; split < call.splits; split++) {
        most = fmaxf(most, *split_lse(call, row, split, head));
    }
    if (most == -infinity()) {
        for (int d = threadIdx.x; d < call.width; d += blockDim.x) {
            output[d] = 0.0f;
        }
        if (threadIdx.x == 0) {
            *lse = infinity();
        }
        return;
    }
    auto weight = [&](int split) {
        const float below = *split_lse(call, row, split, head) - most;
        return FAULT_PLAIN_MEAN_MERGE ? 1.0f : FAULT_LSE_BASE_MIXED ? expf(below) : exp2f(below);
    };
    float sum = 0.0f;
    for (int split = 0; split < call.splits; split++) {
        sum += weight(split);
    }
    const float whole = most + log2f(sum);
    const bool without = FAULT_SINK_FORGOTTEN || FAULT_SINK_IN_EVERY_SPLIT;
    const float divisor = without ? 1.0f : 1.0f + exp2f(call.sinks[head] * LOG2_E - whole);
    for (int d = threadIdx.x; d < call.width; d += blockDim.x) {
        float out = 0.0f;
        for (int split = 0; split < call.splits; split++) {
            out = fmaf(weight(split), split_output(call, row, split, head)[d], out);
        }
        output[d] = round_to<OUTPUT>(__fdiv_rn(__fdiv_rn(out, sum), divisor));
    }
    if (threadIdx.x == 0) {
        *lse = whole * LN_2;
    }
}

// ---- the kernels ----

// Two blocks of 256 threads on a multiprocessor, and four of the merge.
#define KERNEL(name, threads, ...)                                                                                   \
    extern "C" __global__ void __launch_bounds__(threads, 512 / threads)                                             \
        name(const float* queries, const float* keys, const float* values, const u8* pages, const int* table,        \
             const int* seen, const float* sinks, float* lse, float* output, u8* scratch, int rows, int splits,      \
             int heads, int width, int entries, int most, int plain, int rotated, int block, int page, int paged,    \
             float scale) {                                                                                          \
        const Call call = {queries, keys,   values, pages,  table,   seen,  sinks, lse,     output, (float*)scratch, \
                           rows,    splits, heads,  width,  entries, most,  plain, rotated, block,  page,            \
                           paged,   scale};                                                                          \
        __VA_ARGS__(call);                                                                                           \
    }

KERNEL(attend_f32, THREADS, attend_in_f32<F32, F32, false, F32>)
KERNEL(attend_query_rounded, THREADS, attend_in_f32<BF16, F32, false, F32>)
KERNEL(attend_rounded, THREADS, attend_in_f32<BF16, BF16, false, F32>)

KERNEL(attend_mma, THREADS, attend_on_tensor_cores<false, F32>)
KERNEL(attend_mma_aside, THREADS, attend_aside<false, F32>)
KERNEL(attend_mma_rounded_denominator, THREADS, attend_on_tensor_cores<true, F32>)
KERNEL(attend_mma_rounded_denominator_aside, THREADS, attend_aside<true, F32>)
KERNEL(attend_mma_bf16_partials, THREADS, attend_on_tensor_cores<false, BF16>)
KERNEL(attend_mma_bf16_partials_aside, THREADS, attend_aside<false, BF16>)

KERNEL(merge_bf16, 128, merge<BF16>)
KERNEL(merge_f32, 128, merge<F32>)
