//! # Root-mean-square norms of rows: x / sqrt(mean(x^2) + eps) * weight.
//! #
//! # One block of threads has one row. Each thread adds the squares of every 256th column, then the
//! # threads of a warp are added in pairs, then the warps: 256 runs, in the same order every time.
//! # A row of a head is a row like others here, so that `wrong-width` divides by twice the width.
//! spec = "norm"
//!
//! [[candidate]]
//! name = "fp32"
//! says = "everything in f32"
//! round = { squares = "f32", sum = "f32", inverse-root = "f32", normed = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 256 }
//! [candidate.cuda]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]
//!
//! [[candidate]]
//! name = "bf16-output"
//! says = "f32 within, the result in bf16, as the model stores it"
//! round = { squares = "f32", sum = "f32", inverse-root = "f32", normed = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 256 }
//! [candidate.cuda]
//! define = ["ROUND_OUTPUT=BF16"]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]
//!
//! [[candidate]]
//! name = "bf16-before-weight"
//! says = "the normed row is rounded to bf16 before its weight, and once more after it"
//! round = { squares = "f32", sum = "f32", inverse-root = "f32", normed = "bf16", output = "bf16" }
//! accumulate = { in = "f32", splits = 256 }
//! [candidate.cuda]
//! define = ["ROUND_NORMED=BF16", "ROUND_OUTPUT=BF16"]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]
//!
//! [[candidate]]
//! name = "bf16-sum"
//! says = "the squares are added in f32 and their sum is rounded to bf16"
//! round = { squares = "f32", sum = "bf16", inverse-root = "f32", normed = "f32", output = "bf16" }
//! accumulate = { in = "f32", splits = 256 }
//! [candidate.cuda]
//! define = ["ROUND_SUM=BF16", "ROUND_OUTPUT=BF16"]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]
//!
//! # Known-bad twins, in f32: what deviates by more than f32 does is their fault.
//!
//! [[candidate]]
//! name = "eps-outside"
//! says = "eps is added to the root, not under it; it shows on quiet rows alone"
//! round = { squares = "f32", sum = "f32", inverse-root = "f32", normed = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 256 }
//! fault = "eps-outside"
//! [candidate.cuda]
//! define = ["FAULT=EPS_OUTSIDE"]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]
//!
//! [[candidate]]
//! name = "wrong-width"
//! says = "the sum is divided by twice the width of its row"
//! round = { squares = "f32", sum = "f32", inverse-root = "f32", normed = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 256 }
//! fault = "wrong-width"
//! [candidate.cuda]
//! define = ["FAULT=WRONG_WIDTH"]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]
//!
//! [[candidate]]
//! name = "weight-forgotten"
//! says = "the weight is forgotten"
//! round = { squares = "f32", sum = "f32", inverse-root = "f32", normed = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 256 }
//! fault = "weight-forgotten"
//! [candidate.cuda]
//! define = ["FAULT=WEIGHT_FORGOTTEN"]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]
//!
//! [[candidate]]
//! name = "one-plus-weight"
//! says = "the weight is taken as a deviation from 1"
//! round = { squares = "f32", sum = "f32", inverse-root = "f32", normed = "f32", output = "f32" }
//! accumulate = { in = "f32", splits = 256 }
//! fault = "one-plus-weight"
//! [candidate.cuda]
//! define = ["FAULT=ONE_PLUS_WEIGHT"]
//! launch = [{ function = "norm_rows", threads = 256, grid = [["rows", 1]] }]

#include "common.cuh"

#ifndef ROUND_SUM
#define ROUND_SUM F32
#endif
#ifndef ROUND_NORMED
#define ROUND_NORMED F32
#endif
#ifndef ROUND_OUTPUT
#define ROUND_OUTPUT F32
#endif
#ifndef FAULT
#define FAULT NONE
#endif

enum NormFault { NONE, EPS_OUTSIDE, WRONG_WIDTH, WEIGHT_FORGOTTEN, ONE_PLUS_WEIGHT };

// The number that a row with this sum of squares is multiplied by.
__device__ __forceinline__ float inverse_root(float sum, int width, float eps) {
    const float mean = __fdiv_rn(sum, FAULT == WRONG_WIDTH ? 2.0f * (float)width : (float)width);
    if (FAULT == EPS_OUTSIDE) {
        return __fdiv_rn(1.0f, __fsqrt_rn(mean) + eps);
    }
    return __fdiv_rn(1.0f, __fsqrt_rn(mean + eps));
}

extern "C" __global__ void __launch_bounds__(256)
norm_rows(const float* __restrict__ input, const float* __restrict__ weight, float* __restrict__ roots,
          float* __restrict__ output, u8* __restrict__ scratch, int rows, int splits, int width, float eps) {
    __shared__ float slots[32];
    const float* row = input + (u64)blockIdx.x * width;
    float* normed = output + (u64)blockIdx.x * width;
    float sum = 0.0f;
    for (int column = threadIdx.x; column < width; column += 256) {
        sum += row[column] * row[column];
    }
    sum = round_to<ROUND_SUM>(block_sum(sum, slots));
    const float root = inverse_root(sum, width, eps);
    if (threadIdx.x == 0) {
        roots[blockIdx.x] = root;
    }
    for (int column = threadIdx.x; column < width; column += 256) {
        const float value = round_to<ROUND_NORMED>(row[column] * root);
        const float factor = FAULT == WEIGHT_FORGOTTEN   ? 1.0f
                             : FAULT == ONE_PLUS_WEIGHT ? 1.0f + weight[column]
                                                        : weight[column];
        normed[column] = round_to<ROUND_OUTPUT>(value * factor);
    }
}
