// Rounds to nearest even.
fn bf16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, ((bits >> 16u) & 0x8000u) | 0x7fc0u, (bits & 0x7fffffffu) > 0x7f800000u);
}
