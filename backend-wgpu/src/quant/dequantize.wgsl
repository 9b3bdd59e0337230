@compute @workgroup_size(256)
fn main(grid: Grid) {
    let at = group_of(grid) * 256u + grid.lane;
    if (at >= p.count) { return; }
    out_put(at, f32(x_at(at)) * scale_at(at / p.n));
}
