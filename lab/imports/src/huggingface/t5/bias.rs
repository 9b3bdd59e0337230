//! Relative position bias: a learned number for each head and each range of distances, added to the scores.

use memcore::nn::{Embedding, Init, Module};
use memcore::{Array, DType, Device, Result, Tensor, ops};

use super::super::mask;
use super::config::Config;

/// The table `[buckets, heads]`, and the assignment of distances to buckets.
pub(super) struct RelativePositions {
    table: Embedding,
    /// True if later positions are seen, which then have half of the buckets.
    bidirectional: bool,
    buckets: usize,
    farthest: usize,
}

impl RelativePositions {
    pub(crate) fn new(init: &Init, c: &Config, bidirectional: bool) -> Result<Self> {
        let fill = c.normal((c.width as f64).powf(-0.5));
        let table = Embedding::with_fill(init, c.own.buckets, c.heads, fill)?;
        Ok(Self { table, bidirectional, buckets: c.own.buckets, farthest: c.own.farthest })
    }

    /// `compute_bias`: `[1, heads, queries, keys]`, a view of `[queries, keys, heads]`.
    pub(super) fn forward(&self, [queries, keys]: [usize; 2]) -> Result<Tensor> {
        let device = self.table.weight.array().device();
        let asking = mask::positions(device, queries)?;
        let asked = mask::range(device, keys)?;
        let relative = Array::empty(device, &[queries, keys], DType::I64)?;
        let buckets = Tensor::from_array(self.bucketed(device, [queries, keys])?);
        let values = self.table.forward(&buckets)?;
        // In the order of the library's variables.
        drop((asking, asked, relative, buckets));
        ops::unsqueeze(&ops::permute(&values, &[2, 0, 1])?, 0)
    }

    /// `_relative_position_bucket`: the bucket of each pair, i64 `[queries, keys]`, with the library's temporaries.
    fn bucketed(&self, device: &Device, dims: [usize; 2]) -> Result<Array> {
        let make = |dtype: DType| Array::empty(device, &dims, dtype);
        let word = || make(DType::I64);
        let (ahead, distance) = if self.bidirectional {
            let product = {
                let later = make(DType::Bool)?;
                let converted = word()?;
                drop(later);
                let product = word()?;
                drop(converted);
                product
            };
            let ahead = word()?;
            drop(product);
            (Some(ahead), word()?)
        } else {
            let past = {
                let _zeros = word()?;
                word()?
            };
            let distance = word()?;
            drop(past);
            (None, distance)
        };
        let small = make(DType::Bool)?;
        let large = self.logarithmic(device, dims)?;
        let chosen = word()?;
        let buckets = match ahead {
            Some(ahead) => ahead,
            None => word()?,
        };
        drop(chosen);
        drop(distance);
        drop(small);
        drop(large);
        if device.computes() {
            let pairs = (0..dims[0]).flat_map(|query| (0..dims[1]).map(move |key| [query, key]));
            buckets.write(&pairs.map(|[query, key]| self.bucket(key as i64 - query as i64)).collect::<Vec<_>>())?;
        }
        Ok(buckets)
    }

    /// Computes the buckets of large distances, in f32 and converted, at most the last one.
    fn logarithmic(&self, device: &Device, dims: [usize; 2]) -> Result<Array> {
        let make = |dtype: DType| Array::empty(device, &dims, dtype);
        let mut x = make(DType::F32)?;
        // A quotient, its logarithm, a quotient, a product.
        for _ in 0..4 {
            x = make(DType::F32)?;
        }
        let whole = make(DType::I64)?;
        drop(x);
        let sum = make(DType::I64)?;
        drop(whole);
        let last = make(DType::I64)?;
        let capped = make(DType::I64)?;
        drop(last);
        drop(sum);
        Ok(capped)
    }

    /// Returns the bucket of a relative position: near keys have a bucket each, farther ones share buckets by the logarithm of their distance.
    fn bucket(&self, relative: i64) -> i64 {
        let (count, first) = match self.bidirectional {
            true => (self.buckets as i64 / 2, if relative > 0 { self.buckets as i64 / 2 } else { 0 }),
            false => (self.buckets as i64, 0),
        };
        let distance = if self.bidirectional { relative.abs() } else { (-relative).max(0) };
        let exact = count / 2;
        if distance < exact {
            return first + distance;
        }
        let range = (self.farthest as f64 / exact as f64).ln() as f32;
        let share = (distance as f32 / exact as f32).ln() / range;
        first + (exact + (share * (count - exact) as f32) as i64).min(count - 1)
    }
}
