// What the kernels of all specs share: rounding of f32 into wider formats, packing, products of
// matrix fragments, and sums over a warp. Not responsible for formats of 8 bits and fewer, which
// are in formats.cuh.
//
// Every rule here has the bits of the CPU's format module, which says why a rule is as it is.

#ifndef PATCHBENCH_COMMON_CUH
#define PATCHBENCH_COMMON_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The names of rounding rules in a candidate's macros, such as ROUND_OUTPUT=BF16.
#define F32 0
#define TF32 1
#define BF16 2
#define F16 3

#define FULL_WARP 0xffffffffu

__device__ __forceinline__ constexpr int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

__device__ __forceinline__ float infinity() {
    return __uint_as_float(0x7f800000u);
}

__device__ __forceinline__ bool is_nan(float x) {
    return (__float_as_uint(x) & 0x7fffffffu) > 0x7f800000u;
}

// bfloat16 of x: nearest, ties to even; beyond the range infinite; NaN stays NaN.
__device__ __forceinline__ u16 bf16_bits(float x) {
    const u32 bits = __float_as_uint(x);
    if (is_nan(x)) {
        return (u16)(bits >> 16 | 0x40u);
    }
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ __forceinline__ float from_bf16(u16 bits) {
    return __uint_as_float((u32)bits << 16);
}

__device__ __forceinline__ float round_bf16(float x) {
    return from_bf16(bf16_bits(x));
}

// TF32 of x: nearest, ties to even, on 10 stored mantissa bits. The conversion of PTX takes ties
// away from zero, and a matrix unit that is given plain f32 truncates, so that neither is used.
__device__ __forceinline__ float round_tf32(float x) {
    const u32 bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return x;
    }
    return __uint_as_float((bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

// binary16 of x: nearest, ties to even, with subnormals; infinite from 65,520 on.
__device__ __forceinline__ u16 f16_bits(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ __forceinline__ float from_f16(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ __forceinline__ float round_f16(float x) {
    return from_f16(f16_bits(x));
}

// x by the rule of this name.
template <int RULE>
__device__ __forceinline__ float round_to(float x) {
    static_assert(RULE == F32 || RULE == TF32 || RULE == BF16 || RULE == F16, "no such rule");
    if (RULE == TF32) {
        return round_tf32(x);
    }
    if (RULE == BF16) {
        return round_bf16(x);
    }
    if (RULE == F16) {
        return round_f16(x);
    }
    return x;
}

// Two values in bfloat16, the first in the lower half, as fragments want neighbours of a row.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// d += a b with a [16, 16] in rows and b [16, 8] in columns, both bfloat16, sums in f32.
//
// With g = lane / 4 and t = lane % 4, each register has two neighbours along the inner index k:
//   a[0] row g,     k 2t, 2t + 1        a[2] row g,     k 2t + 8, 2t + 9
//   a[1] row g + 8, k 2t, 2t + 1        a[3] row g + 8, k 2t + 8, 2t + 9
//   b[0] column g,  k 2t, 2t + 1        b[1] column g,  k 2t + 8, 2t + 9
//   d[0], d[1] row g, columns 2t, 2t + 1;  d[2], d[3] row g + 8, the same columns
__device__ __forceinline__ void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same in half precision.
__device__ __forceinline__ void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b with a [16, 8] in rows and b [8, 8] in columns, both TF32, sums in f32. The operands
// are bits of f32 that have been rounded before: the unit drops what is below TF32.
//
//   a[0] row g, k t    a[1] row g + 8, k t    a[2] row g, k t + 4    a[3] row g + 8, k t + 4
//   b[0] column g, k t    b[1] column g, k t + 4;    d as above
__device__ __forceinline__ void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four neighbours of a row of this width, with zeros beyond its end. `at` is a multiple of 4, and
// rows lie one after another in a buffer that is 16-byte aligned.
__device__ __forceinline__ float4 load4(const float* row, int at, int width) {
    if (width % 4 == 0 && at < width) {
        return *reinterpret_cast<const float4*>(row + at);
    }
    float4 four;
    four.x = at < width ? row[at] : 0.0f;
    four.y = at + 1 < width ? row[at + 1] : 0.0f;
    four.z = at + 2 < width ? row[at + 2] : 0.0f;
    four.w = at + 3 < width ? row[at + 3] : 0.0f;
    return four;
}

// d += a b over 16 values of the inner index, with operands rounded by the rule (BF16 or TF32) on
// the way. Lane 4g + t gives values 4t to 4t + 3 of rows g and g + 8 of a and of column g of b.
//
// Which value takes which place along the inner index is free as long as a and b agree: here each
// lane's places have four neighbours, which are one load.
template <int RULE>
__device__ __forceinline__ void mma_16(float (&d)[4], float4 upper, float4 lower, float4 column) {
    static_assert(RULE == BF16 || RULE == TF32, "no such product");
    if (RULE == BF16) {
        const u32 a[4] = {pack_bf16(upper.x, upper.y), pack_bf16(lower.x, lower.y), pack_bf16(upper.z, upper.w),
                          pack_bf16(lower.z, lower.w)};
        const u32 b[2] = {pack_bf16(column.x, column.y), pack_bf16(column.z, column.w)};
        mma_bf16(d, a, b);
        return;
    }
    const u32 a[4] = {__float_as_uint(round_tf32(upper.x)), __float_as_uint(round_tf32(lower.x)),
                      __float_as_uint(round_tf32(upper.y)), __float_as_uint(round_tf32(lower.y))};
    const u32 b[2] = {__float_as_uint(round_tf32(column.x)), __float_as_uint(round_tf32(column.y))};
    mma_tf32(d, a, b);
    const u32 next_a[4] = {__float_as_uint(round_tf32(upper.z)), __float_as_uint(round_tf32(lower.z)),
                           __float_as_uint(round_tf32(upper.w)), __float_as_uint(round_tf32(lower.w))};
    const u32 next_b[2] = {__float_as_uint(round_tf32(column.z)), __float_as_uint(round_tf32(column.w))};
    mma_tf32(d, next_a, next_b);
}

// Sum and maximum over a warp, in every lane. Partners add the same two values, so that all lanes
// have the same bits, and the order is the same in every run.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int apart = 16; apart > 0; apart >>= 1) {
        x += __shfl_xor_sync(FULL_WARP, x, apart);
    }
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int apart = 16; apart > 0; apart >>= 1) {
        x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, apart));
    }
    return x;
}

// Sum over a block of up to 1024 threads, in every thread; `slots` are 32 floats of shared memory
// that may be used again after the call. All threads of all warps take part.
__device__ __forceinline__ float block_sum(float x, float* slots) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) {
        slots[threadIdx.x / 32] = x;
    }
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? slots[threadIdx.x % 32] : 0.0f;
    x = warp_sum(x);
    __syncthreads();
    return x;
}

__device__ __forceinline__ float block_max(float x, float* slots) {
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) {
        slots[threadIdx.x / 32] = x;
    }
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? slots[threadIdx.x % 32] : -infinity();
    x = warp_max(x);
    __syncthreads();
    return x;
}

#endif
