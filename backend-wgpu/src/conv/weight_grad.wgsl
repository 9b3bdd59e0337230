// z: group. m: output of the group. n: channel of the group, row and column of the window. k: image, row and column of the result.
fn a_value(z: u32, m: u32, k: vec3<u32>) -> f32 {
    return grad_at((((k.x * p.groups + z) * p.m + m) * p.oh + k.y) * p.ow + k.z);
}

fn b_value(z: u32, k: vec3<u32>, n: vec3<u32>) -> f32 {
    let y = k.y * p.sh + n.y * p.dh - p.ph;
    let x = k.z * p.sw + n.z * p.dw - p.pw;
    let inside = y < p.h && x < p.w;
    let at = (((k.x * p.groups + z) * p.channels + n.x) * p.h + y) * p.w + x;
    return select(0.0, x_at(select(0u, at, inside)), inside);
}

fn store(z: u32, m: u32, n: u32, v: f32) {
    out_put((z * p.m + m) * p.n + n, v);
}
