// Matrix products of whatever can be read as matrices: plain ones, and convolutions as implicit ones.
//
// A Problem says what its matrices are: the type of their elements; `a_row(batch, m)`, `b_column(batch, n)` and
// `step(batch, k)`, what is worth knowing of a row, a column or an inner index before elements are read; `a(row, step, wanted)` and
// `b(column, step, wanted)`, 0 where it is not wanted; `store(batch, m, n, sum)`; and whether neighbouring threads read along k
// or across it. `Sizes` has the rest. Where TABLES is set, columns and steps cost so much that a block computes each once, into
// shared memory; steps may then be asked for beyond the last k.
//
// Where A_PACKS (B_PACKS) is set it can also say, of this argument, whether `a_packs()`: eight neighbours in the direction
// of reading lie in 16 aligned bytes wherever a multiple of eight begins; `a_pack(row, step)` reads them.
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
        const Step step = p.step(tile.batch, k0 + threadIdx.x);
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

// The same on tensor cores, for 16-bit matrices: 64×128 results by 8 warps of 32×32. Both tiles lie in shared memory with k
// innermost, 40 apart, so that the fragments' rows are read without conflicts; what is read by eights across k, the other way.
#define TENSOR_M 64
#define TENSOR_N 128
#define TENSOR_K 32

#define TENSOR_LEAD (TENSOR_K + 8)

// How a tile is read: elements one by one or by eights, neighbouring threads along k or across it.
enum Reading { ONES_ALONG, ONES_ACROSS, EIGHTS_ALONG, EIGHTS_ACROSS };

// This thread's part of a Long×TENSOR_K tile on its way to shared memory.
template <typename T, int Long>
struct Staged {
    static const int COUNT = Long * TENSOR_K / THREADS, PACKS = COUNT / 8;
    // Where k is outermost in shared memory, its rows are so far apart.
    static const int LEAD_ACROSS = Long + 8;
    Reading reading;
    Pack<T, 8> packs[PACKS];

    DEVICE bool k_is_outermost() const { return reading == EIGHTS_ACROSS; }
    // Where element i of pack q lies in the tile. Of ones along k a thread has an element of each eighth row; of ones across k,
    // neighbours along k of one row.
    template <Reading R>
    DEVICE static u32 at(int q, int i) {
        if constexpr (R == ONES_ALONG) return threadIdx.x / TENSOR_K + (q * 8 + i) * (THREADS / TENSOR_K);
        else if constexpr (R == ONES_ACROSS) return threadIdx.x % Long;
        else if constexpr (R == EIGHTS_ALONG) return threadIdx.x / (TENSOR_K / 8) + q * (THREADS / (TENSOR_K / 8));
        else return threadIdx.x % (Long / 8) * 8 + i;
    }
    template <Reading R>
    DEVICE static u32 deep(int q, int i) {
        if constexpr (R == ONES_ALONG) return threadIdx.x % TENSOR_K;
        else if constexpr (R == ONES_ACROSS) return threadIdx.x / Long * COUNT + q * 8 + i;
        else if constexpr (R == EIGHTS_ALONG) return threadIdx.x % (TENSOR_K / 8) * 8 + i;
        else return threadIdx.x / (Long / 8) + q * (THREADS / (Long / 8));
    }
    template <Reading R, typename One, typename Eight>
    DEVICE void read_as(u32 rows, u32 depth, One one, Eight eight) {
        UNROLL for (int q = 0; q < PACKS; q++) {
            if constexpr (R == EIGHTS_ALONG || R == EIGHTS_ACROSS) {
                if (deep<R>(q, 7) < depth && (R == EIGHTS_ALONG || at<R>(q, 7) < rows)) {
                    packs[q] = eight(at<R>(q, 0), deep<R>(q, 0));
                    continue;
                }
            }
            UNROLL for (int i = 0; i < 8; i++) packs[q].e[i] = one(at<R>(q, i), deep<R>(q, i), deep<R>(q, i) < depth);
        }
    }
    // `one(at, deep, wanted)` and `eight(at, deep)` read, of a tile with so many rows (or columns) and inner indices. Beyond the
    // last row they read that one, which nobody stores.
    template <typename One, typename Eight>
    DEVICE void read(u32 rows, u32 depth, One one, Eight eight) {
        switch (reading) {
            case ONES_ALONG: return read_as<ONES_ALONG>(rows, depth, one, eight);
            case ONES_ACROSS: return read_as<ONES_ACROSS>(rows, depth, one, eight);
            case EIGHTS_ALONG: return read_as<EIGHTS_ALONG>(rows, depth, one, eight);
            default: return read_as<EIGHTS_ACROSS>(rows, depth, one, eight);
        }
    }
    template <Reading R>
    DEVICE void write_as(T* tile) const {
        UNROLL for (int q = 0; q < PACKS; q++) {
            const u32 x = at<R>(q, 0), k = deep<R>(q, 0);
            if constexpr (R == ONES_ALONG) {
                UNROLL for (int i = 0; i < 8; i++) tile[at<R>(q, i) * TENSOR_LEAD + k] = packs[q].e[i];
            } else {
                store_pack(tile + (R == EIGHTS_ACROSS ? k * LEAD_ACROSS + x : x * TENSOR_LEAD + k), packs[q]);
            }
        }
    }
    DEVICE void write(T* tile) const {
        switch (reading) {
            case ONES_ALONG: return write_as<ONES_ALONG>(tile);
            case ONES_ACROSS: return write_as<ONES_ACROSS>(tile);
            case EIGHTS_ALONG: return write_as<EIGHTS_ALONG>(tile);
            default: return write_as<EIGHTS_ACROSS>(tile);
        }
    }
};

