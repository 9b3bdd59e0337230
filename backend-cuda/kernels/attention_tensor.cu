// Attention on tensor cores, for 16-bit types: forward, and the gradients of queries, keys and values.
//
// As in FlashAttention-2 (Dao, 2023): a warp has M·16 rows of one side and goes over tiles of the other, which the block has in
// shared memory. A warp's scores lie in its registers as a product leaves them, which is also how the next product takes them.
// Probabilities and their gradients are rounded to the type in between. Every sum has one owner: nothing is added atomically.
#include "attention.cuh"
#include "copies.cuh"
#include "mma.cuh"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// The shape of a kernel: columns of a head that there is room for, warps, pieces of 16 rows of a warp, rows of a tile; and whether the
// next tile is read into registers while the current one is multiplied, for want of room in shared memory.
template <typename Type, int Columns, int Warps, int Pieces, int TileRows, bool ReadsAhead>
struct Shape {
    typedef Type T;
    static const bool AHEAD = ReadsAhead;
    static const u32 D = Columns;
    static const int M = Pieces, TILE = TileRows;
    static const int THREAD_COUNT = Warps * WARP, WARP_ROWS = M * 16, ROWS = Warps * WARP_ROWS;
    // Distance of rows in shared memory: eight rows of 16 bytes lie in different banks.
    static const int LEAD = D + 8;

    // The sums of a warp's rows with a tile's; and with columns of a head. [..][0..2] are of row g of a piece, [..][2..4] of g + 8.
    typedef float Scores[M][TILE / 8][4];
    typedef float Sums[M][D / 8][4];
};

template <typename S>
DEVICE Place place_of(u32 rows, u32 heads) {
    return place_of(rows, heads, S::ROWS, S::WARP_ROWS);
}

// Calls `use(m, n, e)` for every score that this thread has,
template <typename S, typename Use>
DEVICE void each_score(Use use) {
    UNROLL for (int m = 0; m < S::M; m++) {
        UNROLL for (int n = 0; n < S::TILE / 8; n++) {
            UNROLL for (int e = 0; e < 4; e++) use(m, n, e);
        }
    }
}
// `use(m, half, row)` for every row of which it has a part, counted from the warp's first; of a score, `half` is e / 2.
template <typename S, typename Use>
DEVICE void each_row(Use use) {
    UNROLL for (int m = 0; m < S::M; m++) {
        UNROLL for (int half = 0; half < 2; half++) use(m, half, m * 16 + lane() / 4 + half * 8);
    }
}
// The column of a score in its tile.
DEVICE u32 column_of(int n, int e) { return n * 8 + lane() % 4 * 2 + e % 2; }

// The rows of a batch and head, of which there are `count` with `depth` columns.
template <typename T>
struct Matrix {
    const T* rows;
    i64 step;
    u32 count, depth;
    bool by_packs;

    DEVICE Matrix(const Heads& m, u32 batch, u32 head, u32 rows_of_it, u32 columns) {
        rows = row_of<T>(m, batch, head, 0);
        step = m.row;
        count = rows_of_it;
        depth = columns;
        by_packs = in_packs<T>(rows, step) && depth % 8 == 0;
    }
};

// This thread's part of Rows rows on their way to shared memory; zeros beyond the matrix.
template <typename S, int Rows>
struct Staged {
    typedef typename S::T T;
    static const int PACKS = Rows * (S::D / 8) / S::THREAD_COUNT;
    static_assert(PACKS * S::THREAD_COUNT == Rows * (S::D / 8), "every thread has as many packs");
    Pack<T, 8> packs[PACKS];

    DEVICE static u32 row(int q) { return (threadIdx.x + q * S::THREAD_COUNT) / (S::D / 8); }
    DEVICE static u32 column(int q) { return (threadIdx.x + q * S::THREAD_COUNT) % (S::D / 8) * 8; }

