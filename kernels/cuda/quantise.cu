//! # Block formats of activations and weights, and the product of what they leave.
//! #
//! # Each tensor is quantised to codes and scales in memory, read back from there, and multiplied:
//! # from the codes where a tensor core takes them, else from what came back. Codes of 4 bits lie two
//! # in a byte, the first in the low nibble; scales are f32, ue8m0 or e4m3 as the format stores them.
//! #
//! # Hopper has no mma.sync for e4m3 of its own (see formats.cuh), so that `fp8` there multiplies the
//! # codes in f16 with sums in f32. Its own unit is that of the -wgmma candidates, which holds the sum
//! # of 128 columns with fewer bits than the f32 that it is promoted to and that is declared; the
//! # format and the output lose more. The -block-scaled candidates have been compiled and never run.
//! spec = "quantise"
//!
//! [[candidate]]
//! name = "bf16"
//! says = "operands and product in bf16, sums in f32"
//! round = { activation = "bf16", weight = "bf16", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "bf16"
//! define = ["ACTIVATION=PLAIN_BF16", "WEIGHT=PLAIN_BF16", "ROUND_OUTPUT=BF16"]
//! launch = [
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_bf16", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "fp8"
//! says = "e4m3, activations by 1x128 and weights by 128x128, scales in f32, tensor cores of e4m3"
//! round = { activation = "fp8-1x128", weight = "fp8-128x128", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "fp8"
//! define = ["ACTIVATION=FP8_1X128", "WEIGHT=FP8_128X128", "ROUND_OUTPUT=BF16"]
//! least-arch = 89
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight_squares", threads = 256, grid = [["width", 128], ["outputs", 128]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_fp8", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "fp8-ue8m0"
//! says = "the same with scales rounded up to powers of two, as the checkpoint declares"
//! round = { activation = "fp8-1x128-ue8m0", weight = "fp8-128x128-ue8m0", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "fp8"
//! define = ["ACTIVATION=FP8_1X128_UE8M0", "WEIGHT=FP8_128X128_UE8M0", "ROUND_OUTPUT=BF16"]
//! least-arch = 89
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight_squares", threads = 256, grid = [["width", 128], ["outputs", 128]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_fp8", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "fp8-wgmma"
//! says = "fp8 on Hopper's own unit for e4m3, promoted to f32 every 128 columns"
//! round = { activation = "fp8-1x128", weight = "fp8-128x128", output = "bf16" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! unit = "fp8"
//! define = ["ACTIVATION=FP8_1X128", "WEIGHT=FP8_128X128", "ROUND_OUTPUT=BF16"]
//! arch = "sm_90a"
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight_squares", threads = 256, grid = [["width", 128], ["outputs", 128]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_fp8_wgmma", threads = 128, grid = [["outputs", 64], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "fp8-ue8m0-wgmma"
//! says = "the same with scales rounded up to powers of two"
//! round = { activation = "fp8-1x128-ue8m0", weight = "fp8-128x128-ue8m0", output = "bf16" }
//! accumulate = { in = "f32" }
//! [candidate.cuda]
//! unit = "fp8"
//! define = ["ACTIVATION=FP8_1X128_UE8M0", "WEIGHT=FP8_128X128_UE8M0", "ROUND_OUTPUT=BF16"]
//! arch = "sm_90a"
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight_squares", threads = 256, grid = [["width", 128], ["outputs", 128]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_fp8_wgmma", threads = 128, grid = [["outputs", 64], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "fp8-simt"
//! says = "fp8 where no unit multiplies e4m3: what comes back is multiplied in f32"
//! round = { activation = "fp8-1x128", weight = "fp8-128x128", output = "bf16" }
//! accumulate = { in = "f32", splits = 32 }
//! [candidate.cuda]
//! define = ["ACTIVATION=FP8_1X128", "WEIGHT=FP8_128X128", "ROUND_OUTPUT=BF16"]
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight_squares", threads = 256, grid = [["width", 128], ["outputs", 128]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_f32", threads = 256, grid = [["outputs", 8], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "mxfp4-weights"
//! says = "MXFP4 weights, e4m3 activations by 1x128 with powers of two, multiplied in bf16, which is exact"
//! round = { activation = "fp8-1x128-ue8m0", weight = "mxfp4", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "bf16"
//! define = ["ACTIVATION=FP8_1X128_UE8M0", "WEIGHT=MXFP4", "ROUND_OUTPUT=BF16"]
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_bf16", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "mxfp4"
//! says = "MXFP4 activations and weights, multiplied in bf16, which is exact"
//! round = { activation = "mxfp4", weight = "mxfp4", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "bf16"
//! define = ["ACTIVATION=MXFP4", "WEIGHT=MXFP4", "ROUND_OUTPUT=BF16"]
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_bf16", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "nvfp4-weights"
//! says = "NVFP4 weights quantised afresh, bf16 activations; code times block scale is exact in bf16"
//! round = { activation = "bf16", weight = "nvfp4", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "bf16"
//! define = ["ACTIVATION=PLAIN_BF16", "WEIGHT=NVFP4", "ROUND_OUTPUT=BF16"]
//! launch = [
//!   { function = "largest_weight", threads = 256, grid = [["outputs", 1]] },
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_bf16", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "nvfp4"
//! says = "NVFP4 activations and weights, both quantised afresh; code times block scale is exact in bf16"
//! round = { activation = "nvfp4", weight = "nvfp4", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "bf16"
//! rows-together = true
//! define = ["ACTIVATION=NVFP4", "WEIGHT=NVFP4", "ROUND_OUTPUT=BF16"]
//! launch = [
//!   { function = "largest_activation", threads = 256, grid = [["rows", 1]] },
//!   { function = "largest_weight", threads = 256, grid = [["outputs", 1]] },
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_bf16", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "mxfp4-block-scaled"
//! says = "MXFP4 activations and weights on tensor cores that take codes and scales"
//! round = { activation = "mxfp4", weight = "mxfp4", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "fp4"
//! define = ["ACTIVATION=MXFP4", "WEIGHT=MXFP4", "ROUND_OUTPUT=BF16"]
//! arch = "sm_120a"
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_block_scaled", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! [[candidate]]
//! name = "nvfp4-block-scaled"
//! says = "NVFP4 activations and weights on tensor cores that take codes and scales"
//! round = { activation = "nvfp4", weight = "nvfp4", output = "bf16" }
//! accumulate = { in = "f32", splits = 8 }
//! [candidate.cuda]
//! unit = "fp4"
//! rows-together = true
//! define = ["ACTIVATION=NVFP4", "WEIGHT=NVFP4", "ROUND_OUTPUT=BF16"]
//! arch = "sm_120a"
//! launch = [
//!   { function = "largest_activation", threads = 256, grid = [["rows", 1]] },
//!   { function = "largest_weight", threads = 256, grid = [["outputs", 1]] },
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_block_scaled", threads = 256, grid = [["outputs", 8], ["rows", 16]] },
//! ]
//!
//! # Known-bad twins: the format of the point is declared and explained, what is beyond it is the fault.
//!
//! [[candidate]]
//! name = "late-scale"
//! says = "a power-of-two scale is rounded up after the values were divided by the exact one"
//! round = { activation = "fp8-1x128-ue8m0" }
//! accumulate = { in = "f32", splits = 32 }
//! fault = "late-scale"
//! [candidate.cuda]
//! define = ["ACTIVATION=FP8_1X128_UE8M0", "WEIGHT=PLAIN", "FAULT=LATE_SCALE"]
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_f32", threads = 256, grid = [["outputs", 8], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "neighbour-scale"
//! says = "each block is read with the scale of the next one in its row"
//! round = { activation = "fp8-1x128" }
//! accumulate = { in = "f32", splits = 32 }
//! fault = "neighbour-scale"
//! [candidate.cuda]
//! define = ["ACTIVATION=FP8_1X128", "WEIGHT=PLAIN", "FAULT=NEIGHBOUR_SCALE"]
//! launch = [
//!   { function = "quantise_activation", threads = 128, grid = [["width", 128], ["rows", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_f32", threads = 256, grid = [["outputs", 8], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "nibbles-swapped"
//! says = "of two 4-bit values in a byte the high one is read first"
//! round = { weight = "mxfp4" }
//! accumulate = { in = "f32", splits = 32 }
//! fault = "nibbles-swapped"
//! [candidate.cuda]
//! define = ["ACTIVATION=PLAIN", "WEIGHT=MXFP4", "FAULT=NIBBLES_SWAPPED"]
//! launch = [
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_f32", threads = 256, grid = [["outputs", 8], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "e4m3-as-e5m2"
//! says = "e4m3 codes are read as e5m2"
//! round = { weight = "fp8-128x128" }
//! accumulate = { in = "f32", splits = 32 }
//! fault = "e4m3-as-e5m2"
//! [candidate.cuda]
//! define = ["ACTIVATION=PLAIN", "WEIGHT=FP8_128X128", "FAULT=E4M3_AS_E5M2"]
//! launch = [
//!   { function = "quantise_weight_squares", threads = 256, grid = [["width", 128], ["outputs", 128]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_f32", threads = 256, grid = [["outputs", 8], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "second-scale-forgotten"
//! says = "the scale of the whole tensor is forgotten"
//! round = { weight = "nvfp4" }
//! accumulate = { in = "f32", splits = 32 }
//! fault = "second-scale-forgotten"
//! [candidate.cuda]
//! define = ["ACTIVATION=PLAIN", "WEIGHT=NVFP4", "FAULT=SECOND_SCALE_FORGOTTEN"]
//! launch = [
//!   { function = "largest_weight", threads = 256, grid = [["outputs", 1]] },
//!   { function = "quantise_weight", threads = 128, grid = [["width", 128], ["outputs", 4]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_f32", threads = 256, grid = [["outputs", 8], ["rows", 8]] },
//! ]
//!
//! [[candidate]]
//! name = "grid-transposed"
//! says = "the scales of square blocks are read down the columns"
//! round = { weight = "fp8-128x128" }
//! accumulate = { in = "f32", splits = 32 }
//! fault = "grid-transposed"
//! [candidate.cuda]
//! define = ["ACTIVATION=PLAIN", "WEIGHT=FP8_128X128", "FAULT=GRID_TRANSPOSED"]
//! launch = [
//!   { function = "quantise_weight_squares", threads = 256, grid = [["width", 128], ["outputs", 128]] },
//!   { function = "read_back", threads = 128, grid = [["width", 128], ["outputs", 1]] },
//!   { function = "product_f32", threads = 256, grid = [["outputs", 8], ["rows", 8]] },
//! ]

#include "common.cuh"
#include "formats.cuh"

// What can be wrong with a writer or a reader on purpose.
enum BlockFault {
    NONE,
    LATE_SCALE,
    NEIGHBOUR_SCALE,
    NIBBLES_SWAPPED,
    E4M3_AS_E5M2,
    SECOND_SCALE_FORGOTTEN,
    GRID_TRANSPOSED,
};

// Formats by their names in formats.cuh.
#ifndef ACTIVATION
#define ACTIVATION PLAIN
#endif
#ifndef WEIGHT
#define WEIGHT PLAIN
#endif
#ifndef ROUND_OUTPUT
#define ROUND_OUTPUT F32
#endif
#ifndef FAULT
#define FAULT NONE
#endif

#define ARGUMENTS                                                                                          \
    const float *__restrict__ activation, const float *__restrict__ weight,                                \
        float *__restrict__ activation_back, float *__restrict__ weight_back, float *__restrict__ product, \
        u8 *__restrict__ scratch, int rows, int splits, int width, int outputs

typedef BlockRule<ACTIVATION> ActivationRule;
typedef BlockRule<WEIGHT> WeightRule;

// Columns of a chunk, the unit in which codes are padded and products on tensor cores are cut.
constexpr int CHUNK = 128;
// Warps of a block that share the inner index of a product on tensor cores.
constexpr int RUNS = 8;
// The rows of the largest magnitudes at the head of the scratch.
constexpr int OF_ACTIVATION = 0;
constexpr int OF_WEIGHT = 1;

// Where a tensor lies in the scratch, behind the tensors with `before` rows.
template <int FORMAT>
__device__ __forceinline__ BlockStore place(u8* scratch, int before, int rows, int width) {
    const u64 room = ((u64)before * 4 * (width + width / 8 + 64) + 15) / 16 * 16;
    const int chunks = ceil_div(width, CHUNK);
    BlockStore tensor;
    tensor.pitch = chunks * BlockRule<FORMAT>::chunk_bytes;
    tensor.across = chunks * (CHUNK / BlockRule<FORMAT>::columns);
    tensor.codes = scratch + 256 + room;
    tensor.scales = tensor.codes + (u64)rows * tensor.pitch;
    return tensor;
}

__device__ __forceinline__ BlockStore place_activation(u8* scratch, int rows, int width) {
    return place<ACTIVATION>(scratch, 0, rows, width);
}

__device__ __forceinline__ BlockStore place_weight(u8* scratch, int rows, int width, int outputs) {
    return place<WEIGHT>(scratch, rows, outputs, width);
}

// ---- NVFP4's scale of the whole tensor ----

__device__ __forceinline__ float larger_of_warp(float x) {
#pragma unroll
    for (int apart = 16; apart > 0; apart >>= 1) {
        x = larger(x, __shfl_xor_sync(FULL_WARP, x, apart));
    }
    return x;
}

// Raises the largest magnitude of a tensor by one row. The order of maxima changes nothing.
__device__ __forceinline__ void raise_largest(const float* values, int width, u32* largest) {
    const float* row = values + (u64)blockIdx.x * width;
    float amax = 0.0f;
    for (int column = threadIdx.x; column < width; column += blockDim.x) {
        amax = larger(amax, magnitude(row[column]));
    }
    amax = larger_of_warp(amax);
    if (threadIdx.x % 32 == 0) {
        atomicMax(largest, __float_as_uint(amax));
    }
}

extern "C" __global__ void __launch_bounds__(256) largest_activation(ARGUMENTS) {
    raise_largest(activation, width, (u32*)scratch + OF_ACTIVATION);
}

extern "C" __global__ void __launch_bounds__(256) largest_weight(ARGUMENTS) {
    raise_largest(weight, width, (u32*)scratch + OF_WEIGHT);
}

template <int FORMAT>
__device__ __forceinline__ float tensor_scale(const u8* scratch, int which) {
    if (FORMAT != NVFP4) {
        return 1.0f;
    }
    return __fdiv_rn(__uint_as_float(((const u32*)scratch)[which]), E4M3_LARGEST * E2M1_LARGEST);
}

// ---- quantising ----

// Four neighbours of a row, zeros beyond its end.
__device__ __forceinline__ void load4(const float* row, int column, int width, float (&values)[4]) {
    if (width % 4 == 0) {
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (column < width) {
            four = *(const float4*)(row + column);
        }
        values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        values[i] = column + i < width ? row[column + i] : 0.0f;
    }
}

__device__ __forceinline__ float larger_of_four(const float (&x)[4]) {
    return larger(larger(magnitude(x[0]), magnitude(x[1])), larger(magnitude(x[2]), magnitude(x[3])));
}

// One warp quantises one chunk of a row, each lane four columns.
template <int FORMAT>
__device__ __forceinline__ void quantise_rows(const float* values, const BlockStore& tensor, int rows, int width,
                                              float second) {
    constexpr int lanes = BlockRule<FORMAT>::columns / 4;
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.y * 4 + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    const int column = blockIdx.x * CHUNK + lane * 4;
    float mine[4];
    load4(values + (u64)row * width, column, width, mine);
    float amax = larger_of_four(mine);
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart >>= 1) {
        amax = larger(amax, __shfl_xor_sync(FULL_WARP, amax, apart));
    }
    u32 stored;
    const float divisor = block_make_scale<FORMAT, FAULT == LATE_SCALE>(amax, second, stored);
    block_store_codes<FORMAT>(tensor, row, column, mine, divisor);
    if (lane % lanes == 0) {
        block_store_scale<FORMAT>(tensor, (u64)row * tensor.across + column / BlockRule<FORMAT>::columns, stored);
    }
}

extern "C" __global__ void __launch_bounds__(128) quantise_activation(ARGUMENTS) {
    if constexpr (!ActivationRule::plain && !ActivationRule::square) {
        const float second = tensor_scale<ACTIVATION>(scratch, OF_ACTIVATION);
        quantise_rows<ACTIVATION>(activation, place_activation(scratch, rows, width), rows, width, second);
    }
}

extern "C" __global__ void __launch_bounds__(128) quantise_weight(ARGUMENTS) {
    if constexpr (!WeightRule::plain && !WeightRule::square) {
        const float second = tensor_scale<WEIGHT>(scratch, OF_WEIGHT);
        quantise_rows<WEIGHT>(weight, place_weight(scratch, rows, width, outputs), outputs, width, second);
    }
}

// One block of threads quantises one block of 128 by 128, which it reads twice.
extern "C" __global__ void __launch_bounds__(256) quantise_weight_squares(ARGUMENTS) {
    if constexpr (WeightRule::square) {
        constexpr int WARPS = 8;
        __shared__ float maxima[WARPS];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int column = blockIdx.x * CHUNK + lane * 4;
        const int first = blockIdx.y * 128, end = min(first + 128, outputs);
        const BlockStore tensor = place_weight(scratch, rows, width, outputs);
        float four[4];
        float amax = 0.0f;
        for (int row = first + warp; row < end; row += WARPS) {
            load4(weight + (u64)row * width, column, width, four);
            amax = larger(amax, larger_of_four(four));
        }
        amax = larger_of_warp(amax);
        if (lane == 0) {
            maxima[warp] = amax;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            amax = larger(amax, maxima[i]);
        }
        u32 stored;
        const float divisor = block_make_scale<WEIGHT, FAULT == LATE_SCALE>(amax, 1.0f, stored);
        for (int row = first + warp; row < end; row += WARPS) {
            load4(weight + (u64)row * width, column, width, four);
            block_store_codes<WEIGHT>(tensor, row, column, four, divisor);
        }
        if (threadIdx.x == 0) {
            block_store_scale<WEIGHT>(tensor, (u64)blockIdx.y * tensor.across + blockIdx.x, stored);
        }
    }
}

// ---- reading back ----

// One value is rounded to f32 once: the product of an element and an e4m3 or a power of two is exact.
template <int FORMAT>
__device__ __forceinline__ float read_value(const float* values, u8* scratch, int before, int rows, int width, int row,
                                            int column, int which) {
    if constexpr (BlockRule<FORMAT>::plain) {
        const float value = values[(u64)row * width + column];
        return FORMAT == PLAIN_BF16 ? round_bf16(value) : value;
    } else {
        constexpr bool square = BlockRule<FORMAT>::square;
        const BlockStore tensor = place<FORMAT>(scratch, before, rows, width);
        const int down = square ? row / 128 : row;
        int along = column / BlockRule<FORMAT>::columns;
        if (FAULT == NEIGHBOUR_SCALE) {
            along = (along + 1) % ceil_div(width, BlockRule<FORMAT>::columns);
        }
        u64 block = (u64)down * tensor.across + along;
        if (FAULT == GRID_TRANSPOSED && square) {
            block = (u64)along * ceil_div(rows, 128) + down;
        }
        const float element =
            block_element_at<FORMAT, FAULT == NIBBLES_SWAPPED, FAULT == E4M3_AS_E5M2>(tensor, row, column);
        const float second = FAULT == SECOND_SCALE_FORGOTTEN ? 1.0f : tensor_scale<FORMAT>(scratch, which);
        return __fmul_rn(__fmul_rn(element, block_scale_at<FORMAT>(tensor, block)), second);
    }
}

// Each block of threads has a piece of one weight row, and those of activation rows in its turn.
extern "C" __global__ void __launch_bounds__(128) read_back(ARGUMENTS) {
    const int column = blockIdx.x * 128 + threadIdx.x;
    if (column >= width) {
        return;
    }
    const int output = blockIdx.y;
    weight_back[(u64)output * width + column] =
        read_value<WEIGHT>(weight, scratch, rows, outputs, width, output, column, OF_WEIGHT);
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        activation_back[(u64)row * width + column] =
            read_value<ACTIVATION>(activation, scratch, 0, rows, width, row, column, OF_ACTIVATION);
    }
}

// ---- products ----

// In f32 without tensor cores: a warp has one output of eight tokens, and each lane every 32nd column.
extern "C" __global__ void __launch_bounds__(256) product_f32(ARGUMENTS) {
    constexpr int TOKENS = 8;
    const int lane = threadIdx.x % 32;
    const int output = blockIdx.x * 8 + threadIdx.x / 32, first = blockIdx.y * TOKENS;
    if (output >= outputs) {
        return;
    }
    const float* weights = weight_back + (u64)output * width;
    // Tokens beyond the last are the last once more, and are not stored.
    const float* inputs[TOKENS];
    float sums[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        inputs[i] = activation_back + (u64)min(first + i, rows - 1) * width;
        sums[i] = 0.0f;
    }
    for (int column = lane; column < width; column += 32) {
        const float w = weights[column];
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            sums[i] = fmaf(inputs[i][column], w, sums[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        const float sum = warp_sum(sums[i]);
        if (lane == 0 && first + i < rows) {
            product[(u64)(first + i) * outputs + output] = round_to<ROUND_OUTPUT>(sum);
        }
    }
}

// On tensor cores a block of threads has 16 tokens by 8 outputs, and each of its warps a run of the
// inner index. Which column stands at which place of the inner index is free as long as both operands
// agree, so that a lane reads neighbouring columns where it can. Tokens and outputs beyond the last
// are the last once more, and are not stored.
struct Tile {
    int group, member, warp;
    int tokens[2];
    int output;

    __device__ __forceinline__ Tile(int rows, int outputs) {
        const int lane = threadIdx.x % 32;
        group = lane / 4, member = lane % 4, warp = threadIdx.x / 32;
        tokens[0] = min((int)blockIdx.y * 16 + group, rows - 1);
        tokens[1] = min((int)blockIdx.y * 16 + group + 8, rows - 1);
        output = min((int)blockIdx.x * 8 + group, outputs - 1);
    }

    // The first of this warp's pieces among so many; that of the next warp is where it ends.
    __device__ __forceinline__ int begin(int pieces, int later) const {
        return (int)((long long)(warp + later) * pieces / RUNS);
    }
};

// Adds the runs of all warps in their order, multiplies by `factor`, rounds and stores.
__device__ __forceinline__ void store_tile(const Tile& tile, const float (&sums)[4], float factor, float* product,
                                           int rows, int outputs) {
    __shared__ float runs[RUNS][16 * 8];
    float* mine = runs[tile.warp] + tile.group * 8 + tile.member * 2;
    mine[0] = sums[0], mine[1] = sums[1];
    mine[64] = sums[2], mine[65] = sums[3];
    __syncthreads();
    const int at = threadIdx.x;
    const int token = blockIdx.y * 16 + at / 8, output = blockIdx.x * 8 + at % 8;
    if (at < 16 * 8 && token < rows && output < outputs) {
        float sum = 0.0f;
#pragma unroll
        for (int run = 0; run < RUNS; run++) {
            sum += runs[run][at];
        }
        product[(u64)token * outputs + output] = round_to<ROUND_OUTPUT>(sum * factor);
    }
}

// Four neighbours of a row as bf16, in two registers. Those of NVFP4 come without the scale of the
// tensor, since element times block scale is exact in bf16 and with it is not.
template <int FORMAT>
__device__ __forceinline__ uint2 load4_bf16(const float* back, const BlockStore& tensor, int row, int column,
                                            int width) {
    float four[4];
    if constexpr (FORMAT == NVFP4) {
        const u32 codes = *(const u16*)(tensor.codes + (u64)row * tensor.pitch + column / 2);
        const float scale = e4m3_decode(tensor.scales[(u64)row * tensor.across + column / 16]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            four[i] = e2m1_decode(codes >> 4 * i) * scale;
        }
    } else {
        load4(back + (u64)row * width, column, width, four);
    }
    return make_uint2(pack_bf16(four[0], four[1]), pack_bf16(four[2], four[3]));
}

extern "C" __global__ void __launch_bounds__(256) product_bf16(ARGUMENTS) {
    constexpr int PIECE = 64;
    const Tile tile(rows, outputs);
    const BlockStore left = place_activation(scratch, rows, width);
    const BlockStore right = place_weight(scratch, rows, width, outputs);
    const int pieces = ceil_div(width, PIECE);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int piece = tile.begin(pieces, 0); piece < tile.begin(pieces, 1); piece++) {
#pragma unroll
        for (int i = 0; i < PIECE / 16; i++) {
            const int column = piece * PIECE + tile.member * 16 + i * 4;
            const uint2 low = load4_bf16<ACTIVATION>(activation_back, left, tile.tokens[0], column, width);
            const uint2 high = load4_bf16<ACTIVATION>(activation_back, left, tile.tokens[1], column, width);
            const uint2 other = load4_bf16<WEIGHT>(weight_back, right, tile.output, column, width);
            const u32 a[4] = {low.x, high.x, low.y, high.y};
            const u32 b[2] = {other.x, other.y};
            mma_bf16(sums, a, b);
        }
    }
    const float factor = tensor_scale<ACTIVATION>(scratch, OF_ACTIVATION) * tensor_scale<WEIGHT>(scratch, OF_WEIGHT);
    store_tile(tile, sums, factor, product, rows, outputs);
}

// The word of a row's codes at this place of a chunk, of which each member of a group has 32 columns.
__device__ __forceinline__ u32 word(const uint4 (&words)[2], int at) {
    const uint4 four = words[at / 4];
    return at % 4 == 0 ? four.x : at % 4 == 1 ? four.y : at % 4 == 2 ? four.z : four.w;
}

__device__ __forceinline__ void load_words(const BlockStore& tensor, int row, int chunk, int member,
                                           uint4 (&words)[2]) {
    const uint4* from = (const uint4*)(tensor.codes + (u64)row * tensor.pitch + chunk * CHUNK + member * 32);
    words[0] = from[0], words[1] = from[1];
}

#if FORMATS_HAS_E4M3
// The sum of each chunk is multiplied by its scales and added in f32.
extern "C" __global__ void __launch_bounds__(256) product_fp8(ARGUMENTS) {
    const Tile tile(rows, outputs);
    const BlockStore left = place_activation(scratch, rows, width);
    const BlockStore right = place_weight(scratch, rows, width, outputs);
    const int chunks = ceil_div(width, CHUNK);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int chunk = tile.begin(chunks, 0); chunk < tile.begin(chunks, 1); chunk++) {
        uint4 low[2], high[2], other[2];
        load_words(left, tile.tokens[0], chunk, tile.member, low);
        load_words(left, tile.tokens[1], chunk, tile.member, high);
        load_words(right, tile.output, chunk, tile.member, other);
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < CHUNK / 32; i++) {
            const u32 a[4] = {word(low, 2 * i), word(high, 2 * i), word(low, 2 * i + 1), word(high, 2 * i + 1)};
            const u32 b[2] = {word(other, 2 * i), word(other, 2 * i + 1)};
            mma_e4m3(part, a, b);
        }
        // The eight outputs of a tile lie in one block of 128 by 128.
        const float of_weight = block_scale_at<WEIGHT>(right, (u64)(blockIdx.x * 8 / 128) * right.across + chunk);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u64 block = (u64)tile.tokens[i / 2] * left.across + chunk;
            sums[i] = fmaf(part[i], block_scale_at<ACTIVATION>(left, block) * of_weight, sums[i]);
        }
    }
    store_tile(tile, sums, 1.0f, product, rows, outputs);
}
#endif

