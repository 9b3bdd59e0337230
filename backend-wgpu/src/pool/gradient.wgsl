// A thread makes one element of the input's gradient: it visits the windows that cover it, rows i0..i1 and columns j0..j1 of the result.
@compute @workgroup_size(256)
fn main(grid: Grid) {
    let at = group_of(grid) * 256u + grid.lane;
    if (at >= p.count) { return; }
    let pixels = p.h * p.w;
    let place = at % pixels;
    let plane = at / pixels * p.oh * p.ow;
    let y = place / p.w + p.ph;
    let x = place % p.w + p.pw;
    // The first window that reaches it begins no earlier than y - kh + 1.
    let i0 = (max(y + 1u, p.kh) - p.kh + p.sh - 1u) / p.sh;
    let j0 = (max(x + 1u, p.kw) - p.kw + p.sw - 1u) / p.sw;
    let i1 = min(y / p.sh + 1u, p.oh);
    let j1 = min(x / p.sw + 1u, p.ow);
    var sum = 0.0;
    for (var i = i0; i < i1; i += 1u) {
        for (var j = j0; j < j1; j += 1u) {
            let window = plane + i * p.ow + j;
            if ($MAX) {
                if (indices_at(window).x == place) { sum += grad_at(window); }
            } else {
                sum += grad_at(window) / p.size;
            }
        }
    }
    out_put(at, sum);
}
