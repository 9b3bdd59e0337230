//! Views, copies and joins.

use memcore::{Result, Tensor, context, ops};

use super::super::call::{Call, Sizes};
use super::super::value::Made;
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("view.default", |c| of_one(c, |x| ops::view(x, &sizes_of(c, "size", x)?))),
    ("reshape.default", |c| of_one(c, |x| ops::reshape(x, &sizes_of(c, "shape", x)?))),
    ("view_as.default", |c| of_one(c, |x| ops::view(x, c.tensor("other")?.dims()))),
    ("flatten.using_ints", flatten),
    ("unflatten.int", unflatten),
    ("transpose.int", |c| of_one(c, |x| ops::transpose(x, c.axis("dim0", 0, x)?, c.axis("dim1", 0, x)?))),
    ("t.default", |c| of_one(c, |x| if x.rank() < 2 { ops::alias(x) } else { ops::t(x) })),
    ("permute.default", |c| of_one(c, |x| ops::permute(x, &c.axes("dims", x)?))),
    ("movedim.int", |c| of_one(c, |x| moved(c, x, &[c.int("source")?], &[c.int("destination")?]))),
    ("movedim.intlist", |c| of_one(c, |x| moved(c, x, &c.ints("source")?, &c.ints("destination")?))),
    ("moveaxis.int", |c| of_one(c, |x| moved(c, x, &[c.int("source")?], &[c.int("destination")?]))),
    ("moveaxis.intlist", |c| of_one(c, |x| moved(c, x, &c.ints("source")?, &c.ints("destination")?))),
    ("swapaxes.default", |c| of_one(c, |x| ops::transpose(x, c.axis("axis0", 0, x)?, c.axis("axis1", 0, x)?))),
    ("swapdims.default", |c| of_one(c, |x| ops::transpose(x, c.axis("dim0", 0, x)?, c.axis("dim1", 0, x)?))),
    ("mT.default", |c| of_one(c, |x| of_matrices(c, x))),
    ("mH.default", |c| of_one(c, |x| of_matrices(c, x))),
    ("adjoint.default", |c| of_one(c, |x| of_matrices(c, x))),
    ("matrix_H.default", |c| of_one(c, |x| of_matrices(c, x))),
    ("numpy_T.default", |c| of_one(c, |x| ops::permute(x, &(0..x.rank()).rev().collect::<Vec<_>>()))),
    ("tile.default", tile),
    ("unsqueeze.default", unsqueeze),
    ("squeeze.dim", |c| of_one(c, |x| squeeze(x, c.axis("dim", 0, x)?))),
    ("expand.default", expand),
    ("expand_as.default", |c| of_one(c, |x| ops::expand(x, c.tensor("other")?.dims()))),
    ("broadcast_tensors.default", broadcast_tensors),
    ("repeat.default", |c| of_one(c, |x| ops::repeat(x, &c.sizes("repeats")?))),
    ("repeat_interleave.self_int", repeat_interleave),
    ("meshgrid.indexing", meshgrid),
    ("contiguous.default", |c| {
        c.contiguous_format("memory_format")?;
        of_one(c, ops::contiguous)
    }),
    ("clone.default", |c| {
        c.contiguous_format("memory_format")?;
        of_one(c, ops::clone)
    }),
    ("alias.default", |c| of_one(c, ops::alias)),
    ("detach.default", |c| of_one(c, |x| Ok(x.detach()))),
    ("slice.Tensor", slice),
    ("narrow.default", narrow),
    ("select.int", select),
    ("split.Tensor", split),
    ("split_with_sizes.default", split_with_sizes),
    ("split.sizes", split_with_sizes),
    ("chunk.default", chunk),
    ("unbind.int", |c| {
        let x = c.tensor("self")?;
        Ok(Made::tensors(ops::unbind(x, c.axis("dim", 0, x)?)?))
    }),
    ("tensor_split.sections", tensor_split),
    ("diagonal.default", |c| {
        let x = c.tensor("self")?;
        let (offset, rows, columns) = (c.int_or("offset", 0)?, c.axis("dim1", 0, x)?, c.axis("dim2", 1, x)?);
        of_one(c, |x| ops::diagonal(x, offset, rows, columns))
    }),
    ("unfold.default", |c| {
        let length = |name: &str| usize::try_from(c.int(name)?).map_err(|_| c.error("a negative length"));
        of_one(c, |x| ops::unfold_axis(x, c.axis("dimension", 0, x)?, length("size")?, length("step")?))
    }),
    ("roll.default", |c| {
        let (shifts, axes) = (c.ints("shifts")?, c.axes("dims", c.tensor("self")?)?);
        of_one(c, |x| match shifts[..] {
            // Without axes all elements are one row.
            [_] if axes.is_empty() => {
                let row = ops::reshape(x, &[x.numel()])?;
                ops::view(&ops::roll(&row, &shifts, &[0])?, x.dims())
            }
            _ => ops::roll(x, &shifts, &axes),
        })
    }),
    ("flip.default", |c| of_one(c, |x| ops::flip(x, &c.axes("dims", x)?))),
    ("cat.default", concatenated),
    ("concat.default", concatenated),
    ("concatenate.default", concatenated),
    ("stack.default", |c| joined(c, ops::stack, 1)),
    ("tril.default", |c| of_one(c, |x| ops::tril(x, c.int_or("diagonal", 0)?))),
    ("triu.default", |c| of_one(c, |x| ops::triu(x, c.int_or("diagonal", 0)?))),
];

