// A stand-in for libcuda.so.1: the driver calls that the backend makes, on host memory.
//
// Memory is limited to EMULATED_MEMORY_BYTES, of which other processes, the context and modules take a part. A segment ends where an inaccessible page begins, fresh memory is
// poisoned, and freed memory becomes inaccessible: a kernel that touches it dies at once. Module images are tokens, the
// names of kernel families; kernels are found by name.
#include "runtime.h"

#include <sys/mman.h>

#include <map>
#include <vector>

typedef unsigned long long Pointer;

namespace {
constexpr size_t PAGE = 4096, UNIT = 512, GRANULARITY = 2 << 20;
constexpr int POISON = 0xFF;

size_t capacity() {
    static const size_t bytes = [] {
        const char* text = std::getenv("EMULATED_MEMORY_BYTES");
        return text ? std::strtoull(text, nullptr, 10) : size_t(2) << 30;
    }();
    return bytes;
}

// Of processes that are not there; what the context takes, each module beside its name's length, and the first copy.
constexpr size_t OTHERS_BYTES = 24 << 20, CONTEXT_BYTES = 40 << 20, MODULE_BYTES = 2 << 20, STAGING_BYTES = 1 << 20;

size_t used = OTHERS_BYTES;
size_t contexts = 0;
// What is in use besides segments: by whom.
std::map<std::string, size_t> parts = {{"others", OTHERS_BYTES}};

struct Segment {
    void* pages;
    size_t page_bytes;
    size_t bytes;
};
std::map<Pointer, Segment> segments;

// What is on its way to the device.
struct Copy {
    void* to;
    const void* from;
    size_t bytes;
};
std::vector<Copy> copies;

// The device's clock, which only the stand-ins of libraries advance.
float milliseconds = 0;
// What these noted, and how often.
std::map<std::string, size_t> noted;

size_t up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* reserve_pages(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
}
}  // namespace

namespace emu {
std::mutex calls;
bool take(const std::string& part, size_t bytes) {
    if (bytes > capacity() - used) return false;
    used += bytes;
    parts[part] += bytes;
    return true;
}
void give(const std::string& part, size_t bytes) {
    used -= bytes;
    parts[part] -= bytes;
}
void settle() {
    for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
    copies.clear();
}
}  // namespace emu
using emu::give;
using emu::take;

// ---- device and context ----

API cuInit(unsigned) { return SUCCESS; }
API cuDriverGetVersion(int* version) { return *version = 12080, SUCCESS; }
API cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
API cuDeviceGet(int* device, int ordinal) { return ordinal == 0 ? (*device = 0, SUCCESS) : INVALID_DEVICE; }
API cuDeviceGetName(char* name, int length, int) { return std::snprintf(name, size_t(length), "emulated GPU"), SUCCESS; }
API cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = capacity(), SUCCESS; }
API cuDeviceGetUuid_v2(char* uuid, int) { return std::memset(uuid, 0, 16), SUCCESS; }
int emu::capability() {
    static const int number = [] {
        const char* text = std::getenv("EMULATED_CAPABILITY");
        return text ? std::atoi(text) : 80;
    }();
    return number;
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 16: *value = 4; break;            // multiprocessors
        case 75: *value = emu::capability() / 10; break; // compute capability, major
        case 76: *value = emu::capability() % 10; break; // and minor
        case 102: *value = 1; break;           // virtual memory
        default: *value = 0;
    }
    return SUCCESS;
}
API cuDevicePrimaryCtxRetain(void** context, int) {
    ALONE;
    if (contexts == 0 && !take("context", CONTEXT_BYTES)) return OUT_OF_MEMORY;
    contexts++;
    return *context = reinterpret_cast<void*>(1), SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int) {
    ALONE;
    if (contexts == 0) return INVALID_VALUE;
    if (--contexts == 0) {
        give("context", CONTEXT_BYTES);
        give("staging", parts["staging"]);
    }
    return SUCCESS;
}
API cuCtxSetCurrent(void*) { return SUCCESS; }
API cuStreamCreate(void** stream, unsigned) { return *stream = reinterpret_cast<void*>(1), SUCCESS; }
API cuStreamDestroy_v2(void*) { return SUCCESS; }
API cuStreamSynchronize(void*) {
    ALONE;
    if (emu::is_capturing()) return CAPTURED;
    return emu::settle(), SUCCESS;
}
API cuGetErrorName(int code, const char** text) {
    static char name[32];
    std::snprintf(name, sizeof(name), "EMULATED_ERROR_%d", code);
    return *text = name, SUCCESS;
}
API cuGetErrorString(int, const char** text) { return *text = "an error of the emulated driver", SUCCESS; }

