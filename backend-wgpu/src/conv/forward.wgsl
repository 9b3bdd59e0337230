// z: group. m: output of the group. n: pixel of the result, over all images. k: channel of the group and place in the window.
fn a_value(z: u32, m: u32, k: u32) -> f32 {
    return weight_at((z * p.m + m) * p.k + k);
}

fn b_value(z: u32, k: u32, n: u32) -> f32 {
    let pixels = p.oh * p.ow;
    let window = p.kh * p.kw;
    let image = n / pixels;
    let pixel = n % pixels;
    let tap = k % window;
    // Beyond the upper border the subtraction wraps round, and is no row either.
    let y = pixel / p.ow * p.sh + tap / p.kw * p.dh - p.ph;
    let x = pixel % p.ow * p.sw + tap % p.kw * p.dw - p.pw;
    let inside = y < p.h && x < p.w;
    let channel = z * p.channels + k / window;
    let at = ((image * p.groups * p.channels + channel) * p.h + y) * p.w + x;
    return select(0.0, x_at(select(0u, at, inside)), inside);
}

fn store(z: u32, m: u32, n: u32, v: f32) {
    let pixels = p.oh * p.ow;
    let o = z * p.m + m;
    out_put((n / pixels * p.groups * p.m + o) * pixels + n % pixels, v$BIAS);
}
