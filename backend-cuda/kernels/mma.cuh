// Products on tensor cores: one instruction, with a scalar twin for the emulator that follows the same layout of
// fragments. The instruction itself runs on a GPU only.
#pragma once
#include "common.cuh"

// d += a·b for a 16×16 tile of a, 16×8 of b, 16×8 of d, spread over a warp. With g = lane/4 and t = lane%4:
// a[0..4] hold pairs along k at (row g, k 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8); b[0..2] pairs along k at (k 2t, column
// g), (2t+8, g); d[0..4] are (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
#if defined(EMULATED) || __CUDA_ARCH__ >= 800
#define HAS_TENSORS
#endif
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
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
#elif defined(EMULATED)
// The twin.
template <typename T>
DEVICE float half_of_pair(u32 pair, int which) {
    T x;
    x.bits = static_cast<u16>(pair >> (16 * which));
    return to_float(x);
}
template <typename T>
DEVICE void mma(float* d, const u32* a, const u32* b, T) {
    const u32 g = lane() / 4, t = lane() % 4;
    for (u32 k = 0; k < 16; k++) {
        // Column k of a: pair (k%8)/2 of lane (row, (k%8)/2); row k of b likewise.
        const u32 quarter = k % 8 / 2, upper = k / 8, which = k % 2;
        float rows[2], columns[2];
        for (u32 r = 0; r < 2; r++) {
            u32 pairs[2][2];
            for (u32 u = 0; u < 2; u++) pairs[u][r] = __shfl_sync(ALL_LANES, a[u * 2 + r], g * 4 + quarter);
            rows[r] = half_of_pair<T>(pairs[upper][r], which);
        }
        for (u32 c = 0; c < 2; c++) {
            u32 pairs[2];
            for (u32 u = 0; u < 2; u++) pairs[u] = __shfl_sync(ALL_LANES, b[u], (t * 2 + c) * 4 + quarter);
            columns[c] = half_of_pair<T>(pairs[upper], which);
        }
        for (u32 r = 0; r < 2; r++) {
            for (u32 c = 0; c < 2; c++) d[r * 2 + c] += rows[r] * columns[c];
        }
    }
}
#endif
