// Matrix products of whatever can be read as matrices: plain ones, and convolutions as implicit ones.
//
// A Problem says what its matrices are: the type of their elements; `a_row(batch, m)`, `b_column(batch, n)` and
// `step(batch, k)`, what is worth knowing of a row, a column or an inner index before elements are read; `a(row, step, wanted)` and
// `b(column, step, wanted)`, 0 where it is not wanted; `store(batch, m, n, sum)`; and whether neighbouring threads read along k
// or across it. `Sizes` has the rest. Where TABLES is set, columns and steps cost so much that a block computes each once, into
// shared memory; steps may then be asked for beyond the last k, and `hide(step)` is told of those that nobody wants.
#pragma once
#include "arguments.cuh"
#include "common.cuh"

// One result, or one partial sum.
template <typename P>
DEVICE void put(const P& p, const Sizes& s, u32 batch, u32 split, u32 m, u32 n, float sum) {
    if (s.partial == nullptr) {
        p.store(batch, m, n, sum);
    } else {
        s.partial[((static_cast<u64>(split) * s.batches + batch) * s.m + m) * s.n + n] = sum;
    }
}

// A thread, or a warp, per result: small matrices, and those with a side of a few elements.
template <int Group, typename P>
DEVICE void gemm_direct(const P& p, const Sizes& s) {
    const u64 results = static_cast<u64>(s.m) * s.n * s.batches * s.splits;
    const u64 first = Group == 1 ? thread_index() : thread_index() / WARP;
    const u64 step = Group == 1 ? thread_count() : thread_count() / WARP;
    for (u64 i = first; i < results; i += step) {
        const u32 n = static_cast<u32>(i % s.n);
        const u64 above = i / s.n;
        const u32 m = static_cast<u32>(above % s.m);
        const u32 part = static_cast<u32>(above / s.m), batch = part % s.batches, split = part / s.batches;
        const auto row = p.a_row(batch, m);
        const auto column = p.b_column(batch, n);
        const u32 begin = split * s.split_k, end = least(begin + s.split_k, s.k);
        // Two levels of sums keep the error of a long one small.
        float sum = 0.0f, run = 0.0f;
        u32 length = 0;
        for (u32 k = begin + (Group == 1 ? 0 : lane()); k < end; k += Group) {
            const auto step = p.step(batch, k);
            run += widen(p.a(row, step, true)) * widen(p.b(column, step, true));
            if (++length == 64) {
                sum += run;
                run = 0.0f;
                length = 0;
            }
        }
        sum += run;
        if constexpr (Group > 1) sum = warp_sum(sum);
        if (Group == 1 || lane() == 0) put(p, s, batch, split, m, n, sum);
    }
}

// Adds the parts up, in order.
template <typename P>
DEVICE void gemm_finish(const P& p, const Sizes& s) {
    const u64 results = static_cast<u64>(s.m) * s.n * s.batches;
    for (u64 i = thread_index(); i < results; i += thread_count()) {
        float sum = 0.0f;
        for (u32 split = 0; split < s.splits; split++) sum += s.partial[split * results + i];
        const u64 above = i / s.n;
        p.store(static_cast<u32>(above / s.m), static_cast<u32>(above % s.m), static_cast<u32>(i % s.n), sum);
    }
}

// Where a block's tile lies.
struct Tile {
    u32 m, n, batch, split, begin, end;
};
template <int BM, int BN>
DEVICE Tile tile_of_block(const Sizes& s) {
    const u32 across = (s.n + BN - 1) / BN, down = (s.m + BM - 1) / BM;
    const u32 x = blockIdx.x % across, above = blockIdx.x / across;
    const u32 y = above % down, part = above / down;
    Tile t;
    t.m = y * BM;
    t.n = x * BN;
    t.batch = part % s.batches;
    t.split = part / s.batches;
    t.begin = t.split * s.split_k;
    t.end = least(t.begin + s.split_k, s.k);
    return t;
}

// How a block's threads share the elements of a Long×Deep tile: element `e` of thread `t`, along k or across it.
template <int Long, int Deep, int Threads>
struct Share {
    static const int COUNT = Long * Deep / Threads;
    DEVICE static u32 at(bool along_k, int e) {
        return along_k ? threadIdx.x / Deep + e * (Threads / Deep) : threadIdx.x % Long;
    }
    DEVICE static u32 deep(bool along_k, int e) {
        return along_k ? threadIdx.x % Deep : threadIdx.x / Long + e * (Threads / Long);
    }
};

// The steps of a tile's BK inner indices, in a table that the block shares, or each computed where it is used.
template <typename P, int BK>
struct Steps {
    static const int COUNT = P::TABLES ? BK : 1;
    typedef typename P::Step Step;
    const P& p;
    const Tile& tile;
    Step* table;

    // Those of the tile from k0 on; with a barrier before, for who still reads the last ones, and after.
    DEVICE void fill(u32 k0) const {
        if (!P::TABLES || threadIdx.x >= BK) return;
        Step step = p.step(tile.batch, k0 + threadIdx.x);
        if constexpr (P::TABLES) {
            if (k0 + threadIdx.x >= tile.end) p.hide(step);
        }
        table[threadIdx.x] = step;
    }
    DEVICE Step at(u32 k0, u32 deep) const {
        if constexpr (P::TABLES) return table[deep];
        else return p.step(tile.batch, k0 + deep);
    }
};

