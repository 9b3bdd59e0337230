// A workgroup makes a group, or a part of one.
var<workgroup> found: array<Best, 64>;

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let o = group_of(grid) % p.outs;
    let part = group_of(grid) / p.outs;
    let base = kept_x_offset(o);
    let end = min((part + 1u) * p.length, p.total);
    var best = $START;
    for (var begin = part * p.length + lane; begin < end; begin += 4096u) {
        var block = $START;
        let stop = min(begin + 4096u, end);
        for (var r = begin; r < stop; r += 64u) {
            $LOAD
            let x = one.x;
            one.x = $VALUE;
            block = join(block, one);
        }
        best = join(best, block);
    }
    found[lane] = best;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s >> 1u) {
        if (lane < s) { found[lane] = join(found[lane], found[lane + s]); }
        workgroupBarrier();
    }
    if (lane == 0u && part < p.parts) {
        best = found[0];
        $PUT
        $INDICES
    }
}
