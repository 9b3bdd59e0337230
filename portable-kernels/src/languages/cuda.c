// What the kernels need of CUDA C.
typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__ void
#define GLOBAL
#define INLINE static __device__ inline
#define BY_VALUE const __grid_constant__
#define ITEM ((u64)blockIdx.x * blockDim.x + threadIdx.x)
static __device__ inline float half_load(const u16 *p) { float v; asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(*p)); return v; }
static __device__ inline u16 half_of(float v) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v)); return h; }
#define HALF_LOAD(p, i) half_load((const u16 *)(p) + (i))
#define HALF_STORE(p, i, v) (((u16 *)(p))[i] = half_of(v))
#define FLOAT_OF_BITS(x) __uint_as_float(x)
#define BITS_OF_FLOAT(x) __float_as_uint(x)
#define DOUBLE_OF_BITS(x) __longlong_as_double((i64)(x))
#define HIGH_PRODUCT(a, b) __umulhi(a, b)
static __device__ inline float multiply(float a, float b) { return __fmul_rn(a, b); }
static __device__ inline double multiply(double a, double b) { return __dmul_rn(a, b); }
static __device__ inline float add(float a, float b) { return __fadd_rn(a, b); }
static __device__ inline double add(double a, double b) { return __dadd_rn(a, b); }
#define MULTIPLY(a, b) multiply(a, b)
#define ADD(a, b) add(a, b)
