// Layer, root-mean-square and batch normalisation, and their gradients. Statistics are f32.
#include "arguments.cuh"
#include "rows.cuh"
#include "walk.cuh"

// ---- rows ----

template <int V, typename T>
DEVICE void load_parameter(const void* parameter, u64 i, float missing, float* v) {
    if (parameter == nullptr) {
        UNROLL for (int j = 0; j < V; j++) v[j] = missing;
    } else {
        load_floats<V>(static_cast<const T*>(parameter) + i, v);
    }
}

// The row is read once, where it fits into registers: mean, then the squares of what lies beside it.
template <typename T, int Group, int V, int Held = Rows<T, Group, V>::HELD>
DEVICE void row_norm(const RowNormArgs& a) {
    SHARED(float, scratch, WARP);
    const float length = static_cast<float>(a.n);
    for (u64 r = Team<Group>::index(); r < a.rows; r += Team<Group>::count()) {
        const Rows<T, Group, V, 1, Held> row(r, a.n, a.x);
        float mean = 0.0f;
        if (a.mean != nullptr) {
            row.each([&](u64, const float* v) { UNROLL for (int j = 0; j < V; j++) mean += v[j]; });
            mean = Team<Group>::sum(mean, scratch) / length;
        }
        float squares = 0.0f;
        row.each([&](u64, const float* v) {
            UNROLL for (int j = 0; j < V; j++) squares += (v[j] - mean) * (v[j] - mean);
        });
        const float rstd = 1.0f / sqrtf(Team<Group>::sum(squares, scratch) / length + a.eps);
        row.each([&](u64 i, const float* v) {
            float w[V], b[V], y[V];
            load_parameter<V, T>(a.weight, i, 1.0f, w);
            load_parameter<V, T>(a.bias, i, 0.0f, b);
            UNROLL for (int j = 0; j < V; j++) y[j] = (v[j] - mean) * rstd * w[j] + b[j];
            store_floats<V>(static_cast<T*>(a.out) + r * a.n + i, y);
        });
        if (Team<Group>::rank() == 0) {
            if (a.mean != nullptr) a.mean[r] = mean;
            a.rstd[r] = rstd;
        }
    }
}

template <typename T, int Group, int V>
DEVICE void row_norm_grad(const RowNormGradArgs& a) {
    SHARED(float, scratch, 2 * WARP);
    const float length = static_cast<float>(a.n);
    for (u64 r = Team<Group>::index(); r < a.rows; r += Team<Group>::count()) {
        const float mean = a.mean != nullptr ? a.mean[r] : 0.0f, rstd = a.rstd[r];
        const Rows<T, Group, V, 2> rows(r, a.n, a.x, a.grad);
        // Calls `use` with the normalised input and the gradient times the weight.
        auto each = [&](auto use) {
            rows.each([&](u64 i, float* xs, float* gs) {
                float w[V];
                load_parameter<V, T>(a.weight, i, 1.0f, w);
                UNROLL for (int j = 0; j < V; j++) {
                    xs[j] = (xs[j] - mean) * rstd;
                    gs[j] *= w[j];
                }
                use(i, xs, gs);
            });
        };
        float sum_g = 0.0f, sum_gx = 0.0f;
        each([&](u64, const float* xs, const float* gs) {
            UNROLL for (int j = 0; j < V; j++) {
                sum_g += gs[j];
                sum_gx += gs[j] * xs[j];
            }
        });
        Team<Group>::sums(sum_g, sum_gx, scratch);
        // Without a mean nothing was subtracted from the input.
        sum_g = a.mean != nullptr ? sum_g / length : 0.0f;
        sum_gx = sum_gx / length;
        each([&](u64 i, const float* xs, const float* gs) {
            float y[V];
            UNROLL for (int j = 0; j < V; j++) y[j] = rstd * (gs[j] - sum_g - xs[j] * sum_gx);
            store_floats<V>(static_cast<T*>(a.out) + r * a.n + i, y);
        });
    }
}

// Gradients of the parameters: sums over rows. A thread has V neighbouring columns, a block 32 times as many and 8 rows at a time of one
// chunk of rows; chunks leave partial sums, which `column_sums` adds up in order.
#define STRIPES (THREADS / WARP)
// Rows that a thread has on their way at once.
#define ROWS_AHEAD 4

