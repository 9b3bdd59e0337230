// The graph interface of the stand-in for libcudnn.so.9: descriptions with attributes by number, and operations computed one after the
// other on host memory, in double precision, whatever they come to. Included by cudnn.cpp, which has the handle.
#pragma once
#include <cmath>
#include <map>
#include <memory>

namespace graphs {
enum Kind {
    POINTWISE = 0, ENGINE = 2, CONFIGURATION = 3, HEURISTICS = 4, PLAN = 5, POINTWISE_OPERATION = 13, GRAPH = 15, PACK = 16, TENSOR = 17,
    MATMUL = 18, MATMUL_OPERATION = 19, REDUCTION = 21, REDUCTION_OPERATION = 22, RESHAPE_OPERATION = 31
};
enum Type { HANDLE = 0, DATA_TYPE = 1, BOOLEAN = 2, INT64 = 3, POINTER = 6, HEUR_MODE = 8, NOTE = 11, MODE = 14, DESCRIPTION = 15, OPERATOR = 18 };
enum Data { I32_DATA = 4, BF16_DATA = 9, BOOL_DATA = 11 };
constexpr int NOT_DETERMINISTIC = 4;
// Of the engines that the heuristic names, the first is not deterministic, and of the second no plan can be made.
constexpr int ENGINES = 3;
constexpr int64_t SMALL_WORKSPACE = 256;

struct Attribute {
    int type;
    std::vector<char> bytes;
};
struct Description {
    explicit Description(Kind kind) : kind(kind) {}
    Kind kind;
    bool finished = false;
    std::map<int, Attribute> attributes;
    // Of an engine or its configuration: which.
    int engine = 0;

    template <typename T>
    std::vector<T> all(int name) const {
        const auto found = attributes.find(name);
        if (found == attributes.end()) return {};
        const T* first = reinterpret_cast<const T*>(found->second.bytes.data());
        return std::vector<T>(first, first + found->second.bytes.size() / sizeof(T));
    }
    template <typename T>
    T one(int name, T missing = T()) const {
        const std::vector<T> values = all<T>(name);
        return values.empty() ? missing : values[0];
    }
    const Description* part(int name) const { return one<const Description*>(name, nullptr); }
};

inline size_t size_of(int type) {
    switch (type) {
        case BOOLEAN: return 1;
        case HANDLE: case INT64: case POINTER: case DESCRIPTION: return 8;
        default: return 4;
    }
}

// A tensor as its description says.
struct Axes {
    int64_t sizes[4], strides[4];
    int data;
    explicit Axes(const Description& d) : data(d.one<int>(901, -1)) {
        const auto s = d.all<int64_t>(902), t = d.all<int64_t>(903);
        for (int i = 0; i < 4; i++) sizes[i] = s.size() == 4 ? s[i] : 0, strides[i] = t.size() == 4 ? t[i] : 0;
    }
    int64_t count() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }
    // The place of an element of another tensor of which this one repeats sizes of 1, and heads that share one.
    int64_t at(const int64_t* i, const int64_t* other) const {
        int64_t place = 0;
        for (int axis = 0; axis < 4; axis++) {
            const int64_t shared = other[axis] / sizes[axis];
            place += (axis == 1 && sizes[1] > 1 ? i[1] / shared : sizes[axis] == 1 ? 0 : i[axis]) * strides[axis];
        }
        return place;
    }
    template <typename Use>
    void each(Use use) const {
        int64_t i[4];
        for (i[0] = 0; i[0] < sizes[0]; i[0]++)
            for (i[1] = 0; i[1] < sizes[1]; i[1]++)
                for (i[2] = 0; i[2] < sizes[2]; i[2]++)
                    for (i[3] = 0; i[3] < sizes[3]; i[3]++) use(i);
    }
};

// A tensor of a call: in memory, inside, or a value of the host's, which need not live until the call runs.
struct Tensor {
    Axes axes;
    bool is_inner, is_value;
    void* place = nullptr;
    double value = 0.0;
    std::vector<double> inner;