// A block per BM×BN results, TM×TN for each thread, on the ordinary cores. The next tile is read from memory while the
// current one is multiplied.
template <int BM, int BN, int BK, int TM, int TN, typename P>
DEVICE void gemm_tile(const P& p, const Sizes& s) {
    static const int T = BM / TM * (BN / TN);
    static const int LEAD_A = BM + 4, LEAD_B = BN + 4;
    typedef Share<BM, BK, T> ShareA;
    typedef Share<BN, BK, T> ShareB;
    SHARED(float, as, BK * LEAD_A);
    SHARED(float, bs, BK * LEAD_B);
    typedef Steps<P, BK> Table;
    SHARED(typename P::Step, table, Table::COUNT);
    const Tile tile = tile_of_block<BM, BN>(s);
    const Table steps{p, tile, table};
    const bool a_along = p.a_along_k(), b_along = p.b_along_k();
    typename P::Row rows[ShareA::COUNT];
    typename P::Column columns[ShareB::COUNT];
    UNROLL for (int e = 0; e < ShareA::COUNT; e++) {
        const u32 m = tile.m + ShareA::at(a_along, e);
        rows[e] = p.a_row(tile.batch, least(m, s.m - 1));
    }
    UNROLL for (int e = 0; e < ShareB::COUNT; e++) {
        const u32 n = tile.n + ShareB::at(b_along, e);
        columns[e] = p.b_column(tile.batch, least(n, s.n - 1));
    }
    float next_a[ShareA::COUNT], next_b[ShareB::COUNT];
    auto read = [&](u32 k0) {
        UNROLL for (int e = 0; e < ShareA::COUNT; e++) {
            const u32 deep = ShareA::deep(a_along, e);
            next_a[e] = widen(p.a(rows[e], steps.at(k0, deep), k0 + deep < tile.end));
        }
        UNROLL for (int e = 0; e < ShareB::COUNT; e++) {
            const u32 deep = ShareB::deep(b_along, e);
            next_b[e] = widen(p.b(columns[e], steps.at(k0, deep), k0 + deep < tile.end));
        }
    };
    float sums[TM][TN] = {};
    const u32 ty = threadIdx.x / (BN / TN), tx = threadIdx.x % (BN / TN);
    steps.fill(tile.begin);
    if constexpr (P::TABLES) __syncthreads();
    read(tile.begin);
    if constexpr (P::TABLES) __syncthreads();
    for (u32 k0 = tile.begin; k0 < tile.end; k0 += BK) {
        UNROLL for (int e = 0; e < ShareA::COUNT; e++) {
            as[ShareA::deep(a_along, e) * LEAD_A + ShareA::at(a_along, e)] = next_a[e];
        }
        UNROLL for (int e = 0; e < ShareB::COUNT; e++) {
            bs[ShareB::deep(b_along, e) * LEAD_B + ShareB::at(b_along, e)] = next_b[e];
        }
        steps.fill(k0 + BK);
        __syncthreads();
        if (k0 + BK < tile.end) read(k0 + BK);
        UNROLL for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            UNROLL for (int i = 0; i < TM; i += 4) {
                const Pack<float, 4> pack = load_pack<4>(as + k * LEAD_A + (i / 4 * (BM / TM) + ty) * 4);
                UNROLL for (int j = 0; j < 4; j++) a[i + j] = pack.e[j];
            }
            UNROLL for (int i = 0; i < TN; i += 4) {
                const Pack<float, 4> pack = load_pack<4>(bs + k * LEAD_B + (i / 4 * (BN / TN) + tx) * 4);
                UNROLL for (int j = 0; j < 4; j++) b[i + j] = pack.e[j];
            }
            UNROLL for (int i = 0; i < TM; i++) {
                UNROLL for (int j = 0; j < TN; j++) sums[i][j] += a[i] * b[j];
            }
        }
        __syncthreads();
    }
    UNROLL for (int i = 0; i < TM; i++) {
        const u32 m = tile.m + (i / 4 * (BM / TM) + ty) * 4 + i % 4;
        UNROLL for (int j = 0; j < TN; j++) {
            const u32 n = tile.n + (j / 4 * (BN / TN) + tx) * 4 + j % 4;
            if (m < s.m && n < s.n) put(p, s, tile.batch, tile.split, m, n, sums[i][j]);
        }
    }
}

// The forms of a product: `Problem` is a template of the element type, made from the kernel's argument.
template <template <typename> class Problem, typename T, typename Args>
struct Forms {
    DEVICE static void thread(const Args& a) { gemm_direct<1>(Problem<T>{a}, a.sizes); }
    DEVICE static void warp(const Args& a) { gemm_direct<WARP>(Problem<T>{a}, a.sizes); }
    DEVICE static void small(const Args& a) { gemm_tile<64, 64, 16, 4, 4>(Problem<T>{a}, a.sizes); }
    DEVICE static void large(const Args& a) { gemm_tile<128, 128, 8, 8, 8>(Problem<T>{a}, a.sizes); }
    DEVICE static void finish(const Args& a) { gemm_finish(Problem<T>{a}, a.sizes); }
};
#define GEMM_FORMS(function, Problem, T, tag, Args)                                                  \
    FLAT_KERNEL(function##_##tag##_thread, Args, THREADS, Forms<Problem, T, Args>::thread)           \
    BLOCK_KERNEL(function##_##tag##_warp, Args, THREADS, Forms<Problem, T, Args>::warp)              \
    BUSY_BLOCK_KERNEL(function##_##tag##_small, Args, THREADS, 2, Forms<Problem, T, Args>::small)    \
    BLOCK_KERNEL(function##_##tag##_large, Args, THREADS, Forms<Problem, T, Args>::large)            \
    FLAT_KERNEL(function##_##tag##_finish, Args, THREADS, Forms<Problem, T, Args>::finish)