/// Returns sizes for the elements of `x`; one may be given as -1, and gets the remaining elements.
fn sizes_of(c: &Call<'_>, name: &str, x: &Tensor) -> Result<Sizes> {
    completed(c, &c.ints(name)?, x.numel())
}

fn completed(c: &Call<'_>, sizes: &[i64], numel: usize) -> Result<Sizes> {
    let known = sizes.iter().filter(|size| **size != -1);
    let product = known.clone().try_fold(1usize, |n, &size| n.checked_mul(usize::try_from(size).ok()?));
    let product = product.ok_or_else(|| c.error(format!("sizes {sizes:?}")))?;
    if known.count() + 1 < sizes.len() {
        return Err(c.error(format!("sizes {sizes:?}: more than one is to be found")));
    }
    let rest = numel.checked_div(product).unwrap_or_default();
    Ok(sizes.iter().map(|&size| if size == -1 { rest } else { size as usize }).collect())
}

/// Moves axes to other places; the others keep their order.
fn moved(c: &Call<'_>, x: &Tensor, from: &[i64], to: &[i64]) -> Result<Tensor> {
    let axes = |given: &[i64]| given.iter().map(|axis| c.axis_of(*axis, x.rank())).collect::<Result<Vec<usize>>>();
    let (from, to) = (axes(from)?, axes(to)?);
    let mut others = (0..x.rank()).filter(|axis| !from.contains(axis));
    let place = |at: usize| match to.iter().position(|place| *place == at) {
        Some(i) => from.get(i).copied(),
        None => others.next(),
    };
    let order: Option<Vec<usize>> = (0..x.rank()).map(place).collect();
    ops::permute(x, &order.ok_or_else(|| c.error(format!("axes {from:?} to {to:?}")))?)
}

/// Exchanges the last two axes.
fn of_matrices(c: &Call<'_>, x: &Tensor) -> Result<Tensor> {
    let Some(first) = x.rank().checked_sub(2) else { return Err(c.error("of less than two dimensions")) };
    ops::transpose(x, first, first + 1)
}

/// Repeats along axes, of which those that are not named are repeated once.
fn tile(c: &Call<'_>) -> Result<Made> {
    of_one(c, |x| {
        let given = c.sizes("dims")?;
        let once = x.rank().saturating_sub(given.len());
        let repeats: Sizes = std::iter::repeat_n(1, once).chain(given.iter().copied()).collect();
        ops::repeat(x, &repeats)
    })
}

/// Views of this many parts, the first of which are one longer if they are not equal.
fn tensor_split(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let axis = c.axis("dim", 0, x)?;
    let parts = usize::try_from(c.int("sections")?).ok().filter(|parts| *parts > 0);
    let parts = parts.ok_or_else(|| c.error("into no parts"))?;
    let (least, longer) = (x.dims()[axis] / parts, x.dims()[axis] % parts);
    let part = |i: usize| ops::slice(x, axis, [i * least + i.min(longer), least + usize::from(i < longer), 1]);
    Ok(Made::tensors((0..parts).map(part).collect::<Result<Vec<_>>>()?))
}

