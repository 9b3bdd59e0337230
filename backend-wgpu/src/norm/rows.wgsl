// Layer norm; without a mean that is taken off, RMS norm.
$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n / $W, exists);
    let base = row * (p.n / $W);
    let count = f32(p.n);
    var mean = 0.0;
    if ($CENTRED) {
        for (var j = lane; j < n; j += LANES) { mean += sum_in(x_at$4(base + j)); }
        mean = sum_of(lane, mean) / count;
    }
    var squares = 0.0;
    for (var j = lane; j < n; j += LANES) {
        let x = x_at$4(base + j) - mean;
        squares += sum_in(x * x);
    }
    let rstd = 1.0 / sqrt(sum_of(lane, squares) / count + p.eps);
    for (var j = lane; j < n; j += LANES) {
        let x = (x_at$4(base + j) - mean) * rstd;
        out_put$4(base + j, x$WEIGHT$BIAS);
    }
    if (lane == 0u && exists) {
        if ($CENTRED) { mean_put(row, mean); }
        rstd_put(row, rstd);
    }
}
