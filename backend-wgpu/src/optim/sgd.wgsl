@compute @workgroup_size(256)
fn main(grid: Grid) {
    let i = group_of(grid) * 256u + grid.lane;
    if (i >= p.n || $SKIPS) { return; }
    let w = param_at$4(i);
    var g = p.sign * grad_at$4(i) + p.weight_decay * w;
    $BUFFER
    param_put$4(i, w - p.lr * g);
}
