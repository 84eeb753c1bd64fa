// Number formats of 8 and 4 bits: codes, values, and products of them on tensor cores.
//
// Every encoder rounds once from f32, to nearest with ties to even, and saturates. Where the
// hardware converts, it is used; the integer arithmetic beside it gives the same codes, also for
// subnormal numbers, infinities and NaN, which a check compares at every code and midpoint.
// Subnormal numbers of f32 must not be flushed: never compile this with -ftz=true or fast math.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define FORMATS_HAS_E4M3 1
#else
#define FORMATS_HAS_E4M3 0
#endif

// Conversions to 4 bits and block-scaled products belong to architectures by name, not by number.
#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
#define FORMATS_HAS_BLOCK_SCALE 1
#else
#define FORMATS_HAS_BLOCK_SCALE 0
#endif
#if FORMATS_HAS_BLOCK_SCALE || defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
#define FORMATS_HAS_E2M1 1
#else
#define FORMATS_HAS_E2M1 0
#endif

#define E4M3_LARGEST 448.0f
#define E2M1_LARGEST 6.0f

// ---- e4m3 (fn): sign, 4 bits of exponent with bias 7, 3 of mantissa; 0x7f and 0xff are NaN ----

// The code of x by integer arithmetic.
__device__ __forceinline__ unsigned e4m3_encode_software(float x) {
    unsigned bits = __float_as_uint(x);
    unsigned size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return 0x7fu;
    }
    unsigned code;
    if (size < 0x3c800000u) {
        // Below 2^-6 the steps are 2^-9, which is the unit of f32 at 2^14: the sum rounds.
        code = __float_as_uint(__fadd_rn(__uint_as_float(size), 16384.0f)) - 0x46800000u;
    } else {
        // A carry out of the mantissa raises the exponent, which is the right neighbour there too.
        code = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
        code = code > 0x7eu ? 0x7eu : code;
    }
    return code | (bits >> 24 & 0x80u);
}

// The codes of two numbers, that of `low` in the low byte.
__device__ __forceinline__ unsigned e4m3_encode2(float low, float high) {
#if FORMATS_HAS_E4M3
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return e4m3_encode_software(low) | e4m3_encode_software(high) << 8;
#endif
}

__device__ __forceinline__ unsigned e4m3_encode(float x) {
#if FORMATS_HAS_E4M3
    return e4m3_encode2(x, 0.0f) & 0xffu;
#else
    return e4m3_encode_software(x);
#endif
}

// Four codes in a word, the first in the low byte, as the tensor cores take them.
__device__ __forceinline__ unsigned e4m3_encode4(float a, float b, float c, float d) {
    return e4m3_encode2(a, b) | e4m3_encode2(c, d) << 16;
}

// The value of a code, exactly. The bits of the code are those of an f32 that is 2^120 times too
// small, and for the subnormal codes a subnormal one; the product with 2^120 is exact.
__device__ __forceinline__ float e4m3_decode(unsigned code) {
    unsigned size = code & 0x7fu;
    if (size == 0x7fu) {
        return __uint_as_float(0x7fc00000u);
    }
    float value = __fmul_rn(__uint_as_float(size << 20), __uint_as_float(247u << 23));
    return __uint_as_float(__float_as_uint(value) | (code & 0x80u) << 24);
}

// ---- e5m2: sign, 5 bits of exponent with bias 15, 2 of mantissa; 0x7c is infinite ----

__device__ __forceinline__ float e5m2_decode(unsigned code) {
    unsigned size = code & 0x7fu;
    float value = __fmul_rn(__uint_as_float(size << 21), __uint_as_float(239u << 23));
    if (size >= 0x7cu) {
        value = __uint_as_float(size == 0x7cu ? 0x7f800000u : 0x7fc00000u);
    }
    return __uint_as_float(__float_as_uint(value) | (code & 0x80u) << 24);
}

// ---- e2m1: sign, 2 bits of exponent with bias 1, 1 of mantissa; NaN becomes +6 ----

