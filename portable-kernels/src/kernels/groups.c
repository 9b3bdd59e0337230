// One group of elements for each work item: reductions, softmax, losses, rows of a table.

// integers: op, axes
ENTRY(reduce)
  int rank = p.rank[X], op = (int)INTEGER(0);
  u64 from = 0, count = 1, rest = i, index[6] = {0, 0, 0, 0, 0, 0};
  for (int d = rank - 1; d >= 0; --d) {
    if ((INTEGER(1) >> d) & 1) {
      count *= SIZE(X, d);
    } else {
      from += rest % SIZE(X, d) * STRIDE(X, d);
      rest /= SIZE(X, d);
    }
  }
  Sum sum = {0, 0};
  C best = 0;
  u64 where = 0;
  for (u64 r = 0; r < count; ++r) {
    C v = LOAD(X, from);
    int better = r == 0 || (op == ReduceOp_Max ? v > best : v < best) || (IS_NAN(v) && !IS_NAN(best));
    if (better) {
      best = v;
      where = r;
    }
    more(&sum, op == ReduceOp_SumSquares ? v * v : v);
    // To the next element of the group, the last axis first.
    for (int d = rank - 1; d >= 0; --d) {
      if (!((INTEGER(1) >> d) & 1)) continue;
      from += STRIDE(X, d);
      if (++index[d] < (u64)SIZE(X, d)) break;
      from -= SIZE(X, d) * STRIDE(X, d);
      index[d] = 0;
    }
  }
  u64 to = place(p.shape + p.at[OUT], rank, i);
  if (op == ReduceOp_Max || op == ReduceOp_Min) STORE(OUT, to, best);
  else STORE_ANY(OUT, to, op == ReduceOp_Mean ? total(sum) / (C)count : total(sum));
  if (HAS(INDICES)) INDEX(INDICES, i) = (i64)where;
}

// A row of a table: one element of the result for each work item.
ENTRY(gather)
  i64 n = SIZE(TABLE, 1), row = INDEX(INDICES, i / n);
#if FLOATS
  C v = (C)NOT_A_NUMBER;
#else
  C v = 0;
#endif
  if (row >= 0 && row < SIZE(TABLE, 0)) v = LOAD(TABLE, row * STRIDE(TABLE, 0) + i % n * STRIDE(TABLE, 1));
  STORE(OUT, i, v);
}

#if FLOATS
// One element of the table for each work item. integers: accumulate, whether there is a padding index, that index
ENTRY(scatter_add)
  i64 n = SIZE(OUT, 1), row = (i64)i / n, column = (i64)i % n;
  Sum sum = {0, 0};
  if (INTEGER(0)) more(&sum, LOAD(OUT, i));
  if (!(INTEGER(1) && INTEGER(2) == row)) {
    for (i64 k = 0; k < SIZE(SRC, 0); ++k) {
      if (INDEX(INDICES, k) == row) more(&sum, LOAD(SRC, k * STRIDE(SRC, 0) + column * STRIDE(SRC, 1)));
    }
  }
  STORE(OUT, i, total(sum));
}

#define GROUP(x) u64 n = SIZE(x, 1), inner = SIZE(x, 2), from = i / inner * n * inner + i % inner
// integers: log
ENTRY(softmax)
  GROUP(X);
  C most = -INF;
  Sum sum = {0, 0};
  for (u64 j = 0; j < n; ++j) {
    C v = LOAD_ANY(X, from + j * inner);
    most = v > most || IS_NAN(v) ? v : most;
  }
  for (u64 j = 0; j < n; ++j) more(&sum, exp(LOAD_ANY(X, from + j * inner) - most));
  C all = INTEGER(0) ? log(total(sum)) : total(sum);
  for (u64 j = 0; j < n; ++j) {
    C v = LOAD_ANY(X, from + j * inner) - most;
    STORE_ANY(OUT, from + j * inner, INTEGER(0) ? v - all : exp(v) / all);
  }
}

// integers: log
ENTRY(softmax_grad)
  GROUP(Y);
  Sum sum = {0, 0};
  for (u64 j = 0; j < n; ++j) {
    C g = LOAD_ANY(GRAD, from + j * inner);
    more(&sum, INTEGER(0) ? g : g * LOAD_ANY(Y, from + j * inner));
  }
  C all = total(sum);
  for (u64 j = 0; j < n; ++j) {
    u64 at = from + j * inner;
    C y = LOAD_ANY(Y, at), g = LOAD_ANY(GRAD, at);
    STORE_ANY(OUT, at, INTEGER(0) ? g - exp(y) * all : y * (g - all));
  }
}

// All targets by one work item. integers: reduction, ignored index
ENTRY(nll_loss)
  i64 classes = SIZE(LOG_PROBS, 1), inner = SIZE(LOG_PROBS, 2), targets = SIZE(LOG_PROBS, 0) * inner, counted = 0;
  Sum sum = {0, 0};
  for (i64 e = 0; e < targets; ++e) {
    i64 target = INDEX(TARGET, e);
    int ignored = target == INTEGER(1), inside = target >= 0 && target < classes;
    C loss = ignored ? 0 : inside ? -LOAD(LOG_PROBS, (e / inner * classes + target) * inner + e % inner) : (C)NOT_A_NUMBER;
    counted += !ignored;
    more(&sum, loss);
    if (INTEGER(0) == Reduction_None) STORE(OUT, e, loss);
  }
  if (INTEGER(0) == Reduction_Mean) STORE(OUT, 0, total(sum) / (C)counted);
  if (INTEGER(0) == Reduction_Sum) STORE(OUT, 0, total(sum));
  STORE(TOTAL_WEIGHT, 0, (C)counted);
}

// integers: reduction, ignored index
ENTRY(nll_loss_grad)
  u64 inner = SIZE(OUT, 2), classes = SIZE(OUT, 1), j = i % inner, class_ = i / inner % classes, e = i / inner / classes;
  i64 target = INDEX(TARGET, e * inner + j);
  C v = 0;
  if (target != INTEGER(1) && target == (i64)class_) {
    u64 at = INTEGER(0) == Reduction_None ? e * STRIDE(GRAD, 0) + j * STRIDE(GRAD, 1) : 0;
    v = -LOAD(GRAD, at);
    if (INTEGER(0) == Reduction_Mean) v /= LOAD(TOTAL_WEIGHT, 0);
  }
  STORE(OUT, i, v);
}

// A row for each work item.
ENTRY(quantize_int8)
  u64 n = SIZE(X, 1);
  float most = 0;
  for (u64 j = 0; j < n; ++j) most = fmax(most, (float)fabs(LOAD(X, i * n + j)));
  float scale = most == 0 ? 1 : most / 127;
  FLOAT(SCALE, i) = scale;
  for (u64 j = 0; j < n; ++j) BYTE(OUT, i * n + j) = (i8)fmin(fmax(rint((float)LOAD(X, i * n + j) / scale), -127.0f), 127.0f);
}

ENTRY(dequantize_int8)
  STORE(OUT, i, (C)BYTE(X, i) * (C)FLOAT(SCALE, i / SIZE(X, 1)));
}
#endif
