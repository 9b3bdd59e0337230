//! Parameters that are divided together: a flat array of all of them, and a shard for each rank.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memcore::autograd::{Function, Grads, Needs, Saved, record};
use memcore::memory::Category;
use memcore::nn::Module;
use memcore::{Array, DType, Device, Tensor, context};

use super::collective::Collective;
use super::partition::Partition;
use super::settings::Stage;
use super::tally::Tally;

/// Settings shared by all units of a rank.
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
    /// Number of parameters. Each has a gradient in every backward pass.
    parameters: usize,
    /// All values and the padding. In stage 3 its memory exists only while the unit is gathered.
    flat: Array,
    /// Values that this rank keeps: memory of its own in stage 3, a part of `flat` in earlier stages.
    pub(super) shard: Array,
    divided: bool,
    tally: Arc<Tally>,
    gradients: Mutex<Gradients>,
}

#[derive(Default)]
struct Gradients {
    /// Flat array of gradients, laid out like `flat`. It exists from the first gradient until they are reduced.
    bucket: Option<Array>,
    /// Number of gradients in the bucket.
    arrived: usize,
    /// This rank's shard of the sum of gradients over the ranks.
    shard: Option<Array>,
}

impl Unit {
    /// Makes a unit for parameters of these sizes. It is whole at first, so that they can be initialized; [`Unit::release`] leaves only the shard.
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

    /// Returns the values without the padding; the parameters are views of them.
    ///
    /// # Errors
    /// None in practice: the values exist.
    pub(super) fn values(&self) -> memcore::Result<Array> {
        self.flat.narrow(0, 0, self.partition.values as usize)
    }

    fn gradients(&self) -> MutexGuard<'_, Gradients> {
        self.gradients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before the unit is used: all-gathers the parameters if each rank has only a shard.
    pub(super) fn gather(&self) -> memcore::Result<()> {
        let _op = context::op("all_gather_into_tensor");
        if self.divided && self.flat.storage().acquire()? {
            self.tally.counts().gathered.take(self.flat.nbytes());
            self.count(Collective::AllGather);
        }
        Ok(())
    }

    /// Called after the unit was used: frees what was gathered.
    ///
    /// # Errors
    /// None in practice: in stage 3 the flat array's memory comes and goes.
    pub(super) fn release(&self) -> memcore::Result<()> {
        let _op = context::op("reshard");
        if self.divided && self.flat.storage().release()? {
            self.tally.counts().gathered.give_back(self.flat.nbytes());
        }
        Ok(())
    }

    /// Counts a collective over all of its values.
    pub(super) fn count(&self, collective: Collective) {
        self.tally.collective(collective, self.partition.values, self.dtype.size());
    }

    /// Counts a sum over all ranks of one float32: the square of a norm.
    pub(super) fn count_norm(&self) {
        self.tally.collective(Collective::AllReduce, 1, DType::F32.size());
    }

    /// Copies a parameter's gradient to its place in the bucket, which is allocated for the first gradient.
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

    /// Reduce-scatters the bucket: the rank's shard of the sum stays, added to that of earlier micro-batches, and the bucket is freed.
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

    /// Takes the rank's shard of the gradient, for the optimizer.
    pub(super) fn take_gradient(&self) -> Option<Array> {
        self.gradients().shard.take()
    }
}

/// The divided parameters of a piece of a network: gathered before it runs, forward or backward, and freed when it is done.
#[derive(Clone)]
pub struct Gathering(pub(super) Arc<Unit>);

impl Gathering {
    /// Gathers the parameters before the piece's forward pass.
    ///
    /// # Errors
    /// Those of the device.
    pub fn begin(&self) -> memcore::Result<()> {
        self.0.gather()
    }

    /// Frees the parameters after the piece's forward pass. Without it they stay, until their gradients exist, for another piece that needs them.
    ///
    /// # Errors
    /// Those of the device.
    pub fn end(&self) -> memcore::Result<()> {
        self.0.release()
    }

    /// Returns a result of the piece before whose backward pass the parameters are gathered.
    ///
    /// # Errors
    /// Those of the device.
    pub fn result(&self, y: &Tensor) -> memcore::Result<Tensor> {
        record(y.array().clone(), &[y], |_| Ok(Box::new(BeforeBackward(self.0.clone()))))
    }
}

/// A module whose parameters are gathered before it runs.
pub(super) struct Gathered {
    pub(super) inner: Box<dyn Module>,
    pub(super) gathering: Gathering,
    /// True if the parameters stay gathered after the module's forward pass.
    pub(super) stays: bool,
}

impl Module for Gathered {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        self.gathering.begin()?;
        let y = self.inner.forward(x)?;
        if !self.stays {
            self.gathering.end()?;
        }
        self.gathering.result(&y)
    }
}

/// Passes a gradient on unchanged, and gathers the unit whose own nodes come next in backward.
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
