//! Convolutions by cuDNN, if the library is present.
//!
//! Of the algorithms that the library names for a shape, in the order of their expected time, the first is taken that adds
//! up products as they are (no Fourier or Winograd transform), gives the same bits in every run, and needs no larger
//! workspace than the call has: the one that core allocated, else the backend's scratch. The library is opened at the first
//! convolution, since its handle alone takes memory. What it refuses, what the backend's own kernels compute faster, and
//! convolutions of single channels, which PyTorch does not leave to it either, go to the own kernels.

mod choice;
mod library;
mod plan;
mod shape;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::{Error, Result};

use crate::call::Scratch;
use crate::driver::NAME;
use crate::figures;
use crate::libraries::Version;
use crate::queue::Queue;
use choice::Choice;
use library::{EXECUTION_FAILED, Functions, Handle, Status, library};
use plan::Plan;
pub(crate) use shape::{Shape, Which};

/// Set to `0`, this environment variable leaves convolutions to the backend's own kernels; set to `first`, to the library wherever it
/// accepts them, whether it is faster or not.
const SWITCH: &str = "VRAMLAB_CUDNN";

/// A convolution that the library accepts, with all data for a call of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Convolution {
    pub(crate) shape: Shape,
    /// Addresses of input, weight and result.
    pub(crate) places: [u64; 3],
    pub(crate) workspace: Scratch,
}

/// The library on one device, and its plans so far.
pub(crate) struct Cudnn {
    library: &'static Functions,
    /// True if the library has to be faster than the own kernels.
    times: bool,
    state: Mutex<State>,
}

/// What exists from the first convolution on.
#[derive(Default)]
struct State {
    /// `None` before the first convolution; an error if the library does not start.
    handle: Option<std::result::Result<Handle, Status>>,
    plans: HashMap<Shape, Option<Plan>>,
    /// Memory that the driver gave for it.
    held_bytes: u64,
}

impl State {
    /// Opens the library if that was not tried yet. The context is current.
    fn handle(&mut self, library: &'static Functions, queue: &Queue) -> Option<Handle> {
        if self.handle.is_none() {
            let opened = figures::measured(queue, || library.open(queue.stream().cast()));
            self.handle = Some(opened.map(|(handle, taken)| {
                self.held_bytes += taken;
                handle
            }));
        }
        self.handle.as_ref()?.as_ref().ok().copied()
    }
}

impl Cudnn {
    /// Finds the library, for a driver of CUDA `newest`.
    ///
    /// # Errors
    /// The reason why it is not used: it is missing, too old, too new, or switched off.
    pub(crate) fn find(newest: u32) -> std::result::Result<Self, String> {
        let switch = std::env::var_os(SWITCH);
        if switch.as_ref().is_some_and(|value| value == "0") {
            return Err(format!("{SWITCH} is 0"));
        }
        let times = switch.is_none_or(|value| value != "first");
        Ok(Self { library: library(newest)?, times, state: Mutex::default() })
    }

    /// Major and minor version.
    pub(crate) fn version(&self) -> Version {
        self.library.version()
    }

    /// Memory that the driver gave for the library so far.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.state().held_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a convolution; tells whether one like it ran before. `None` if the library does not accept it, or was slower than the own
    /// kernels. `names` are of the card and of the own kernels.
    pub(crate) fn plan(&self, queue: &Queue, names: [&str; 2], shape: &Shape) -> Option<bool> {
        let mut state = self.state();
        if let Some(plan) = state.plans.get(shape) {
            return plan.as_ref().map(|plan| plan.ran);
        }
        if self.times && Choice::of(names, self.version(), shape).is_own() {
            state.plans.insert(*shape, None);
            return None;
        }
        let handle = state.handle(self.library, queue)?;
        // The library loads its rules for choosing, which may take memory.
        let planned = figures::measured(queue, || Ok::<_, Status>(Plan::new(self.library, handle, shape)));
        let (plan, taken) = planned.unwrap_or((None, 0));
        state.held_bytes += taken;
        state.plans.entry(*shape).insert_entry(plan).get().as_ref().map(|plan| plan.ran)
    }