#if FORMATS_HAS_WGMMA
// The same on Hopper's own unit: four warps have 64 outputs of eight tokens and the whole inner index.
extern "C" __global__ void __launch_bounds__(128) product_fp8_wgmma(ARGUMENTS) {
    __shared__ __align__(128) u32 inputs[2][CHUNK / 16][8][4];
    const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4, warp = threadIdx.x / 32;
    const int output = blockIdx.x * 64 + warp * 16 + group, token = blockIdx.y * 8;
    const BlockStore left = place_activation(scratch, rows, width);
    const BlockStore right = place_weight(scratch, rows, width, outputs);
    const int chunks = ceil_div(width, CHUNK);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int chunk = 0; chunk < chunks; chunk++) {
        uint4 low[2], high[2];
        load_words(right, min(output, outputs - 1), chunk, member, low);
        load_words(right, min(output + 8, outputs - 1), chunk, member, high);
        // The words of a token, 32 columns of each member in turn, go where `low` and `high` have theirs.
        u32(&page)[CHUNK / 16][8][4] = inputs[chunk % 2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int at = i * 128 + threadIdx.x, row = min(token + at / 32, rows - 1);
            const u32* codes = (const u32*)(left.codes + (u64)row * left.pitch + chunk * CHUNK);
            page[at % 8][at / 32][at % 32 / 8] = codes[at % 32];
        }
        wgmma_publish();
        __syncthreads();
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < CHUNK / 32; i++) {
            const u32 a[4] = {word(low, 2 * i), word(high, 2 * i), word(low, 2 * i + 1), word(high, 2 * i + 1)};
            wgmma_e4m3(part, a, page[2 * i], i == 0);
        }
        wgmma_wait(part);
        const float of_weight = block_scale_at<WEIGHT>(right, (u64)(blockIdx.x * 64 / 128) * right.across + chunk);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = min(token + member * 2 + i % 2, rows - 1);
            const float of_token = block_scale_at<ACTIVATION>(left, (u64)row * left.across + chunk);
            sums[i] = fmaf(part[i], of_token * of_weight, sums[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = token + member * 2 + i % 2, column = output + i / 2 * 8;
        if (row < rows && column < outputs) {
            product[(u64)row * outputs + column] = round_to<ROUND_OUTPUT>(sums[i]);
        }
    }
}
#endif

