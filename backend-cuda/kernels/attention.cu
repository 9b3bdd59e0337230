// Scaled dot-product attention without the score matrix, its gradients, and rotary embedding.
//
// Forward as in FlashAttention (Dao et al., 2022; backward with the logarithm of the denominators, Dao, 2023): a block has
// some rows, a warp ROWS of them, and goes over tiles of 32 of the other side in shared memory. In the scores a lane has
// one of the 32; in the sums it has columns lane, lane + 32, … Every sum has one owner: nothing is added atomically.
// Shared memory decides how fast that is, so all but the sums' columns is read from it in fours.
#include "arguments.cuh"
#include "attention.cuh"

#define TILE 32

// The score of query i and key j from their product; -inf where it is hidden.
template <typename T>
DEVICE float score(const AttentionArgs& a, u32 b, u32 h, u32 i, u32 j, float product) {
    if (j >= a.keys || i >= a.queries || (a.causal && j > i)) return -infinity();
    float value = a.scale * product;
    if (a.mask != nullptr) value += widen(*mask_at<T>(a, b, h, i, j));
    return value;
}

// Floats of a row in whole fours; and where the rows of a tile begin: an odd number of fours apart, so that eight lanes' fours lie in
// different banks. The host knows both.
DEVICE u32 fours(u32 depth) { return (depth + 3) / 4 * 4; }
DEVICE u32 tile_lead(u32 depth) { return fours(depth) / 4 % 2 == 1 ? fours(depth) : fours(depth) + 4; }

// Fours that a thread has on their way at once.
#define FOURS_AHEAD 4

// Four columns of a row, zeros beyond `depth`; read at once where they lie so.
template <typename T>
DEVICE Pack<float, 4> load_four(const T* row, u32 column, u32 depth, bool at_once) {
    Pack<float, 4> x;
    if (at_once) {
        const Pack<T, 4> four = load_pack<4>(row + column);
        UNROLL for (int e = 0; e < 4; e++) x.e[e] = widen(four.e[e]);
    } else {
        UNROLL for (int e = 0; e < 4; e++) x.e[e] = column + e < depth ? widen(row[column + e]) : 0.0f;
    }
    return x;
}

// Copies rows first.. of a matrix into shared memory; zeros beyond `count` rows and `depth` columns.
template <typename T>
DEVICE void load_tile(float* tile, const Heads& m, u32 b, u32 h, u32 first, u32 count, u32 depth) {
    const T* rows = row_of<T>(m, b, h, first);
    const u32 across = fours(depth) / 4, lead = tile_lead(depth), left = least(count - first, u32(TILE));
    const bool at_once = depth % 4 == 0 && (reinterpret_cast<u64>(rows) | static_cast<u64>(m.row) * sizeof(T)) % sizeof(Pack<T, 4>) == 0;
    // A thread's fours are as far apart as the block has threads: so many rows, and so many fours of one.
    const u32 down = blockDim.x / across, over = blockDim.x - down * across;
    u32 r = threadIdx.x / across, c = threadIdx.x - r * across;
    __syncthreads();
    while (r < TILE) {
        Pack<float, 4> x[FOURS_AHEAD];
        float* to[FOURS_AHEAD];
        UNROLL for (int i = 0; i < FOURS_AHEAD; i++) {
            to[i] = r < TILE ? tile + r * lead + c * 4 : nullptr;
            x[i] = r < left ? load_four(rows + r * m.row, c * 4, depth, at_once) : Pack<float, 4>{};
            r += down;
            c += over;
            if (c >= across) {
                c -= across;
                r++;
            }
        }
        UNROLL for (int i = 0; i < FOURS_AHEAD; i++) if (to[i] != nullptr) store_pack(to[i], x[i]);
    }
    __syncthreads();
}

