// Fill, copy, arithmetic, selection. The function is chosen at run time, outside the loop over a pack: a uniform branch
// costs nothing beside a memory access, and keeps the number of instances small.
#include "arguments.cuh"
#include "walk.cuh"

// ---- fill, copy, select: the bits of elements ----

template <typename T>
struct FillBody {
    template <int V>
    DEVICE static void run(const FillArgs& a, const i64* at) {
        Pack<T, V> pack;
        UNROLL for (int j = 0; j < V; j++) pack.e[j] = static_cast<T>(a.bits);
        store_pack(static_cast<T*>(a.out) + at[0], pack);
    }
};
template <typename T, int V>
DEVICE void fill(const FillArgs& a) {
    each_pack<V, 1, FillBody<T>>(a.walk, a);
}

// Elements that lie apart.
template <typename T>
DEVICE void fill_each(const FillEachArgs& a) {
    for (u64 i = thread_index(); i < a.count; i += thread_count()) *static_cast<T*>(a.out[i]) = static_cast<T>(a.bits[i]);
}

template <typename T>
struct CopyBody {
    template <int V>
    DEVICE static void run(const CopyArgs& a, const i64* at) {
        store_pack(static_cast<T*>(a.out) + at[0], fetch<V>(a.walk, 1, static_cast<const T*>(a.src), at));
    }
};
template <typename T, int V>
DEVICE void copy(const CopyArgs& a) {
    each_pack<V, 2, CopyBody<T>>(a.walk, a);
}

template <typename T, typename S, int V>
DEVICE void cast_from(const CopyArgs& a, const i64* at) {
    const Pack<S, V> src = fetch<V>(a.walk, 1, static_cast<const S*>(a.src), at);
    Pack<T, V> out;
    UNROLL for (int j = 0; j < V; j++) out.e[j] = narrow<T>(widen(src.e[j]));
    store_pack(static_cast<T*>(a.out) + at[0], out);
}
template <typename T>
struct CastBody {
    template <int V>
    DEVICE static void run(const CopyArgs& a, const i64* at) {
        switch (a.from) {
            case TYPE_F32: return cast_from<T, float, V>(a, at);
            case TYPE_F16: return cast_from<T, f16, V>(a, at);
            case TYPE_BF16: return cast_from<T, bf16, V>(a, at);
            case TYPE_I64: return cast_from<T, i64, V>(a, at);
            case TYPE_I32: return cast_from<T, i32, V>(a, at);
            case TYPE_I8: return cast_from<T, i8, V>(a, at);
            case TYPE_U8: return cast_from<T, u8, V>(a, at);
            default: return cast_from<T, boolean, V>(a, at);
        }
    }
};
template <typename T, int V>
DEVICE void cast(const CopyArgs& a) {
    each_pack<V, 2, CastBody<T>>(a.walk, a);
}

template <typename T>
struct SelectBody {
    template <int V>
    DEVICE static void run(const SelectArgs& a, const i64* at) {
        const Pack<u8, V> mask = fetch<V>(a.walk, 1, a.mask, at);
        const Pack<T, V> yes = fetch<V>(a.walk, 2, static_cast<const T*>(a.on_true), at);
        Pack<T, V> out = fetch<V>(a.walk, 3, static_cast<const T*>(a.on_false), at);
        UNROLL for (int j = 0; j < V; j++) if (mask.e[j]) out.e[j] = yes.e[j];
        store_pack(static_cast<T*>(a.out) + at[0], out);
    }
};
template <typename T, int V>
DEVICE void select(const SelectArgs& a) {
    each_pack<V, 4, SelectBody<T>>(a.walk, a);
}

template <typename T>
struct MaskedFillBody {
    template <int V>
    DEVICE static void run(const MaskedFillArgs& a, const i64* at) {
        Pack<T, V> out = fetch<V>(a.walk, 1, static_cast<const T*>(a.x), at);
        const Pack<u8, V> mask = fetch<V>(a.walk, 2, a.mask, at);
        UNROLL for (int j = 0; j < V; j++) if (mask.e[j]) out.e[j] = static_cast<T>(a.bits);
        store_pack(static_cast<T*>(a.out) + at[0], out);
    }
};
template <typename T, int V>
DEVICE void masked_fill(const MaskedFillArgs& a) {
    each_pack<V, 3, MaskedFillBody<T>>(a.walk, a);
}

