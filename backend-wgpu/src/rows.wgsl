var<workgroup> parts: array<f32, $LANES>;

fn sum_of(lane: u32, x: f32) -> f32 {
    parts[lane] = x;
    workgroupBarrier();
    for (var s = $HALF; s > 0u; s = s >> 1u) {
        if (lane < s) { parts[lane] = parts[lane] + parts[lane + s]; }
        workgroupBarrier();
    }
    let total = parts[0];
    workgroupBarrier();
    return total;
}

fn max_of(lane: u32, x: f32) -> f32 {
    parts[lane] = x;
    workgroupBarrier();
    for (var s = $HALF; s > 0u; s = s >> 1u) {
        if (lane < s) { parts[lane] = max(parts[lane], parts[lane + s]); }
        workgroupBarrier();
    }
    let largest = parts[0];
    workgroupBarrier();
    return largest;
}