#if FORMATS_HAS_BLOCK_SCALE
// Codes and scales go to the tensor cores as they are stored. A scale belongs to its place of the
// inner index, so that columns keep their order here.
extern "C" __global__ void __launch_bounds__(256) product_block_scaled(ARGUMENTS) {
    if constexpr (ActivationRule::e2m1 && WEIGHT == ACTIVATION) {
        const Tile tile(rows, outputs);
        const BlockStore left = place_activation(scratch, rows, width);
        const BlockStore right = place_weight(scratch, rows, width, outputs);
        // Pieces of 64 columns: 32 bytes of codes, and four or two of scales.
        constexpr int SCALES = 64 / ActivationRule::columns;
        const int pieces = left.pitch / 32;
        const u8* low = left.codes + (u64)tile.tokens[0] * left.pitch + tile.member * 4;
        const u8* high = left.codes + (u64)tile.tokens[1] * left.pitch + tile.member * 4;
        const u8* other = right.codes + (u64)tile.output * right.pitch + tile.member * 4;
        const u8* scales = left.scales + (u64)tile.tokens[tile.member % 2] * left.across;
        const u8* other_scales = right.scales + (u64)tile.output * right.across;
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int piece = tile.begin(pieces, 0); piece < tile.begin(pieces, 1); piece++) {
            const int at = piece * 32;
            const u32 a[4] = {*(const u32*)(low + at), *(const u32*)(high + at), *(const u32*)(low + at + 16),
                              *(const u32*)(high + at + 16)};
            const u32 b[2] = {*(const u32*)(other + at), *(const u32*)(other + at + 16)};
            if constexpr (ACTIVATION == NVFP4) {
                const u32 scale_a = *(const u32*)(scales + piece * SCALES);
                mma_nvfp4(sums, a, b, scale_a, *(const u32*)(other_scales + piece * SCALES));
            } else {
                const u32 scale_a = *(const u16*)(scales + piece * SCALES);
                mma_mxfp4(sums, a, b, scale_a, *(const u16*)(other_scales + piece * SCALES));
            }
        }
        const float factor =
            tensor_scale<ACTIVATION>(scratch, OF_ACTIVATION) * tensor_scale<WEIGHT>(scratch, OF_WEIGHT);
        store_tile(tile, sums, factor, product, rows, outputs);
    }
}
#endif
