// An index as three digits, the lowest last; `limits` are those of the lower two. This divides.
fn digits(index: u32, limits: vec2<u32>) -> vec3<u32> {
    let above = index / limits.y;
    return vec3<u32>(above / limits.x, above % limits.x, index % limits.y);
}

// The digits of the sum of two indices. This does not.
fn advance(index: vec3<u32>, by: vec3<u32>, limits: vec2<u32>) -> vec3<u32> {
    var sum = index + by;
    let low = sum.z >= limits.y;
    sum = sum + select(vec3<u32>(), vec3<u32>(0u, 1u, 0u - limits.y), low);
    let high = sum.y >= limits.x;
    return sum + select(vec3<u32>(), vec3<u32>(1u, 0u - limits.x, 0u), high);
}
