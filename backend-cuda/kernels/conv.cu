// Two-dimensional convolution and its gradients as implicit matrix products: nothing is unfolded in memory.
#include "arguments.cuh"
#include "gemm_tensor.cuh"
#include "walk.cuh"

// Where something lies: elements from where a tensor begins, and its line and place in a plane. What is read lies at the
// sum of two: of a pixel, and of a channel with a place in the window. In the padding the parts may be below zero, and wrap.
struct Spot {
    u32 at;
    i32 y, x;
    // Of the gradient for the input: what the stride leaves over. Where it differs, the tap never met the pixel.
    u32 rest;
};
// The same in bits, so that one look at both says whether a tap meets a pixel: a tap has a bit for its line of the window and one
// for its place in it; a pixel has those of the lines and places that do not meet it. A column of a product has NEVER as well,
// which steps get that nobody wants. For windows with a bit for each, and where every tap meets every pixel.
struct Marks {
    u32 at, lines, places;
};
static const u32 LINES = 32, PLACES = 31, NEVER = 1u << PLACES;

// What is worth knowing of a column, or of an index of the inner dimension: where it is in one matrix, and elements from where a
// row of the other begins.
template <typename Place>
struct alignas(16) Known {
    Place b;
    u32 a;
};
DEVICE Known<Spot> column_at(const Spot& spot) { return Known<Spot>{spot, 0}; }
DEVICE Known<Marks> column_at(const Marks& m) { return Known<Marks>{Marks{m.at, m.lines, m.places | NEVER}, 0}; }
DEVICE void hide_step(Spot&) {}
DEVICE void hide_step(Marks& step) { step.places |= NEVER; }

