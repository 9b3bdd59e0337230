// With x' the normalised input and g = grad * weight: rstd * (g - mean(g) - x' * mean(g * x')).
$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n, exists);
    let base = row * p.n;
    let at = select(0u, row, exists);
    let rstd = rstd_at(at);
    var mean = 0.0;
    if ($CENTRED) { mean = mean_at(at); }
    var sum_g = 0.0;
    var sum_gx = 0.0;
    for (var j = lane; j < n; j += LANES) {
        let g = grad_at(base + j)$WEIGHT;
        sum_g += g;
        sum_gx += g * (x_at(base + j) - mean) * rstd;
    }
    let count = f32(p.n);
    var mean_g = 0.0;
    if ($CENTRED) { mean_g = sum_of(lane, sum_g) / count; }
    let mean_gx = sum_of(lane, sum_gx) / count;
    for (var j = lane; j < n; j += LANES) {
        let g = grad_at(base + j)$WEIGHT;
        let x = (x_at(base + j) - mean) * rstd;
        out_put(base + j, rstd * (g - mean_g - x * mean_gx));
    }
}
