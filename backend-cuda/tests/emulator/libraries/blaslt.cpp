// A stand-in for libcublasLt.so.12: what its documentation says of the attributes that the backend sets, on host memory.
// Matrices are stored column by column; D = alpha·op(A)·op(B) + beta·C, then the bias, one element per row of D.
#include <cstdint>
#include <cstring>
#include <vector>

#include "values.h"

namespace {
enum Status { SUCCESS = 0, ALLOC_FAILED = 3, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum Compute { COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77 };

struct Layout {
    int kind;
    uint64_t rows, columns;
    int64_t lead, stride = 0;
    int32_t batches = 1;
};
struct Product {
    int32_t operations[2] = {0, 0};
    int32_t epilogue = 1;
    const void* bias = nullptr;
    bool tf32 = false;
};
struct Preference {
    uint64_t workspace_bytes = 0;
    uint32_t reductions = 7;
    uint32_t alignments[4] = {256, 256, 256, 256};
};

template <typename T>
int read(T* to, const void* from, size_t bytes) {
    if (bytes != sizeof(T)) return INVALID_VALUE;
    std::memcpy(to, from, bytes);
    return SUCCESS;
}
}  // namespace

// The handle takes memory, and its first product: that is when the library loads its kernels.
struct Handle {
    bool loaded = false;
};
constexpr size_t HANDLE_BYTES = 5 << 20, KERNELS_BYTES = 11 << 20;
extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 120804; }
API cublasLtCreate(void** handle) {
    if (!emulator_take("blas", HANDLE_BYTES)) return ALLOC_FAILED;
    return *handle = new Handle, SUCCESS;
}
API cublasLtDestroy(void* handle) {
    const Handle* h = static_cast<Handle*>(handle);
    emulator_give("blas", HANDLE_BYTES + (h->loaded ? KERNELS_BYTES : 0));
    return delete h, SUCCESS;
}
API cublasLtMatrixLayoutCreate(void** layout, int kind, uint64_t rows, uint64_t columns, int64_t lead) {
    if (lead < int64_t(rows)) return INVALID_VALUE;
    return *layout = new Layout{kind, rows, columns, lead}, SUCCESS;
}
API cublasLtMatrixLayoutDestroy(void* layout) { return delete static_cast<Layout*>(layout), SUCCESS; }
API cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
    Layout& l = *static_cast<Layout*>(layout);
    if (attribute == 5) return read(&l.batches, value, bytes);
    if (attribute == 6) return read(&l.stride, value, bytes);
    return INVALID_VALUE;
}
API cublasLtMatmulDescCreate(void** product, int compute, int scale) {
    if ((compute != COMPUTE_32F && compute != COMPUTE_32F_FAST_TF32) || scale != F32) return NOT_SUPPORTED;
    Product* made = new Product;
    made->tf32 = compute == COMPUTE_32F_FAST_TF32;
    return *product = made, SUCCESS;
}
API cublasLtMatmulDescDestroy(void* product) { return delete static_cast<Product*>(product), SUCCESS; }
API cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, size_t bytes) {
    Product& p = *static_cast<Product*>(product);
    if (attribute == 3 || attribute == 4) return read(&p.operations[attribute - 3], value, bytes);
    if (attribute == 7) return read(&p.epilogue, value, bytes);
    if (attribute == 8) return read(&p.bias, value, bytes);
    return INVALID_VALUE;
}
API cublasLtMatmulPreferenceCreate(void** preference) { return *preference = new Preference, SUCCESS; }
API cublasLtMatmulPreferenceDestroy(void* preference) { return delete static_cast<Preference*>(preference), SUCCESS; }
API cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
    Preference& p = *static_cast<Preference*>(preference);
    if (attribute == 1) return read(&p.workspace_bytes, value, bytes);
    if (attribute == 3) return read(&p.reductions, value, bytes);
    if (attribute >= 5 && attribute <= 8) return read(&p.alignments[attribute - 5], value, bytes);
    return INVALID_VALUE;
}

