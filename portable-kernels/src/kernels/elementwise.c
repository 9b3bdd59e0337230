// One element of the result for each work item.

ENTRY(fill)
  STORE(OUT, AT(OUT), SCALAR(0));
}

ENTRY(copy)
  STORE_ANY(OUT, AT(OUT), LOAD(SRC, AT(SRC)));
}

ENTRY(select)
  STORE(OUT, AT(OUT), MASK(MASK_, AT(MASK_)) ? LOAD(ON_TRUE, AT(ON_TRUE)) : LOAD(ON_FALSE, AT(ON_FALSE)));
}

ENTRY(masked_fill)
  STORE(OUT, AT(OUT), MASK(MASK_, AT(MASK_)) ? SCALAR(0) : LOAD(X, AT(X)));
}

// integers: upper, diagonal
ENTRY(triangle)
  int rank = p.rank[OUT];
  i64 width = SIZE(OUT, rank - 1), height = SIZE(OUT, rank - 2);
  i64 right = (i64)(i % width) - (i64)(i / width % height);
  int inside = INTEGER(0) ? right >= INTEGER(1) : right <= INTEGER(1);
  STORE(OUT, AT(OUT), inside ? LOAD(X, AT(X)) : 0);
}

#if FLOATS
INLINE C softplus(C x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
INLINE C sigmoid(C x) { return 1 / (1 + exp(-x)); }
INLINE C normal(C x) { return K(0.5) * (1 + erf(x * K(0.70710678118654752440))); }
#define TANH_SCALE K(0.79788456080286535588)
#define TANH_CUBE K(0.044715)
INLINE C gelu_tanh(C x) { return tanh(TANH_SCALE * (x + TANH_CUBE * x * x * x)); }
INLINE C between(C x, C low, C high) { return x < low ? low : x > high ? high : x; }
#endif

INLINE C unary_of(int op, C x, C s, C t) {
  switch (op) {
  case UnaryOp_Neg: return -x;
  case UnaryOp_Abs:
#if FLOATS
    return fabs(x);
#else
    return x < 0 ? -x : x;
#endif
  case UnaryOp_Sign: return (C)((x > 0) - (x < 0));
  case UnaryOp_Square: return x * x;
  case UnaryOp_Relu: return x < 0 ? 0 : x;
  case UnaryOp_Affine: return s * x + t;
  case UnaryOp_Clamp: return x < s ? s : x > t ? t : x;
  case UnaryOp_IsZero: return x == 0;
#if FLOATS
  case UnaryOp_Exp: return exp(x);
  case UnaryOp_Log: return log(x);
  case UnaryOp_Sqrt: return sqrt(x);
  case UnaryOp_Rsqrt: return 1 / sqrt(x);
  case UnaryOp_Reciprocal: return 1 / x;
  case UnaryOp_Sin: return sin(x);
  case UnaryOp_Cos: return cos(x);
  case UnaryOp_Tanh: return tanh(x);
  case UnaryOp_Sigmoid: return sigmoid(x);
  case UnaryOp_LeakyRelu: return x > 0 ? x : s * x;
  case UnaryOp_Gelu: return x * normal(x);
  case UnaryOp_GeluTanh: return K(0.5) * x * (1 + gelu_tanh(x));
  case UnaryOp_Silu: return x * sigmoid(x);
  case UnaryOp_Elu: return x > 0 ? x : s * expm1(x);
  case UnaryOp_Softplus: return softplus(x);
  case UnaryOp_LogSigmoid: return -softplus(-x);
  case UnaryOp_Mish: return x * tanh(softplus(x));
  case UnaryOp_Hardsigmoid: return between(x + 3, 0, 6) / 6;
  case UnaryOp_Hardswish: return x * between(x + 3, 0, 6) / 6;
  case UnaryOp_Huber: return fabs(x) < s ? x * x / 2 : s * (fabs(x) - s / 2);
  case UnaryOp_Pow: return pow(x, s);
#endif
  }
  return 0;
}

ENTRY(unary)
  STORE_ANY(OUT, AT(OUT), unary_of((int)INTEGER(0), LOAD(X, AT(X)), SCALAR(0), SCALAR(1)));
}