    /// Passes a planned convolution to the driver.
    ///
    /// # Errors
    /// [`Error::Backend`] if the library fails at a convolution that it had accepted.
    pub(crate) fn run(&self, convolution: &Convolution) -> Result<()> {
        let state = self.state();
        let (Some(Ok(handle)), Some(Some(plan))) = (&state.handle, state.plans.get(&convolution.shape)) else {
            return Err(Error::backend(NAME, format!("cuDNN has no plan for {:?}", convolution.shape)));
        };
        self.call(*handle, plan, convolution).map_err(|status| failed(status, convolution))
    }

    /// Runs a convolution of a new shape. The library then loads its own kernels, and may refuse what it had accepted.
    /// Returns false if it refuses, now and from then on; the result then holds anything.
    pub(crate) fn try_first(&self, queue: &Queue, convolution: &Convolution) -> Result<bool> {
        let mut state = self.state();
        let State { handle: Some(Ok(handle)), plans, held_bytes } = &mut *state else { return Ok(false) };
        let Some(Some(plan)) = plans.get_mut(&convolution.shape) else { return Ok(false) };
        match figures::measured(queue, || self.call(*handle, plan, convolution)) {
            Ok(((), taken)) => {
                plan.ran = true;
                *held_bytes += taken;
                Ok(true)
            }
            Err(status) if status >= EXECUTION_FAILED => Err(failed(status, convolution)),
            Err(_) => {
                plans.insert(convolution.shape, None);
                Ok(false)
            }
        }
    }

    /// Decides, after the first convolution of a shape, who computes the next ones: the library or the own kernels, whose names are those of
    /// [`plan`](Self::plan). Both calls overwrite the result, which has the bits of the chosen one in the end.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) fn choose(
        &self,
        queue: &Queue,
        names: [&str; 2],
        shape: &Shape,
        calls: [&dyn Fn() -> Result<()>; 2],
    ) -> Result<()> {
        if self.times && !Choice::of(names, self.version(), shape).decide(queue, calls)? {
            self.state().plans.insert(*shape, None);
        }
        Ok(())
    }

    fn call(&self, handle: Handle, plan: &Plan, convolution: &Convolution) -> std::result::Result<(), Status> {
        let [x, weight, y] = convolution.places.map(|address| address as *mut c_void);
        let Scratch { address, bytes } = convolution.workspace;
        let (workspace, bytes) = (address as *mut c_void, bytes as usize);
        // Scalars of convolutions are f32 for all types here.
        let (one, old) = (1.0f32, if convolution.shape.adds { 1.0f32 } else { 0.0f32 });
        let (alpha, beta) = ((&raw const one).cast::<c_void>(), (&raw const old).cast::<c_void>());
        let (functions, algorithm, rules) = (self.library, plan.algorithm, plan.rules.0);
        let (x_is, weight_is, y_is) = (plan.x.0, plan.weight.0, plan.y.0);
        // SAFETY: the plan's descriptions are those of these operands, whose bounds core has checked; the workspace is as
        // large as the plan was told; scalars are read before the call returns.
        let status = unsafe {
            match convolution.shape.which {
                Which::Forward => (functions.cudnnConvolutionForward)(
                    handle.0, alpha, x_is, x, weight_is, weight, rules, algorithm, workspace, bytes, beta, y_is, y,
                ),
                Which::InputGrad => (functions.cudnnConvolutionBackwardData)(
                    handle.0, alpha, weight_is, weight, y_is, y, rules, algorithm, workspace, bytes, beta, x_is, x,
                ),
                Which::WeightGrad => (functions.cudnnConvolutionBackwardFilter)(
                    handle.0, alpha, x_is, x, y_is, y, rules, algorithm, workspace, bytes, beta, weight_is, weight,
                ),
            }
        };
        if status == 0 { Ok(()) } else { Err(status) }
    }
}

fn failed(status: Status, convolution: &Convolution) -> Error {
    Error::backend(NAME, format!("cuDNN: status {status} for {:?}", convolution.shape))
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.plans.clear();
        if let Some(Ok(handle)) = state.handle.take() {
            // SAFETY: the handle is live, and nobody has it after this. Nothing can be done about a failure.
            let _ = unsafe { (self.library.cudnnDestroy)(handle.0) };
        }
    }
}
