// Normalisations: a row or a channel for each work item.
#if FLOATS
// scalars: eps
ENTRY(layer_norm)
  u64 n = SIZE(X, 1), from = i * n;
  Sum sum = {0, 0}, squares = {0, 0};
  for (u64 j = 0; j < n; ++j) more(&sum, LOAD(X, from + j));
  C mean = total(sum) / n;
  for (u64 j = 0; j < n; ++j) {
    C d = LOAD(X, from + j) - mean;
    more(&squares, d * d);
  }
  C rstd = 1 / sqrt(total(squares) / n + SCALAR(0));
  for (u64 j = 0; j < n; ++j) {
    C v = (LOAD(X, from + j) - mean) * rstd;
    if (HAS(WEIGHT)) v *= LOAD(WEIGHT, j);
    if (HAS(BIAS)) v += LOAD(BIAS, j);
    STORE(OUT, from + j, v);
  }
  STORE_ANY(MEAN, i, mean);
  STORE_ANY(RSTD, i, rstd);
}

// scalars: eps
ENTRY(rms_norm)
  u64 n = SIZE(X, 1), from = i * n;
  Sum squares = {0, 0};
  for (u64 j = 0; j < n; ++j) more(&squares, LOAD(X, from + j) * LOAD(X, from + j));
  C rstd = 1 / sqrt(total(squares) / n + SCALAR(0));
  for (u64 j = 0; j < n; ++j) {
    C v = LOAD(X, from + j) * rstd;
    STORE(OUT, from + j, HAS(WEIGHT) ? v * LOAD(WEIGHT, j) : v);
  }
  STORE_ANY(RSTD, i, rstd);
}

// The gradient of a row; the mean is 0 of what has none, and so is its part.
#define ROW_GRADIENT(mean, centred) \
  u64 n = SIZE(X, 1), from = i * n; \
  C rstd = LOAD_ANY(RSTD, i); \
  Sum sum = {0, 0}, products = {0, 0}; \
  for (u64 j = 0; j < n; ++j) { \
    C g = LOAD(GRAD, from + j) * (HAS(WEIGHT) ? LOAD(WEIGHT, j) : 1); \
    more(&sum, g); \
    more(&products, g * (LOAD(X, from + j) - (mean)) * rstd); \
  } \
  C first = (centred) ? total(sum) / n : 0, second = total(products) / n; \
  for (u64 j = 0; j < n; ++j) { \
    C g = LOAD(GRAD, from + j) * (HAS(WEIGHT) ? LOAD(WEIGHT, j) : 1); \
    STORE(OUT_X, from + j, rstd * (g - first - (LOAD(X, from + j) - (mean)) * rstd * second)); \
  }

ENTRY(layer_norm_grad_x)
  C mean = LOAD_ANY(MEAN, i);
  ROW_GRADIENT(mean, 1)
}

ENTRY(rms_norm_grad_x)
  ROW_GRADIENT(0, 0)
}

// A column for each work item.
ENTRY(layer_norm_grad_w)
  u64 n = SIZE(X, 1);
  Sum weight = {0, 0}, bias = {0, 0};
  for (u64 r = 0; r < (u64)SIZE(X, 0); ++r) {
    C g = LOAD(GRAD, r * n + i);
    more(&bias, g);
    more(&weight, g * (LOAD(X, r * n + i) - LOAD_ANY(MEAN, r)) * LOAD_ANY(RSTD, r));
  }
  if (HAS(OUT_WEIGHT)) STORE(OUT_WEIGHT, i, total(weight));
  if (HAS(OUT_BIAS)) STORE(OUT_BIAS, i, total(bias));
}

ENTRY(rms_norm_grad_w)
  u64 n = SIZE(X, 1);
  Sum weight = {0, 0};
  for (u64 r = 0; r < (u64)SIZE(X, 0); ++r) more(&weight, LOAD(GRAD, r * n + i) * LOAD(X, r * n + i) * LOAD_ANY(RSTD, r));
  STORE(OUT_WEIGHT, i, total(weight));
}

// Every element of channel `i`: the image `a`, the place `l`.
#define EACH for (u64 a = 0; a < images; ++a) for (u64 l = 0; l < length; ++l)
#define SIZES u64 images = SIZE(X, 0), channels = SIZE(X, 1), length = SIZE(X, 2); C count = (C)(images * length)
#define HERE ((a * channels + i) * length + l)

// integers: training; scalars: momentum, eps
ENTRY(batch_norm)
  SIZES;
  C mean, inverse;
  if (INTEGER(0)) {
    Sum sum = {0, 0}, squares = {0, 0};
    EACH more(&sum, LOAD(X, HERE));
    mean = total(sum) / count;
    EACH {
      C d = LOAD(X, HERE) - mean;
      more(&squares, d * d);
    }
    C all = total(squares);
    inverse = 1 / sqrt(all / count + SCALAR(1));
    if (HAS(RUNNING_MEAN)) STORE_ANY(RUNNING_MEAN, i, ONE_MINUS(0) * LOAD_ANY(RUNNING_MEAN, i) + SCALAR(0) * mean);
    if (HAS(RUNNING_VAR)) STORE_ANY(RUNNING_VAR, i, ONE_MINUS(0) * LOAD_ANY(RUNNING_VAR, i) + SCALAR(0) * (all / (count - 1)));
    STORE_ANY(SAVE_MEAN, i, mean);
    STORE_ANY(SAVE_INVSTD, i, inverse);
  } else {
    mean = LOAD_ANY(RUNNING_MEAN, i);
    inverse = 1 / sqrt(LOAD_ANY(RUNNING_VAR, i) + SCALAR(1));
  }
  C weight = HAS(WEIGHT) ? LOAD_ANY(WEIGHT, i) : 1, bias = HAS(BIAS) ? LOAD_ANY(BIAS, i) : 0;
  EACH STORE(OUT, HERE, (LOAD(X, HERE) - mean) * inverse * weight + bias);
}

// integers: training
ENTRY(batch_norm_grad)
  SIZES;
#define STRIDED(x) (a * STRIDE(x, 0) + i * STRIDE(x, 1) + l * STRIDE(x, 2))
  C mean = LOAD_ANY(MEAN, i), inverse = LOAD_ANY(INVSTD, i), weight = HAS(WEIGHT) ? LOAD_ANY(WEIGHT, i) : 1;
  Sum sum = {0, 0}, products = {0, 0};
  EACH {
    C g = LOAD(GRAD, STRIDED(GRAD));
    more(&sum, g);
    more(&products, g * (LOAD(X, STRIDED(X)) - mean) * inverse);
  }
  if (HAS(OUT_WEIGHT)) STORE_ANY(OUT_WEIGHT, i, total(products));
  if (HAS(OUT_BIAS)) STORE_ANY(OUT_BIAS, i, total(sum));
  if (!HAS(OUT_X)) return;
  C first = total(sum) / count, second = total(products) / count;
  EACH {
    C g = LOAD(GRAD, STRIDED(GRAD));
    if (INTEGER(0)) g -= first + (LOAD(X, STRIDED(X)) - mean) * inverse * second;
    STORE(OUT_X, HERE, weight * inverse * g);
  }
}
#endif
