//! Parameters that are divided together: a flat array of all of them, and a shard for each rank.

use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Makes a unit for parameters of this type and these sizes. It is whole at first, so that they can be initialized; [`Unit::release`] leaves only the shard.
    pub(crate) fn new(kind: &Kind<'_>, dtype: DType, sizes: &[usize]) -> memcore::Result<Self> {
        let partition = Partition::new(sizes.iter().map(|size| *size as u64).sum(), kind.ranks);
        let (all, part) = ([partition.padded() as usize], [partition.shard() as usize]);
        let divided = kind.stage.divides_parameters();
        let _op = context::op("flat_param");
        let (flat, shard) = if divided {
            let flat = Array::unbacked(kind.device, &all, dtype, Category::Workspace)?;
            (flat, Array::empty_as(kind.device, &part, dtype, Category::Parameter)?)
        } else {
            let flat = Array::empty_as(kind.device, &all, dtype, Category::Parameter)?;
            let shard = flat.narrow(0, partition.start(kind.rank) as usize, part[0])?;
            (flat, shard)
        };
        Ok(Self {
            device: kind.device.clone(),
            dtype,
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
pub struct Gathering {
    /// Parameters that are trained: they are freed in backward with the last of their gradients.
    pub(super) trained: Vec<Arc<Unit>>,
    /// Frozen ones: they are freed with the gradient of the piece's input, and with those of the trained ones if the input has none.
    pub(super) frozen: Vec<Arc<Unit>>,
    /// True if the piece's input has a gradient.
    has_input_gradient: Arc<AtomicBool>,
}

impl Gathering {
    pub(super) fn new(trained: Vec<Arc<Unit>>, frozen: Vec<Arc<Unit>>) -> Self {
        Self { trained, frozen, has_input_gradient: Arc::default() }
    }

    fn units(&self) -> impl Iterator<Item = &Arc<Unit>> {
        self.trained.iter().chain(&self.frozen)
    }

    /// Frees the frozen parameters after the last gradient of the trained ones, if nothing of the piece is computed after it.
    pub(super) fn after_gradients(&self) -> memcore::Result<()> {
        if self.has_input_gradient.load(Ordering::Relaxed) { Ok(()) } else { self.end_of_frozen() }
    }

    fn end_of_frozen(&self) -> memcore::Result<()> {
        self.frozen.iter().try_for_each(|unit| unit.release())
    }

    /// Gathers the parameters before the piece's forward pass.
    ///
    /// # Errors
    /// Those of the device.
    pub fn begin(&self) -> memcore::Result<()> {
        self.units().try_for_each(|unit| unit.gather())
    }

    /// Frees the parameters after the piece's forward pass. Without it they stay, until their gradients exist, for another piece that needs them.
    ///
    /// # Errors
    /// Those of the device.
    pub fn end(&self) -> memcore::Result<()> {
        self.units().try_for_each(|unit| unit.release())
    }

    /// Returns an input of the piece with whose gradient frozen parameters are freed.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn input(&self, x: &Tensor) -> memcore::Result<Tensor> {
        self.has_input_gradient.store(x.requires_grad(), Ordering::Relaxed);
        if self.frozen.is_empty() || !x.requires_grad() {
            return Ok(x.clone());
        }
        record(x.array().clone(), &[x], |_| Ok(Box::new(AtPiece { gathering: self.clone(), is_end: true })))
    }

    /// Returns a result of the piece before whose backward pass the parameters are gathered.
    ///
    /// # Errors
    /// Those of the device.
    pub fn result(&self, y: &Tensor) -> memcore::Result<Tensor> {
        record(y.array().clone(), &[y], |_| Ok(Box::new(AtPiece { gathering: self.clone(), is_end: false })))
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
        let y = self.inner.forward(&self.gathering.input(x)?)?;
        if !self.stays {
            self.gathering.end()?;
        }
        self.gathering.result(&y)
    }
}

/// Passes a gradient on unchanged: before a piece's own nodes, whose units are gathered, or after them.
struct AtPiece {
    gathering: Gathering,
    is_end: bool,
}

impl Function for AtPiece {
    fn name(&self) -> &'static str {
        if self.is_end { "PostBackward" } else { "PreBackward" }
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> memcore::Result<Grads> {
        if self.is_end {
            self.gathering.end()?
        } else {
            self.gathering.begin()?
        }
        Ok(grads)
    }
}
