// Kernels over contiguous rows: a warp or a block per row, which is kept in registers between passes where it fits.
#pragma once
#include "common.cuh"

// The threads that share a row: one, 32 (a warp; a block has several) or all of a block.
template <int Group>
struct Team {
    // Position of the thread in the team.
    DEVICE static u32 rank() { return Group == 1 ? 0 : Group == WARP ? lane() : threadIdx.x; }
    // The team's number in the launch, and the number of teams.
    DEVICE static u64 index() {
        if (Group == 1) return thread_index();
        return Group == WARP ? static_cast<u64>(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP : blockIdx.x;
    }
    DEVICE static u64 count() {
        if (Group == 1) return thread_count();
        return Group == WARP ? static_cast<u64>(gridDim.x) * (blockDim.x / WARP) : gridDim.x;
    }
    DEVICE static float sum(float x, float* scratch) {
        if constexpr (Group == 1) return x;
        else if constexpr (Group == WARP) return warp_sum(x);
        else return block_sum(x, scratch);
    }
    // Two sums at once, which wait for each other only once. `scratch` has two slots per warp.
    DEVICE static void sums(float& x, float& y, float* scratch) {
        if constexpr (Group > 1) {
            x = warp_sum(x);
            y = warp_sum(y);
        }
        if constexpr (Group > WARP) {
            __syncthreads();
            if (lane() == 0) {
                scratch[threadIdx.x / WARP] = x;
                scratch[WARP + threadIdx.x / WARP] = y;
            }
            __syncthreads();
            const bool is_warp = lane() < Group / WARP;
            x = warp_sum(is_warp ? scratch[lane()] : 0.0f);
            y = warp_sum(is_warp ? scratch[WARP + lane()] : 0.0f);
        }
    }
    DEVICE static float max(float x, float* scratch) {
        if constexpr (Group == 1) return x;
        else if constexpr (Group == WARP) return warp_max(x);
        else return block_max(x, scratch);
    }
};

template <int V, typename T>
DEVICE void widen_pack(const Pack<T, V>& pack, float* v) {
    UNROLL for (int j = 0; j < V; j++) v[j] = widen(pack.e[j]);
}
template <int V, typename T>
DEVICE void load_floats(const T* at, float* v) {
    widen_pack<V>(load_pack<V>(at), v);
}
template <int V, typename T>
DEVICE void store_floats(T* at, const float* v) {
    Pack<T, V> pack;
    UNROLL for (int j = 0; j < V; j++) pack.e[j] = narrow<T>(v[j]);
    store_pack(at, pack);
}
// The same from a type that is known at run time.
template <int V>
DEVICE void load_floats_of(u32 type, const void* base, u64 at, float* v) {
    switch (type) {
        case TYPE_F32: return load_floats<V>(static_cast<const float*>(base) + at, v);
        case TYPE_F16: return load_floats<V>(static_cast<const f16*>(base) + at, v);
        default: return load_floats<V>(static_cast<const bf16*>(base) + at, v);
    }
}

// Rows of n elements, one of each of Count tensors, as a team of Group threads reads them, V elements at a time. Where there are
// registers for all of a row, it is held as it lies in memory, so that nothing waits for one pack before all are on their way; a
// longer one is read in every pass.
template <typename T, int Group, int V, int Count = 1, int Most = V == 1 ? (Group == 1 ? 4 : 8) : 32 / V>
struct Rows {
    // Packs of a row that are held, and packs of a longer one that are on their way at once.
    static const int HELD = Most;
    static const int AHEAD = (V == 1 ? 8 : 4) / Count;
    typedef Pack<T, V> Packs[Count];

    const T* at[Count];
    u64 n;
    Packs held[HELD];

    DEVICE static u64 step() { return static_cast<u64>(Group) * V; }
    DEVICE static u64 first() { return static_cast<u64>(Team<Group>::rank()) * V; }

    // Of tensors in which it is row `r`.
    template <typename... Tensors>
    DEVICE Rows(u64 r, u64 length, Tensors... tensors) : at{static_cast<const T*>(tensors) + r * length...}, n(length) {
        if (is_held()) load<HELD>(held, first());
    }
    DEVICE bool is_held() const { return n <= HELD * step(); }
    // Calls `use(i, p)` for every held pack: which elements from, and its number.
    template <typename Use>
    DEVICE void each_held(Use use) const {
        each_of<HELD>(first(), use);
    }
    // Calls `use(i, v)`, or with a v for each tensor, for every pack.
    template <typename Use>
    DEVICE void each(Use use) const {
        if (is_held()) {
            each_held([&](u64 i, int p) { give(held[p], i, use); });
            return;
        }
        for (u64 from = first(); from < n; from += AHEAD * step()) {
            Packs packs[AHEAD];
            load<AHEAD>(packs, from);
            each_of<AHEAD>(from, [&](u64 i, int p) { give(packs[p], i, use); });
        }
    }

private:
    // Calls `use(i, p)` for those of Number packs from `from` on that the row has.
    template <int Number, typename Use>
    DEVICE void each_of(u64 from, Use use) const {
        UNROLL for (int p = 0; p < Number; p++) {
            const u64 i = from + p * step();
            if (i < n) use(i, p);
        }
    }
    template <int Number>
    DEVICE void load(Packs* to, u64 from) const {
        UNROLL for (int k = 0; k < Count; k++) {
            each_of<Number>(from, [&](u64 i, int p) { to[p][k] = load_pack<V>(at[k] + i); });
        }
    }
    template <typename Use>
    DEVICE static void give(const Packs& packs, u64 i, Use use) {
        float v[Count][V];
        UNROLL for (int k = 0; k < Count; k++) widen_pack<V>(packs[k], v[k]);
        if constexpr (Count == 1) use(i, v[0]);
        else use(i, v[0], v[1]);
    }
};

// The forms of a row kernel. Of the wide ones a processor has room for two blocks: one reads while the other computes.
#define ROW_FORMS(function, T, tag, Args)                                                                     \
    FLAT_KERNEL(function##_##tag##_thread, Args, THREADS, function<T, 1, 1>)                                  \
    BLOCK_KERNEL(function##_##tag##_warp, Args, THREADS, function<T, WARP, 1>)                                \
    BUSY_BLOCK_KERNEL(function##_##tag##_warp_wide, Args, THREADS, 2, function<T, WARP, Wide<T>::N>)          \
    BLOCK_KERNEL(function##_##tag##_block, Args, THREADS, function<T, THREADS, 1>)                            \
    BUSY_BLOCK_KERNEL(function##_##tag##_block_wide, Args, THREADS, 2, function<T, THREADS, Wide<T>::N>)
