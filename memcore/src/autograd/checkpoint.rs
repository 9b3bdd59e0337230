//! Activation checkpointing: keeps the inputs of a block, and recomputes its inside when backward needs it.
//!
//! The non-reentrant kind of PyTorch, built on saved-tensor hooks. Forward runs as always, but its nodes save tickets
//! instead of arrays. The first ticket that backward unpacks runs the block again and fills in the values of all
//! tickets. For that run the random generator is set back, so that dropout drops the same elements, and autocast is as
//! it was. The run stops as soon as all values are filled in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::autocast::{Autocast, autocast_dtype};
use super::hooks::{Packed, SavedHooks, SavedHooksGuard};
use super::kept::{Kept, RunningGuard};
use super::mode::NoGrad;
use super::node::Edge;
use super::saved::SavedValue;
use super::tensor::Tensor;
use crate::array::Array;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The body of a checkpointed block. It must compute the same for the same inputs.
type Body = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

/// Runs `body` on `inputs`, keeping the inputs instead of what the body saves.
///
/// # Errors
/// Errors of `body`. At backward: errors of its recomputation, and [`Error::Invalid`] if that saves other values than
/// forward did.
pub fn checkpoint(
    inputs: &[Tensor],
    body: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let one = move |inputs: &[Tensor]| body(inputs).map(|output| vec![output]);
    checkpoint_all(inputs, one)?.pop().ok_or_else(|| Error::invalid("checkpoint", "the block gave nothing"))
}

/// Like [`checkpoint`], for a block with several results.
#[doc(hidden)]
pub fn checkpoint_all(
    inputs: &[Tensor],
    body: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    let Some(first) = inputs.first() else { return body(inputs) };
    let frame = Frame::new(first.device(), inputs, Box::new(body))?;
    let _block = frame.begin();
    (frame.body)(inputs)
}

