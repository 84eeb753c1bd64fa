//! # The sparse indexer: scores of all keys for each query, and which of them are kept.
//! #
//! # As on the CPU, fp8 codes are multiplied as they are: the scale of a query goes into the weight of
//! # its head, that of a key behind the sum over heads. Where the keys are not paged, those that a
//! # candidate wants in fp8 are quantised on the way, one scale a key, which is fp8-1x128 for keys of
//! # up to 128 values. The twins key-not-rotated and last-chunk-only are not here: what is wrong
//! # with them are inputs that a kernel is given.
//! spec = "indexer"
//!
//! # On tensor cores of fp8. How many bits of a sum of products they keep depends on the chip, and it
//! # can be as few as 14; tf32 at the dot is a bound for that, and no rounding that happens.
//! [[candidate]]
//! name = "fp8"
//! says = "fp8 queries and keys multiplied on fp8 tensor cores, which keep fewer bits of a sum than f32 has; everything else in f32"
//! round = { query = "fp8-1x128", key = "fp8-1x128", weight = "f32", dot = "tf32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! unit = "fp8"
//! least-arch = 89
//! launch = [
//!   { function = "indexer_prepare_codes", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_fp8", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "fp8-simt"
//! says = "fp8 queries and keys with one f32 scale over 128 values, everything else in plain f32 arithmetic: the paged Triton kernel of the incident"
//! round = { query = "fp8-1x128", key = "fp8-1x128", weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! launch = [
//!   { function = "indexer_prepare_codes_in_f32", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_fp8_simt", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! # The codes are exact in bfloat16, and so are their products in f32.
//! [[candidate]]
//! name = "fp8-bf16-dot"
//! says = "fp8 operands, read into bf16 and multiplied on its tensor cores, the product of each head in bf16, the rest in f32: FP8_PAGED_MQA_LOGITS_TORCH upstream since July 2026"
//! round = { query = "fp8-1x128", key = "fp8-1x128", weight = "f32", dot = "bf16", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "indexer_prepare_codes_in_bf16", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_fp8_bf16_dot", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! # In plain arithmetic, because the model's own operands are f32 where nothing is quantised.
//! [[candidate]]
//! name = "bf16-scores"
//! says = "the model's own operands, every tensor after them in bf16, scores too: FP8_PAGED_MQA_LOGITS_TORCH in bf16, as in the incident"
//! round = { weight = "bf16", dot = "bf16", weighted = "bf16", sum = "bf16", score = "bf16" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! launch = [
//!   { function = "indexer_prepare_own_bf16_weight", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_own_bf16", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "bf16-operands"
//! says = "queries and keys in bf16 on its tensor cores instead of the fp8 that the reference of DeepSeek-V4 has: another route, not a worse one"
//! round = { query = "bf16", key = "bf16", weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! unit = "bf16"
//! launch = [
//!   { function = "indexer_prepare_bf16", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_bf16_operands", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "fp32"
//! says = "queries and keys not quantised, everything in f32: another route than the fp8 of the reference, not a worse one"
//! round = { query = "f32", key = "f32", weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! launch = [
//!   { function = "indexer_prepare_f32", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_f32", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! # Known-bad twins: the model's own operands in f32.
//!
//! [[candidate]]
//! name = "page-off"
//! says = "every key is read one page of 64 keys too far"
//! fault = "page-off"
//! round = { weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! define = ["FAULT_PAGE_OFF=1"]
//! launch = [
//!   { function = "indexer_prepare_own", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_own", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "layout-interleaved"
//! says = "pages are read as if each key had its scale right behind it"
//! fault = "layout-interleaved"
//! round = { weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! define = ["FAULT_LAYOUT_INTERLEAVED=1"]
//! launch = [
//!   { function = "indexer_prepare_own", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_own", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "sign-wrong"
//! says = "scores have the wrong sign"
//! fault = "sign-wrong"
//! round = { weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! define = ["FAULT_SIGN_WRONG=1"]
//! launch = [
//!   { function = "indexer_prepare_own", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_own", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "key-scale-forgotten"
//! says = "keys are not multiplied with their scales"
//! fault = "key-scale-forgotten"
//! round = { weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! define = ["FAULT_KEY_SCALE_FORGOTTEN=1"]
//! launch = [
//!   { function = "indexer_prepare_own", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_own", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]
//!
//! [[candidate]]
//! name = "relu-forgotten"
//! says = "negative products count"
//! fault = "relu-forgotten"
//! round = { weight = "f32", dot = "f32", weighted = "f32", sum = "f32", score = "f32" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! define = ["FAULT_RELU_FORGOTTEN=1"]
//! launch = [
//!   { function = "indexer_prepare_own", threads = 128, grid = [["rows", 1], ["heads", 4]] },
//!   { function = "indexer_scores_own", threads = 128, grid = [["rows", 1], ["count", 64]] },
//!   { function = "indexer_keep", threads = 512, grid = [["rows", 1]] },
//! ]

