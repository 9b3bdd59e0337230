@compute @workgroup_size(64)
fn main(grid: Grid$SUBGROUP) {
    let lane = $LANE;
    let tx = lane % 8u;
    let ty = lane / 8u;
    let blocks = (p.$ROWS + $HEIGHT - 1u) / $HEIGHT;
    let group = group_of(grid);
    let r0 = group % blocks * $HEIGHT;
    let exists = $EXISTS;
    let head = $HEAD;
    let b = head / p.$HEADS;
    // Those beyond the last one are the last one, and are not stored.
    let row$i = min(r0 + ty + 8u * $iu, p.$ROWS - 1u);
