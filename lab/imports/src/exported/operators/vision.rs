//! Convolutions, pooling, upsampling and padding.

use memcore::ops::{
    self, Conv1dGeometry, Conv2dGeometry, Edge, Interpolation, Pool1dGeometry, Pool2dGeometry, ResizedAxis,
};
use memcore::{Result, Tensor, context};

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
    ("conv1d.default", conv1d),
    ("conv1d.padding", conv1d_padding),
    ("conv_transpose1d.default", conv_transpose1d),
    ("max_pool1d.default", max_pool1d),
    ("avg_pool1d.default", avg_pool1d),
    ("adaptive_avg_pool1d.default", |c| {
        Ok(Made::tensor(ops::adaptive_avg_pool1d(c.tensor("self")?, single(c, "output_size", 1)?)?))
    }),
    ("upsample_nearest2d.vec", upsample_nearest2d),
    ("upsample_nearest1d.vec", |c| interpolated(c, Interpolation::Nearest)),
    ("upsample_linear1d.vec", |c| interpolated(c, Interpolation::Linear)),
    ("upsample_bilinear2d.vec", |c| interpolated(c, Interpolation::Linear)),
    ("upsample_bicubic2d.vec", |c| interpolated(c, Interpolation::Cubic)),
    ("adaptive_max_pool2d.default", |c| adaptive_max_pool(c, 2)),
    ("adaptive_max_pool1d.default", |c| {
        let output = [1, single(c, "output_size", 1)?];
        let x = c.tensor("self")?;
        if x.rank() != 3 {
            return Err(c.error("of other than three dimensions"));
        }
        let _op = context::op("adaptive_max_pool1d");
        let (y, places) = ops::adaptive_max_pool(&ops::unsqueeze(x, 2)?, &output)?;
        Ok(Made::tensors([ops::squeeze(&y, 2)?, ops::squeeze(&places, 2)?]))
    }),
    ("max_pool2d_with_indices.default", |c| {
        if c.pair("dilation", [1, 1])? != [1, 1] || c.flag("ceil_mode", false)? {
            return Err(c.error("windows with gaps (dilation), or beyond the border (ceil_mode), are not supported"));
        }
        let (y, places) = ops::max_pool2d_with_indices(c.tensor("self")?, windows(c)?)?;
        Ok(Made::tensors([y, places]))
    }),
    ("max_unpool2d.default", |c| {
        let size = c.pair("output_size", [1, 1])?;
        Ok(Made::tensor(ops::max_unpool2d(c.tensor("self")?, c.tensor("indices")?, size)?))
    }),
    ("im2col.default", |c| {
        let (window, geometry) = patches(c)?;
        Ok(Made::tensor(ops::unfold(c.tensor("self")?, window, geometry)?))
    }),
    ("col2im.default", |c| {
        let (window, geometry) = patches(c)?;
        Ok(Made::tensor(ops::fold(c.tensor("self")?, c.pair("output_size", [1, 1])?, window, geometry)?))
    }),
    ("channel_shuffle.default", channel_shuffle),
    ("pixel_shuffle.default", |c| {
        let factor = usize::try_from(c.int("upscale_factor")?).map_err(|_| c.error("a negative factor"))?;
        Ok(Made::tensor(ops::pixel_shuffle(c.tensor("self")?, factor)?))
    }),
    ("pixel_unshuffle.default", |c| {
        let factor = usize::try_from(c.int("downscale_factor")?).map_err(|_| c.error("a negative factor"))?;
        Ok(Made::tensor(ops::pixel_unshuffle(c.tensor("self")?, factor)?))
    }),
    ("pad.default", pad),
    ("constant_pad_nd.default", constant_pad),
];

