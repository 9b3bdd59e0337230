$BEGIN
    for (var i = begin; i < end; i += $RUN) {
        let g = grad_at$4(grad_first + i);
        // Whoever finds one writes the same.
        if (!($FINITE)) { found_inf_put(0u, 1.0); }
        grad_put$4(grad_first + i, g * inv_scale_at(0u));
    }
}
