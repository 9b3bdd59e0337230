// z: group. m: output of the group. n: channel of the group and place in the window. k: pixel of the result, over all images.
fn a_value(z: u32, m: u32, k: u32) -> f32 {
    let pixels = p.oh * p.ow;
    return grad_at((k / pixels * p.groups * p.m + z * p.m + m) * pixels + k % pixels);
}

fn b_value(z: u32, k: u32, n: u32) -> f32 {
    let pixels = p.oh * p.ow;
    let window = p.kh * p.kw;
    let pixel = k % pixels;
    let tap = n % window;
    let y = pixel / p.ow * p.sh + tap / p.kw * p.dh - p.ph;
    let x = pixel % p.ow * p.sw + tap % p.kw * p.dw - p.pw;
    let inside = y < p.h && x < p.w;
    let channel = z * p.channels + n / window;
    let at = ((k / pixels * p.groups * p.channels + channel) * p.h + y) * p.w + x;
    return select(0.0, x_at(select(0u, at, inside)), inside);
}

fn store(z: u32, m: u32, n: u32, v: f32) {
    out_put((z * p.m + m) * p.n + n, v);
}
