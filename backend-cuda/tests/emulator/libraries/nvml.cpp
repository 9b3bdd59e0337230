// A stand-in for libnvidia-ml.so.1: how much memory of the emulated device is in use, which it says without a context.
#include <cstddef>
#include <cstring>

#define API extern "C" __attribute__((visibility("default"))) int

extern "C" size_t emulator_used();
extern "C" size_t emulator_capacity();

namespace {
enum Return { SUCCESS = 0, NOT_FOUND = 6 };

// As NVML's, version 2.
struct Memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
}  // namespace

API nvmlInit_v2() { return SUCCESS; }
API nvmlShutdown() { return SUCCESS; }
API nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    if (std::strcmp(uuid, "GPU-00000000-0000-0000-0000-000000000000") != 0) return NOT_FOUND;
    return *device = reinterpret_cast<void*>(1), SUCCESS;
}
API nvmlDeviceGetMemoryInfo_v2(void*, Memory* memory) {
    memory->total = emulator_capacity();
    memory->reserved = 0;
    memory->used = emulator_used();
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
// No process: in a container their numbers are not known.
API nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void*) { return *count = 0, SUCCESS; }