    explicit Tensor(const Description& d) : axes(d), is_inner(d.one<bool>(907)), is_value(d.one<bool>(908)) {
        if (is_inner) inner.assign(size_t(axes.count()), NAN);
    }
    double get(const int64_t* i, const int64_t* sizes) const {
        if (is_value) return value;
        const int64_t at = axes.at(i, sizes);
        return is_inner ? inner[size_t(at)] : load(axes.data, place, at);
    }
    void put(const int64_t* i, double x) {
        const int64_t at = axes.at(i, axes.sizes);
        if (!is_inner) return store(axes.data, place, at, float(x));
        if (axes.data == F16 || axes.data == BF16_DATA) {
            float rounded = 0.0f;
            store(axes.data, &rounded, 0, float(x));
            x = load(axes.data, &rounded, 0);
        }
        inner[size_t(at)] = x;
    }
};

// A step of a call: what its operands are depends on its kind.
struct Step {
    Kind kind;
    int mode = 0;
    int64_t axis = 0;
    Tensor *x = nullptr, *b = nullptr, *t = nullptr, *y = nullptr;

    static double function(int mode, double x, double b, double t) {
        switch (mode) {
            case 0: return x + b;
            case 1: return x * b;
            case 6: return x / b;
            // The library takes powers of 2, so that a float near the lowest is an infinity to it (seen on an H200, 9.19).
            case 9: return float(x) * 1.44269504f == -INFINITY ? -INFINITY : x - b;
            case 13: return std::exp(x);
            case 15: return std::log(x);
            case 303: return x >= b;
            case 601: return t != 0.0 ? x : b;
            default: return NAN;
        }
    }
    void pointwise() const {
        const int64_t* sizes = y->axes.sizes;
        y->axes.each([&](const int64_t* i) {
            if (mode == 501) return y->put(i, double(i[axis]));
            y->put(i, function(mode, x->get(i, sizes), b ? b->get(i, sizes) : 0.0, t ? t->get(i, sizes) : 0.0));
        });
    }
    void product() const {
        const int64_t* sizes = y->axes.sizes;
        const int64_t inner = x->axes.sizes[3];
        const int64_t left_sizes[4] = {sizes[0], sizes[1], sizes[2], inner}, right_sizes[4] = {sizes[0], sizes[1], inner, sizes[3]};
        y->axes.each([&](const int64_t* i) {
            double sum = 0.0;
            for (int64_t k = 0; k < inner; k++) {
                const int64_t left[4] = {i[0], i[1], i[2], k}, right[4] = {i[0], i[1], k, i[3]};
                sum += x->get(left, left_sizes) * b->get(right, right_sizes);
            }
            y->put(i, sum);
        });
    }
    void reduce() const {
        std::map<int64_t, double> results;
        x->axes.each([&](const int64_t* i) {
            const double v = x->get(i, x->axes.sizes);
            const auto found = results.emplace(y->axes.at(i, x->axes.sizes), v);
            if (!found.second) found.first->second = mode == 3 ? std::fmax(found.first->second, v) : found.first->second + v;
        });
        y->axes.each([&](const int64_t* i) { y->put(i, results.at(y->axes.at(i, y->axes.sizes))); });
    }
    // The same memory, with other sizes and strides.
    void reshape() const {
        std::map<int64_t, double> memory;
        x->axes.each([&](const int64_t* i) { memory[x->axes.at(i, x->axes.sizes)] = x->get(i, x->axes.sizes); });
        y->axes.each([&](const int64_t* i) { y->put(i, memory.at(y->axes.at(i, y->axes.sizes))); });
    }
    void run() const {
        if (kind == POINTWISE_OPERATION) pointwise();
        else if (kind == MATMUL_OPERATION) product();
        else if (kind == REDUCTION_OPERATION) reduce();
        else reshape();
    }
};

// A call: it keeps nothing of the descriptions.
struct Run {
    std::map<int64_t, std::unique_ptr<Tensor>> tensors;
    std::vector<Step> steps;

