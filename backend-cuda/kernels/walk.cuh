// How elementwise kernels find their elements: strided views of up to four operands, walked together.
#pragma once
#include "arguments.cuh"

DEVICE u32 divide(u32 n, const Divider& d) { return (__umulhi(n, d.magic) + n) >> d.shift; }

template <int N>
DEVICE void places(const Walk<N>& w, u64 pack, i64* at) {
    if (w.rank <= 1) {
        UNROLL for (int k = 0; k < N; k++) at[k] = static_cast<i64>(pack) * w.strides[k][0];
        return;
    }
    UNROLL for (int k = 0; k < N; k++) at[k] = 0;
    u32 rest = static_cast<u32>(pack);
    UNROLL for (int d = 0; d < MAX_RANK; d++) {
        if (static_cast<u32>(d) >= w.rank) break;
        const u32 next = divide(rest, w.dims[d]);
        const i64 index = rest - next * w.dims[d].divisor;
        UNROLL for (int k = 0; k < N; k++) at[k] += index * w.strides[k][d];
        rest = next;
    }
}

// Calls Body::run<V>(args, at) for every pack of V elements, and Body::run<1> for the elements of an incomplete one.
template <int V, int N, typename Body, typename Args>
DEVICE void each_pack(const Walk<N>& w, const Args& args) {
    for (u64 pack = thread_index(); pack < w.packs; pack += thread_count()) {
        i64 at[N];
        places(w, pack, at);
        if constexpr (V == 1) {
            Body::template run<1>(args, at);
        } else {
            const u64 left = w.elements - pack * V;
            if (w.rank > 1 || left >= V) {
                Body::template run<V>(args, at);
                continue;
            }
            for (u64 i = 0; i < left; i++) {
                Body::template run<1>(args, at);
                UNROLL for (int k = 0; k < N; k++) at[k] += w.repeats >> k & 1 ? 0 : 1;
            }
        }
    }
}

// V elements of operand k.
template <int V, int N, typename T>
DEVICE Pack<T, V> fetch(const Walk<N>& w, int k, const T* base, const i64* at) {
    if (V > 1 && (w.repeats >> k & 1)) {
        Pack<T, V> pack;
        const T x = base[at[k]];
        UNROLL for (int j = 0; j < V; j++) pack.e[j] = x;
        return pack;
    }
    return load_pack<V>(base + at[k]);
}