// ---- memory ----

API cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    ALONE;
    *free_bytes = capacity() - used;
    *total = capacity();
    return SUCCESS;
}
API cuMemAlloc_v2(Pointer* pointer, size_t bytes) {
    ALONE;
    const size_t rounded = up(bytes, UNIT);
    if (rounded > capacity() - used) return OUT_OF_MEMORY;
    const size_t body = up(rounded, PAGE);
    char* pages = static_cast<char*>(reserve_pages(body + 2 * PAGE));
    if (pages == nullptr) return OUT_OF_MEMORY;
    mprotect(pages + PAGE, body, PROT_READ | PROT_WRITE);
    char* at = pages + PAGE + body - rounded;
    std::memset(at, POISON, rounded);
    *pointer = reinterpret_cast<Pointer>(at);
    segments[*pointer] = Segment{pages, body + 2 * PAGE, rounded};
    used += rounded;
    return SUCCESS;
}
API cuMemFree_v2(Pointer pointer) {
    ALONE;
    const auto at = segments.find(pointer);
    if (at == segments.end()) return INVALID_VALUE;
    used -= at->second.bytes;
    munmap(at->second.pages, at->second.page_bytes);
    segments.erase(at);
    return SUCCESS;
}
// A copy to the device happens as late as it may: when something comes behind it, or the host waits.
API cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, void*) {
    ALONE;
    if (emu::is_capturing()) return CAPTURED;
    if (parts["staging"] == 0 && !take("staging", STAGING_BYTES)) return OUT_OF_MEMORY;
    return copies.push_back(Copy{reinterpret_cast<void*>(to), from, bytes}), SUCCESS;
}
API cuMemHostAlloc(void** memory, size_t bytes, unsigned) { return *memory = std::malloc(bytes), *memory ? SUCCESS : OUT_OF_MEMORY; }
API cuMemFreeHost(void* memory) {
    ALONE;
    emu::settle();
    return std::free(memory), SUCCESS;
}
API cuEventCreate(void** event, unsigned) { return *event = new float(0), SUCCESS; }
API cuEventRecord(void* event, void*) {
    ALONE;
    if (emu::is_capturing()) return CAPTURED;
    return *static_cast<float*>(event) = milliseconds, SUCCESS;
}
API cuEventElapsedTime(float* time, void* start, void* end) {
    return *time = *static_cast<float*>(end) - *static_cast<float*>(start), SUCCESS;
}
API cuEventSynchronize(void*) {
    ALONE;
    return emu::settle(), SUCCESS;
}
API cuEventDestroy_v2(void* event) { return delete static_cast<float*>(event), SUCCESS; }
API cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, void*) {
    ALONE;
    if (emu::is_capturing()) return CAPTURED;
    emu::settle();
    return std::memcpy(to, reinterpret_cast<void*>(from), bytes), SUCCESS;
}
API cuMemsetD8Async(Pointer at, unsigned char value, size_t bytes, void*) {
    ALONE;
    emu::settle();
    return std::memset(reinterpret_cast<void*>(at), value, bytes), SUCCESS;
}

// ---- virtual memory ----

namespace {
std::map<Pointer, size_t> reservations;
// Physical memory by handle: its size; and what is mapped where.
std::map<unsigned long long, size_t> physical;
std::map<Pointer, size_t> mapped;
unsigned long long next_handle = 1;
}  // namespace

