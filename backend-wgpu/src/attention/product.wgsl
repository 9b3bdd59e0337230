        var $SUM$i_$j = 0.0;
        for (var e0 = 0u; e0 < p.$LENGTH; e0 += 32u) {
            let steps = min(8u, (p.$LENGTH - e0 + 3u) / 4u);
            if (tx < steps) {
                own[(ty + 8u * $iu) * 9u + tx] = quad($OWN_four($OWN_base + row$i * p.$OWN_strides.z, e0 + 4u * tx));
                other[(ty + 8u * $ju) * 9u + tx] = quad($OTHER_four($OTHER_base + min(c0 + 4u * ty + $ju, p.$COLUMNS - 1u) * p.$OTHER_strides.z, e0 + 4u * tx));
            }
            workgroupBarrier();
            for (var e = 0u; e < steps; e += 1u) {
                let a$i = four_of(own[(ty + 8u * $iu) * 9u + e]);
                let b$j = four_of(other[(tx + 8u * $ju) * 9u + e]);
                $SUM$i_$j = plus($SUM$i_$j, a$i, b$j);
            }
            workgroupBarrier();
        }
