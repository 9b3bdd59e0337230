// The gradient of four queries of one head: the scores are made again, block by block.
var<workgroup> queries: array<vec4<f32>, 256>;
var<workgroup> grads: array<vec4<f32>, 256>;
var<workgroup> sums: array<vec4<f32>, 256>;
var<workgroup> weights: array<vec4<f32>, 64>;

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
    let at = vec4<u32>(head * p.t) + rows;
    let lse = vec4<f32>(logsumexp_at(at.x), logsumexp_at(at.y), logsumexp_at(at.z), logsumexp_at(at.w));
    let delta = vec4<f32>(delta_at(at.x), delta_at(at.y), delta_at(at.z), delta_at(at.w));
    for (var e = lane; e < p.d; e += 64u) {
        queries[e] = vec4<f32>(
            q_at(place(b, h, rows.x, e, p.q_strides)),
            q_at(place(b, h, rows.y, e, p.q_strides)),
            q_at(place(b, h, rows.z, e, p.q_strides)),
            q_at(place(b, h, rows.w, e, p.q_strides)),
        );
        sums[e] = vec4<f32>(0.0);
    }
    for (var e = lane; e < p.dv; e += 64u) {
        grads[e] = vec4<f32>(
            grad_at(place(b, h, rows.x, e, p.e_strides)),
            grad_at(place(b, h, rows.y, e, p.e_strides)),
            grad_at(place(b, h, rows.z, e, p.e_strides)),
            grad_at(place(b, h, rows.w, e, p.e_strides)),
        );
    }
    workgroupBarrier();
    for (var j0 = 0u; j0 < p.s; j0 += 64u) {
        let j = j0 + lane;
        var weight = vec4<f32>(0.0);
        if (j < p.s) {
            let key = place(b, hk, j, 0u, p.k_strides);
            let value = place(b, hk, j, 0u, p.v_strides);
            var product = vec4<f32>(0.0);
            for (var e = 0u; e < p.d; e += 1u) { product += k_at(key + e) * queries[e]; }
            var through = vec4<f32>(0.0);
            for (var e = 0u; e < p.dv; e += 1u) { through += v_at(value + e) * grads[e]; }
            let probability = vec4<f32>(
                probability_of(biased(product.x, b, h, rows.x, j), lse.x),
                probability_of(biased(product.y, b, h, rows.y, j), lse.y),
                probability_of(biased(product.z, b, h, rows.z, j), lse.z),
                probability_of(biased(product.w, b, h, rows.w, j), lse.w),
            );
            weight = p.scale * probability * (through - delta);
        }
        weights[lane] = weight;
        workgroupBarrier();
        let count = min(64u, p.s - j0);
        for (var e = lane; e < p.d; e += 64u) {
            var sum = sums[e];
            // Weights beyond the last key are 0; the last one stands in for them.
            for (var c = 0u; c < count; c += 4u) {
                let keys = min(vec4<u32>(j0 + c, j0 + c + 1u, j0 + c + 2u, j0 + c + 3u), vec4<u32>(p.s - 1u));
                sum += weights[c] * k_at(place(b, hk, keys.x, e, p.k_strides));
                sum += weights[c + 1u] * k_at(place(b, hk, keys.y, e, p.k_strides));
                sum += weights[c + 2u] * k_at(place(b, hk, keys.z, e, p.k_strides));
                sum += weights[c + 3u] * k_at(place(b, hk, keys.w, e, p.k_strides));
            }
            sums[e] = sum;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r += 1u) {
        if (!exists || i0 + r >= p.t) { break; }
        for (var e = lane; e < p.d; e += 64u) { out_put(place(b, h, i0 + r, e, p.f_strides), sums[e][r]); }
    }
}
