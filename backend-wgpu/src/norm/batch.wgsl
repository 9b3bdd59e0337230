// A row is a channel: element e of it lies in image e / pixels.
fn place(channel: u32, e: u32) -> u32 {
    return (e / p.pixels * p.rows + channel) * p.pixels + e % p.pixels;
}

$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.count, exists);
    let at = select(0u, row, exists);
    let count = f32(p.count);
    var mean = 0.0;
    var variance = 0.0;
    if ($TRAINING) {
        for (var e = lane; e < n; e += LANES) { mean += x_at(place(row, e)); }
        mean = sum_of(lane, mean) / count;
        for (var e = lane; e < n; e += LANES) {
            let x = x_at(place(row, e)) - mean;
            variance += x * x;
        }
        variance = sum_of(lane, variance) / count;
    } else {
        mean = running_mean_at(at);
        variance = running_var_at(at);
    }
    let invstd = 1.0 / sqrt(variance + p.eps);
    for (var e = lane; e < n; e += LANES) {
        let x = (x_at(place(row, e)) - mean) * invstd;
        out_put(place(row, e), x$WEIGHT$BIAS);
    }
    if ($TRAINING && lane == 0u && exists) {
        save_mean_put(row, mean);
        save_invstd_put(row, invstd);
        if ($RUNNING_MEAN) { running_mean_put(row, p.kept * running_mean_at(row) + p.momentum * mean); }
        if ($RUNNING_VAR) {
            let unbiased = variance * count / (count - 1.0);
            running_var_put(row, p.kept * running_var_at(row) + p.momentum * unbiased);
        }
    }
}
