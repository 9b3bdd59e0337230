//! Convolution and its gradients: the same problems for all three.

use memcore::DType::F32;
use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad};

use super::common::{FLOATS, MANY};
use crate::case::Case;
use crate::data::Data::Range;
use crate::tolerance::Tolerance;

/// One convolution: input `[n, c, h, w]`, outputs, window, geometry.
struct Problem {
    name: &'static str,
    x: [usize; 4],
    outputs: usize,
    window: [usize; 2],
    geometry: Conv2dGeometry,
    /// Number of elements before the first one of every operand.
    lead: usize,
}

fn problems() -> Vec<Problem> {
    let plain = Conv2dGeometry::default();
    let same = Conv2dGeometry { padding: [1, 1], ..plain };
    let problem = |name, x, outputs, window, geometry| Problem { name, x, outputs, window, geometry, lead: 0 };
    vec![
        problem("contiguous", [2, 3, 6, 5], 4, [3, 3], same),
        problem("valid", [2, 3, 6, 5], 4, [3, 3], plain),
        Problem { lead: 3, ..problem("offset", [2, 3, 6, 5], 4, [3, 3], same) },
        problem("pointwise", [2, 3, 6, 5], 4, [1, 1], plain),
        problem("stride", [2, 2, 7, 8], 3, [3, 3], Conv2dGeometry { stride: [2, 3], ..same }),
        // No window reaches the last column of the input.
        problem("unreached", [1, 2, 6, 6], 2, [3, 3], Conv2dGeometry { stride: [2, 2], ..plain }),
        problem("dilation", [1, 2, 9, 8], 2, [3, 2], Conv2dGeometry { dilation: [2, 3], ..plain }),
        problem("groups", [2, 4, 5, 5], 6, [3, 3], Conv2dGeometry { groups: 2, ..same }),
        problem("depthwise", [2, 4, 5, 5], 4, [3, 3], Conv2dGeometry { groups: 4, ..same }),
        problem("stem", [1, 3, 14, 14], 5, [7, 7], Conv2dGeometry { stride: [2, 2], padding: [3, 3], ..plain }),
        problem("oblong", [1, 2, 3, 9], 3, [1, 5], Conv2dGeometry { padding: [0, 2], ..plain }),
        problem("padding_only_windows", [1, 1, 2, 2], 2, [2, 2], Conv2dGeometry { padding: [2, 2], ..plain }),
        problem("empty", [0, 2, 4, 4], 2, [3, 3], same),
        problem("one", [1, 1, 1, 1], 1, [1, 1], plain),
        problem("length_257", [1, 1, 1, 257], 2, [1, 3], Conv2dGeometry { padding: [0, 1], ..plain }),
        // Rows of the weight and planes of the result can be read eight elements at a time.
        problem("eights", [2, 16, 8, 8], 20, [3, 3], same),
        Problem { lead: 3, ..problem("eights_unaligned", [2, 16, 8, 8], 20, [3, 3], same) },
        problem("eights_groups", [1, 32, 8, 8], 32, [3, 3], Conv2dGeometry { groups: 2, ..same }),
        // Strides that share a factor with the dilation, and strides that do not.
        problem(
            "stride_and_dilation",
            [2, 32, 11, 12],
            32,
            [3, 3],
            Conv2dGeometry { stride: [2, 4], dilation: [3, 2], padding: [2, 1], groups: 2 },
        ),
        problem("stride_pointwise", [2, 16, 7, 8], 20, [1, 1], Conv2dGeometry { stride: [2, 2], ..plain }),
        // More rows of results than a tile has, and enough columns for a tile each on every processor of a small device.
        problem(
            "many_channels",
            [1, 144, 9, 30],
            136,
            [1, 2],
            Conv2dGeometry { stride: [1, 2], padding: [0, 1], groups: 2, ..plain },
        ),
        // More positions in a line of the window than a word has bits.
        problem("wide_window", [1, 16, 2, 36], 20, [1, 33], Conv2dGeometry { padding: [0, 16], ..plain }),
        problem("wide_patches", [1, 16, 8, 68], 20, [1, 34], Conv2dGeometry { stride: [1, 34], ..plain }),
        // Sums of several blocks of terms; more outputs than are packed at a time; planes of which many make a tile.
        problem("deep", [2, 70, 9, 7], 40, [3, 3], same),
        // What may be computed with fewer multiplications: with blocks of 2 × 2 results that end beyond the plane, other borders, and groups.
        problem("neighbours", [2, 26, 18, 21], 30, [3, 3], Conv2dGeometry { padding: [2, 0], ..plain }),
        problem("neighbours_groups", [2, 48, 7, 15], 60, [3, 3], Conv2dGeometry { groups: 2, ..same }),
        problem("deep_stride", [2, 66, 9, 8], 35, [3, 3], Conv2dGeometry { stride: [2, 2], ..same }),
        problem("many_outputs", [1, 5, 6, 6], 300, [3, 3], same),
        problem("small_planes", [40, 9, 3, 3], 20, [3, 3], same),
        problem("large_window", [1, 2, 20, 18], 3, [17, 17], plain),
        problem("channels_257", [1, 257, 2, 2], 2, [1, 1], plain),
        problem("many_images", [MANY, 1, 1, 2], 1, [1, 2], plain),
        problem("many_pixels", [1, 1, 257, 257], 1, [2, 2], plain),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for p in problems() {
            let large = p.x.iter().product::<usize>() >= MANY;
            // Problems are built with sizes that fit; a size that does not is a mistake in the table.
            let Ok([oh, ow]) = p.geometry.output_size([p.x[2], p.x[3]], p.window) else { continue };
            if large && dtype != F32 {
                continue;
            }
            let y = [p.x[0], p.outputs, oh, ow];
            let w = [p.outputs, p.x[1] / p.geometry.groups, p.window[0], p.window[1]];
            out.push(forward(&p, dtype, y, w, true));
            out.push(forward(&p, dtype, y, w, false));
            out.push(input_grad(&p, dtype, y, w));
            out.push(weight_grad(&p, dtype, y, w));
        }
    }
    out
}

