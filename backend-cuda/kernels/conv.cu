// Two-dimensional convolution and its gradients as implicit matrix products: nothing is unfolded in memory.
#include "gemm_tensor.cuh"
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
    Divider by_stride[2];
};

// Where something lies: elements from where a tensor begins, and its line and place in a plane. What is read lies at the
// sum of two: of a pixel, and of a channel with a place in the window. In the padding the parts may be below zero, and wrap.
struct alignas(16) Spot {
    u32 at;
    i32 y, x;
    // Of the gradient for the input: what the stride leaves over. Where it differs, the tap never met the pixel.
    u32 rest;
};
// What is worth knowing of an index of the inner dimension: a spot in one matrix, and elements from where a row of the other
// begins.
struct ConvStep {
    Spot b;
    u32 a;
};

// The element under two spots of planes of so many lines and places; 0 beyond them, and where it is not wanted.
template <typename T>
DEVICE T element_at(const void* base, u32 height, u32 width, const Spot& one, const Spot& other, bool wanted) {
    const u32 y = static_cast<u32>(one.y + other.y), x = static_cast<u32>(one.x + other.x);
    return wanted && y < height && x < width ? static_cast<const T*>(base)[one.at + other.at] : T{0};
}

// Image, line and place of pixel `i` of the planes that are counted, which are so wide.
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

// In the input: the first element under the window at a pixel of the result, and what a tap adds.
DEVICE Spot input_of_pixel(const ConvArgs& a, const Pixel& p) {
    const i32 y = p.y * static_cast<i32>(a.stride[0]) - static_cast<i32>(a.padding[0]);
    const i32 x = p.x * static_cast<i32>(a.stride[1]) - static_cast<i32>(a.padding[1]);
    return Spot{(p.image * a.channels * a.height + y) * a.width + x, y, x, 0};
}
DEVICE Spot input_of_tap(const ConvArgs& a, u32 group, const Tap& t) {
    const i32 y = t.y * static_cast<i32>(a.dilation[0]), x = t.x * static_cast<i32>(a.dilation[1]);
    return Spot{((group * a.group_channels + t.channel) * a.height + y) * a.width + x, y, x, 0};
}
// In the result: a pixel of the input met the tap (y, x) at the pixel whose distance from it is a whole number of strides. Both
// are divided by the stride here, so that the difference of quotients is that pixel where the rests are the same.
DEVICE Spot result_of(const ConvArgs& a, u32 plane, u32 y, u32 x) {
    const u32 line = divide(y, a.by_stride[0]), place = divide(x, a.by_stride[1]);
    const u32 rest = (y - line * a.stride[0]) * a.stride[1] + (x - place * a.stride[1]);
    return Spot{(plane * a.out_height + line) * a.out_width + place, static_cast<i32>(line), static_cast<i32>(place), rest};
}

// out[o, (image, pixel)] = Σ weight[o, (channel, tap)] · input
template <typename T>
struct Conv {
    typedef T Element;
    typedef u32 Row;
    typedef Spot Column;
    typedef ConvStep Step;
    static const bool A_PACKS = true, B_PACKS = false, TABLES = true;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return false; }
    DEVICE Row a_row(u32 group, u32 m) const {
        return (group * args.group_outputs + m) * args.sizes.k;
    }
    DEVICE Column b_column(u32, u32 n) const {
        return input_of_pixel(args, pixel_of(args, n, args.out_height * args.out_width, args.out_width));
    }
    DEVICE Step step(u32 group, u32 k) const { return Step{input_of_tap(args, group, tap_of(args, k)), k}; }
    DEVICE T a(Row row, const Step& step, bool wanted) const {
        return wanted ? static_cast<const T*>(args.weight)[row + step.a] : T{0};
    }
    DEVICE bool a_packs() const { return in_packs<T>(args.weight, args.sizes.k); }
    DEVICE Whole<T> a_pack(Row row, const Step& step) const {
        return load_whole(static_cast<const T*>(args.weight) + (row + step.a));
    }
    DEVICE T b(const Column& pixel, const Step& step, bool wanted) const {
        return element_at<T>(args.x, args.height, args.width, pixel, step.b, wanted);
    }
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
    typedef u32 Row;
    typedef Spot Column;
    typedef ConvStep Step;
    static const bool A_PACKS = false, B_PACKS = false, TABLES = true;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return false; }
    DEVICE Row a_row(u32 group, u32 m) const {
        return (group * args.group_outputs * args.group_channels + m) * args.window[0] * args.window[1];
    }
    DEVICE Column b_column(u32, u32 n) const {
        const Pixel p = pixel_of(args, n, args.height * args.width, args.width);
        return result_of(args, p.image * args.outputs, p.y + args.padding[0], p.x + args.padding[1]);
    }
    DEVICE Step step(u32 group, u32 k) const {
        const Tap t = tap_of(args, k);
        const u32 area = args.window[0] * args.window[1];
        const Spot tap = result_of(args, 0, t.y * args.dilation[0], t.x * args.dilation[1]);
        const u32 plane = (group * args.group_outputs + t.channel) * args.out_height * args.out_width;
        const u32 a = t.channel * (args.group_channels - 1) * area + k;
        return Step{Spot{plane - tap.at, -tap.y, -tap.x, tap.rest}, a};
    }
    DEVICE T a(Row row, const Step& step, bool wanted) const {
        return wanted ? static_cast<const T*>(args.weight)[row + step.a] : T{0};
    }
    DEVICE T b(const Column& pixel, const Step& step, bool wanted) const {
        wanted = wanted && pixel.rest == step.b.rest;
        return element_at<T>(args.y, args.out_height, args.out_width, pixel, step.b, wanted);
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
    typedef u32 Row;
    typedef Spot Column;
    typedef ConvStep Step;
    static const bool A_PACKS = true, B_PACKS = false, TABLES = true;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return true; }
    DEVICE Row a_row(u32 group, u32 m) const {
        return (group * args.group_outputs + m) * args.out_height * args.out_width;
    }
    DEVICE Column b_column(u32 group, u32 n) const { return input_of_tap(args, group, tap_of(args, n)); }
    DEVICE Step step(u32, u32 k) const {
        const u32 plane = args.out_height * args.out_width;
        const Pixel p = pixel_of(args, k, plane, args.out_width);
        // All images before, and all their outputs but one.
        const u32 a = p.image * (args.outputs - 1) * plane + k;
        return Step{input_of_pixel(args, p), a};
    }
    DEVICE T a(Row row, const Step& step, bool wanted) const {
        return wanted ? static_cast<const T*>(args.y)[row + step.a] : T{0};
    }
    // Then no pack has pixels of two images.
    DEVICE bool a_packs() const { return in_packs<T>(args.y, args.out_height * args.out_width); }
    DEVICE Whole<T> a_pack(Row row, const Step& step) const {
        return load_whole(static_cast<const T*>(args.y) + (row + step.a));
    }
    DEVICE T b(const Column& tap, const Step& step, bool wanted) const {
        return element_at<T>(args.x, args.height, args.width, tap, step.b, wanted);
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
    TENSOR_FORMS(conv2d, Conv, T, tag, ConvArgs, 2)                             \
    TENSOR_FORMS(conv2d_input_grad, ConvInputGrad, T, tag, ConvArgs, 2)         \
    TENSOR_FORMS(conv2d_weight_grad, ConvWeightGrad, T, tag, ConvArgs, 2)
TENSORS(float, f32)
TENSORS(f16, f16)
TENSORS(bf16, bf16)