// Copies a warp's own rows.
template <typename T, int ROWS>
DEVICE void load_rows(float* rows, const Heads& m, u32 b, u32 h, u32 first, u32 count, u32 depth) {
    const u32 columns = fours(depth);
    UNROLL for (int r = 0; r < ROWS; r++) {
        for (u32 c = lane(); c < columns; c += WARP) {
            rows[r * columns + c] = first + r < count && c < depth ? widen(row_of<T>(m, b, h, first + r)[c]) : 0.0f;
        }
    }
    __syncwarp();
}

// The products of a warp's rows with the lane's row of the tile.
template <int ROWS>
DEVICE void dot(float* products, const float* rows, const float* tile, u32 depth) {
    UNROLL for (int r = 0; r < ROWS; r++) products[r] = 0.0f;
    const u32 columns = fours(depth);
    const float* mine = tile + lane() * tile_lead(depth);
    ROLLED for (u32 c = 0; c < columns; c += 4) {
        const Pack<float, 4> x = load_pack<4>(mine + c);
        UNROLL for (int r = 0; r < ROWS; r++) {
            const Pack<float, 4> row = load_pack<4>(rows + r * columns + c);
            UNROLL for (int e = 0; e < 4; e++) products[r] += row.e[e] * x.e[e];
        }
    }
}

// sums[r] += Σ_j weights[r] of lane j · row j of the tile, for the `count` rows that there are: weights of others are 0. `shared` has room
// for the warp's weights.
template <int ROWS, int COLUMNS>
DEVICE void add_weighted(float (*sums)[COLUMNS], const float* weights, float* shared, const float* tile, u32 count, u32 depth) {
    __syncwarp();
    UNROLL for (int r = 0; r < ROWS; r++) shared[r * TILE + lane()] = weights[r];
    __syncwarp();
    const u32 lead = tile_lead(depth);
    ROLLED for (u32 j = 0; j < count; j += 4) {
        float x[4][COLUMNS];
        UNROLL for (int e = 0; e < 4; e++) {
            UNROLL for (int c = 0; c < COLUMNS; c++) {
                const u32 column = lane() + c * WARP;
                x[e][c] = column < depth ? tile[(j + e) * lead + column] : 0.0f;
            }
        }
        UNROLL for (int r = 0; r < ROWS; r++) {
            const Pack<float, 4> w = load_pack<4>(shared + r * TILE + j);
            UNROLL for (int e = 0; e < 4; e++) {
                UNROLL for (int c = 0; c < COLUMNS; c++) sums[r][c] += w.e[e] * x[e][c];
            }
        }
    }
}

template <typename T, int ROWS, int COLUMNS>
DEVICE void store_rows(const Heads& m, u32 b, u32 h, u32 first, u32 count, u32 depth, float (*sums)[COLUMNS], const float* factors) {
    UNROLL for (int r = 0; r < ROWS; r++) {
        if (first + r >= count) continue;
        UNROLL for (int c = 0; c < COLUMNS; c++) {
            const u32 column = lane() + c * WARP;
            if (column < depth) row_of<T>(m, b, h, first + r)[column] = narrow<T>(sums[r][c] * factors[r]);
        }
    }
}

// With ROWS rows for each warp.
template <int ROWS>
DEVICE Place place_of(u32 rows, u32 heads) {
    return place_of(rows, heads, blockDim.x / WARP * ROWS, ROWS);
}

// A warp's part of the shared memory, behind the tile: `columns` for each of its rows, and their weights.
template <int ROWS>
DEVICE float* own_part(float* shared, const AttentionArgs& a, u32 columns) {
    return shared + TILE * tile_lead(largest(a.depth, a.value_depth)) + threadIdx.x / WARP * ROWS * (columns + TILE);
}