// The code of x by integer arithmetic, in the low four bits. A zero keeps its sign.
__device__ __forceinline__ unsigned e2m1_encode_software(float x) {
    unsigned bits = __float_as_uint(x);
    unsigned size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return 7u;
    }
    unsigned code;
    if (size < 0x3f800000u) {
        // Below 1 the steps are 1/2, which is the unit of f32 at 2^22.
        code = __float_as_uint(__fadd_rn(__uint_as_float(size), 4194304.0f)) - 0x4a800000u;
    } else {
        code = ((size + 0x1fffffu + ((size >> 22) & 1u)) >> 22) - (126u << 1);
        code = code > 7u ? 7u : code;
    }
    return code | (bits >> 28 & 8u);
}

// The codes of two numbers in a byte, that of `low` in the low nibble.
__device__ __forceinline__ unsigned e2m1_encode2(float low, float high) {
#if FORMATS_HAS_E2M1
    unsigned short pair;
    asm("{\n\t.reg .b8 byte;\n\t"
        "cvt.rn.satfinite.e2m1x2.f32 byte, %1, %2;\n\t"
        "mov.b16 %0, {byte, 0};\n\t}"
        : "=h"(pair)
        : "f"(high), "f"(low));
    return pair & 0xffu;
#else
    return e2m1_encode_software(low) | e2m1_encode_software(high) << 4;
#endif
}

__device__ __forceinline__ unsigned e2m1_encode(float x) {
#if FORMATS_HAS_E2M1
    return e2m1_encode2(x, 0.0f) & 0xfu;
#else
    return e2m1_encode_software(x);
#endif
}

// The value of a code, exactly; the bits above the low four are not looked at.
__device__ __forceinline__ float e2m1_decode(unsigned code) {
    float value = __fmul_rn(__uint_as_float((code & 7u) << 22), __uint_as_float(253u << 23));
    return __uint_as_float(__float_as_uint(value) | (code & 8u) << 28);
}

// ---- ue8m0: a power of two, its exponent the byte less 127; 0xff is NaN ----

// The least power of two that is not below `scale`. NaN, infinite and negative scales become NaN,
// what is at most 2^-127 becomes 2^-127, what is above 2^127 becomes 2^127.
__device__ __forceinline__ unsigned ue8m0_encode_up(float scale) {
    unsigned bits = __float_as_uint(scale);
    unsigned size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u || (bits >> 31 && size)) {
        return 0xffu;
    }
    if (size <= 0x00400000u) {
        return 0u;
    }
    unsigned code = (size >> 23) + ((size & 0x7fffffu) ? 1u : 0u);
    return code > 254u ? 254u : code;
}

__device__ __forceinline__ float ue8m0_decode(unsigned code) {
    // 2^-127 is below the normal numbers of f32.
    unsigned bits = code == 0u ? 0x00400000u : code << 23;
    return __uint_as_float(code == 0xffu ? 0x7fc00000u : bits);
}

// ---- maxima that do not lose a NaN ----

// The larger of two numbers that are not negative; NaN if one is. Their bits order as they do, and
// those of a NaN are above all others.
__device__ __forceinline__ float larger(float a, float b) {
    unsigned x = __float_as_uint(a), y = __float_as_uint(b);
    return __uint_as_float(x > y ? x : y);
}

__device__ __forceinline__ float magnitude(float x) {
    return __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
}

// ---- products on tensor cores; see mma_bf16 of common.cuh for how rows lie on lanes ----

