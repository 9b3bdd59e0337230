// A stand-in for libcublasLt.so.12: what its documentation says of the attributes that the backend sets, on host memory.
// Matrices are stored column by column; D = alpha·op(A)·op(B) + beta·C, then the bias, one element per row of D.
#include <cstdint>
#include <cstring>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int

namespace emu {
float float_of_half(unsigned short bits);
unsigned short half_of_float(float x);
}  // namespace emu

namespace {
enum Status { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum Kind { F32 = 0, F16 = 2, BF16 = 14 };

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
};
struct Preference {
    uint64_t workspace_bytes = 0;
    uint32_t alignments[4] = {256, 256, 256, 256};
};

float load(int kind, const void* base, int64_t at) {
    if (kind == F32) return static_cast<const float*>(base)[at];
    const unsigned short bits = static_cast<const unsigned short*>(base)[at];
    if (kind == F16) return emu::float_of_half(bits);
    const uint32_t wide = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}
void store(int kind, void* base, int64_t at, float x) {
    if (kind == F32) {
        static_cast<float*>(base)[at] = x;
        return;
    }
    unsigned short* to = static_cast<unsigned short*>(base) + at;
    if (kind == F16) {
        *to = emu::half_of_float(x);
        return;
    }
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    *to = x != x ? 0x7fff : static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <typename T>
int read(T* to, const void* from, size_t bytes) {
    if (bytes != sizeof(T)) return INVALID_VALUE;
    std::memcpy(to, from, bytes);
    return SUCCESS;
}
}  // namespace

API cublasLtCreate(void** handle) { return *handle = new int(0), SUCCESS; }
API cublasLtDestroy(void* handle) { return delete static_cast<int*>(handle), SUCCESS; }
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
    if (compute != 68 || scale != F32) return NOT_SUPPORTED;
    return *product = new Product, SUCCESS;
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
API cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference, int, Choice* choice, int* found) {
    const Preference& p = *static_cast<Preference*>(preference);
    *choice = Choice{};
    // What the matrices must be aligned to is remembered in the algorithm, and checked when it runs.
    for (int i = 0; i < 4; i++) choice->algorithm[i] = p.alignments[i];
    return *found = 1, SUCCESS;
}

API cublasLtMatmul(void*, void* product, const float* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                   const float* beta, const void* c, void* c_layout, void* d, void* d_layout, const uint64_t* algorithm,
                   void*, size_t, void*) {
    const Product& p = *static_cast<Product*>(product);
    const Layout &la = *static_cast<Layout*>(a_layout), &lb = *static_cast<Layout*>(b_layout);
    const Layout &lc = *static_cast<Layout*>(c_layout), &ld = *static_cast<Layout*>(d_layout);
    const void* addresses[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        if (reinterpret_cast<uintptr_t>(addresses[i]) % algorithm[i] != 0) return INVALID_VALUE;
    }
    const bool at = p.operations[0] == 1, bt = p.operations[1] == 1;
    const uint64_t m = at ? la.columns : la.rows, k = at ? la.rows : la.columns, n = bt ? lb.rows : lb.columns;
    if (k != (bt ? lb.columns : lb.rows) || ld.rows != m || ld.columns != n || lc.rows != m) return INVALID_VALUE;
    for (int64_t batch = 0; batch < ld.batches; batch++) {
        const int64_t base_a = batch * la.stride, base_b = batch * lb.stride;
        for (uint64_t j = 0; j < n; j++) {
            for (uint64_t i = 0; i < m; i++) {
                float sum = 0.0f;
                for (uint64_t e = 0; e < k; e++) {
                    const int64_t in_a = base_a + int64_t(at ? i * la.lead + e : e * la.lead + i);
                    const int64_t in_b = base_b + int64_t(bt ? e * lb.lead + j : j * lb.lead + e);
                    sum += load(la.kind, a, in_a) * load(lb.kind, b, in_b);
                }
                const int64_t in_d = batch * ld.stride + int64_t(j * ld.lead + i);
                float value = *alpha * sum;
                if (*beta != 0.0f) value += *beta * load(lc.kind, c, batch * lc.stride + int64_t(j * lc.lead + i));
                if (p.epilogue == 4) value += load(ld.kind, p.bias, int64_t(i));
                store(ld.kind, d, in_d, value);
            }
        }
    }
    return SUCCESS;
}
