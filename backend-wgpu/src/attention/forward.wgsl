// Four queries of one head. A thread has a key of each block of 64, and every 64th element of the results.
var<workgroup> queries: array<vec4<f32>, 256>;
var<workgroup> sums: array<vec4<f32>, 256>;
var<workgroup> weights: array<vec4<f32>, 64>;
var<workgroup> halves: array<vec4<f32>, 64>;

// e^(score - largest), and 0 where nothing was seen yet.
fn weight_of(score: f32, largest: f32) -> f32 {
    if (score == -infinity()) { return 0.0; }
    return exp(score - largest);
}

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let blocks = (p.t + 3u) / 4u;
    let i0 = group_of(grid) % blocks * 4u;
    let exists = group_of(grid) / blocks < p.b * p.h;
    let head = select(0u, group_of(grid) / blocks, exists);
    let b = head / p.h;
    let h = head % p.h;
    let hk = h / (p.h / p.hk);
    let rows = min(vec4<u32>(i0, i0 + 1u, i0 + 2u, i0 + 3u), vec4<u32>(p.t - 1u));
    for (var e = lane; e < p.d; e += 64u) {
        queries[e] = vec4<f32>(
            q_at(place(b, h, rows.x, e, p.q_strides)),
            q_at(place(b, h, rows.y, e, p.q_strides)),
            q_at(place(b, h, rows.z, e, p.q_strides)),
            q_at(place(b, h, rows.w, e, p.q_strides)),
        );
    }
    for (var e = lane; e < p.dv; e += 64u) { sums[e] = vec4<f32>(0.0); }
    var largest = vec4<f32>(-infinity());
    var totals = vec4<f32>(0.0);
    workgroupBarrier();
    for (var j0 = 0u; j0 < p.s; j0 += 64u) {
        let j = j0 + lane;
        var scores = vec4<f32>(-infinity());
        if (j < p.s) {
            let begin = place(b, hk, j, 0u, p.k_strides);
            var products = vec4<f32>(0.0);
            for (var e = 0u; e < p.d; e += 1u) { products += k_at(begin + e) * queries[e]; }
            scores = vec4<f32>(
                biased(products.x, b, h, rows.x, j),
                biased(products.y, b, h, rows.y, j),
                biased(products.z, b, h, rows.z, j),
                biased(products.w, b, h, rows.w, j),
            );
        }
        weights[lane] = scores;
        workgroupBarrier();
        for (var step = p.half; step > 0u; step = step >> 1u) {
            if (lane < step) { weights[lane] = max(weights[lane], weights[lane + step]); }
            workgroupBarrier();
        }
        let now = max(largest, weights[0]);
        workgroupBarrier();
        let before = vec4<f32>(
            weight_of(largest.x, now.x),
            weight_of(largest.y, now.y),
            weight_of(largest.z, now.z),
            weight_of(largest.w, now.w),
        );
        let weight = vec4<f32>(
            weight_of(scores.x, now.x),
            weight_of(scores.y, now.y),
            weight_of(scores.z, now.z),
            weight_of(scores.w, now.w),
        );
        // The sums of the weights are made beside the weights, which are needed whole.
        weights[lane] = weight;
        halves[lane] = weight;
        workgroupBarrier();
        for (var step = p.half; step > 0u; step = step >> 1u) {
            if (lane < step) { halves[lane] = halves[lane] + halves[lane + step]; }
            workgroupBarrier();
        }
        totals = totals * before + halves[0];
        largest = now;
        // Weights beyond the last key are 0; the last one's value stands in for theirs.
        let count = min(64u, p.s - j0);
        for (var e = lane; e < p.dv; e += 64u) {
            var sum = sums[e] * before;
            for (var c = 0u; c < count; c += 4u) {
                let keys = min(vec4<u32>(j0 + c, j0 + c + 1u, j0 + c + 2u, j0 + c + 3u), vec4<u32>(p.s - 1u));
                sum += weights[c] * v_at(place(b, hk, keys.x, e, p.v_strides));
                sum += weights[c + 1u] * v_at(place(b, hk, keys.y, e, p.v_strides));
                sum += weights[c + 2u] * v_at(place(b, hk, keys.z, e, p.v_strides));
                sum += weights[c + 3u] * v_at(place(b, hk, keys.w, e, p.v_strides));
            }
            sums[e] = sum;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r += 1u) {
        if (!exists || i0 + r >= p.t) { break; }
        let seen = totals[r] > 0.0;
        for (var e = lane; e < p.dv; e += 64u) {
            out_put(place(b, h, i0 + r, e, p.e_strides), select(0.0, sums[e][r] / totals[r], seen));
        }
        if ($DENOMINATORS) {
            logsumexp_put(head * p.t + i0 + r, select(-infinity(), largest[r] + log(totals[r]), seen));
        }
    }
}
