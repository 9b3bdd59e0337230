// Three passes over a group, a row or a column: its maximum, the sum of the exponentials, the result. A group of -inf alone gives NaN.
$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n / $W, exists);
    let base = ($BASE) / $W;
    var largest = -infinity();
    for (var j = lane; j < n; j += LANES) { largest = max(largest, max_in(x_at$4(base + $J))); }
    largest = max_of(lane, largest);
    var total = 0.0;
    for (var j = lane; j < n; j += LANES) { total += sum_in(exp(x_at$4(base + $J) - largest)); }
    total = sum_of(lane, total);
    for (var j = lane; j < n; j += LANES) {
        let x = x_at$4(base + $J);
        out_put$4(base + $J, $VALUE);
    }
}