template <typename T, int V>
DEVICE void parameter_grad(const ParameterGradArgs& a) {
    SHARED(float, sums, 2 * V * THREADS);
    const u64 column = (static_cast<u64>(blockIdx.x) * WARP + lane()) * V;
    const u64 end = least((blockIdx.y + 1) * a.chunk_rows, a.rows);
    const T *x = static_cast<const T*>(a.x), *grad = static_cast<const T*>(a.grad);
    float weight[V] = {}, bias[V] = {};
    if (column < a.n) {
        for (u64 first = blockIdx.y * a.chunk_rows + threadIdx.x / WARP; first < end; first += ROWS_AHEAD * STRIPES) {
            float xs[ROWS_AHEAD][V], gs[ROWS_AHEAD][V], mean[ROWS_AHEAD], rstd[ROWS_AHEAD];
            UNROLL for (int k = 0; k < ROWS_AHEAD; k++) {
                const u64 r = first + k * STRIPES;
                if (r >= end) break;
                load_floats<V>(grad + r * a.n + column, gs[k]);
                load_floats<V>(x + r * a.n + column, xs[k]);
                mean[k] = a.mean != nullptr ? a.mean[r] : 0.0f;
                rstd[k] = a.rstd[r];
            }
            UNROLL for (int k = 0; k < ROWS_AHEAD; k++) {
                if (first + k * STRIPES >= end) break;
                UNROLL for (int j = 0; j < V; j++) {
                    weight[j] += gs[k][j] * (xs[k][j] - mean[k]) * rstd[k];
                    bias[j] += gs[k][j];
                }
            }
        }
    }
    UNROLL for (int j = 0; j < V; j++) {
        sums[j * THREADS + threadIdx.x] = weight[j];
        sums[(V + j) * THREADS + threadIdx.x] = bias[j];
    }
    __syncthreads();
    if (threadIdx.x >= WARP || column >= a.n) return;
    UNROLL for (int j = 0; j < V; j++) {
        float of_weight = 0.0f, of_bias = 0.0f;
        for (u32 s = 0; s < STRIPES; s++) {
            of_weight += sums[j * THREADS + s * WARP + lane()];
            of_bias += sums[(V + j) * THREADS + s * WARP + lane()];
        }
        const u64 at = blockIdx.y * a.n + column + j;
        if (a.weight_sums != nullptr) a.weight_sums[at] = of_weight;
        if (a.bias_sums != nullptr) a.bias_sums[at] = of_bias;
    }
}

// All gradients of rows at once: a block has P packs of columns for each thread, and goes over rows. A row is read once: while it is in
// registers it also adds to the sums of its columns, which the block leaves as its chunk for `column_sums`; the next row is on its way meanwhile.
template <typename T, int P>
struct GradRow {
    static const int V = Wide<T>::N;
    Pack<T, V> x[P], grad[P];
    float mean, rstd;

    DEVICE static u64 column(int p) { return (threadIdx.x + static_cast<u64>(p) * THREADS) * V; }
    // Zeros beyond the row: they add nothing.
    DEVICE void load(const RowNormGradArgs& a, u64 r) {
        UNROLL for (int p = 0; p < P; p++) {
            const u64 i = column(p);
            x[p] = grad[p] = Pack<T, V>{};
            if (i >= a.n) continue;
            x[p] = load_pack<V>(static_cast<const T*>(a.x) + r * a.n + i);
            grad[p] = load_pack<V>(static_cast<const T*>(a.grad) + r * a.n + i);
        }
        mean = a.mean != nullptr ? a.mean[r] : 0.0f;
        rstd = a.rstd[r];
    }
    DEVICE float normalised(int p, int j) const { return (widen(x[p].e[j]) - mean) * rstd; }
};

// Both sums over the block. `slots` has two for each warp; the row after next may use them again: there is one barrier in each.
DEVICE void sums_by_turns(float& x, float& y, float* slots) {
    static const int WARPS = THREADS / WARP;
    x = warp_sum(x);
    y = warp_sum(y);
    if (lane() == 0) {
        slots[threadIdx.x / WARP] = x;
        slots[WARPS + threadIdx.x / WARP] = y;
    }
    __syncthreads();
    x = slots[lane() % WARPS];
    y = slots[WARPS + lane() % WARPS];
    UNROLL for (int offset = WARPS / 2; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, offset);
        y += __shfl_xor_sync(ALL_LANES, y, offset);
    }
}

