// With x' the normalised input and g = grad * weight: rstd * (g - mean(g) - x' * mean(g * x')).
$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n / $W, exists);
    let base = row * (p.n / $W);
    let at = select(0u, row, exists);
    let rstd = rstd_at(at);
    var mean = 0.0;
    if ($CENTRED) { mean = mean_at(at); }
    var sum_g = 0.0;
    var sum_gx = 0.0;
    for (var j = lane; j < n; j += LANES) {
        let g = grad_at$4(base + j)$WEIGHT;
        sum_g += sum_in(g);
        sum_gx += sum_in(g * (x_at$4(base + j) - mean) * rstd);
    }
    let count = f32(p.n);
    var mean_g = 0.0;
    if ($CENTRED) { mean_g = sum_of(lane, sum_g) / count; }
    let mean_gx = sum_of(lane, sum_gx) / count;
    for (var j = lane; j < n; j += LANES) {
        let g = grad_at$4(base + j)$WEIGHT;
        let x = (x_at$4(base + j) - mean) * rstd;
        out_put$4(base + j, rstd * (g - mean_g - x * mean_gx));
    }
}
