// Sums over rows, 32 columns a workgroup: 8 threads to a column, or with four columns to a thread 32 to each four.
var<workgroup> weights: array<$T, 256>;
var<workgroup> biases: array<$T, 256>;

@compute @workgroup_size(256)
fn main(grid: Grid) {
    const COLUMNS = 32u / $W;
    const PARTS = 8u * $W;
    let n = p.n / $W;
    let part = grid.lane / COLUMNS;
    let column = group_of(grid) * COLUMNS + grid.lane % COLUMNS;
    let rows = select(0u, p.rows, column < n);
    var w = $T();
    var b = $T();
    // In blocks: the error of a long sum grows with the number of blocks, not of rows.
    var row = part;
    for (; row < rows;) {
        var block_w = $T();
        var block_b = $T();
        let stop = min(row + 32u * PARTS, rows);
        for (; row < stop; row += PARTS) {
            let g = grad_at$4(row * n + column);
            var x = x_at$4(row * n + column);
            if ($CENTRED) { x = x - mean_at(row); }
            block_w += g * x * rstd_at(row);
            block_b += g;
        }
        w += block_w;
        b += block_b;
    }
    weights[grid.lane] = w;
    biases[grid.lane] = b;
    workgroupBarrier();
    if (part == 0u && column < n) {
        for (var i = 1u; i < PARTS; i += 1u) {
            w += weights[grid.lane + COLUMNS * i];
            b += biases[grid.lane + COLUMNS * i];
        }
        $PUT_WEIGHT
        $PUT_BIAS
    }
}
