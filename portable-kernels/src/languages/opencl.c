// What the kernels need of OpenCL C 1.2.
#pragma OPENCL FP_CONTRACT OFF
#if DOUBLES
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
typedef char i8;
typedef uchar u8;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
#define KERNEL kernel void
#define GLOBAL global
#define INLINE static inline
#define BY_VALUE const
#define ITEM ((u64)get_global_id(0))
#define HALF_LOAD(p, i) vload_half(i, (const global half *)(p))
#define HALF_STORE(p, i, v) vstore_half_rte(v, i, (global half *)(p))
#define FLOAT_OF_BITS(x) as_float(x)
#define BITS_OF_FLOAT(x) as_uint(x)
#define DOUBLE_OF_BITS(x) as_double(x)
#define HIGH_PRODUCT(a, b) mul_hi(a, b)
#define MULTIPLY(a, b) ((a) * (b))
#define ADD(a, b) ((a) + (b))