fn forward(p: &Problem, dtype: memcore::DType, y: [usize; 4], w: [usize; 4], bias: bool) -> Case {
    let (name, lead, geometry) = (p.name, p.lead, p.geometry);
    let case = Case::on(dtype, if bias { name.to_string() } else { format!("{name}_without_bias") });
    let case = case.read("x", &p.x, Range(-1.0, 1.0)).offset(lead).read("weight", &w, Range(-1.0, 1.0)).offset(lead);
    let case = case.read_if(bias, "bias", &[p.outputs], Range(-1.0, 1.0)).write("out", &y).offset(lead);
    let terms = w[1] * w[2] * w[3] + 1;
    case.call(Tolerance::sum(terms, 1.0, "a sum over channels and window of products up to 1"), move |o| Conv2d {
        geometry,
        x: o.at("x"),
        weight: o.at("weight"),
        bias: o.get("bias"),
        out: o.at("out"),
        workspace: None,
    })
}

fn input_grad(p: &Problem, dtype: memcore::DType, y: [usize; 4], w: [usize; 4]) -> Case {
    let (lead, geometry) = (p.lead, p.geometry);
    let case = Case::on(dtype, p.name).read("grad", &y, Range(-1.0, 1.0)).offset(lead);
    let case = case.read("weight", &w, Range(-1.0, 1.0)).offset(lead).write("out", &p.x).offset(lead);
    let terms = p.outputs / geometry.groups * w[2] * w[3];
    let tolerance = Tolerance::sum(terms, 1.0, "a sum over outputs and window of products up to 1");
    case.call(tolerance, move |o| Conv2dInputGrad {
        geometry,
        grad: o.at("grad"),
        weight: o.at("weight"),
        out: o.at("out"),
        workspace: None,
    })
}

fn weight_grad(p: &Problem, dtype: memcore::DType, y: [usize; 4], w: [usize; 4]) -> Case {
    let (lead, geometry) = (p.lead, p.geometry);
    let case = Case::on(dtype, p.name).read("x", &p.x, Range(-1.0, 1.0)).offset(lead);
    let case = case.read("grad", &y, Range(-1.0, 1.0)).offset(lead).write("out", &w).offset(lead);
    // Beyond some thousand terms, a long sum is held to its random walk, √terms.
    let terms = (y[0] * y[2] * y[3]).min(4096);
    let tolerance = Tolerance::sum(terms, 1.0, "a sum over images and pixels of products up to 1");
    case.call(tolerance, move |o| Conv2dWeightGrad {
        geometry,
        x: o.at("x"),
        grad: o.at("grad"),
        out: o.at("out"),
        workspace: None,
    })
}
