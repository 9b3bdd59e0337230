// A stand-in for libnvrtc.so.12, for programs that open the emulated device as any other: the kernels are compiled already,
// and what comes out is the token that the stand-in driver takes for a module.
#include <cstddef>
#include <cstring>
#include <string>

#define API extern "C" __attribute__((visibility("default"))) int

namespace {
const std::string& token(void* program) { return *static_cast<std::string*>(program); }
}  // namespace

API nvrtcVersion(int* major, int* minor) { return *major = *minor = 0; }
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int) { return "an error of the stand-in"; }
API nvrtcGetNumSupportedArchs(int* count) { return *count = 1, 0; }
API nvrtcGetSupportedArchs(int* known) { return *known = 80, 0; }
API nvrtcCreateProgram(void** program, const char*, const char* name, int, const char* const*, const char* const*) {
    return *program = new std::string(std::string("emulated:") + name), 0;
}
API nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
API nvrtcGetCUBINSize(void* program, size_t* bytes) { return *bytes = token(program).size() + 1, 0; }
API nvrtcGetCUBIN(void* program, char* to) { return std::memcpy(to, token(program).c_str(), token(program).size() + 1), 0; }
API nvrtcGetProgramLogSize(void*, size_t* bytes) { return *bytes = 1, 0; }
API nvrtcGetProgramLog(void*, char* to) { return *to = 0; }
API nvrtcDestroyProgram(void** program) {
    delete static_cast<std::string*>(*program);
    return *program = nullptr, 0;
}
