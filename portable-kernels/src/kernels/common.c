// Types, arguments, loads, stores and sums of every kernel. What stands before this text says:
//   T             the element type in which this program computes, one of F64, F32, … (the order of DType::ALL)
//   DOUBLES       whether the device has 64-bit floats
//   PARAMETERS_x  the parameters of the kernel x, and OPERANDS_x the names of its buffers, from the kernel's definition
//   UnaryOp_Neg … the codes of functions

#define FLOATS (T <= BF16)
#if T == F64
typedef double C;
#define K(x) x
#elif FLOATS
typedef float C;
#define K(x) x##f
#else
typedef i64 C;
#endif

typedef GLOBAL u8 *Buffer;

// As Arguments in arguments.rs.
typedef struct {
  u64 items;
  u64 offset[14];
  u64 scalar[8];
  i64 integer[10];
  u32 shape[128];
  u8 at[16];
  u8 rank[16];
  u8 type[16];
  u32 present;
  u32 flat;
} Arguments;

#define INF FLOAT_OF_BITS(0x7f800000u)
#define NOT_A_NUMBER FLOAT_OF_BITS(0x7fc00000u)
#define IS_NAN(x) ((x) != (x))

// Begins a kernel: one work item for each of its results, `i`.
#define ENTRY(name) \
  KERNEL k_##name(PARAMETERS_##name) { \
    const u64 i = ITEM; \
    if (i >= p.items) return; \
    OPERANDS_##name

#define HAS(x) ((p.present >> (x)) & 1)
#define SIZE(x, d) ((i64)p.shape[p.at[x] + (d)])
#define STRIDE(x, d) ((u64)p.shape[p.at[x] + p.rank[x] + (d)])
#define INTEGER(k) (p.integer[k])
#if T == F64
#define SCALAR(k) DOUBLE_OF_BITS(p.scalar[k])
#define ONE_MINUS(k) (1.0 - SCALAR(k))
#elif FLOATS
// The scalar as a float, and above it what is missing to its full precision.
#define SCALAR(k) FLOAT_OF_BITS((u32)p.scalar[k])
#define ONE_MINUS(k) ((1.0f - SCALAR(k)) - FLOAT_OF_BITS((u32)(p.scalar[k] >> 32)))
#else
#define SCALAR(k) ((i64)p.scalar[k])
#endif

INLINE u16 bf16_of(float v) {
  u32 bits = BITS_OF_FLOAT(v);
  if (IS_NAN(v)) return (u16)((bits >> 16) | 0x40);
  return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if T == F64
// To a float whose last bit says whether anything was cut off: what rounds it again rounds as if from the double.
INLINE float to_odd(double v) {
  float f = (float)v;
  if (IS_NAN(v) || f == INF || f == -INF || (double)f == v) return f;
  u32 bits = BITS_OF_FLOAT(f);
  if (fabs((double)f) > fabs(v)) bits -= 1;
  return FLOAT_OF_BITS(bits | 1);
}
#define AS_FLOAT(v) to_odd(v)
#else
#define AS_FLOAT(v) ((float)(v))
#endif

INLINE C load(const GLOBAL u8 *p, int type, u64 i) {
  switch (type) {
#if DOUBLES
  case F64: return (C)((const GLOBAL double *)p)[i];
#endif
  case F32: return (C)((const GLOBAL float *)p)[i];
  case F16: return (C)HALF_LOAD(p, i);
  case BF16: return (C)FLOAT_OF_BITS((u32)((const GLOBAL u16 *)p)[i] << 16);
  case I64: return (C)((const GLOBAL i64 *)p)[i];
  case I32: return (C)((const GLOBAL i32 *)p)[i];
  case I8: return (C)((const GLOBAL i8 *)p)[i];
  default: return (C)p[i];
  }
}

INLINE void store(Buffer p, int type, u64 i, C v) {
  switch (type) {
#if DOUBLES
  case F64: ((GLOBAL double *)p)[i] = (double)v; break;
#endif
  case F32: ((GLOBAL float *)p)[i] = (float)v; break;
  case F16: HALF_STORE(p, i, AS_FLOAT(v)); break;
  case BF16: ((GLOBAL u16 *)p)[i] = bf16_of(AS_FLOAT(v)); break;
  case I64: ((GLOBAL i64 *)p)[i] = (i64)v; break;
  case I32: ((GLOBAL i32 *)p)[i] = (i32)v; break;
  case I8: ((GLOBAL i8 *)p)[i] = (i8)v; break;
  case U8: p[i] = (u8)v; break;
  default: p[i] = v != 0; break;
  }
}

// Elements of the program's type, and of the type that the operand has.
#define LOAD(x, o) load(b[x], T, o)
#define STORE(x, o, v) store(b[x], T, o, v)
#define LOAD_ANY(x, o) load(b[x], p.type[x], o)
#define STORE_ANY(x, o, v) store(b[x], p.type[x], o, v)
#define INDEX(x, o) (((GLOBAL i64 *)b[x])[o])
#define FLOAT(x, o) (((GLOBAL float *)b[x])[o])
#define BYTE(x, o) (((GLOBAL i8 *)b[x])[o])
#define MASK(x, o) (b[x][o])

// Where element `i` in row-major order lies in an operand.
INLINE u64 place(const u32 *sizes, int rank, u64 i) {
  u64 at = 0;
  for (int d = rank - 1; d >= 0; --d) {
    u64 rest = i / sizes[d];
    at += (i - rest * sizes[d]) * sizes[rank + d];
    i = rest;
  }
  return at;
}
#define AT(x) (p.flat ? i : place(p.shape + p.at[x], p.rank[x], i))

// A sum with what was lost on the way (Neumaier's): as good as one of twice the precision.
typedef struct { C sum, lost; } Sum;

INLINE void more(Sum *s, C v) {
#if FLOATS
  C next = ADD(s->sum, v);
  s->lost = ADD(s->lost, fabs(s->sum) >= fabs(v) ? ADD(ADD(s->sum, -next), v) : ADD(ADD(v, -next), s->sum));
  s->sum = next;
#else
  s->sum += v;
#endif
}

INLINE C total(Sum s) {
#if FLOATS
  // Beyond infinity nothing is lost.
  return IS_NAN(s.lost) ? s.sum : s.sum + s.lost;
#else
  return s.sum;
#endif
}