    DEVICE void read(const Matrix<T>& m, u32 first) {
        if (!m.by_packs) return;
        UNROLL for (int q = 0; q < PACKS; q++) {
            packs[q] = Pack<T, 8>{};
            if (first + row(q) < m.count && column(q) < m.depth) packs[q] = load_pack<8>(m.rows + (first + row(q)) * m.step + column(q));
        }
    }
    // What does not lie in packs is read only now.
    DEVICE void write(T* tile, const Matrix<T>& m, u32 first) const {
        if (m.by_packs) {
            UNROLL for (int q = 0; q < PACKS; q++) store_pack(tile + row(q) * S::LEAD + column(q), packs[q]);
            return;
        }
        write_singly(tile, m, first);
    }
    DEVICE static void write_singly(T* tile, const Matrix<T>& m, u32 first) {
        for (u32 i = threadIdx.x; i < Rows * S::D; i += S::THREAD_COUNT) {
            const u32 r = i / S::D, c = i % S::D;
            tile[r * S::LEAD + c] = first + r < m.count && c < m.depth ? m.rows[(first + r) * m.step + c] : T{0};
        }
    }
    // Without registers: they are there behind `copies.wait()`.
    template <int MOST>
    DEVICE static void fetch(Copies<MOST>& copies, T* tile, const Matrix<T>& m, u32 first) {
        if (!m.by_packs) return write_singly(tile, m, first);
        UNROLL for (int q = 0; q < PACKS; q++) {
            const bool is_there = first + row(q) < m.count && column(q) < m.depth;
            const T* from = is_there ? m.rows + (first + row(q)) * m.step + column(q) : m.rows;
            copies.start(tile + row(q) * S::LEAD + column(q), from, is_there);
        }
    }
};

// Copies a block's own rows into shared memory.
template <typename S>
DEVICE void stage(typename S::T* tile, const Matrix<typename S::T>& m, u32 first) {
    Staged<S, S::ROWS> staged;
    staged.read(m, first);
    staged.write(tile, m, first);
}

// Two matrices whose tiles are gone through together, from `begin` to `end`. All threads of the block call. The next tiles come while
// the current ones are multiplied: into registers, or into the other half of their place, which has room for BUFFERS tiles.
template <typename S>
struct Tiles {
    typedef typename S::T T;
    typedef Staged<S, S::TILE> Part;
    static const int BUFFERS = S::AHEAD ? 1 : 2, SIZE = S::TILE * S::LEAD;
    const Matrix<T> one, other;
    T *const ones, *const others;
    const u32 end;
    // The half with the current tiles.
    u32 half = BUFFERS - 1;
    Part next_one, next_other;
    Copies<2 * Part::PACKS> copies;

    DEVICE Tiles(const Matrix<T>& a, const Matrix<T>& b, T* to_a, T* to_b, u32 begin, u32 rows)
        : one(a), other(b), ones(to_a), others(to_b), end(rows) {
        if constexpr (S::AHEAD) {
            read(begin);
        } else {
            // Tiles before these may still be read.
            __syncthreads();
            if (begin < end) fetch(begin, 0);
        }
    }
    DEVICE const T* first() const { return ones + half * SIZE; }
    DEVICE const T* second() const { return others + half * SIZE; }
    // Makes the tiles from row `i` on the current ones; `more()` puts what belongs to them into their half.
    template <typename More>
    DEVICE void put(u32 i, More more) {
        if constexpr (S::AHEAD) {
            __syncthreads();
            next_one.write(ones, one, i);
            next_other.write(others, other, i);
            more();
            __syncthreads();
            if (i + S::TILE < end) read(i + S::TILE);
        } else {
            half ^= 1;
            copies.wait();
            more();
            __syncthreads();
            if (i + S::TILE < end) fetch(i + S::TILE, half ^ 1);
        }
    }
    DEVICE void put(u32 i) {
        put(i, [] {});
    }

private:
    DEVICE void read(u32 i) {
        next_one.read(one, i);
        next_other.read(other, i);
    }
    DEVICE void fetch(u32 i, u32 to) {
        Part::fetch(copies, ones + to * SIZE, one, i);
        Part::fetch(copies, others + to * SIZE, other, i);
    }
};

