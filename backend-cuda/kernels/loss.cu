// Negative log-likelihood of class indices, and its gradient.
#include "arguments.cuh"
#include "common.cuh"

enum Reduction { NONE, MEAN, SUM };

// Threads of the one block that adds the losses up, always in the same order.
#define LOSS_THREADS 1024

template <typename T>
DEVICE void nll_loss(const NllLossArgs& a) {
    SHARED(float, scratch, WARP);
    float sum = 0.0f, counted = 0.0f;
    for (u64 i = threadIdx.x; i < a.rows * a.inner; i += blockDim.x) {
        const i64 t = a.target[i];
        float loss = 0.0f;
        if (t != a.ignore_index) {
            const bool inside = t >= 0 && static_cast<u64>(t) < a.classes;
            const u64 at = (i / a.inner * a.classes + static_cast<u64>(t)) * a.inner + i % a.inner;
            loss = inside ? -widen(static_cast<const T*>(a.log_probs)[at]) : not_a_number();
            counted += 1.0f;
        }
        sum += loss;
        if (a.reduction == NONE) static_cast<T*>(a.out)[i] = narrow<T>(loss);
    }
    sum = block_sum(sum, scratch);
    counted = block_sum(counted, scratch);
    if (threadIdx.x != 0) return;
    if (a.reduction != NONE) *static_cast<T*>(a.out) = narrow<T>(a.reduction == MEAN ? sum / counted : sum);
    *static_cast<T*>(a.total_weight) = narrow<T>(counted);
}

// What the class of target i gets.
template <typename T>
DEVICE float nll_loss_share(const NllLossGradArgs& a, u64 i, float scale) {
    const float grad = widen(static_cast<const T*>(a.grad)[i / a.inner * a.example + i % a.inner * a.position]);
    return a.target[i] == a.ignore_index ? 0.0f : -grad * scale;
}

// A warp per row, in turn: zeros, and the one number among them. Where a row has many positions, a warp per class of it.
template <typename T>
DEVICE void nll_loss_grad(const NllLossGradArgs& a) {
    const float scale = a.reduction == MEAN ? 1.0f / widen(*static_cast<const T*>(a.total_weight)) : 1.0f;
    const u64 team = thread_index() / WARP, teams = thread_count() / WARP;
    if (a.inner != 1) {
        for (u64 plane = team; plane < a.rows * a.classes; plane += teams) {
            const u64 first = plane / a.classes * a.inner;
            const i64 c = static_cast<i64>(plane % a.classes);
            T* out = static_cast<T*>(a.out) + plane * a.inner;
            for (u64 j = lane(); j < a.inner; j += WARP)
                out[j] = narrow<T>(a.target[first + j] == c ? nll_loss_share<T>(a, first + j, scale) : 0.0f);
        }
        return;
    }
    for (u64 i = team; i < a.rows; i += teams) {
        const i64 t = a.target[i];
        const float value = nll_loss_share<T>(a, i, scale);
        T* row = static_cast<T*>(a.out) + i * a.classes;
        for (u64 c = lane(); c < a.classes; c += WARP) row[c] = narrow<T>(static_cast<i64>(c) == t ? value : 0.0f);
    }
}

#define INSTANCES(T, tag)                                                   \
    BLOCK_KERNEL(nll_loss_##tag, NllLossArgs, LOSS_THREADS, nll_loss<T>)    \
    FLAT_KERNEL(nll_loss_grad_##tag, NllLossGradArgs, THREADS, nll_loss_grad<T>)
FLOAT_TYPES(INSTANCES)
