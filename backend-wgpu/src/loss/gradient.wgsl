@compute @workgroup_size(256)
fn main(grid: Grid) {
    let at = group_of(grid) * 256u + grid.lane;
    if (at >= p.count) { return; }
    let plane = at / p.inner;
    let i = plane / p.classes * p.inner + at % p.inner;
    let of_target = plane / p.classes * p.example + at % p.inner * p.position;
    let label = labels_at(i);
    var value = 0.0;
    let ignored = label.x == p.ignored_low && label.y == p.ignored_high;
    if (!ignored && label.y == 0u && label.x == plane % p.classes) { value = $VALUE; }
    out_put(at, value);
}
