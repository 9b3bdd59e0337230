// z: group. m: channel of the group. n: image, row and column of the input. k: output of the group, row and column of the window.
fn a_value(z: u32, m: u32, k: vec3<u32>) -> f32 {
    return weight_at((((z * p.outputs + k.x) * p.m + m) * p.kh + k.y) * p.kw + k.z);
}

fn b_value(z: u32, k: vec3<u32>, n: vec3<u32>) -> f32 {
    // The window's place that puts this tap on this pixel; what wraps round is beyond any row.
    let y = n.y + p.ph - k.y * p.dh;
    let x = n.z + p.pw - k.z * p.dw;
    let i = y / $SH;
    let j = x / $SW;
    let inside = i * $SH == y && j * $SW == x && i < p.oh && j < p.ow;
    let at = (((n.x * p.groups + z) * p.outputs + k.x) * p.oh + i) * p.ow + j;
    return select(0.0, grad_at(select(0u, at, inside)), inside);
}

fn store(z: u32, m: u32, n: u32, v: f32) {
    let pixels = p.h * p.w;
    out_put((n / pixels * p.groups * p.m + z * p.m + m) * pixels + n % pixels, v);
}
