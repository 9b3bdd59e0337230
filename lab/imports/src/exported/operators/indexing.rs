//! Selection of elements by index, and counts: positions, masks of packed sequences.

use memcore::{Array, DType, Result, Tensor, context, ops};

use super::super::call::{Call, Sizes};
use super::super::value::Made;
use super::host;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("index.Tensor", index),
    ("index_select.default", |c| {
        let x = c.tensor("self")?;
        Ok(Made::tensor(ops::index_select(x, c.axis("dim", 0, x)?, c.tensor("index")?)?))
    }),
    ("gather.default", gather),
    ("scatter.src", |c| written(c, ops::scatter, "src")),
    ("scatter.value", |c| {
        let (index, value) = (c.tensor("index")?, c.float("value")?);
        let x = c.tensor("self")?;
        Ok(Made::tensor(ops::scatter_value(x, c.axis("dim", 0, x)?, index, value)?))
    }),
    ("scatter_add.default", |c| written(c, ops::scatter_add, "src")),
    ("scatter_add_.default", |c| written(c, ops::scatter_add_, "src")),
    ("index_add.default", |c| added(c, ops::index_add)),
    ("index_add_.default", |c| added(c, ops::index_add_)),
    ("index_copy.default", |c| written(c, ops::index_copy, "source")),
    ("index_put.default", |c| put(c, ops::index_put)),
    ("index_put_.default", |c| put(c, ops::index_put_)),
    ("masked_scatter.default", |c| {
        Ok(Made::tensor(ops::masked_scatter(c.tensor("self")?, c.tensor("mask")?, c.tensor("source")?)?))
    }),
    ("one_hot.default", one_hot),
    ("cumsum.default", cumsum),
    ("diff.default", diff),
    ("argmax.default", argmax),
    ("argmin.default", |c| {
        let x = c.tensor("self")?;
        if c.arg("dim").is_none() || !x.dtype().is_float() {
            return Err(c.error("of all elements, or of whole numbers, is not supported; of floats along an axis is"));
        }
        Ok(Made::tensor(ops::argmin(x, c.axis("dim", 0, x)?, c.flag("keepdim", false)?)?))
    }),
];

/// Selects elements by tensors of indices for some dimensions: floats with the operator, other types on the host.
fn index(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let given = c.maybe_tensors("indices")?;
    let indices: Vec<&Tensor> = given.iter().copied().flatten().collect();
    if indices.iter().any(|index| index.dtype() == DType::Bool) {
        return Err(
            c.error("by a mask is not supported: how many elements it chooses follows from values, not from sizes")
        );
    }
    if indices.is_empty() || given.len() > x.rank() || indices.iter().any(|index| index.dtype() != DType::I64) {
        return Err(c.error("by more tensors than there are dimensions, or by other types than i64, is not supported"));
    }
    if x.dtype().is_float() {
        return Ok(Made::tensor(ops::index_by(x, &given)?));
    }
    if given.iter().any(Option::is_none) {
        return Err(c.error("of whole numbers, with a dimension left out, is not supported"));
    }
    let mut dims: Vec<usize> = Vec::new();
    for index in &indices {
        dims = memcore::layout::broadcast_dims(&dims, index.dims())?.to_vec();
    }
    let spread: Vec<Array> = indices.iter().map(|index| index.array().broadcast_to(&dims)).collect::<Result<_>>()?;
    let rest = &x.dims()[indices.len()..];
    let all: Sizes = dims.iter().chain(rest).copied().collect();
    let _op = context::op("index");
    let _ordered = in_order(&spread)?;
    let chosen = || {
        let columns = spread.iter().map(Array::host_values).collect::<Result<Vec<_>>>()?;
        let (source, inner) = (x.array().host_values()?, rest.iter().product::<usize>());
        let mut out = Vec::new();
        for i in 0..dims.iter().product() {
            let at = columns
                .iter()
                .zip(x.dims())
                .try_fold(0, |at, (column, &size)| Ok::<_, memcore::Error>(at * size + place(c, column[i], size)?))?;
            out.extend_from_slice(&source[at * inner..(at + 1) * inner]);
        }
        Ok(out)
    };
    Ok(Made::tensor(host::made(x.device(), "", &all, x.dtype(), chosen)?))
}

/// Makes the contiguous copies of indices that PyTorch makes on a GPU if several have different strides.
fn in_order(indices: &[Array]) -> Result<Vec<Array>> {
    let strides = |array: &Array| array.layout().strides().to_vec();
    if indices.windows(2).all(|pair| strides(&pair[0]) == strides(&pair[1])) {
        return Ok(Vec::new());
    }
    let apart = indices.iter().filter(|index| !index.layout().is_contiguous());
    let _op = context::op("clone");
    apart.map(Array::copied).collect()
}

/// Returns the index of an element; a negative index counts from the end.
fn place(c: &Call<'_>, index: f64, size: usize) -> Result<usize> {
    let counted = if index < 0.0 { index + size as f64 } else { index };
    let inside = counted >= 0.0 && counted < size as f64;
    if inside { Ok(counted as usize) } else { Err(c.error(format!("index {index} of {size}"))) }
}

