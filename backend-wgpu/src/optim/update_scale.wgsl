@compute @workgroup_size(1)
fn main() {
    if (found_inf_at(0u) != 0.0) {
        scale_put(0u, scale_at(0u) * p.backoff);
        tracker_put(0u, 0);
        return;
    }
    let clean = tracker_at(0u) + 1;
    if (clean != p.interval) {
        tracker_put(0u, clean);
        return;
    }
    let grown = scale_at(0u) * p.growth;
    if (is_finite(grown)) { scale_put(0u, grown); }
    tracker_put(0u, 0);
}