template <typename T>
DEVICE void triangle(const TriangleArgs& a) {
    for (u64 i = thread_index(); i < a.walk.packs; i += thread_count()) {
        i64 at[2];
        places(a.walk, i, at);
        const u32 above = divide(static_cast<u32>(i), a.walk.dims[0]);
        const i64 column = static_cast<u32>(i) - above * a.walk.dims[0].divisor;
        const i64 row = above - divide(above, a.walk.dims[1]) * a.walk.dims[1].divisor;
        const bool inside = a.upper ? column - row >= a.diagonal : column - row <= a.diagonal;
        static_cast<T*>(a.out)[at[0]] = inside ? static_cast<const T*>(a.x)[at[1]] : T(0);
    }
}

// ---- arithmetic ----

enum Unary {
    NEG, ABS, SIGN, EXP, LOG, SQRT, RSQRT, RECIPROCAL, SQUARE, SIN, COS, TANH, SIGMOID, RELU, LEAKY_RELU, GELU, GELU_TANH,
    SILU, AFFINE, POW, CLAMP, ELU, SOFTPLUS, LOG_SIGMOID, MISH, HARDSIGMOID, HARDSWISH, HUBER
};

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
// The normal distribution: how much of it lies below x, and its density there times √(2π).
struct Normal {
    float below, bell;
};
template <typename T>
DEVICE Normal normal(float x) {
    if constexpr (sizeof(T) == 4) {
        return Normal{0.5f * erfcf(x * -0.70710678118654752f), expf(-0.5f * x * x)};
    } else {
        // What is rounded to 16 bits needs five digits, and no more instructions than memory leaves time for. With z = |x|/√2 and
        // t = 1/(1 + 0.55 z) the tail beyond |x| is exp(-z²)·t·Q(t); Q is the polynomial whose largest relative error is least, 4.3e-6.
        const float bell = power_of_two(x * x * -0.72134752f), t = reciprocal(1.0f + 0.38890873f * fabsf(x));
        float q = 0.049424984f;
        q = q * t - 0.15092862f;
        q = q * t + 0.08859328f;
        q = q * t + 0.06930669f;
        q = q * t + 0.1333599f;
        q = q * t + 0.1550938f;
        q = q * t + 0.15515208f;
        const float tail = bell * t * q;
        return Normal{x > 0.0f ? 1.0f - tail : tail, bell};
    }
}
// √(2/π)·(x + 0.044715·x³): the argument of GELU's tanh approximation.
DEVICE float gelu_inner(float x) { return 0.79788456080286536f * (x + 0.044715f * x * x * x); }

#define EACH(expression)                                          \
    UNROLL for (int j = 0; j < V; j++) {                          \
        const C x = v[j];                                         \
        v[j] = expression;                                        \
    }                                                             \
    break

DEVICE float softplus(float x) {
    return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
}
DEVICE float hard_gate(float x) {
    const float shifted = x + 3.0f;
    return (shifted < 0.0f ? 0.0f : shifted > 6.0f ? 6.0f : shifted) / 6.0f;
}

