//! Parameters that are divided together: a flat array of all, a shard for each rank.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memcore::autograd::{Function, Grads, Needs, Saved, record};
use memcore::memory::Category;
use memcore::nn::Module;
use memcore::{Array, DType, Device, Tensor, context};

use super::collective::Collective;
use super::partition::Partition;
use super::settings::Stage;
use super::tally::Tally;

/// What every unit of a rank is made with.
pub(super) struct Kind<'a> {
    pub(super) device: &'a Device,
    pub(super) dtype: DType,
    pub(super) stage: Stage,
    pub(super) rank: u64,
    pub(super) ranks: u64,
    pub(super) tally: &'a Arc<Tally>,
}

/// Parameters that are divided together.
pub(super) struct Unit {
    device: Device,
    dtype: DType,
    pub(super) partition: Partition,
    /// Number of parameters, each of which has a gradient in each backward pass.
    parameters: usize,
    /// All values and the padding. In stage 3 its memory is there while the unit is gathered.
    flat: Array,
    /// What this rank keeps of the values: memory of its own in stage 3, a part of `flat` before.
    pub(super) shard: Array,
    divided: bool,
    tally: Arc<Tally>,
    gradients: Mutex<Gradients>,
}

#[derive(Default)]
struct Gradients {
    /// As `flat`: what the gradients are collected in, from the first one until they are reduced.
    bucket: Option<Array>,
    /// How many are in it.
    arrived: usize,
    /// This rank's shard of their sum over the ranks.
    shard: Option<Array>,
}

impl Unit {
    /// For parameters of these sizes. It is whole at first, for them to be filled; [`Unit::release`] leaves the shard.
    pub(crate) fn new(kind: &Kind<'_>, sizes: &[usize]) -> memcore::Result<Self> {
        let partition = Partition::new(sizes.iter().map(|size| *size as u64).sum(), kind.ranks);
        let (all, part) = ([partition.padded() as usize], [partition.shard() as usize]);
        let divided = kind.stage.divides_parameters();
        let _op = context::op("flat_param");
        let (flat, shard) = if divided {
            let flat = Array::unbacked(kind.device, &all, kind.dtype, Category::Workspace)?;
            (flat, Array::empty_as(kind.device, &part, kind.dtype, Category::Parameter)?)
        } else {
            let flat = Array::empty_as(kind.device, &all, kind.dtype, Category::Parameter)?;
            let shard = flat.narrow(0, partition.start(kind.rank) as usize, part[0])?;
            (flat, shard)
        };
        Ok(Self {
            device: kind.device.clone(),
            dtype: kind.dtype,
            partition,
            parameters: sizes.len(),
            flat,
            shard,
            divided,
            tally: kind.tally.clone(),
            gradients: Mutex::default(),
        })
    }

    /// The values without the padding: what the parameters are views of.
    ///
    /// # Errors
    /// None that could happen: the values are there.
    pub(super) fn values(&self) -> memcore::Result<Array> {
        self.flat.narrow(0, 0, self.partition.values as usize)
    }

    fn gradients(&self) -> MutexGuard<'_, Gradients> {
        self.gradients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the unit is used: all-gathers the parameters where each rank has a shard only.
    pub(super) fn gather(&self) -> memcore::Result<()> {
        let _op = context::op("all_gather_into_tensor");
        if self.divided && self.flat.storage().acquire()? {
            self.tally.counts().gathered.take(self.flat.nbytes());
            self.count(Collective::AllGather);
        }
        Ok(())
    }

    /// After it was used: what was gathered is freed.
    ///
    /// # Errors
    /// None that could happen: in stage 3 the flat array's memory comes and goes.
    pub(super) fn release(&self) -> memcore::Result<()> {
        let _op = context::op("reshard");
        if self.divided && self.flat.storage().release()? {
            self.tally.counts().gathered.give_back(self.flat.nbytes());
        }
        Ok(())
    }

    /// Takes part in a collective with all its values.
    pub(super) fn count(&self, collective: Collective) {
        self.tally.collective(collective, self.partition.values, self.dtype.size());
    }

    /// Takes part in the sum over all ranks of one float32: the square of a norm.
    pub(super) fn count_norm(&self) {
        self.tally.collective(Collective::AllReduce, 1, DType::F32.size());
    }

    /// Copies a parameter's gradient to its place in the bucket, which is taken with the first one.
    pub(super) fn collect(&self, offset: usize, grad: &Array) -> memcore::Result<()> {
        let mut gradients = self.gradients();
        let bucket = match &gradients.bucket {
            Some(bucket) => bucket.clone(),
            None => {
                let _op = context::op("bucket");
                let bucket = Array::empty_as(&self.device, self.flat.dims(), self.dtype, Category::Workspace)?;
                self.tally.counts().buckets.take(bucket.nbytes());
                gradients.bucket.insert(bucket).clone()
            }
        };
        bucket.narrow(0, offset, grad.numel())?.view(grad.dims())?.copy_(grad)?;
        gradients.arrived += 1;
        Ok(())
    }

    /// Whether every parameter's gradient is in the bucket.
    pub(super) fn is_complete(&self) -> bool {
        self.gradients().arrived == self.parameters
    }

    /// Reduce-scatters what is in the bucket: the rank's shard of the sum stays, added to that of earlier micro-batches, and the bucket goes.
    pub(super) fn reduce(&self) -> memcore::Result<()> {
        let mut gradients = self.gradients();
        gradients.arrived = 0;
        let Some(bucket) = gradients.bucket.take() else { return Ok(()) };
        let _op = context::op("reduce_scatter_tensor");
        let shard = Array::empty_as(&self.device, self.shard.dims(), self.dtype, Category::Gradient)?;
        self.count(Collective::ReduceScatter);
        match &gradients.shard {
            Some(sum) => sum.add_(&shard)?,
            None => gradients.shard = Some(shard),
        }
        self.tally.counts().buckets.give_back(bucket.nbytes());
        Ok(())
    }

    /// The rank's shard of the gradient, for the optimizer.
    pub(super) fn take_gradient(&self) -> Option<Array> {
        self.gradients().shard.take()
    }
}

/// A module whose parameters are gathered before it runs, forward or backward, and freed when it is done.
pub(super) struct Gathered {
    pub(super) inner: Box<dyn Module>,
    pub(super) unit: Arc<Unit>,
    /// They stay behind the module's forward pass, for another one that needs them, until their gradients are there.
    pub(super) stays: bool,
}

impl Module for Gathered {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        self.unit.gather()?;
        let y = self.inner.forward(x)?;
        if !self.stays {
            self.unit.release()?;
        }
        record(y.array().clone(), &[&y], |_| Ok(Box::new(BeforeBackward(self.unit.clone()))))
    }
}

/// Passes a gradient on; on the way a unit is gathered whose own nodes come next.
struct BeforeBackward(Arc<Unit>);

impl Function for BeforeBackward {
    fn name(&self) -> &'static str {
        "PreBackward"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> memcore::Result<Grads> {
        self.0.gather()?;
        Ok(grads)
    }
}
