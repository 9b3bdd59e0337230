// The gradient of keys or values: a tile has the scores of some of them with 32 queries of a head that reads them.
$BEGIN
    let hk = head % p.hk;
    let k_base = place(b, hk, 0u, 0u, p.k_strides);
    let v_base = place(b, hk, 0u, 0u, p.v_strides);
    var o$i_$n = vec4<f32>();
    let share = p.h / p.hk;
    for (var member = 0u; member < share; member += 1u) {
      let h = hk * share + member;
      let q_base = place(b, h, 0u, 0u, p.q_strides);
      let grad_base = place(b, h, 0u, 0u, p.grad_strides);
      let rows = (b * p.h + h) * p.t;
      for (var c0 = $QUERIES_BEGIN; c0 < p.t; c0 += 32u) {
$SCORES
$THROUGH
        let first = c0 + 4u * tx;
        let query$j = min(first + $ju, p.t - 1u);
        let lse$j = logsumexp_at(rows + query$j);
        let delta$j = delta_at(rows + query$j);
        let p$i_$j = probability_of(biased(s$i_$j, b, h, query$j, row$i), lse$j);
        let x$i_$j = select(0.0, $FACTOR, first + $ju < p.t);
        own[(ty + 8u * $iu) * 9u + tx] = quad(vec4<f32>(x$i_0, x$i_1, x$i_2, x$i_3));
$WEIGHTED
      }
    }
$PUT
}
