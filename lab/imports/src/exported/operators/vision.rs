//! Convolutions, pooling, and pictures made larger.

use memcore::ops::{self, Conv2dGeometry, Pool2dGeometry};
use memcore::{Result, Tensor};

use super::super::call::Call;
use super::super::program::Arg;
use super::super::value::Made;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("conv2d.default", conv2d),
    ("conv2d.padding", conv2d_padding),
    ("conv_transpose2d.input", conv_transpose2d),
    ("max_pool2d.default", max_pool2d),
    ("avg_pool2d.default", avg_pool2d),
    ("adaptive_avg_pool2d.default", adaptive_avg_pool2d),
    ("upsample_nearest2d.vec", upsample_nearest2d),
    ("pad.default", pad),
    ("constant_pad_nd.default", constant_pad),
];

fn groups(c: &Call<'_>) -> Result<usize> {
    usize::try_from(c.int_or("groups", 1)?).map_err(|_| c.error("a negative number of groups"))
}

fn convolution(c: &Call<'_>, padding: [usize; 2]) -> Result<Made> {
    let (stride, dilation) = (c.pair("stride", [1, 1])?, c.pair("dilation", [1, 1])?);
    let geometry = Conv2dGeometry { stride, padding, dilation, groups: groups(c)? };
    Ok(Made::tensor(ops::conv2d(c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?, geometry)?))
}

fn conv2d(c: &Call<'_>) -> Result<Made> {
    let padding = c.pair("padding", [0, 0])?;
    convolution(c, padding)
}

/// Padding by name: none, or as much as keeps the size where it is the same on both sides.
fn conv2d_padding(c: &Call<'_>) -> Result<Made> {
    let [_, _, kh, kw] = *c.tensor("weight")?.dims() else {
        return Err(c.error("a weight of other than four dimensions"));
    };
    match c.text("padding")?.unwrap_or("valid") {
        "valid" => convolution(c, [0, 0]),
        "same" => {
            let dilation = c.pair("dilation", [1, 1])?;
            let total = [dilation[0] * kh.saturating_sub(1), dilation[1] * kw.saturating_sub(1)];
            if total.iter().any(|total| total % 2 == 1) {
                return Err(c.error("padding=\"same\" that differs between the two sides is not represented"));
            }
            convolution(c, total.map(|total| total / 2))
        }
        other => Err(c.error(format!("padding={other:?}"))),
    }
}

fn conv_transpose2d(c: &Call<'_>) -> Result<Made> {
    let (stride, padding) = (c.pair("stride", [1, 1])?, c.pair("padding", [0, 0])?);
    let geometry = Conv2dGeometry { stride, padding, dilation: c.pair("dilation", [1, 1])?, groups: groups(c)? };
    let (x, weight, bias) = (c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?);
    Ok(Made::tensor(ops::conv_transpose2d(x, weight, bias, geometry, c.pair("output_padding", [0, 0])?)?))
}

fn max_pool2d(c: &Call<'_>) -> Result<Made> {
    c.not_set("ceil_mode")?;
    if c.pair("dilation", [1, 1])? != [1, 1] {
        return Err(c.error("windows with gaps (dilation) are not represented"));
    }
    Ok(Made::tensor(ops::max_pool2d(c.tensor("self")?, windows(c)?)?))
}

fn avg_pool2d(c: &Call<'_>) -> Result<Made> {
    c.not_set("ceil_mode")?;
    let geometry = windows(c)?;
    if !c.flag("count_include_pad", true)? && geometry.padding != [0, 0] {
        return Err(c.error("count_include_pad=False with padding is not represented"));
    }
    Ok(Made::tensor(ops::avg_pool2d(c.tensor("self")?, geometry)?))
}

fn windows(c: &Call<'_>) -> Result<Pool2dGeometry> {
    let window = c.pair("kernel_size", [1, 1])?;
    Ok(Pool2dGeometry { window, stride: c.pair("stride", window)?, padding: c.pair("padding", [0, 0])? })
}

fn adaptive_avg_pool2d(c: &Call<'_>) -> Result<Made> {
    Ok(Made::tensor(ops::adaptive_avg_pool2d(c.tensor("self")?, c.pair("output_size", [1, 1])?)?))
}

fn upsample_nearest2d(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("input")?;
    let [_, _, h, w] = *x.dims() else { return Err(c.error(format!("{:?}: expected four dimensions", x.dims()))) };
    let factors = match c.arg("scale_factors") {
        Some(Arg::Floats(factors)) => match factors.as_slice() {
            [down, across] => [*down, *across],
            _ => return Err(c.error("expected two scale_factors")),
        },
        Some(_) => return Err(c.error("scale_factors are not numbers")),
        None => {
            let size = c.pair("output_size", [h, w])?;
            [size[0] as f64 / h as f64, size[1] as f64 / w as f64]
        }
    };
    if factors.iter().any(|factor| factor.fract() != 0.0 || !(1.0..=1e6).contains(factor)) {
        return Err(c.error(format!("a factor of {factors:?} is not represented; whole ones are")));
    }
    Ok(Made::tensor(ops::upsample_nearest2d(x, factors.map(|factor| factor as usize))?))
}

fn pad(c: &Call<'_>) -> Result<Made> {
    match c.text("mode")?.unwrap_or("constant") {
        "constant" => constant_pad(c),
        other => Err(c.error(format!("mode={other:?} is not represented"))),
    }
}

/// Borders are given from the last dimension on, before and after it.
fn constant_pad(c: &Call<'_>) -> Result<Made> {
    let x: &Tensor = c.tensor("self")?;
    let pad = c.sizes("pad")?;
    if !pad.len().is_multiple_of(2) || pad.len() / 2 > x.rank() {
        return Err(c.error(format!("{} borders around {:?}", pad.len(), x.dims())));
    }
    let mut borders = vec![[0, 0]; x.rank()];
    for (border, pair) in borders.iter_mut().rev().zip(pad.chunks(2)) {
        *border = [pair[0], pair[1]];
    }
    Ok(Made::tensor(ops::pad(x, &borders, c.float_or("value", 0.0)?)?))
}
