// One element of a parameter for each work item.
#if FLOATS
// scalars: lr, momentum, dampening, weight decay; integers: nesterov, maximize, first step
ENTRY(sgd_step)
  if (HAS(FOUND_INF) && FLOAT(FOUND_INF, 0) != 0) return;
  C w = LOAD(PARAM, i), g = LOAD(GRAD, i);
  g = (INTEGER(1) ? -g : g) + SCALAR(3) * w;
  if (HAS(MOMENTUM)) {
    C m = INTEGER(2) ? g : SCALAR(1) * LOAD(MOMENTUM, i) + ONE_MINUS(2) * g;
    STORE(MOMENTUM, i, m);
    g = INTEGER(0) ? g + SCALAR(1) * m : m;
  }
  STORE(PARAM, i, w - SCALAR(0) * g);
}

// 1 − βᵗ, without the loss of digits that β close to 1 would bring.
#define CORRECTION(k, t) (ONE_MINUS(k) >= 1 ? (C)1 : -expm1((t) * log1p(-ONE_MINUS(k))))

// scalars: lr, β₁, β₂, eps, weight decay; integers: decoupled, maximize
ENTRY(adam_step)
  if (HAS(FOUND_INF) && FLOAT(FOUND_INF, 0) != 0) return;
  C t = (C)FLOAT(STEP, 0), w = LOAD(PARAM, i), g = LOAD(GRAD, i), m = LOAD(EXP_AVG, i), v = LOAD(EXP_AVG_SQ, i);
  if (INTEGER(1)) g = -g;
  if (INTEGER(0)) w *= 1 - SCALAR(0) * SCALAR(4);
  else g += SCALAR(4) * w;
  m += ONE_MINUS(1) * (g - m);
  v = SCALAR(2) * v + ONE_MINUS(2) * g * g;
  STORE(EXP_AVG, i, m);
  STORE(EXP_AVG_SQ, i, v);
  if (HAS(MAX_EXP_AVG_SQ)) {
    C most = LOAD(MAX_EXP_AVG_SQ, i);
    v = IS_NAN(v) || v > most ? v : most;
    STORE(MAX_EXP_AVG_SQ, i, v);
  }
  C first = CORRECTION(1, t), second = CORRECTION(2, t);
  STORE(PARAM, i, w - SCALAR(0) / first * m / (sqrt(v) / sqrt(second) + SCALAR(3)));
}

ENTRY(unscale)
  C g = LOAD(GRADS, i);
  if (IS_NAN(g) || g == INF || g == -INF) FLOAT(FOUND_INF, 0) = 1;
  STORE(GRADS, i, g * (C)FLOAT(INV_SCALE, 0));
}

// By one work item. scalars: growth, backoff; integers: interval
ENTRY(update_scale)
  GLOBAL i32 *tracker = (GLOBAL i32 *)b[GROWTH_TRACKER];
  if (FLOAT(FOUND_INF, 0) != 0) {
    FLOAT(SCALE, 0) *= (float)SCALAR(1);
    *tracker = 0;
  } else if (*tracker + 1 == INTEGER(0)) {
    float grown = FLOAT(SCALE, 0) * (float)SCALAR(0);
    if (grown < INF) FLOAT(SCALE, 0) = grown;
    *tracker = 0;
  } else {
    *tracker += 1;
  }
}
#endif