template <typename T, int ROWS, int COLUMNS>
DEVICE void attention(const AttentionArgs& a) {
    DYNAMIC_SHARED(float, shared);
    const Place p = place_of<ROWS>(a.queries, a.heads);
    const u32 key_head = p.head / (a.heads / a.key_heads);
    float* tile = shared;
    float* rows = own_part<ROWS>(shared, a, fours(a.depth));
    float* weights = rows + ROWS * fours(a.depth);
    load_rows<T, ROWS>(rows, a.q, p.batch, p.head, p.first, a.queries, a.depth);
    float top[ROWS], sum[ROWS], sums[ROWS][COLUMNS] = {};
    UNROLL for (int r = 0; r < ROWS; r++) {
        top[r] = -infinity();
        sum[r] = 0.0f;
    }
    const bool busy = p.first < a.queries;
    const u32 block_end = p.block_first + blockDim.x / WARP * ROWS;
    const u32 end = a.causal ? least(a.keys, block_end) : a.keys;
    for (u32 j = 0; j < end; j += TILE) {
        float w[ROWS];
        load_tile<T>(tile, a.k, p.batch, key_head, j, a.keys, a.depth);
        if (busy) {
            dot<ROWS>(w, rows, tile, a.depth);
            UNROLL for (int r = 0; r < ROWS; r++) {
                // The same for the whole warp; the sums of a row that does not exist are never stored.
                if (p.first + r >= a.queries) continue;
                const float value = score<T>(a, p.batch, p.head, p.first + r, j + lane(), w[r]);
                const float next = fmaxf(top[r], warp_max(value));
                // A row that has seen nothing yet keeps nothing.
                const float kept = next == -infinity() ? 1.0f : expf(top[r] - next);
                w[r] = value == -infinity() ? 0.0f : expf(value - next);
                sum[r] = sum[r] * kept + warp_sum(w[r]);
                top[r] = next;
                UNROLL for (int c = 0; c < COLUMNS; c++) sums[r][c] *= kept;
            }
        }
        load_tile<T>(tile, a.v, p.batch, key_head, j, a.keys, a.value_depth);
        if (busy) add_weighted<ROWS, COLUMNS>(sums, w, weights, tile, least(a.keys - j, u32(TILE)), a.value_depth);
    }
    float factors[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) factors[r] = share_of(sum[r]);
    store_rows<T, ROWS, COLUMNS>(a.out, p.batch, p.head, p.first, a.queries, a.value_depth, sums, factors);
    if (a.logsumexp == nullptr) return;
    UNROLL for (int r = 0; r < ROWS; r++) {
        if (lane() == 0 && p.first + r < a.queries) {
            *statistic_at(a, a.logsumexp, p.batch, p.head, p.first + r) =
                top[r] == -infinity() ? -infinity() : top[r] + logf(sum[r]);
        }
    }
}

// Lanes that share a row of `delta`.
#define DELTA_LANES 8

