// Rows of a table by index, and back.
#include "arguments.cuh"
#include "common.cuh"

template <typename T, int V>
DEVICE void gather(const GatherArgs& a) {
    for (u64 i = thread_index(); i < a.packs; i += thread_count()) {
        const u64 at = a.packs >> 32 ? i / a.row_packs : static_cast<u32>(i) / static_cast<u32>(a.row_packs);
        const i64 row = a.indices[at];
        Pack<T, V> pack;
        if (row >= 0 && static_cast<u64>(row) < a.rows) {
            pack = load_pack<V>(static_cast<const T*>(a.table) + row * a.row_step + (i - at * a.row_packs) * V * a.step);
        } else {
            UNROLL for (int j = 0; j < V; j++) pack.e[j] = static_cast<T>(a.missing);
        }
        store_pack(static_cast<T*>(a.out) + i * V, pack);
    }
}

DEVICE void clear_names(const ScatterArgs& a) {
    for (u64 r = thread_index(); r < a.rows; r += thread_count()) a.named[r] = 0;
}
DEVICE void mark_names(const ScatterArgs& a) {
    for (u64 i = thread_index(); i < a.count; i += thread_count()) {
        const i64 r = a.indices[i];
        if (r >= 0 && static_cast<u64>(r) < a.rows) mark<u8>(a.named + r, 1);
    }
}

// Columns that a warp sums at a time.
#define LANE_COLUMNS 4
#define WARP_COLUMNS (WARP * LANE_COLUMNS)

// A warp per row and 128 columns looks through the indices for its row and adds in their order: the same bits every time.
template <typename T>
DEVICE void scatter_add(const ScatterArgs& a) {
    const u64 team = thread_index() / WARP, teams = thread_count() / WARP;
    const u64 column = static_cast<u64>(blockIdx.y) * WARP_COLUMNS + lane();
    for (u64 r = team; r < a.rows; r += teams) {
        T* out = static_cast<T*>(a.out) + r * a.n;
        float sums[LANE_COLUMNS];
        UNROLL for (int j = 0; j < LANE_COLUMNS; j++) {
            const u64 c = column + j * WARP;
            sums[j] = a.accumulate && c < a.n ? widen(out[c]) : 0.0f;
        }
        const bool skipped = a.has_padding && static_cast<i64>(r) == a.padding_index;
        const bool sought = !skipped && (a.named == nullptr || a.named[r] != 0);
        for (u64 base = 0; sought && base < a.count; base += WARP) {
            const u64 i = base + lane();
            u32 found = __ballot_sync(ALL_LANES, i < a.count && a.indices[i] == static_cast<i64>(r));
            while (found != 0) {
                const u64 at = base + __ffs(static_cast<i32>(found)) - 1;
                found &= found - 1;
                UNROLL for (int j = 0; j < LANE_COLUMNS; j++) {
                    const u64 c = column + j * WARP;
                    if (c < a.n) sums[j] += widen(static_cast<const T*>(a.src)[at * a.row_step + c * a.step]);
                }
            }
        }
        UNROLL for (int j = 0; j < LANE_COLUMNS; j++) {
            const u64 c = column + j * WARP;
            if (c < a.n) out[c] = narrow<T>(sums[j]);
        }
    }
}

#define GATHER(T, tag)                                                \
    FLAT_KERNEL(gather_##tag##_one, GatherArgs, THREADS, gather<T, 1>) \
    FLAT_KERNEL(gather_##tag##_wide, GatherArgs, THREADS, gather<T, Wide<T>::N>)
GATHER(u8, b8)
GATHER(u16, b16)
GATHER(u32, b32)
GATHER(u64, b64)

FLAT_KERNEL(clear_named, ScatterArgs, THREADS, clear_names)
FLAT_KERNEL(mark_named, ScatterArgs, THREADS, mark_names)
#define SCATTER(T, tag) BLOCK_KERNEL(scatter_add_##tag, ScatterArgs, THREADS, scatter_add<T>)
FLOAT_TYPES(SCATTER)
