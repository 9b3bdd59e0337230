// Softmax and log-softmax over rows or columns, and their gradient.
#include "arguments.cuh"
#include "rows.cuh"

// What a thread, and then a team, knows of a group: its largest element, and the sum of exponentials relative to that.
struct Denominator {
    float top, sum;

    // One pass for both (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
    template <int V>
    DEVICE void add(const float* v) {
        float next = top;
        UNROLL for (int j = 0; j < V; j++) next = fmaxf(next, v[j]);
        // Nothing but -inf so far adds nothing: relative to 0, since -inf - -inf would be no number.
        const float origin = next == -infinity() ? 0.0f : next;
        sum *= expf(top - origin);
        UNROLL for (int j = 0; j < V; j++) sum += expf(v[j] - origin);
        top = next;
    }
    // The thread's sum relative to the team's maximum.
    DEVICE float relative_to(float max) const { return sum == 0.0f ? 0.0f : sum * expf(top - max); }
};

// A row that the team holds: its exponentials are computed once.
template <typename T, int Group, int V>
DEVICE void softmax_held(const SoftmaxArgs& a, const Rows<T, Group, V>& row, T* out, float* scratch) {
    typedef Rows<T, Group, V> R;
    float e[R::HELD][V], top = -infinity(), sum = 0.0f;
    row.each_held([&](u64, int p) {
        widen_pack<V>(row.held[p][0], e[p]);
        UNROLL for (int j = 0; j < V; j++) top = fmaxf(top, e[p][j]);
    });
    const float max = Team<Group>::max(top, scratch);
    row.each_held([&](u64, int p) {
        UNROLL for (int j = 0; j < V; j++) {
            e[p][j] -= max;
            const float power = expf(e[p][j]);
            sum += power;
            if (!a.log) e[p][j] = power;
        }
    });
    sum = Team<Group>::sum(sum, scratch);
    const float log_sum = logf(sum), inverse = 1.0f / sum;
    row.each_held([&](u64 i, int p) {
        UNROLL for (int j = 0; j < V; j++) e[p][j] = a.log ? e[p][j] - log_sum : e[p][j] * inverse;
        store_floats<V>(out + i, e[p]);
    });
}

// A row of whatever length; `each(use)` calls `use(i, v)` with its packs, and is called twice.
template <typename T, int Group, int V, typename Each>
DEVICE void softmax_in_two_passes(const SoftmaxArgs& a, Each each, T* out, float* scratch) {
    Denominator d{-infinity(), 0.0f};
    each([&](u64, const float* v) { d.add<V>(v); });
    const float max = Team<Group>::max(d.top, scratch), sum = Team<Group>::sum(d.relative_to(max), scratch);
    const float log_sum = logf(sum), inverse = 1.0f / sum;
    each([&](u64 i, const float* v) {
        float y[V];
        UNROLL for (int j = 0; j < V; j++) y[j] = a.log ? v[j] - max - log_sum : expf(v[j] - max) * inverse;
        store_floats<V>(out + i, y);
    });
}

template <typename T, int Group, int V>
DEVICE void softmax(const SoftmaxArgs& a) {
    SHARED(float, scratch, WARP);
    typedef Rows<T, Group, V> R;
    for (u64 r = Team<Group>::index(); r < a.rows; r += Team<Group>::count()) {
        const u64 start = r * a.n;
        T* out = static_cast<T*>(a.out) + start;
        if (a.from != type_of(T())) {
            auto each = [&](const auto& use) {
                for (u64 i = R::first(); i < a.n; i += R::step()) {
                    float v[V];
                    load_floats_of<V>(a.from, a.x, start + i, v);
                    use(i, v);
                }
            };
            softmax_in_two_passes<T, Group, V>(a, each, out, scratch);
            continue;
        }
        const R row(r, a.n, a.x);
        if (row.is_held()) {
            softmax_held<T, Group, V>(a, row, out, scratch);
        } else {
            softmax_in_two_passes<T, Group, V>(a, [&](const auto& use) { row.each(use); }, out, scratch);
        }
    }
}

template <typename T, int Group, int V>
DEVICE void softmax_grad(const SoftmaxGradArgs& a) {
    SHARED(float, scratch, WARP);
    for (u64 r = Team<Group>::index(); r < a.rows; r += Team<Group>::count()) {
        const Rows<T, Group, V, 2> rows(r, a.n, a.y, a.grad);
        float sum = 0.0f;
        rows.each([&](u64, const float* v, const float* g) {
            UNROLL for (int j = 0; j < V; j++) sum += a.log ? g[j] : v[j] * g[j];
        });
        sum = Team<Group>::sum(sum, scratch);
        rows.each([&](u64 i, const float* v, const float* g) {
            float x[V];
            UNROLL for (int j = 0; j < V; j++) x[j] = a.log ? g[j] - expf(v[j]) * sum : v[j] * (g[j] - sum);
            store_floats<V>(static_cast<T*>(a.out) + r * a.n + i, x);
        });
    }
}

