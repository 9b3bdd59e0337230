$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n, exists);
    let base = row * p.n;
    var largest = 0.0;
    for (var j = lane; j < n; j += LANES) { largest = max(largest, abs(x_at(base + j))); }
    largest = max_of(lane, largest);
    let scale = select(largest / 127.0, 1.0, largest == 0.0);
    // round() goes to the even neighbour.
    for (var j = lane; j < n; j += LANES) {
        out_put(base + j, i32(clamp(round(x_at(base + j) / scale), -127.0, 127.0)));
    }
    if (lane == 0u && exists) { scale_put(row, scale); }
}