// d += a * b, a being 16x32 by rows and b 32x8 by columns, in e4m3, four codes a register.
//
// With group = lane / 4 and member = lane % 4: a[0] holds row `group`, columns 4*member and the three
// after it; a[1] row group + 8; a[2] and a[3] the same rows, 16 columns on. b[0] holds column `group`,
// rows 4*member and the three after it, b[1] 16 rows on. d[0], d[1] are row `group`, columns 2*member
// and the next; d[2], d[3] row group + 8.
//
// Ada and Blackwell have a unit for this instruction, whose inner sums may be held with fewer bits
// than f32 has. For Hopper the compiler converts the codes to f16, which is exact, and multiplies
// those: its own unit for e4m3 is reached through wgmma alone.
#if FORMATS_HAS_E4M3
__device__ __forceinline__ void mma_e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// d += (a * scale of a) * (b * scale of b), a being 16x64 by rows and b 64x8 by columns, in e2m1, eight
// codes a register, the first in the low nibble.
//
// a[0] holds row `group`, columns 8*member and the seven after it; a[1] row group + 8; a[2] and a[3] the
// same rows, 32 columns on. b[0] holds column `group`, rows 8*member and the seven after it, b[1] 32
// rows on. d lies as in mma_e4m3.
//
// Scales come from the lanes that the selector {byte, thread} = {0, 0} names: those of a's row
// group + 8*(member % 2) from the lanes with member 0 and 1, those of b's column `group` from the lane
// with member 0. The bytes of the register, from the lowest, are those of successive blocks: two of 32
// columns in ue8m0, or four of 16 in e4m3 without sign. The other lanes' registers are not looked at.
#if FORMATS_HAS_BLOCK_SCALE
__device__ __forceinline__ void mma_mxfp4(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                          unsigned scale_a, unsigned scale_b) {
    asm volatile(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, 0}, %11, {0, 0};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scale_a), "r"(scale_b));
}

__device__ __forceinline__ void mma_nvfp4(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                          unsigned scale_a, unsigned scale_b) {
    asm volatile(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, 0}, %11, {0, 0};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scale_a), "r"(scale_b));
}
#endif

// d += a * b on Hopper's own unit for e4m3, by the four warps of a group together, a being 64x32 by
// rows in registers, those of warp w the rows 16*w to 16*w + 15 laid as in mma_e4m3, and b 32x8 by
// columns in shared memory: 16 rows of a column are 16 bytes in a row, the eight columns after one
// another, and the other 16 rows 128 bytes on. d lies as in mma_e4m3, warp by warp. With `fresh` what
// d held is dropped. Only after wgmma_wait is d there, and a and b may be changed.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FORMATS_HAS_WGMMA 1

__device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_e4m3(float (&d)[4], const unsigned (&a)[4], const void* b, bool fresh) {
    // Addresses and distances in units of 16 bytes: where b begins, and from one 16 rows to the next.
    const unsigned start = (unsigned)__cvta_generic_to_shared(b);
    const unsigned long long place = (unsigned long long)((start & 0x3ffffu) >> 4) | 8ull << 16 | 8ull << 32;
    asm volatile(
        "{\n\t.reg .pred keep;\n\tsetp.eq.u32 keep, %9, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, keep, 1, 1;\n\t}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(place), "r"((unsigned)fresh)
        : "memory");
}

__device__ __forceinline__ void wgmma_wait(float (&d)[4]) {
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
}

// Makes what this thread wrote into shared memory visible to wgmma, after a barrier of the block.
__device__ __forceinline__ void wgmma_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#else
#define FORMATS_HAS_WGMMA 0
#endif

// ---- block formats: narrow elements that share a scale ----

// What a tensor is stored in.
enum BlockFormat { PLAIN, PLAIN_BF16, FP8_1X128, FP8_1X128_UE8M0, FP8_128X128, FP8_128X128_UE8M0, MXFP4, NVFP4 };

template <int FORMAT>
struct BlockRule {
    static constexpr bool plain = FORMAT == PLAIN || FORMAT == PLAIN_BF16;
    static constexpr bool e2m1 = FORMAT == MXFP4 || FORMAT == NVFP4;
    static constexpr bool square = FORMAT == FP8_128X128 || FORMAT == FP8_128X128_UE8M0;
    static constexpr bool power_of_two = FORMAT == FP8_1X128_UE8M0 || FORMAT == FP8_128X128_UE8M0 || FORMAT == MXFP4;
    static constexpr bool scale_is_f32 = FORMAT == FP8_1X128 || FORMAT == FP8_128X128;
    // Columns of a block, and bytes of 128 codes: two of 4 bits lie in a byte, the first in the low nibble.
    static constexpr int columns = FORMAT == MXFP4 ? 32 : FORMAT == NVFP4 ? 16 : 128;
    static constexpr int chunk_bytes = e2m1 ? 64 : 128;
};

