
fn a_quad(z: u32, m: u32, k: u32) -> vec4<f32> {
    return weight_at4(((z * p.m + m) * p.k + k) / 4u);
}