pub(super) fn groups(c: &Call<'_>) -> Result<usize> {
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

/// Runs a convolution with padding by name: `valid` is none; `same` keeps the size, and is refused if the two sides would differ.
fn conv2d_padding(c: &Call<'_>) -> Result<Made> {
    let [_, _, kh, kw] = *c.tensor("weight")?.dims() else {
        return Err(c.error("a weight of other than four dimensions"));
    };
    let [dy, dx] = c.pair("dilation", [1, 1])?;
    convolution(c, padding_by_name(c, [(kh, dy), (kw, dx)])?)
}

/// The padding that has this name, for windows with these sizes and dilations.
fn padding_by_name<const N: usize>(c: &Call<'_>, windows: [(usize, usize); N]) -> Result<[usize; N]> {
    let totals = match c.text("padding")?.unwrap_or("valid") {
        "valid" => [0; N],
        "same" => windows.map(|(size, dilation)| dilation * size.saturating_sub(1)),
        other => return Err(c.error(format!("padding={other:?}"))),
    };
    match totals.iter().all(|total| total % 2 == 0) {
        true => Ok(totals.map(|total| total / 2)),
        false => Err(c.error("padding=\"same\" that differs between the two sides is not supported")),
    }
}

fn conv_transpose2d(c: &Call<'_>) -> Result<Made> {
    let (stride, padding) = (c.pair("stride", [1, 1])?, c.pair("padding", [0, 0])?);
    let geometry = Conv2dGeometry { stride, padding, dilation: c.pair("dilation", [1, 1])?, groups: groups(c)? };
    let (x, weight, bias) = (c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?);
    Ok(Made::tensor(ops::conv_transpose2d(x, weight, bias, geometry, c.pair("output_padding", [0, 0])?)?))
}

/// Returns the only size of a one-dimensional argument; `otherwise` if there is none.
fn single(c: &Call<'_>, name: &str, otherwise: usize) -> Result<usize> {
    if c.arg(name).is_none() {
        return Ok(otherwise);
    }
    match c.sizes(name)?.as_slice() {
        [] => Ok(otherwise),
        [size] => Ok(*size),
        other => Err(c.error(format!("{name} has {} sizes, expected one", other.len()))),
    }
}

fn conv1d(c: &Call<'_>) -> Result<Made> {
    let (stride, dilation) = (single(c, "stride", 1)?, single(c, "dilation", 1)?);
    let geometry = Conv1dGeometry { stride, padding: single(c, "padding", 0)?, dilation, groups: groups(c)? };
    Ok(Made::tensor(ops::conv1d(c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?, geometry)?))
}

/// Runs a convolution with padding by name, as [`conv2d_padding`] does.
fn conv1d_padding(c: &Call<'_>) -> Result<Made> {
    let (stride, dilation) = (single(c, "stride", 1)?, single(c, "dilation", 1)?);
    let window = c.tensor("weight")?.dims().last().copied().unwrap_or(1);
    let [padding] = padding_by_name(c, [(window, dilation)])?;
    let geometry = Conv1dGeometry { stride, padding, dilation, groups: groups(c)? };
    Ok(Made::tensor(ops::conv1d(c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?, geometry)?))
}

fn conv_transpose1d(c: &Call<'_>) -> Result<Made> {
    let (stride, dilation) = (single(c, "stride", 1)?, single(c, "dilation", 1)?);
    let geometry = Conv1dGeometry { stride, padding: single(c, "padding", 0)?, dilation, groups: groups(c)? };
    let (x, weight, bias) = (c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?);
    Ok(Made::tensor(ops::conv_transpose1d(x, weight, bias, geometry, single(c, "output_padding", 0)?)?))
}

fn line_windows(c: &Call<'_>) -> Result<Pool1dGeometry> {
    c.not_set("ceil_mode")?;
    let window = single(c, "kernel_size", 1)?;
    Ok(Pool1dGeometry { window, stride: single(c, "stride", window)?, padding: single(c, "padding", 0)? })
}

fn max_pool1d(c: &Call<'_>) -> Result<Made> {
    if single(c, "dilation", 1)? != 1 {
        return Err(c.error("windows with gaps (dilation) are not supported"));
    }
    Ok(Made::tensor(ops::max_pool1d(c.tensor("self")?, line_windows(c)?)?))
}

fn avg_pool1d(c: &Call<'_>) -> Result<Made> {
    let geometry = line_windows(c)?;
    if !c.flag("count_include_pad", true)? && geometry.padding != 0 {
        return Err(c.error("count_include_pad=False with padding is not supported"));
    }
    Ok(Made::tensor(ops::avg_pool1d(c.tensor("self")?, geometry)?))
}

fn max_pool2d(c: &Call<'_>) -> Result<Made> {
    if c.pair("dilation", [1, 1])? != [1, 1] {
        return Err(c.error("windows with gaps (dilation) are not supported"));
    }
    let pool = if c.flag("ceil_mode", false)? { ops::max_pool2d_ceil } else { ops::max_pool2d };
    Ok(Made::tensor(pool(c.tensor("self")?, windows(c)?)?))
}

fn avg_pool2d(c: &Call<'_>) -> Result<Made> {
    c.not_set("ceil_mode")?;
    let geometry = windows(c)?;
    if !c.flag("count_include_pad", true)? && geometry.padding != [0, 0] {
        return Err(c.error("count_include_pad=False with padding is not supported"));
    }
    Ok(Made::tensor(ops::avg_pool2d(c.tensor("self")?, geometry)?))
}

/// Returns the window of patches, and where they lie.
fn patches(c: &Call<'_>) -> Result<([usize; 2], Conv2dGeometry)> {
    let (stride, padding) = (c.pair("stride", [1, 1])?, c.pair("padding", [0, 0])?);
    let geometry = Conv2dGeometry { stride, padding, dilation: c.pair("dilation", [1, 1])?, groups: 1 };
    Ok((c.pair("kernel_size", [1, 1])?, geometry))
}

/// Deals the channels of all groups in turn: they are seen in groups, transposed and copied, as in PyTorch.
fn channel_shuffle(c: &Call<'_>) -> Result<Made> {
    let (x, groups) = (c.tensor("self")?, groups(c)?);
    let [n, channels, ..] = *x.dims() else {
        return Err(c.error(format!("of {:?}", x.dims())));
    };
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(c.error(format!("{channels} channels in {groups} groups")));
    }
    let _op = context::op("channel_shuffle");
    let grouped = ops::reshape(x, &[n, groups, channels / groups, x.dims()[2..].iter().product()])?;
    let dealt = ops::contiguous(&ops::permute(&grouped, &[0, 2, 1, 3])?)?;
    Ok(Made::tensor(ops::reshape(&dealt, x.dims())?))
}

