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
    for (var from = part * p.length; from < end; from += 64u) {
        var block = $START;
        let stop = min(from + 64u, end);
        for (var r = from; r < stop; r += 1u) {
            var one = $LOAD;
            let x = one.x;
            one.x = $VALUE;
            block = join(block, one);
        }
        best = join(best, block);
    }
    $PUT
    $INDICES
}
