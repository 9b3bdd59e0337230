// 1 - e^y for y <= 0, without the loss of digits near 0.
fn one_minus_exp(y: f32) -> f32 {
    if (y < -0.35) { return 1.0 - exp(y); }
    return -y * (1.0 + y * (0.5 + y * (0.16666667 + y * (0.041666667 + y * (0.0083333333 + y * 0.0013888889)))));
}

$BEGIN
    let t = step_at(step_first);
    // The corrections 1 - beta^t.
    let correction1 = one_minus_exp(t * p.log_beta1);
    let correction2 = one_minus_exp(t * p.log_beta2);
    for (var i = begin; i < end; i += $RUN) {
        let held = param_at$4(param_first + i);
        let g = p.sign * grad_at$4(grad_first + i) + p.decay * held;
        var m = avg_at$4(avg_first + i);
        m += p.one_minus_beta1 * (g - m);
        var v = p.beta2 * sq_at$4(sq_first + i) + p.one_minus_beta2 * g * g;
        avg_put$4(avg_first + i, m);
        sq_put$4(sq_first + i, v);
        $MAX
        let denominator = sqrt(v) / $T(sqrt(correction2)) + $T(p.eps);
        param_put$4(param_first + i, p.keep * held - (p.lr / correction1) * m / denominator);
    }
}