INLINE C binary_of(int op, C l, C r, C alpha) {
  switch (op) {
  case BinaryOp_Add: return l + alpha * r;
  case BinaryOp_Sub: return l - r;
  case BinaryOp_Mul: return l * r;
  case BinaryOp_Maximum: return IS_NAN(l) || l > r ? l : r;
  case BinaryOp_Minimum: return IS_NAN(l) || l < r ? l : r;
  case BinaryOp_SquaredDifference: return (l - r) * (l - r);
  case BinaryOp_Eq: return l == r;
  case BinaryOp_Ne: return l != r;
  case BinaryOp_Lt: return l < r;
  case BinaryOp_Le: return l <= r;
  case BinaryOp_Gt: return l > r;
  case BinaryOp_Ge: return l >= r;
#if FLOATS
  case BinaryOp_Div: return l / r;
  case BinaryOp_Pow: return pow(l, r);
#endif
  }
  return 0;
}

ENTRY(binary)
  STORE_ANY(OUT, AT(OUT), binary_of((int)INTEGER(0), LOAD(LHS, AT(LHS)), LOAD(RHS, AT(RHS)), SCALAR(0)));
}

#if FLOATS
INLINE C gradient_of(int op, C x, C g, C s, C t) {
  switch (op) {
  case UnaryGradOp_Relu: return x > 0 ? g : 0;
  case UnaryGradOp_LeakyRelu: return x > 0 ? g : s * g;
  case UnaryGradOp_Gelu: return g * (normal(x) + x * K(0.39894228040143267794) * exp(-x * x / 2));
  case UnaryGradOp_GeluTanh: {
    C y = gelu_tanh(x);
    return g * (K(0.5) * (1 + y) + K(0.5) * x * (1 - y * y) * TANH_SCALE * (1 + 3 * TANH_CUBE * x * x));
  }
  case UnaryGradOp_Silu: return g * sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  case UnaryGradOp_Elu: return x > 0 ? g : s * exp(x) * g;
  case UnaryGradOp_Softplus: return g * sigmoid(x);
  case UnaryGradOp_LogSigmoid: return g * sigmoid(-x);
  case UnaryGradOp_Mish: {
    C y = tanh(softplus(x));
    return g * (y + x * sigmoid(x) * (1 - y * y));
  }
  case UnaryGradOp_Hardsigmoid: return x > -3 && x < 3 ? g / 6 : 0;
  case UnaryGradOp_Hardswish: return x <= -3 ? 0 : x < 3 ? g * (x / 3 + K(0.5)) : g;
  case UnaryGradOp_Hardtanh: return x > s && x < t ? g : 0;
  case UnaryGradOp_Tanh: return g * (1 - x * x);
  case UnaryGradOp_Sigmoid: return g * x * (1 - x);
  }
  return 0;
}

ENTRY(unary_grad)
  STORE(OUT, AT(OUT), gradient_of((int)INTEGER(0), LOAD(SAVED, AT(SAVED)), LOAD(GRAD, AT(GRAD)), SCALAR(0), SCALAR(1)));
}

ENTRY(ternary)
  C a = LOAD(A, AT(A)), m = LOAD(B, AT(B)), n = LOAD(C_, AT(C_)), s = SCALAR(0), v = 0;
  switch ((int)INTEGER(0)) {
  case TernaryOp_Lerp: v = a + s * (m - a); break;
  case TernaryOp_Addcmul: v = a + s * m * n; break;
  case TernaryOp_Addcdiv: v = a + s * m / n; break;
  case TernaryOp_MseGrad: v = s * a * (m - n); break;
  }
  STORE(OUT, AT(OUT), v);
}

ENTRY(dropout_grad)
  STORE(OUT, AT(OUT), MASK(MASK_, AT(MASK_)) ? SCALAR(0) * LOAD(GRAD, AT(GRAD)) : 0);
}

// A pair of elements for each work item. integers: inverse
ENTRY(rope)
  u64 middle = SIZE(X, 3) / 2, j = i % middle, h = i / middle % SIZE(X, 2), t = i / middle / SIZE(X, 2) % SIZE(X, 1),
      n = i / middle / SIZE(X, 2) / SIZE(X, 1);
#define PAIR(x, d) (n * STRIDE(x, 0) + t * STRIDE(x, 1) + h * STRIDE(x, 2) + (d) * STRIDE(x, 3))
  C cosine = LOAD_ANY(COS, t * middle + j), sine = LOAD_ANY(SIN, t * middle + j), x = LOAD(X, PAIR(X, j)), y = LOAD(X, PAIR(X, j + middle));
  if (INTEGER(0)) sine = -sine;
  STORE(OUT, PAIR(OUT, j), x * cosine - y * sine);
  STORE(OUT, PAIR(OUT, j + middle), y * cosine + x * sine);
}
#endif
