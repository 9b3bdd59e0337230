// Philox4x32-10: word `lane` of block `counter`.
INLINE u32 philox(u64 seed, u64 counter, u32 lane) {
  u32 a = (u32)counter, b = (u32)(counter >> 32), c = 0, d = 0, low = (u32)seed, high = (u32)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    u32 ha = HIGH_PRODUCT(0xD2511F53u, a), la = 0xD2511F53u * a, hc = HIGH_PRODUCT(0xCD9E8D57u, c), lc = 0xCD9E8D57u * c;
    a = hc ^ b ^ low;
    b = lc;
    c = ha ^ d ^ high;
    d = la;
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return lane == 0 ? a : lane == 1 ? b : lane == 2 ? c : d;
}
#define WORD(seed, offset) philox((u64)(seed), (u64)(offset) + i / 4, (u32)(i % 4))

// integers: kind, seed, offset; scalars: low, high
ENTRY(random)
  u32 word = WORD(INTEGER(1), INTEGER(2));
#if FLOATS
  C u = (C)(word >> 8) * K(5.9604644775390625e-8);
  STORE(OUT, i, ADD(SCALAR(0), MULTIPLY(ADD(SCALAR(1), -SCALAR(0)), u)));
#else
  STORE(OUT, i, (C)(i32)word);
#endif
}

#if FLOATS
// integers: seed, offset; scalars: p
ENTRY(dropout)
  float u = (float)(WORD(INTEGER(0), INTEGER(1)) >> 8) * 5.9604644775390625e-8f;
  int keep = u >= (float)SCALAR(0);
  b[MASK_][i] = (u8)keep;
  STORE(OUT, i, keep ? LOAD(X, i) / ONE_MINUS(0) : 0);
}
#endif
