// Fused optimizer steps over many parameters in one launch, and the loss scaler's kernels. The list of tensors travels in
// the argument; each block has one chunk of one tensor.
#include "arguments.cuh"
#include "common.cuh"

// Elements of a block's chunk.
#define CHUNK 4096

// The tensor of this block, and its chunk's first element.
template <typename Tensor>
DEVICE u32 tensor_of_block(const List<Tensor>& list, u64& begin) {
    u32 t = 0, end = list.count;
    while (end - t > 1) {
        const u32 middle = (t + end) / 2;
        if (blockIdx.x >= list.first_block[middle]) t = middle;
        else end = middle;
    }
    begin = static_cast<u64>(blockIdx.x - list.first_block[t]) * CHUNK;
    return t;
}

// Calls `step<V>(i)` for the packs of a chunk, as wide as the tensor's alignment allows, and for what is left one by one.
template <int V, typename Step>
DEVICE void each_of_chunk(u64 begin, u64 elements, bool aligned, Step step) {
    const u64 end = least(begin + CHUNK, elements);
    u64 whole = begin;
    if (aligned) {
        whole = begin + (end - begin) / V * V;
        for (u64 i = begin + threadIdx.x * V; i < whole; i += blockDim.x * V) step.template run<V>(i);
    }
    for (u64 i = whole + threadIdx.x; i < end; i += blockDim.x) step.template run<1>(i);
}

template <typename T>
struct SgdBody {
    const SgdArgs& a;
    const SgdTensor& t;
    template <int V>
    DEVICE void run(u64 i) const {
        float p[V], g[V], b[V] = {};
        T *param = static_cast<T*>(t.param) + i, *buffer = static_cast<T*>(t.momentum) + i;
        load_values<V>(param, p);
        load_values<V>(static_cast<const T*>(t.grad) + i, g);
        if (t.momentum != nullptr && !a.first_step) load_values<V>(buffer, b);
        UNROLL for (int j = 0; j < V; j++) {
            float gradient = (a.maximize ? -g[j] : g[j]) + a.weight_decay * p[j];
            if (t.momentum != nullptr) {
                b[j] = a.first_step ? gradient : a.momentum * b[j] + a.undamped * gradient;
                gradient = a.nesterov ? gradient + a.momentum * b[j] : b[j];
            }
            p[j] -= a.lr * gradient;
        }
        store_values<V>(param, p);
        if (t.momentum != nullptr) store_values<V>(buffer, b);
    }
    template <int V, typename S>
    DEVICE static void load_values(const S* at, float* v) {
        const Pack<S, V> pack = load_pack<V>(at);
        UNROLL for (int j = 0; j < V; j++) v[j] = widen(pack.e[j]);
    }
    template <int V, typename S>
    DEVICE static void store_values(S* at, const float* v) {
        Pack<S, V> pack;
        UNROLL for (int j = 0; j < V; j++) pack.e[j] = narrow<S>(v[j]);
        store_pack(at, pack);
    }
};

template <typename T>
DEVICE void sgd_step(const SgdArgs& a) {
    if (a.found_inf != nullptr && *a.found_inf != 0.0f) return;
    u64 begin;
    const SgdTensor& t = a.list.tensors[tensor_of_block(a.list, begin)];
    each_of_chunk<4>(begin, t.elements, t.aligned != 0, SgdBody<T>{a, t});
}

template <typename T>
struct AdamBody {
    const AdamArgs& a;
    const AdamTensor& t;
    template <int V>
    DEVICE void run(u64 i) const {
        typedef SgdBody<T> Io;
        float p[V], g[V], m[V], v[V], top[V] = {};
        T *param = static_cast<T*>(t.param) + i, *avg = static_cast<T*>(t.exp_avg) + i;
        T *sq = static_cast<T*>(t.exp_avg_sq) + i, *max_sq = static_cast<T*>(t.max_exp_avg_sq) + i;
        Io::template load_values<V>(param, p);
        Io::template load_values<V>(static_cast<const T*>(t.grad) + i, g);
        Io::template load_values<V>(avg, m);
        Io::template load_values<V>(sq, v);
        if (t.max_exp_avg_sq != nullptr) Io::template load_values<V>(max_sq, top);
        UNROLL for (int j = 0; j < V; j++) {
            float gradient = a.maximize ? -g[j] : g[j];
            if (a.decoupled) p[j] *= a.decay;
            else gradient += a.weight_decay * p[j];
            m[j] += a.left1 * (gradient - m[j]);
            v[j] = a.beta2 * v[j] + a.left2 * gradient * gradient;
            float second = v[j];
            if (t.max_exp_avg_sq != nullptr) second = top[j] = fmaxf(top[j], second);
            p[j] -= a.step_size * m[j] / (sqrtf(second) * a.inv_correction + a.eps);
        }
        Io::template store_values<V>(param, p);
        Io::template store_values<V>(avg, m);
        Io::template store_values<V>(sq, v);
        if (t.max_exp_avg_sq != nullptr) Io::template store_values<V>(max_sq, top);
    }
};

template <typename T>
DEVICE void adam_step(const AdamArgs& a) {
    if (a.found_inf != nullptr && *a.found_inf != 0.0f) return;
    u64 begin;
    const AdamTensor& t = a.list.tensors[tensor_of_block(a.list, begin)];
    each_of_chunk<4>(begin, t.elements << 1 >> 1, t.elements >> 63 != 0, AdamBody<T>{a, t});
}

template <typename T>
struct UnscaleBody {
    const UnscaleArgs& a;
    const UnscaleTensor& t;
    float scale;
    template <int V>
    DEVICE void run(u64 i) const {
        typedef SgdBody<T> Io;
        float g[V];
        T* grad = static_cast<T*>(t.grad) + i;
        Io::template load_values<V>(grad, g);
        UNROLL for (int j = 0; j < V; j++) {
            if (!is_finite(g[j])) mark(a.found_inf, 1.0f);
            g[j] *= scale;
        }
        Io::template store_values<V>(grad, g);
    }
};
template <typename T>
DEVICE void unscale(const UnscaleArgs& a) {
    u64 begin;
    const UnscaleTensor& t = a.list.tensors[tensor_of_block(a.list, begin)];
    each_of_chunk<4>(begin, t.elements, t.aligned != 0, UnscaleBody<T>{a, t, *a.inv_scale});
}

DEVICE void adapt_scale(const UpdateScaleArgs& a) {
    if (thread_index() != 0) return;
    if (*a.found_inf != 0.0f) {
        *a.scale *= a.backoff_factor;
        *a.growth_tracker = 0;
        return;
    }
    const i32 tracker = *a.growth_tracker + 1;
    if (tracker != a.growth_interval) {
        *a.growth_tracker = tracker;
        return;
    }
    const float grown = *a.scale * a.growth_factor;
    if (is_finite(grown)) *a.scale = grown;
    *a.growth_tracker = 0;
}

#define INSTANCES(T, tag)                                         \
    FLAT_KERNEL(sgd_step_##tag, SgdArgs, THREADS, sgd_step<T>)    \
    FLAT_KERNEL(adam_step_##tag, AdamArgs, THREADS, adam_step<T>) \
    FLAT_KERNEL(unscale_##tag, UnscaleArgs, THREADS, unscale<T>)
FLOAT_TYPES(INSTANCES)
FLAT_KERNEL(update_scale, UpdateScaleArgs, THREADS, adapt_scale)
