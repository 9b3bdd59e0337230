//! Convolutions and attention by cuDNN, if the library is present.
//!
//! Of the algorithms for convolutions that the library names for a shape, in the order of their expected time, the first is taken that adds
//! up products as they are (no Fourier or Winograd transform), gives the same bits in every run, and needs no larger
//! workspace than the call has: the one that core allocated, else the backend's scratch. The library is opened at the first
//! convolution or attention, since its handle alone takes memory. What it refuses, what the backend's own kernels compute faster, and
//! convolutions of single channels, which PyTorch does not leave to it either, go to the own kernels.
//! Attention goes through the library's graphs of operations (`attention.rs`).

mod attention;
mod choice;
mod description;
mod graph;
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
pub(crate) use attention::{AttentionShape, Direction, OPERANDS, Operand};
use choice::Choice;
use library::{EXECUTION_FAILED, Functions, Handle, Status, library};
pub(crate) use shape::{Shape, Which};

/// Set to `0`, this environment variable leaves convolutions and attention to the backend's own kernels; set to `first`, to the library wherever it
/// accepts them, whether it is faster or not.
const SWITCH: &str = "VRAMLAB_CUDNN";

/// What the library may compute: everything on which its choice depends.
#[expect(clippy::large_enum_variant, reason = "a box would allocate for each launch")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    Convolution(Shape),
    Attention(AttentionShape),
}

/// A task that the library accepts, with all data for a call of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) task: Task,
    /// Addresses: of a convolution's input, weight and result; of an attention's operands by [`Operand`].
    pub(crate) places: [u64; OPERANDS],
    pub(crate) workspace: Scratch,
}

/// What the library prepared for a task.
enum Prepared {
    Convolution(plan::Plan),
    Attention(attention::Plan),
}

impl Prepared {
    fn new(library: &'static Functions, handle: Handle, task: &Task) -> Option<Self> {
        match task {
            Task::Convolution(shape) => plan::Plan::new(library, handle, shape).map(Self::Convolution),
            Task::Attention(shape) => attention::Plan::new(library, handle, shape).map(Self::Attention),
        }
    }
}

struct Plan {
    /// True if it ran: before that, the library may still have to load kernels for it.
    ran: bool,
    prepared: Prepared,
}

/// What is known of a task that the library takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// True if one like it ran before.
    pub(crate) ran: bool,
    /// Memory that a call needs: for convolutions at most as much as the shape says there is.
    pub(crate) workspace_bytes: u64,
}

impl Plan {
    fn known(&self) -> Planned {
        let workspace_bytes = match &self.prepared {
            Prepared::Convolution(_) => 0,
            Prepared::Attention(plan) => plan.workspace_bytes(),
        };
        Planned { ran: self.ran, workspace_bytes }
    }
}

/// The library on one device, and its plans so far.
pub(crate) struct Cudnn {
    library: &'static Functions,
    /// True if the library has to be faster than the own kernels.
    times: bool,
    state: Mutex<State>,
}

/// What exists from the first convolution or attention on.
#[derive(Default)]
struct State {
    /// `None` before it; an error if the library does not start.
    handle: Option<std::result::Result<Handle, Status>>,
    plans: HashMap<Task, Option<Plan>>,
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

    /// True if the library has to be faster than the own kernels to be taken.
    pub(crate) fn is_timed(&self) -> bool {
        self.times
    }

    /// Memory that the driver gave for the library so far.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.state().held_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a task. `None` if the library does not accept it, or was slower than the own kernels. `names` are of the card and of the own
    /// kernels.
    pub(crate) fn plan(&self, queue: &Queue, names: [&str; 2], task: &Task) -> Option<Planned> {
        let mut state = self.state();
        if let Some(plan) = state.plans.get(task) {
            return plan.as_ref().map(Plan::known);
        }
        if self.times && Choice::for_task(names, self.version(), task).is_own() {
            state.plans.insert(*task, None);
            return None;
        }
        let handle = state.handle(self.library, queue)?;
        // The library loads its rules for choosing, which may take memory.
        let planned = figures::measured(queue, || Ok::<_, Status>(Prepared::new(self.library, handle, task)));
        let (prepared, taken) = planned.unwrap_or((None, 0));
        state.held_bytes += taken;
        let plan = prepared.map(|prepared| Plan { ran: false, prepared });
        state.plans.entry(*task).insert_entry(plan).get().as_ref().map(Plan::known)
    }

