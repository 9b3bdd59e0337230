@compute @workgroup_size(256)
fn main(grid: Grid) {
    let at = group_of(grid) * 256u + grid.lane;
    if (at >= p.count) { return; }
    let index = indices_at(at / p.n);
    var value = $MISSING;
    if (index.y == 0u && index.x < p.rows) { value = rows_of_at$4(index.x * p.row_step + at % p.n * p.step); }
    out_put$4(at, value);
}