    Tensor* tensor(const Description* d) {
        if (d == nullptr) return nullptr;
        std::unique_ptr<Tensor>& known = tensors[d->one<int64_t>(906)];
        if (!known) known = std::make_unique<Tensor>(*d);
        return known.get();
    }
    void add(const Description& o) {
        Step step{o.kind};
        const int first = o.kind == POINTWISE_OPERATION ? 751 : o.kind == MATMUL_OPERATION ? 1520 : o.kind == REDUCTION_OPERATION ? 1610 : 2200;
        step.x = tensor(o.part(first));
        if (o.kind == POINTWISE_OPERATION || o.kind == MATMUL_OPERATION) {
            step.b = tensor(o.part(first + 1));
            step.y = tensor(o.part(first + 2));
        } else {
            step.y = tensor(o.part(first + 1));
        }
        if (o.kind == POINTWISE_OPERATION) {
            step.t = tensor(o.part(758));
            step.mode = o.part(750)->one<int>(0, -1);
            step.axis = o.part(750)->one<int64_t>(9);
        }
        if (o.kind == REDUCTION_OPERATION) step.mode = o.part(1612)->one<int>(1600, -1);
        steps.push_back(step);
    }
};

inline std::vector<const Description*> operations_of(const Description& graph) { return graph.all<const Description*>(801); }
inline int count_of(const Description& graph, Kind kind) {
    int count = 0;
    for (const Description* o : operations_of(graph)) count += o->kind == kind;
    return count;
}
// The scores: the result of the first product.
inline Axes scores_of(const Description& graph) {
    for (const Description* o : operations_of(graph))
        if (o->kind == MATMUL_OPERATION) return Axes(*o->part(1522));
    return Axes(Description(TENSOR));
}
inline bool is_backward(const Description& graph) { return count_of(graph, MATMUL_OPERATION) == 5; }
inline const Description* graph_of(const Description& plan) { return plan.part(401)->part(1300); }

// Backward keeps the scores' gradients; of heads of 40 it wants more.
inline int64_t workspace_of(const Description& graph) {
    const Axes scores = scores_of(graph);
    if (is_backward(graph) && Axes(*operations_of(graph)[0]->part(751)).sizes[3] == 40) return scores.sizes[0] * (int64_t(12) << 20);
    const auto tiles = [](int64_t n) { return (n + 63) / 64 * 64; };
    return is_backward(graph) ? scores.sizes[0] * scores.sizes[1] * tiles(scores.sizes[2]) * tiles(scores.sizes[3]) * 2 : SMALL_WORKSPACE;
}

// What a finished description has to have.
inline int checked(const Description& d) {
    switch (d.kind) {
        case TENSOR: {
            const Axes axes(d);
            if (axes.count() <= 0 || axes.data < 0 || d.all<int64_t>(906).empty() || d.one<int64_t>(900) <= 0) return BAD_PARAM;
            return d.one<bool>(907) && d.one<bool>(908) ? BAD_PARAM : SUCCESS;
        }
        case GRAPH: {
            if (d.one<void*>(800) == nullptr || operations_of(d).empty()) return BAD_PARAM;
            // It knows no heads that are wider than 128.
            const Description& first = *operations_of(d)[0];
            const Axes widest(*first.part(first.kind == MATMUL_OPERATION ? 1520 : 751));
            return widest.sizes[3] > 128 ? NOT_SUPPORTED : SUCCESS;
        }
        case HEURISTICS: return d.part(201) && d.part(201)->finished ? SUCCESS : BAD_PARAM;
        case PLAN: {
            if (d.one<void*>(400) == nullptr || d.part(401) == nullptr) return BAD_PARAM;
            return d.part(401)->engine == 1 ? NOT_SUPPORTED : SUCCESS;
        }
        default: return SUCCESS;
    }
}