/// A checkpointed block that runs: its hooks, and what it keeps besides its inputs.
#[must_use = "the block ends when the guard is dropped"]
#[doc(hidden)]
pub struct BlockGuard(#[expect(dead_code, reason = "held until the block ends")] (RunningGuard, SavedHooksGuard));

/// Begins a block that the caller runs itself: what is saved until the guard is dropped is recomputed by `body`, which gets the same inputs.
#[doc(hidden)]
pub fn checkpoint_until_dropped(
    device: &Device,
    inputs: &[Tensor],
    body: impl Fn(&[Tensor]) -> Result<()> + Send + Sync + 'static,
) -> Result<BlockGuard> {
    let without_results = move |inputs: &[Tensor]| body(inputs).map(|()| Vec::new());
    Ok(Frame::new(device, inputs, Box::new(without_results))?.begin())
}

/// One checkpointed call.
struct Frame {
    device: Device,
    body: Box<Body>,
    /// The inputs, which the graph keeps for backward here, through the hooks around the block: they count as saved values.
    inputs: Vec<(SavedValue, Option<Edge>)>,
    random_offset: u64,
    /// The type in which autocast computed products.
    autocast: Option<DType>,
    /// Results of operators that are not computed again.
    kept: Option<Arc<Kept>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of each value that forward saved, whether a node still holds its ticket. PyTorch keeps no recomputed value for a node that is gone.
    held: Vec<bool>,
    /// Values that the recomputation saved, each until it is fetched; `None` before the recomputation.
    recomputed: Option<Vec<Option<SavedValue>>>,
    /// Values of these that will be fetched.
    to_fetch: usize,
}

impl Frame {
    fn new(device: &Device, inputs: &[Tensor], body: Box<Body>) -> Result<Arc<Self>> {
        let kept = |input: &Tensor| Ok((SavedValue::new("input", input.array())?, input.edge().cloned()));
        Ok(Arc::new(Self {
            device: device.clone(),
            body,
            inputs: inputs.iter().map(kept).collect::<Result<_>>()?,
            random_offset: device.random_offset(),
            autocast: autocast_dtype(),
            kept: Kept::of_region()?,
            state: Mutex::default(),
        }))
    }

    /// Begins the first run.
    fn begin(self: &Arc<Self>) -> BlockGuard {
        BlockGuard((Kept::run(self.kept.as_ref(), false), SavedHooksGuard::new(Arc::new(Record(self.clone())))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hooks of the first run: each value becomes a ticket.
struct Record(Arc<Frame>);

/// A saved value: its frame, and its index there.
struct Ticket {
    frame: Weak<Frame>,
    index: usize,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(frame) = self.frame.upgrade() else { return };
        if let Some(held) = frame.state().held.get_mut(self.index) {
            *held = false;
        }
    }
}

impl SavedHooks for Record {
    fn pack(&self, array: Array) -> Result<Packed> {
        drop(array);
        let mut state = self.0.state();
        state.held.push(true);
        Ok(Box::new(Ticket { frame: Arc::downgrade(&self.0), index: state.held.len() - 1 }))
    }

    fn unpack(&self, packed: &Packed) -> Result<Array> {
        let Some(Ticket { index, .. }) = packed.downcast_ref::<Ticket>() else {
            return Err(Error::invalid("checkpoint", "a saved value of another kind"));
        };
        if self.0.state().recomputed.is_none() {
            recompute(&self.0)?;
        }
        let mut state = self.0.state();
        let value = state.recomputed.as_mut().and_then(|values| values.get_mut(*index)?.take());
        let array = value.ok_or(Error::BackwardTwice { op: "checkpoint" })?.unpack("checkpoint")?;
        state.to_fetch -= 1;
        if state.to_fetch == 0 {
            // All values were fetched: another pass over a retained graph recomputes again.
            state.recomputed = None;
        }
        Ok(array)
    }
}

/// Hooks of the second run. They collect the values, and stop the run when there are as many as forward saved: the
/// operations after the one that saves the last value are not needed.
struct Collect {
    /// Which of the values are kept.
    wanted: Vec<bool>,
    values: Mutex<Vec<Option<SavedValue>>>,
}

impl SavedHooks for Collect {
    fn pack(&self, array: Array) -> Result<Packed> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = self.wanted.get(values.len()).copied().unwrap_or(true);
        // The recomputed graph holds the value as well, for as long as it exists.
        let of_graph = array.clone();
        values.push(is_wanted.then(|| SavedValue::keep("recomputed", array)));
        if values.len() == self.wanted.len() { Err(Error::RecomputationDone) } else { Ok(Box::new(of_graph)) }
    }

    fn unpack(&self, _: &Packed) -> Result<Array> {
        Err(Error::invalid("checkpoint", "backward through a recomputation"))
    }
}

fn recompute(frame: &Frame) -> Result<()> {
    let device = &frame.device;
    let offset = device.random_offset();
    device.set_random_offset(frame.random_offset);
    let collect = Arc::new(Collect { wanted: frame.state().held.clone(), values: Mutex::default() });
    let result = {
        let _recording = NoGrad::enable();
        let _autocast = Autocast::enter(frame.autocast);
        let _hooks = SavedHooksGuard::new(collect.clone());
        let _running = Kept::run(frame.kept.as_ref(), true);
        let inputs: Vec<Tensor> = frame.inputs.iter().map(fresh_leaf).collect::<Result<_>>()?;
        (frame.body)(&inputs)
    };
    device.set_random_offset(offset);
    match result {
        // The block's result is not needed: its last node saved the values already.
        Ok(output) => drop(output),
        Err(Error::RecomputationDone) => {}
        Err(error) => return Err(error),
    }
    let values = std::mem::take(&mut *collect.values.lock().unwrap_or_else(PoisonError::into_inner));
    let mut state = frame.state();
    if values.len() != state.held.len() {
        let (now, then) = (values.len(), state.held.len());
        return Err(Error::invalid(
            "checkpoint",
            format!("the recomputation saved {now} values, forward saved {then}"),
        ));
    }
    state.to_fetch = values.iter().flatten().count();
    state.recomputed = Some(values);
    Ok(())
}

/// Returns the same value as a leaf, so that the recomputation saves what forward saved.
fn fresh_leaf((value, edge): &(SavedValue, Option<Edge>)) -> Result<Tensor> {
    let array = value.array().cloned().map_or_else(|| value.unpack("checkpoint"), Ok)?;
    Ok(match edge {
        Some(Edge::Leaf(_)) => Tensor::leaf(array),
        Some(_) => Tensor::stand_in(array),
        None => Tensor::from_array(array),
    })
}
