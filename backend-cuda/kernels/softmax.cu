// Softmax and log-softmax over rows, and their gradient.
#include "rows.cuh"

struct SoftmaxArgs {
    void* out;
    const void* x;
    u64 rows;
    u64 n;
    // The type of x; the kernel's is that of out.
    u32 from;
    u32 log;
};

// One pass for maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), one to write.
template <typename T, int Group, int V>
DEVICE void softmax(const SoftmaxArgs& a) {
    SHARED(float, scratch, WARP);
    T* out = static_cast<T*>(a.out);
    for (u64 r = Team<Group>::index(); r < a.rows; r += Team<Group>::count()) {
        const u64 start = r * a.n;
        auto load = [&](u64 i, float* v) { load_floats_of<V>(a.from, a.x, start + i, v); };
        Row<Group, V> row;
        row.read(a.n, load);
        float top = -infinity(), sum = 0.0f;
        row.each(load, [&](u64, const float* v) {
            float next = top;
            UNROLL for (int j = 0; j < V; j++) next = fmaxf(next, v[j]);
            // Nothing but -inf so far: there is nothing to add, and -inf - -inf would be no number.
            if (next > top) sum *= expf(top - next);
            UNROLL for (int j = 0; j < V; j++) sum += v[j] == -infinity() ? 0.0f : expf(v[j] - next);
            top = next;
        });
        const float max = Team<Group>::max(top, scratch);
        sum = Team<Group>::sum(sum == 0.0f ? 0.0f : sum * expf(top - max), scratch);
        const float log_sum = logf(sum), inverse = 1.0f / sum;
        row.each(load, [&](u64 i, const float* v) {
            float y[V];
            UNROLL for (int j = 0; j < V; j++) {
                y[j] = a.log ? v[j] - max - log_sum : expf(v[j] - max) * inverse;
            }
            store_floats<V>(out + start + i, y);
        });
    }
}

struct SoftmaxGradArgs {
    void* out;
    const void* y;
    const void* grad;
    u64 rows;
    u64 n;
    u32 log;
    u32 unused;
};

template <typename T, int Group, int V>
DEVICE void softmax_grad(const SoftmaxGradArgs& a) {
    SHARED(float, scratch, WARP);
    for (u64 r = Team<Group>::index(); r < a.rows; r += Team<Group>::count()) {
        const u64 start = r * a.n;
        const T *y = static_cast<const T*>(a.y) + start, *grad = static_cast<const T*>(a.grad) + start;
        auto load_y = [&](u64 i, float* v) { load_floats<V>(y + i, v); };
        auto load_grad = [&](u64 i, float* v) { load_floats<V>(grad + i, v); };
        Row<Group, V> rows[2];
        rows[0].read(a.n, load_y);
        rows[1].read(a.n, load_grad);
        float sum = 0.0f;
        UNROLL for (int p = 0; p < HELD; p++) {
            if (rows[0].first() + p * rows[0].step() >= a.n) continue;
            UNROLL for (int j = 0; j < V; j++) sum += a.log ? rows[1].held[p][j] : rows[0].held[p][j] * rows[1].held[p][j];
        }
        for (u64 i = rows[0].first() + HELD * rows[0].step(); i < a.n; i += rows[0].step()) {
            float v[V], g[V];
            load_y(i, v);
            load_grad(i, g);
            UNROLL for (int j = 0; j < V; j++) sum += a.log ? g[j] : v[j] * g[j];
        }
        sum = Team<Group>::sum(sum, scratch);
        auto write = [&](u64 i, const float* v, const float* g) {
            float x[V];
            UNROLL for (int j = 0; j < V; j++) x[j] = a.log ? g[j] - expf(v[j]) * sum : v[j] * (g[j] - sum);
            store_floats<V>(static_cast<T*>(a.out) + start + i, x);
        };
        UNROLL for (int p = 0; p < HELD; p++) {
            const u64 i = rows[0].first() + p * rows[0].step();
            if (i < a.n) write(i, rows[0].held[p], rows[1].held[p]);
        }
        for (u64 i = rows[0].first() + HELD * rows[0].step(); i < a.n; i += rows[0].step()) {
            float v[V], g[V];
            load_y(i, v);
            load_grad(i, g);
            write(i, v, g);
        }
    }
}

#define INSTANCES(T, tag)                      \
    ROW_FORMS(softmax, T, tag, SoftmaxArgs)    \
    ROW_FORMS(softmax_grad, T, tag, SoftmaxGradArgs)
FLOAT_TYPES(INSTANCES)
