// What every kernel begins with.

struct Grid {
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
}

// The number of the workgroup; those beyond 65 535 lie in y.
fn group_of(grid: Grid) -> u32 {
    return grid.group.y * grid.groups.x + grid.group.x;
}

// WGSL lets a compiler assume that there is no NaN; its bits are there all the same.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

fn nan() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}

fn infinity() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}
