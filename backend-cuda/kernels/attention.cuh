// What the attention kernels share: their argument, where a block works, what a row's sum means.
#pragma once
#include "arguments.cuh"
#include "common.cuh"

template <typename T>
DEVICE T* row_of(const Heads& m, u32 b, u32 h, u32 i) {
    return static_cast<T*>(m.base) + b * m.batch + h * m.head + i * m.row;
}

// What is added to the score of query i and key j; there is a mask.
template <typename T>
DEVICE const T* mask_at(const AttentionArgs& a, u32 b, u32 h, u32 i, u32 j) {
    const i64* s = a.mask_strides;
    return static_cast<const T*>(a.mask) + b * s[0] + h * s[1] + i * s[2] + j * s[3];
}

// Below this a row's gradients are zero: `AttentionGrad::LOWEST_LOGSUMEXP`.
#define LOWEST_LOGSUMEXP -16777216.0f

// A query's place in `[batch, head, query]`.
DEVICE float* statistic_at(const AttentionArgs& a, float* of, u32 b, u32 h, u32 query) {
    return of + (static_cast<u64>(b) * a.heads + h) * a.queries + query;
}

// Where a block and its warps work: `rows` rows for each of `heads` heads of each batch, of which a block and a warp have some.
struct Place {
    u32 batch, head, block_first, first;
};
DEVICE Place place_of(u32 rows, u32 heads, u32 block_rows, u32 warp_rows) {
    const u32 blocks = (rows + block_rows - 1) / block_rows, above = blockIdx.x / blocks;
    Place p;
    p.block_first = blockIdx.x % blocks * block_rows;
    p.first = p.block_first + threadIdx.x / WARP * warp_rows;
    p.head = above % heads;
    p.batch = above / heads;
    return p;
}

// What a row's weighted sums are multiplied by, from the sum of its weights: nothing is left of a row that sees no key.
DEVICE float share_of(float sum) { return sum > 0.0f ? 1.0f / sum : sum == 0.0f ? 0.0f : sum; }