template <typename T, int P>
DEVICE void row_norm_grads(const RowNormGradsArgs& all) {
    typedef GradRow<T, P> Row;
    static const int V = Row::V;
    SHARED(float, scratch, 4 * (THREADS / WARP));
    const RowNormGradArgs& a = all.rows;
    const float length = static_cast<float>(a.n);
    Pack<T, V> w[P];
    float weight[P][V] = {}, bias[P][V] = {};
    UNROLL for (int p = 0; p < P; p++) {
        UNROLL for (int j = 0; j < V; j++) w[p].e[j] = narrow<T>(1.0f);
        if (a.weight != nullptr && Row::column(p) < a.n) w[p] = load_pack<V>(static_cast<const T*>(a.weight) + Row::column(p));
    }
    // There are as many rows as blocks, or more.
    Row row;
    row.load(a, blockIdx.x);
    float* slots = scratch;
    for (u64 r = blockIdx.x; r < a.rows; r += gridDim.x) {
        Row next = row;
        if (r + gridDim.x < a.rows) next.load(a, r + gridDim.x);
        float sum_g = 0.0f, sum_gx = 0.0f;
        UNROLL for (int p = 0; p < P; p++) {
            UNROLL for (int j = 0; j < V; j++) {
                const float x = row.normalised(p, j), g = widen(row.grad[p].e[j]), scaled = g * widen(w[p].e[j]);
                weight[p][j] += g * x;
                bias[p][j] += g;
                sum_g += scaled;
                sum_gx += scaled * x;
            }
        }
        sums_by_turns(sum_g, sum_gx, slots);
        slots = slots == scratch ? scratch + 2 * (THREADS / WARP) : scratch;
        // Without a mean nothing was subtracted from the input.
        sum_g = a.mean != nullptr ? sum_g / length : 0.0f;
        sum_gx = sum_gx / length;
        UNROLL for (int p = 0; p < P; p++) {
            if (Row::column(p) >= a.n) continue;
            float y[V];
            UNROLL for (int j = 0; j < V; j++) {
                const float scaled = widen(row.grad[p].e[j]) * widen(w[p].e[j]);
                y[j] = row.rstd * (scaled - sum_g - row.normalised(p, j) * sum_gx);
            }
            store_floats<V>(static_cast<T*>(a.out) + r * a.n + Row::column(p), y);
        }
        row = next;
    }
    UNROLL for (int p = 0; p < P; p++) {
        if (Row::column(p) >= a.n) continue;
        const u64 at = blockIdx.x * a.n + Row::column(p);
        UNROLL for (int j = 0; j < V; j += 4) {
            if (all.weight_sums != nullptr) store_floats<4>(all.weight_sums + at + j, weight[p] + j);
            if (all.bias_sums != nullptr) store_floats<4>(all.bias_sums + at + j, bias[p] + j);
        }
    }
}

// Chunks that a thread has on their way at once.
#define CHUNKS_AHEAD 8

