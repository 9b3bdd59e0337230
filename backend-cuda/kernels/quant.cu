// int8 with one scale per row: there and back. The product with an int8 weight is in matmul.cu.
#include "arguments.cuh"
#include "rows.cuh"

template <typename T, int Group, int V>
DEVICE void quantize_int8(const QuantizeArgs& a) {
    SHARED(float, scratch, WARP);
    for (u64 r = Team<Group>::index(); r < a.rows; r += Team<Group>::count()) {
        const Rows<T, Group, V> row(r, a.n, a.x);
        float top = 0.0f;
        row.each([&](u64, const float* v) { UNROLL for (int j = 0; j < V; j++) top = fmaxf(top, fabsf(v[j])); });
        top = Team<Group>::max(top, scratch);
        const float scale = top == 0.0f ? 1.0f : top / 127.0f;
        row.each([&](u64 i, const float* v) {
            Pack<i8, V> out;
            UNROLL for (int j = 0; j < V; j++) {
                out.e[j] = static_cast<i8>(fminf(fmaxf(rintf(v[j] / scale), -127.0f), 127.0f));
            }
            store_pack(a.out + r * a.n + i, out);
        });
        if (Team<Group>::rank() == 0) a.scale[r] = scale;
    }
}

template <typename T, int V>
DEVICE void dequantize_int8(const DequantizeArgs& a) {
    for (u64 i = thread_index(); i < a.packs; i += thread_count()) {
        const u64 row = a.packs >> 32 ? i / a.row_packs : static_cast<u32>(i) / static_cast<u32>(a.row_packs);
        const float scale = a.scale[row];
        const Pack<i8, V> x = load_pack<V>(a.x + i * V);
        float v[V];
        UNROLL for (int j = 0; j < V; j++) v[j] = static_cast<float>(x.e[j]) * scale;
        store_floats<V>(static_cast<T*>(a.out) + i * V, v);
    }
}

#define INSTANCES(T, tag)                                                                      \
    ROW_FORMS(quantize_int8, T, tag, QuantizeArgs)                                                \
    FLAT_KERNEL(dequantize_int8_##tag##_one, DequantizeArgs, THREADS, dequantize_int8<T, 1>)   \
    FLAT_KERNEL(dequantize_int8_##tag##_wide, DequantizeArgs, THREADS, dequantize_int8<T, 4>)
FLOAT_TYPES(INSTANCES)
