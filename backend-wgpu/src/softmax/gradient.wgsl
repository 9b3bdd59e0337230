$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n, exists);
    let base = row * p.n;
    var total = 0.0;
    for (var j = lane; j < n; j += LANES) {
        let y = y_at(base + j);
        let g = grad_at(base + j);
        total += $TERM;
    }
    total = sum_of(lane, total);
    for (var j = lane; j < n; j += LANES) {
        let y = y_at(base + j);
        let g = grad_at(base + j);
        out_put(base + j, $VALUE);
    }
}
