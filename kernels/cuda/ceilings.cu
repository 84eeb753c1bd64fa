// The most that a card's units do: independent products in registers, nothing else.
//
// Every thread (of ceiling_f32) or warp (of the others) has CHAINS independent sums, so that none
// waits for another; the host counts 2 * CHAINS operations a thread and loop for f32, and
// 2 * 16 * 8 * k * CHAINS a warp and loop for a fragment with inner index k. Sums are written at
// the end, so that no product can be left out.

#include "common.cuh"
#include "formats.cuh"

#define CHAINS 8

extern "C" __global__ void ceiling_f32(float* out, int loops) {
    float sums[CHAINS];
    const float a = 1.0f + (float)threadIdx.x * 1e-6f;
    const float b = (float)blockIdx.x * 1e-6f;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) {
        sums[c] = (float)c;
    }
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++) {
            sums[c] = fmaf(sums[c], a, b);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) {
        sum += sums[c];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <typename Product>
__device__ __forceinline__ void fragments(float* out, int loops, Product product) {
    float sums[CHAINS][4] = {};
    const u32 a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
    const u32 b[2] = {blockIdx.x, blockIdx.x + 1};
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++) {
            product(sums[c], a, b);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) {
        sum += sums[c][0] + sums[c][1] + sums[c][2] + sums[c][3];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

struct Tf32 {
    __device__ __forceinline__ void operator()(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) const {
        mma_tf32(d, a, b);
    }
};

struct Bf16 {
    __device__ __forceinline__ void operator()(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) const {
        mma_bf16(d, a, b);
    }
};

extern "C" __global__ void ceiling_tf32(float* out, int loops) {
    fragments(out, loops, Tf32());
}

extern "C" __global__ void ceiling_bf16(float* out, int loops) {
    fragments(out, loops, Bf16());
}

#if FORMATS_HAS_E4M3
struct E4m3 {
    __device__ __forceinline__ void operator()(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) const {
        mma_e4m3(d, a, b);
    }
};

extern "C" __global__ void ceiling_fp8(float* out, int loops) {
    fragments(out, loops, E4m3());
}
#endif