fn flatten(c: &Call<'_>) -> Result<Made> {
    of_one(c, |x| {
        let (start, end) = (c.axis("start_dim", 0, x)?, c.axis("end_dim", -1, x)?);
        if x.rank() == 0 {
            return ops::reshape(x, &[1]);
        }
        if start == end {
            return Ok(x.clone());
        }
        if start > end {
            return Err(c.error(format!("from axis {start} to axis {end}")));
        }
        let dims = x.dims();
        let middle = [dims[start..=end].iter().product()];
        let all: Sizes = dims[..start].iter().chain(&middle).chain(&dims[end + 1..]).copied().collect();
        ops::reshape(x, &all)
    })
}

fn unflatten(c: &Call<'_>) -> Result<Made> {
    of_one(c, |x| {
        let axis = c.axis("dim", 0, x)?;
        let parts = completed(c, &c.ints("sizes")?, x.dims()[axis])?;
        let all: Sizes = x.dims()[..axis].iter().chain(&parts).chain(&x.dims()[axis + 1..]).copied().collect();
        ops::view(x, &all)
    })
}

fn unsqueeze(c: &Call<'_>) -> Result<Made> {
    of_one(c, |x| ops::unsqueeze(x, c.axis_of(c.int("dim")?, x.rank() + 1)?))
}

/// Removes a dimension of size 1. A dimension of another size stays, and the result is still a view.
fn squeeze(x: &Tensor, axis: usize) -> Result<Tensor> {
    if x.dims().get(axis) == Some(&1) { ops::squeeze(x, axis) } else { ops::alias(x) }
}

/// Expands to sizes; a dimension with the size -1 keeps its own.
fn expand(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["implicit"]);
    of_one(c, |x| {
        let sizes = c.ints("size")?;
        let Some(new) = sizes.len().checked_sub(x.rank()) else {
            return Err(c.error(format!("{:?} to {} dimensions", x.dims(), sizes.len())));
        };
        let size = |(i, &size): (usize, &i64)| match size {
            -1 => i.checked_sub(new).map(|i| x.dims()[i]),
            size => usize::try_from(size).ok(),
        };
        let dims: Option<Sizes> = sizes.iter().enumerate().map(size).collect();
        ops::expand(x, &dims.ok_or_else(|| c.error(format!("to sizes {sizes:?}")))?)
    })
}

/// Expands each tensor to the common sizes; a tensor that already has them stays itself.
fn broadcast_tensors(c: &Call<'_>) -> Result<Made> {
    let tensors = c.tensors("tensors")?;
    let mut dims = Sizes::new();
    for tensor in &tensors {
        dims = memcore::layout::broadcast_dims(&dims, tensor.dims())?.into_iter().collect();
    }
    let expanded = |x: &&Tensor| if x.dims() == &dims[..] { Ok((*x).clone()) } else { ops::expand(x, &dims) };
    Ok(Made::tensors(tensors.iter().map(expanded).collect::<Result<Vec<_>>>()?))
}

/// Repeats each element along an axis, or each of all elements: a copy of a view that repeats them.
fn repeat_interleave(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["output_size"]);
    let times = usize::try_from(c.int("repeats")?).map_err(|_| c.error("a negative number of repeats"))?;
    of_one(c, |x| {
        let _op = context::op("repeat_interleave");
        let (x, axis) =
            if c.arg("dim").is_some() { (x.clone(), c.axis("dim", 0, x)?) } else { (ops::flatten(x, 0)?, 0) };
        let mut dims: Sizes = x.dims().into();
        dims.insert(axis + 1, times);
        let copy = ops::clone(&ops::expand(&ops::unsqueeze(&x, axis + 1)?, &dims)?)?;
        dims.remove(axis + 1);
        dims[axis] *= times;
        ops::view(&copy, &dims)
    })
}

