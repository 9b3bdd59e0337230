// Attention on tensor cores: forward, and the gradients of queries, keys and values.
#pragma once
#include "attention_tiles.cuh"

#define RUN_ON_TENSORS(function, T, columns, warps, pieces, tile, ahead) function<Shape<T, columns, warps, pieces, tile, ahead>>
// Never launched.
DEVICE void nothing(const AttentionArgs&) {}
#define NOTHING(...) nothing

// A kernel's body with its shared memory: the kernel's own, or the launch's.
#define OWN_SHARED_BYTES (48 << 10)
#define WITH_ROOM(Room, S, body, a)                          \
    if constexpr (sizeof(Room<S>) > OWN_SHARED_BYTES) {      \
        DYNAMIC_SHARED(Room<S>, room);                       \
        body<S>(a, *room);                                   \
    } else {                                                 \
        SHARED(Room<S>, room, 1);                            \
        body<S>(a, *room);                                   \
    }

// ---- forward ----

// Scores become weights relative to the largest so far; what was summed before is scaled to it. `sum` is the lane's own part.
template <typename S>
DEVICE void weigh(typename S::Scores& w, typename S::Sums& sums, float (*top)[2], float (*sum)[2]) {
    each_row<S>([&](int m, int half, u32) {
        float next = top[m][half];
        UNROLL for (int n = 0; n < S::TILE / 8; n++) next = fmaxf(next, fmaxf(w[m][n][half * 2], w[m][n][half * 2 + 1]));
        next = quad_max(next);
        // Relative to 0 where all is hidden so far: -inf - -inf would be no number.
        const float origin = next == -infinity() ? 0.0f : next, kept = power_of_two(top[m][half] - origin);
        float part = 0.0f;
        UNROLL for (int n = 0; n < S::TILE / 8; n++) {
            UNROLL for (int e = half * 2; e < half * 2 + 2; e++) {
                w[m][n][e] = power_of_two(w[m][n][e] - origin);
                part += w[m][n][e];
            }
        }
        sum[m][half] = sum[m][half] * kept + part;
        top[m][half] = next;
        UNROLL for (u32 c = 0; c < S::D / 8; c++) {
            sums[m][c][half * 2] *= kept;
            sums[m][c][half * 2 + 1] *= kept;
        }
    });
}

// A block's shared memory. A warp keeps a piece of queries in registers, for which they first lie where keys and values will; there is no
// room for two, nor for one of floats.
template <typename S>
struct ForwardRoom {
    static const bool KEEPS = S::M == 1 && sizeof(typename S::T) == 2;
    static_assert(!KEEPS || S::ROWS <= 2 * S::TILE, "the queries fit in the place of keys and values");
    typename S::T rows[(2 * S::TILE + (KEEPS ? 0 : S::ROWS)) * S::LEAD];
};