// scores = a warp's rows · the tile's rows, along `depth` columns. `fragment(a, m, k)` reads the rows.
template <typename S, typename Fragment>
DEVICE void multiply_by(typename S::Scores& scores, Fragment fragment, const typename S::T* tile, u32 depth) {
    each_score<S>([&](int m, int n, int e) { scores[m][n][e] = 0.0f; });
    UNROLL for (u32 k = 0; k < S::D; k += 16) {
        if (k >= depth) break;
        u32 a[S::M][4];
        UNROLL for (int m = 0; m < S::M; m++) fragment(a[m], m, k);
        UNROLL for (int j = 0; j < S::TILE; j += 16) {
            u32 b[4];
            load_columns_of_b(b, tile + j * S::LEAD + k, S::LEAD);
            UNROLL for (int m = 0; m < S::M; m++) {
                mma(scores[m][j / 8], a[m], b, typename S::T());
                mma(scores[m][j / 8 + 1], a[m], b + 2, typename S::T());
            }
        }
    }
}

// The same with rows in shared memory.
template <typename S>
DEVICE void multiply(typename S::Scores& scores, const typename S::T* rows, const typename S::T* tile, u32 depth) {
    multiply_by<S>(scores, [&](u32* a, int m, u32 k) { load_a(a, rows + m * 16 * S::LEAD + k, S::LEAD); }, tile, depth);
}

// Two neighbours, rounded.
template <typename T>
DEVICE u32 pair_of(float low, float high) {
    return narrow<T>(low).bits | static_cast<u32>(narrow<T>(high).bits) << 16;
}

// sums += weights · the tile, of whose columns there are `depth`.
template <typename S>
DEVICE void add_product(typename S::Sums& sums, const typename S::Scores& weights, const typename S::T* tile, u32 depth) {
    typedef typename S::T T;
    UNROLL for (int k = 0; k < S::TILE; k += 16) {
        u32 a[S::M][4];
        UNROLL for (int m = 0; m < S::M; m++) {
            UNROLL for (int i = 0; i < 4; i++) {
                const float* w = weights[m][k / 8 + i / 2] + i % 2 * 2;
                a[m][i] = pair_of<T>(w[0], w[1]);
            }
        }
        UNROLL for (u32 c = 0; c < S::D; c += 16) {
            if (c >= depth) break;
            u32 b[4];
            load_rows_of_b(b, tile + k * S::LEAD + c, S::LEAD);
            UNROLL for (int m = 0; m < S::M; m++) {
                mma(sums[m][c / 8], a[m], b, T());
                mma(sums[m][c / 8 + 1], a[m], b + 2, T());
            }
        }
    }
}

// Products become scores in powers of two; -inf where they are hidden. The warp's rows begin at `first`, the tile's at `j`; `Turned`:
// the rows are keys, and the tile's queries.
template <typename S, bool Turned>
DEVICE void to_scores(const AttentionArgs& a, u32 b, u32 h, u32 first, u32 j, typename S::Scores& w) {
    const float factor = a.scale * LOG2_E;
    const u32 rows = Turned ? a.keys : a.queries, others = Turned ? a.queries : a.keys;
    // Queries see keys up to their own number.
    const u32 last_key = Turned ? first + S::WARP_ROWS - 1 : j + S::TILE - 1, first_query = Turned ? j : first;
    const bool inside = first + S::WARP_ROWS <= rows && j + S::TILE <= others;
    const bool whole = inside && a.mask == nullptr && !(a.causal && last_key > first_query);
    each_score<S>([&](int m, int n, int e) { w[m][n][e] *= factor; });
    if (whole) return;
    each_score<S>([&](int m, int n, int e) {
        const u32 row = first + m * 16 + lane() / 4 + e / 2 * 8, column = j + column_of(n, e);
        const u32 query = Turned ? column : row, key = Turned ? row : column;
        if (key >= a.keys || query >= a.queries || (a.causal && key > query)) {
            w[m][n][e] = -infinity();
        } else if (a.mask != nullptr) {
            // The lowest number of bf16, in powers of two, would be hidden: it only lies at the bottom.
            const float x = widen(*mask_at<typename S::T>(a, b, h, query, key));
            w[m][n][e] = x == -infinity() ? x : fmaxf(w[m][n][e] + LOG2_E * x, -LARGEST_F32);
        }
    });
}

