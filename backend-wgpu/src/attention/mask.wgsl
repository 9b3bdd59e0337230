// The gradient of what is added to the scores of some queries of one head and 32 keys. Every pair is written, hidden ones too.
$BEGIN
$PAIRS
    let c0 = group / blocks / (p.b * p.h) * 32u;
    {
$GRADIENTS
        if (exists && r0 + ty + 8u * $iu < p.t && first + $ju < p.s) { out_put(place(b, h, row$i, first + $ju, p.out_strides), x$i_$j); }
    }
}
