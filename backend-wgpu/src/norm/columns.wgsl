// Sums over rows, 32 columns a workgroup, 8 threads to a column.
var<workgroup> weights: array<f32, 256>;
var<workgroup> biases: array<f32, 256>;

@compute @workgroup_size(256)
fn main(grid: Grid) {
    let part = grid.lane / 32u;
    let column = group_of(grid) * 32u + grid.lane % 32u;
    let rows = select(0u, p.rows, column < p.n);
    var w = 0.0;
    var b = 0.0;
    // In blocks: the error of a long sum grows with the number of blocks, not of rows.
    var row = part;
    for (; row < rows;) {
        var block_w = 0.0;
        var block_b = 0.0;
        let stop = min(row + 256u, rows);
        for (; row < stop; row += 8u) {
            let g = grad_at(row * p.n + column);
            var x = x_at(row * p.n + column);
            if ($CENTRED) { x -= mean_at(row); }
            block_w += g * x * rstd_at(row);
            block_b += g;
        }
        w += block_w;
        b += block_b;
    }
    weights[grid.lane] = w;
    biases[grid.lane] = b;
    workgroupBarrier();
    if (part == 0u && column < p.n) {
        for (var i = 1u; i < 8u; i += 1u) {
            w += weights[grid.lane + 32u * i];
            b += biases[grid.lane + 32u * i];
        }
        $PUT_WEIGHT
        $PUT_BIAS
    }
}