// As the library's: 64 bytes of algorithm, the workspace that it takes, its state.
struct Choice {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};
// Algorithms for small products, of which it computes any number of times in no time; the last one it does not run after all.
constexpr int ALGORITHMS = 4;
constexpr float TAKES[ALGORITHMS] = {3.0f, 2.95f, 1.0f, 0.1f};
constexpr const char* NAMES[ALGORITHMS] = {"algorithm 0", "algorithm 1", "algorithm 2", "algorithm 3"};
API cublasLtMatmulAlgoGetHeuristic(void*, void*, void* a, void*, void*, void* d, void* preference, int wanted, Choice* choices,
                                   int* found) {
    const Preference& p = *static_cast<Preference*>(preference);
    const Layout &la = *static_cast<Layout*>(a), &ld = *static_cast<Layout*>(d);
    const bool small = la.rows * la.columns * ld.columns * uint64_t(ld.batches) <= 1 << 16;
    *found = small && wanted < ALGORITHMS ? wanted : small ? ALGORITHMS : 1;
    for (int which = 0; which < *found; which++) {
        Choice& choice = choices[which] = Choice{};
        // What the matrices must be aligned to is remembered in the algorithm, and checked when it runs.
        for (int i = 0; i < 4; i++) choice.algorithm[i] = p.alignments[i];
        // It takes all that it may have.
        choice.workspace_bytes = choice.algorithm[4] = p.workspace_bytes;
        choice.algorithm[5] = uint64_t(which);
    }
    return SUCCESS;
}

// One product, with copies of all that describes it.
struct Call {
    Product p;
    Layout la, lb, lc, ld;
    float alpha, beta;
    const void *a, *b, *c;
    void* d;
    uint64_t m, n, k;
};

static float element(const Layout& layout, bool transposed, const void* base, int64_t batch, uint64_t row, uint64_t column) {
    const int64_t at = int64_t(transposed ? row * layout.lead + column : column * layout.lead + row);
    return load(layout.kind, base, batch * layout.stride + at);
}

static void multiply(void* data) {
    const Call& x = *static_cast<Call*>(data);
    const bool at = x.p.operations[0] == 1, bt = x.p.operations[1] == 1;
    auto factor = [&](float value) { return x.p.tf32 ? rounded(value) : value; };
    for (int64_t batch = 0; batch < x.ld.batches; batch++) {
        for (uint64_t j = 0; j < x.n; j++) {
            for (uint64_t i = 0; i < x.m; i++) {
                float sum = 0.0f;
                for (uint64_t e = 0; e < x.k; e++) {
                    sum += factor(element(x.la, at, x.a, batch, i, e)) * factor(element(x.lb, bt, x.b, batch, e, j));
                }
                float value = x.alpha * sum;
                if (x.beta != 0.0f) value += x.beta * element(x.lc, false, x.c, batch, i, j);
                if (x.p.epilogue == 4) value += load(x.ld.kind, x.p.bias, int64_t(i));
                store(x.ld.kind, x.d, batch * x.ld.stride + int64_t(j * x.ld.lead + i), value);
            }
        }
    }
}

API cublasLtMatmul(void* handle, void* product, const float* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                   const float* beta, const void* c, void* c_layout, void* d, void* d_layout, const uint64_t* algorithm,
                   void* workspace, size_t workspace_bytes, void*) {
    Handle& h = *static_cast<Handle*>(handle);
    if (!h.loaded && !(h.loaded = emulator_take("blas", KERNELS_BYTES))) return ALLOC_FAILED;
    // The room that was promised when the algorithm was chosen, written to its ends.
    if (workspace_bytes < algorithm[4] || reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return INVALID_VALUE;
    if (workspace_bytes > 0) static_cast<char*>(workspace)[0] = static_cast<char*>(workspace)[workspace_bytes - 1] = 0x5A;
    const Product& p = *static_cast<Product*>(product);
    const Layout &la = *static_cast<Layout*>(a_layout), &lb = *static_cast<Layout*>(b_layout);
    const Layout &lc = *static_cast<Layout*>(c_layout), &ld = *static_cast<Layout*>(d_layout);
    const void* addresses[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        if (reinterpret_cast<uintptr_t>(addresses[i]) % algorithm[i] != 0) return INVALID_VALUE;
    }
    // The library's own kernels would fault.
    if (reinterpret_cast<uintptr_t>(p.bias) % 16 != 0) return INVALID_VALUE;
    emulator_note(NAMES[algorithm[5]], TAKES[algorithm[5]]);
    if (algorithm[5] == ALGORITHMS - 1) return NOT_SUPPORTED;
    const bool at = p.operations[0] == 1, bt = p.operations[1] == 1;
    const uint64_t m = at ? la.columns : la.rows, k = at ? la.rows : la.columns, n = bt ? lb.rows : lb.columns;
    if (k != (bt ? lb.columns : lb.rows) || ld.rows != m || ld.columns != n || lc.rows != m) return INVALID_VALUE;
    Call* call = new Call{p, la, lb, lc, ld, *alpha, *beta, a, b, c, d, m, n, k};
    emulator_submit(multiply, [](void* data) { delete static_cast<Call*>(data); }, call);
    return SUCCESS;
}
