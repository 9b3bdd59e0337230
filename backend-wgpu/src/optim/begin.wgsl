@compute @workgroup_size(256)
fn main(grid: Grid) {
    let entry = tensor_of(group_of(grid)) * 8u;
    let units = table_at(entry + 1u);
    // Every $RUN threads have eight times as many units beside each other.
    let begin = (group_of(grid) - table_at(entry)) * 2048u + grid.lane / $RUN * (8u * $RUN) + grid.lane % $RUN;
    let end = min(begin + 8u * $RUN, units);
    if (begin >= units || $SKIPS) { return; }
$FIRSTS