//! Elements in other places: joins and parts by other names, turns, diagonals, elements along an axis.

use memcore::{DType, Result, Tensor, context, ops};

use super::super::call::{Call, Sizes};
use super::super::value::Made;
use super::host;
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("squeeze.default", |c| of_one(c, |x| squeezed(x, &(0..x.rank()).collect::<Sizes>()))),
    ("squeeze.dims", |c| of_one(c, |x| squeezed(x, &c.axes("dim", x)?))),
    ("ravel.default", |c| of_one(c, |x| ops::reshape(x, &[x.numel()]))),
    ("broadcast_to.default", |c| of_one(c, |x| ops::expand(x, &c.sizes("size")?))),
    ("hstack.default", |c| stacked(c, 1, |x| usize::from(x.rank() > 1))),
    ("vstack.default", |c| stacked(c, 2, |_| 0)),
    ("dstack.default", |c| stacked(c, 3, |_| 2)),
    ("column_stack.default", |c| {
        let parts = c.tensors("tensors")?;
        let column = |x: &&Tensor| if x.rank() > 1 { Ok((*x).clone()) } else { ops::reshape(x, &[x.numel(), 1]) };
        let columns = parts.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(Made::tensor(ops::cat(&columns.iter().collect::<Vec<_>>(), 1)?))
    }),
    ("tensor_split.indices", |c| {
        let x = c.tensor("self")?;
        parted(c, x, c.axis("dim", 0, x)?, &c.ints("indices")?)
    }),
    ("hsplit.int", |c| {
        let x = c.tensor("self")?;
        equal_parts(c, x, usize::from(x.rank() > 1))
    }),
    ("vsplit.int", |c| equal_parts(c, c.tensor("self")?, 0)),
    ("fliplr.default", |c| of_one(c, |x| ops::flip(x, &[1]))),
    ("flipud.default", |c| of_one(c, |x| ops::flip(x, &[0]))),
    ("rot90.default", |c| {
        let (turns, x) = (c.int_or("k", 1)?, c.tensor("self")?);
        let axes = if c.arg("dims").is_some() { c.axes("dims", x)? } else { [0, 1].into_iter().collect() };
        match axes[..] {
            [from, to] => of_one(c, |x| ops::rot90(x, turns, [from, to])),
            _ => Err(c.error("of other than two axes")),
        }
    }),
    ("diag_embed.default", |c| {
        let x = c.tensor("self")?;
        let rank = x.rank() + 1;
        let (offset, rows, columns) = (c.int_or("offset", 0)?, c.int_or("dim1", -2)?, c.int_or("dim2", -1)?);
        of_one(c, |x| ops::diag_embed(x, offset, c.axis_of(rows, rank)?, c.axis_of(columns, rank)?))
    }),
    ("diag.default", |c| {
        let offset = c.int_or("diagonal", 0)?;
        of_one(c, |x| match x.rank() {
            1 => ops::diag_embed(x, offset, 0, 1),
            2 => ops::clone(&ops::diagonal(x, offset, 0, 1)?),
            rank => Err(c.error(format!("of {rank} dimensions"))),
        })
    }),
    ("take_along_dim.default", take_along),
];

/// Removes the dimensions of size 1 among these; the result is a view in any case.
fn squeezed(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let mut removed: Sizes = axes.iter().copied().filter(|&axis| x.dims().get(axis) == Some(&1)).collect();
    removed.sort_unstable();
    let first = ops::alias(x)?;
    removed.iter().rev().try_fold(first, |x, &axis| ops::squeeze(&x, axis))
}

/// Joins tensors of at least `rank` dimensions along an axis.
fn stacked(c: &Call<'_>, rank: usize, axis: fn(&Tensor) -> usize) -> Result<Made> {
    let at_least = |x: &&Tensor| {
        let mut dims: Sizes = x.dims().into();
        while dims.len() < rank {
            // A vector is a row, and a matrix is one deep.
            let place = if dims.len() == 2 { 2 } else { 0 };
            dims.insert(place, 1);
        }
        if dims.len() == x.rank() { Ok((*x).clone()) } else { ops::view(x, &dims) }
    };
    let parts = c.tensors("tensors")?.iter().map(at_least).collect::<Result<Vec<_>>>()?;
    let along = parts.first().map_or(0, axis);
    Ok(Made::tensor(ops::cat(&parts.iter().collect::<Vec<_>>(), along)?))
}

/// Views of the parts that end before these places, and of what is left.
fn parted(c: &Call<'_>, x: &Tensor, axis: usize, ends: &[i64]) -> Result<Made> {
    let size = *x.dims().get(axis).ok_or_else(|| c.error("of a number"))?;
    let counted = |at: i64| if at < 0 { at + size as i64 } else { at }.clamp(0, size as i64) as usize;
    let mut start = 0;
    let ends = ends.iter().map(|&at| counted(at)).chain([size]);
    let part = |end: usize| {
        let part = ops::slice(x, axis, [start, end.saturating_sub(start), 1]);
        start = end;
        part
    };
    Ok(Made::tensors(ends.map(part).collect::<Result<Vec<_>>>()?))
}

/// Views of this many equal parts.
fn equal_parts(c: &Call<'_>, x: &Tensor, axis: usize) -> Result<Made> {
    let size = *x.dims().get(axis).ok_or_else(|| c.error("of a number"))?;
    let parts = usize::try_from(c.int("sections")?).ok().filter(|parts| *parts > 0 && size.is_multiple_of(*parts));
    let parts = parts.ok_or_else(|| c.error(format!("of {size} elements into unequal parts")))?;
    let ends: Vec<i64> = (1..parts).map(|i| (size / parts * i) as i64).collect();
    parted(c, x, axis, &ends)
}

/// Selects elements along an axis. The indices are repeated to the other sizes, in memory of their own, and negative ones are counted from the end.
fn take_along(c: &Call<'_>) -> Result<Made> {
    let (x, index) = (c.tensor("self")?, c.tensor("indices")?);
    if c.arg("dim").is_none() || index.rank() != x.rank() || index.dtype() != DType::I64 {
        return Err(c.error("of all elements, or by indices of another number of dimensions, is not supported"));
    }
    let axis = c.axis("dim", 0, x)?;
    let mut dims = host::dims_of(x);
    dims[axis] = index.dims()[axis];
    let _op = context::op("take_along_dim");
    let wide = index.array().broadcast_to(&dims)?;
    let counted = || {
        let size = x.dims()[axis] as f64;
        Ok(wide.host_values()?.into_iter().map(|at| if at < 0.0 { at + size } else { at }).collect())
    };
    let places = host::made(c.device, "remainder", &dims, DType::I64, counted)?;
    Ok(Made::tensor(ops::gather(x, axis, &places)?))
}
