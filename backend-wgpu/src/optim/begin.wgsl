@compute @workgroup_size(256)
fn main(grid: Grid) {
    if (grid.lane == 0u) { tensor = tensor_of(group_of(grid)); }
    workgroupBarrier();
    let entry = tensor * 8u;
    let units = table_at(entry + 1u);
    let begin = (group_of(grid) - table_at(entry)) * 2048u + grid.lane;
    let end = min(begin + 2048u, units);
    if (begin >= units || $SKIPS) { return; }
$FIRSTS