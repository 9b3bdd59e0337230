// Batched matrix products of strided matrices, and products with an int8 weight.
#include "arguments.cuh"
#include "gemm_tensor.cuh"

template <typename T>
struct Matmul {
    typedef T Element;
    typedef const T* Row;
    typedef const T* Column;
    typedef u32 Step;
    static const bool A_PACKS = true, B_PACKS = true, TABLES = false;
    const MatmulArgs& args;

    DEVICE bool a_along_k() const { return args.a_strides[2] == 1; }
    DEVICE bool b_along_k() const { return args.b_strides[1] == 1; }
    DEVICE Row a_row(u32 batch, u32 m) const {
        return static_cast<const T*>(args.a) + batch * args.a_strides[0] + m * args.a_strides[1];
    }
    DEVICE Column b_column(u32 batch, u32 n) const {
        return static_cast<const T*>(args.b) + batch * args.b_strides[0] + n * args.b_strides[2];
    }
    DEVICE Step step(u32, u32 k) const { return k; }
    DEVICE T a(Row row, u32 k, bool wanted) const { return wanted ? row[k * args.a_strides[2]] : T{0}; }
    DEVICE T b(Column column, u32 k, bool wanted) const { return wanted ? column[k * args.b_strides[1]] : T{0}; }
    DEVICE bool a_packs() const {
        const i64 lead = a_along_k() ? args.a_strides[1] : args.a_strides[2];
        return (a_along_k() || args.a_strides[1] == 1) && in_packs<T>(args.a, lead, args.a_strides[0]);
    }
    DEVICE bool b_packs() const {
        const i64 lead = b_along_k() ? args.b_strides[2] : args.b_strides[1];
        return (b_along_k() || args.b_strides[2] == 1) && in_packs<T>(args.b, lead, args.b_strides[0]);
    }
    DEVICE Whole<T> a_pack(Row row, u32 k) const { return load_whole(row + k * args.a_strides[2]); }
    DEVICE Whole<T> b_pack(Column column, u32 k) const { return load_whole(column + k * args.b_strides[1]); }
    DEVICE void store(u32 batch, u32 m, u32 n, float sum) const {
        T* out = static_cast<T*>(args.out) + batch * args.out_strides[0] + m * args.out_strides[1] + n;
        float value = args.alpha * sum;
        if (args.beta != 0.0f) value += args.beta * widen(*out);
        if (args.bias != nullptr) value += widen(static_cast<const T*>(args.bias)[n]);
        *out = narrow<T>(value);
    }
};

// b is the weight's transpose, its columns one scale each.
template <typename T>
struct MatmulInt8 {
    typedef T Element;
    typedef const T* Row;
    typedef const i8* Column;
    typedef u32 Step;
    static const bool A_PACKS = true, B_PACKS = true, TABLES = false;
    const MatmulArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return true; }
    DEVICE Row a_row(u32, u32 m) const { return static_cast<const T*>(args.a) + m * args.a_strides[1]; }
    DEVICE Column b_column(u32, u32 n) const { return static_cast<const i8*>(args.b) + n * args.b_strides[2]; }
    DEVICE Step step(u32, u32 k) const { return k; }
    DEVICE T a(Row row, u32 k, bool wanted) const { return wanted ? row[k] : T{0}; }
    DEVICE T b(Column column, u32 k, bool wanted) const { return wanted ? narrow<T>(static_cast<float>(column[k])) : T{0}; }
    DEVICE bool a_packs() const { return in_packs<T>(args.a, args.a_strides[1]); }
    // Eight bytes.
    DEVICE bool b_packs() const { return (reinterpret_cast<u64>(args.b) | static_cast<u64>(args.b_strides[2])) % 8 == 0; }
    DEVICE Whole<T> a_pack(Row row, u32 k) const { return load_whole(row + k); }
    DEVICE Whole<T> b_pack(Column column, u32 k) const {
        const Pack<i8, Wide<T>::N> bytes = load_pack<Wide<T>::N>(column + k);
        Whole<T> pack;
        UNROLL for (int i = 0; i < Wide<T>::N; i++) pack.e[i] = narrow<T>(static_cast<float>(bytes.e[i]));
        return pack;
    }
    DEVICE void store(u32, u32 m, u32 n, float sum) const {
        float value = sum * args.scale[n];
        if (args.bias != nullptr) value += widen(static_cast<const T*>(args.bias)[n]);
        static_cast<T*>(args.out)[m * args.out_strides[1] + n] = narrow<T>(value);
    }
};

#define INSTANCES(T, tag)                              \
    GEMM_FORMS(matmul, Matmul, T, tag, MatmulArgs)     \
    GEMM_FORMS(matmul_int8, MatmulInt8, T, tag, MatmulArgs)
FLOAT_TYPES(INSTANCES)
#define TENSORS(T, tag) TENSOR_FORMS(matmul, Matmul, T, tag, MatmulArgs, 1)
FLOAT_TYPES(TENSORS)
#define INT8_TENSORS(T, tag) TENSOR_FORMS(matmul_int8, MatmulInt8, T, tag, MatmulArgs, 2)
INT8_TENSORS(f16, f16)
INT8_TENSORS(bf16, bf16)
