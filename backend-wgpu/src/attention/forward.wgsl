// Four queries of one head. A thread has a key of each block of 64, and every 64th element of the results.
var<workgroup> queries: array<f32, 1024>;
var<workgroup> sums: array<f32, 1024>;
var<workgroup> weights: array<f32, 256>;

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let blocks = (p.t + ROWS - 1u) / ROWS;
    let i0 = group_of(grid) % blocks * ROWS;
    let head = group_of(grid) / blocks;
    let exists = head < p.b * p.h;
    let b = select(0u, head / p.h, exists);
    let h = head % p.h;
    let hk = h / (p.h / p.hk);
    let rows = select(0u, min(ROWS, p.t - i0), exists);
    for (var r = 0u; r < rows; r += 1u) {
        for (var e = lane; e < p.d; e += 64u) { queries[r * 256u + e] = q_at(place(b, h, i0 + r, e, p.q_strides)); }
        for (var e = lane; e < p.dv; e += 64u) { sums[r * 256u + e] = 0.0; }
    }
    var largest: array<f32, 4>;
    var totals: array<f32, 4>;
    for (var r = 0u; r < ROWS; r += 1u) {
        largest[r] = -infinity();
        totals[r] = 0.0;
    }
    workgroupBarrier();
    for (var j0 = 0u; j0 < p.s; j0 += 64u) {
        let j = j0 + lane;
        var scores = vec4<f32>(-infinity());
        if (j < p.s) {
            let from = place(b, hk, j, 0u, p.k_strides);
            var products = vec4<f32>(0.0);
            for (var e = 0u; e < p.d; e += 1u) {
                let key = k_at(from + e);
                products += key * vec4<f32>(queries[e], queries[256u + e], queries[512u + e], queries[768u + e]);
            }
            for (var r = 0u; r < rows; r += 1u) { scores[r] = biased(products[r], b, h, i0 + r, j); }
        }
        for (var r = 0u; r < ROWS; r += 1u) { weights[r * 64u + lane] = scores[r]; }
        workgroupBarrier();
        let count = min(64u, p.s - j0);
        for (var r = 0u; r < rows; r += 1u) {
            var block = -infinity();
            for (var c = 0u; c < count; c += 1u) { block = max(block, weights[r * 64u + c]); }
            let now = max(largest[r], block);
            // Nothing seen yet: nothing to scale, and nothing to add.
            var before = 0.0;
            if (largest[r] > -infinity()) { before = exp(largest[r] - now); }
            var total = 0.0;
            if (now > -infinity()) {
                for (var c = 0u; c < count; c += 1u) { total += exp(weights[r * 64u + c] - now); }
                for (var e = lane; e < p.dv; e += 64u) {
                    var sum = sums[r * 256u + e] * before;
                    for (var c = 0u; c < count; c += 1u) {
                        let value = v_at(place(b, hk, j0 + c, e, p.v_strides));
                        sum += exp(weights[r * 64u + c] - now) * value;
                    }
                    sums[r * 256u + e] = sum;
                }
            }
            totals[r] = totals[r] * before + total;
            largest[r] = now;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < rows; r += 1u) {
        let seen = totals[r] > 0.0;
        for (var e = lane; e < p.dv; e += 64u) {
            out_put(place(b, h, i0 + r, e, p.e_strides), select(0.0, sums[r * 256u + e] / totals[r], seen));
        }
        if (lane == 0u) {
            logsumexp_put(head * p.t + i0 + r, select(-infinity(), largest[r] + log(totals[r]), seen));
        }
    }
}
