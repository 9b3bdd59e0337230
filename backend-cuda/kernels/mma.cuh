// Products on tensor cores: the instruction, and the one that loads its fragments, each with a scalar twin for the emulator that
// follows the same layout. The instructions themselves run on a GPU only. Of 4-byte elements, TF32, half as many are in a fragment.
#pragma once
#include "common.cuh"

// Whether packs of a matrix's elements lie in 16 aligned bytes: where it begins, and every `stride` further on.
template <typename T>
DEVICE bool in_packs(const void* at, i64 stride, i64 other = 0) {
    const i64 size = sizeof(T);
    return (reinterpret_cast<u64>(at) | static_cast<u64>(stride * size) | static_cast<u64>(other * size)) % 16 == 0;
}

// An element as the instruction takes it.
DEVICE f16 as_factor(f16 x) { return x; }
DEVICE bf16 as_factor(bf16 x) { return x; }
// To TF32: ten bits behind the point, the nearest, of two the one farther from zero.
DEVICE float as_factor(float x) {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return bits_float(y);
#else
    return is_finite(x) ? bits_float((float_bits(x) + 0x1000u) & ~0x1fffu) : x;
#endif
}

// d += a·b for a 16×16 tile of a, 16×8 of b, 16×8 of d, spread over a warp. With g = lane/4 and t = lane%4:
// a[0..4] hold pairs along k at (row g, k 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8); b[0..2] pairs along k at (k 2t, column
// g), (2t+8, g); d[0..4] are (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1). Of TF32 k has 8, and one element takes the place of two.
//
// Before compute capability 8.0 the instruction takes f16 alone, and half as many of k.
#if defined(EMULATED) || __CUDA_ARCH__ >= 800
#define ALL_TENSOR_TYPES
#endif
#ifndef EMULATED
#ifndef ALL_TENSOR_TYPES
DEVICE void mma(float* d, const u32* a, const u32* b, f16) {
    UNROLL for (int half = 0; half < 2; half++) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[half * 2]), "r"(a[half * 2 + 1]), "r"(b[half]));
    }
}
#else
DEVICE void mma(float* d, const u32* a, const u32* b, f16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma(float* d, const u32* a, const u32* b, bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma(float* d, const u32* a, const u32* b, float) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
#else
template <typename T>
DEVICE float half_of_pair(u32 pair, int which) {
    T x;
    x.bits = static_cast<u16>(pair >> (16 * which));
    return to_float(x);
}
// Adds the products of two pairs; of TF32, the product of two elements, whose last 13 bits the instruction does not see.
template <typename T>
DEVICE void add_pairs(float& sum, u32 a, u32 b) {
    if constexpr (sizeof(T) == 4) {
        sum += bits_float(a & ~0x1fffu) * bits_float(b & ~0x1fffu);
    } else {
        for (int which = 0; which < 2; which++) sum += half_of_pair<T>(a, which) * half_of_pair<T>(b, which);
    }
}
template <typename T>
DEVICE void mma(float* d, const u32* a, const u32* b, T) {
    const u32 g = lane() / 4, t = lane() % 4;
    auto both = [](u32 low, u32 high) { return low | static_cast<u64>(high) << 32; };
    emu::show(both(a[0], a[1]), both(a[2], a[3]), both(b[0], b[1]));
    // What a lane of each quarter holds: two rows of a at k 2q and at k 2q + 8, and a column of b at both.
    for (u32 q = 0; q < 4; q++) {
        const u64 near = emu::shown(g * 4 + q, 0), far = emu::shown(g * 4 + q, 1);
        for (u32 c = 0; c < 2; c++) {
            const u64 column = emu::shown((t * 2 + c) * 4 + q, 2);
            for (u32 r = 0; r < 2; r++) {
                add_pairs<T>(d[r * 2 + c], static_cast<u32>(near >> (32 * r)), static_cast<u32>(column));
                add_pairs<T>(d[r * 2 + c], static_cast<u32>(far >> (32 * r)), static_cast<u32>(column >> 32));
            }
        }
    }
}
#endif

// Four 8×8 matrices of 16-bit elements, or not transposed ones 4 TF32 elements wide, out of shared memory. Lane 8i + r gives where row r of matrix i begins, at 16 aligned bytes;
// to[i] becomes the elements 2t and 2t+1 of its row g, or, transposed, of its column g.
#ifndef EMULATED
template <bool Transposed>
DEVICE void load_matrices(u32* to, const void* row) {
    const u32 at = static_cast<u32>(__cvta_generic_to_shared(row));
    if constexpr (Transposed) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
    }
}
#else
template <bool Transposed>
DEVICE void load_matrices(u32* to, const void* row) {
    if (reinterpret_cast<u64>(row) % 16 != 0) emu::fail("a row of a matrix is not aligned");
    const u32 g = lane() / 4, t = lane() % 4;
    for (u32 i = 0; i < 4; i++) {
        auto row_of_matrix = [&](u32 r) { return __shfl_sync(ALL_LANES, static_cast<const u16*>(row), static_cast<i32>(i * 8 + r)); };
        if constexpr (Transposed) {
            const u16 *low = row_of_matrix(t * 2), *high = row_of_matrix(t * 2 + 1);
            to[i] = low[g] | static_cast<u32>(high[g]) << 16;
        } else {
            const u16* pair = row_of_matrix(g) + t * 2;
            to[i] = pair[0] | static_cast<u32>(pair[1]) << 16;
        }
    }
}
#endif

// Of 8 columns and 8 rows of TF32, which no instruction transposes: with g = lane/4 and t = lane%4 those at (row t, column g) and
// (t + 4, g).
DEVICE void load_columns_of_8(u32* near, u32* far, const float* at, u32 lead) {
    const float* own = at + lane() % 4 * lead + lane() / 4;
    *near = float_bits(own[0]);
    *far = float_bits(own[4 * lead]);
}

// Fragments out of a matrix in shared memory whose rows begin `lead` elements apart, a multiple of 16 bytes: of 16 rows of a,
template <typename T>
DEVICE void load_a(u32* a, const T* at, u32 lead) {
    load_matrices<false>(a, at + lane() % 16 * lead + lane() / 16 * Wide<T>::N);
}
// the same where a row of memory is a column of a,
template <typename T>
DEVICE void load_columns_of_a(u32* a, const T* at, u32 lead) {
    if constexpr (sizeof(T) == 4) {
        load_columns_of_8(a, a + 2, at, lead);
        load_columns_of_8(a + 1, a + 3, at + 8, lead);
    } else {
        load_matrices<true>(a, at + (lane() % 8 + lane() / 16 * 8) * lead + lane() / 8 % 2 * 8);
    }
}
// of 16 columns of b where a row of memory is a column of b,
template <typename T>
DEVICE void load_columns_of_b(u32* b, const T* at, u32 lead) {
    load_matrices<false>(b, at + (lane() % 8 + lane() / 16 * 8) * lead + lane() / 8 % 2 * Wide<T>::N);
}
// and where it is a row.
template <typename T>
DEVICE void load_rows_of_b(u32* b, const T* at, u32 lead) {
    if constexpr (sizeof(T) == 4) {
        load_columns_of_8(b, b + 1, at, lead);
        load_columns_of_8(b + 2, b + 3, at + 8, lead);
    } else {
        load_matrices<true>(b, at + lane() % 16 * lead + lane() / 16 * 8);
    }
}

// Floats as two numbers of TF32 each: the nearest one, of two the one farther from zero, and what is left, whose last bits the instruction
// does not see. Together they have 22 bits or more of the float's 24. What is left of an infinity is no number, and so are its products.
template <int N>
struct Parts {
    u32 large[N], small[N];

    DEVICE void set(int i, float x) {
        large[i] = (float_bits(x) + 0x1000u) & ~0x1fffu;
        small[i] = float_bits(x - bits_float(large[i]));
    }
};
template <int N>
DEVICE Parts<N> parts_of(const u32* bits) {
    Parts<N> parts;
    UNROLL for (int i = 0; i < N; i++) parts.set(i, bits_float(bits[i]));
    return parts;
}

// Sums of products of floats, by three products of their parts: that of the small ones is below what either has lost. Each has sums of its
// own: none waits for another, and few additions round the large ones, which tensor cores round towards zero.
struct PartSums {
    float large[4], small_of_a[4], small_of_b[4];

    // Adds a·b; of b, columns 8·which and on.
    template <int N>
    DEVICE void add(const Parts<4>& a, const Parts<N>& b, int which) {
        mma(small_of_a, a.small, b.large + which * 2, 0.0f);
        mma(small_of_b, a.large, b.small + which * 2, 0.0f);
        mma(large, a.large, b.large + which * 2, 0.0f);
    }
    DEVICE float all(int e) const { return large[e] + (small_of_a[e] + small_of_b[e]); }
};
