// What the stand-ins for libraries of products share: elements of host memory as they read and write them, and the
// emulator's functions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#define API extern "C" __attribute__((visibility("default"))) int

extern "C" bool emulator_take(const char* part, size_t bytes);
extern "C" void emulator_give(const char* part, size_t bytes);
extern "C" void emulator_note(const char* what, float takes);
extern "C" void emulator_submit(void (*run)(void*), void (*drop)(void*), void* data);

namespace emu {
float float_of_half(unsigned short bits);
unsigned short half_of_float(float x);
}  // namespace emu

// The numbers that the libraries have for types; bfloat16 has another one in each.
enum Kind { F32 = 0, F16 = 2 };

inline float load(int kind, const void* base, int64_t at) {
    if (kind == F32) return static_cast<const float*>(base)[at];
    const unsigned short bits = static_cast<const unsigned short*>(base)[at];
    if (kind == F16) return emu::float_of_half(bits);
    const uint32_t wide = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}
// To TF32's ten bits behind the point.
inline float rounded(float x) {
    if (x - x != 0.0f) return x;
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits = (bits + 0x1000) & ~0x1fffu;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline void store(int kind, void* base, int64_t at, float x) {
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
