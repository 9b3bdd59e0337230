// z: group. m: channel of the group. n: pixel of the input, over all images. k: output of the group and place in the window.
fn a_value(z: u32, m: u32, k: u32) -> f32 {
    let window = p.kh * p.kw;
    return weight_at(((z * p.outputs + k / window) * p.m + m) * window + k % window);
}

fn b_value(z: u32, k: u32, n: u32) -> f32 {
    let pixels = p.h * p.w;
    let window = p.kh * p.kw;
    let image = n / pixels;
    let pixel = n % pixels;
    let tap = k % window;
    // The window's place that puts this tap on this pixel; what wraps round is beyond any row.
    let y = pixel / p.w + p.ph - tap / p.kw * p.dh;
    let x = pixel % p.w + p.pw - tap % p.kw * p.dw;
    let i = y / p.sh;
    let j = x / p.sw;
    let inside = i * p.sh == y && j * p.sw == x && i < p.oh && j < p.ow;
    let o = z * p.outputs + k / window;
    let at = ((image * p.groups * p.outputs + o) * p.oh + i) * p.ow + j;
    return select(0.0, grad_at(select(0u, at, inside)), inside);
}

fn store(z: u32, m: u32, n: u32, v: f32) {
    let pixels = p.h * p.w;
    out_put((n / pixels * p.groups * p.m + z * p.m + m) * pixels + n % pixels, v);
}