template <typename S>
DEVICE void attention(const AttentionArgs& a, ForwardRoom<S>& room) {
    typedef typename S::T T;
    typedef Staged<S, S::TILE> Tile;
    typedef Staged<S, S::ROWS> Queries;
    constexpr bool KEEPS = ForwardRoom<S>::KEEPS;
    T *keys = room.rows, *values = keys + S::TILE * S::LEAD, *queries = KEEPS ? keys : values + S::TILE * S::LEAD;
    const Place p = place_of<S>(a.queries, a.heads);
    const u32 key_head = p.head / (a.heads / a.key_heads), end = a.causal ? least(a.keys, p.block_first + S::ROWS) : a.keys;
    const Matrix<T> k(a.k, p.batch, key_head, a.keys, a.depth), v(a.v, p.batch, key_head, a.keys, a.value_depth);
    Copies<Queries::PACKS + Tile::PACKS> copies;
    Queries::fetch(copies, queries, Matrix<T>(a.q, p.batch, p.head, a.queries, a.depth), p.block_first);
    queries += (p.first - p.block_first) * S::LEAD;
    u32 own[S::D / S::STEP][4];
    if constexpr (KEEPS) {
        copies.wait();
        __syncthreads();
        UNROLL for (u32 c = 0; c < S::D; c += S::STEP) load_a(own[c / S::STEP], queries + c, S::LEAD);
        __syncthreads();
    }
    if (end > 0) Tile::fetch(copies, keys, k, 0);
    float top[S::M][2], sum[S::M][2];
    typename S::Sums sums = {};
    each_row<S>([&](int m, int half, u32) {
        top[m][half] = -infinity();
        sum[m][half] = 0.0f;
    });
    // Keys are multiplied while values come, and values while the next keys come.
    for (u32 j = 0; j < end; j += S::TILE) {
        copies.wait();
        __syncthreads();
        Tile::fetch(copies, values, v, j);
        // Else none of the warp's queries sees any of these keys.
        const bool sees = !a.causal || j < p.first + S::WARP_ROWS;
        typename S::Scores w;
        if (sees) {
            const auto kept = [&](u32* to, int, u32 c) { UNROLL for (int i = 0; i < 4; i++) to[i] = own[c / S::STEP][i]; };
            if constexpr (KEEPS) multiply_by<S>(w, kept, keys, a.depth);
            else multiply<S>(w, queries, keys, a.depth);
        }
        copies.wait();
        __syncthreads();
        if (j + S::TILE < end) Tile::fetch(copies, keys, k, j + S::TILE);
        if (!sees) continue;
        to_scores<S, false>(a, p.batch, p.head, p.first, j, w);
        weigh<S>(w, sums, top, sum);
        add_product<S>(sums, w, values, a.value_depth);
    }
    each_row<S>([&](int m, int half, u32 row) {
        const float all = quad_sum(sum[m][half]), largest = top[m][half];
        sum[m][half] = all;
        if (a.logsumexp == nullptr || lane() % 4 != 0 || p.first + row >= a.queries) return;
        *statistic_at(a, a.logsumexp, p.batch, p.head, p.first + row) =
            largest == -infinity() ? -infinity() : (largest + log2f(all)) * LN_2;
    });
    store_rows<S>(a.out, p, a.queries, a.value_depth, sums, [&](int m, int half) { return share_of(sum[m][half]); });
}

template <typename S>
DEVICE void attention(const AttentionArgs& a) {
    WITH_ROOM(ForwardRoom, S, attention, a)
}

// ---- backward ----

// The logarithm of a row's denominator in powers of two; infinite where everything is hidden, or too low.
DEVICE float denominator(float logsumexp) { return logsumexp < LOWEST_LOGSUMEXP ? infinity() : logsumexp * LOG2_E; }

// A block's shared memory: rows of two matrices of its own, tiles of two others, and what belongs to a tile's rows.
template <typename S>
struct BackwardRoom {
    static const int TILES = Tiles<S>::BUFFERS * S::TILE;
    typename S::T one[S::ROWS * S::LEAD], other[S::ROWS * S::LEAD], first[TILES * S::LEAD], second[TILES * S::LEAD];
    float logs[TILES], delta[TILES];
};
template <typename S>
DEVICE void attention_dq(const AttentionArgs& a, BackwardRoom<S>& room) {
    typedef typename S::T T;
    T *queries = room.one, *grads = room.other;
    const Place p = place_of<S>(a.queries, a.heads);
    const u32 key_head = p.head / (a.heads / a.key_heads), own = (p.first - p.block_first) * S::LEAD;
    stage<S>(queries, Matrix<T>(a.q, p.batch, p.head, a.queries, a.depth), p.block_first);
    stage<S>(grads, Matrix<T>(a.grad, p.batch, p.head, a.queries, a.value_depth), p.block_first);
    const Matrix<T> k(a.k, p.batch, key_head, a.keys, a.depth), v(a.v, p.batch, key_head, a.keys, a.value_depth);
    const u32 end = a.causal ? least(a.keys, p.block_first + S::ROWS) : a.keys;
    Tiles<S> tiles(k, v, room.first, room.second, 0, end);
    float logs[S::M][2], delta[S::M][2];
    each_row<S>([&](int m, int half, u32 row) {
        const u32 query = least(p.first + row, a.queries - 1);
        logs[m][half] = denominator(*statistic_at(a, a.logsumexp, p.batch, p.head, query));
        delta[m][half] = *statistic_at(a, a.delta, p.batch, p.head, query);
    });
    typename S::Sums sums = {};
    for (u32 j = 0; j < end; j += S::TILE) {
        tiles.put(j);
        if (a.causal && j >= p.first + S::WARP_ROWS) continue;
        typename S::Scores w, through;
        multiply<S>(w, queries + own, tiles.first(), a.depth);
        to_scores<S, false>(a, p.batch, p.head, p.first, j, w);
        multiply<S>(through, grads + own, tiles.second(), a.value_depth);
        each_score<S>([&](int m, int n, int e) {
            w[m][n][e] = power_of_two(w[m][n][e] - logs[m][e / 2]) * (through[m][n][e] - delta[m][e / 2]);
        });
        add_product<S>(sums, w, tiles.first(), a.depth);
    }
    store_rows<S>(a.dq, p, a.queries, a.depth, sums, [&](int, int) { return a.scale; });
}