// ---- columns: the elements of a group are `inner` apart, and neighbouring threads have neighbouring groups ----

// Threads that share a column in the form of tiles.
#define TILE_ROWS 8

// A block's columns, each of which Rows of its threads share.
template <int Rows>
struct Columns {
    static const u32 WIDTH = THREADS / Rows;

    DEVICE static u32 column() { return threadIdx.x % WIDTH; }
    // The first row that is this thread's; it has every Rows-th from there on.
    DEVICE static u32 row() { return threadIdx.x / WIDTH; }
    // Over the threads of a column, known to all of them. `scratch` has a slot per thread; all threads call.
    DEVICE static float sum(float x, float* scratch) {
        if constexpr (Rows == 1) {
            return x;
        } else {
            share(x, scratch);
            float total = 0.0f;
            UNROLL for (int r = 0; r < Rows; r++) total += scratch[r * WIDTH + column()];
            return total;
        }
    }
    DEVICE static float max(float x, float* scratch) {
        if constexpr (Rows == 1) {
            return x;
        } else {
            share(x, scratch);
            float top = -infinity();
            UNROLL for (int r = 0; r < Rows; r++) top = fmaxf(top, scratch[r * WIDTH + column()]);
            return top;
        }
    }
    DEVICE static void share(float x, float* scratch) {
        __syncthreads();
        scratch[threadIdx.x] = x;
        __syncthreads();
    }
};

// Calls `use(exists, base)` for each tile of the launch with the first element of the thread's column. All threads take part in every tile,
// also those without a column, since there are barriers in it.
template <int Rows, typename Use>
DEVICE void each_column(u64 columns, u64 n, u64 inner, Use use) {
    const u64 width = Columns<Rows>::WIDTH;
    for (u64 first = blockIdx.x * width; first < columns; first += gridDim.x * width) {
        const u64 column = first + Columns<Rows>::column();
        use(column < columns, column / inner * inner * n + column % inner);
    }
}

template <typename T, int Rows>
DEVICE void softmax_columns(const SoftmaxArgs& a) {
    SHARED(float, scratch, THREADS);
    T* out = static_cast<T*>(a.out);
    each_column<Rows>(a.rows, a.n, a.inner, [&](bool exists, u64 base) {
        const u64 n = exists ? a.n : 0;
        Denominator d{-infinity(), 0.0f};
        for (u64 j = Columns<Rows>::row(); j < n; j += Rows) {
            float v[1];
            load_floats_of<1>(a.from, a.x, base + j * a.inner, v);
            d.add<1>(v);
        }
        const float max = Columns<Rows>::max(d.top, scratch), sum = Columns<Rows>::sum(d.relative_to(max), scratch);
        const float log_sum = logf(sum), inverse = 1.0f / sum;
        for (u64 j = Columns<Rows>::row(); j < n; j += Rows) {
            const u64 i = base + j * a.inner;
            float v[1];
            load_floats_of<1>(a.from, a.x, i, v);
            out[i] = narrow<T>(a.log ? v[0] - max - log_sum : expf(v[0] - max) * inverse);
        }
    });
}

template <typename T, int Rows>
DEVICE void softmax_grad_columns(const SoftmaxGradArgs& a) {
    SHARED(float, scratch, THREADS);
    const T *y = static_cast<const T*>(a.y), *grad = static_cast<const T*>(a.grad);
    T* out = static_cast<T*>(a.out);
    each_column<Rows>(a.rows, a.n, a.inner, [&](bool exists, u64 base) {
        const u64 n = exists ? a.n : 0;
        float sum = 0.0f;
        for (u64 j = Columns<Rows>::row(); j < n; j += Rows) {
            const u64 i = base + j * a.inner;
            sum += a.log ? widen(grad[i]) : widen(y[i]) * widen(grad[i]);
        }
        sum = Columns<Rows>::sum(sum, scratch);
        for (u64 j = Columns<Rows>::row(); j < n; j += Rows) {
            const u64 i = base + j * a.inner;
            const float v = widen(y[i]), g = widen(grad[i]);
            out[i] = narrow<T>(a.log ? g - expf(v) * sum : v * (g - sum));
        }
    });
}

#define COLUMN_FORMS(function, T, tag, Args)                                    \
    FLAT_KERNEL(function##_##tag##_thread, Args, THREADS, function<T, 1>)       \
    BLOCK_KERNEL(function##_##tag##_tile, Args, THREADS, function<T, TILE_ROWS>)

#define INSTANCES(T, tag)                                 \
    ROW_FORMS(softmax, T, tag, SoftmaxArgs)               \
    ROW_FORMS(softmax_grad, T, tag, SoftmaxGradArgs)      \
    COLUMN_FORMS(softmax_columns, T, tag, SoftmaxArgs)    \
    COLUMN_FORMS(softmax_grad_columns, T, tag, SoftmaxGradArgs)
FLOAT_TYPES(INSTANCES)
