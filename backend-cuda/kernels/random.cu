// Philox words, uniforms and dropout: the same bits as every backend's.
#include "arguments.cuh"
#include "walk.cuh"

struct Words {
    u32 w[4];
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): block `counter` of key `seed`.
DEVICE Words philox(u64 seed, u64 counter) {
    u32 k0 = static_cast<u32>(seed), k1 = static_cast<u32>(seed >> 32);
    u32 c0 = static_cast<u32>(counter), c1 = static_cast<u32>(counter >> 32), c2 = 0, c3 = 0;
    UNROLL for (int round = 0; round < 10; round++) {
        if (round > 0) {
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        const u32 high_a = __umulhi(c0, 0xD2511F53u), low_a = c0 * 0xD2511F53u;
        const u32 high_b = __umulhi(c2, 0xCD9E8D57u), low_b = c2 * 0xCD9E8D57u;
        c0 = high_b ^ c1 ^ k0;
        c1 = low_b;
        c2 = high_a ^ c3 ^ k1;
        c3 = low_a;
    }
    return Words{{c0, c1, c2, c3}};
}

// Exact in f32.
DEVICE float uniform(u32 word) { return static_cast<float>(word >> 8) * 5.9604644775390625e-8f; }

// A thread per counter: four elements.
DEVICE void draw_words(const RandomArgs& a) {
    for (u64 i = thread_index(); i * 4 < a.elements; i += thread_count()) {
        const Words words = philox(a.seed, a.offset + i);
        UNROLL for (int j = 0; j < 4; j++) {
            if (i * 4 + j < a.elements) static_cast<u32*>(a.out)[i * 4 + j] = words.w[j];
        }
    }
}

template <typename T>
DEVICE void random_uniform(const RandomArgs& a) {
    for (u64 i = thread_index(); i * 4 < a.elements; i += thread_count()) {
        const Words words = philox(a.seed, a.offset + i);
        UNROLL for (int j = 0; j < 4; j++) {
            // Rounded after each operation: a fused multiply-add has other bits.
            const float x = __fadd_rn(a.low, __fmul_rn(a.span, uniform(words.w[j])));
            if (i * 4 + j < a.elements) static_cast<T*>(a.out)[i * 4 + j] = narrow<T>(x);
        }
    }
}

template <typename T, bool Whole>
DEVICE void drop(const DropoutArgs& a, u64 i, u64 count) {
    const Words words = philox(a.seed, a.offset + i);
    Pack<T, 4> x;
    Pack<u8, 4> mask;
    if constexpr (Whole) {
        x = load_pack<4>(static_cast<const T*>(a.x) + i * 4);
    } else {
        for (u64 j = 0; j < count; j++) x.e[j] = static_cast<const T*>(a.x)[i * 4 + j];
    }
    UNROLL for (int j = 0; j < 4; j++) {
        if (!Whole && static_cast<u64>(j) >= count) break;
        mask.e[j] = a.scale != 0.0f && uniform(words.w[j]) >= a.p;
        x.e[j] = narrow<T>(mask.e[j] ? widen(x.e[j]) * a.scale : 0.0f);
    }
    if constexpr (Whole) {
        store_pack(static_cast<T*>(a.out) + i * 4, x);
        store_pack(a.mask + i * 4, mask);
    } else {
        for (u64 j = 0; j < count; j++) {
            static_cast<T*>(a.out)[i * 4 + j] = x.e[j];
            a.mask[i * 4 + j] = mask.e[j];
        }
    }
}

template <typename T, bool Wide>
DEVICE void dropout(const DropoutArgs& a) {
    for (u64 i = thread_index(); i * 4 < a.elements; i += thread_count()) {
        const u64 left = a.elements - i * 4;
        if (Wide && left >= 4) drop<T, Wide>(a, i, 4);
        else drop<T, false>(a, i, least(left, u64(4)));
    }
}

template <typename T>
struct DropoutGradBody {
    template <int V>
    DEVICE static void run(const DropoutGradArgs& a, const i64* at) {
        Pack<T, V> out = fetch<V>(a.walk, 1, static_cast<const T*>(a.grad), at);
        const Pack<u8, V> mask = fetch<V>(a.walk, 2, a.mask, at);
        UNROLL for (int j = 0; j < V; j++) out.e[j] = narrow<T>(mask.e[j] ? a.scale * widen(out.e[j]) : 0.0f);
        store_pack(static_cast<T*>(a.out) + at[0], out);
    }
};
template <typename T, int V>
DEVICE void dropout_grad(const DropoutGradArgs& a) {
    each_pack<V, 3, DropoutGradBody<T>>(a.walk, a);
}

FLAT_KERNEL(random_words, RandomArgs, THREADS, draw_words)
#define INSTANCES(T, tag)                                                                 \
    FLAT_KERNEL(random_uniform_##tag, RandomArgs, THREADS, random_uniform<T>)             \
    FLAT_KERNEL(dropout_##tag##_one, DropoutArgs, THREADS, dropout<T, false>)             \
    FLAT_KERNEL(dropout_##tag##_wide, DropoutArgs, THREADS, dropout<T, true>)             \
    FLAT_KERNEL(dropout_grad_##tag##_one, DropoutGradArgs, THREADS, dropout_grad<T, 1>)   \
    FLAT_KERNEL(dropout_grad_##tag##_wide, DropoutGradArgs, THREADS, dropout_grad<T, Wide<T>::N>)
FLOAT_TYPES(INSTANCES)
