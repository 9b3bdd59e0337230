//! Fourier transforms, and complex numbers.

use memcore::{DType, Result, Tensor, ops};

use super::super::call::{Call, Sizes};
use super::super::value::Made;
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("fft_fft.default", |c| along(c, one_axis(c)?, forward)),
    ("fft_ifft.default", |c| along(c, one_axis(c)?, inverse)),
    ("fft_rfft.default", |c| along(c, one_axis(c)?, onesided)),
    ("fft_irfft.default", |c| to_real(c, one_axis(c)?)),
    ("fft_fft2.default", |c| of_complex(c, two_axes(c)?)),
    ("fft_ifft2.default", |c| of_complex(c, two_axes(c)?)),
    ("fft_rfft2.default", |c| along(c, two_axes(c)?, onesided)),
    ("fft_irfft2.default", |c| to_real(c, two_axes(c)?)),
    ("fft_fftn.default", |c| of_complex(c, all_axes(c)?)),
    ("fft_ifftn.default", |c| of_complex(c, all_axes(c)?)),
    ("fft_rfftn.default", |c| along(c, all_axes(c)?, onesided)),
    ("fft_irfftn.default", |c| to_real(c, all_axes(c)?)),
    ("real.default", |c| of_one(c, ops::real)),
    ("imag.default", |c| of_one(c, ops::imag)),
    ("view_as_real.default", |c| of_one(c, ops::view_as_real)),
    ("view_as_complex.default", |c| of_one(c, ops::view_as_complex)),
    ("complex.default", |c| Ok(Made::tensor(ops::complex(c.tensor("real")?, c.tensor("imag")?)?))),
    ("polar.default", |c| Ok(Made::tensor(ops::polar(c.tensor("abs")?, c.tensor("angle")?)?))),
];

/// Axes of a transform, each with the size that its elements are cut or filled up to; `None` for their own.
type Axes = Vec<(usize, Option<usize>)>;

fn size(c: &Call<'_>, value: i64) -> Result<Option<usize>> {
    match usize::try_from(value) {
        Ok(0) => Err(c.error("of no elements")),
        Ok(size) => Ok(Some(size)),
        // -1 stands for the size that is there.
        Err(_) if value == -1 => Ok(None),
        Err(_) => Err(c.error(format!("a size of {value}"))),
    }
}

/// The axis of a transform along one dimension, the last one if none is given.
fn one_axis(c: &Call<'_>) -> Result<Axes> {
    c.ignore(&["norm"]);
    let x = c.tensor("self")?;
    let n = c.arg("n").map(|_| size(c, c.int("n")?)).transpose()?.flatten();
    Ok(vec![(c.axis("dim", -1, x)?, n)])
}

/// The last two axes, or those that are given.
fn two_axes(c: &Call<'_>) -> Result<Axes> {
    let dim = if c.arg("dim").is_some() { c.ints("dim")?.to_vec() } else { vec![-2, -1] };
    axes(c, Some(dim))
}

/// All axes, the last ones for which there are sizes, or those that are given.
fn all_axes(c: &Call<'_>) -> Result<Axes> {
    let dim = if c.arg("dim").is_some() { Some(c.ints("dim")?.to_vec()) } else { None };
    axes(c, dim)
}

fn axes(c: &Call<'_>, dim: Option<Vec<i64>>) -> Result<Axes> {
    c.ignore(&["norm"]);
    let x = c.tensor("self")?;
    let sizes = c.arg("s").map(|_| c.ints("s")).transpose()?;
    let last = |count: usize| (-(count as i64)..0).collect::<Vec<i64>>();
    let dim = dim.unwrap_or_else(|| last(sizes.as_ref().map_or(x.rank(), |sizes| sizes.len())));
    if sizes.as_ref().is_some_and(|sizes| sizes.len() != dim.len()) {
        return Err(c.error("other sizes than axes"));
    }
    let one = |(i, axis): (usize, &i64)| {
        let wanted = sizes.as_ref().map(|sizes| size(c, sizes[i])).transpose()?.flatten();
        Ok((c.axis_of(*axis, x.rank())?, wanted))
    };
    dim.iter().enumerate().map(one).collect()
}

/// A transform of the tensor, cut or filled up to the sizes of the axes.
fn along(c: &Call<'_>, axes: Axes, transform: fn(&Call<'_>, &Tensor, &[usize]) -> Result<Tensor>) -> Result<Made> {
    let x = fitted(c.tensor("self")?.clone(), &axes)?;
    Ok(Made::tensor(transform(c, &x, &without_sizes(&axes))?))
}

/// A transform of complex numbers, to which real ones are converted.
fn of_complex(c: &Call<'_>, axes: Axes) -> Result<Made> {
    let x = fitted(ops::cast(c.tensor("self")?, DType::C64)?, &axes)?;
    Ok(Made::tensor(ops::fft_c2c(&x, &without_sizes(&axes))?))
}

fn without_sizes(axes: &[(usize, Option<usize>)]) -> Sizes {
    axes.iter().map(|(axis, _)| *axis).collect()
}

fn forward(_: &Call<'_>, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    if x.dtype().is_complex() { ops::fft_c2c(x, axes) } else { ops::fft_r2c(x, axes, false) }
}

fn inverse(c: &Call<'_>, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    if x.dtype().is_complex() { ops::fft_c2c(x, axes) } else { Err(c.error("of real numbers is not supported")) }
}

fn onesided(_: &Call<'_>, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    ops::fft_r2c(x, axes, true)
}

/// The inverse of a onesided transform. The size along its last axis is that of the result.
fn to_real(c: &Call<'_>, mut axes: Axes) -> Result<Made> {
    let x = ops::cast(c.tensor("self")?, DType::C64)?;
    let Some((axis, wanted)) = axes.last_mut() else { return Err(c.error("along no axis")) };
    let size = match *wanted {
        Some(size) => size,
        None => match x.dims()[*axis] {
            0 | 1 => return Err(c.error("of no elements")),
            found => 2 * (found - 1),
        },
    };
    *wanted = Some(size / 2 + 1);
    let x = fitted(x, &axes)?;
    Ok(Made::tensor(ops::fft_c2r(&x, &without_sizes(&axes), size)?))
}

/// Cuts a tensor to the sizes that are wanted along axes, and fills it up with zeros (`resize_fft_input`).
fn fitted(mut x: Tensor, axes: &[(usize, Option<usize>)]) -> Result<Tensor> {
    let mut borders = vec![[0, 0]; x.rank()];
    for (axis, wanted) in axes.iter().filter_map(|(axis, wanted)| Some((*axis, (*wanted)?))) {
        let found = x.dims()[axis];
        if wanted < found {
            x = ops::narrow(&x, axis, 0, wanted)?;
        }
        borders[axis][1] = wanted.saturating_sub(found);
    }
    if borders.iter().any(|[_, after]| *after > 0) { ops::pad(&x, &borders, 0.0) } else { Ok(x) }
}