template <typename T, int V>
DEVICE void apply(const UnaryArgs& args, float* v) {
    typedef float C;
    const float a = static_cast<float>(args.scalars[0]), b = static_cast<float>(args.scalars[1]);
    switch (args.op) {
        case NEG: EACH(-x);
        case ABS: EACH(fabsf(x));
        case SIGN: EACH(static_cast<float>((x > 0.0f) - (x < 0.0f)));
        case EXP: EACH(expf(x));
        case LOG: EACH(logf(x));
        case SQRT: EACH(sqrtf(x));
        case RSQRT: EACH(rsqrtf(x));
        case RECIPROCAL: EACH(1.0f / x);
        case SQUARE: EACH(x * x);
        case SIN: EACH(sinf(x));
        case COS: EACH(cosf(x));
        case TANH: EACH(tanhf(x));
        case SIGMOID: EACH(sigmoid(x));
        case RELU: EACH(x <= 0.0f ? 0.0f : x);
        case LEAKY_RELU: EACH(x > 0.0f ? x : a * x);
        case GELU: EACH(x * normal<T>(x).below);
        case GELU_TANH: EACH(0.5f * x * (1.0f + tanhf(gelu_inner(x))));
        case SILU: EACH(x * sigmoid(x));
        case AFFINE: EACH(a * x + b);
        case POW: EACH(powf(x, a));
        case ELU: EACH(x > 0.0f ? x : a * expm1f(x));
        case SOFTPLUS: EACH(softplus(x));
        case LOG_SIGMOID: EACH(-softplus(-x));
        case MISH: EACH(x * tanhf(softplus(x)));
        case HARDSIGMOID: EACH(hard_gate(x));
        case HARDSWISH: EACH(x * hard_gate(x));
        case HUBER: EACH(fabsf(x) < a ? 0.5f * x * x : a * (fabsf(x) - 0.5f * a));
        default: EACH(x < a ? a : x > b ? b : x);
    }
}
// Of integers: the functions that stay among them.
template <typename T, int V, typename C>
DEVICE void apply(const UnaryArgs& args, C* v) {
    const double a = args.scalars[0], b = args.scalars[1];
    switch (args.op) {
        case NEG: EACH(-x);
        case ABS: EACH(x < 0 ? -x : x);
        case SIGN: EACH((x > 0) - (x < 0));
        case SQUARE: EACH(x * x);
        case RELU: EACH(x < 0 ? 0 : x);
        case AFFINE: EACH(static_cast<C>(a * static_cast<double>(x) + b));
        default: EACH(x < a ? static_cast<C>(a) : x > b ? static_cast<C>(b) : x);
    }
}
template <typename T>
struct UnaryBody {
    template <int V>
    DEVICE static void run(const UnaryArgs& a, const i64* at) {
        typedef typename Compute<T>::type C;
        const Pack<T, V> x = fetch<V>(a.walk, 1, static_cast<const T*>(a.x), at);
        C v[V];
        UNROLL for (int j = 0; j < V; j++) v[j] = widen(x.e[j]);
        apply<T, V>(a, v);
        Pack<T, V> out;
        UNROLL for (int j = 0; j < V; j++) out.e[j] = narrow<T>(v[j]);
        store_pack(static_cast<T*>(a.out) + at[0], out);
    }
};
template <typename T, int V>
DEVICE void unary(const UnaryArgs& a) {
    each_pack<V, 2, UnaryBody<T>>(a.walk, a);
}

enum UnaryGrad {
    GRAD_RELU, GRAD_LEAKY_RELU, GRAD_GELU, GRAD_GELU_TANH, GRAD_SILU, GRAD_TANH, GRAD_SIGMOID, GRAD_ELU, GRAD_SOFTPLUS,
    GRAD_LOG_SIGMOID, GRAD_MISH, GRAD_HARDSIGMOID, GRAD_HARDSWISH, GRAD_HARDTANH
};

// The gradient's factor from `s`, what forward saved.
template <typename T>
DEVICE float gelu_slope(float s) {
    const Normal at = normal<T>(s);
    return at.below + s * (0.39894228040143268f * at.bell);
}
DEVICE float gelu_tanh_slope(float s) {
    const float t = tanhf(gelu_inner(s));
    const float inner = 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * s * s);
    return 0.5f * (1.0f + t) + 0.5f * s * (1.0f - t * t) * inner;
}
DEVICE float silu_slope(float s) {
    const float y = sigmoid(s);
    return y * (1.0f + s * (1.0f - y));
}

DEVICE float mish_slope(float s) {
    const float t = tanhf(softplus(s));
    return t + s * sigmoid(s) * (1.0f - t * t);
}
DEVICE float hardswish_slope(float s) {
    return s > -3.0f ? (s < 3.0f ? s / 3.0f + 0.5f : 1.0f) : 0.0f;
}

#define EACH_PAIR(expression)                                     \
    UNROLL for (int j = 0; j < V; j++) {                          \
        const C x = v[j], y = w[j];                               \
        v[j] = expression;                                        \
    }                                                             \
    break

