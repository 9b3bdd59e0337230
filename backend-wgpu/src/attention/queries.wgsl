// The gradient of four queries of one head: the scores are made again, block by block.
var<workgroup> sums: array<vec4<f32>, 256>;
var<workgroup> weights: array<vec4<f32>, 64>;

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let blocks = (p.t + 3u) / 4u;
    let i0 = group_of(grid) % blocks * 4u;
    let exists = group_of(grid) / blocks < p.b * p.h;
    let four = load_four(select(0u, group_of(grid) / blocks, exists), i0, lane);
    for (var e = lane; e < p.d; e += 64u) { sums[e] = vec4<f32>(0.0); }
    for (var j0 = 0u; j0 < p.s; j0 += 64u) {
        let j = j0 + lane;
        var weight = vec4<f32>(0.0);
        if (j < p.s) { weight = p.scale * score_gradients(four, j); }
        weights[lane] = weight;
        workgroupBarrier();
        let count = min(64u, p.s - j0);
        for (var e = lane; e < p.d; e += 64u) {
            var sum = sums[e];
            // Weights beyond the last key are 0; the last one stands in for them.
            for (var c = 0u; c < count; c += 4u) {
                let keys = min(vec4<u32>(j0 + c, j0 + c + 1u, j0 + c + 2u, j0 + c + 3u), vec4<u32>(p.s - 1u));
                sum += weights[c] * k_at(place(four.b, four.hk, keys.x, e, p.k_strides));
                sum += weights[c + 1u] * k_at(place(four.b, four.hk, keys.y, e, p.k_strides));
                sum += weights[c + 2u] * k_at(place(four.b, four.hk, keys.z, e, p.k_strides));
                sum += weights[c + 3u] * k_at(place(four.b, four.hk, keys.w, e, p.k_strides));
            }
            sums[e] = sum;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r += 1u) {
        if (!exists || i0 + r >= p.t) { break; }
        for (var e = lane; e < p.d; e += 64u) { out_put(place(four.b, four.h, i0 + r, e, p.f_strides), sums[e][r]); }
    }
}
