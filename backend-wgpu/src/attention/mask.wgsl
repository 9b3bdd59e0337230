// The gradient of what is added to the scores of four queries of one head and 64 keys: a thread has a key. Every pair is written, hidden
// ones too.
var<workgroup> queries: array<vec4<f32>, 256>;
var<workgroup> grads: array<vec4<f32>, 256>;

@compute @workgroup_size(64)
fn main(grid: Grid) {
    let lane = grid.lane;
    let key_blocks = (p.s + 63u) / 64u;
    let blocks = (p.t + 3u) / 4u;
    let j = group_of(grid) % key_blocks * 64u + lane;
    let above = group_of(grid) / key_blocks;
    let i0 = above % blocks * 4u;
    let exists = above / blocks < p.b * p.h;
    let head = select(0u, above / blocks, exists);
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
    for (var e = lane; e < p.dv; e += 64u) {
        grads[e] = vec4<f32>(
            grad_at(place(b, h, rows.x, e, p.e_strides)),
            grad_at(place(b, h, rows.y, e, p.e_strides)),
            grad_at(place(b, h, rows.z, e, p.e_strides)),
            grad_at(place(b, h, rows.w, e, p.e_strides)),
        );
    }
    workgroupBarrier();
    if (!exists || j >= p.s) { return; }
    let key = place(b, hk, j, 0u, p.k_strides);
    let value = place(b, hk, j, 0u, p.v_strides);
    var product = vec4<f32>(0.0);
    for (var e = 0u; e < p.d; e += 1u) { product += k_at(key + e) * queries[e]; }
    var through = vec4<f32>(0.0);
    for (var e = 0u; e < p.dv; e += 1u) { through += v_at(value + e) * grads[e]; }
    for (var r = 0u; r < 4u; r += 1u) {
        if (i0 + r >= p.t) { break; }
        let row = head * p.t + i0 + r;
        let probability = probability_of(biased(product[r], b, h, i0 + r, j), logsumexp_at(row));
        out_put(place(b, h, i0 + r, j, p.f_strides), probability * (through[r] - delta_at(row)));
    }
}