fn windows(c: &Call<'_>) -> Result<Pool2dGeometry> {
    let window = c.pair("kernel_size", [1, 1])?;
    Ok(Pool2dGeometry { window, stride: c.pair("stride", window)?, padding: c.pair("padding", [0, 0])? })
}

fn adaptive_avg_pool2d(c: &Call<'_>) -> Result<Made> {
    Ok(Made::tensor(ops::adaptive_avg_pool2d(c.tensor("self")?, c.pair("output_size", [1, 1])?)?))
}

/// Pools the largest of equal parts along `axes` axes.
pub(super) fn adaptive_max_pool(c: &Call<'_>, axes: usize) -> Result<Made> {
    let sizes = c.sizes("output_size")?;
    let output: Vec<usize> = if sizes.len() == 1 { vec![sizes[0]; axes] } else { sizes.to_vec() };
    let (y, places) = ops::adaptive_max_pool(c.tensor("self")?, &output)?;
    Ok(Made::tensors([y, places]))
}

/// Upsamples to nearest neighbours: by integer factors with the operator of that name, otherwise by interpolation.
fn upsample_nearest2d(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("input")?;
    let axes = resized(c, x)?;
    let whole = |(axis, &from): (&ResizedAxis, &usize)| axis.size.is_multiple_of(from.max(1)) && axis.size >= from;
    match axes[..] {
        [down, across] if axes.iter().zip(&x.dims()[2..]).all(whole) => {
            let factor = [down.size / x.dims()[2].max(1), across.size / x.dims()[3].max(1)];
            Ok(Made::tensor(ops::upsample_nearest2d(x, factor)?))
        }
        _ => Ok(Made::tensor(ops::interpolate(x, &axes, Interpolation::Nearest, false)?)),
    }
}

pub(super) fn interpolated(c: &Call<'_>, mode: Interpolation) -> Result<Made> {
    let x = c.tensor("input")?;
    let axes = resized(c, x)?;
    Ok(Made::tensor(ops::interpolate(x, &axes, mode, c.flag("align_corners", false)?)?))
}

/// Returns the new sizes of the axes of `x` after the first two, with the factors if the call gives them.
fn resized(c: &Call<'_>, x: &Tensor) -> Result<Vec<ResizedAxis>> {
    let from = x.dims().get(2..).unwrap_or_default();
    let axes: Vec<ResizedAxis> = match c.arg("scale_factors") {
        Some(Arg::Floats(factors)) => {
            let axis = |(&from, &factor): (&usize, &f64)| ResizedAxis {
                size: (from as f64 * factor).floor().clamp(0.0, 1e9) as usize,
                factor: Some(factor),
            };
            from.iter().zip(factors).map(axis).collect()
        }
        Some(_) => return Err(c.error("scale_factors are not numbers")),
        None => c.sizes("output_size")?.into_iter().map(|size| ResizedAxis { size, factor: None }).collect(),
    };
    c.ignore(&["output_size"]);
    if axes.is_empty() || axes.len() != from.len() {
        return Err(c.error(format!("{} sizes for {:?}", axes.len(), x.dims())));
    }
    Ok(axes)
}

fn pad(c: &Call<'_>) -> Result<Made> {
    match c.text("mode")?.unwrap_or("constant") {
        "constant" => constant_pad(c),
        "reflect" => padded_by(c, Edge::Reflected),
        "replicate" => padded_by(c, Edge::Repeated),
        other => Err(c.error(format!("mode={other:?} is not supported"))),
    }
}

/// Pads with elements from within.
fn padded_by(c: &Call<'_>, edge: Edge) -> Result<Made> {
    c.ignore(&["value"]);
    let pad = c.sizes("pad")?;
    let borders: Vec<[usize; 2]> = pad.chunks(2).rev().map(|pair| [pair[0], pair[pair.len() - 1]]).collect();
    Ok(Made::tensor(ops::pad_edges(c.tensor("self")?, &borders, edge)?))
}

/// Pads with a constant. The argument `pad` begins with the last dimension, and has the sizes before and after each.
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
