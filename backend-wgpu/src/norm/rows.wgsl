// Layer norm; without a mean that is taken off, RMS norm.
$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n, exists);
    let base = row * p.n;
    let count = f32(p.n);
    var mean = 0.0;
    if ($CENTRED) {
        for (var j = lane; j < n; j += LANES) { mean += x_at(base + j); }
        mean = sum_of(lane, mean) / count;
    }
    var squares = 0.0;
    for (var j = lane; j < n; j += LANES) {
        let x = x_at(base + j) - mean;
        squares += x * x;
    }
    let rstd = 1.0 / sqrt(sum_of(lane, squares) / count + p.eps);
    for (var j = lane; j < n; j += LANES) {
        let x = (x_at(base + j) - mean) * rstd;
        out_put(base + j, x$WEIGHT$BIAS);
    }
    if (lane == 0u && exists) {
        if ($CENTRED) { mean_put(row, mean); }
        rstd_put(row, rstd);
    }
}