// A quantised tensor. Its rows are padded to whole chunks of 128 columns, with zeros.
struct BlockStore {
    unsigned char* codes;
    // [block rows, across]: f32, or one byte each.
    unsigned char* scales;
    // Bytes from one row of codes to the next.
    int pitch;
    // Blocks beside one another, those of the padding included.
    int across;
};

// What the elements of a block are divided by; `stored` becomes the scale as it is stored. `tensor`
// is NVFP4's scale of the whole tensor. A LATE power of two is rounded up for the store alone.
template <int FORMAT, bool LATE>
__device__ __forceinline__ float block_make_scale(float amax, float tensor, unsigned& stored) {
    // The floors are 1e-4, and for MXFP4 6 * 2^-126, which makes the smallest scale a normal number.
    const float floor = FORMAT == NVFP4 ? 0.0f : FORMAT == MXFP4 ? __uint_as_float(0x01c00000u) : 1e-4f;
    const float largest = BlockRule<FORMAT>::e2m1 ? E2M1_LARGEST : E4M3_LARGEST;
    const float wanted = __fdiv_rn(larger(amax, floor), largest);
    if (FORMAT == NVFP4) {
        if (__float_as_uint(wanted) >= 0x7f800000u) {
            stored = 0x7fu;
        } else {
            stored = wanted == 0.0f ? 0u : e4m3_encode(__fdiv_rn(wanted, tensor));
        }
        return __fmul_rn(e4m3_decode(stored), tensor);
    }
    if (BlockRule<FORMAT>::power_of_two) {
        stored = ue8m0_encode_up(wanted);
        return LATE ? wanted : ue8m0_decode(stored);
    }
    stored = __float_as_uint(wanted);
    return wanted;
}

template <int FORMAT>
__device__ __forceinline__ void block_store_scale(const BlockStore& tensor, size_t block, unsigned stored) {
    if (BlockRule<FORMAT>::scale_is_f32) {
        ((unsigned*)tensor.scales)[block] = stored;
    } else {
        tensor.scales[block] = (unsigned char)stored;
    }
}

// Stores the codes of four neighbours, the first at a multiple of four. A block whose scale is zero
// holds zeros, or values that its format loses.
template <int FORMAT>
__device__ __forceinline__ void block_store_codes(const BlockStore& tensor, int row, int column,
                                                  const float (&values)[4], float divisor) {
    float quotients[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        quotients[i] = divisor == 0.0f ? 0.0f : __fdiv_rn(values[i], divisor);
    }
    unsigned char* codes = tensor.codes + (size_t)row * tensor.pitch;
    if (BlockRule<FORMAT>::e2m1) {
        const unsigned pair = e2m1_encode2(quotients[0], quotients[1]);
        *(unsigned short*)(codes + column / 2) = (unsigned short)(pair | e2m1_encode2(quotients[2], quotients[3]) << 8);
    } else {
        *(unsigned*)(codes + column) = e4m3_encode4(quotients[0], quotients[1], quotients[2], quotients[3]);
    }
}

template <int FORMAT>
__device__ __forceinline__ float block_scale_at(const BlockStore& tensor, size_t block) {
    if (BlockRule<FORMAT>::scale_is_f32) {
        return ((const float*)tensor.scales)[block];
    }
    const unsigned code = tensor.scales[block];
    return BlockRule<FORMAT>::power_of_two ? ue8m0_decode(code) : e4m3_decode(code);
}

// The value of one code; of a wrong reader that is SWAPPED the high nibble is the first, and one that
// takes codes AS_E5M2 does so with those of e4m3.
template <int FORMAT, bool SWAPPED, bool AS_E5M2>
__device__ __forceinline__ float block_element_at(const BlockStore& tensor, int row, int column) {
    const unsigned char* codes = tensor.codes + (size_t)row * tensor.pitch;
    if (BlockRule<FORMAT>::e2m1) {
        const bool high = (column % 2 != 0) != SWAPPED;
        const unsigned pair = codes[column / 2];
        return e2m1_decode(high ? pair >> 4 : pair);
    }
    return AS_E5M2 ? e5m2_decode(codes[column]) : e4m3_decode(codes[column]);
}