// Both operands on their way to shared memory.
template <typename P>
struct StagedPair {
    typedef typename P::Element T;
    typedef Steps<P, TENSOR_K> Table;
    const P& p;
    const Sizes& s;
    const Tile& tile;
    const Table& steps;
    typename P::Column* columns;
    Staged<T, TENSOR_M> a;
    Staged<T, TENSOR_N> b;

    DEVICE StagedPair(const P& problem, const Sizes& sizes, const Tile& its_tile, const Table& table, typename P::Column* known)
        : p(problem), s(sizes), tile(its_tile), steps(table), columns(known) {
        a.reading = p.a_along_k() ? ONES_ALONG : ONES_ACROSS;
        b.reading = p.b_along_k() ? ONES_ALONG : ONES_ACROSS;
        // A part of the inner dimension begins where a pack may.
        if constexpr (P::A_PACKS) {
            if (tile.begin % 8 == 0 && p.a_packs()) a.reading = p.a_along_k() ? EIGHTS_ALONG : EIGHTS_ACROSS;
        }
        if constexpr (P::B_PACKS) {
            if (tile.begin % 8 == 0 && p.b_packs()) b.reading = p.b_along_k() ? EIGHTS_ALONG : EIGHTS_ACROSS;
        }
    }
    // The tables, and the first tile.
    DEVICE void begin() {
        if constexpr (P::TABLES) {
            if (threadIdx.x < TENSOR_N) {
                const typename P::Column own = column(threadIdx.x);
                columns[threadIdx.x] = own;
            }
            steps.fill(tile.begin);
            __syncthreads();
        }
        read(tile.begin);
        if constexpr (P::TABLES) __syncthreads();
    }
    DEVICE typename P::Row row(u32 at) const { return p.a_row(tile.batch, least(tile.m + at, s.m - 1)); }
    DEVICE typename P::Column column(u32 at) const { return p.b_column(tile.batch, least(tile.n + at, s.n - 1)); }
    DEVICE typename P::Column known_column(u32 at) const {
        if constexpr (P::TABLES) return columns[at];
        else return column(at);
    }
    DEVICE void read(u32 k0) {
        auto one_a = [&](u32 at, u32 deep, bool wanted) { return p.a(row(at), steps.at(k0, deep), wanted); };
        auto one_b = [&](u32 at, u32 deep, bool wanted) { return p.b(known_column(at), steps.at(k0, deep), wanted); };
        auto eight_a = [&](u32 at, u32 deep) {
            if constexpr (P::A_PACKS) return p.a_pack(row(at), steps.at(k0, deep));
            else return Pack<T, 8>{};
        };
        auto eight_b = [&](u32 at, u32 deep) {
            if constexpr (P::B_PACKS) return p.b_pack(known_column(at), steps.at(k0, deep));
            else return Pack<T, 8>{};
        };
        a.read(s.m - tile.m, tile.end - k0, one_a, eight_a);
        b.read(s.n - tile.n, tile.end - k0, one_b, eight_b);
    }
    // Fragments of a 16×16 piece of a, and of two neighbouring 16×8 pieces of b.
    DEVICE void load_of_a(u32* to, const T* as, u32 m, u32 k) const {
        if (a.k_is_outermost()) load_columns_of_a(to, as + k * a.LEAD_ACROSS + m, a.LEAD_ACROSS);
        else load_a(to, as + m * TENSOR_LEAD + k, TENSOR_LEAD);
    }
    DEVICE void load_of_b(u32* to, const T* bs, u32 n, u32 k) const {
        if (b.k_is_outermost()) load_rows_of_b(to, bs + k * b.LEAD_ACROSS + n, b.LEAD_ACROSS);
        else load_columns_of_b(to, bs + n * TENSOR_LEAD + k, TENSOR_LEAD);
    }
};

