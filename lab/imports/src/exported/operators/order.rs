//! Elements in order, the largest of them, counts of values, and products in groups: how a mixture of experts chooses.

use memcore::{Result, Tensor, ops};

use super::super::call::Call;
use super::super::value::Made;
use super::host;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("sort.default", |c| Ok(Made::tensors(<[Tensor; 2]>::from(sorted(c)?)))),
    ("sort.stable", |c| {
        c.ignore(&["stable"]);
        Ok(Made::tensors(<[Tensor; 2]>::from(sorted(c)?)))
    }),
    ("argsort.default", |c| Ok(Made::tensor(sorted(c)?.1))),
    ("argsort.stable", |c| {
        c.ignore(&["stable"]);
        Ok(Made::tensor(sorted(c)?.1))
    }),
    ("topk.default", |c| {
        // Whatever is asked for, ours come in order.
        c.ignore(&["sorted"]);
        let x = c.tensor("self")?;
        let k = usize::try_from(c.int("k")?).map_err(|_| c.error("a negative number of elements"))?;
        let (values, places) = ops::topk(x, k, c.axis("dim", -1, x)?, c.flag("largest", true)?)?;
        Ok(Made::tensors([values, places]))
    }),
    ("histc.default", histc),
    ("_grouped_mm.default", |c| grouped(c, ["self", "mat2"], ops::grouped_mm)),
    ("transformers.grouped_mm_fallback.default", |c| grouped(c, ["input", "weight"], ops::grouped_mm_in_turn)),
];

fn sorted(c: &Call<'_>) -> Result<(Tensor, Tensor)> {
    let x = c.tensor("self")?;
    ops::sort(x, c.axis("dim", -1, x)?, c.flag("descending", false)?)
}

/// Counts in `bins` equal parts from `min` to `max`, the last of which has its end, too. Values outside are not counted.
fn histc(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let bins = usize::try_from(c.int_or("bins", 100)?).map_err(|_| c.error("a negative number of bins"))?;
    let (min, max) = (c.float_or("min", 0.0)?, c.float_or("max", 0.0)?);
    if min >= max || bins == 0 {
        return Err(c.error("between the smallest and the largest value is not supported; between given numbers is"));
    }
    if x.requires_grad() && memcore::autograd::is_grad_enabled() {
        return Err(c.error("of values with a gradient is not supported"));
    }
    let counts = || {
        let mut counts = vec![0.0; bins];
        for value in x.array().host_values()?.into_iter().filter(|value| (min..=max).contains(value)) {
            let bin = ((value - min) / (max - min) * bins as f64) as usize;
            counts[bin.min(bins - 1)] += 1.0;
        }
        Ok(counts)
    };
    Ok(Made::tensor(host::made(x.device(), "histc>zeros", &[bins], x.dtype(), counts)?))
}

type Grouped = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

/// Multiplies the rows of each group with its matrix.
fn grouped(c: &Call<'_>, [x, weight]: [&str; 2], multiply: Grouped) -> Result<Made> {
    let weight = c.tensor(weight)?;
    let ends = c.maybe_tensor("offs")?.ok_or_else(|| c.error("without ends of groups is not supported"))?;
    if c.maybe_tensor("bias")?.is_some() || c.dtype("out_dtype")?.is_some_and(|dtype| dtype != weight.dtype()) {
        return Err(c.error("with a bias, or into another type, is not supported"));
    }
    Ok(Made::tensor(multiply(c.tensor(x)?, weight, ends)?))
}
