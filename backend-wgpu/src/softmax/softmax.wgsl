// Three passes over a row: its maximum, the sum of the exponentials, the result. A row of -inf alone gives NaN.
$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.n, exists);
    let base = row * p.n;
    var largest = -infinity();
    for (var j = lane; j < n; j += LANES) { largest = max(largest, x_at(base + j)); }
    largest = max_of(lane, largest);
    var total = 0.0;
    for (var j = lane; j < n; j += LANES) { total += exp(x_at(base + j) - largest); }
    total = sum_of(lane, total);
    for (var j = lane; j < n; j += LANES) {
        let x = x_at(base + j);
        out_put(base + j, $VALUE);
    }
}
