// What CUDA C means on the host, for tests: the kernel files are compiled with this header in front of them.
//
// A block's threads are fibres of one host thread, and blocks run one after another. `__syncthreads` and the warp
// functions wait for each other as they must: a barrier that not every thread reaches is reported. Fresh shared memory
// is poisoned for every block. Kernels that are declared flat have neither, and run as plain loops.
//
// It shows wrong indices, missing barriers, unaligned packs, reads of what was never written, and wrong arithmetic; built
// to look for races (see `races.cpp`), also threads that meet in memory with nothing between them. It does not show what
// tensor cores and shared memory do themselves, or speed.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emu {

struct Index {
    unsigned x = 1, y = 1, z = 1;
};

// One kernel, as its macro declares it.
struct Kernel {
    const char* name;
    size_t argument_bytes;
    unsigned threads;
    bool flat;
    void (*run)(const void* argument);
};
void add(const Kernel& kernel);

struct Registration {
    explicit Registration(const Kernel& kernel) { add(kernel); }
};

[[noreturn]] void fail(const char* what);

// Waits for the block; for the warp, which then sees each other's memory.
void block_barrier();
void warp_barrier();
// Exchanges 64 bits within the warp: what lane `source` has put there. Every lane of the warp calls.
uint64_t exchange(uint64_t mine, unsigned source);
// Shows the warp three words of each lane, of which `shown` then tells one. Every lane of the warp calls.
void show(uint64_t one, uint64_t two, uint64_t three);
uint64_t shown(unsigned lane, unsigned which);
// A bit for every lane for which it holds.
unsigned ballot(bool holds);
// Poisons a shared array the first time that a block comes by; returns it.
void* fresh(void* array, size_t bytes);
// A pack of elements moves in one access, which must not begin between two of its kind.
inline void aligned(const void* at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) fail("a pack is not aligned");
}
// The shared memory that the launch gave.
void* dynamic_shared();

inline unsigned bits_of(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float float_of(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
float float_of_half(unsigned short bits);
unsigned short half_of_float(float x);

template <typename T>
uint64_t word_of(T x) {
    static_assert(sizeof(T) <= 8, "shuffles move up to 8 bytes");
    uint64_t word = 0;
    std::memcpy(&word, &x, sizeof(T));
    return word;
}
template <typename T>
T of_word(uint64_t word) {
    T x;
    std::memcpy(&x, &word, sizeof(T));
    return x;
}
}  // namespace emu

extern emu::Index threadIdx, blockIdx, blockDim, gridDim;

#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define DEVICE inline

#define SHARED(type, name, count)                    \
    static __attribute__((aligned(16))) type name[count]; \
    emu::fresh(name, sizeof(name))
#define DYNAMIC_SHARED(type, name) type* name = static_cast<type*>(emu::dynamic_shared())

#define EMULATED_KERNEL(name, Args, threads, flat, ...)                                             \
    static void run_##name(const void* argument) { __VA_ARGS__(*static_cast<const Args*>(argument)); } \
    static const emu::Registration registered_##name({#name, sizeof(Args), threads, flat, run_##name});
#define FLAT_KERNEL(name, Args, threads, ...) EMULATED_KERNEL(name, Args, threads, true, __VA_ARGS__)
#define BLOCK_KERNEL(name, Args, threads, ...) EMULATED_KERNEL(name, Args, threads, false, __VA_ARGS__)
#define BUSY_FLAT_KERNEL(name, Args, threads, blocks, ...) FLAT_KERNEL(name, Args, threads, __VA_ARGS__)
#define BUSY_BLOCK_KERNEL(name, Args, threads, blocks, ...) BLOCK_KERNEL(name, Args, threads, __VA_ARGS__)

inline void __syncthreads() { emu::block_barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emu::warp_barrier(); }
inline void __threadfence() {}

template <typename T>
T __shfl_sync(unsigned, T x, int source) {
    return emu::of_word<T>(emu::exchange(emu::word_of(x), static_cast<unsigned>(source) % 32));
}
template <typename T>
T __shfl_xor_sync(unsigned, T x, int mask) {
    return emu::of_word<T>(emu::exchange(emu::word_of(x), (threadIdx.x % 32) ^ static_cast<unsigned>(mask)));
}
template <typename T>
T __shfl_down_sync(unsigned, T x, int delta) {
    const unsigned lane = threadIdx.x % 32, source = lane + static_cast<unsigned>(delta);
    return emu::of_word<T>(emu::exchange(emu::word_of(x), source < 32 ? source : lane));
}

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t(a) * b) >> 32); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
template <typename T>
T __ldg(const T* at) {
    return *at;
}

inline unsigned __ballot_sync(unsigned, bool holds) { return emu::ballot(holds); }
inline int __ffs(int x) { return __builtin_ffs(x); }
// Separate roundings: nothing is contracted on the host.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
