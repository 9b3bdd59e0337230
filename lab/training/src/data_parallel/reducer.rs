//! Gradients that every rank has whole, reduced in buckets: PyTorch's `DistributedDataParallel`.
//!
//! This follows its reducer (`torch/csrc/distributed/c10d/reducer.cpp`; Li et al., *PyTorch Distributed: Experiences on Accelerating Data Parallel
//! Training*, 2020): each gradient is copied into its place in a bucket as soon as it exists; a bucket whose last gradient has come is all-reduced,
//! and the sums are copied back. The first backward pass has one bucket of everything. Then buckets are rebuilt in the order in which the gradients
//! came; each ends with the parameter that reaches its limit, 1 MiB for the first and 25 MiB for the others. With `gradient_as_bucket_view` a
//! gradient is a view of the bucket, and there is no second copy of it.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lab_base::error::Result;
use memcore::autograd::{Leaf, is_grad_enabled};
use memcore::memory::Category;
use memcore::nn::{Module, Parameter};
use memcore::{Array, DType, Device, Tensor, context};

use super::broadcast::{self, Tensors};
use super::collective::Collective;
use super::tally::Tally;

/// Limit of the first bucket: `_DEFAULT_FIRST_BUCKET_BYTES`.
const FIRST_BUCKET_BYTES: u64 = 1 << 20;
/// Limit of the other buckets: `bucket_cap_mb`'s default.
pub(super) const BUCKET_BYTES: u64 = 25 << 20;

/// Cuts sizes into groups, in order. A group ends with the size that reaches the limit: `first` for the first group, `others` after it.
pub(super) fn groups(bytes: &[u64], first: u64, others: u64) -> Vec<Range<usize>> {
    let (mut groups, mut start, mut sum): (Vec<Range<usize>>, usize, u64) = (Vec::new(), 0, 0);
    for (index, bytes) in bytes.iter().enumerate() {
        sum += bytes;
        let limit = if groups.is_empty() { first } else { others };
        if sum >= limit {
            groups.push(start..index + 1);
            (start, sum) = (index + 1, 0);
        }
    }
    if start < bytes.len() {
        groups.push(start..bytes.len());
    }
    groups
}

/// How gradients are reduced.
pub(super) struct Options {
    pub(super) gradient_as_bucket_view: bool,
    /// Backward passes per step; only the last one's gradients are reduced (`no_sync` for the others).
    pub(super) passes: usize,
    /// Number of ranks.
    pub(super) ranks: usize,
    /// The network's buffers.
    pub(super) buffers: Tensors,
}

/// The buckets of a rank.
pub(super) struct Reducer {
    device: Device,
    dtype: DType,
    /// Number of values of each parameter.
    sizes: Vec<usize>,
    options: Options,
    tally: Arc<Tally>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    buckets: Vec<Bucket>,
    /// Bucket of each parameter's gradient, and its first value there.
    places: Vec<(usize, usize)>,
    /// Number of backward passes in which each parameter had a gradient.
    seen: Vec<usize>,
    /// Parameters in the order in which their gradients first came; empty once buckets were made from it.
    order: Vec<usize>,
    rebuilt: bool,
    /// Forward passes in training so far.
    forwards: usize,
    /// True if the forward pass before was one whose gradients were not reduced, or an evaluation's: buffers are not sent then.
    apart: bool,
}

struct Bucket {
    memory: Array,
    parameters: usize,
    arrived: usize,
}

