$BEGIN
    for (var i = begin; i < end; i += $RUN) {
        let w = param_at$4(param_first + i);
        var g = p.sign * grad_at$4(grad_first + i) + p.weight_decay * w;
        $BUFFER
        param_put$4(param_first + i, w - p.lr * g);
    }
}
