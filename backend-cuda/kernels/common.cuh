// What every kernel file stands on: element types, conversions, launch macros, warp and block sums.
//
// No header of the toolkit is included, so that a machine needs the NVRTC library alone: 16-bit floats are structs of
// their bits, converted by instructions. Under EMULATED the same text is compiled for the host, by the tests.
#pragma once

#ifdef EMULATED
#include "emulator.h"
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef EMULATED
#define DEVICE __device__ __forceinline__
// An array that the threads of a block share. A macro, because the emulator poisons it for every block.
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
// The shared memory whose size the launch gives.
#define DYNAMIC_SHARED(type, name)                 \
    extern __shared__ __align__(16) u8 dynamic_shared[]; \
    type* name = reinterpret_cast<type*>(dynamic_shared)
// An entry point: one argument, a struct by value, in constant memory. FLAT kernels have no barrier and no shuffle:
// the emulator runs them as plain loops.
#define FLAT_KERNEL(name, Args, threads, ...) BUSY_BLOCK_KERNEL(name, Args, threads, 1, __VA_ARGS__)
#define BLOCK_KERNEL(name, Args, threads, ...) BUSY_BLOCK_KERNEL(name, Args, threads, 1, __VA_ARGS__)
// The same with registers for so many blocks on a processor at least: where memory is waited for, others have to work.
#define BUSY_FLAT_KERNEL(name, Args, threads, blocks, ...) BUSY_BLOCK_KERNEL(name, Args, threads, blocks, __VA_ARGS__)
#define BUSY_BLOCK_KERNEL(name, Args, threads, blocks, ...)                                                 \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Args args) { \
        __VA_ARGS__(args);                                                                                  \
    }
#endif

#define UNROLL _Pragma("unroll")
// A long loop that is unrolled no further: its registers are worth more than its branches cost.
#define ROLLED _Pragma("unroll 1")

// Threads of a block, wherever a kernel does not say otherwise.
#define THREADS 256
#define WARP 32
#define ALL_LANES 0xffffffffu

// ---- element types ----

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
struct boolean {
    u8 value;
};

