// Products, convolutions and pooling: one element of the result for each work item.
#if FLOATS
// scalars: alpha, beta
ENTRY(matmul)
  u64 n = SIZE(OUT, 2), m = SIZE(OUT, 1), column = i % n, row = i / n % m, g = i / n / m;
  u64 a = g * STRIDE(A, 0) + row * STRIDE(A, 1), c = g * STRIDE(B, 0) + column * STRIDE(B, 2), o = g * STRIDE(OUT, 0) + row * STRIDE(OUT, 1) + column * STRIDE(OUT, 2);
  u64 along_a = STRIDE(A, 2), along_b = STRIDE(B, 1);
  C sum = 0;
  for (i64 k = 0; k < SIZE(A, 2); ++k, a += along_a, c += along_b) sum += LOAD(A, a) * LOAD(B, c);
  C v = SCALAR(0) * sum;
  if (SCALAR(1) != 0) v += SCALAR(1) * LOAD(OUT, o);
  STORE(OUT, o, HAS(BIAS) ? v + LOAD(BIAS, column) : v);
}

ENTRY(matmul_int8)
  u64 n = SIZE(WEIGHT, 0), inner = SIZE(WEIGHT, 1), column = i % n, row = i / n;
  Sum sum = {0, 0};
  for (u64 k = 0; k < inner; ++k) more(&sum, LOAD(X, row * inner + k) * (C)BYTE(WEIGHT, column * inner + k));
  C v = total(sum) * (C)FLOAT(SCALE, column);
  STORE(OUT, i, HAS(BIAS) ? v + LOAD(BIAS, column) : v);
}

// integers: stride, padding, dilation (height, width each), groups
#define GEOMETRY(x, w, y) \
  i64 channels = SIZE(x, 1), height = SIZE(x, 2), width = SIZE(x, 3), outputs = SIZE(w, 0), part = SIZE(w, 1), kh = SIZE(w, 2), \
      kw = SIZE(w, 3), oh = SIZE(y, 2), ow = SIZE(y, 3), group = outputs / INTEGER(6)
#define INPUT_AT(n, c, row, column) ((((n) * channels + (c)) * height + (row)) * width + (column))
#define OUTPUT_AT(n, o, row, column) ((((n) * outputs + (o)) * oh + (row)) * ow + (column))
#define WEIGHT_AT(o, c, row, column) ((((o) * part + (c)) * kh + (row)) * kw + (column))

ENTRY(conv2d)
  GEOMETRY(X, WEIGHT, OUT);
  i64 column = i % ow, row = i / ow % oh, o = i / ow / oh % outputs, n = i / ow / oh / outputs;
  C sum = 0;
  for (i64 c = 0; c < part; ++c) for (i64 r = 0; r < kh; ++r) {
    i64 y = row * INTEGER(0) - INTEGER(2) + r * INTEGER(4);
    if (y < 0 || y >= height) continue;
    for (i64 s = 0; s < kw; ++s) {
      i64 x = column * INTEGER(1) - INTEGER(3) + s * INTEGER(5);
      if (x >= 0 && x < width) sum += LOAD(X, INPUT_AT(n, o / group * part + c, y, x)) * LOAD(WEIGHT, WEIGHT_AT(o, c, r, s));
    }
  }
  STORE(OUT, i, HAS(BIAS) ? sum + LOAD(BIAS, o) : sum);
}

ENTRY(conv2d_input_grad)
  GEOMETRY(OUT, WEIGHT, GRAD);
  i64 x = i % width, y = i / width % height, c = i / width / height % channels, n = i / width / height / channels, g = c / part;
  C sum = 0;
  for (i64 o = g * group; o < (g + 1) * group; ++o) for (i64 r = 0; r < kh; ++r) {
    i64 row = y + INTEGER(2) - r * INTEGER(4);
    if (row < 0 || row % INTEGER(0) || row / INTEGER(0) >= oh) continue;
    for (i64 s = 0; s < kw; ++s) {
      i64 column = x + INTEGER(3) - s * INTEGER(5);
      if (column < 0 || column % INTEGER(1) || column / INTEGER(1) >= ow) continue;
      sum += LOAD(GRAD, OUTPUT_AT(n, o, row / INTEGER(0), column / INTEGER(1))) * LOAD(WEIGHT, WEIGHT_AT(o, c - g * part, r, s));
    }
  }
  STORE(OUT, i, sum);
}

