// Four queries of one head, with the gradients of their results, and what a key adds to the gradient of their scores.
var<workgroup> queries: array<vec4<f32>, 256>;
var<workgroup> grads: array<vec4<f32>, 256>;

// Where the four are: those beyond the last one are the last one.
struct Four {
    b: u32,
    h: u32,
    // The key head that serves them.
    hk: u32,
    rows: vec4<u32>,
    lse: vec4<f32>,
    delta: vec4<f32>,
}

// The four from query i0 on of a head of all batches, brought into workgroup memory by its 64 threads together.
fn load_four(head: u32, i0: u32, lane: u32) -> Four {
    var four: Four;
    four.b = head / p.h;
    four.h = head % p.h;
    four.hk = four.h / (p.h / p.hk);
    four.rows = min(vec4<u32>(i0, i0 + 1u, i0 + 2u, i0 + 3u), vec4<u32>(p.t - 1u));
    let rows = four.rows;
    let at = vec4<u32>(head * p.t) + rows;
    four.lse = vec4<f32>(logsumexp_at(at.x), logsumexp_at(at.y), logsumexp_at(at.z), logsumexp_at(at.w));
    four.delta = vec4<f32>(delta_at(at.x), delta_at(at.y), delta_at(at.z), delta_at(at.w));
    for (var e = lane; e < p.d; e += 64u) {
        queries[e] = vec4<f32>(
            q_at(place(four.b, four.h, rows.x, e, p.q_strides)),
            q_at(place(four.b, four.h, rows.y, e, p.q_strides)),
            q_at(place(four.b, four.h, rows.z, e, p.q_strides)),
            q_at(place(four.b, four.h, rows.w, e, p.q_strides)),
        );
    }
    for (var e = lane; e < p.dv; e += 64u) {
        grads[e] = vec4<f32>(
            grad_at(place(four.b, four.h, rows.x, e, p.e_strides)),
            grad_at(place(four.b, four.h, rows.y, e, p.e_strides)),
            grad_at(place(four.b, four.h, rows.z, e, p.e_strides)),
            grad_at(place(four.b, four.h, rows.w, e, p.e_strides)),
        );
    }
    workgroupBarrier();
    return four;
}

// The gradients of the scores of the four and key j, which exists.
fn score_gradients(four: Four, j: u32) -> vec4<f32> {
    let key = place(four.b, four.hk, j, 0u, p.k_strides);
    let value = place(four.b, four.hk, j, 0u, p.v_strides);
    var product = vec4<f32>(0.0);
    for (var e = 0u; e < p.d; e += 1u) { product += k_at(key + e) * queries[e]; }
    var through = vec4<f32>(0.0);
    for (var e = 0u; e < p.dv; e += 1u) { through += v_at(value + e) * grads[e]; }
    let probability = vec4<f32>(
        probability_of(biased(product.x, four.b, four.h, four.rows.x, j), four.lse.x),
        probability_of(biased(product.y, four.b, four.h, four.rows.y, j), four.lse.y),
        probability_of(biased(product.z, four.b, four.h, four.rows.z, j), four.lse.z),
        probability_of(biased(product.w, four.b, four.h, four.rows.w, j), four.lse.w),
    );
    return probability * (through - four.delta);
}
