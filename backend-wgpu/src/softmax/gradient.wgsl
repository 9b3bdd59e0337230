$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n / $W, exists);
    let base = ($BASE) / $W;
    var total = 0.0;
    for (var j = lane; j < n; j += LANES) {
        let y = y_at$4(base + $J);
        let g = grad_at$4(base + $J);
        total += sum_in($TERM);
    }
    total = sum_of(lane, total);
    for (var j = lane; j < n; j += LANES) {
        let y = y_at$4(base + $J);
        let g = grad_at$4(base + $J);
        out_put$4(base + $J, $VALUE);
    }
}
