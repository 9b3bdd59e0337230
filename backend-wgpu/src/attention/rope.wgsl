@compute @workgroup_size(256)
fn main(grid: Grid) {
    let at = group_of(grid) * 256u + grid.lane;
    if (at >= p.pairs) { return; }
    let i = at % p.half;
    let head = at / p.half % p.h;
    let position = at / (p.half * p.h) % p.t;
    let b = at / (p.half * p.h * p.t);
    let place = vec4<u32>(b, position, head, i);
    let begin = dot(place, p.x_strides);
    let to = dot(place, p.out_strides);
    let c = cosines_at(position * p.half + i);
    let s = p.sign * sines_at(position * p.half + i);
    let low = x_at(begin);
    let high = x_at(begin + p.half * p.x_strides.w);
    out_put(to, low * c - high * s);
    out_put(to + p.half * p.out_strides.w, high * c + low * s);
}
