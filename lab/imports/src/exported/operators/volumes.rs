//! Convolution, pooling and interpolation of volumes, and pictures sampled at positions.

use memcore::Result;
use memcore::ops::{self, Conv3dGeometry, Interpolation, Pool3dGeometry};

use super::super::call::Call;
use super::super::value::Made;
use super::table::Table;
use super::vision::{adaptive_max_pool, groups, interpolated};

pub(super) const TABLE: Table = &[
    ("conv3d.default", conv3d),
    ("conv_transpose3d.input", conv_transpose3d),
    ("max_pool3d.default", |c| {
        plain(c)?;
        Ok(Made::tensor(ops::max_pool3d(c.tensor("self")?, windows(c)?)?))
    }),
    ("avg_pool3d.default", avg_pool3d),
    ("adaptive_avg_pool3d.default", |c| {
        Ok(Made::tensor(ops::adaptive_avg_pool3d(c.tensor("self")?, triple(c, "output_size", [1; 3])?)?))
    }),
    ("adaptive_max_pool3d.default", |c| adaptive_max_pool(c, 3)),
    ("upsample_nearest3d.vec", |c| interpolated(c, Interpolation::Nearest)),
    ("upsample_trilinear3d.vec", |c| interpolated(c, Interpolation::Linear)),
    ("grid_sampler.default", |c| {
        // No size depends on how it samples.
        c.ignore(&["interpolation_mode", "padding_mode", "align_corners"]);
        Ok(Made::tensor(ops::grid_sampler(c.tensor("input")?, c.tensor("grid")?)?))
    }),
    ("affine_grid_generator.default", |c| {
        let (theta, size) = (c.tensor("theta")?, c.sizes("size")?);
        if size.len() < 4 || size[0] != theta.dims()[0] {
            return Err(c.error(format!("{:?} for a result of {size:?}", theta.dims())));
        }
        Ok(Made::tensor(ops::affine_grid(theta, &size[2..], c.flag("align_corners", false)?)?))
    }),
];

/// Returns three sizes. A single size is used for all; `otherwise` if there is none.
fn triple(c: &Call<'_>, name: &str, otherwise: [usize; 3]) -> Result<[usize; 3]> {
    if c.arg(name).is_none() {
        return Ok(otherwise);
    }
    match c.sizes(name)?.as_slice() {
        [] => Ok(otherwise),
        [all] => Ok([*all; 3]),
        [depth, height, width] => Ok([*depth, *height, *width]),
        other => Err(c.error(format!("{name} has {} sizes, expected three", other.len()))),
    }
}

fn geometry(c: &Call<'_>) -> Result<Conv3dGeometry> {
    let (stride, padding) = (triple(c, "stride", [1; 3])?, triple(c, "padding", [0; 3])?);
    Ok(Conv3dGeometry { stride, padding, dilation: triple(c, "dilation", [1; 3])?, groups: groups(c)? })
}

fn conv3d(c: &Call<'_>) -> Result<Made> {
    let (x, weight, bias) = (c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?);
    Ok(Made::tensor(ops::conv3d(x, weight, bias, geometry(c)?)?))
}

fn conv_transpose3d(c: &Call<'_>) -> Result<Made> {
    let (x, weight, bias) = (c.tensor("input")?, c.tensor("weight")?, c.maybe_tensor("bias")?);
    let more = triple(c, "output_padding", [0; 3])?;
    Ok(Made::tensor(ops::conv_transpose3d(x, weight, bias, geometry(c)?, more)?))
}

/// Refuses windows with gaps, and windows that reach beyond the border.
fn plain(c: &Call<'_>) -> Result<()> {
    c.not_set("ceil_mode")?;
    if triple(c, "dilation", [1; 3])? == [1; 3] {
        Ok(())
    } else {
        Err(c.error("windows with gaps (dilation) are not supported"))
    }
}

fn windows(c: &Call<'_>) -> Result<Pool3dGeometry> {
    let window = triple(c, "kernel_size", [1; 3])?;
    Ok(Pool3dGeometry { window, stride: triple(c, "stride", window)?, padding: triple(c, "padding", [0; 3])? })
}

fn avg_pool3d(c: &Call<'_>) -> Result<Made> {
    plain(c)?;
    let geometry = windows(c)?;
    if !c.flag("count_include_pad", true)? && geometry.padding != [0; 3] {
        return Err(c.error("count_include_pad=False with padding is not supported"));
    }
    Ok(Made::tensor(ops::avg_pool3d(c.tensor("self")?, geometry)?))
}