// Of the gradients of both parameters, those that are wanted: a block has 32 columns of one of them, and a warp every eighth chunk.
template <typename T>
DEVICE void column_sums(const ColumnSumsArgs& a) {
    SHARED(float, sums, THREADS);
    const u32 which = blockIdx.y;
    if (a.out[which] == nullptr) return;
    const u64 column = static_cast<u64>(blockIdx.x) * WARP + lane();
    float sum = 0.0f;
    if (column < a.n) {
        for (u64 first = threadIdx.x / WARP; first < a.chunks; first += CHUNKS_AHEAD * STRIPES) {
            float part[CHUNKS_AHEAD];
            UNROLL for (int k = 0; k < CHUNKS_AHEAD; k++) {
                const u64 c = first + k * STRIPES;
                part[k] = c < a.chunks ? a.partial[which][c * a.n + column] : 0.0f;
            }
            UNROLL for (int k = 0; k < CHUNKS_AHEAD; k++) sum += part[k];
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP || column >= a.n) return;
    for (u32 s = 1; s < STRIPES; s++) sum += sums[s * WARP + lane()];
    static_cast<T*>(a.out[which])[column] = narrow<T>(sum);
}

// ---- channels ----

// Element i of a channel, in its images.
DEVICE u64 channel_place(const ChannelArgs& a, const u64* steps, u64 channel, u64 i) {
    const u64 image = divide(static_cast<u32>(i), a.by_length);
    return image * steps[0] + channel * steps[1] + (i - image * a.length) * steps[2];
}

// The elements of a chunk, of which V lie together and belong to one image.
struct Chunk {
    u64 begin, end;
};
template <int V>
DEVICE Chunk chunk_of(const ChannelArgs& a) {
    const u64 all = a.images * a.length, part = (all / V + a.chunks - 1) / a.chunks * V;
    const u64 begin = blockIdx.y * part;
    return Chunk{begin, least(begin + part, all)};
}

// A team per channel and chunk: the mean of the chunk, then the squares beside it; chunks are merged afterwards
// (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
template <typename T, int Group, int V>
DEVICE void channel_moments(const ChannelArgs& a) {
    SHARED(float, scratch, WARP);
    const Chunk chunk = chunk_of<V>(a);
    const u64 first = chunk.begin + Team<Group>::rank() * V;
    for (u64 channel = Team<Group>::index(); channel < a.channels; channel += Team<Group>::count()) {
        auto load = [&](u64 i, float* v) { load_floats<V>(static_cast<const T*>(a.x) + channel_place(a, a.x_steps, channel, i), v); };
        float sum = 0.0f;
        for (u64 i = first; i < chunk.end; i += Group * V) {
            float v[V];
            load(i, v);
            UNROLL for (int j = 0; j < V; j++) sum += v[j];
        }
        const float count = chunk.begin < chunk.end ? static_cast<float>(chunk.end - chunk.begin) : 0.0f;
        const float mean = count > 0.0f ? Team<Group>::sum(sum, scratch) / count : 0.0f;
        float squares = 0.0f;
        for (u64 i = first; i < chunk.end; i += Group * V) {
            float v[V];
            load(i, v);
            UNROLL for (int j = 0; j < V; j++) squares += (v[j] - mean) * (v[j] - mean);
        }
        squares = Team<Group>::sum(squares, scratch);
        if (Team<Group>::rank() == 0) {
            float* to = a.partial + (channel * a.chunks + blockIdx.y) * 3;
            to[0] = count;
            to[1] = mean;
            to[2] = squares;
        }
    }
}

template <typename T, int Group, int V>
DEVICE void channel_sums(const ChannelArgs& a) {
    SHARED(float, scratch, WARP);
    const Chunk chunk = chunk_of<V>(a);
    for (u64 channel = Team<Group>::index(); channel < a.channels; channel += Team<Group>::count()) {
        const float mean = a.mean[channel], invstd = a.invstd[channel];
        float sum = 0.0f, product = 0.0f;
        for (u64 i = chunk.begin + Team<Group>::rank() * V; i < chunk.end; i += Group * V) {
            float g[V], x[V];
            load_floats<V>(static_cast<const T*>(a.grad) + channel_place(a, a.grad_steps, channel, i), g);
            load_floats<V>(static_cast<const T*>(a.x) + channel_place(a, a.x_steps, channel, i), x);
            UNROLL for (int j = 0; j < V; j++) {
                sum += g[j];
                product += g[j] * (x[j] - mean) * invstd;
            }
        }
        sum = Team<Group>::sum(sum, scratch);
        product = Team<Group>::sum(product, scratch);
        if (Team<Group>::rank() == 0) {
            float* to = a.partial + (channel * a.chunks + blockIdx.y) * 3;
            to[0] = sum;
            to[1] = product;
        }
    }
}

template <typename T>
DEVICE float parameter(const void* p, u64 i, float missing) {
    return p != nullptr ? widen(static_cast<const T*>(p)[i]) : missing;
}

// Moves a running statistic towards the batch's.
template <typename T>
DEVICE void move_running(void* running, u64 i, float momentum, float batch) {
    if (running == nullptr) return;
    T* at = static_cast<T*>(running) + i;
    *at = narrow<T>((1.0f - momentum) * widen(*at) + momentum * batch);
}

// Calls `use` with the first Count of the three figures of each chunk of a channel, in order. Some are on their way before the first is waited
// for: there are too few threads to hide that.
template <int Count, typename Use>
DEVICE void each_partial(const ChannelFinishArgs& a, u64 channel, Use use) {
    static const int AHEAD = 4;
    for (u64 first = 0; first < a.chunks; first += AHEAD) {
        float read[AHEAD][Count];
        UNROLL for (int k = 0; k < AHEAD; k++) {
            if (first + k >= a.chunks) break;
            UNROLL for (int i = 0; i < Count; i++) read[k][i] = a.partial[(channel * a.chunks + first + k) * 3 + i];
        }
        UNROLL for (int k = 0; k < AHEAD; k++) {
            if (first + k >= a.chunks) break;
            use(read[k]);
        }
    }
}

template <typename T>
DEVICE void channel_finish(const ChannelFinishArgs& a) {
    for (u64 c = thread_index(); c < a.channels; c += thread_count()) {
        float count = 0.0f, mean = 0.0f, squares = 0.0f;
        if (a.training) {
            each_partial<3>(a, c, [&](const float* p) {
                if (p[0] == 0.0f) return;
                const float all = count + p[0], delta = p[1] - mean;
                mean += delta * (p[0] / all);
                squares += p[2] + delta * delta * (count * (p[0] / all));
                count = all;
            });
        }
        const float var = a.training ? squares / a.count : parameter<T>(a.running_var, c, 1.0f);
        if (a.training) {
            move_running<T>(a.running_mean, c, a.momentum, mean);
            move_running<T>(a.running_var, c, a.momentum, squares / (a.count - 1.0f));
        } else {
            mean = parameter<T>(a.running_mean, c, 0.0f);
        }
        const float invstd = 1.0f / sqrtf(var + a.eps);
        if (a.training) {
            a.save_mean[c] = mean;
            a.save_invstd[c] = invstd;
        }
        a.factors[c * 3] = mean;
        a.factors[c * 3 + 1] = invstd * parameter<T>(a.weight, c, 1.0f);
        a.factors[c * 3 + 2] = parameter<T>(a.bias, c, 0.0f);
    }
}

template <typename T>
DEVICE void channel_finish_grad(const ChannelFinishArgs& a) {
    for (u64 c = thread_index(); c < a.channels; c += thread_count()) {
        float sum = 0.0f, product = 0.0f;
        each_partial<2>(a, c, [&](const float* p) {
            sum += p[0];
            product += p[1];
        });
        if (a.out_weight != nullptr) static_cast<T*>(a.out_weight)[c] = narrow<T>(product);
        if (a.out_bias != nullptr) static_cast<T*>(a.out_bias)[c] = narrow<T>(sum);
        a.factors[c * 3] = a.training ? sum / a.count : 0.0f;
        a.factors[c * 3 + 1] = a.training ? product / a.count : 0.0f;
        a.factors[c * 3 + 2] = parameter<T>(a.weight, c, 1.0f) * a.invstd[c];
    }
}

// The channel of a pack.
DEVICE u32 channel_of(const ChannelApplyArgs& a, u64 pack) {
    const u32 plane = divide(static_cast<u32>(pack), a.by_length);
    return plane - divide(plane, a.by_channels) * a.by_channels.divisor;
}

// Where a pack of V elements of one plane of the result lies in another tensor.
template <int V>
DEVICE u64 pack_place(const ChannelApplyArgs& a, const u64* steps, u64 pack) {
    const u32 plane = divide(static_cast<u32>(pack), a.by_length);
    const u32 image = divide(plane, a.by_channels);
    const u64 channel = plane - image * a.by_channels.divisor;
    const u64 place = (static_cast<u32>(pack) - plane * a.by_length.divisor) * V;
    return image * steps[0] + channel * steps[1] + place * steps[2];
}

template <typename T, int V>
DEVICE void channel_apply(const ChannelApplyArgs& a) {
    for (u64 pack = thread_index(); pack < a.packs; pack += thread_count()) {
        const float* f = a.factors + static_cast<u64>(channel_of(a, pack)) * 3;
        float v[V];
        load_floats<V>(static_cast<const T*>(a.x) + pack * V, v);
        UNROLL for (int j = 0; j < V; j++) v[j] = (v[j] - f[0]) * f[1] + f[2];
        store_floats<V>(static_cast<T*>(a.out) + pack * V, v);
    }
}

template <typename T, int V>
DEVICE void channel_apply_grad(const ChannelApplyArgs& a) {
    for (u64 pack = thread_index(); pack < a.packs; pack += thread_count()) {
        const u32 c = channel_of(a, pack);
        const float* f = a.factors + static_cast<u64>(c) * 3;
        const float mean = a.mean[c], invstd = a.invstd[c];
        float x[V], g[V];
        load_floats<V>(static_cast<const T*>(a.x) + pack_place<V>(a, a.x_steps, pack), x);
        load_floats<V>(static_cast<const T*>(a.grad) + pack_place<V>(a, a.grad_steps, pack), g);
        UNROLL for (int j = 0; j < V; j++) g[j] = f[2] * (g[j] - f[0] - (x[j] - mean) * invstd * f[1]);
        store_floats<V>(static_cast<T*>(a.out) + pack * V, g);
    }
}

#define CHANNEL_FORMS(function, T, tag)                                                  \
    FLAT_KERNEL(function##_##tag##_thread, ChannelArgs, THREADS, function<T, 1, 1>)      \
    BLOCK_KERNEL(function##_##tag##_warp, ChannelArgs, THREADS, function<T, WARP, 1>)    \
    BLOCK_KERNEL(function##_##tag##_block, ChannelArgs, THREADS, function<T, THREADS, 1>) \
    BLOCK_KERNEL(function##_##tag##_block_wide, ChannelArgs, THREADS, function<T, THREADS, Wide<T>::N>)
// Columns of a thread in the wide form.
#define PAIR 2
// Packs of a row that a warp holds in the long form: rows four times as long as in the other one, without a barrier.
#define LONG 16
#define INSTANCES(T, tag)                                                                       \
    ROW_FORMS(row_norm, T, tag, RowNormArgs)                                                       \
    ROW_FORMS(row_norm_grad, T, tag, RowNormGradArgs)                                              \
    BLOCK_KERNEL(parameter_grad_##tag##_one, ParameterGradArgs, THREADS, parameter_grad<T, 1>)  \
    BLOCK_KERNEL(parameter_grad_##tag##_wide, ParameterGradArgs, THREADS, parameter_grad<T, PAIR>) \
    BLOCK_KERNEL(column_sums_##tag, ColumnSumsArgs, THREADS, column_sums<T>)                    \
    CHANNEL_FORMS(channel_moments, T, tag)                                                      \
    CHANNEL_FORMS(channel_sums, T, tag)                                                         \
    FLAT_KERNEL(channel_finish_##tag, ChannelFinishArgs, THREADS, channel_finish<T>)            \
    FLAT_KERNEL(channel_finish_grad_##tag, ChannelFinishArgs, THREADS, channel_finish_grad<T>)  \
    FLAT_KERNEL(channel_apply_##tag##_one, ChannelApplyArgs, THREADS, channel_apply<T, 1>)      \
    FLAT_KERNEL(channel_apply_##tag##_wide, ChannelApplyArgs, THREADS, channel_apply<T, Wide<T>::N>)     \
    FLAT_KERNEL(channel_apply_grad_##tag##_one, ChannelApplyArgs, THREADS, channel_apply_grad<T, 1>) \
    FLAT_KERNEL(channel_apply_grad_##tag##_wide, ChannelApplyArgs, THREADS, channel_apply_grad<T, Wide<T>::N>)
FLOAT_TYPES(INSTANCES)

#define LONG_INSTANCES(T, tag) \
    BUSY_BLOCK_KERNEL(row_norm_long_##tag, RowNormArgs, THREADS, 2, row_norm<T, WARP, Wide<T>::N, LONG>) \
    BUSY_BLOCK_KERNEL(row_norm_grads_##tag##_2048, RowNormGradsArgs, THREADS, 2, row_norm_grads<T, 1>)   \
    BUSY_BLOCK_KERNEL(row_norm_grads_##tag##_4096, RowNormGradsArgs, THREADS, 2, row_norm_grads<T, 2>)
LONG_INSTANCES(f16, f16)
LONG_INSTANCES(bf16, bf16)
