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

template <int V, typename T>
DEVICE void widen_pack(const Pack<T, V>& pack, float* v) {
    UNROLL for (int j = 0; j < V; j++) v[j] = widen(pack.e[j]);
}

// A row of n elements as a team of Group threads reads it, V elements at a time. Where there are registers for all of it, it is
// held as it lies in memory, so that nothing waits for one pack before all are on their way; a longer one is read in every pass.
template <typename T, int Group, int V>
struct Row {
    // Packs that are held, and packs of a longer row that are on their way at once.
    static const int HELD = V == 1 ? (Group == 1 ? 4 : 8) : 32 / V;
    static const int AHEAD = V == 1 ? 8 : 4;

    const T* at;
    u64 n;
    Pack<T, V> held[HELD];

    DEVICE static u64 step() { return static_cast<u64>(Group) * V; }
    DEVICE static u64 first() { return static_cast<u64>(Team<Group>::rank()) * V; }

    DEVICE bool is_held() const { return n <= HELD * step(); }
    DEVICE void read(const T* row, u64 length) {
        at = row;
        n = length;
        if (!is_held()) return;
        UNROLL for (int p = 0; p < HELD; p++) {
            const u64 i = first() + p * step();
            if (i < n) held[p] = load_pack<V>(at + i);
        }
    }
    // Calls `use(i, p)` for every held pack: which elements from, and its number.
    template <typename Use>
    DEVICE void each_held(Use use) const {
        UNROLL for (int p = 0; p < HELD; p++) {
            const u64 i = first() + p * step();
            if (i < n) use(i, p);
        }
    }
    // Calls `use(i, v)` with every pack.
    template <typename Use>
    DEVICE void each(Use use) const {
        if (is_held()) {
            each_held([&](u64 i, int p) {
                float v[V];
                widen_pack<V>(held[p], v);
                use(i, v);
            });
            return;
        }
        for (u64 from = first(); from < n; from += AHEAD * step()) {
            Pack<T, V> packs[AHEAD];
            UNROLL for (int p = 0; p < AHEAD; p++) {
                const u64 i = from + p * step();
                if (i < n) packs[p] = load_pack<V>(at + i);
            }
            UNROLL for (int p = 0; p < AHEAD; p++) {
                const u64 i = from + p * step();
                if (i >= n) continue;
                float v[V];
                widen_pack<V>(packs[p], v);
                use(i, v);
            }
        }
    }
};

// Calls `use(i, v, w)` with the packs of two rows of one length.
template <typename T, int Group, int V, typename Use>
DEVICE void each_of_two(const Row<T, Group, V>& a, const Row<T, Group, V>& b, Use use) {
    typedef Row<T, Group, V> R;
    float v[V], w[V];
    if (a.is_held()) {
        a.each_held([&](u64 i, int p) {
            widen_pack<V>(a.held[p], v);
            widen_pack<V>(b.held[p], w);
            use(i, v, w);
        });
        return;
    }
    for (u64 i = R::first(); i < a.n; i += R::step()) {
        load_floats<V>(a.at + i, v);
        load_floats<V>(b.at + i, w);
        use(i, v, w);
    }
}

// The forms of a row kernel. Of the wide ones a processor has room for two blocks: one reads while the other computes.
#define ROW_FORMS(function, T, tag, Args)                                                                     \
    FLAT_KERNEL(function##_##tag##_thread, Args, THREADS, function<T, 1, 1>)                                  \
    BLOCK_KERNEL(function##_##tag##_warp, Args, THREADS, function<T, WARP, 1>)                                \
    BUSY_BLOCK_KERNEL(function##_##tag##_warp_wide, Args, THREADS, 2, function<T, WARP, Wide<T>::N>)          \
    BLOCK_KERNEL(function##_##tag##_block, Args, THREADS, function<T, THREADS, 1>)                            \
    BUSY_BLOCK_KERNEL(function##_##tag##_block_wide, Args, THREADS, 2, function<T, THREADS, Wide<T>::N>)
