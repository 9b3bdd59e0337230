
// Four pixels of one image: the pixels of an image are a multiple of four.
fn a_quad(z: u32, m: u32, k: u32) -> vec4<f32> {
    let pixels = p.oh * p.ow;
    return grad_at4(((k / pixels * p.groups * p.m + z * p.m + m) * pixels + k % pixels) / 4u);
}
