// The gradient of queries: a tile has the scores of some of them with 32 keys, which are made again.
$BEGIN
$PAIRS
    var o$i_$n = vec4<f32>();
    for (var c0 = 0u; c0 < $KEYS_END; c0 += 32u) {
$GRADIENTS
        own[(ty + 8u * $iu) * 9u + tx] = quad(p.scale * vec4<f32>(x$i_0, x$i_1, x$i_2, x$i_3));
$WEIGHTED
    }
$PUT
}
