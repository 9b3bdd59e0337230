// The gradient of four keys or values, over the queries of all heads that read them, 64 at a time.
var<workgroup> keys: array<vec4<f32>, 256>;
var<workgroup> values: array<vec4<f32>, 256>;
var<workgroup> sums: array<vec4<f32>, 256>;
var<workgroup> weights: array<vec4<f32>, 64>;

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let blocks = (p.s + 3u) / 4u;
    let j0 = group_of(grid) % blocks * 4u;
    let exists = group_of(grid) / blocks < p.b * p.hk;
    let key_head = select(0u, group_of(grid) / blocks, exists);
    let b = key_head / p.hk;
    let hk = key_head % p.hk;
    let rows = min(vec4<u32>(j0, j0 + 1u, j0 + 2u, j0 + 3u), vec4<u32>(p.s - 1u));
    for (var e = lane; e < p.d; e += 64u) {
        keys[e] = vec4<f32>(
            k_at(place(b, hk, rows.x, e, p.k_strides)),
            k_at(place(b, hk, rows.y, e, p.k_strides)),
            k_at(place(b, hk, rows.z, e, p.k_strides)),
            k_at(place(b, hk, rows.w, e, p.k_strides)),
        );
    }
    for (var e = lane; e < p.dv; e += 64u) {
        values[e] = vec4<f32>(
            v_at(place(b, hk, rows.x, e, p.v_strides)),
            v_at(place(b, hk, rows.y, e, p.v_strides)),
            v_at(place(b, hk, rows.z, e, p.v_strides)),
            v_at(place(b, hk, rows.w, e, p.v_strides)),
        );
    }
    for (var e = lane; e < $WIDE; e += 64u) { sums[e] = vec4<f32>(0.0); }
    workgroupBarrier();
    let share = p.h / p.hk;
    for (var member = 0u; member < share; member += 1u) {
        let head = hk * share + member;
        for (var i0 = 0u; i0 < p.t; i0 += 64u) {
            let i = i0 + lane;
            var weight = vec4<f32>(0.0);
            if (i < p.t) {
                let query = place(b, head, i, 0u, p.q_strides);
                let grad = place(b, head, i, 0u, p.e_strides);
                let row = (b * p.h + head) * p.t + i;
                var product = vec4<f32>(0.0);
                for (var e = 0u; e < p.d; e += 1u) { product += q_at(query + e) * keys[e]; }
                var through = vec4<f32>(0.0);
                if ($THROUGH) {
                    for (var e = 0u; e < p.dv; e += 1u) { through += grad_at(grad + e) * values[e]; }
                }
                let lse = logsumexp_at(row);
                let probability = vec4<f32>(
                    probability_of(biased(product.x, b, head, i, rows.x), lse),
                    probability_of(biased(product.y, b, head, i, rows.y), lse),
                    probability_of(biased(product.z, b, head, i, rows.z), lse),
                    probability_of(biased(product.w, b, head, i, rows.w), lse),
                );
                weight = $FACTOR;
            }
            weights[lane] = weight;
            workgroupBarrier();
            let count = min(64u, p.t - i0);
            for (var e = lane; e < $WIDE; e += 64u) {
                var sum = sums[e];
                // Weights beyond the last query are 0; the last one stands in for them.
                for (var c = 0u; c < count; c += 4u) {
                    let at = min(vec4<u32>(i0 + c, i0 + c + 1u, i0 + c + 2u, i0 + c + 3u), vec4<u32>(p.t - 1u));
                    sum += weights[c] * $OTHER_at(place(b, head, at.x, e, p.$STRIDES));
                    sum += weights[c + 1u] * $OTHER_at(place(b, head, at.y, e, p.$STRIDES));
                    sum += weights[c + 2u] * $OTHER_at(place(b, head, at.z, e, p.$STRIDES));
                    sum += weights[c + 3u] * $OTHER_at(place(b, head, at.w, e, p.$STRIDES));
                }
                sums[e] = sum;
            }
            workgroupBarrier();
        }
    }
    for (var r = 0u; r < 4u; r += 1u) {
        if (!exists || j0 + r >= p.s) { break; }
        for (var e = lane; e < $WIDE; e += 64u) { out_put(place(b, hk, j0 + r, e, p.f_strides), sums[e][r]); }
    }
}