// x is what was saved, y the incoming gradient.
template <typename T, int V>
DEVICE void apply_grad(const BinaryArgs& args, float* v, const float* w) {
    typedef float C;
    const float a = static_cast<float>(args.scalar), b = static_cast<float>(args.second);
    switch (args.op) {
        case GRAD_RELU: EACH_PAIR(x > 0.0f ? y : 0.0f);
        case GRAD_LEAKY_RELU: EACH_PAIR(x > 0.0f ? y : a * y);
        case GRAD_GELU: EACH_PAIR(y * gelu_slope<T>(x));
        case GRAD_GELU_TANH: EACH_PAIR(y * gelu_tanh_slope(x));
        case GRAD_SILU: EACH_PAIR(y * silu_slope(x));
        case GRAD_TANH: EACH_PAIR(y * (1.0f - x * x));
        case GRAD_ELU: EACH_PAIR(x > 0.0f ? y : a * expf(x) * y);
        case GRAD_SOFTPLUS: EACH_PAIR(y * sigmoid(x));
        case GRAD_LOG_SIGMOID: EACH_PAIR(y * sigmoid(-x));
        case GRAD_MISH: EACH_PAIR(y * mish_slope(x));
        case GRAD_HARDSIGMOID: EACH_PAIR(x > -3.0f && x < 3.0f ? y / 6.0f : 0.0f);
        case GRAD_HARDSWISH: EACH_PAIR(y * hardswish_slope(x));
        case GRAD_HARDTANH: EACH_PAIR(x > a && x < b ? y : 0.0f);
        default: EACH_PAIR(y * x * (1.0f - x));
    }
}

enum Binary { ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, BINARY_POW, SQUARED_DIFFERENCE };

template <int V>
DEVICE void apply_binary(const BinaryArgs& args, float* v, const float* w) {
    typedef float C;
    const float a = static_cast<float>(args.scalar);
    switch (args.op) {
        case ADD: EACH_PAIR(x + a * y);
        case SUB: EACH_PAIR(x - y);
        case MUL: EACH_PAIR(x * y);
        case DIV: EACH_PAIR(x / y);
        case MAXIMUM: EACH_PAIR(is_nan(x) || is_nan(y) ? not_a_number() : fmaxf(x, y));
        case MINIMUM: EACH_PAIR(is_nan(x) || is_nan(y) ? not_a_number() : fminf(x, y));
        case BINARY_POW: EACH_PAIR(powf(x, y));
        default: EACH_PAIR((x - y) * (x - y));
    }
}
template <int V, typename C>
DEVICE void apply_binary(const BinaryArgs& args, C* v, const C* w) {
    switch (args.op) {
        case ADD: EACH_PAIR(args.scalar == 1.0 ? x + y : static_cast<C>(x + args.scalar * y));
        case SUB: EACH_PAIR(x - y);
        case MUL: EACH_PAIR(x * y);
        case MAXIMUM: EACH_PAIR(x > y ? x : y);
        case MINIMUM: EACH_PAIR(x < y ? x : y);
        default: EACH_PAIR((x - y) * (x - y));
    }
}

template <typename T, bool Grad>
struct BinaryBody {
    template <int V>
    DEVICE static void run(const BinaryArgs& a, const i64* at) {
        typedef typename Compute<T>::type C;
        const Pack<T, V> lhs = fetch<V>(a.walk, 1, static_cast<const T*>(a.lhs), at);
        const Pack<T, V> rhs = fetch<V>(a.walk, 2, static_cast<const T*>(a.rhs), at);
        C v[V], w[V];
        UNROLL for (int j = 0; j < V; j++) {
            v[j] = widen(lhs.e[j]);
            w[j] = widen(rhs.e[j]);
        }
        if constexpr (Grad) apply_grad<T, V>(a, v, w);
        else apply_binary<V>(a, v, w);
        Pack<T, V> out;
        UNROLL for (int j = 0; j < V; j++) out.e[j] = narrow<T>(v[j]);
        store_pack(static_cast<T*>(a.out) + at[0], out);
    }
};
template <typename T, int V>
DEVICE void binary(const BinaryArgs& a) {
    each_pack<V, 3, BinaryBody<T, false>>(a.walk, a);
}
template <typename T, int V>
DEVICE void unary_grad(const BinaryArgs& a) {
    each_pack<V, 3, BinaryBody<T, true>>(a.walk, a);
}

enum Comparison { EQ, NE, LT, LE, GT, GE, IS_ZERO };

#define COMPARE(expression)                                                              \
    UNROLL for (int j = 0; j < V; j++) {                                                 \
        const C x = widen(lhs.e[j]), y = widen(rhs.e[j]);                                \
        out.e[j] = expression;                                                           \
    }                                                                                    \
    break