/// Returns views of vectors that are repeated along the axes of all: `ij` in their order, `xy` with the first two exchanged.
fn meshgrid(c: &Call<'_>) -> Result<Made> {
    let tensors = c.tensors("tensors")?;
    let exchanged = match c.text("indexing")?.unwrap_or("ij") {
        "ij" => false,
        "xy" => tensors.len() > 1,
        other => return Err(c.error(format!("indexing={other:?}"))),
    };
    let place = |i: usize| if exchanged && i < 2 { 1 - i } else { i };
    let mut dims: Sizes = tensors.iter().map(|x| x.numel()).collect();
    if exchanged {
        dims.swap(0, 1);
    }
    let grid = |(i, x): (usize, &&Tensor)| {
        let mut along: Sizes = dims.iter().map(|_| 1).collect();
        along[place(i)] = x.numel();
        ops::expand(&ops::view(x, &along)?, &dims)
    };
    Ok(Made::tensors(tensors.iter().enumerate().map(grid).collect::<Result<Vec<_>>>()?))
}

/// Returns an end of a slice: a negative number counts from the end of the axis, and a number beyond the axis is cut to it.
fn within(at: i64, size: usize) -> usize {
    let size = size as i64;
    let counted = if at < 0 { at.saturating_add(size) } else { at };
    counted.clamp(0, size) as usize
}

fn slice(c: &Call<'_>) -> Result<Made> {
    let step = usize::try_from(c.int_or("step", 1)?).map_err(|_| c.error("a negative step"))?;
    of_one(c, |x| {
        let axis = c.axis("dim", 0, x)?;
        let size = x.dims()[axis];
        let (start, end) = (within(c.int_or("start", 0)?, size), within(c.int_or("end", i64::MAX)?, size));
        ops::slice(x, axis, [start, end.saturating_sub(start), step])
    })
}

fn narrow(c: &Call<'_>) -> Result<Made> {
    of_one(c, |x| {
        let axis = c.axis("dim", 0, x)?;
        let length = usize::try_from(c.int("length")?).map_err(|_| c.error("a negative length"))?;
        ops::narrow(x, axis, within(c.int("start")?, x.dims()[axis]), length)
    })
}

fn select(c: &Call<'_>) -> Result<Made> {
    of_one(c, |x| {
        let axis = c.axis("dim", 0, x)?;
        let (index, size) = (c.int("index")?, x.dims()[axis] as i64);
        let counted = if index < 0 { index + size } else { index };
        ops::select(x, axis, usize::try_from(counted).map_err(|_| c.error(format!("index {index} of {size}")))?)
    })
}

fn split(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let size = usize::try_from(c.int("split_size")?).map_err(|_| c.error("a negative size"))?;
    Ok(Made::tensors(ops::split(x, size, c.axis("dim", 0, x)?)?))
}

fn split_with_sizes(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let name = if c.arg("split_sizes").is_some() { "split_sizes" } else { "split_size" };
    Ok(Made::tensors(ops::split_with_sizes(x, &c.sizes(name)?, c.axis("dim", 0, x)?)?))
}

fn chunk(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let chunks = usize::try_from(c.int("chunks")?).map_err(|_| c.error("a negative number of chunks"))?;
    Ok(Made::tensors(ops::chunk(x, chunks, c.axis("dim", 0, x)?)?))
}

/// Joins tensors along an axis. One of no elements in one dimension is skipped, whatever the others' sizes are: so a cache begins
/// (`ATen/native/TensorShape.h`, `cat_should_skip_tensor`).
fn concatenated(c: &Call<'_>) -> Result<Made> {
    let parts = c.tensors("tensors")?;
    let mut kept: Vec<&Tensor> = parts.iter().copied().filter(|part| part.dims() != [0]).collect();
    if kept.is_empty() {
        kept.extend(parts);
    }
    let axis = c.axis_of(c.int_or("dim", 0)?, kept.first().map_or(0, |part| part.rank()))?;
    Ok(Made::tensor(ops::cat(&kept, axis)?))
}

/// Joins tensors along an axis of the result, which has `more` dimensions than the parts.
fn joined(c: &Call<'_>, join: impl FnOnce(&[&Tensor], usize) -> Result<Tensor>, more: usize) -> Result<Made> {
    let parts = c.tensors("tensors")?;
    let rank = parts.first().map_or(0, |part| part.rank()) + more;
    let axis = c.axis_of(c.int_or("dim", 0)?, rank)?;
    Ok(Made::tensor(join(&parts, axis)?))
}
