//! Operators whose results a checkpointed block keeps, so that backward does not compute them again: PyTorch's `create_selective_checkpoint_contexts`.
//!
//! All results of such an operator are kept from forward until the block runs again, which takes them in turn instead of computing them. A result that the
//! second run does not reach is freed with the block. (Measured with torch 2.11: `lab/tests/golden/saved.json.gz`.)

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::mode::is_grad_enabled;
use super::saved::SavedValue;
use crate::array::Array;
use crate::error::{Error, Result};

/// An operator whose results can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptOp {
    /// `aten.mm`
    Mm,
    /// `aten.addmm`
    Addmm,
    /// `aten.bmm`
    Bmm,
    /// Attention in one kernel: `aten._scaled_dot_product_flash_attention`, the memory-efficient one and cuDNN's.
    Attention,
    /// `aten.convolution`
    Convolution,
}

/// Number of such operators.
const OPS: usize = 5;

/// The operators whose results checkpointed blocks keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptOps {
    /// These operators.
    pub ops: Vec<KeptOp>,
    /// True if every second `mm` of a block is computed again all the same, as torchtitan does.
    pub alternates_mm: bool,
}

/// Results of an operator.
pub(crate) type Results = SmallVec<[Array; 4]>;

thread_local! {
    /// What blocks that begin now keep.
    static POLICY: RefCell<Option<Arc<KeptOps>>> = const { RefCell::new(None) };
    /// The block that runs.
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// While it lives, checkpointed blocks that begin on this thread keep the results of some operators.
#[must_use = "blocks keep results until the guard is dropped"]
pub struct KeptOpsGuard(Option<Arc<KeptOps>>);

impl KeptOps {
    /// Begins a region whose checkpointed blocks keep the results of these operators; of none, they are as [`checkpoint`](super::checkpoint) makes them.
    pub fn enter(&self) -> KeptOpsGuard {
        let policy = (!self.ops.is_empty()).then(|| Arc::new(self.clone()));
        KeptOpsGuard(POLICY.replace(policy))
    }
}

impl Drop for KeptOpsGuard {
    fn drop(&mut self) {
        POLICY.set(self.0.take());
    }
}

/// Kept results of one block, each operator's in their order.
pub(super) struct Kept {
    ops: Arc<KeptOps>,
    results: Mutex<[VecDeque<SmallVec<[SavedValue; 4]>>; OPS]>,
}

/// A run of a block.
#[derive(Clone)]
struct Running {
    kept: Arc<Kept>,
    again: bool,
    /// Calls of `mm` so far.
    products: usize,
}

/// Restores the block that ran before.
#[must_use = "the block runs until the guard is dropped"]
pub(super) struct RunningGuard(Option<Option<Running>>);

impl Kept {
    /// What a block keeps that begins now; `None` for nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] within a block that keeps results itself: PyTorch would ask both.
    pub(super) fn of_region() -> Result<Option<Arc<Self>>> {
        let Some(ops) = POLICY.with_borrow(Clone::clone).filter(|_| is_grad_enabled()) else { return Ok(None) };
        if RUNNING.with_borrow(Option::is_some) {
            return Err(Error::invalid("checkpoint", "a block within a block that keeps results of operators"));
        }
        Ok(Some(Arc::new(Self { ops, results: Mutex::default() })))
    }

    /// Begins the run of a block that keeps `kept`: in forward, or again.
    pub(super) fn run(kept: Option<&Arc<Self>>, again: bool) -> RunningGuard {
        let running = kept.map(|kept| Running { kept: kept.clone(), again, products: 0 });
        RunningGuard(running.map(|running| RUNNING.replace(Some(running))))
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            RUNNING.set(before);
        }
    }
}

/// The results of an operator in a block that keeps them: computed and kept in forward, and taken when the block runs again. Anything else is computed.
///
/// # Errors
/// Those of `compute`; [`Error::BackwardTwice`] if the results were taken already; [`Error::StaleSavedValue`] if one was overwritten.
pub(crate) fn results(op: KeptOp, compute: impl FnOnce() -> Result<Results>) -> Result<Results> {
    let Some(running) = RUNNING.with_borrow_mut(|running| running.as_mut()?.keeping(op)) else { return compute() };
    let lock = || running.kept.results.lock().unwrap_or_else(PoisonError::into_inner);
    if running.again {
        let kept = lock()[op as usize].pop_front().ok_or(Error::BackwardTwice { op: "checkpoint" })?;
        return kept.iter().map(|value| value.unpack("checkpoint")).collect();
    }
    let made = compute()?;
    let kept = made.iter().map(|array| SavedValue::keep("kept", array.clone())).collect();
    lock()[op as usize].push_back(kept);
    Ok(made)
}

/// True in a block that keeps results. PyTorch sees its operators through a mode, under which some of them compute anew what they would change in place.
pub(crate) fn is_watched() -> bool {
    RUNNING.with_borrow(Option::is_some)
}

/// Runs the inside of an operator that PyTorch sees as one.
pub(crate) fn unwatched<T>(run: impl FnOnce() -> T) -> T {
    let _one = RunningGuard(Some(RUNNING.take()));
    run()
}

/// As [`results`], of an operator with one.
pub(crate) fn result(op: KeptOp, compute: impl FnOnce() -> Result<Array>) -> Result<Array> {
    let made = results(op, || Ok(SmallVec::from_iter([compute()?])))?;
    made.into_iter().next().ok_or_else(|| Error::invalid("checkpoint", "an operator without a result"))
}

impl Running {
    /// The run, if it keeps the results of this call.
    fn keeping(&mut self, op: KeptOp) -> Option<Self> {
        self.products += usize::from(op == KeptOp::Mm);
        let skipped = op == KeptOp::Mm && self.kept.ops.alternates_mm && self.products.is_multiple_of(2);
        (self.kept.ops.ops.contains(&op) && !skipped).then(|| self.clone())
    }
}
