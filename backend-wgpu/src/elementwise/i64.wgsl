// 64-bit integers as two words, the low one first.

fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn i64_neg(a: vec2<u32>) -> vec2<u32> {
    return i64_add(~a, vec2<u32>(1u, 0u));
}

fn i64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return i64_add(a, i64_neg(b));
}

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

fn i64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x * b.x, high_word(a.x, b.x) + a.x * b.y + a.y * b.x);
}

fn i64_is_negative(a: vec2<u32>) -> bool {
    return (a.y >> 31u) != 0u;
}

fn i64_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    let ah = bitcast<i32>(a.y);
    let bh = bitcast<i32>(b.y);
    return ah < bh || (ah == bh && a.x < b.x);
}

fn i64_of_i32(x: i32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}

// Truncates towards zero.
fn i64_of_f32(x: f32) -> vec2<u32> {
    let t = trunc(abs(x));
    let high = floor(t * 2.3283064365386963e-10);
    let v = vec2<u32>(u32(t - high * 4294967296.0), u32(high));
    if (x < 0.0) { return i64_neg(v); }
    return v;
}

// Rounds once: the leading 32 bits, the last one standing for all that were cut off.
fn f32_of_i64(a: vec2<u32>) -> f32 {
    let negative = i64_is_negative(a);
    var v = a;
    if (negative) { v = i64_neg(a); }
    var x = f32(v.x);
    if (v.y != 0u) {
        let shift = 32u - countLeadingZeros(v.y);
        var top = v.y;
        var cut = v.x;
        if (shift < 32u) {
            top = (v.y << (32u - shift)) | (v.x >> shift);
            cut = v.x << (32u - shift);
        }
        x = f32(top | select(0u, 1u, cut != 0u)) * bitcast<f32>((127u + shift) << 23u);
    }
    return select(x, -x, negative);
}

fn i64_clamp(x: vec2<u32>, low: vec2<u32>, high: vec2<u32>) -> vec2<u32> {
    if (i64_less(x, low)) { return low; }
    if (i64_less(high, x)) { return high; }
    return x;
}
