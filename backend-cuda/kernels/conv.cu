// Two-dimensional convolution and its gradients as implicit matrix products: nothing is unfolded in memory.
#include "gemm.cuh"
#include "walk.cuh"

struct ConvArgs {
    Sizes sizes;
    // The input, the weight and the result, or their gradients.
    const void* x;
    const void* weight;
    const void* y;
    const void* bias;
    void* out;
    // Of input and result: all channels, channels of a group, planes.
    u32 channels, group_channels, height, width;
    u32 outputs, group_outputs, out_height, out_width;
    u32 window[2], stride[2], padding[2], dilation[2];
    // Pixels of a plane and of a line of what the columns (or the inner dimension) run over; of a window, and its width.
    Divider by_plane, by_line, by_window, by_window_width;
};

// An image and a pixel of it.
struct Pixel {
    u32 image;
    i32 y, x;
};
DEVICE Pixel pixel_of(const ConvArgs& a, u32 i, u32 plane, u32 line) {
    const u32 image = divide(i, a.by_plane), inside = i - image * plane, y = divide(inside, a.by_line);
    return Pixel{image, static_cast<i32>(y), static_cast<i32>(inside - y * line)};
}

// A channel and a place in the window.
struct Tap {
    u32 channel;
    i32 y, x;
};
DEVICE Tap tap_of(const ConvArgs& a, u32 i) {
    const u32 channel = divide(i, a.by_window), inside = i - channel * a.window[0] * a.window[1];
    const u32 y = divide(inside, a.by_window_width);
    return Tap{channel, static_cast<i32>(y), static_cast<i32>(inside - y * a.window[1])};
}

// The input under a pixel of the result and a tap; 0 in the padding.
template <typename T>
DEVICE T input_at(const ConvArgs& a, u32 group, const Pixel& p, const Tap& t) {
    const i32 y = p.y * static_cast<i32>(a.stride[0]) + t.y * static_cast<i32>(a.dilation[0]) - static_cast<i32>(a.padding[0]);
    const i32 x = p.x * static_cast<i32>(a.stride[1]) + t.x * static_cast<i32>(a.dilation[1]) - static_cast<i32>(a.padding[1]);
    if (y < 0 || x < 0 || y >= static_cast<i32>(a.height) || x >= static_cast<i32>(a.width)) return T{0};
    const u64 plane = static_cast<u64>(p.image) * a.channels + group * a.group_channels + t.channel;
    return static_cast<const T*>(a.x)[(plane * a.height + y) * a.width + x];
}

// out[o, (image, pixel)] = Σ weight[o, (channel, tap)] · input
template <typename T>
struct Conv {
    typedef T Element;
    typedef const T* Row;
    struct Column {
        u32 group;
        Pixel pixel;
    };
    static const bool A_PACKS = true, B_PACKS = false;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return false; }
    DEVICE Row a_row(u32 group, u32 m) const {
        return static_cast<const T*>(args.weight) + static_cast<u64>(group * args.group_outputs + m) * args.sizes.k;
    }
    DEVICE Column b_column(u32 group, u32 n) const {
        return Column{group, pixel_of(args, n, args.out_height * args.out_width, args.out_width)};
    }
    DEVICE T a(Row row, u32 k) const { return row[k]; }
    DEVICE bool a_packs() const { return in_packs(args.weight, args.sizes.k); }
    DEVICE Pack<T, 8> a_pack(u32 group, u32 m, u32 k) const { return load_pack<8>(a_row(group, m) + k); }
    DEVICE T b(const Column& c, u32 k) const { return input_at<T>(args, c.group, c.pixel, tap_of(args, k)); }
    DEVICE void store(u32 group, u32 m, u32 n, float sum) const {
        const u32 plane = args.out_height * args.out_width, image = divide(n, args.by_plane);
        const u32 output = group * args.group_outputs + m;
        if (args.bias != nullptr) sum += widen(static_cast<const T*>(args.bias)[output]);
        const u64 at = (static_cast<u64>(image) * args.outputs + output) * plane + (n - image * plane);
        static_cast<T*>(args.out)[at] = narrow<T>(sum);
    }
};

