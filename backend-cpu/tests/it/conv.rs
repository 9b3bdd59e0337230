use memcore::DType;
use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad};

use crate::bench::{Bench, noise};

/// Convolution of an input `[n, c, h, w]`.
#[derive(Clone, Copy, Debug)]
struct Case {
    x: [usize; 4],
    outputs: usize,
    window: [usize; 2],
    geometry: Conv2dGeometry,
}

fn case(
    x: [usize; 4],
    outputs: usize,
    window: [usize; 2],
    [stride, padding, dilation]: [usize; 3],
    groups: usize,
) -> Case {
    let geometry = Conv2dGeometry { stride: [stride; 2], padding: [padding; 2], dilation: [dilation; 2], groups };
    Case { x, outputs, window, geometry }
}

/// Calls `f(y, x, w)` for indices of output, input and weight that meet.
fn each(c: &Case, [oh, ow]: [usize; 2], mut f: impl FnMut(usize, usize, usize)) {
    let (g, [n, channels, h, w], [kh, kw]) = (&c.geometry, c.x, c.window);
    let (per_group, outputs) = (channels / g.groups, c.outputs / g.groups);
    for i in 0..n * c.outputs * oh * ow {
        let (image, o, oy, ox) = (i / ow / oh / c.outputs, i / ow / oh % c.outputs, i / ow % oh, i % ow);
        for k in 0..per_group * kh * kw {
            let (channel, ky, kx) = (k / kw / kh, k / kw % kh, k % kw);
            let (y, x) = (oy * g.stride[0] + ky * g.dilation[0], ox * g.stride[1] + kx * g.dilation[1]);
            let (Some(y), Some(x)) = (y.checked_sub(g.padding[0]), x.checked_sub(g.padding[1])) else { continue };
            if y < h && x < w {
                f(
                    i,
                    ((image * channels + o / outputs * per_group + channel) * h + y) * w + x,
                    o * per_group * kh * kw + k,
                );
            }
        }
    }
}

fn check(dtype: DType, c: &Case, threads: usize) -> [Vec<f64>; 3] {
    let mut bench = Bench::new(threads);
    let [oh, ow] = c.geometry.output_size([c.x[2], c.x[3]], c.window).unwrap();
    let y = [c.x[0], c.outputs, oh, ow];
    let w = [c.outputs, c.x[1] / c.geometry.groups, c.window[0], c.window[1]];
    let numel = |d: [usize; 4]| d.iter().product::<usize>();
    let (xs, ws, gs, bs) = (noise(numel(c.x), 1), noise(numel(w), 2), noise(numel(y), 3), noise(c.outputs, 4));
    let mut want =
        [(0..numel(y)).map(|i| bs[i / ow / oh % c.outputs]).collect(), vec![0.0; numel(c.x)], vec![0.0; numel(w)]];
    each(c, [oh, ow], |y, x, w| {
        want[0][y] += xs[x] * ws[w];
        want[1][x] += gs[y] * ws[w];
        want[2][w] += gs[y] * xs[x];
    });
    let (x, weight, grad) = (bench.random(dtype, &c.x, 1), bench.random(dtype, &w, 2), bench.random(dtype, &y, 3));
    let bias = Some(bench.random(dtype, &[c.outputs], 4));
    let out = [y, c.x, w].map(|d| bench.garbage(dtype, memcore::Layout::contiguous(&d).unwrap()));
    let (geometry, workspace) = (c.geometry, None);
    bench.launch(Conv2d { geometry, x, weight, bias, out: out[0], workspace });
    bench.launch(Conv2dInputGrad { geometry, grad, weight, out: out[1], workspace });
    bench.launch(Conv2dWeightGrad { geometry, x, grad, out: out[2], workspace });
    let terms = [numel(w) / c.outputs, c.outputs * c.window[0] * c.window[1], numel(y) / c.outputs];
    for ((out, want), terms) in out.iter().zip(&want).zip(terms) {
        let roundings = if dtype.is_half() { 1.0 } else { 4.0 + (terms as f64).sqrt() };
        bench.assert_close(&format!("{dtype} {c:?}"), out, want, roundings);
    }
    out.map(|out| bench.read(&out))
}

const TYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

#[test]
fn all_three_agree_with_the_plain_sums() {
    let cases = [
        // Several blocks of terms; outputs beyond one packing; planes of which many make a tile.
        case([2, 70, 9, 7], 40, [3, 3], [1, 1, 1], 1),
        case([1, 5, 6, 6], 300, [3, 3], [1, 1, 1], 1),
        case([40, 9, 3, 3], 20, [3, 3], [1, 1, 1], 1),
        case([3, 33, 8, 9], 17, [1, 1], [1, 0, 1], 1),
        case([3, 33, 8, 9], 17, [1, 1], [2, 0, 1], 1),
        case([2, 12, 13, 11], 14, [3, 3], [2, 1, 1], 2),
        case([2, 6, 15, 16], 5, [3, 2], [3, 2, 2], 1),
        case([1, 3, 33, 30], 13, [7, 7], [2, 3, 1], 1),
        case([2, 8, 10, 10], 8, [3, 3], [1, 1, 1], 8),
        // More places in a window than a block has words.
        case([2, 2, 20, 18], 3, [17, 17], [1, 1, 1], 1),
        case([600, 1, 1, 1], 2, [1, 1], [1, 0, 1], 1),
        case([4, 2, 1, 1], 3, [3, 3], [1, 1, 1], 1),
    ];
    for dtype in TYPES {
        for c in &cases {
            check(dtype, c, 2);
        }
    }
}

/// Windows of 3 × 3 neighbours with channels enough: blocks of 2 × 2 that end beyond the plane, other borders, groups, outputs beyond one packing,
/// planes of which many make a task, and sums of several parts.
#[test]
fn minimal_filtering_agrees_with_the_plain_sums() {
    let cases = [
        case([2, 26, 9, 17], 31, [3, 3], [1, 0, 1], 1),
        case([2, 24, 8, 12], 70, [3, 3], [1, 2, 1], 1),
        case([2, 48, 7, 14], 60, [3, 3], [1, 1, 1], 2),
        case([1, 512, 2, 15], 130, [3, 3], [1, 1, 1], 1),
        case([70, 24, 1, 14], 24, [3, 3], [1, 1, 1], 1),
        case([3, 66, 33, 30], 25, [3, 3], [1, 1, 1], 1),
        case([0, 24, 4, 14], 24, [3, 3], [1, 1, 1], 1),
    ];
    for c in &cases {
        check(DType::F32, c, 2);
    }
}

/// Sums too long for weights that are packed once, and rows too long to be staged.
#[test]
fn what_fits_no_scratch_is_computed_all_the_same() {
    check(DType::F32, &case([1, 90_000, 1, 2], 2, [1, 1], [1, 0, 1], 1), 2);
    check(DType::BF16, &case([1, 2, 2, 260_000], 1, [2, 3], [1, 1, 1], 1), 2);
    check(DType::F32, &case([1, 1, 2, 260_000], 1, [2, 3], [1, 1, 1], 1), 2);
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for (dtype, c) in TYPES.iter().flat_map(|&dtype| [12, 22].map(|width| (dtype, [3, 34, 12, width]))) {
        let c = case(c, 28, [3, 3], [1, 1, 1], 1);
        let [one, two, five] = [1, 2, 5].map(|threads| check(dtype, &c, threads));
        assert!(one == two && one == five, "{dtype}");
    }
}