ENTRY(conv2d_weight_grad)
  GEOMETRY(X, OUT, GRAD);
  i64 s = i % kw, r = i / kw % kh, c = i / kw / kh % part, o = i / kw / kh / part;
  Sum sum = {0, 0};
  for (i64 n = 0; n < SIZE(X, 0); ++n) for (i64 row = 0; row < oh; ++row) {
    i64 y = row * INTEGER(0) - INTEGER(2) + r * INTEGER(4);
    if (y < 0 || y >= height) continue;
    for (i64 column = 0; column < ow; ++column) {
      i64 x = column * INTEGER(1) - INTEGER(3) + s * INTEGER(5);
      if (x >= 0 && x < width) more(&sum, LOAD(X, INPUT_AT(n, o / group * part + c, y, x)) * LOAD(GRAD, OUTPUT_AT(n, o, row, column)));
    }
  }
  STORE(OUT, i, total(sum));
}

// integers: op, window, stride, padding
ENTRY(pool2d)
  i64 height = SIZE(X, 2), width = SIZE(X, 3), ow = SIZE(OUT, 3), oh = SIZE(OUT, 2), column = i % ow, row = i / ow % oh, where = -1;
  u64 plane = i / ow / oh * height * width;
  Sum sum = {0, 0};
  C best = 0;
  for (i64 r = 0; r < INTEGER(1); ++r) for (i64 s = 0; s < INTEGER(2); ++s) {
    i64 y = row * INTEGER(3) - INTEGER(5) + r, x = column * INTEGER(4) - INTEGER(6) + s;
    if (y < 0 || y >= height || x < 0 || x >= width) continue;
    C v = LOAD(X, plane + y * width + x);
    more(&sum, v);
    if (where < 0 || v > best || (IS_NAN(v) && !IS_NAN(best))) {
      best = v;
      where = y * width + x;
    }
  }
  int largest = INTEGER(0) == PoolOp_Max;
  STORE(OUT, i, largest ? best : total(sum) / (C)(INTEGER(1) * INTEGER(2)));
  if (largest) INDEX(INDICES, i) = where;
}

// integers: op, window, stride, padding
ENTRY(pool2d_grad)
  i64 height = SIZE(OUT, 2), width = SIZE(OUT, 3), ow = SIZE(GRAD, 3), oh = SIZE(GRAD, 2), x = i % width, y = i / width % height;
  u64 plane = i / width / height * oh * ow;
  Sum sum = {0, 0};
  // The windows that cover this place, from the first that reaches it.
  i64 above = y + INTEGER(5) - INTEGER(1) + INTEGER(3), left = x + INTEGER(6) - INTEGER(2) + INTEGER(4);
  for (i64 row = above < 0 ? 0 : above / INTEGER(3); row < oh && row * INTEGER(3) <= y + INTEGER(5); ++row)
    for (i64 column = left < 0 ? 0 : left / INTEGER(4); column < ow && column * INTEGER(4) <= x + INTEGER(6); ++column) {
      if (row * INTEGER(3) + INTEGER(1) <= y + INTEGER(5) || column * INTEGER(4) + INTEGER(2) <= x + INTEGER(6)) continue;
      u64 at = plane + row * ow + column;
      if (INTEGER(0) == PoolOp_Average) more(&sum, LOAD(GRAD, at) / (C)(INTEGER(1) * INTEGER(2)));
      else if (INDEX(INDICES, at) == y * width + x) more(&sum, LOAD(GRAD, at));
    }
  STORE(OUT, i, total(sum));
}
#endif
