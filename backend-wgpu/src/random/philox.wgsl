// Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

// The upper word of a product.
fn high_word(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let middle = ah * bl + ((al * bl) >> 16u);
    let other = al * bh + (middle & 0xffffu);
    return ah * bh + (middle >> 16u) + (other >> 16u);
}

// The four words of a counter, counted from the call's own offset.
fn philox(index: u32) -> vec4<u32> {
    let low = p.offset_low + index;
    var c = vec4<u32>(low, p.offset_high + select(0u, 1u, low < index), 0u, 0u);
    var key = vec2<u32>(p.seed_low, p.seed_high);
    for (var round = 0u; round < 10u; round += 1u) {
        let a = vec2<u32>(c.x * 0xd2511f53u, high_word(c.x, 0xd2511f53u));
        let b = vec2<u32>(c.z * 0xcd9e8d57u, high_word(c.z, 0xcd9e8d57u));
        c = vec4<u32>(b.y ^ c.y ^ key.x, b.x, a.y ^ c.w ^ key.y, a.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

// (w >> 8) * 2^-24, exact.
fn uniform_of(word: u32) -> f32 {
    return f32(word >> 8u) * 5.9604644775390625e-8;
}
