// What attention on tensor cores is made of: tiles on their way to shared memory, products of them, scores.
#pragma once
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
    // Elements of a pack of 16 bytes, and along the inner side of an instruction.
    static const int V = Wide<T>::N, STEP = 2 * V;
    // Distance of rows in shared memory: eight rows of 16 bytes lie in different banks.
    static const int LEAD = D + V;

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
        by_packs = in_packs<T>(rows, step) && depth % Wide<T>::N == 0;
    }
};

// This thread's part of Rows rows on their way to shared memory; zeros beyond the matrix.
template <typename S, int Rows>
struct Staged {
    typedef typename S::T T;
    static const int V = S::V, ACROSS = S::D / V, PACKS = Rows * ACROSS / S::THREAD_COUNT;
    static_assert(PACKS * S::THREAD_COUNT == Rows * ACROSS, "every thread has as many packs");
    Pack<T, V> packs[PACKS];

    DEVICE static u32 row(int q) { return (threadIdx.x + q * S::THREAD_COUNT) / ACROSS; }
    DEVICE static u32 column(int q) { return (threadIdx.x + q * S::THREAD_COUNT) % ACROSS * V; }

    DEVICE void read(const Matrix<T>& m, u32 first) {
        if (!m.by_packs) return;
        UNROLL for (int q = 0; q < PACKS; q++) {
            packs[q] = Pack<T, V>{};
            if (first + row(q) < m.count && column(q) < m.depth) packs[q] = load_pack<V>(m.rows + (first + row(q)) * m.step + column(q));
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
DEVICE void multiply_halves(typename S::Scores& scores, Fragment fragment, const typename S::T* tile, u32 depth) {
    each_score<S>([&](int m, int n, int e) { scores[m][n][e] = 0.0f; });
    UNROLL for (u32 k = 0; k < S::D; k += S::STEP) {
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
// The same of floats, by their parts.
template <typename S, typename Fragment>
DEVICE void multiply_floats(typename S::Scores& scores, Fragment fragment, const float* tile, u32 depth) {
    PartSums sums[S::M][S::TILE / 8] = {};
    UNROLL for (u32 k = 0; k < S::D; k += S::STEP) {
        if (k >= depth) break;
        Parts<4> a[S::M];
        UNROLL for (int m = 0; m < S::M; m++) {
            u32 bits[4];
            fragment(bits, m, k);
            a[m] = parts_of<4>(bits);
        }
        UNROLL for (int j = 0; j < S::TILE; j += 16) {
            u32 bits[4];
            load_columns_of_b(bits, tile + j * S::LEAD + k, S::LEAD);
            const Parts<4> b = parts_of<4>(bits);
            UNROLL for (int m = 0; m < S::M; m++) {
                UNROLL for (int which = 0; which < 2; which++) sums[m][j / 8 + which].add(a[m], b, which);
            }
        }
    }
    each_score<S>([&](int m, int n, int e) { scores[m][n][e] = sums[m][n].all(e); });
}
template <typename S, typename Fragment>
DEVICE void multiply_by(typename S::Scores& scores, Fragment fragment, const typename S::T* tile, u32 depth) {
    if constexpr (sizeof(typename S::T) == 4) multiply_floats<S>(scores, fragment, tile, depth);
    else multiply_halves<S>(scores, fragment, tile, depth);
}

// The same with rows in shared memory.
template <typename S>
DEVICE void multiply(typename S::Scores& scores, const typename S::T* rows, const typename S::T* tile, u32 depth) {
    multiply_by<S>(scores, [&](u32* a, int m, u32 k) { load_a(a, rows + m * 16 * S::LEAD + k, S::LEAD); }, tile, depth);
}

// sums += weights · the tile, of whose columns there are `depth`.
template <typename S>
DEVICE void add_product_of_halves(typename S::Sums& sums, const typename S::Scores& weights, const typename S::T* tile, u32 depth) {
    typedef typename S::T T;
    UNROLL for (int k = 0; k < S::TILE; k += 16) {
        u32 a[S::M][4];
        UNROLL for (int m = 0; m < S::M; m++) {
            UNROLL for (int i = 0; i < 4; i++) {
                const float* w = weights[m][k / 8 + i / 2] + i % 2 * 2;
                a[m][i] = narrow<T>(w[0]).bits | static_cast<u32>(narrow<T>(w[1]).bits) << 16;
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
// The same of floats, by their parts. Of eight rows of the tile the instruction is given the even ones first, then the odd ones: so the weights
// of a lane are those that it has. A tile's products are added up by themselves: to longer sums tensor cores would add with an error that grows.
template <typename S>
DEVICE void add_product_of_floats(typename S::Sums& sums, const typename S::Scores& weights, const float* tile, u32 depth) {
    Parts<4> a[S::M][S::TILE / 8];
    UNROLL for (int m = 0; m < S::M; m++) {
        UNROLL for (int k = 0; k < S::TILE / 8; k++) {
            UNROLL for (int i = 0; i < 4; i++) a[m][k].set(i, weights[m][k][i % 2 * 2 + i / 2]);
        }
    }
    const float* own = tile + lane() % 4 * 2 * S::LEAD + lane() / 4;
    UNROLL for (u32 c = 0; c < S::D; c += 16) {
        if (c >= depth) break;
        PartSums products[S::M][2] = {};
        UNROLL for (int k = 0; k < S::TILE / 8; k++) {
            UNROLL for (int which = 0; which < 2; which++) {
                const float* at = own + k * 8 * S::LEAD + c + which * 8;
                Parts<2> b;
                UNROLL for (int i = 0; i < 2; i++) b.set(i, at[i * S::LEAD]);
                UNROLL for (int m = 0; m < S::M; m++) products[m][which].add(a[m][k], b, 0);
            }
        }
        UNROLL for (int m = 0; m < S::M; m++) {
            UNROLL for (int e = 0; e < 8; e++) sums[m][c / 8 + e / 4][e % 4] += products[m][e / 4].all(e % 4);
        }
    }
}
template <typename S>
DEVICE void add_product(typename S::Sums& sums, const typename S::Scores& weights, const typename S::T* tile, u32 depth) {
    if constexpr (sizeof(typename S::T) == 4) add_product_of_floats<S>(sums, weights, tile, depth);
    else add_product_of_halves<S>(sums, weights, tile, depth);
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
        const float times = factor(m, half);
        UNROLL for (u32 c = 0; c < S::D / 8; c++) {
            const u32 column = c * 8 + lane() % 4 * 2;
            const float* pair = sums[m][c] + half * 2;
            const float low = pair[0] * times, high = pair[1] * times;
            if (by_pairs) {
                if (column < depth) store_pack(at + column, Pack<T, 2>{{narrow<T>(low), narrow<T>(high)}});
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