template <typename P>
DEVICE void gemm_tensor(const P& p, const Sizes& s) {
    typedef typename P::Element T;
    typedef Steps<P, TENSOR_K> Table;
    SHARED(T, as, TENSOR_M * TENSOR_LEAD);
    SHARED(T, bs, TENSOR_N * TENSOR_LEAD);
    SHARED(typename P::Step, table, Table::COUNT);
    SHARED(typename P::Column, columns, P::TABLES ? TENSOR_N : 1);
    const Tile tile = tile_of_block<TENSOR_M, TENSOR_N>(s);
    const Table steps{p, tile, table};
    StagedPair<P> next(p, s, tile, steps, columns);
    float sums[2][4][4] = {};
    const u32 warp = threadIdx.x / WARP, first_m = warp / 4 * 32, first_n = warp % 4 * 32;
    const u32 g = lane() / 4, t = lane() % 4;
    next.begin();
    for (u32 k0 = tile.begin; k0 < tile.end; k0 += TENSOR_K) {
        next.a.write(as);
        next.b.write(bs);
        steps.fill(k0 + TENSOR_K);
        __syncthreads();
        if (k0 + TENSOR_K < tile.end) next.read(k0 + TENSOR_K);
        UNROLL for (int k = 0; k < TENSOR_K; k += 16) {
            u32 a[2][4], b[2][4];
            UNROLL for (int i = 0; i < 2; i++) next.load_of_a(a[i], as, first_m + i * 16, k);
            UNROLL for (int j = 0; j < 2; j++) next.load_of_b(b[j], bs, first_n + j * 16, k);
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
    BUSY_BLOCK_KERNEL(function##_##tag##_small, Args, THREADS, 2, Forms<Problem, T, Args>::small)    \
    BLOCK_KERNEL(function##_##tag##_large, Args, THREADS, Forms<Problem, T, Args>::large)            \
    FLAT_KERNEL(function##_##tag##_finish, Args, THREADS, Forms<Problem, T, Args>::finish)
// Of it a processor has room for so many blocks: two hide what one waits for, where the registers allow them.
#define TENSOR_FORM(function, Problem, T, tag, Args, blocks) \
    BUSY_BLOCK_KERNEL(function##_##tag##_tensor, Args, THREADS, blocks, Forms<Problem, T, Args>::tensor)
