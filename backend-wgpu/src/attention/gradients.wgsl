$SCORES
$THROUGH
        let first = c0 + 4u * tx;
        let j$j = min(first + $ju, p.s - 1u);
        let x$i_$j = select(0.0, probability_of(biased(s$i_$j, b, h, row$i, j$j), lse$i) * (t$i_$j - delta$i), first + $ju < p.s);
