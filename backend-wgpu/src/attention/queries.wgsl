// The gradient of four queries of one head: the scores are made again, block by block.
var<workgroup> queries: array<f32, 1024>;
var<workgroup> grads: array<f32, 1024>;
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
        for (var e = lane; e < p.d; e += 64u) {
            queries[r * 256u + e] = q_at(place(b, h, i0 + r, e, p.q_strides));
            sums[r * 256u + e] = 0.0;
        }
        for (var e = lane; e < p.dv; e += 64u) { grads[r * 256u + e] = grad_at(place(b, h, i0 + r, e, p.e_strides)); }
    }
    workgroupBarrier();
    for (var j0 = 0u; j0 < p.s; j0 += 64u) {
        let j = j0 + lane;
        if (j < p.s) {
            let key = place(b, hk, j, 0u, p.k_strides);
            let value = place(b, hk, j, 0u, p.v_strides);
            for (var r = 0u; r < rows; r += 1u) {
                var product = 0.0;
                for (var e = 0u; e < p.d; e += 1u) { product += queries[r * 256u + e] * k_at(key + e); }
                var through = 0.0;
                for (var e = 0u; e < p.dv; e += 1u) { through += grads[r * 256u + e] * v_at(value + e); }
                let row = head * p.t + i0 + r;
                let probability = probability_of(biased(product, b, h, i0 + r, j), logsumexp_at(row));
                weights[r * 64u + lane] = p.scale * probability * (through - delta_at(row));
            }
        }
        workgroupBarrier();
        let count = min(64u, p.s - j0);
        for (var r = 0u; r < rows; r += 1u) {
            for (var e = lane; e < p.d; e += 64u) {
                var sum = sums[r * 256u + e];
                for (var c = 0u; c < count; c += 1u) {
                    sum += weights[r * 64u + c] * k_at(place(b, hk, j0 + c, e, p.k_strides));
                }
                sums[r * 256u + e] = sum;
            }
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < rows; r += 1u) {
        for (var e = lane; e < p.d; e += 64u) {
            out_put(place(b, h, i0 + r, e, p.f_strides), sums[r * 256u + e]);
        }
    }
}