#ifndef EMULATED
DEVICE float to_float(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
DEVICE f16 to_f16(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
DEVICE u32 float_bits(float x) { return __float_as_uint(x); }
DEVICE float bits_float(u32 x) { return __uint_as_float(x); }
#else
DEVICE u32 float_bits(float x) { return emu::bits_of(x); }
DEVICE float bits_float(u32 x) { return emu::float_of(x); }
DEVICE float to_float(f16 x) { return emu::float_of_half(x.bits); }
DEVICE f16 to_f16(float x) { return f16{emu::half_of_float(x)}; }
#endif

DEVICE float to_float(bf16 x) { return bits_float(static_cast<u32>(x.bits) << 16); }
DEVICE bf16 to_bf16(float x) {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    // Round to nearest even on the bits; a NaN keeps a bit that survives the cut.
    u32 bits = float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{0x7fff};
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return bf16{static_cast<u16>(bits >> 16)};
#endif
}

DEVICE float infinity() { return bits_float(0x7f800000u); }
DEVICE float not_a_number() { return bits_float(0x7fc00000u); }
#define LARGEST_F32 3.40282347e38f
DEVICE bool is_nan(float x) { return x != x; }
DEVICE bool is_nan(i64) { return false; }
DEVICE bool is_nan(i32) { return false; }
DEVICE bool is_finite(float x) { return (float_bits(x) & 0x7f800000u) != 0x7f800000u; }

// By one instruction each, to within two units of the last place; below the normal numbers is 0.
#ifndef EMULATED
DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
DEVICE float power_of_two(float x) { return exp2f(x); }
DEVICE float reciprocal(float x) { return 1.0f / x; }
#endif

// The numbers of the element types, for arguments that choose one at run time.
enum Type { TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_I64, TYPE_I32, TYPE_I8, TYPE_U8, TYPE_BOOL };
DEVICE u32 type_of(float) { return TYPE_F32; }
DEVICE u32 type_of(f16) { return TYPE_F16; }
DEVICE u32 type_of(bf16) { return TYPE_BF16; }

// The type in which a kernel computes with elements of type T.
template <typename T>
struct Compute {
    typedef i32 type;
};
template <>
struct Compute<float> {
    typedef float type;
};
template <>
struct Compute<f16> {
    typedef float type;
};
template <>
struct Compute<bf16> {
    typedef float type;
};
template <>
struct Compute<i64> {
    typedef i64 type;
};

// Reading an element into its compute type.
DEVICE float widen(float x) { return x; }
DEVICE float widen(f16 x) { return to_float(x); }
DEVICE float widen(bf16 x) { return to_float(x); }
DEVICE i64 widen(i64 x) { return x; }
DEVICE i32 widen(i32 x) { return x; }
DEVICE i32 widen(i8 x) { return x; }
DEVICE i32 widen(u8 x) { return x; }
DEVICE i32 widen(boolean x) { return x.value != 0; }

// And back: floats round to nearest even, floats to integers truncate, anything to bool is != 0.
template <typename T>
struct Narrow {
    template <typename C>
    DEVICE static T of(C x) {
        return static_cast<T>(x);
    }
};
template <>
struct Narrow<f16> {
    template <typename C>
    DEVICE static f16 of(C x) {
        return to_f16(static_cast<float>(x));
    }
};
template <>
struct Narrow<bf16> {
    template <typename C>
    DEVICE static bf16 of(C x) {
        return to_bf16(static_cast<float>(x));
    }
};
template <>
struct Narrow<boolean> {
    template <typename C>
    DEVICE static boolean of(C x) {
        return boolean{static_cast<u8>(x != 0)};
    }
};
// Through 32 bits: a float beyond a narrow type wraps as integers do instead of meaning nothing.
template <>
struct Narrow<i8> {
    template <typename C>
    DEVICE static i8 of(C x) {
        return static_cast<i8>(static_cast<i32>(x));
    }
};
template <>
struct Narrow<u8> {
    template <typename C>
    DEVICE static u8 of(C x) {
        return static_cast<u8>(static_cast<i32>(x));
    }
};
template <typename T, typename C>
DEVICE T narrow(C x) {
    return Narrow<T>::of(x);
}

// ---- vectors of elements ----

// N elements that are read and written at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T e[N];
};

// Elements of T in 16 bytes.
template <typename T>
struct Wide {
    static const int N = 16 / sizeof(T);
};

template <int N, typename T>
DEVICE Pack<T, N> load_pack(const T* at) {
#ifdef EMULATED
    emu::aligned(at, sizeof(Pack<T, N>));
#endif
    return *reinterpret_cast<const Pack<T, N>*>(at);
}
template <int N, typename T>
DEVICE void store_pack(T* at, const Pack<T, N>& pack) {
#ifdef EMULATED
    emu::aligned(at, sizeof(Pack<T, N>));
#endif
    *reinterpret_cast<Pack<T, N>*>(at) = pack;
}

// Writes what any thread may write, which is the same whoever comes last.
template <typename T>
DEVICE void mark(T* at, T value) {
    *static_cast<volatile T*>(at) = value;
}

template <typename A, typename B>
DEVICE A least(A a, B b) {
    return b < a ? static_cast<A>(b) : a;
}
template <typename A, typename B>
DEVICE A largest(A a, B b) {
    return b > a ? static_cast<A>(b) : a;
}

// ---- warps and blocks ----

DEVICE u32 lane() { return threadIdx.x % WARP; }

template <typename T>
DEVICE T warp_sum(T x) {
    UNROLL for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}
DEVICE float warp_max(float x) {
    UNROLL for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

// The sum over a block, known to all its threads. `scratch` has one slot per warp; all threads call.
template <typename T>
DEVICE T block_sum(T x, T* scratch) {
    x = warp_sum(x);
    __syncthreads();
    if (lane() == 0) scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    const u32 warps = (blockDim.x + WARP - 1) / WARP;
    x = lane() < warps ? scratch[lane()] : T(0);
    return warp_sum(x);
}
DEVICE float block_max(float x, float* scratch) {
    x = warp_max(x);
    __syncthreads();
    if (lane() == 0) scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    const u32 warps = (blockDim.x + WARP - 1) / WARP;
    x = lane() < warps ? scratch[lane()] : -infinity();
    return warp_max(x);
}

// The thread's number in the launch, and the number of threads.
DEVICE u64 thread_index() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
DEVICE u64 thread_count() { return static_cast<u64>(gridDim.x) * blockDim.x; }

// Instances for the three float types.
#define FLOAT_TYPES(X) X(float, f32) X(f16, f16) X(bf16, bf16)
