// 16-bit floats in integer arithmetic, where the built-in packing leaves rounding and overflow to the driver.

fn f16_value(h: u32) -> f32 {
    let magnitude = (h & 0x7fffu) << 13u;
    let sign = (h & 0x8000u) << 16u;
    // Subnormals are multiples of 2^-24.
    let small = bitcast<u32>(f32(h & 0x3ffu) * 5.9604644775390625e-8);
    let exponent = h & 0x7c00u;
    let normal = select(magnitude + 0x38000000u, magnitude | 0x7f800000u, exponent == 0x7c00u);
    return bitcast<f32>(sign | select(normal, small, exponent == 0u));
}

// Rounds to nearest even.
fn f16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let a = bits & 0x7fffffffu;
    if (a >= 0x477ff000u) {
        return sign | select(0x7c00u, 0x7e00u, a > 0x7f800000u);
    }
    // Below 2^-14: adding 1/2 rounds at the unit of the subnormals.
    let small = bitcast<u32>(bitcast<f32>(a) + 0.5) - 0x3f000000u;
    let r = a - 0x38000000u;
    let normal = (r + 0xfffu + ((r >> 13u) & 1u)) >> 13u;
    return sign | select(normal, small, a < 0x38800000u);
}