// out[channel, (image, pixel)] = Σ weight[(output, tap), channel] · gradient of the result that the tap reached
template <typename T>
struct ConvInputGrad {
    typedef T Element;
    struct Row {
        u32 group, channel;
    };
    struct Column {
        u32 group;
        Pixel pixel;
    };
    static const bool A_PACKS = false, B_PACKS = false;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return false; }
    DEVICE Row a_row(u32 group, u32 m) const { return Row{group, m}; }
    DEVICE Column b_column(u32 group, u32 n) const {
        return Column{group, pixel_of(args, n, args.height * args.width, args.width)};
    }
    DEVICE T a(const Row& r, u32 k) const {
        const u32 area = args.window[0] * args.window[1], output = divide(k, args.by_window);
        const u64 row = static_cast<u64>(r.group * args.group_outputs + output) * args.group_channels + r.channel;
        return static_cast<const T*>(args.weight)[row * area + (k - output * area)];
    }
    DEVICE T b(const Column& c, u32 k) const {
        const Tap t = tap_of(args, k);
        const i32 y = c.pixel.y + static_cast<i32>(args.padding[0]) - t.y * static_cast<i32>(args.dilation[0]);
        const i32 x = c.pixel.x + static_cast<i32>(args.padding[1]) - t.x * static_cast<i32>(args.dilation[1]);
        if (y < 0 || x < 0) return T{0};
        const u32 row = static_cast<u32>(y) / args.stride[0], column = static_cast<u32>(x) / args.stride[1];
        const bool hit = row * args.stride[0] == static_cast<u32>(y) && column * args.stride[1] == static_cast<u32>(x);
        if (!hit || row >= args.out_height || column >= args.out_width) return T{0};
        const u64 plane = static_cast<u64>(c.pixel.image) * args.outputs + c.group * args.group_outputs + t.channel;
        return static_cast<const T*>(args.y)[(plane * args.out_height + row) * args.out_width + column];
    }
    DEVICE void store(u32 group, u32 m, u32 n, float sum) const {
        const u32 plane = args.height * args.width, image = divide(n, args.by_plane);
        const u64 channel = static_cast<u64>(image) * args.channels + group * args.group_channels + m;
        static_cast<T*>(args.out)[channel * plane + (n - image * plane)] = narrow<T>(sum);
    }
};

// out[output, (channel, tap)] = Σ over images and pixels of the result of its gradient · input
template <typename T>
struct ConvWeightGrad {
    typedef T Element;
    struct Row {
        u32 output;
    };
    struct Column {
        u32 group;
        Tap tap;
    };
    static const bool A_PACKS = true, B_PACKS = false;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return true; }
    DEVICE Row a_row(u32 group, u32 m) const { return Row{group * args.group_outputs + m}; }
    DEVICE Column b_column(u32 group, u32 n) const { return Column{group, tap_of(args, n)}; }
    DEVICE const T* a_at(const Row& r, u32 k) const {
        const u32 plane = args.out_height * args.out_width, image = divide(k, args.by_plane);
        return static_cast<const T*>(args.y) + (static_cast<u64>(image) * args.outputs + r.output) * plane + (k - image * plane);
    }
    DEVICE T a(const Row& r, u32 k) const { return *a_at(r, k); }
    // Then no eight pixels are of two images.
    DEVICE bool a_packs() const { return in_packs(args.y, args.out_height * args.out_width); }
    DEVICE Pack<T, 8> a_pack(u32 group, u32 m, u32 k) const { return load_pack<8>(a_at(a_row(group, m), k)); }
    DEVICE T b(const Column& c, u32 k) const {
        return input_at<T>(args, c.group, pixel_of(args, k, args.out_height * args.out_width, args.out_width), c.tap);
    }
    DEVICE void store(u32 group, u32 m, u32 n, float sum) const {
        static_cast<T*>(args.out)[static_cast<u64>(group * args.group_outputs + m) * args.sizes.n + n] = narrow<T>(sum);
    }
};

#define INSTANCES(T, tag)                                                      \
    GEMM_FORMS(conv2d, Conv, T, tag, ConvArgs)                                 \
    GEMM_FORMS(conv2d_input_grad, ConvInputGrad, T, tag, ConvArgs)             \
    GEMM_FORMS(conv2d_weight_grad, ConvWeightGrad, T, tag, ConvArgs)
FLOAT_TYPES(INSTANCES)
#define TENSORS(T, tag)                                                        \
    TENSOR_FORM(conv2d, Conv, T, tag, ConvArgs, 2)                             \
    TENSOR_FORM(conv2d_input_grad, ConvInputGrad, T, tag, ConvArgs, 2)         \
    TENSOR_FORM(conv2d_weight_grad, ConvWeightGrad, T, tag, ConvArgs, 2)
TENSORS(f16, f16)
TENSORS(bf16, bf16)
