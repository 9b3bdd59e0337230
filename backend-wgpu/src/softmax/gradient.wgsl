$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n, exists);
    let base = $BASE;
    var total = 0.0;
    for (var j = lane; j < n; j += LANES) {
        let y = y_at(base + $J);
        let g = grad_at(base + $J);
        total += $TERM;
    }
    total = sum_of(lane, total);
    for (var j = lane; j < n; j += LANES) {
        let y = y_at(base + $J);
        let g = grad_at(base + $J);
        out_put(base + $J, $VALUE);
    }
}
