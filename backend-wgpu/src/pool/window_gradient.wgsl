// A thread writes the input's gradient in one window, which shares no element with another.
@compute @workgroup_size(256)
fn main(grid: Grid) {
    let window = group_of(grid) * 256u + grid.lane;
    if (window >= p.count) { return; }
    let pixels = p.oh * p.ow;
    let plane = window / pixels * p.h * p.w;
    let y0 = window % pixels / p.ow * p.sh;
    let x0 = window % p.ow * p.sw;
    var best = 0u;
    var value = grad_at(window);
    if ($MAX) { best = indices_at(window).x; } else { value = value / p.size; }
    for (var y = y0; y < y0 + p.kh; y += 1u) {
        for (var x = x0; x < x0 + p.kw; x += 1u) {
            let place = y * p.w + x;
            if ($MAX) { out_put(plane + place, select(0.0, value, place == best)); } else { out_put(plane + place, value); }
        }
    }
}