template <typename S>
DEVICE void attention_dq(const AttentionArgs& a) {
    WITH_ROOM(BackwardRoom, S, attention_dq, a)
}

template <typename S>
DEVICE void attention_dkv(const AttentionArgs& a, BackwardRoom<S>& room) {
    typedef typename S::T T;
    T *keys = room.one, *values = room.other;
    float *logs = room.logs, *delta = room.delta;
    const Place p = place_of<S>(a.keys, a.key_heads);
    const u32 group = a.heads / a.key_heads, own = (p.first - p.block_first) * S::LEAD;
    stage<S>(keys, Matrix<T>(a.k, p.batch, p.head, a.keys, a.depth), p.block_first);
    stage<S>(values, Matrix<T>(a.v, p.batch, p.head, a.keys, a.value_depth), p.block_first);
    typename S::Sums dk = {}, dv = {};
    for (u32 head = p.head * group; head < (p.head + 1) * group; head++) {
        // Earlier queries do not see these keys.
        const u32 begin = a.causal ? p.block_first / S::TILE * S::TILE : 0;
        const Matrix<T> q(a.q, p.batch, head, a.queries, a.depth), grad(a.grad, p.batch, head, a.queries, a.value_depth);
        Tiles<S> tiles(q, grad, room.first, room.second, begin, a.queries);
        for (u32 i = begin; i < a.queries; i += S::TILE) {
            tiles.put(i, [&] {
                if (threadIdx.x >= S::TILE) return;
                const u32 row = least(i + threadIdx.x, a.queries - 1), to = tiles.half * S::TILE + threadIdx.x;
                logs[to] = denominator(*statistic_at(a, a.logsumexp, p.batch, head, row));
                delta[to] = *statistic_at(a, a.delta, p.batch, head, row);
            });
            const float *log = logs + tiles.half * S::TILE, *shift = delta + tiles.half * S::TILE;
            if (a.causal && i + S::TILE <= p.first) continue;
            typename S::Scores w, through;
            multiply<S>(w, keys + own, tiles.first(), a.depth);
            to_scores<S, true>(a, p.batch, head, p.first, i, w);
            each_score<S>([&](int m, int n, int e) { w[m][n][e] = power_of_two(w[m][n][e] - log[column_of(n, e)]); });
            add_product<S>(dv, w, tiles.second(), a.value_depth);
            multiply<S>(through, values + own, tiles.second(), a.value_depth);
            each_score<S>([&](int m, int n, int e) { w[m][n][e] *= through[m][n][e] - shift[column_of(n, e)]; });
            add_product<S>(dk, w, tiles.first(), a.depth);
        }
    }
    store_rows<S>(a.dk, p, a.keys, a.depth, dk, [&](int, int) { return a.scale; });
    store_rows<S>(a.dv, p, a.keys, a.value_depth, dv, [](int, int) { return 1.0f; });
}
template <typename S>
DEVICE void attention_dkv(const AttentionArgs& a) {
    WITH_ROOM(BackwardRoom, S, attention_dkv, a)
}
