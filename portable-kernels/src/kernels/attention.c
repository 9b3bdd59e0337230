// Attention, each score computed where it is needed. scalars: scale; integers: causal
#if FLOATS
// Elements of a row that a work item holds at once; longer rows are gone through in parts.
#define PART 64
#define HEADS \
  i64 heads = SIZE(Q, 1), key_heads = SIZE(K_, 1), queries = SIZE(Q, 2), keys = SIZE(K_, 2), d = SIZE(Q, 3), dv = SIZE(V, 3), \
      shared = heads / key_heads
#define ROW(x, n, h, t) ((n) * STRIDE(x, 0) + (h) * STRIDE(x, 1) + (t) * STRIDE(x, 2))
#define QUERY i64 t = i % queries, h = i / queries % heads, n = i / queries / heads, kh = h / shared
#define KEY i64 s = i % keys, kh = i / keys % key_heads, n = i / keys / key_heads
#define VISIBLE (INTEGER(0) && t + 1 < keys ? t + 1 : keys)
// Where the sum over the row `x` of `length` products ends up.
#define DOT(x, from_x, y, from_y, length, result) \
  C result; \
  { \
    Sum dot = {0, 0}; \
    u64 dot_x = (from_x), dot_y = (from_y); \
    for (i64 e = 0; e < (length); ++e) more(&dot, LOAD(x, dot_x + e) * LOAD(y, dot_y + e)); \
    result = total(dot); \
  }
#define SCORE(result) \
  DOT(Q, ROW(Q, n, h, t), K_, ROW(K_, n, kh, s), d, result) \
  result = SCALAR(0) * result + (HAS(MASK_) ? LOAD(MASK_, ROW(MASK_, n, h, t) + s * STRIDE(MASK_, 3)) : 0)

ENTRY(attention)
  HEADS;
  QUERY;
  C most = -INF;
  Sum sum = {0, 0};
  for (i64 s = 0; s < VISIBLE; ++s) {
    SCORE(x);
    most = x > most || IS_NAN(x) ? x : most;
  }
  int blind = most == -INF;
  for (i64 s = 0; s < VISIBLE && !blind; ++s) {
    SCORE(x);
    more(&sum, exp(x - most));
  }
  for (i64 from = 0; from < dv; from += PART) {
    Sum part[PART];
    for (i64 e = 0; e < PART; ++e) part[e].sum = part[e].lost = 0;
    for (i64 s = 0; s < VISIBLE && !blind; ++s) {
      SCORE(x);
      C weight = exp(x - most);
      if (weight != 0) for (i64 e = 0; e < PART && from + e < dv; ++e) more(&part[e], weight * LOAD(V, ROW(V, n, kh, s) + from + e));
    }
    for (i64 e = 0; e < PART && from + e < dv; ++e) STORE(OUT, ROW(OUT, n, h, t) + from + e, blind ? 0 : total(part[e]) / total(sum));
  }
  if (HAS(LOGSUMEXP)) STORE_ANY(LOGSUMEXP, i, blind ? -INF : most + log(total(sum)));
}

// The first of the gradients' kernels: delta, which the others read.
ENTRY(attention_grad_delta)
  HEADS;
  QUERY;
  DOT(OUT, ROW(OUT, n, h, t), GRAD, ROW(GRAD, n, h, t), dv, delta)
  STORE_ANY(DELTA, i, delta);
}

// p of a score, and the score's gradient ds.
#define PROBABILITY \
  i64 row = (n * heads + h) * queries + t; \
  C seen = LOAD_ANY(LOGSUMEXP, row); \
  SCORE(x); \
  C pr = seen < K(-16777216.0) ? 0 : exp(x - seen)
#define SCORE_GRADIENT \
  PROBABILITY; \
  DOT(GRAD, ROW(GRAD, n, h, t), V, ROW(V, n, kh, s), dv, dp) \
  C ds = pr * (dp - LOAD_ANY(DELTA, row))

#define IN_PARTS(length) for (i64 from = 0; from < (length); from += PART)
#define CLEAR Sum part[PART]; for (i64 e = 0; e < PART; ++e) part[e].sum = part[e].lost = 0
#define TO_PARTS(factor, x, at, length) for (i64 e = 0; e < PART && from + e < (length); ++e) more(&part[e], (factor) * LOAD(x, (at) + from + e))
#define FROM_PARTS(x, at, length, factor) for (i64 e = 0; e < PART && from + e < (length); ++e) STORE(x, (at) + from + e, (factor) * total(part[e]))
// Every query that sees key `s`, of all heads that share it.
#define EACH_QUERY for (i64 h = kh * shared; h < (kh + 1) * shared; ++h) for (i64 t = INTEGER(0) ? s : 0; t < queries; ++t)

ENTRY(attention_grad_q)
  HEADS;
  QUERY;
  IN_PARTS(d) {
    CLEAR;
    for (i64 s = 0; s < VISIBLE; ++s) {
      SCORE_GRADIENT;
      TO_PARTS(ds, K_, ROW(K_, n, kh, s), d);
    }
    FROM_PARTS(DQ, ROW(DQ, n, h, t), d, SCALAR(0));
  }
}

ENTRY(attention_grad_k)
  HEADS;
  KEY;
  IN_PARTS(d) {
    CLEAR;
    EACH_QUERY {
      SCORE_GRADIENT;
      TO_PARTS(ds, Q, ROW(Q, n, h, t), d);
    }
    FROM_PARTS(DK, ROW(DK, n, kh, s), d, SCALAR(0));
  }
}

ENTRY(attention_grad_v)
  HEADS;
  KEY;
  IN_PARTS(dv) {
    CLEAR;
    EACH_QUERY {
      PROBABILITY;
      TO_PARTS(pr, GRAD, ROW(GRAD, n, h, t), dv);
    }
    FROM_PARTS(DV, ROW(DV, n, kh, s), dv, 1);
  }
}

// The gradient of what is added to a score, for each score.
ENTRY(attention_grad_mask)
  HEADS;
  i64 s = i % keys, t = i / keys % queries, h = i / keys / queries % heads, n = i / keys / queries / heads, kh = h / shared;
  C v = 0;
  if (!INTEGER(0) || s <= t) {
    SCORE_GRADIENT;
    v = ds;
  }
  STORE(DMASK, ROW(DMASK, n, h, t) + s * STRIDE(DMASK, 3), v);
}
#endif