#include "common.cuh"
#include "formats.cuh"

#ifndef FAULT_PAGE_OFF
#define FAULT_PAGE_OFF 0
#endif
#ifndef FAULT_LAYOUT_INTERLEAVED
#define FAULT_LAYOUT_INTERLEAVED 0
#endif
#ifndef FAULT_SIGN_WRONG
#define FAULT_SIGN_WRONG 0
#endif
#ifndef FAULT_KEY_SCALE_FORGOTTEN
#define FAULT_KEY_SCALE_FORGOTTEN 0
#endif
#ifndef FAULT_RELU_FORGOTTEN
#define FAULT_RELU_FORGOTTEN 0
#endif

// Keys of a block, and heads that it takes at a time.
#define TILE 64
// Words of the inner index that are in shared memory at a time.
#define CHUNK 32
#define THREADS 128
#define WARPS (THREADS / 32)
#define KEEP_THREADS 512
#define KEEP_WARPS (KEEP_THREADS / 32)

// What the operands are held in. OWN is what the model caches: codes in pages, or else f32.
enum Form { CODES, CODES_IN_BF16, CODES_IN_F32, IN_BF16, IN_F32, OWN };

struct Call {
    const float* queries;
    const float* weights;
    const float* keys;
    const u8* pages;
    const int* table;
    const int* visible;
    float* scores;
    int* kept;
    u8* scratch;
    int rows, heads, dim, count, keep, page, paged;
    float factor;
};

// A page holds the values of all its keys and then their scales.
__device__ __forceinline__ long long page_bytes(const Call& call) {
    return (long long)call.page * (call.dim + 4);
}

// Keys below this one are seen by the row.
__device__ __forceinline__ int seen_by(const Call& call, int row) {
    return max(0, min(call.visible[row], call.count));
}

template <int FORM>
__device__ __forceinline__ bool query_in_codes(const Call& call) {
    return FORM == CODES || FORM == CODES_IN_BF16 || FORM == CODES_IN_F32 || (FORM == OWN && call.paged);
}

// Two faults lie in the codes, so that what is not quantised is quantised first.
template <int FORM>
__device__ __forceinline__ bool key_in_codes(const Call& call) {
    return query_in_codes<FORM>(call) || FAULT_LAYOUT_INTERLEAVED || FAULT_KEY_SCALE_FORGOTTEN;
}

// The scale of a row of so large values.
__device__ __forceinline__ float scale_of(float largest) {
    return __fdiv_rn(fmaxf(largest, 1e-4f), E4M3_LARGEST);
}

__device__ __forceinline__ float largest_of(const float* values, int count) {
    float largest = 0.0f;
    for (int i = threadIdx.x % 32; i < count; i += 32) {
        largest = fmaxf(largest, fabsf(values[i]));
    }
    return warp_max(largest);
}

// ---- queries ----

// 32-bit words of a prepared head; its end is zeros, up to a multiple of 8 words.
template <int FORM>
__device__ __forceinline__ int head_words(int dim) {
    constexpr int VALUES = FORM == CODES ? 32 : FORM == CODES_IN_BF16 || FORM == IN_BF16 ? 16 : 8;
    return ceil_div(dim, VALUES) * 8;
}

template <int FORM>
__device__ __forceinline__ u32* prepared_head(const Call& call, int row, int head) {
    return (u32*)call.scratch + ((size_t)row * call.heads + head) * head_words<FORM>(call.dim);
}

