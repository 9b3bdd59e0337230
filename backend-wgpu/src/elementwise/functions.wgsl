// Functions of floats that WGSL lacks or leaves open.

// e^-z^2 times a polynomial (Press et al., "Numerical Recipes", erfcc): relative error below 1.2e-7 everywhere.
fn erfc(x: f32) -> f32 {
    let z = abs(x);
    let t = 1.0 / (1.0 + 0.5 * z);
    let r = t * exp(-z * z - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
        + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
    return select(2.0 - r, r, x >= 0.0);
}

// The standard normal distribution and its density.
fn normal_cdf(x: f32) -> f32 {
    return 0.5 * erfc(-0.70710678118654752 * x);
}

fn normal_pdf(x: f32) -> f32 {
    return 0.39894228040143268 * exp(-0.5 * x * x);
}

// Beyond 15 the result is 1; some drivers make e^x / e^x of it.
fn tanh_of(x: f32) -> f32 {
    return select(tanh(clamp(x, -15.0, 15.0)), x, is_nan(x));
}

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}

fn softplus(x: f32) -> f32 {
    return select(x, 0.0, x < 0.0) + log(1.0 + exp(-abs(x)));
}

fn hard_gate(x: f32) -> f32 {
    return clamp(x + 3.0, 0.0, 6.0) / 6.0;
}

fn gelu_inner(x: f32) -> f32 {
    return 0.79788456080286536 * (x + 0.044715 * x * x * x);
}

fn power(x: f32, y: f32) -> f32 {
    if (y == 0.0 || x == 1.0) { return 1.0; }
    if (is_nan(x) || is_nan(y)) { return nan(); }
    if (x == 0.0) { return select(0.0, infinity(), y < 0.0); }
    let magnitude = pow(abs(x), y);
    if (x > 0.0) { return magnitude; }
    if (floor(y) != y) { return nan(); }
    return select(magnitude, -magnitude, fract(0.5 * y) != 0.0);
}

// NaN wins.
fn larger(x: f32, y: f32) -> f32 {
    return select(select(y, x, x > y), nan(), is_nan(x) || is_nan(y));
}

fn smaller(x: f32, y: f32) -> f32 {
    return select(select(y, x, x < y), nan(), is_nan(x) || is_nan(y));
}

// Sine (shift 0) and cosine (shift 1): x is taken into -pi/4..pi/4 by a multiple of pi/2 in three parts, and the quadrant says which series is
// meant. Built-in ones may be off by 2^-11.
fn circular(x: f32, shift: i32) -> f32 {
    let k = round(x * 0.63661977236758134);
    let r = ((x - k * 1.5703125) - k * 4.8351287841796875e-4) - k * 3.1385570764541626e-7;
    let q = r * r;
    let odd = r + r * q * (-0.16666667 + q * (8.3333333e-3 + q * (-1.9841270e-4 + q * 2.7557319e-6)));
    let even = 1.0 - q * (0.5 - q * (0.041666667 - q * (1.3888889e-3 - q * 2.4801587e-5)));
    let quadrant = i32(k) + shift;
    let value = select(odd, even, (quadrant & 1) == 1);
    return select(value, -value, (quadrant & 2) == 2);
}
