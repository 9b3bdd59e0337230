
// Four pixels of one image: the pixels of an image are a multiple of four.
fn a_quad(z: u32, m: u32, k: vec3<u32>) -> vec4<f32> {
    return grad_at4(((((k.x * p.groups + z) * p.m + m) * p.oh + k.y) * p.ow + k.z) / 4u);
}