// delta[row] = Σ grad · out
template <typename T>
DEVICE void attention_delta(const AttentionArgs& a) {
    const u64 all = static_cast<u64>(a.batches) * a.heads * a.queries, step = thread_count() / DELTA_LANES;
    // Lanes without a row go along: the sum is the whole warp's business.
    for (u64 first = thread_index() / WARP * (WARP / DELTA_LANES); first < all; first += step) {
        const u64 i = first + lane() / DELTA_LANES, above = i / a.queries;
        float sum = 0.0f;
        if (i < all) {
            const u32 row = static_cast<u32>(i - above * a.queries);
            const u32 b = static_cast<u32>(above / a.heads), h = static_cast<u32>(above % a.heads);
            const T *grad = row_of<T>(a.grad, b, h, row), *out = row_of<T>(a.out, b, h, row);
            for (u32 c = lane() % DELTA_LANES; c < a.value_depth; c += DELTA_LANES) sum += widen(grad[c]) * widen(out[c]);
        }
        UNROLL for (int offset = DELTA_LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
        if (i < all && lane() % DELTA_LANES == 0) a.delta[i] = sum;
    }
}

// e^(score − logsumexp); 0 where the score is hidden, or the row's are all too low.
DEVICE float probability(float value, float logsumexp) {
    return value == -infinity() || logsumexp < LOWEST_LOGSUMEXP ? 0.0f : expf(value - logsumexp);
}

// Writes what belongs to a warp's rows and key j, which the lane has.
template <typename T, int ROWS>
DEVICE void store_pairs(const AttentionArgs& a, const Place& p, u32 j, const float* values) {
    if (j >= a.keys) return;
    const i64* s = a.dmask_strides;
    T* column = static_cast<T*>(a.dmask) + p.batch * s[0] + p.head * s[1] + j * s[3];
    UNROLL for (int r = 0; r < ROWS; r++) {
        if (p.first + r < a.queries) column[(p.first + r) * s[2]] = narrow<T>(values[r]);
    }
}

template <typename T, int ROWS, int COLUMNS>
DEVICE void attention_dq(const AttentionArgs& a) {
    DYNAMIC_SHARED(float, shared);
    const Place p = place_of<ROWS>(a.queries, a.heads);
    const u32 key_head = p.head / (a.heads / a.key_heads);
    float* tile = shared;
    float* rows = own_part<ROWS>(shared, a, fours(a.depth) + fours(a.value_depth));
    float* grads = rows + ROWS * fours(a.depth);
    float* weights = grads + ROWS * fours(a.value_depth);
    load_rows<T, ROWS>(rows, a.q, p.batch, p.head, p.first, a.queries, a.depth);
    load_rows<T, ROWS>(grads, a.grad, p.batch, p.head, p.first, a.queries, a.value_depth);
    float logsumexp[ROWS], delta[ROWS], sums[ROWS][COLUMNS] = {}, factors[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) {
        const u32 row = least(p.first + r, a.queries - 1);
        logsumexp[r] = *statistic_at(a, a.logsumexp, p.batch, p.head, row);
        delta[r] = *statistic_at(a, a.delta, p.batch, p.head, row);
        factors[r] = a.scale;
    }
    const bool busy = p.first < a.queries;
    const u32 block_end = p.block_first + blockDim.x / WARP * ROWS;
    const u32 end = a.causal ? least(a.keys, block_end) : a.keys;
    u32 j = 0;
    for (; j < end; j += TILE) {
        float w[ROWS], through[ROWS];
        load_tile<T>(tile, a.k, p.batch, key_head, j, a.keys, a.depth);
        if (busy) {
            dot<ROWS>(w, rows, tile, a.depth);
            UNROLL for (int r = 0; r < ROWS; r++) {
                w[r] = probability(score<T>(a, p.batch, p.head, p.first + r, j + lane(), w[r]), logsumexp[r]);
            }
        }
        load_tile<T>(tile, a.v, p.batch, key_head, j, a.keys, a.value_depth);
        if (busy) {
            dot<ROWS>(through, grads, tile, a.value_depth);
            UNROLL for (int r = 0; r < ROWS; r++) w[r] *= through[r] - delta[r];
        }
        load_tile<T>(tile, a.k, p.batch, key_head, j, a.keys, a.depth);
        if (busy) {
            add_weighted<ROWS, COLUMNS>(sums, w, weights, tile, least(a.keys - j, u32(TILE)), a.depth);
            if (a.dmask != nullptr) store_pairs<T, ROWS>(a, p, j + lane(), w);
        }
    }
    if (busy && a.dmask != nullptr) {
        // Keys that none of the block's rows sees.
        const float zeros[ROWS] = {};
        for (; j < a.keys; j += TILE) store_pairs<T, ROWS>(a, p, j + lane(), zeros);
    }
    store_rows<T, ROWS, COLUMNS>(a.dq, p.batch, p.head, p.first, a.queries, a.depth, sums, factors);
}

template <typename T, int ROWS, int COLUMNS>
DEVICE void attention_dkv(const AttentionArgs& a) {
    DYNAMIC_SHARED(float, shared);
    const Place p = place_of<ROWS>(a.keys, a.key_heads);
    float* tile = shared;
    float* keys = own_part<ROWS>(shared, a, fours(a.depth) + fours(a.value_depth));
    float* values = keys + ROWS * fours(a.depth);
    float* weights = values + ROWS * fours(a.value_depth);
    load_rows<T, ROWS>(keys, a.k, p.batch, p.head, p.first, a.keys, a.depth);
    load_rows<T, ROWS>(values, a.v, p.batch, p.head, p.first, a.keys, a.value_depth);
    float dk[ROWS][COLUMNS] = {}, dv[ROWS][COLUMNS] = {}, scales[ROWS], ones[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) {
        scales[r] = a.scale;
        ones[r] = 1.0f;
    }
    const bool busy = p.first < a.keys;
    const u32 group = a.heads / a.key_heads;
    for (u32 head = p.head * group; head < (p.head + 1) * group; head++) {
        // Earlier queries do not see these keys.
        for (u32 i = a.causal ? p.block_first / TILE * TILE : 0; i < a.queries; i += TILE) {
            const u32 query = i + lane(), row = least(query, a.queries - 1), count = least(a.queries - i, u32(TILE));
            const float logsumexp = *statistic_at(a, a.logsumexp, p.batch, head, row);
            const float delta = *statistic_at(a, a.delta, p.batch, head, row);
            float w[ROWS], through[ROWS];
            load_tile<T>(tile, a.q, p.batch, head, i, a.queries, a.depth);
            if (busy) {
                dot<ROWS>(w, keys, tile, a.depth);
                UNROLL for (int r = 0; r < ROWS; r++) {
                    w[r] = probability(score<T>(a, p.batch, head, query, p.first + r, w[r]), logsumexp);
                }
            }
            load_tile<T>(tile, a.grad, p.batch, head, i, a.queries, a.value_depth);
            if (busy) {
                add_weighted<ROWS, COLUMNS>(dv, w, weights, tile, count, a.value_depth);
                dot<ROWS>(through, values, tile, a.value_depth);
                UNROLL for (int r = 0; r < ROWS; r++) w[r] *= through[r] - delta;
            }
            load_tile<T>(tile, a.q, p.batch, head, i, a.queries, a.depth);
            if (busy) add_weighted<ROWS, COLUMNS>(dk, w, weights, tile, count, a.depth);
        }
    }
    store_rows<T, ROWS, COLUMNS>(a.dk, p.batch, p.head, p.first, a.keys, a.depth, dk, scales);
    store_rows<T, ROWS, COLUMNS>(a.dv, p.batch, p.head, p.first, a.keys, a.value_depth, dv, ones);
}

// ---- rotary embedding ----

template <typename T>
DEVICE void rope(const RopeArgs& a) {
    for (u64 i = thread_index(); i < a.pairs; i += thread_count()) {
        const u64 vector = i / a.half, above = vector / a.heads;
        const i64 e = static_cast<i64>(i - vector * a.half), h = static_cast<i64>(vector - above * a.heads);
        const i64 t = static_cast<i64>(above % a.positions), b = static_cast<i64>(above / a.positions);
        const i64 *xs = a.x_strides, *os = a.out_strides;
        const T* x = static_cast<const T*>(a.x) + b * xs[0] + t * xs[1] + h * xs[2] + e * xs[3];
        T* out = static_cast<T*>(a.out) + b * os[0] + t * os[1] + h * os[2] + e * os[3];
        const float c = a.cos[t * a.half + e], s = a.sign * a.sin[t * a.half + e];
        const float low = widen(x[0]), high = widen(x[a.half * xs[3]]);
        out[0] = narrow<T>(low * c - high * s);
        out[a.half * os[3]] = narrow<T>(high * c + low * s);
    }
}

// Up to 64, 128 and 256 columns of a head; room for two blocks: one reads while the other computes.
// A library multiplies scores by log2(e): below this that is an infinity, although the score is a number. A mask of bfloat16 may hold such numbers.
#define LOWEST_FOR_A_LIBRARY -2.3e38f

// What a library makes of two kinds of rows. Whose keys are all hidden may have become anything: it becomes 0, and its statistic -inf. Whose keys
// all have scores near the lowest number is hidden to the library alone: such a mask leaves nothing of a score, and the row is the mean of the values
// with the highest one. A warp looks at the mask of each row whose statistic is not finite, which others are only where an operand was not.
template <typename T>
DEVICE void attention_hidden(const AttentionArgs& a) {
    const u64 rows = static_cast<u64>(a.batches) * a.heads * a.queries;
    for (u64 r = thread_index() / WARP; r < rows; r += thread_count() / WARP) {
        if (is_finite(a.logsumexp[r])) continue;
        const u32 query = r % a.queries, head = r / a.queries % a.heads, batch = r / a.queries / a.heads;
        const u32 keys = a.causal ? least(a.keys, query + 1) : a.keys;
        float highest = -infinity();
        for (u32 j = lane(); j < keys; j += WARP) highest = fmaxf(highest, widen(*mask_at<T>(a, batch, head, query, j)));
        highest = warp_max(highest);
        if (highest > LOWEST_FOR_A_LIBRARY) continue;
        T* out = row_of<T>(a.out, batch, head, query);
        for (u32 c = lane(); c < a.value_depth; c += WARP) {
            float sum = 0.0f, count = 0.0f;
            for (u32 j = 0; highest != -infinity() && j < keys; j++) {
                if (widen(*mask_at<T>(a, batch, head, query, j)) != highest) continue;
                sum += widen(row_of<T>(a.v, batch, head / (a.heads / a.key_heads), j)[c]);
                count += 1.0f;
            }
            out[c] = narrow<T>(sum / fmaxf(count, 1.0f));
        }
        if (lane() == 0) a.logsumexp[r] = highest;
    }
}

// The statistics in the memory of `delta`: infinite for rows whose gradients are zero.
DEVICE void denominators(const AttentionArgs& a) {
    const u64 rows = static_cast<u64>(a.batches) * a.heads * a.queries;
    for (u64 r = thread_index(); r < rows; r += thread_count()) {
        a.delta[r] = a.logsumexp[r] < LOWEST_LOGSUMEXP ? infinity() : a.logsumexp[r];
    }
}

#define INSTANCES(T, tag)                                                                          \
    BUSY_BLOCK_KERNEL(attention_##tag##_64, AttentionArgs, THREADS, 2, attention<T, 4, 2>)         \
    BUSY_BLOCK_KERNEL(attention_##tag##_128, AttentionArgs, THREADS, 2, attention<T, 4, 4>)        \
    BUSY_BLOCK_KERNEL(attention_##tag##_256, AttentionArgs, THREADS, 2, attention<T, 2, 8>)        \
    BLOCK_KERNEL(attention_delta_##tag, AttentionArgs, THREADS, attention_delta<T>)                \
    BUSY_BLOCK_KERNEL(attention_dq_##tag##_64, AttentionArgs, THREADS, 2, attention_dq<T, 4, 2>)   \
    BUSY_BLOCK_KERNEL(attention_dq_##tag##_128, AttentionArgs, THREADS, 2, attention_dq<T, 2, 4>)  \
    BUSY_BLOCK_KERNEL(attention_dq_##tag##_256, AttentionArgs, THREADS, 2, attention_dq<T, 1, 8>)  \
    BUSY_BLOCK_KERNEL(attention_dkv_##tag##_64, AttentionArgs, THREADS, 2, attention_dkv<T, 4, 2>) \
    BUSY_BLOCK_KERNEL(attention_dkv_##tag##_128, AttentionArgs, THREADS, 2, attention_dkv<T, 2, 4>) \
    BUSY_BLOCK_KERNEL(attention_dkv_##tag##_256, AttentionArgs, THREADS, 2, attention_dkv<T, 1, 8>) \
    FLAT_KERNEL(rope_##tag, RopeArgs, THREADS, rope<T>)
FLOAT_TYPES(INSTANCES)
BLOCK_KERNEL(attention_hidden_f16, AttentionArgs, THREADS, attention_hidden<f16>)
BLOCK_KERNEL(attention_hidden_bf16, AttentionArgs, THREADS, attention_hidden<bf16>)
FLAT_KERNEL(attention_denominators, AttentionArgs, THREADS, denominators)