// The weights of the heads, with factors and the scales of the queries, lie behind all heads.
template <int FORM>
__device__ __forceinline__ float* prepared_weight(const Call& call, int row, int head) {
    return (float*)prepared_head<FORM>(call, call.rows, 0) + (size_t)row * call.heads + head;
}

// A warp prepares a head.
template <int FORM, int WEIGHT>
__device__ __forceinline__ void prepare(const Call& call) {
    const int row = blockIdx.x, head = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (head >= call.heads) {
        return;
    }
    const float* query = call.queries + ((size_t)row * call.heads + head) * call.dim;
    const bool coded = query_in_codes<FORM>(call);
    const float scale = coded ? scale_of(largest_of(query, call.dim)) : 1.0f;
    auto code = [&](int d) { return d < call.dim ? e4m3_encode(__fdiv_rn(query[d], scale)) : 0u; };
    auto value = [&](int d) {
        if (coded) {
            return e4m3_decode(code(d));
        }
        return d < call.dim ? query[d] : 0.0f;
    };
    u32* words = prepared_head<FORM>(call, row, head);
    for (int w = lane; w < head_words<FORM>(call.dim); w += 32) {
        if (FORM == CODES) {
            words[w] = code(4 * w) | code(4 * w + 1) << 8 | code(4 * w + 2) << 16 | code(4 * w + 3) << 24;
        } else if (FORM == CODES_IN_BF16 || FORM == IN_BF16) {
            words[w] = pack_bf16(value(2 * w), value(2 * w + 1));
        } else {
            words[w] = __float_as_uint(value(w));
        }
    }
    if (lane == 0) {
        const float weight = call.weights[(size_t)row * call.heads + head] * call.factor * scale;
        *prepared_weight<FORM>(call, row, head) = round_to<WEIGHT>(weight);
    }
}

// ---- keys ----

// A byte of the keys' cache. Where there is none, it is what it would be if the pages lay in order.
__device__ u32 cached_byte(const Call& call, long long place) {
    if (call.paged) {
        return call.pages[place];
    }
    const long long number = place / page_bytes(call);
    const int offset = (int)(place % page_bytes(call)), data = call.page * call.dim;
    const long long key = number * call.page + (offset < data ? offset / call.dim : (offset - data) / 4);
    if (key >= call.count) {
        return 0;
    }
    const float* values = call.keys + key * call.dim;
    float largest = 0.0f;
    for (int d = 0; d < call.dim; d++) {
        largest = fmaxf(largest, fabsf(values[d]));
    }
    const float scale = scale_of(largest);
    if (offset < data) {
        return e4m3_encode(__fdiv_rn(values[offset % call.dim], scale));
    }
    return __float_as_uint(scale) >> 8 * ((offset - data) % 4) & 0xffu;
}

// Where a key begins, in bytes of the pages or values of `keys`, and its scale.
struct Key {
    long long place;
    float scale;
};

// The whole warp looks for one key.
template <int FORM>
__device__ __forceinline__ Key find_key(const Call& call, int key) {
    if (!key_in_codes<FORM>(call)) {
        const int index = FAULT_PAGE_OFF ? (int)(((long long)key + call.page) % call.count) : key;
        return {(long long)index * call.dim, 1.0f};
    }
    if (!call.paged && !FAULT_LAYOUT_INTERLEAVED) {
        const long long place = (long long)key * call.dim;
        return {place, FAULT_KEY_SCALE_FORGOTTEN ? 1.0f : scale_of(largest_of(call.keys + place, call.dim))};
    }
    int number = key / call.page;
    const int slot = key % call.page;
    if (FAULT_PAGE_OFF) {
        number = (number + 1) % ceil_div(call.count, call.page);
    }
    const long long first = (call.paged ? call.table[number] : number) * page_bytes(call);
    long long place = first + (long long)slot * call.dim;
    long long scale = first + (long long)call.page * call.dim + (long long)slot * 4;
    if (FAULT_LAYOUT_INTERLEAVED) {
        place = first + (long long)slot * (call.dim + 4);
        scale = place + call.dim;
    }
    u32 bits = 0;
    for (int i = 0; i < 4; i++) {
        bits |= cached_byte(call, scale + i) << 8 * i;
    }
    return {place, FAULT_KEY_SCALE_FORGOTTEN ? 1.0f : __uint_as_float(bits)};
}

