// z: group. m: output of the group. n: image, row and column of the result. k: channel of the group, row and column of the window.
fn a_value(z: u32, m: u32, k: u32) -> f32 {
    return weight_at((z * p.m + m) * p.k + k);
}

fn b_value(z: u32, k: vec3<u32>, n: vec3<u32>) -> f32 {
    // Beyond the upper border the subtraction wraps round, and is no row either.
    let y = n.y * p.sh + k.y * p.dh - p.ph;
    let x = n.z * p.sw + k.z * p.dw - p.pw;
    let inside = y < p.h && x < p.w;
    let at = (((n.x * p.groups + z) * p.channels + k.x) * p.h + y) * p.w + x;
    return select(0.0, x_at(select(0u, at, inside)), inside);
}

fn store(z: u32, m: u32, n: u32, v: f32) {
    let pixels = p.oh * p.ow;
    let o = z * p.m + m;
    out_put((n / pixels * p.groups * p.m + o) * pixels + n % pixels, v$BIAS);
}
