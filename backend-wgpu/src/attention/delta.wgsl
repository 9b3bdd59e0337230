@compute @workgroup_size(64)
fn main(grid: Grid) {
    let row = group_of(grid) * 64u + grid.lane;
    if (row >= p.rows) { return; }
    let place = vec4<u32>(row / (p.h * p.t), row / p.t % p.h, row % p.t, 0u);
    let begin = dot(place, p.e_strides);
    let other = dot(place, p.f_strides);
    var sum = 0.0;
    for (var e = 0u; e < p.dv; e += 1u) { sum += grad_at(begin + e) * result_at(other + e); }
    delta_put(row, sum);
}