/// Selects elements along an axis by a tensor of indices.
fn gather(c: &Call<'_>) -> Result<Made> {
    c.not_set("sparse_grad")?;
    let x = c.tensor("self")?;
    Ok(Made::tensor(ops::gather(x, c.axis("dim", 0, x)?, c.tensor("index")?)?))
}

type Write = fn(&Tensor, usize, &Tensor, &Tensor) -> Result<Tensor>;

/// Writes the elements or slices of the argument named `source` to the places that indices name.
fn written(c: &Call<'_>, write: Write, source: &str) -> Result<Made> {
    let x = c.tensor("self")?;
    Ok(Made::tensor(write(x, c.axis("dim", 0, x)?, c.tensor("index")?, c.tensor(source)?)?))
}

type Add = fn(&Tensor, usize, &Tensor, &Tensor, f64) -> Result<Tensor>;

fn added(c: &Call<'_>, add: Add) -> Result<Made> {
    let (x, alpha) = (c.tensor("self")?, c.float_or("alpha", 1.0)?);
    Ok(Made::tensor(add(x, c.axis("dim", 0, x)?, c.tensor("index")?, c.tensor("source")?, alpha)?))
}

type Put = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

/// Puts rows at the places of one vector of indices into the first axis.
fn put(c: &Call<'_>, put: Put) -> Result<Made> {
    c.not_set("accumulate")?;
    let (x, values) = (c.tensor("self")?, c.tensor("values")?);
    match c.maybe_tensors("indices")?[..] {
        [Some(index)] if index.dtype() == DType::I64 && index.rank() == 1 => Ok(Made::tensor(put(x, index, values)?)),
        _ => Err(c.error("by a mask, or by other than one vector of indices, is not supported")),
    }
}

/// Makes a row of zeros with a one at its class for each element.
fn one_hot(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let classes = usize::try_from(c.int_or("num_classes", -1)?);
    let classes = classes.map_err(|_| c.error("without a number of classes is not supported"))?;
    let dims: Sizes = x.dims().iter().copied().chain([classes]).collect();
    let values = || {
        let of = |value: f64| (0..classes).map(move |class| f64::from(u8::from(value == class as f64)));
        Ok(x.array().host_values()?.into_iter().flat_map(of).collect())
    };
    Ok(Made::tensor(host::made(x.device(), "one_hot>zeros", &dims, DType::I64, values)?))
}

/// Returns the index of the largest element along an axis; the first index if several are equal.
fn argmax(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    if c.arg("dim").is_none() {
        return Err(c.error("of all elements is not supported; along an axis is"));
    }
    let (axis, keep) = (c.axis("dim", 0, x)?, c.flag("keepdim", false)?);
    if x.dtype().is_float() {
        return Ok(Made::tensor(ops::argmax(x, axis, keep)?));
    }
    let (size, inner) = (x.dims()[axis], x.dims()[axis + 1..].iter().product::<usize>());
    let mut dims = host::dims_of(x);
    if keep {
        dims[axis] = 1;
    } else {
        dims.remove(axis);
    }
    let places = || {
        let values = x.array().host_values()?;
        let largest = |i: usize| {
            let start = i / inner * size * inner + i % inner;
            let at = |k: &usize| values[start + k * inner];
            (1..size).fold(0, |best, k| if at(&k) > at(&best) { k } else { best }) as f64
        };
        Ok((0..dims.iter().product()).map(largest).collect())
    };
    Ok(Made::tensor(host::made(x.device(), "argmax", &dims, DType::I64, places)?))
}

/// Computes cumulative sums: of floats in their own type, of others in a whole type.
fn cumsum(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let (axis, is_float) = (c.axis("dim", 0, x)?, x.dtype().is_float());
    let dtype = c.dtype("dtype")?.unwrap_or(if is_float { x.dtype() } else { DType::I64 });
    let own_type = is_float && dtype == x.dtype();
    Ok(Made::tensor(if own_type { ops::cumsum(x, axis)? } else { ops::cumsum_whole(x, axis, dtype)? }))
}

/// Returns the difference of each integer from the one before it.
fn diff(c: &Call<'_>) -> Result<Made> {
    if c.int_or("n", 1)? != 1 || c.arg("append").is_some() {
        return Err(c.error("of higher order, or with something appended, is not supported"));
    }
    let x = c.tensor("self")?;
    if x.dtype().is_float() || x.dtype() == DType::Bool {
        return Err(c.error("of floats and masks is not supported"));
    }
    let axis = c.axis("dim", -1, x)?;
    let _op = context::op("diff");
    let joined = match c.maybe_tensor("prepend")? {
        Some(before) => ops::cat(&[before, x], axis)?,
        None => x.clone(),
    };
    let n = joined.dims()[axis].saturating_sub(1);
    let (later, earlier) = (ops::narrow(&joined, axis, 1, n)?, ops::narrow(&joined, axis, 0, n)?);
    Ok(Made::tensor(host::zip(&later, &earlier, "sub", x.dtype(), |a, b| a - b)?))
}
