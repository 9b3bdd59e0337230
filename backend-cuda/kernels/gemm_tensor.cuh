// Matrix products on tensor cores: of 16-bit matrices, and of f32 ones whose elements are rounded to TF32. 64×128 results by 8
// warps of 32×32, or twice as many rows of results by as many warps of 64×32.
//
// Where A_PACKS (B_PACKS) is set a Problem (gemm.cuh) can also say, of this argument, whether `a_packs()`: what is 16 bytes in the
// direction of reading lies in 16 aligned ones wherever a multiple of as many elements begins; `a_pack(row, step)` reads them.
#pragma once
#include "gemm.cuh"
#include "mma.cuh"

// 16 bytes of elements.
template <typename T>
using Whole = Pack<T, Wide<T>::N>;
template <typename T>
DEVICE Whole<T> load_whole(const T* at) {
    return load_pack<Wide<T>::N>(at);
}

#define TENSOR_N 128

// A tile's inner indices are 64 bytes of them. Both tiles lie in shared memory with k innermost, 80 bytes apart, so that the
// fragments' rows are read without conflicts; what is read by packs across k, the other way.
template <typename T>
struct Depth {
    static const int K = 64 / sizeof(T), LEAD = K + Wide<T>::N;
};

// How a tile is read: elements one by one or in packs of 16 bytes, neighbouring threads along k or across it.
enum Reading { ONES_ALONG, ONES_ACROSS, PACKS_ALONG, PACKS_ACROSS };

// This thread's part of a tile of so many rows or columns on its way to shared memory.
template <typename T, int Long>
struct Staged {
    static const int V = Wide<T>::N, K = Depth<T>::K, LEAD = Depth<T>::LEAD;
    static const int COUNT = Long * K / THREADS, PACKS = COUNT / V;
    // Where k is outermost in shared memory, its rows are so far apart: what is read at once, 16 bytes of each of eight rows or 32 of
    // each of four (of 4-byte elements), lies in other banks each.
    static const int LEAD_ACROSS = Long + 8;
    Reading reading;
    Whole<T> packs[PACKS];

    DEVICE bool k_is_outermost() const { return reading == PACKS_ACROSS; }
    // Where element i of pack q lies in the tile. Of ones along k a thread has one of every so many rows; of ones across k,
    // neighbours along k of one row.
    template <Reading R>
    DEVICE static u32 at(int q, int i) {
        if constexpr (R == ONES_ALONG) return threadIdx.x / K + (q * V + i) * (THREADS / K);
        else if constexpr (R == ONES_ACROSS) return threadIdx.x % Long;
        else if constexpr (R == PACKS_ALONG) return threadIdx.x / (K / V) + q * (THREADS / (K / V));
        else return threadIdx.x % (Long / V) * V + i;
    }
    template <Reading R>
    DEVICE static u32 deep(int q, int i) {
        if constexpr (R == ONES_ALONG) return threadIdx.x % K;
        else if constexpr (R == ONES_ACROSS) return threadIdx.x / Long * COUNT + q * V + i;
        else if constexpr (R == PACKS_ALONG) return threadIdx.x % (K / V) * V + i;
        else return threadIdx.x / (Long / V) + q * (THREADS / (Long / V));
    }
    template <Reading R, typename One, typename Several>
    DEVICE void read_as(u32 rows, u32 depth, One one, Several several) {
        UNROLL for (int q = 0; q < PACKS; q++) {
            if constexpr (R == PACKS_ALONG || R == PACKS_ACROSS) {
                if (deep<R>(q, V - 1) < depth && (R == PACKS_ALONG || at<R>(q, V - 1) < rows)) {
                    packs[q] = several(at<R>(q, 0), deep<R>(q, 0));
                    continue;
                }
            }
            UNROLL for (int i = 0; i < V; i++) packs[q].e[i] = one(at<R>(q, i), deep<R>(q, i), deep<R>(q, i) < depth);
        }
    }
    // `one(at, deep, wanted)` and `several(at, deep)` read, of a tile with so many rows (or columns) and inner indices. Beyond the
    // last row they read that one, which nobody stores.
    template <typename One, typename Several>
    DEVICE void read(u32 rows, u32 depth, One one, Several several) {
        switch (reading) {
            case ONES_ALONG: return read_as<ONES_ALONG>(rows, depth, one, several);
            case ONES_ACROSS: return read_as<ONES_ACROSS>(rows, depth, one, several);
            case PACKS_ALONG: return read_as<PACKS_ALONG>(rows, depth, one, several);
            default: return read_as<PACKS_ACROSS>(rows, depth, one, several);
        }
    }
    template <Reading R>
    DEVICE void write_as(T* tile) const {
        UNROLL for (int q = 0; q < PACKS; q++) {
            const u32 x = at<R>(q, 0), k = deep<R>(q, 0);
            Whole<T> ready;
            UNROLL for (int i = 0; i < V; i++) ready.e[i] = as_factor(packs[q].e[i]);
            if constexpr (R == ONES_ALONG) {
                UNROLL for (int i = 0; i < V; i++) tile[at<R>(q, i) * LEAD + k] = ready.e[i];
            } else {
                store_pack(tile + (R == PACKS_ACROSS ? k * LEAD_ACROSS + x : x * LEAD + k), ready);
            }
        }
    }
    DEVICE void write(T* tile) const {
        switch (reading) {
            case ONES_ALONG: return write_as<ONES_ALONG>(tile);
            case ONES_ACROSS: return write_as<ONES_ACROSS>(tile);
            case PACKS_ALONG: return write_as<PACKS_ALONG>(tile);
            default: return write_as<PACKS_ACROSS>(tile);
        }
    }
};