inline int answered(const Description& d, int name, int64_t wanted, int64_t* count, void* to) {
    Description* const* found = static_cast<Description* const*>(to);
    if (d.kind == HEURISTICS && name == 202) {
        *count = d.one<int>(200) == 3 ? ENGINES : 0;
        for (int64_t i = 0; i < wanted && i < *count; i++) {
            const Description* graph = d.part(201);
            found[i]->engine = int(i), found[i]->finished = true;
            found[i]->attributes[1300] = Attribute{DESCRIPTION, {reinterpret_cast<const char*>(&graph), reinterpret_cast<const char*>(&graph) + 8}};
        }
        return SUCCESS;
    }
    if (d.kind == CONFIGURATION && name == 300) {
        *count = 1;
        if (wanted > 0) found[0]->engine = d.engine, found[0]->finished = true;
        return SUCCESS;
    }
    if (d.kind == ENGINE && name == 1303) {
        *count = d.engine == 0;
        if (wanted > 0 && *count > 0) *static_cast<int*>(to) = NOT_DETERMINISTIC;
        return SUCCESS;
    }
    if (d.kind == PLAN && name == 402) {
        *count = 1;
        if (wanted > 0) *static_cast<int64_t*>(to) = workspace_of(*graph_of(d));
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

inline int execute(Handle& handle, const Description& plan, const Description& pack) {
    const Description& graph = *graph_of(plan);
    const auto numbers = pack.all<int64_t>(1000);
    const auto places = pack.all<void*>(1001);
    char* workspace = static_cast<char*>(pack.one<void*>(1003));
    if (handle.stream == nullptr || numbers.size() != places.size() || workspace == nullptr) return BAD_PARAM;
    auto run = std::make_unique<Run>();
    for (const Description* o : operations_of(graph)) run->add(*o);
    std::map<int64_t, void*> given;
    for (size_t i = 0; i < numbers.size(); i++) given[numbers[i]] = places[i];
    // Every tensor that is not inside must be given, where its elements may lie.
    for (const auto& [number, tensor] : run->tensors) {
        if (tensor->is_inner) continue;
        const auto place = given.find(number);
        if (place == given.end() || place->second == nullptr) return BAD_PARAM;
        if (tensor->is_value) tensor->value = *static_cast<float*>(place->second);
        else if (reinterpret_cast<uintptr_t>(place->second) % 16 != 0) return BAD_PARAM;
        else tensor->place = place->second;
    }
    if (!handle.loaded && !(handle.loaded = emulator_take("dnn", KERNELS_BYTES))) return ALLOC_FAILED;
    const Axes scores = scores_of(graph);
    // What it accepted and does not run after all: 23 queries.
    if (scores.sizes[2] == 23) return NOT_SUPPORTED;
    workspace[0] = workspace[workspace_of(graph) - 1] = 0x5A;
    // Of 24 keys it is slower than the own kernels, whose time is not counted.
    emulator_note(is_backward(graph) ? "attention's gradients" : "attention", scores.sizes[3] == 24 ? 1.0f : 0.0f);
    const auto all = [](void* data) {
        for (const Step& step : static_cast<Run*>(data)->steps) step.run();
    };
    emulator_submit(all, [](void* data) { delete static_cast<Run*>(data); }, run.release());
    return SUCCESS;
}
}  // namespace graphs

API cudnnBackendCreateDescriptor(int kind, void** to) { return *to = new graphs::Description(graphs::Kind(kind)), SUCCESS; }
API cudnnBackendDestroyDescriptor(void* d) { return delete static_cast<graphs::Description*>(d), SUCCESS; }
API cudnnBackendSetAttribute(void* to, int name, int type, int64_t count, const void* values) {
    graphs::Description& d = *static_cast<graphs::Description*>(to);
    if (d.finished || count <= 0 || values == nullptr) return BAD_PARAM;
    const char* first = static_cast<const char*>(values);
    d.attributes[name] = graphs::Attribute{type, {first, first + count * graphs::size_of(type)}};
    if (type == graphs::DESCRIPTION)
        for (const graphs::Description* part : d.all<const graphs::Description*>(name))
            if (!part->finished) return BAD_PARAM;
    return SUCCESS;
}
API cudnnBackendGetAttribute(void* from, int name, int, int64_t wanted, int64_t* count, void* to) {
    const graphs::Description& d = *static_cast<graphs::Description*>(from);
    return d.finished ? graphs::answered(d, name, wanted, count, to) : BAD_PARAM;
}
API cudnnBackendFinalize(void* d) {
    graphs::Description& description = *static_cast<graphs::Description*>(d);
    const int status = graphs::checked(description);
    return description.finished = status == SUCCESS, status;
}
API cudnnBackendExecute(void* handle, void* plan, void* pack) {
    return graphs::execute(*static_cast<Handle*>(handle), *static_cast<graphs::Description*>(plan), *static_cast<graphs::Description*>(pack));
}