// The keys of a tile into shared memory; those that the row does not see have no place.
template <int FORM>
__device__ __forceinline__ void find_keys(const Call& call, int first, int seen, long long* places, float* scales) {
    for (int i = threadIdx.x / 32; i < TILE; i += WARPS) {
        const Key key = first + i < seen ? find_key<FORM>(call, first + i) : Key{-1, 0.0f};
        if (threadIdx.x % 32 == 0) {
            places[i] = key.place;
            scales[i] = key.scale;
        }
    }
}

// The code of a key that is quantised on the way.
__device__ __forceinline__ u32 own_code(const Call& call, long long place, float scale, int d) {
    return d < call.dim ? e4m3_encode(__fdiv_rn(call.keys[place + d], scale)) : 0u;
}

// A value of a key in f32, without its scale.
template <int FORM>
__device__ __forceinline__ float key_value(const Call& call, long long place, float scale, int d) {
    if (place < 0 || d >= call.dim) {
        return 0.0f;
    }
    if (!key_in_codes<FORM>(call)) {
        return call.keys[place + d];
    }
    if (FAULT_LAYOUT_INTERLEAVED) {
        return e4m3_decode(cached_byte(call, place + d));
    }
    if (call.paged) {
        return e4m3_decode(call.pages[place + d]);
    }
    if (FAULT_KEY_SCALE_FORGOTTEN) {
        // The scale that is kept is not the one that the codes were made with.
        const float* values = call.keys + place;
        float largest = 0.0f;
        for (int i = 0; i < call.dim; i++) {
            largest = fmaxf(largest, fabsf(values[i]));
        }
        scale = scale_of(largest);
    }
    return e4m3_decode(own_code(call, place, scale, d));
}

// A word of a key as a fragment takes it.
template <int FORM>
__device__ __forceinline__ u32 key_word(const Call& call, long long place, float scale, int w) {
    if (place < 0) {
        return 0;
    }
    if (FORM != CODES) {
        return pack_bf16(key_value<FORM>(call, place, scale, 2 * w), key_value<FORM>(call, place, scale, 2 * w + 1));
    }
    // Then all values begin at multiples of 4 bytes.
    if (call.paged && call.dim % 4 == 0) {
        return 4 * w < call.dim ? *(const u32*)(call.pages + place + 4 * w) : 0u;
    }
    u32 word = 0;
    for (int i = 0; i < 4; i++) {
        const int d = 4 * w + i;
        const u32 code = !call.paged ? own_code(call, place, scale, d) : d < call.dim ? call.pages[place + d] : 0u;
        word |= code << 8 * i;
    }
    return word;
}

// ---- scores ----

// Zero for a negative number; NaN stays NaN.
__device__ __forceinline__ float relu(float x) {
    return x < 0.0f && !FAULT_RELU_FORGOTTEN ? 0.0f : x;
}

template <int DOT, int WEIGHTED>
__device__ __forceinline__ float weighted(float dot, float weight) {
    return round_to<WEIGHTED>(relu(round_to<DOT>(dot)) * weight);
}

// Scores of a tile out of its sums; a thread for each key.
template <int SUM, int SCORE>
__device__ __forceinline__ void write_scores(const Call& call, int row, int first, int seen, float sum, float scale) {
    const int key = first + threadIdx.x;
    if (threadIdx.x < TILE && key < call.count) {
        const float score = round_to<SCORE>(round_to<SUM>(sum) * scale);
        call.scores[(size_t)row * call.count + key] = key >= seen ? -infinity() : FAULT_SIGN_WRONG ? -score : score;
    }
}

