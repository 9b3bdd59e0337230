        {
            let e = 32u * $BLOCKu + 4u * tx;
            var x$j = vec4<f32>();
            if (e < p.$LENGTH) {
                x$j = $OTHER_four($OTHER_base + min(c0 + ty + 8u * $ju, p.$COLUMNS - 1u) * p.$OTHER_strides.z, e);
            }
            other[(ty + 8u * $ju) * 8u + tx] = quad(x$j);
            workgroupBarrier();
            for (var c = 0u; c < min(8u, (p.$COLUMNS - c0 + 3u) / 4u); c += 1u) {
                let y$j = four_of(other[(4u * c + $ju) * 8u + tx]);
                let w$i = four_of(own[(ty + 8u * $iu) * 9u + c]);
                o$i_$BLOCK = fma(w$i.wwww, y3, fma(w$i.zzzz, y2, fma(w$i.yyyy, y1, fma(w$i.xxxx, y0, o$i_$BLOCK))));
            }
            workgroupBarrier();
        }
