// A workgroup of 64 looks through the indices, 64 at a time, for those that name its row, and adds their rows in their order. Each of
// its threads owns four columns.
var<workgroup> named: array<u32, 64>;
var<workgroup> earlier: u32;

fn is_row(i: u32, row: vec2<u32>) -> bool {
    return all(indices_at(i) == row);
}

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let group = group_of(grid) / p.chunks;
    let column = group_of(grid) % p.chunks * 256u + lane;
    var wanted = vec2<u32>(group, 0u);
    var exists = group < p.rows;
    if ($BY_INDEX) {
        exists = group < p.count;
        wanted = indices_at(select(0u, group, exists));
        exists = exists && wanted.y == 0u && wanted.x < p.rows;
    }
    let row = select(0u, wanted.x, exists);
    let is_padding = wanted.x == p.padding_low && wanted.y == p.padding_high;
    if ($BY_INDEX) {
        // Only the first index of its kind adds.
        named[lane] = 0u;
        for (var i = lane; i < group && i < p.count; i += 64u) {
            if (is_row(i, wanted)) { named[lane] = 1u; }
        }
        workgroupBarrier();
        if (lane == 0u) {
            var any = 0u;
            for (var i = 0u; i < 64u; i += 1u) { any = any | named[i]; }
            earlier = any;
        }
        workgroupBarrier();
        exists = exists && earlier == 0u;
        workgroupBarrier();
    }
    var sums: array<f32, 4>;
    for (var c = 0u; c < 4u; c += 1u) {
        let j = column + 64u * c;
        sums[c] = 0.0;
        if (exists && j < p.n) { sums[c] = $HELD; }
    }
    for (var base = 0u; base < p.count; base += 64u) {
        named[lane] = 0u;
        if (exists && !is_padding && base + lane < p.count && is_row(base + lane, wanted)) { named[lane] = 1u; }
        workgroupBarrier();
        for (var i = 0u; i < 64u; i += 1u) {
            if (named[i] != 0u) {
                for (var c = 0u; c < 4u; c += 1u) {
                    let j = column + 64u * c;
                    if (j < p.n) { sums[c] += src_at((base + i) * p.n + j); }
                }
            }
        }
        workgroupBarrier();
    }
    for (var c = 0u; c < 4u; c += 1u) {
        let j = column + 64u * c;
        if (exists && j < p.n) { out_put(row * p.n + j, sums[c]); }
    }
}
