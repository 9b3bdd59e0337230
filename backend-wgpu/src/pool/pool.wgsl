// A thread makes one element of the result. The part of its window inside the plane is rows y0..y1, columns x0..x1.
@compute @workgroup_size(256)
fn main(grid: Grid) {
    let at = group_of(grid) * 256u + grid.lane;
    if (at >= p.count) { return; }
    let pixels = p.oh * p.ow;
    let plane = at / pixels * p.h * p.w;
    let top = at % pixels / p.ow * p.sh;
    let left = at % p.ow * p.sw;
    let y0 = max(top, p.ph) - p.ph;
    let x0 = max(left, p.pw) - p.pw;
    let y1 = min(top + p.kh - p.ph, p.h);
    let x1 = min(left + p.kw - p.pw, p.w);
    if ($MAX) {
        var place = y0 * p.w + x0;
        var best = x_at(plane + place);
        for (var y = y0; y < y1; y += 1u) {
            for (var x = x0; x < x1; x += 1u) {
                let value = x_at(plane + y * p.w + x);
                if (!is_nan(best) && (is_nan(value) || value > best)) {
                    best = value;
                    place = y * p.w + x;
                }
            }
        }
        out_put(at, best);
        indices_put(at, vec2<u32>(place, 0u));
    } else {
        var sum = 0.0;
        for (var y = y0; y < y1; y += 1u) {
            for (var x = x0; x < x1; x += 1u) { sum += x_at(plane + y * p.w + x); }
        }
        out_put(at, sum / p.size);
    }
}
