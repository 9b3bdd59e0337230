// Max and average pooling and their gradient, which gathers: each input element looks at the windows that cover it.
#include "arguments.cuh"
#include "walk.cuh"

template <typename T>
DEVICE void pool2d(const PoolArgs& a) {
    for (u64 e = thread_index(); e < a.elements; e += thread_count()) {
        const u32 i = static_cast<u32>(e), line = divide(i, a.by_width), plane = divide(line, a.by_height);
        const i32 top = static_cast<i32>((line - plane * a.out_height) * a.stride[0]) - static_cast<i32>(a.padding[0]);
        const i32 left = static_cast<i32>((i - line * a.out_width) * a.stride[1]) - static_cast<i32>(a.padding[1]);
        const T* x = static_cast<const T*>(a.x) + static_cast<u64>(plane) * a.height * a.width;
        const i32 bottom = least(top + static_cast<i32>(a.window[0]), static_cast<i32>(a.height));
        const i32 right = least(left + static_cast<i32>(a.window[1]), static_cast<i32>(a.width));
        float value = 0.0f;
        i32 place = -1;
        for (i32 y = largest(top, 0); y < bottom; y++) {
            for (i32 column = largest(left, 0); column < right; column++) {
                const i32 at = y * static_cast<i32>(a.width) + column;
                const float v = widen(x[at]);
                if (!a.max) {
                    value += v;
                } else if (place < 0 || (!is_nan(value) && (is_nan(v) || v > value))) {
                    value = v;
                    place = at;
                }
            }
        }
        if (a.max) a.indices[i] = place;
        else value /= static_cast<float>(a.window[0] * a.window[1]);
        static_cast<T*>(a.out)[i] = narrow<T>(value);
    }
}

// The first window that reaches position `at`, and the end of those that do.
DEVICE u32 first_window(u32 at, u32 padding, u32 window, u32 stride) {
    const u32 reach = at + padding + 1;
    return reach > window ? (reach - window + stride - 1) / stride : 0;
}
DEVICE u32 end_window(u32 at, u32 padding, u32 stride, u32 count) { return least((at + padding) / stride + 1, count); }

template <typename T>
DEVICE void pool2d_grad(const PoolArgs& a) {
    const float size = static_cast<float>(a.window[0] * a.window[1]);
    for (u64 e = thread_index(); e < a.elements; e += thread_count()) {
        const u32 i = static_cast<u32>(e), line = divide(i, a.by_width), plane = divide(line, a.by_height);
        const u32 y = line - plane * a.height, x = i - line * a.width;
        const u64 base = static_cast<u64>(plane) * a.out_height * a.out_width;
        const T* grad = static_cast<const T*>(a.x) + base;
        const i64* indices = a.indices + base;
        const u32 bottom = end_window(y, a.padding[0], a.stride[0], a.out_height);
        const u32 right = end_window(x, a.padding[1], a.stride[1], a.out_width);
        float sum = 0.0f;
        for (u32 r = first_window(y, a.padding[0], a.window[0], a.stride[0]); r < bottom; r++) {
            for (u32 c = first_window(x, a.padding[1], a.window[1], a.stride[1]); c < right; c++) {
                const u32 at = r * a.out_width + c;
                if (!a.max) sum += widen(grad[at]) / size;
                else if (indices[at] == static_cast<i64>(y) * a.width + x) sum += widen(grad[at]);
            }
        }
        static_cast<T*>(a.out)[i] = narrow<T>(sum);
    }
}

#define INSTANCES(T, tag)                                          \
    FLAT_KERNEL(pool2d_##tag, PoolArgs, THREADS, pool2d<T>)        \
    FLAT_KERNEL(pool2d_grad_##tag, PoolArgs, THREADS, pool2d_grad<T>)
FLOAT_TYPES(INSTANCES)
