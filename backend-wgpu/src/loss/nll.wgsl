// One workgroup adds up all losses.
@compute @workgroup_size(256)
fn main(grid: Grid) {
    let lane = grid.lane;
    var sum = 0.0;
    var counted = 0.0;
    for (var i = lane; i < p.targets; i += 256u) {
        let label = labels_at(i);
        var loss = 0.0;
        if (label.x != p.ignored_low || label.y != p.ignored_high) {
            counted += 1.0;
            loss = nan();
            if (label.y == 0u && label.x < p.classes) { loss = -log_probs_at((i / p.inner * p.classes + label.x) * p.inner + i % p.inner); }
        }
        sum += loss;
        $EACH
    }
    sum = sum_of(lane, sum);
    counted = sum_of(lane, counted);
    if (lane == 0u) {
        total_weight_put(0u, counted);
        $ALL
    }
}
