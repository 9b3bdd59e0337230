// Kernels over contiguous rows: a warp or a block per row, which is kept in registers between passes where it fits.
#pragma once
#include "common.cuh"

// Packs of a row that a thread keeps.
#define HELD 4

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
    DEVICE static float max(float x, float* scratch) {
        if constexpr (Group == 1) return x;
        else if constexpr (Group == WARP) return warp_max(x);
        else return block_max(x, scratch);
    }
};

template <int V, typename T>
DEVICE void load_floats(const T* at, float* v) {
    const Pack<T, V> pack = load_pack<V>(at);
    UNROLL for (int j = 0; j < V; j++) v[j] = widen(pack.e[j]);
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

// A row of n elements as a team of Group threads reads it, V elements at a time. Its first packs are held.
template <int Group, int V>
struct Row {
    u64 n;
    float held[HELD][V];

    DEVICE static u64 step() { return static_cast<u64>(Group) * V; }
    DEVICE static u64 first() { return static_cast<u64>(Team<Group>::rank()) * V; }

    // Reads what is held; `load(i, v)` gives the V elements from i on.
    template <typename Load>
    DEVICE void read(u64 length, Load load) {
        n = length;
        UNROLL for (int p = 0; p < HELD; p++) {
            const u64 i = first() + p * step();
            if (i < n) load(i, held[p]);
        }
    }
    // Calls `use(i, v)` with every pack, those beyond what is held read again.
    template <typename Load, typename Use>
    DEVICE void each(Load load, Use use) {
        UNROLL for (int p = 0; p < HELD; p++) {
            const u64 i = first() + p * step();
            if (i < n) use(i, held[p]);
        }
        for (u64 i = first() + HELD * step(); i < n; i += step()) {
            float v[V];
            load(i, v);
            use(i, v);
        }
    }
};

// The forms of a row kernel.
#define ROW_FORMS(function, T, tag, Args)                                             \
    FLAT_KERNEL(function##_##tag##_thread, Args, THREADS, function<T, 1, 1>)          \
    BLOCK_KERNEL(function##_##tag##_warp, Args, THREADS, function<T, WARP, 1>)        \
    BLOCK_KERNEL(function##_##tag##_warp_wide, Args, THREADS, function<T, WARP, 4>)   \
    BLOCK_KERNEL(function##_##tag##_block, Args, THREADS, function<T, THREADS, 1>)    \
    BLOCK_KERNEL(function##_##tag##_block_wide, Args, THREADS, function<T, THREADS, 4>)