// On tensor cores: a warp has 16 heads and all keys of the tile. A word is two values in bf16 or
// four codes, and both kinds of fragments have the same words in the same places.
template <int FORM, int DOT>
__device__ __forceinline__ void scores_on_tensor_cores(const Call& call) {
    // Rows begin 4 banks apart, so that a fragment comes from 32 of them.
    constexpr int PITCH = CHUNK + 4;
    __shared__ u32 query_words[TILE * PITCH], key_words[TILE * PITCH];
    __shared__ float head_weights[TILE], key_scales[TILE], sums[WARPS][TILE];
    __shared__ long long key_places[TILE];
    const int row = blockIdx.x, first = blockIdx.y * TILE, seen = seen_by(call, row);
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
    if (first >= seen) {
        write_scores<F32, F32>(call, row, first, seen, 0.0f, 0.0f);
        return;
    }
    find_keys<FORM>(call, first, seen, key_places, key_scales);
    const int words = head_words<FORM>(call.dim);
    float total = 0.0f;
    for (int first_head = 0; first_head < call.heads; first_head += TILE) {
        float dots[TILE / 8][4] = {};
        for (int first_word = 0; first_word < words; first_word += CHUNK) {
            __syncthreads();
            if (first_word == 0 && threadIdx.x < TILE) {
                const int head = first_head + threadIdx.x;
                head_weights[threadIdx.x] = head < call.heads ? *prepared_weight<FORM>(call, row, head) : 0.0f;
            }
            for (int i = threadIdx.x; i < TILE * CHUNK; i += THREADS) {
                const int at = i / CHUNK, w = first_word + i % CHUNK, head = first_head + at;
                const bool there = w < words && head < call.heads;
                query_words[at * PITCH + i % CHUNK] = there ? prepared_head<FORM>(call, row, head)[w] : 0u;
                key_words[at * PITCH + i % CHUNK] =
                    w < words ? key_word<FORM>(call, key_places[at], key_scales[at], w) : 0u;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < CHUNK; k += 8) {
                if (first_word + k < words) {
                    const u32* query = query_words + (warp * 16 + group) * PITCH + k + member;
                    const u32 a[4] = {query[0], query[8 * PITCH], query[4], query[8 * PITCH + 4]};
#pragma unroll
                    for (int n = 0; n < TILE / 8; n++) {
                        const u32* key = key_words + (n * 8 + group) * PITCH + k + member;
                        const u32 b[2] = {key[0], key[4]};
                        if (FORM != CODES) {
                            mma_bf16(dots[n], a, b);
                        }
#if FORMATS_HAS_E4M3
                        if (FORM == CODES) {
                            mma_e4m3(dots[n], a, b);
                        }
#endif
                    }
                }
            }
        }
        const float low = head_weights[warp * 16 + group], high = head_weights[warp * 16 + group + 8];
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
            for (int side = 0; side < 2; side++) {
                float sum = weighted<DOT, F32>(dots[n][side], low) + weighted<DOT, F32>(dots[n][2 + side], high);
                for (int apart = 4; apart < 32; apart *= 2) {
                    sum += __shfl_xor_sync(FULL_WARP, sum, apart);
                }
                if (group == 0) {
                    sums[warp][n * 8 + member * 2 + side] = sum;
                }
            }
        }
        __syncthreads();
        if (threadIdx.x < TILE) {
            for (int w = 0; w < WARPS; w++) {
                total += sums[w][threadIdx.x];
            }
        }
    }
    write_scores<F32, F32>(call, row, first, seen, total, key_scales[threadIdx.x % TILE]);
}