// Writes a warp's rows, each times `factor(m, half)`.
template <typename S, typename Factor>
DEVICE void store_rows(const Heads& to, const Place& p, u32 count, u32 depth, const typename S::Sums& sums, Factor factor) {
    typedef typename S::T T;
    T* rows = row_of<T>(to, p.batch, p.head, 0);
    const bool by_pairs = in_packs<T>(rows, to.row) && depth % 2 == 0;
    each_row<S>([&](int m, int half, u32 row) {
        if (p.first + row >= count) return;
        T* at = rows + (p.first + row) * to.row;
        UNROLL for (u32 c = 0; c < S::D / 8; c++) {
            const u32 column = c * 8 + lane() % 4 * 2;
            const float* pair = sums[m][c] + half * 2;
            const float low = pair[0] * factor(m, half), high = pair[1] * factor(m, half);
            if (by_pairs) {
                if (column < depth) *reinterpret_cast<u32*>(at + column) = pair_of<T>(low, high);
            } else {
                if (column < depth) at[column] = narrow<T>(low);
                if (column + 1 < depth) at[column + 1] = narrow<T>(high);
            }
        }
    });
}

// Over the four lanes that share a row.
DEVICE float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
DEVICE float quad_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
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

template <typename S>
DEVICE void attention(const AttentionArgs& a) {
    typedef typename S::T T;
    typedef Staged<S, S::TILE> Tile;
    typedef Staged<S, S::ROWS> Queries;
    // A warp keeps a piece of queries in registers, for which they first lie where keys and values will; there is no room for two.
    constexpr bool KEEPS = S::M == 1;
    static_assert(!KEEPS || S::ROWS <= 2 * S::TILE, "the queries fit in the place of keys and values");
    SHARED(T, keys, (2 * S::TILE + (KEEPS ? 0 : S::ROWS)) * S::LEAD);
    T *values = keys + S::TILE * S::LEAD, *queries = KEEPS ? keys : values + S::TILE * S::LEAD;
    const Place p = place_of<S>(a.queries, a.heads);
    const u32 key_head = p.head / (a.heads / a.key_heads), end = a.causal ? least(a.keys, p.block_first + S::ROWS) : a.keys;
    const Matrix<T> k(a.k, p.batch, key_head, a.keys, a.depth), v(a.v, p.batch, key_head, a.keys, a.value_depth);
    Copies<Queries::PACKS + Tile::PACKS> copies;
    Queries::fetch(copies, queries, Matrix<T>(a.q, p.batch, p.head, a.queries, a.depth), p.block_first);
    queries += (p.first - p.block_first) * S::LEAD;
    u32 own[S::D / 16][4];
    if constexpr (KEEPS) {
        copies.wait();
        __syncthreads();
        UNROLL for (u32 c = 0; c < S::D; c += 16) load_a(own[c / 16], queries + c, S::LEAD);
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
            const auto kept = [&](u32* to, int, u32 c) { UNROLL for (int i = 0; i < 4; i++) to[i] = own[c / 16][i]; };
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

// ---- backward ----

// The logarithm of a row's denominator in powers of two; infinite where everything is hidden, or too low.
DEVICE float denominator(float logsumexp) { return logsumexp < LOWEST_LOGSUMEXP ? infinity() : logsumexp * LOG2_E; }

template <typename S>
DEVICE void attention_dq(const AttentionArgs& a) {
    typedef typename S::T T;
    SHARED(T, queries, S::ROWS * S::LEAD);
    SHARED(T, grads, S::ROWS * S::LEAD);
    SHARED(T, keys, Tiles<S>::BUFFERS * S::TILE * S::LEAD);
    SHARED(T, values, Tiles<S>::BUFFERS * S::TILE * S::LEAD);
    const Place p = place_of<S>(a.queries, a.heads);
    const u32 key_head = p.head / (a.heads / a.key_heads), own = (p.first - p.block_first) * S::LEAD;
    stage<S>(queries, Matrix<T>(a.q, p.batch, p.head, a.queries, a.depth), p.block_first);
    stage<S>(grads, Matrix<T>(a.grad, p.batch, p.head, a.queries, a.value_depth), p.block_first);
    const Matrix<T> k(a.k, p.batch, key_head, a.keys, a.depth), v(a.v, p.batch, key_head, a.keys, a.value_depth);
    const u32 end = a.causal ? least(a.keys, p.block_first + S::ROWS) : a.keys;
    Tiles<S> tiles(k, v, keys, values, 0, end);
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
DEVICE void attention_dkv(const AttentionArgs& a) {
    typedef typename S::T T;
    SHARED(T, keys, S::ROWS * S::LEAD);
    SHARED(T, values, S::ROWS * S::LEAD);
    SHARED(T, queries, Tiles<S>::BUFFERS * S::TILE * S::LEAD);
    SHARED(T, grads, Tiles<S>::BUFFERS * S::TILE * S::LEAD);
    SHARED(float, logs, Tiles<S>::BUFFERS * S::TILE);
    SHARED(float, delta, Tiles<S>::BUFFERS * S::TILE);
    const Place p = place_of<S>(a.keys, a.key_heads);
    const u32 group = a.heads / a.key_heads, own = (p.first - p.block_first) * S::LEAD;
    stage<S>(keys, Matrix<T>(a.k, p.batch, p.head, a.keys, a.depth), p.block_first);
    stage<S>(values, Matrix<T>(a.v, p.batch, p.head, a.keys, a.value_depth), p.block_first);
    typename S::Sums dk = {}, dv = {};
    for (u32 head = p.head * group; head < (p.head + 1) * group; head++) {
        // Earlier queries do not see these keys.
        const u32 begin = a.causal ? p.block_first / S::TILE * S::TILE : 0;
        const Matrix<T> q(a.q, p.batch, head, a.queries, a.depth), grad(a.grad, p.batch, head, a.queries, a.value_depth);
        Tiles<S> tiles(q, grad, queries, grads, begin, a.queries);
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

#define RUN_ON_TENSORS(function, T, columns, warps, pieces, tile, ahead) function<Shape<T, columns, warps, pieces, tile, ahead>>
// Never launched.
DEVICE void nothing(const AttentionArgs&) {}
#define NOTHING(...) nothing

// Up to 64 and up to 128 columns of a head. Warps, pieces and tile are what registers and 48 KiB of shared memory have room for; the
// host knows the number of warps and rows.
#define INSTANCES(T, tag, RUN)                                                                                             \
    BLOCK_KERNEL(attention_tensor_##tag##_64, AttentionArgs, 128, RUN(attention, T, 64, 4, 2, 64, false))                  \
    BLOCK_KERNEL(attention_tensor_##tag##_128, AttentionArgs, 128, RUN(attention, T, 128, 4, 1, 64, false))                \
    BLOCK_KERNEL(attention_dq_tensor_##tag##_64, AttentionArgs, 128, RUN(attention_dq, T, 64, 4, 1, 32, false))            \
    BLOCK_KERNEL(attention_dq_tensor_##tag##_128, AttentionArgs, 64, RUN(attention_dq, T, 128, 2, 1, 32, true))            \
    BLOCK_KERNEL(attention_dkv_tensor_##tag##_64, AttentionArgs, 128, RUN(attention_dkv, T, 64, 4, 1, 32, false))          \
    BLOCK_KERNEL(attention_dkv_tensor_##tag##_128, AttentionArgs, 64, RUN(attention_dkv, T, 128, 2, 1, 16, false))
INSTANCES(f16, f16, RUN_ON_TENSORS)
#ifdef ALL_TENSOR_TYPES
INSTANCES(bf16, bf16, RUN_ON_TENSORS)
#else
INSTANCES(bf16, bf16, NOTHING)
#endif
