// The gradient of what is added to the scores of four queries of one head and 64 keys: a thread has a key. Every pair is written, hidden
// ones too.
@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let key_blocks = (p.s + 63u) / 64u;
    let blocks = (p.t + 3u) / 4u;
    let j = group_of(grid) % key_blocks * 64u + lane;
    let above = group_of(grid) / key_blocks;
    let i0 = above % blocks * 4u;
    let exists = above / blocks < p.b * p.h;
    let four = load_four(select(0u, above / blocks, exists), i0, lane);
    if (!exists || j >= p.s) { return; }
    let gradients = score_gradients(four, j);
    for (var r = 0u; r < 4u; r += 1u) {
        if (i0 + r >= p.t) { break; }
        out_put(place(four.b, four.h, i0 + r, j, p.f_strides), gradients[r]);
    }
}