// Both operands on their way to shared memory, for M rows of results.
template <int M, typename P>
struct StagedPair {
    typedef typename P::Element T;
    typedef Steps<P, Depth<T>::K> Table;
    const P& p;
    const Sizes& s;
    const Tile& tile;
    const Table& steps;
    typename P::Column* columns;
    Staged<T, M> a;
    Staged<T, TENSOR_N> b;

    DEVICE StagedPair(const P& problem, const Sizes& sizes, const Tile& its_tile, const Table& table, typename P::Column* known)
        : p(problem), s(sizes), tile(its_tile), steps(table), columns(known) {
        a.reading = p.a_along_k() ? ONES_ALONG : ONES_ACROSS;
        b.reading = p.b_along_k() ? ONES_ALONG : ONES_ACROSS;
        // A part of the inner dimension begins where a pack may.
        if constexpr (P::A_PACKS) {
            if (tile.begin % 8 == 0 && p.a_packs()) a.reading = p.a_along_k() ? PACKS_ALONG : PACKS_ACROSS;
        }
        if constexpr (P::B_PACKS) {
            if (tile.begin % 8 == 0 && p.b_packs()) b.reading = p.b_along_k() ? PACKS_ALONG : PACKS_ACROSS;
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
        auto several_a = [&](u32 at, u32 deep) {
            if constexpr (P::A_PACKS) return p.a_pack(row(at), steps.at(k0, deep));
            else return Whole<T>{};
        };
        auto several_b = [&](u32 at, u32 deep) {
            if constexpr (P::B_PACKS) return p.b_pack(known_column(at), steps.at(k0, deep));
            else return Whole<T>{};
        };
        a.read(s.m - tile.m, tile.end - k0, one_a, several_a);
        b.read(s.n - tile.n, tile.end - k0, one_b, several_b);
    }
    // Adds the products of the tiles that lie in shared memory, of this warp's DOWN fragments of 16 rows and four of 8 columns.
    template <int DOWN>
    DEVICE void multiply(float (&sums)[DOWN][4][4], const T* as, const T* bs, u32 first_m, u32 first_n) const {
        // How they lie is asked once for all fragments.
        if (a.k_is_outermost()) {
            if (b.k_is_outermost()) multiply_as<P::A_PACKS, P::B_PACKS>(sums, as, bs, first_m, first_n);
            else multiply_as<P::A_PACKS, false>(sums, as, bs, first_m, first_n);
        } else {
            if (b.k_is_outermost()) multiply_as<false, P::B_PACKS>(sums, as, bs, first_m, first_n);
            else multiply_as<false, false>(sums, as, bs, first_m, first_n);
        }
    }
    // ACROSS: k is outermost.
    template <bool A_ACROSS, bool B_ACROSS, int DOWN>
    DEVICE void multiply_as(float (&sums)[DOWN][4][4], const T* as, const T* bs, u32 first_m, u32 first_n) const {
        // The inner indices of an instruction.
        static const int STEP = Depth<T>::K / 2;
        UNROLL for (int k = 0; k < Depth<T>::K; k += STEP) {
            u32 of_a[DOWN][4], of_b[2][4];
            UNROLL for (int i = 0; i < DOWN; i++) {
                const u32 m = first_m + i * 16;
                if constexpr (A_ACROSS) load_columns_of_a(of_a[i], as + k * a.LEAD_ACROSS + m, a.LEAD_ACROSS);
                else load_a(of_a[i], as + m * a.LEAD + k, a.LEAD);
            }
            UNROLL for (int j = 0; j < 2; j++) {
                const u32 n = first_n + j * 16;
                if constexpr (B_ACROSS) load_rows_of_b(of_b[j], bs + k * b.LEAD_ACROSS + n, b.LEAD_ACROSS);
                else load_columns_of_b(of_b[j], bs + n * b.LEAD + k, b.LEAD);
            }
            UNROLL for (int i = 0; i < DOWN; i++) {
                UNROLL for (int j = 0; j < 4; j++) mma(sums[i][j], of_a[i], of_b[j / 2] + j % 2 * 2, T());
            }
        }
    }
};

template <int M, typename P>
DEVICE void gemm_tensor(const P& p, const Sizes& s) {
    typedef typename P::Element T;
    typedef Steps<P, Depth<T>::K> Table;
    static const int K = Depth<T>::K;
    // Fragments of 16 rows that a warp has.
    static const int DOWN = M / 32;
    SHARED(T, as, M * Depth<T>::LEAD);
    SHARED(T, bs, TENSOR_N * Depth<T>::LEAD);
    SHARED(typename P::Step, table, Table::COUNT);
    SHARED(typename P::Column, columns, P::TABLES ? TENSOR_N : 1);
    const Tile tile = tile_of_block<M, TENSOR_N>(s);
    const Table steps{p, tile, table};
    StagedPair<M, P> next(p, s, tile, steps, columns);
    float sums[DOWN][4][4] = {};
    const u32 warp = threadIdx.x / WARP, first_m = warp / 4 * (M / 2), first_n = warp % 4 * 32;
    const u32 g = lane() / 4, t = lane() % 4;
    next.begin();
    for (u32 k0 = tile.begin; k0 < tile.end; k0 += K) {
        next.a.write(as);
        next.b.write(bs);
        steps.fill(k0 + K);
        __syncthreads();
        if (k0 + K < tile.end) next.read(k0 + K);
        next.multiply(sums, as, bs, first_m, first_n);
        __syncthreads();
    }
    UNROLL for (int i = 0; i < DOWN; i++) {
        UNROLL for (int j = 0; j < 4; j++) {
            UNROLL for (int e = 0; e < 4; e++) {
                const u32 m = tile.m + first_m + i * 16 + g + e / 2 * 8;
                const u32 n = tile.n + first_n + j * 8 + t * 2 + e % 2;
                if (m < s.m && n < s.n) put(p, s, tile.batch, tile.split, m, n, sums[i][j][e]);
            }
        }
    }
}

template <template <typename> class Problem, typename T, typename Args>
struct TensorForms {
    DEVICE static void small(const Args& a) { gemm_tensor<64>(Problem<T>{a}, a.sizes); }
    DEVICE static void large(const Args& a) { gemm_tensor<128>(Problem<T>{a}, a.sizes); }
};
#ifndef ALL_TENSOR_TYPES
// Never launched.
template <template <typename> class Problem, typename Args>
struct TensorForms<Problem, bf16, Args> {
    DEVICE static void small(const Args&) {}
    DEVICE static void large(const Args&) {}
};
template <template <typename> class Problem, typename Args>
struct TensorForms<Problem, float, Args> {
    DEVICE static void small(const Args&) {}
    DEVICE static void large(const Args&) {}
};
#endif
// Of the small one a processor has room for so many blocks: two hide what one waits for, where the registers allow them.
#define TENSOR_FORMS(function, Problem, T, tag, Args, blocks)                                                       \
    BUSY_BLOCK_KERNEL(function##_##tag##_tensor, Args, THREADS, blocks, TensorForms<Problem, T, Args>::small)       \
    BUSY_BLOCK_KERNEL(function##_##tag##_tensor_large, Args, THREADS, 1, TensorForms<Problem, T, Args>::large)