template <typename T>
struct CompareBody {
    template <int V>
    DEVICE static void run(const BinaryArgs& a, const i64* at) {
        typedef typename Compute<T>::type C;
        const Pack<T, V> lhs = fetch<V>(a.walk, 1, static_cast<const T*>(a.lhs), at);
        const Pack<T, V> rhs = fetch<V>(a.walk, 2, static_cast<const T*>(a.rhs), at);
        Pack<u8, V> out;
        switch (a.op) {
            case EQ: COMPARE(x == y);
            case NE: COMPARE(x != y);
            case LT: COMPARE(x < y);
            case LE: COMPARE(x <= y);
            case GT: COMPARE(x > y);
            case GE: COMPARE(x >= y);
            default: COMPARE(x == C(0) && y == y);
        }
        store_pack(static_cast<u8*>(a.out) + at[0], out);
    }
};
template <typename T, int V>
DEVICE void compare(const BinaryArgs& a) {
    each_pack<V, 3, CompareBody<T>>(a.walk, a);
}

enum Ternary { LERP, ADDCMUL, ADDCDIV, MSE_GRAD };

DEVICE float ternary_value(u32 op, float s, float a, float b, float c) {
    switch (op) {
        case LERP: return a + s * (b - a);
        case ADDCMUL: return a + s * b * c;
        case ADDCDIV: return a + s * b / c;
        default: return s * a * (b - c);
    }
}
template <typename T>
struct TernaryBody {
    template <int V>
    DEVICE static void run(const TernaryArgs& k, const i64* at) {
        const Pack<T, V> a = fetch<V>(k.walk, 1, static_cast<const T*>(k.a), at);
        const Pack<T, V> b = fetch<V>(k.walk, 2, static_cast<const T*>(k.b), at);
        const Pack<T, V> c = fetch<V>(k.walk, 3, static_cast<const T*>(k.c), at);
        Pack<T, V> out;
        UNROLL for (int j = 0; j < V; j++) {
            out.e[j] = narrow<T>(ternary_value(k.op, k.scalar, widen(a.e[j]), widen(b.e[j]), widen(c.e[j])));
        }
        store_pack(static_cast<T*>(k.out) + at[0], out);
    }
};
template <typename T, int V>
DEVICE void ternary(const TernaryArgs& a) {
    each_pack<V, 4, TernaryBody<T>>(a.walk, a);
}

// ---- instances: `one` takes any strides, `wide` 16 bytes of the main type at a time ----

#define BOTH(function, T, tag, Args)                                            \
    FLAT_KERNEL(function##_##tag##_one, Args, THREADS, function<T, 1>)          \
    FLAT_KERNEL(function##_##tag##_wide, Args, THREADS, function<T, Wide<T>::N>)

#define BITS(T, tag)                        \
    BOTH(fill, T, tag, FillArgs)            \
    FLAT_KERNEL(fill_each_##tag, FillEachArgs, THREADS, fill_each<T>) \
    BOTH(copy, T, tag, CopyArgs)            \
    BOTH(select, T, tag, SelectArgs)        \
    BOTH(masked_fill, T, tag, MaskedFillArgs) \
    FLAT_KERNEL(triangle_##tag, TriangleArgs, THREADS, triangle<T>)
BITS(u8, b8)
BITS(u16, b16)
BITS(u32, b32)
BITS(u64, b64)

// Casts move 4 elements at a time, whatever the types.
#define CAST(T, tag)                                              \
    FLAT_KERNEL(cast_##tag##_one, CopyArgs, THREADS, cast<T, 1>)  \
    FLAT_KERNEL(cast_##tag##_wide, CopyArgs, THREADS, cast<T, 4>) \
    BOTH(compare, T, tag, BinaryArgs)
#define NUMBER(T, tag)              \
    BOTH(unary, T, tag, UnaryArgs)  \
    BOTH(binary, T, tag, BinaryArgs) \
    CAST(T, tag)
// Gradients of functions are long for eight elements at once, and would take the registers of half a processor.
#define FLOAT(T, tag)                                                                             \
    NUMBER(T, tag)                                                                                \
    FLAT_KERNEL(unary_grad_##tag##_one, BinaryArgs, THREADS, unary_grad<T, 1>)                    \
    BUSY_FLAT_KERNEL(unary_grad_##tag##_wide, BinaryArgs, THREADS, 4, unary_grad<T, Wide<T>::N>)  \
    BOTH(ternary, T, tag, TernaryArgs)
FLOAT_TYPES(FLOAT)
NUMBER(i64, i64)
NUMBER(i32, i32)
NUMBER(i8, i8)
NUMBER(u8, u8)
CAST(boolean, bool)
