$WAYS
fn same_value(a: u32, b: u32) -> bool {
    return a == b || ((a & 0x7fffffffu) > 0x7f800000u && (b & 0x7fffffffu) > 0x7f800000u);
}

fn same_bits(a: u32, b: u32) -> bool {
    return a == b || ((a & 0x7fffu) > 0x7c00u && (b & 0x7fffu) > 0x7c00u);
}

fn try_write(bits: u32) {
    let x = bitcast<f32>(bits);
    let exact = exact_bits(x);
    if (!same_bits(packed(x), exact)) { wrong_put(1u, 1u); }
    if (!same_bits(converted(x), exact)) { wrong_put(2u, 1u); }
}

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let h = group_of(grid) * 64u + grid.lane;
    if (h > 0xffffu) { return; }
    let value = bitcast<u32>(exact_value(h));
    if (!same_value(bitcast<u32>(unpacked(h)), value)) { wrong_put(0u, 1u); }
    try_write(value);
    if ((h & 0x7fffu) >= 0x7c00u) { return; }
    // The next number away from 0; 65536 stands for what is beyond the last one.
    let next = select(exact_value(h + 1u), bitcast<f32>((value & 0x80000000u) | 0x47800000u), (h & 0x7fffu) == 0x7bffu);
    let middle = bitcast<u32>(0.5 * (bitcast<f32>(value) + next));
    try_write(middle - 1u);
    try_write(middle);
    try_write(middle + 1u);
    // Far beyond, and far below.
    try_write((value & 0x80000000u) | 0x7f000000u | (h & 0x3ffu));
    try_write((value & 0x80000000u) | 0x30000000u | (h & 0x3ffu));
}
