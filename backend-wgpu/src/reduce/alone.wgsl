// A thread makes a group, or a part of one, in blocks: the error of a sum grows with their number, not with that of the elements.
@compute @workgroup_size(64)
fn main(grid: Grid) {
    let work = group_of(grid) * 64u + grid.lane;
    let o = work % p.outs;
    let part = work / p.outs;
    if (part >= p.parts) { return; }
    let base = kept_x_offset(o);
    let end = min((part + 1u) * p.length, p.total);
    var best = $START;
    for (var begin = part * p.length; begin < end; begin += 64u) {
        var block = $START;
        let stop = min(begin + 64u, end);
        for (var r = begin; r < stop; r += 1u) {
            $LOAD
            let x = one.x;
            one.x = $VALUE;
            block = join(block, one);
        }
        best = join(best, block);
    }
    $PUT
    $INDICES
}
