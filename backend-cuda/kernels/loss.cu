// Negative log-likelihood of class indices, and its gradient.
#include "common.cuh"

enum Reduction { NONE, MEAN, SUM };

// Threads of the one block that adds the losses up, always in the same order.
#define LOSS_THREADS 1024

struct NllLossArgs {
    void* out;
    void* total_weight;
    const void* log_probs;
    const i64* target;
    u64 rows;
    u64 classes;
    i64 ignore_index;
    u32 reduction;
    u32 unused;
};

template <typename T>
DEVICE void nll_loss(const NllLossArgs& a) {
    SHARED(float, scratch, WARP);
    float sum = 0.0f, counted = 0.0f;
    for (u64 i = threadIdx.x; i < a.rows; i += blockDim.x) {
        const i64 t = a.target[i];
        float loss = 0.0f;
        if (t != a.ignore_index) {
            const bool inside = t >= 0 && static_cast<u64>(t) < a.classes;
            loss = inside ? -widen(static_cast<const T*>(a.log_probs)[i * a.classes + t]) : not_a_number();
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

struct NllLossGradArgs {
    void* out;
    const void* grad;
    const void* total_weight;
    const i64* target;
    u64 rows;
    u64 classes;
    i64 ignore_index;
    u32 reduction;
    u32 unused;
};

// A warp per row, in turn: zeros, and the one number among them.
template <typename T>
DEVICE void nll_loss_grad(const NllLossGradArgs& a) {
    const float scale = a.reduction == MEAN ? 1.0f / widen(*static_cast<const T*>(a.total_weight)) : 1.0f;
    const u64 team = thread_index() / WARP, teams = thread_count() / WARP;
    for (u64 i = team; i < a.rows; i += teams) {
        const i64 t = a.target[i];
        const float grad = widen(static_cast<const T*>(a.grad)[a.reduction == NONE ? i : 0]);
        const float value = t == a.ignore_index ? 0.0f : -grad * scale;
        T* row = static_cast<T*>(a.out) + i * a.classes;
        for (u64 c = lane(); c < a.classes; c += WARP) row[c] = narrow<T>(static_cast<i64>(c) == t ? value : 0.0f);
    }
}

#define INSTANCES(T, tag)                                                   \
    BLOCK_KERNEL(nll_loss_##tag, NllLossArgs, LOSS_THREADS, nll_loss<T>)    \
    FLAT_KERNEL(nll_loss_grad_##tag, NllLossGradArgs, THREADS, nll_loss_grad<T>)
FLOAT_TYPES(INSTANCES)