impl Reducer {
    /// Sends all `tensors` of the network, makes one bucket of all parameters, and registers for their gradients.
    ///
    /// # Errors
    /// Those of the device; parameters that already have another hook.
    pub(crate) fn new(
        device: &Device,
        parameters: &[Parameter],
        tensors: &[(usize, DType)],
        options: Options,
        tally: &Arc<Tally>,
    ) -> Result<Arc<Self>> {
        let sizes: Vec<usize> = parameters.iter().map(|parameter| parameter.array().numel()).collect();
        let dtype = parameters.first().map_or(DType::F32, |parameter| parameter.array().dtype());
        let dimensions = parameters.iter().map(|parameter| parameter.array().dims().len()).sum();
        broadcast::at_start(device, options.ranks, dimensions, tensors)?;
        let state = State { places: vec![(0, 0); sizes.len()], seen: vec![0; sizes.len()], ..State::default() };
        let (device, tally) = (device.clone(), tally.clone());
        let reducer = Arc::new(Self { device, dtype, sizes, options, tally, state: Mutex::new(state) });
        let all: Vec<usize> = (0..parameters.len()).collect();
        reducer.fill(&mut reducer.state(), parameters, &all, std::slice::from_ref(&(0..all.len())))?;
        for (index, parameter) in parameters.iter().enumerate() {
            let reducer = reducer.clone();
            parameter
                .tensor()
                .register_post_accumulate_grad_hook(Box::new(move |leaf| reducer.arrived(index, leaf)))?;
        }
        Ok(reducer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the old buckets, then makes buckets of these parameters. Gradients that are views of an old bucket, which they keep, move into their new one
    /// as soon as it exists.
    fn fill(
        &self,
        state: &mut State,
        parameters: &[Parameter],
        order: &[usize],
        groups: &[Range<usize>],
    ) -> memcore::Result<()> {
        let _op = context::op("bucket");
        for bucket in std::mem::take(&mut state.buckets) {
            self.tally.counts().buckets.give_back(bucket.memory.nbytes());
        }
        let view = self.options.gradient_as_bucket_view;
        let category = if view { Category::Gradient } else { Category::Workspace };
        for group in groups.iter().filter(|group| !group.is_empty()) {
            let mut values = 0;
            for &parameter in &order[group.clone()] {
                state.places[parameter] = (state.buckets.len(), values);
                values += self.sizes[parameter];
            }
            let memory = Array::empty_as(&self.device, &[values], self.dtype, category)?;
            self.tally.counts().buckets.take(memory.nbytes());
            for &parameter in order[group.clone()].iter().filter(|_| view) {
                move_into(&memory, state.places[parameter].1, parameters[parameter].tensor())?;
            }
            state.buckets.push(Bucket { memory, parameters: group.len(), arrived: 0 });
        }
        Ok(())
    }

    /// Called before a forward pass: makes buckets in the order of the first backward pass, once that order is known, and sends the buffers, unless the
    /// forward pass before reduced nothing.
    pub(super) fn before_forward(&self, parameters: &[Parameter]) -> memcore::Result<()> {
        let trains = is_grad_enabled();
        if trains {
            self.rebuild(parameters)?;
        }
        let mut state = self.state();
        state.forwards += usize::from(trains);
        let reduces = trains && state.forwards.is_multiple_of(self.options.passes);
        if !std::mem::replace(&mut state.apart, !reduces) {
            broadcast::broadcast(&self.device, &self.options.buffers)?;
        }
        Ok(())
    }

    fn rebuild(&self, parameters: &[Parameter]) -> memcore::Result<()> {
        let mut state = self.state();
        if state.rebuilt || state.order.len() < self.sizes.len() {
            return Ok(());
        }
        state.rebuilt = true;
        let order = std::mem::take(&mut state.order);
        let bytes: Vec<u64> = order.iter().map(|&index| self.sizes[index] as u64 * self.dtype.size()).collect();
        let groups = groups(&bytes, FIRST_BUCKET_BYTES, BUCKET_BYTES);
        broadcast::order(&self.device, order.len(), groups.len())?;
        self.fill(&mut state, parameters, &order, &groups)
    }

    /// Called when a parameter's gradient exists.
    fn arrived(&self, parameter: usize, leaf: &Leaf) -> memcore::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        state.seen[parameter] += 1;
        if !state.seen[parameter].is_multiple_of(self.options.passes) {
            return Ok(());
        }
        if !state.rebuilt {
            state.order.push(parameter);
        }
        let (number, offset) = state.places[parameter];
        let (Some(bucket), Some(grad)) = (state.buckets.get_mut(number), leaf.grad()) else { return Ok(()) };
        let place = bucket.memory.narrow(0, offset, grad.numel())?.view(grad.dims())?;
        // From the second micro-batch on the gradient may already be in the bucket.
        if !Arc::ptr_eq(place.storage(), grad.storage()) {
            place.copy_(&grad)?;
        }
        drop(grad);
        if self.options.gradient_as_bucket_view {
            leaf.set_grad(Some(place));
        }
        bucket.arrived += 1;
        if bucket.arrived == bucket.parameters {
            bucket.arrived = 0;
            self.tally.collective(Collective::AllReduce, bucket.memory.numel() as u64, self.dtype.size());
        }
        Ok(())
    }
}

/// Moves a gradient into its place in a bucket.
fn move_into(memory: &Array, offset: usize, parameter: &Tensor) -> memcore::Result<()> {
    let Some(grad) = parameter.grad() else { return Ok(()) };
    let place = memory.narrow(0, offset, grad.numel())?.view(grad.dims())?;
    place.copy_(&grad)?;
    drop(grad);
    parameter.set_grad(Some(place));
    Ok(())
}

/// A network that every rank has a copy of.
pub(super) struct Replica {
    pub(super) inner: Box<dyn Module>,
    /// [`Reducer::before_forward`].
    pub(super) before: Box<dyn Fn() -> memcore::Result<()> + Send + Sync>,
}

impl Module for Replica {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        (self.before)()?;
        self.inner.forward(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_closed_by_what_reaches_its_limit() {
        assert_eq!(groups(&[3, 3, 3, 9, 1, 1], 5, 10), [0..2, 2..4, 4..6]);
        assert_eq!(groups(&[1, 4, 1, 1], 5, 10), [0..2, 2..4], "the last may be small");
        assert_eq!(groups(&[20, 20], 5, 10), [0..1, 1..2]);
        assert_eq!(groups(&[], 5, 10), []);
    }
}
