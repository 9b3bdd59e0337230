// The gradient of four keys or values, over the queries of all heads that read them, 64 at a time.
var<workgroup> keys: array<f32, 1024>;
var<workgroup> values: array<f32, 1024>;
var<workgroup> sums: array<f32, 1024>;
var<workgroup> weights: array<f32, 256>;

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let blocks = (p.s + ROWS - 1u) / ROWS;
    let j0 = group_of(grid) % blocks * ROWS;
    let key_head = group_of(grid) / blocks;
    let exists = key_head < p.b * p.hk;
    let b = select(0u, key_head / p.hk, exists);
    let hk = key_head % p.hk;
    let rows = select(0u, min(ROWS, p.s - j0), exists);
    for (var r = 0u; r < rows; r += 1u) {
        for (var e = lane; e < p.d; e += 64u) { keys[r * 256u + e] = k_at(place(b, hk, j0 + r, e, p.k_strides)); }
        for (var e = lane; e < p.dv; e += 64u) { values[r * 256u + e] = v_at(place(b, hk, j0 + r, e, p.v_strides)); }
        for (var e = lane; e < $WIDE; e += 64u) { sums[r * 256u + e] = 0.0; }
    }
    workgroupBarrier();
    let share = p.h / p.hk;
    for (var member = 0u; member < share; member += 1u) {
        let head = hk * share + member;
        for (var i0 = 0u; i0 < p.t; i0 += 64u) {
            let q_row = i0 + lane;
            if (q_row < p.t) {
                let query = place(b, head, q_row, 0u, p.q_strides);
                let grad = place(b, head, q_row, 0u, p.e_strides);
                let row = (b * p.h + head) * p.t + q_row;
                for (var r = 0u; r < rows; r += 1u) {
                    var product = 0.0;
                    for (var e = 0u; e < p.d; e += 1u) { product += q_at(query + e) * keys[r * 256u + e]; }
                    var through = 0.0;
                    if ($THROUGH) {
                        for (var e = 0u; e < p.dv; e += 1u) { through += grad_at(grad + e) * values[r * 256u + e]; }
                    }
                    let score = biased(product, b, head, q_row, j0 + r);
                    let probability = probability_of(score, logsumexp_at(row));
                    weights[r * 64u + lane] = $FACTOR;
                }
            }
            workgroupBarrier();
            let count = min(64u, p.t - i0);
            for (var r = 0u; r < rows; r += 1u) {
                for (var e = lane; e < $WIDE; e += 64u) {
                    var sum = sums[r * 256u + e];
                    for (var c = 0u; c < count; c += 1u) {
                        let i = i0 + c;
                        sum += weights[r * 64u + c] * $OTHER;
                    }
                    sums[r * 256u + e] = sum;
                }
            }
            workgroupBarrier();
        }
    }
    for (var r = 0u; r < rows; r += 1u) {
        for (var e = lane; e < $WIDE; e += 64u) {
            out_put(place(b, hk, j0 + r, e, p.f_strides), sums[r * 256u + e]);
        }
    }
}
