// Matrix products of whatever can be read as matrices: plain ones, and convolutions as implicit ones.
//
// A Problem says what its matrices are: element types A and B; `a_row(m)` and `b_column(n)`, what is worth knowing of a
// row or column before its elements are read; `a(row, k)` and `b(column, k)`, 0 outside; `store(batch, m, n, sum)`; and
// whether neighbouring threads read along k or across it. `Sizes` has the rest.
//
// Where A_PACKS (B_PACKS) is set it can also say, of this argument, whether `a_packs()`: eight neighbours in the direction
// of reading lie in 16 aligned bytes wherever a multiple of eight begins; `a_pack(batch, m, k)` reads them.
#pragma once
#include "mma.cuh"

struct Sizes {
    u32 m, n, k;
    u32 batches;
    // The inner dimension is cut into so many parts of so many elements, each with sums of its own.
    u32 splits;
    u32 split_k;
    // [splits, batches, m, n]; null with one part.
    float* partial;
};

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
            run += widen(p.a(row, k)) * widen(p.b(column, k));
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
        const u32 i = threadIdx.x + e * Threads;
        return along_k ? i / Deep : i % Long;
    }
    DEVICE static u32 deep(bool along_k, int e) {
        const u32 i = threadIdx.x + e * Threads;
        return along_k ? i % Deep : i / Long;
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
    const Tile tile = tile_of_block<BM, BN>(s);
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
            const u32 k = k0 + ShareA::deep(a_along, e);
            next_a[e] = k < tile.end ? widen(p.a(rows[e], k)) : 0.0f;
        }
        UNROLL for (int e = 0; e < ShareB::COUNT; e++) {
            const u32 k = k0 + ShareB::deep(b_along, e);
            next_b[e] = k < tile.end ? widen(p.b(columns[e], k)) : 0.0f;
        }
    };
    float sums[TM][TN] = {};
    const u32 ty = threadIdx.x / (BN / TN), tx = threadIdx.x % (BN / TN);
    read(tile.begin);
    for (u32 k0 = tile.begin; k0 < tile.end; k0 += BK) {
        UNROLL for (int e = 0; e < ShareA::COUNT; e++) {
            as[ShareA::deep(a_along, e) * LEAD_A + ShareA::at(a_along, e)] = next_a[e];
        }
        UNROLL for (int e = 0; e < ShareB::COUNT; e++) {
            bs[ShareB::deep(b_along, e) * LEAD_B + ShareB::at(b_along, e)] = next_b[e];
        }
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

// The same on tensor cores, for 16-bit matrices: 64×128 results by 8 warps of 32×32. Both tiles lie in shared memory
// with k innermost, 40 apart, so that the fragments' rows are read without conflicts.
#define TENSOR_M 64
#define TENSOR_N 128
#define TENSOR_K 32

#define TENSOR_LEAD (TENSOR_K + 8)

// This thread's part of a Long×TENSOR_K tile on its way to shared memory: read one by one, or by eights.
template <typename T, int Long>
struct Staged {
    typedef Share<Long, TENSOR_K, THREADS> Ones;
    static const int PACKS = Ones::COUNT / 8;
    bool by_packs, along_k;
    Pack<T, 8> packs[PACKS];

    // Where a pack begins.
    DEVICE u32 at(int q) const {
        const u32 i = threadIdx.x + q * THREADS;
        return along_k ? i / (TENSOR_K / 8) : i % (Long / 8) * 8;
    }
    DEVICE u32 deep(int q) const {
        const u32 i = threadIdx.x + q * THREADS;
        return along_k ? i % (TENSOR_K / 8) * 8 : i / (Long / 8);
    }
    // `one` and `eight` read at a row (or column) below `most`; beyond it the last is read, which nobody stores.
    template <typename One, typename Eight>
    DEVICE void read(u32 first, u32 most, u32 k0, u32 end, One one, Eight eight) {
        UNROLL for (int q = 0; q < PACKS; q++) {
            const u32 x = first + at(q), k = k0 + deep(q);
            const bool whole = along_k ? k + 8 <= end : k < end && x + 8 <= most;
            if (by_packs && whole) {
                packs[q] = eight(least(x, most - 1), k);
                continue;
            }
            UNROLL for (int i = 0; i < 8; i++) {
                const int e = q * 8 + i;
                const u32 own_x = by_packs ? x + (along_k ? 0 : i) : first + Ones::at(along_k, e);
                const u32 own_k = by_packs ? k + (along_k ? i : 0) : k0 + Ones::deep(along_k, e);
                packs[q].e[i] = own_k < end ? one(least(own_x, most - 1), own_k) : T{0};
            }
        }
    }
    DEVICE void write(T* tile) const {
        UNROLL for (int q = 0; q < PACKS; q++) {
            if (by_packs && along_k) {
                store_pack(tile + at(q) * TENSOR_LEAD + deep(q), packs[q]);
                continue;
            }
            UNROLL for (int i = 0; i < 8; i++) {
                const int e = q * 8 + i;
                const u32 x = by_packs ? at(q) + i : Ones::at(along_k, e), k = by_packs ? deep(q) : Ones::deep(along_k, e);
                tile[x * TENSOR_LEAD + k] = packs[q].e[i];
            }
        }
    }
};

template <typename P>
DEVICE void gemm_tensor(const P& p, const Sizes& s) {
    typedef typename P::Element T;
    static const int LEAD = TENSOR_LEAD;
    SHARED(T, as, TENSOR_M * LEAD);
    SHARED(T, bs, TENSOR_N * LEAD);
    const Tile tile = tile_of_block<TENSOR_M, TENSOR_N>(s);
    Staged<T, TENSOR_M> next_a;
    Staged<T, TENSOR_N> next_b;
    next_a.along_k = p.a_along_k();
    next_b.along_k = p.b_along_k();
    next_a.by_packs = next_b.by_packs = false;
    // A part of the inner dimension begins where a pack may.
    if constexpr (P::A_PACKS) next_a.by_packs = tile.begin % 8 == 0 && p.a_packs();
    if constexpr (P::B_PACKS) next_b.by_packs = tile.begin % 8 == 0 && p.b_packs();
    auto one_a = [&](u32 m, u32 k) { return p.a(p.a_row(tile.batch, m), k); };
    auto one_b = [&](u32 n, u32 k) { return p.b(p.b_column(tile.batch, n), k); };
    auto eight_a = [&](u32 m, u32 k) {
        if constexpr (P::A_PACKS) return p.a_pack(tile.batch, m, k);
        else return Pack<T, 8>{};
    };
    auto eight_b = [&](u32 n, u32 k) {
        if constexpr (P::B_PACKS) return p.b_pack(tile.batch, n, k);
        else return Pack<T, 8>{};
    };
    auto read = [&](u32 k0) {
        next_a.read(tile.m, s.m, k0, tile.end, one_a, eight_a);
        next_b.read(tile.n, s.n, k0, tile.end, one_b, eight_b);
    };
    float sums[2][4][4] = {};
    const u32 warp = threadIdx.x / WARP, first_m = warp / 4 * 32, first_n = warp % 4 * 32;
    const u32 g = lane() / 4, t = lane() % 4;
    read(tile.begin);
    for (u32 k0 = tile.begin; k0 < tile.end; k0 += TENSOR_K) {
        next_a.write(as);
        next_b.write(bs);
        __syncthreads();
        if (k0 + TENSOR_K < tile.end) read(k0 + TENSOR_K);
        UNROLL for (int k = 0; k < TENSOR_K; k += 16) {
            u32 a[2][4], b[2][4];
            UNROLL for (int i = 0; i < 2; i++) load_a(a[i], as + (first_m + i * 16) * LEAD + k, LEAD);
            UNROLL for (int j = 0; j < 2; j++) load_columns_of_b(b[j], bs + (first_n + j * 16) * LEAD + k, LEAD);
            UNROLL for (int i = 0; i < 2; i++) {
                UNROLL for (int j = 0; j < 4; j++) mma(sums[i][j], a[i], b[j / 2] + j % 2 * 2, T());
            }
        }
        __syncthreads();
    }
    UNROLL for (int i = 0; i < 2; i++) {
        UNROLL for (int j = 0; j < 4; j++) {
            UNROLL for (int e = 0; e < 4; e++) {
                const u32 m = tile.m + first_m + i * 16 + g + e / 2 * 8;
                const u32 n = tile.n + first_n + j * 8 + t * 2 + e % 2;
                if (m < s.m && n < s.n) put(p, s, tile.batch, tile.split, m, n, sums[i][j][e]);
            }
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
    DEVICE static void tensor(const Args& a) {
#ifdef HAS_TENSORS
        gemm_tensor(Problem<T>{a}, a.sizes);
#else
        (void)a; // never launched before compute capability 8.0
#endif
    }
    DEVICE static void finish(const Args& a) { gemm_finish(Problem<T>{a}, a.sizes); }
};
#define GEMM_FORMS(function, Problem, T, tag, Args)                                                  \
    FLAT_KERNEL(function##_##tag##_thread, Args, THREADS, Forms<Problem, T, Args>::thread)           \
    BLOCK_KERNEL(function##_##tag##_warp, Args, THREADS, Forms<Problem, T, Args>::warp)              \
    BLOCK_KERNEL(function##_##tag##_small, Args, THREADS, Forms<Problem, T, Args>::small)            \
    BLOCK_KERNEL(function##_##tag##_large, Args, THREADS, Forms<Problem, T, Args>::large)            \
    FLAT_KERNEL(function##_##tag##_finish, Args, THREADS, Forms<Problem, T, Args>::finish)
// Of it a processor has room for so many blocks: two hide what one waits for, where the registers allow them.
#define TENSOR_FORM(function, Problem, T, tag, Args, blocks) \
    BUSY_BLOCK_KERNEL(function##_##tag##_tensor, Args, THREADS, blocks, Forms<Problem, T, Args>::tensor)
