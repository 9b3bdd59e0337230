// A row is a channel: element e of it lies in image e / pixels.
fn place(channel: u32, e: u32) -> u32 {
    return (e / p.pixels * p.rows + channel) * p.pixels + e % p.pixels;
}

$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.count, exists);
    let at = select(0u, row, exists);
    let mean = mean_at(at);
    let invstd = invstd_at(at);
    var sum = 0.0;
    var sum_normal = 0.0;
    for (var e = lane; e < n; e += LANES) {
        let g = grad_at(place(row, e));
        sum += g;
        sum_normal += g * (x_at(place(row, e)) - mean) * invstd;
    }
    sum = sum_of(lane, sum);
    sum_normal = sum_of(lane, sum_normal);
    if ($WANTS_X) {
        let count = f32(p.count);
        let factor = invstd$WEIGHT;
        for (var e = lane; e < n; e += LANES) {
            var g = grad_at(place(row, e));
            if ($TRAINING) {
                let normal = (x_at(place(row, e)) - mean) * invstd;
                g = g - sum / count - normal * (sum_normal / count);
            }
            out_put(place(row, e), factor * g);
        }
    }
    if (lane == 0u && exists) {
        if ($WANTS_WEIGHT) { dweight_put(row, sum_normal); }
        if ($WANTS_BIAS) { dbias_put(row, sum); }
    }
}