// The element under a column and a step in planes of so many lines and places; 0 beyond them, and where it is not wanted.
template <typename T>
DEVICE T element_at(const void* base, u32 height, u32 width, const Spot& column, const Spot& step, bool wanted) {
    const u32 y = static_cast<u32>(column.y + step.y), x = static_cast<u32>(column.x + step.x);
    wanted = wanted && column.rest == step.rest && y < height && x < width;
    return wanted ? static_cast<const T*>(base)[column.at + step.at] : T{0};
}
template <typename T>
DEVICE T element_at(const void* base, u32, u32, const Marks& column, const Marks& step, bool) {
    // The address before the question, so that only the load depends on it.
    const T* at = static_cast<const T*>(base) + (column.at + step.at);
    return ((column.lines & step.lines) | (column.places & step.places)) == 0 ? *at : T{0};
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

// The bits below that one.
DEVICE u32 bits_below(u32 bit) { return bit < 32 ? (1u << bit) - 1 : ~0u; }
// A tap's bits.
DEVICE Marks marks_of_tap(u32 at, const Tap& t) {
    const u32 y = static_cast<u32>(t.y), x = static_cast<u32>(t.x);
    return Marks{at, y < LINES ? 1u << y : 0, x < PLACES ? 1u << x : 0};
}

// In the input: the first element under the window at a pixel of the result, and what a tap adds.
DEVICE Spot input_of_pixel(const ConvArgs& a, const Pixel& p, Spot) {
    const i32 y = p.y * static_cast<i32>(a.stride[0]) - static_cast<i32>(a.padding[0]);
    const i32 x = p.x * static_cast<i32>(a.stride[1]) - static_cast<i32>(a.padding[1]);
    return Spot{(p.image * a.channels * a.height + y) * a.width + x, y, x, 0};
}
DEVICE Spot input_of_tap(const ConvArgs& a, u32 group, const Tap& t, Spot) {
    const i32 y = t.y * static_cast<i32>(a.dilation[0]), x = t.x * static_cast<i32>(a.dilation[1]);
    return Spot{((group * a.group_channels + t.channel) * a.height + y) * a.width + x, y, x, 0};
}
// Of a window that begins there, the taps that are not within so many lines or places: all but the first ones that are, and those
// before them.
DEVICE u32 beyond(i32 first, u32 size, u32 dilation, const Divider& by_dilation) {
    const i32 end = static_cast<i32>(size) - first;
    const u32 before = first < 0 ? divide(static_cast<u32>(-first) + dilation - 1, by_dilation) : 0;
    const u32 until = end > 0 ? divide(static_cast<u32>(end) + dilation - 1, by_dilation) : 0;
    return ~(bits_below(until) & ~bits_below(before));
}
DEVICE Marks input_of_pixel(const ConvArgs& a, const Pixel& p, Marks) {
    const Spot spot = input_of_pixel(a, p, Spot());
    const u32 lines = beyond(spot.y, a.height, a.dilation[0], a.by_dilation[0]);
    return Marks{spot.at, lines, beyond(spot.x, a.width, a.dilation[1], a.by_dilation[1]) & ~NEVER};
}
DEVICE Marks input_of_tap(const ConvArgs& a, u32 group, const Tap& t, Marks) {
    return marks_of_tap(input_of_tap(a, group, t, Spot()).at, t);
}

// In the result: a pixel of the input met the tap (y, x) at the pixel whose distance from it is a whole number of strides. Both
// are divided by the stride here, so that the difference of quotients is that pixel where the rests are the same.
DEVICE Spot result_of(const ConvArgs& a, u32 plane, u32 y, u32 x) {
    const u32 line = divide(y, a.by_stride[0]), place = divide(x, a.by_stride[1]);
    const u32 rest = (y - line * a.stride[0]) * a.stride[1] + (x - place * a.stride[1]);
    return Spot{(plane * a.out_height + line) * a.out_width + place, static_cast<i32>(line), static_cast<i32>(place), rest};
}
DEVICE Spot result_of_pixel(const ConvArgs& a, const Pixel& p, Spot) {
    return result_of(a, p.image * a.outputs, p.y + a.padding[0], p.x + a.padding[1]);
}
DEVICE Spot result_of_tap(const ConvArgs& a, u32 group, const Tap& t, Spot) {
    const Spot tap = result_of(a, 0, t.y * a.dilation[0], t.x * a.dilation[1]);
    const u32 plane = (group * a.group_outputs + t.channel) * a.out_height * a.out_width;
    return Spot{plane - tap.at, -tap.y, -tap.x, tap.rest};
}
// The taps that never met what lies so far from the padded edge, of a result of so many lines or places.
DEVICE u32 never_met(u32 from_edge, u32 size, u32 taps, u32 dilation, u32 stride, const Divider& by_stride) {
    u32 missed = 0;
    for (u32 tap = 0; tap < taps; tap++) {
        const i32 rest = static_cast<i32>(from_edge - tap * dilation);
        const u32 at = rest < 0 ? size : divide(static_cast<u32>(rest), by_stride);
        if (at >= size || at * stride != static_cast<u32>(rest)) missed |= 1u << tap;
    }
    return missed;
}
DEVICE Marks result_of_pixel(const ConvArgs& a, const Pixel& p, Marks) {
    const u32 y = p.y + a.padding[0], x = p.x + a.padding[1];
    const u32 lines = never_met(y, a.out_height, a.window[0], a.dilation[0], a.stride[0], a.by_stride[0]);
    const u32 places = never_met(x, a.out_width, a.window[1], a.dilation[1], a.stride[1], a.by_stride[1]);
    return Marks{result_of_pixel(a, p, Spot()).at, lines, places};
}
DEVICE Marks result_of_tap(const ConvArgs& a, u32 group, const Tap& t, Marks) {
    return marks_of_tap(result_of_tap(a, group, t, Spot()).at, t);
}

// out[o, (image, pixel)] = Σ weight[o, (channel, tap)] · input
template <typename T, typename Place>
struct Conv {
    typedef T Element;
    typedef u32 Row;
    typedef Known<Place> Column, Step;
    static const bool A_PACKS = true, B_PACKS = false, TABLES = true;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return false; }
    DEVICE Row a_row(u32 group, u32 m) const {
        return (group * args.group_outputs + m) * args.sizes.k;
    }
    DEVICE Column b_column(u32, u32 n) const {
        const Pixel p = pixel_of(args, n, args.out_height * args.out_width, args.out_width);
        return column_at(input_of_pixel(args, p, Place()));
    }
    DEVICE Step step(u32 group, u32 k) const { return Step{input_of_tap(args, group, tap_of(args, k), Place()), k}; }
    DEVICE void hide(Step& step) const { hide_step(step.b); }
    DEVICE T a(Row row, const Step& step, bool wanted) const {
        return wanted ? static_cast<const T*>(args.weight)[row + step.a] : T{0};
    }
    DEVICE bool a_packs() const { return in_packs<T>(args.weight, args.sizes.k); }
    DEVICE Whole<T> a_pack(Row row, const Step& step) const {
        return load_whole(static_cast<const T*>(args.weight) + (row + step.a));
    }
    DEVICE T b(const Column& pixel, const Step& step, bool wanted) const {
        return element_at<T>(args.x, args.height, args.width, pixel.b, step.b, wanted);
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
template <typename T, typename Place>
struct ConvInputGrad {
    typedef T Element;
    typedef u32 Row;
    typedef Known<Place> Column, Step;
    static const bool A_PACKS = false, B_PACKS = false, TABLES = true;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return false; }
    DEVICE Row a_row(u32 group, u32 m) const {
        return (group * args.group_outputs * args.group_channels + m) * args.window[0] * args.window[1];
    }
    DEVICE Column b_column(u32, u32 n) const {
        const Pixel p = pixel_of(args, n, args.height * args.width, args.width);
        return column_at(result_of_pixel(args, p, Place()));
    }
    DEVICE void hide(Step& step) const { hide_step(step.b); }
    DEVICE Step step(u32 group, u32 k) const {
        const Tap t = tap_of(args, k);
        const u32 a = t.channel * (args.group_channels - 1) * args.window[0] * args.window[1] + k;
        return Step{result_of_tap(args, group, t, Place()), a};
    }
    DEVICE T a(Row row, const Step& step, bool wanted) const {
        return wanted ? static_cast<const T*>(args.weight)[row + step.a] : T{0};
    }
    DEVICE T b(const Column& pixel, const Step& step, bool wanted) const {
        return element_at<T>(args.y, args.out_height, args.out_width, pixel.b, step.b, wanted);
    }
    DEVICE void store(u32 group, u32 m, u32 n, float sum) const {
        const u32 plane = args.height * args.width, image = divide(n, args.by_plane);
        const u64 channel = static_cast<u64>(image) * args.channels + group * args.group_channels + m;
        static_cast<T*>(args.out)[channel * plane + (n - image * plane)] = narrow<T>(sum);
    }
};

// out[output, (channel, tap)] = Σ over images and pixels of the result of its gradient · input
template <typename T, typename Place>
struct ConvWeightGrad {
    typedef T Element;
    typedef u32 Row;
    typedef Known<Place> Column, Step;
    static const bool A_PACKS = true, B_PACKS = false, TABLES = true;
    const ConvArgs& args;

    DEVICE bool a_along_k() const { return true; }
    DEVICE bool b_along_k() const { return true; }
    DEVICE Row a_row(u32 group, u32 m) const {
        return (group * args.group_outputs + m) * args.out_height * args.out_width;
    }
    DEVICE Column b_column(u32 group, u32 n) const { return column_at(input_of_tap(args, group, tap_of(args, n), Place())); }
    DEVICE void hide(Step& step) const { hide_step(step.b); }
    DEVICE Step step(u32, u32 k) const {
        const u32 plane = args.out_height * args.out_width;
        const Pixel p = pixel_of(args, k, plane, args.out_width);
        // All images before, and all their outputs but one.
        const u32 a = p.image * (args.outputs - 1) * plane + k;
        return Step{input_of_pixel(args, p, Place()), a};
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
        return element_at<T>(args.x, args.height, args.width, tap.b, step.b, wanted);
    }
    DEVICE void store(u32 group, u32 m, u32 n, float sum) const {
        static_cast<T*>(args.out)[static_cast<u64>(group * args.group_outputs + m) * args.sizes.n + n] = narrow<T>(sum);
    }
};

// On ordinary cores by spots, on tensor cores by marks.
template <typename T>
using ConvSpots = Conv<T, Spot>;
template <typename T>
using ConvMarks = Conv<T, Marks>;
template <typename T>
using ConvInputGradSpots = ConvInputGrad<T, Spot>;
template <typename T>
using ConvInputGradMarks = ConvInputGrad<T, Marks>;
template <typename T>
using ConvWeightGradSpots = ConvWeightGrad<T, Spot>;
template <typename T>
using ConvWeightGradMarks = ConvWeightGrad<T, Marks>;

#define INSTANCES(T, tag)                                                      \
    GEMM_FORMS(conv2d, ConvSpots, T, tag, ConvArgs)                            \
    GEMM_FORMS(conv2d_input_grad, ConvInputGradSpots, T, tag, ConvArgs)        \
    GEMM_FORMS(conv2d_weight_grad, ConvWeightGradSpots, T, tag, ConvArgs)      \
    TENSOR_FORMS(conv2d, ConvMarks, T, tag, ConvArgs, 2)                       \
    TENSOR_FORMS(conv2d_input_grad, ConvInputGradMarks, T, tag, ConvArgs, 2)   \
    TENSOR_FORMS(conv2d_weight_grad, ConvWeightGradMarks, T, tag, ConvArgs, 2)
FLOAT_TYPES(INSTANCES)