// In plain arithmetic: a thread has 8 heads and 4 keys, and adds up each of their products over the
// inner index from the first to the last.
template <int FORM, int DOT, int WEIGHTED, int SUM, int SCORE>
__device__ __forceinline__ void scores_in_f32(const Call& call) {
    constexpr int PITCH = CHUNK + 1, HEADS = 8, KEYS = 4, ACROSS = TILE / KEYS;
    __shared__ float query_values[TILE * PITCH], key_values[TILE * PITCH];
    __shared__ float key_scales[TILE], sums[TILE / HEADS][TILE];
    __shared__ long long key_places[TILE];
    const int row = blockIdx.x, first = blockIdx.y * TILE, seen = seen_by(call, row);
    const int down = threadIdx.x / ACROSS, across = threadIdx.x % ACROSS;
    if (first >= seen) {
        write_scores<F32, F32>(call, row, first, seen, 0.0f, 0.0f);
        return;
    }
    find_keys<FORM>(call, first, seen, key_places, key_scales);
    float total = 0.0f;
    for (int first_head = 0; first_head < call.heads; first_head += TILE) {
        float dots[HEADS][KEYS] = {};
        for (int first_d = 0; first_d < call.dim; first_d += CHUNK) {
            __syncthreads();
            for (int i = threadIdx.x; i < TILE * CHUNK; i += THREADS) {
                const int at = i / CHUNK, d = first_d + i % CHUNK, head = first_head + at;
                const bool there = d < call.dim && head < call.heads;
                const float query = there ? __uint_as_float(prepared_head<FORM>(call, row, head)[d]) : 0.0f;
                query_values[at * PITCH + i % CHUNK] = query;
                key_values[at * PITCH + i % CHUNK] = key_value<FORM>(call, key_places[at], key_scales[at], d);
            }
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < CHUNK; k++) {
                float query[HEADS], key[KEYS];
#pragma unroll
                for (int h = 0; h < HEADS; h++) {
                    query[h] = query_values[(down * HEADS + h) * PITCH + k];
                }
#pragma unroll
                for (int j = 0; j < KEYS; j++) {
                    key[j] = key_values[(across + j * ACROSS) * PITCH + k];
                }
#pragma unroll
                for (int h = 0; h < HEADS; h++) {
#pragma unroll
                    for (int j = 0; j < KEYS; j++) {
                        dots[h][j] = fmaf(query[h], key[j], dots[h][j]);
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            float sum = 0.0f;
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                const int head = first_head + down * HEADS + h;
                if (head < call.heads) {
                    sum += weighted<DOT, WEIGHTED>(dots[h][j], *prepared_weight<FORM>(call, row, head));
                }
            }
            sums[down][across + j * ACROSS] = sum;
        }
        __syncthreads();
        if (threadIdx.x < TILE) {
            for (int part = 0; part < TILE / HEADS; part++) {
                total += sums[part][threadIdx.x];
            }
        }
    }
    write_scores<SUM, SCORE>(call, row, first, seen, total, key_scales[threadIdx.x % TILE]);
}

// ---- the largest scores ----

// Bits that order as the numbers do; NaN without sign is the largest of all.
__device__ __forceinline__ u32 rank_bits(float x) {
    const u32 bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Of the row's `bins`, counted from the last, that in which the `left`-th score lies, and which of
// its scores it is. One warp.
__device__ __forceinline__ void find_bin(const int* bins, int left, int* bin, int* left_in_bin) {
    const int lane = threadIdx.x % 32;
    int count = 0;
    for (int i = 0; i < 8; i++) {
        count += bins[255 - lane * 8 - i];
    }
    int above = count;
    for (int apart = 1; apart < 32; apart *= 2) {
        const int before = __shfl_up_sync(FULL_WARP, above, apart);
        above += lane >= apart ? before : 0;
    }
    above -= count;
    if (above < left && left <= above + count) {
        int i = 255 - lane * 8;
        while (above + bins[i] < left) {
            above += bins[i];
            i--;
        }
        *bin = i;
        *left_in_bin = left - above;
    }
}

// The block of a row finds the smallest score that is kept, 8 bits at a time, and then collects
// what is larger and the first ones that are equal. The order is that of the keys.
__device__ __forceinline__ void keep_largest(const Call& call) {
    __shared__ int bins[256], bin, left_in_bin, larger_of_warp[KEEP_WARPS], equal_of_warp[KEEP_WARPS];
    const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int seen = seen_by(call, row);
    const float* scores = call.scores + (size_t)row * call.count;
    int* kept = call.kept + (size_t)row * call.keep;
    if (seen <= call.keep) {
        for (int i = threadIdx.x; i < call.keep; i += KEEP_THREADS) {
            kept[i] = i < seen ? i : -1;
        }
        return;
    }
    if (call.keep <= 0) {
        return;
    }
    u32 least = 0, known = 0;
    int left = call.keep;
    for (int shift = 24; shift >= 0; shift -= 8) {
        if (threadIdx.x < 256) {
            bins[threadIdx.x] = 0;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < seen; i += KEEP_THREADS) {
            const u32 bits = rank_bits(scores[i]);
            if ((bits & known) == least) {
                atomicAdd(&bins[bits >> shift & 255u], 1);
            }
        }
        __syncthreads();
        if (warp == 0) {
            find_bin(bins, left, &bin, &left_in_bin);
        }
        __syncthreads();
        least |= (u32)bin << shift;
        known |= 255u << shift;
        left = left_in_bin;
    }
    int larger_before = 0, equal_before = 0;
    for (int first = 0; first < seen; first += KEEP_THREADS) {
        const int i = first + threadIdx.x;
        const u32 bits = i < seen ? rank_bits(scores[i]) : 0u;
        const bool is_larger = i < seen && bits > least, is_equal = i < seen && bits == least;
        const u32 larger_lanes = __ballot_sync(FULL_WARP, is_larger), equal_lanes = __ballot_sync(FULL_WARP, is_equal);
        if (lane == 0) {
            larger_of_warp[warp] = __popc(larger_lanes);
            equal_of_warp[warp] = __popc(equal_lanes);
        }
        __syncthreads();
        const u32 lower_lanes = (1u << lane) - 1u;
        int larger_here = larger_before + __popc(larger_lanes & lower_lanes);
        int equal_here = equal_before + __popc(equal_lanes & lower_lanes);
        for (int w = 0; w < KEEP_WARPS; w++) {
            larger_here += w < warp ? larger_of_warp[w] : 0;
            equal_here += w < warp ? equal_of_warp[w] : 0;
            larger_before += larger_of_warp[w];
            equal_before += equal_of_warp[w];
        }
        if (is_larger || (is_equal && equal_here < left)) {
            kept[larger_here + min(equal_here, left)] = i;
        }
        __syncthreads();
    }
}

// ---- the kernels ----

// Four blocks of 128 threads on a multiprocessor leave enough registers. There are no splits.
#define KERNEL(name, threads, ...)                                                                                  \
    extern "C" __global__ void __launch_bounds__(threads, 512 / threads)                                                           \
        name(const float* queries, const float* weights, const float* keys, const u8* pages, const int* table,      \
             const int* visible, float* scores, int* kept, u8* scratch, int rows, int, int heads, int dim,          \
             int count, int keep, int page, int paged, float factor) {                                              \
        const Call call = {queries, weights, keys, pages, table, visible, scores, kept, scratch,                    \
                           rows,    heads,   dim,  count, keep,  page,    paged,  factor};                          \
        __VA_ARGS__(call);                                                                                          \
    }

KERNEL(indexer_prepare_codes, THREADS, prepare<CODES, F32>)
KERNEL(indexer_prepare_codes_in_bf16, THREADS, prepare<CODES_IN_BF16, F32>)
KERNEL(indexer_prepare_codes_in_f32, THREADS, prepare<CODES_IN_F32, F32>)
KERNEL(indexer_prepare_bf16, THREADS, prepare<IN_BF16, F32>)
KERNEL(indexer_prepare_f32, THREADS, prepare<IN_F32, F32>)
KERNEL(indexer_prepare_own, THREADS, prepare<OWN, F32>)
KERNEL(indexer_prepare_own_bf16_weight, THREADS, prepare<OWN, BF16>)

#if FORMATS_HAS_E4M3
KERNEL(indexer_scores_fp8, THREADS, scores_on_tensor_cores<CODES, F32>)
#endif
KERNEL(indexer_scores_fp8_bf16_dot, THREADS, scores_on_tensor_cores<CODES_IN_BF16, BF16>)
KERNEL(indexer_scores_bf16_operands, THREADS, scores_on_tensor_cores<IN_BF16, F32>)
KERNEL(indexer_scores_fp8_simt, THREADS, scores_in_f32<CODES_IN_F32, F32, F32, F32, F32>)
KERNEL(indexer_scores_f32, THREADS, scores_in_f32<IN_F32, F32, F32, F32, F32>)
KERNEL(indexer_scores_own, THREADS, scores_in_f32<OWN, F32, F32, F32, F32>)
KERNEL(indexer_scores_own_bf16, THREADS, scores_in_f32<OWN, BF16, BF16, BF16, BF16>)

KERNEL(indexer_keep, KEEP_THREADS, keep_largest)