API cuMemGetAllocationGranularity(size_t* bytes, const void*, int) { return *bytes = GRANULARITY, SUCCESS; }
API cuMemAddressReserve(Pointer* pointer, size_t bytes, size_t, Pointer, unsigned long long) {
    ALONE;
    if (bytes % GRANULARITY != 0) return INVALID_VALUE;
    void* at = reserve_pages(bytes);
    if (at == nullptr) return OUT_OF_MEMORY;
    *pointer = reinterpret_cast<Pointer>(at);
    reservations[*pointer] = bytes;
    return SUCCESS;
}
API cuMemAddressFree(Pointer pointer, size_t bytes) {
    ALONE;
    const auto at = reservations.find(pointer);
    if (at == reservations.end() || at->second != bytes) return INVALID_VALUE;
    const auto inside = mapped.lower_bound(pointer);
    if (inside != mapped.end() && inside->first < pointer + bytes) return INVALID_VALUE;
    munmap(reinterpret_cast<void*>(pointer), bytes);
    reservations.erase(at);
    return SUCCESS;
}
API cuMemCreate(unsigned long long* handle, size_t bytes, const void*, unsigned long long) {
    ALONE;
    if (bytes % GRANULARITY != 0) return INVALID_VALUE;
    if (bytes > capacity() - used) return OUT_OF_MEMORY;
    used += bytes;
    physical[*handle = next_handle++] = bytes;
    return SUCCESS;
}
API cuMemRelease(unsigned long long handle) {
    ALONE;
    const auto at = physical.find(handle);
    if (at == physical.end()) return INVALID_VALUE;
    // What is mapped lives on until it is unmapped: the mapping counts it from then on.
    used -= at->second;
    physical.erase(at);
    return SUCCESS;
}
API cuMemMap(Pointer pointer, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
    ALONE;
    const auto at = physical.find(handle);
    if (at == physical.end() || at->second != bytes) return INVALID_VALUE;
    auto next = mapped.lower_bound(pointer);
    if (next != mapped.end() && next->first < pointer + bytes) return INVALID_VALUE;
    if (next != mapped.begin() && (--next)->first + next->second > pointer) return INVALID_VALUE;
    mapped[pointer] = bytes;
    used += bytes;
    return SUCCESS;
}
API cuMemSetAccess(Pointer pointer, size_t bytes, const void*, size_t) {
    ALONE;
    for (size_t done = 0; done < bytes;) {
        const auto at = mapped.find(pointer + done);
        if (at == mapped.end()) return INVALID_VALUE;
        done += at->second;
    }
    if (mprotect(reinterpret_cast<void*>(pointer), bytes, PROT_READ | PROT_WRITE) != 0) return OUT_OF_MEMORY;
    std::memset(reinterpret_cast<void*>(pointer), POISON, bytes);
    return SUCCESS;
}
API cuMemUnmap(Pointer pointer, size_t bytes) {
    ALONE;
    const auto at = mapped.find(pointer);
    if (at == mapped.end() || at->second != bytes) return INVALID_VALUE;
    used -= bytes;
    mapped.erase(at);
    void* pages = reinterpret_cast<void*>(pointer);
    madvise(pages, bytes, MADV_DONTNEED);
    mprotect(pages, bytes, PROT_NONE);
    return SUCCESS;
}

// ---- modules and launches ----

API cuModuleLoadData(void** module, const void* image) {
    static const char TOKEN[] = "emulated:";
    if (std::memcmp(image, TOKEN, sizeof(TOKEN) - 1) != 0) return INVALID_IMAGE;
    ALONE;
    // Each file takes another size, so that one cannot be taken for another.
    const std::string name = static_cast<const char*>(image) + sizeof(TOKEN) - 1;
    if (!take(name, MODULE_BYTES + name.size() * PAGE)) return OUT_OF_MEMORY;
    return *module = new std::string(name), SUCCESS;
}
API cuModuleUnload(void* module) {
    ALONE;
    const std::string* name = static_cast<std::string*>(module);
    give(*name, MODULE_BYTES + name->size() * PAGE);
    delete name;
    return SUCCESS;
}
API cuModuleGetFunction(void** function, void*, const char* name) {
    const emu::Kernel* kernel = emu::find(name);
    if (kernel == nullptr) return NOT_FOUND;
    return *function = const_cast<emu::Kernel*>(kernel), SUCCESS;
}
API cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* bytes) {
    if (index != 0) return INVALID_VALUE;
    *offset = 0;
    *bytes = static_cast<emu::Kernel*>(function)->argument_bytes;
    return SUCCESS;
}
// ---- for stand-ins of other libraries ----

extern "C" __attribute__((visibility("default"))) bool emulator_take(const char* part, size_t bytes) {
    ALONE;
    return take(part, bytes);
}
extern "C" __attribute__((visibility("default"))) void emulator_give(const char* part, size_t bytes) {
    ALONE;
    give(part, bytes);
}
// Notes that something happened, which takes some time.
extern "C" __attribute__((visibility("default"))) void emulator_note(const char* what, float takes) {
    ALONE;
    noted[what]++;
    milliseconds += takes;
}
extern "C" __attribute__((visibility("default"))) size_t emulator_used() {
    ALONE;
    return used;
}
extern "C" __attribute__((visibility("default"))) size_t emulator_capacity() { return capacity(); }

// ---- for tests ----

extern "C" __attribute__((visibility("default"))) size_t emulator_part(const char* part) {
    ALONE;
    const auto at = parts.find(part);
    return at == parts.end() ? 0 : at->second;
}

extern "C" __attribute__((visibility("default"))) size_t emulator_noted(const char* what) {
    ALONE;
    return noted[what];
}

extern "C" __attribute__((visibility("default"))) size_t emulator_kernel_count() { return emu::count(); }
extern "C" __attribute__((visibility("default"))) const char* emulator_kernel_name(size_t index) { return emu::name_of(index); }
