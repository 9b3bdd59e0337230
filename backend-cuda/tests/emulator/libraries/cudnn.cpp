// A stand-in for libcudnn.so.9: what its documentation says of the functions that the backend calls, on host memory. Tensors
// are in the order NCHW, without gaps.
#include <cstddef>
#include <vector>

#include "values.h"

namespace {
enum Status { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, ALLOC_FAILED = 4004 };
enum Math { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, FMA_MATH = 3 };
enum Which { FORWARD, INPUT_GRAD, WEIGHT_GRAD };
constexpr const char* NAMES[3] = {"convolution", "convolution of the input's gradient", "convolution of the weight's gradient"};

// A tensor or a filter.
struct Tensor {
    int kind = -1;
    int sizes[4] = {};
    int64_t at(int a, int b, int c, int d) const { return ((int64_t(a) * sizes[1] + b) * sizes[2] + c) * sizes[3] + d; }
};
struct Rules {
    int pad[2] = {}, stride[2] = {}, dilation[2] = {}, groups = 1, math = DEFAULT_MATH;
};
// As cudnnConvolutionFwdAlgoPerf_t.
struct Choice {
    int algorithm, status;
    float time;
    size_t workspace_bytes;
    int deterministic, math, reserved[3];
};
constexpr size_t HANDLE_BYTES = 7 << 20, KERNELS_BYTES = 13 << 20, WORKSPACE_BYTES = 4096;
struct Handle {
    bool loaded = false;
    void* stream = nullptr;
};

template <typename T>
const T& as(const void* description) {
    return *static_cast<const T*>(description);
}

// Whether input, weight and result belong together.
bool fit(const Tensor& x, const Tensor& w, const Rules& r, const Tensor& y) {
    bool fits = x.kind == w.kind && x.kind == y.kind && x.sizes[0] == y.sizes[0] && w.sizes[0] == y.sizes[1];
    fits &= x.sizes[1] == w.sizes[1] * r.groups && w.sizes[0] % r.groups == 0;
    for (int i = 0; i < 2; i++) {
        const int reach = r.dilation[i] * (w.sizes[2 + i] - 1) + 1, room = x.sizes[2 + i] + 2 * r.pad[i] - reach;
        fits &= room >= 0 && y.sizes[2 + i] == room / r.stride[i] + 1;
    }
    return fits;
}

// The algorithms in the order of their time: some that the backend must not take, then one that it may. Windows that are wider
// apart than high have none.
int choose(Which which, const Tensor& x, const Tensor& w, const Rules& r, const Tensor& y, int wanted, int* found, Choice* to) {
    if (!fit(x, w, r, y) || wanted < 4) return BAD_PARAM;
    if (r.dilation[1] > r.dilation[0]) return *found = 0, SUCCESS;
    const int math = x.kind == F32 ? DEFAULT_MATH : TENSOR_OP_MATH;
    const auto choice = [&](int algorithm, int status, size_t bytes, int deterministic) {
        return Choice{algorithm, status, 0.0f, bytes, deterministic, math, {}};
    };
    const int transform = which == FORWARD ? 7 : which == INPUT_GRAD ? 4 : 5, other = which == FORWARD ? 0 : 1;
    to[0] = choice(transform, SUCCESS, 0, 1);
    to[1] = choice(1, NOT_SUPPORTED, 0, 1);
    to[2] = which == FORWARD ? choice(1, SUCCESS, size_t(1) << 40, 1) : choice(0, SUCCESS, 0, 0);
    to[3] = choice(other, SUCCESS, WORKSPACE_BYTES, 1);
    return *found = 4, SUCCESS;
}

struct Call {
    Which which;
    Tensor x, w, y;
    Rules r;
    float beta;
    const void *px, *pw, *py;
    void* out;
};

// Adds up the products whose place in the result is wanted: each of them is of an element of x, of w and of y.
void convolve(void* data) {
    const Call& c = *static_cast<Call*>(data);
    const Tensor& out = c.which == FORWARD ? c.y : c.which == INPUT_GRAD ? c.x : c.w;
    // Without the order to multiply exactly, float32 is rounded.
    const bool rounds = c.x.kind == F32 && c.r.math != FMA_MATH;
    const auto factor = [&](const Tensor& t, const void* base, int64_t at) {
        const float value = load(t.kind, base, at);
        return double(rounds ? rounded(value) : value);
    };
    std::vector<double> sums(size_t(out.sizes[0]) * out.sizes[1] * out.sizes[2] * out.sizes[3], 0.0);
    const int group_outputs = c.w.sizes[0] / c.r.groups;
    for (int n = 0; n < c.y.sizes[0]; n++)
        for (int o = 0; o < c.y.sizes[1]; o++)
            for (int i = 0; i < c.y.sizes[2]; i++)
                for (int j = 0; j < c.y.sizes[3]; j++)
                    for (int k = 0; k < c.w.sizes[1]; k++)
                        for (int u = 0; u < c.w.sizes[2]; u++)
                            for (int v = 0; v < c.w.sizes[3]; v++) {
                                const int line = i * c.r.stride[0] - c.r.pad[0] + u * c.r.dilation[0];
                                const int place = j * c.r.stride[1] - c.r.pad[1] + v * c.r.dilation[1];
                                if (line < 0 || line >= c.x.sizes[2] || place < 0 || place >= c.x.sizes[3]) continue;
                                const int64_t x = c.x.at(n, o / group_outputs * c.w.sizes[1] + k, line, place);
                                const int64_t w = c.w.at(o, k, u, v), y = c.y.at(n, o, i, j);
                                if (c.which == FORWARD) sums[y] += factor(c.x, c.px, x) * factor(c.w, c.pw, w);
                                else if (c.which == INPUT_GRAD) sums[x] += factor(c.y, c.py, y) * factor(c.w, c.pw, w);
                                else sums[w] += factor(c.x, c.px, x) * factor(c.y, c.py, y);
                            }
    for (size_t at = 0; at < sums.size(); at++) {
        const double old = c.beta != 0.0f ? double(c.beta) * load(out.kind, c.out, int64_t(at)) : 0.0;
        store(out.kind, c.out, int64_t(at), float(sums[at] + old));
    }
}

int run(void* handle, const float* alpha, const float* beta, int algorithm, void* workspace, size_t workspace_bytes, Call call) {
    Handle& h = *static_cast<Handle*>(handle);
    const bool known = algorithm == (call.which == FORWARD ? 0 : 1);
    const bool exact = call.x.kind == F32 || call.r.math == TENSOR_OP_MATH;
    if (!fit(call.x, call.w, call.r, call.y) || !known || !exact || h.stream == nullptr || *alpha != 1.0f) return BAD_PARAM;
    if (workspace_bytes < WORKSPACE_BYTES || reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return BAD_PARAM;
    if (!h.loaded && !(h.loaded = emulator_take("dnn", KERNELS_BYTES))) return ALLOC_FAILED;
    // What it accepted and does not run after all: windows that are higher apart than wide. The result is spoilt.
    if (call.r.dilation[0] > call.r.dilation[1]) {
        *static_cast<unsigned short*>(call.out) = 0x7fff;
        return NOT_SUPPORTED;
    }
    static_cast<char*>(workspace)[0] = static_cast<char*>(workspace)[workspace_bytes - 1] = 0x5A;
    call.beta = *beta;
    // Of 24 channels it is slower than the own kernels, whose time is not counted.
    emulator_note(NAMES[call.which], call.x.sizes[1] == 24 ? 1.0f : 0.0f);
    emulator_submit(convolve, [](void* data) { delete static_cast<Call*>(data); }, new Call(call));
    return SUCCESS;
}
}  // namespace

#include "cudnn_graph.h"

extern "C" __attribute__((visibility("default"))) size_t cudnnGetVersion() { return 91900; }
extern "C" __attribute__((visibility("default"))) size_t cudnnGetCudartVersion() { return 12080; }
API cudnnCreate(void** handle) {
    if (!emulator_take("dnn", HANDLE_BYTES)) return ALLOC_FAILED;
    return *handle = new Handle, SUCCESS;
}
API cudnnDestroy(void* handle) {
    const Handle* h = static_cast<Handle*>(handle);
    emulator_give("dnn", HANDLE_BYTES + (h->loaded ? KERNELS_BYTES : 0));
    return delete h, SUCCESS;
}
API cudnnSetStream(void* handle, void* stream) { return static_cast<Handle*>(handle)->stream = stream, SUCCESS; }
API cudnnCreateTensorDescriptor(void** tensor) { return *tensor = new Tensor, SUCCESS; }
API cudnnDestroyTensorDescriptor(void* tensor) { return delete static_cast<Tensor*>(tensor), SUCCESS; }
API cudnnSetTensor4dDescriptor(void* tensor, int format, int kind, int n, int c, int h, int w) {
    if (format != 0 || (kind != F32 && kind != F16 && kind != 9)) return NOT_SUPPORTED;
    if (n <= 0 || c <= 0 || h <= 0 || w <= 0) return BAD_PARAM;
    return *static_cast<Tensor*>(tensor) = Tensor{kind, {n, c, h, w}}, SUCCESS;
}
API cudnnCreateFilterDescriptor(void** filter) { return *filter = new Tensor, SUCCESS; }
API cudnnDestroyFilterDescriptor(void* filter) { return delete static_cast<Tensor*>(filter), SUCCESS; }
API cudnnSetFilter4dDescriptor(void* filter, int kind, int format, int k, int c, int h, int w) {
    return cudnnSetTensor4dDescriptor(filter, format, kind, k, c, h, w);
}
API cudnnCreateConvolutionDescriptor(void** rules) { return *rules = new Rules, SUCCESS; }
API cudnnDestroyConvolutionDescriptor(void* rules) { return delete static_cast<Rules*>(rules), SUCCESS; }
API cudnnSetConvolution2dDescriptor(void* rules, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w,
                                    int mode, int sums) {
    // Cross-correlation, with sums in float32.
    if (mode != 1 || sums != F32) return NOT_SUPPORTED;
    if (pad_h < 0 || pad_w < 0 || stride_h <= 0 || stride_w <= 0 || dilation_h <= 0 || dilation_w <= 0) return BAD_PARAM;
    Rules& r = *static_cast<Rules*>(rules);
    r = Rules{{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, r.groups, r.math};
    return SUCCESS;
}
API cudnnSetConvolutionGroupCount(void* rules, int groups) { return static_cast<Rules*>(rules)->groups = groups, SUCCESS; }
API cudnnSetConvolutionMathType(void* rules, int math) { return static_cast<Rules*>(rules)->math = math, SUCCESS; }

API cudnnGetConvolutionForwardAlgorithm_v7(void*, void* x, void* w, void* rules, void* y, int wanted, int* found, Choice* to) {
    return choose(FORWARD, as<Tensor>(x), as<Tensor>(w), as<Rules>(rules), as<Tensor>(y), wanted, found, to);
}
API cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, void* w, void* dy, void* rules, void* dx, int wanted, int* found, Choice* to) {
    return choose(INPUT_GRAD, as<Tensor>(dx), as<Tensor>(w), as<Rules>(rules), as<Tensor>(dy), wanted, found, to);
}
API cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, void* x, void* dy, void* rules, void* dw, int wanted, int* found, Choice* to) {
    return choose(WEIGHT_GRAD, as<Tensor>(x), as<Tensor>(dw), as<Rules>(rules), as<Tensor>(dy), wanted, found, to);
}
API cudnnConvolutionForward(void* handle, const float* alpha, void* x_is, const void* x, void* w_is, const void* w, void* rules,
                            int algorithm, void* workspace, size_t bytes, const float* beta, void* y_is, void* y) {
    const Call call{FORWARD, as<Tensor>(x_is), as<Tensor>(w_is), as<Tensor>(y_is), as<Rules>(rules), 0.0f, x, w, nullptr, y};
    return run(handle, alpha, beta, algorithm, workspace, bytes, call);
}
API cudnnConvolutionBackwardData(void* handle, const float* alpha, void* w_is, const void* w, void* dy_is, const void* dy, void* rules,
                                 int algorithm, void* workspace, size_t bytes, const float* beta, void* dx_is, void* dx) {
    const Call call{INPUT_GRAD, as<Tensor>(dx_is), as<Tensor>(w_is), as<Tensor>(dy_is), as<Rules>(rules), 0.0f, nullptr, w, dy, dx};
    return run(handle, alpha, beta, algorithm, workspace, bytes, call);
}
API cudnnConvolutionBackwardFilter(void* handle, const float* alpha, void* x_is, const void* x, void* dy_is, const void* dy,
                                   void* rules, int algorithm, void* workspace, size_t bytes, const float* beta, void* dw_is,
                                   void* dw) {
    const Call call{WEIGHT_GRAD, as<Tensor>(x_is), as<Tensor>(dw_is), as<Tensor>(dy_is), as<Rules>(rules), 0.0f, x, nullptr, dy, dw};
    return run(handle, alpha, beta, algorithm, workspace, bytes, call);
}