    /// Passes a planned task to the driver.
    ///
    /// # Errors
    /// [`Error::Backend`] if the library fails at a task that it had accepted.
    pub(crate) fn run(&self, call: &Call) -> Result<()> {
        let state = self.state();
        let (Some(Ok(handle)), Some(Some(plan))) = (&state.handle, state.plans.get(&call.task)) else {
            return Err(Error::backend(NAME, format!("cuDNN has no plan for {:?}", call.task)));
        };
        self.call(*handle, plan, call).map_err(|status| failed(status, call))
    }

    /// Runs a new task. The library then loads its own kernels, and may refuse what it had accepted.
    /// Returns false if it refuses, now and from then on; the result then holds anything.
    pub(crate) fn try_first(&self, queue: &Queue, call: &Call) -> Result<bool> {
        let mut state = self.state();
        let State { handle: Some(Ok(handle)), plans, held_bytes } = &mut *state else { return Ok(false) };
        let Some(Some(plan)) = plans.get_mut(&call.task) else { return Ok(false) };
        match figures::measured(queue, || self.call(*handle, plan, call)) {
            Ok(((), taken)) => {
                plan.ran = true;
                *held_bytes += taken;
                Ok(true)
            }
            Err(status) if status >= EXECUTION_FAILED => Err(failed(status, call)),
            Err(_) => {
                plans.insert(call.task, None);
                Ok(false)
            }
        }
    }

    /// Decides, after the first run of a task, who computes the next ones: the library or the own kernels, whose names are those of
    /// [`plan`](Self::plan). Both calls overwrite the result, which has the bits of the chosen one in the end.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) fn choose(
        &self,
        queue: &Queue,
        names: [&str; 2],
        task: &Task,
        calls: [&dyn Fn() -> Result<()>; 2],
    ) -> Result<()> {
        if self.times && !Choice::for_task(names, self.version(), task).decide(queue, calls)? {
            self.state().plans.insert(*task, None);
        }
        Ok(())
    }

    fn call(&self, handle: Handle, plan: &Plan, call: &Call) -> std::result::Result<(), Status> {
        match (&plan.prepared, &call.task) {
            (Prepared::Convolution(plan), Task::Convolution(shape)) => self.convolve(handle, plan, shape, call),
            (Prepared::Attention(plan), Task::Attention(shape)) => {
                // SAFETY: core has checked the bounds of the operands, whose shape this is; the caller has a workspace as the plan says.
                unsafe { plan.run(self.library, handle, shape, &call.places, call.workspace.address) }
            }
            _ => Err(EXECUTION_FAILED),
        }
    }

    fn convolve(
        &self,
        handle: Handle,
        plan: &plan::Plan,
        shape: &Shape,
        call: &Call,
    ) -> std::result::Result<(), Status> {
        let [x, weight, y, ..] = call.places.map(|address| address as *mut c_void);
        let Scratch { address, bytes } = call.workspace;
        let (workspace, bytes) = (address as *mut c_void, bytes as usize);
        // Scalars of convolutions are f32 for all types here.
        let (one, old) = (1.0f32, if shape.adds { 1.0f32 } else { 0.0f32 });
        let (alpha, beta) = ((&raw const one).cast::<c_void>(), (&raw const old).cast::<c_void>());
        let (functions, algorithm, rules) = (self.library, plan.algorithm, plan.rules.0);
        let (x_is, weight_is, y_is) = (plan.x.0, plan.weight.0, plan.y.0);
        // SAFETY: the plan's descriptions are those of these operands, whose bounds core has checked; the workspace is as
        // large as the plan was told; scalars are read before the call returns.
        let status = unsafe {
            match shape.which {
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

fn failed(status: Status, call: &Call) -> Error {
    Error::backend(NAME, format!("cuDNN: status {status} for {:?}", call.task))
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
