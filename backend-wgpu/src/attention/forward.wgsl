// Attention: a tile has the scores of some queries with 32 keys; sums are scaled anew when a larger score is seen.
$BEGIN
    let h = head % p.h;
    let hk = h / (p.h / p.hk);
    let q_base = place(b, h, 0u, 0u, p.q_strides);
    let k_base = place(b, hk, 0u, 0u, p.k_strides);
    let v_base = place(b, hk, 0u, 0u, p.v_strides);
    var o$i_$n = vec4<f32>();
    var largest$i = -infinity();
    // Of the thread's own columns.
    var total$i = 0.0;
    for (var c0 = 0u; c0 < $KEYS_END; c0 += 32u) {
$SCORES
        let first = c0 + 4u * tx;
        let j$j = min(first + $ju, p.s - 1u);
        let x$i_$j = select(-infinity(), biased(s$i_$j, b, h, row$i, j$j), first + $ju < p.s);
        var most$i = max(max(x$i_0, x$i_1), max(x$i_2, x$i_3));
$LARGEST
        let now$i = max(largest$i, most$i);
        let before$i = weight_of(largest$i, now$i);
        let weight$i = vec4<f32>(weight_of(x$i_0, now$i), weight_of(x$i_1, now$i), weight_of(x$i_2, now$i), weight_of(x$i_3, now$i));
        total$i = total$i * before$i + ((weight$i.x + weight$i.y) + (weight$i.z + weight$i.w));
        largest$i = now$i;
        o$i_$n = o$i_$n * before$i;
        own[(ty + 8u * $iu) * 9u + tx] = quad(weight$i);
$WEIGHTED
    }
$TOTAL
    let seen$i = total$i > 0.0;
    o$i_$n = select(vec4<f32>(), o$i_$n / total$i, seen$i);
$PUT
    if ($DENOMINATORS && exists && r0 + ty + 8u * $iu < p.t) { logsumexp_put(head * p.t + row$i, select(-infinity(), largest$i + log(total$i), seen$i)); }
}
