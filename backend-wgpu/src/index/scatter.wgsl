// A workgroup of 64 looks through the indices, 64 at a time, for those that name its row, and adds their rows in their order. Each of
// its threads owns four columns.
var<workgroup> named: array<atomic<u32>, 2>;

fn is_row(i: u32, row: vec2<u32>) -> bool {
    return all(indices_at(i) == row);
}

fn src_or_0(i: u32, j: u32) -> f32 {
    if (j >= p.n) { return 0.0; }
    return src_at(i * p.row_step + j * p.step);
}

fn held_or_0(row: u32, j: u32, exists: bool) -> f32 {
    if (!exists || j >= p.n) { return 0.0; }
    return $HELD;
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
        if (lane < 2u) { atomicStore(&named[lane], 0u); }
        workgroupBarrier();
        for (var i = lane; i < group && i < p.count; i += 64u) {
            if (is_row(i, wanted)) { atomicStore(&named[0], 1u); }
        }
        workgroupBarrier();
        exists = exists && atomicLoad(&named[0]) == 0u;
        workgroupBarrier();
    }
    var sums = vec4<f32>(
        held_or_0(row, column, exists),
        held_or_0(row, column + 64u, exists),
        held_or_0(row, column + 128u, exists),
        held_or_0(row, column + 192u, exists),
    );
    for (var base = 0u; base < p.count; base += 64u) {
        if (lane < 2u) { atomicStore(&named[lane], 0u); }
        workgroupBarrier();
        if (exists && !is_padding && base + lane < p.count && is_row(base + lane, wanted)) {
            atomicOr(&named[lane / 32u], 1u << (lane % 32u));
        }
        workgroupBarrier();
        for (var word = 0u; word < 2u; word += 1u) {
            // One step for each index found, in their order.
            var bits = atomicLoad(&named[word]);
            for (; bits != 0u; bits &= bits - 1u) {
                let i = base + 32u * word + countTrailingZeros(bits);
                sums += vec4<f32>(
                    src_or_0(i, column),
                    src_or_0(i, column + 64u),
                    src_or_0(i, column + 128u),
                    src_or_0(i, column + 192u),
                );
            }
        }
        workgroupBarrier();
    }
    for (var c = 0u; c < 4u; c += 1u) {
        let j = column + 64u * c;
        if (exists && j < p.n) { out_put(row * p.n + j, sums[c]); }
    }
}
