//! Matrix products by cuBLASLt, if the library is present.
//!
//! The library uses column-major order: a row-major `out = a @ b` is its `outᵀ = bᵀ @ aᵀ`, so that its first matrix is
//! our `b`. It names several algorithms for a shape; the fastest is found when the first product of that shape runs, and
//! kept. Its workspace is the one that core allocated for the call, of PyTorch's size; a call without one gets the
//! backend's scratch instead.

mod library;
mod plan;
mod shape;
mod timing;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::sys;
use memcore::backend::kernel::Matmul;
use memcore::{Error, Result};

use crate::arguments::Bits;
use crate::driver::NAME;
use crate::figures;
use crate::libraries::Version;
use crate::queue::Queue;
use library::{Functions, NOT_SUPPORTED, Status, library};
use plan::Plan;
use shape::shape;
pub(crate) use shape::{Places, Shape};

/// Set to `0`, this environment variable leaves matrix products to the backend's own kernels. Set to `first`, it takes the
/// library's first choice, as PyTorch does, instead of the fastest one.
const SWITCH: &str = "VRAMLAB_CUBLASLT";

/// The library on one device, and its plans so far.
pub(crate) struct BlasLt {
    library: &'static Functions,
    handle: sys::cublasLtHandle_t,
    /// The card and the library, for which choices are kept; `None` if the library's first choice is taken.
    card: Option<String>,
    plans: Mutex<HashMap<Shape, Option<Plan>>>,
    /// Memory that the driver gave for it.
    held_bytes: AtomicU64,
}

// SAFETY: the library's handle may be used from any thread; plans are behind a lock.
unsafe impl Send for BlasLt {}
// SAFETY: as above.
unsafe impl Sync for BlasLt {}

/// A product that the library accepts, with all data for a call of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Product {
    pub(crate) shape: Shape,
    places: Places,
    alpha: Bits<f32>,
    beta: Bits<f32>,
}

impl BlasLt {
    /// Loads the library in a context on a card of this name, for a driver of CUDA `newest`.
    ///
    /// # Errors
    /// The reason why it is not used: it is missing, too old, too new, or switched off.
    pub(crate) fn load(queue: &Queue, card: &str, newest: u32) -> std::result::Result<Self, String> {
        let switch = std::env::var_os(SWITCH);
        if switch.as_ref().is_some_and(|value| value == "0") {
            return Err(format!("{SWITCH} is 0"));
        }
        let library = library(newest)?;
        let times = switch.is_none_or(|value| value != "first");
        let card = times.then(|| format!("{card}, cuBLASLt {}", library.number()));
        queue.bind().map_err(|error| error.to_string())?;
        let create = || {
            let mut handle = std::ptr::null_mut();
            // SAFETY: a place to write the handle to; the context is current.
            match unsafe { (library.cublasLtCreate)(&mut handle) } {
                0 => Ok(handle),
                status => Err(format!("it does not start (status {status})")),
            }
        };
        let (handle, bytes) = figures::measured(queue, create)?;
        Ok(Self { library, handle, card, plans: Mutex::default(), held_bytes: AtomicU64::new(bytes) })
    }

    /// Major and minor version.
    pub(crate) fn version(&self) -> Version {
        self.library.version()
    }

    /// Memory that the driver gave for the library so far.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Plans the product with matrices at these addresses; the flag tells whether one like it ran before. `None` if the
    /// library does not accept it.
    pub(crate) fn product(&self, k: &Matmul, places: Places, tf32: bool) -> Option<(Product, bool)> {
        let shape = shape(k, &places, tf32)?;
        let mut plans = self.plans();
        let plan = plans.entry(shape).or_insert_with(|| Plan::new(self.library, self.handle, &shape, places.bias));
        let product = Product { shape, places, alpha: Bits(k.alpha as f32), beta: Bits(k.beta as f32) };
        Some((product, plan.as_ref()?.ran))
    }

    /// Passes a planned product to the driver.
    ///
    /// # Errors
    /// [`Error::Backend`] if the library fails at a product that it had accepted.
    pub(crate) fn run(&self, queue: &Queue, product: &Product) -> Result<()> {
        let plans = self.plans();
        let Some(Some(plan)) = plans.get(&product.shape) else {
            return Err(Error::backend(NAME, format!("cuBLASLt has no plan for {:?}", product.shape)));
        };
        self.call(queue, plan, &plan.algorithms[0], product).map_err(|status| failed(status, product))
    }

    /// Runs a product of a new shape. The library then loads its own kernels, and may refuse a product that it had
    /// accepted (PyTorch's issues 92201 and 97205). Returns false if it refuses, now and from then on. Decides which of its
    /// algorithms computes such products.
    pub(crate) fn try_first(&self, queue: &Queue, product: &Product) -> Result<bool> {
        let mut plans = self.plans();
        let Some(Some(plan)) = plans.get_mut(&product.shape) else { return Ok(false) };
        match figures::measured(queue, || self.choose(queue, plan, product)) {
            Ok((algorithm, taken)) => {
                (plan.ran, plan.algorithms) = (true, vec![algorithm]);
                self.held_bytes.fetch_add(taken, Relaxed);
                Ok(true)
            }
            Err(NOT_SUPPORTED) => {
                plans.insert(product.shape, None);
                Ok(false)
            }
            Err(status) => Err(failed(status, product)),
        }
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<Shape, Option<Plan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the product, and returns the algorithm that computed it: the fastest, or the library's first. A product that
    /// adds to its result cannot be repeated, so its algorithm is the first.
    fn choose(
        &self,
        queue: &Queue,
        plan: &Plan,
        product: &Product,
    ) -> std::result::Result<sys::cublasLtMatmulAlgo_t, Status> {
        let run = |algorithm: &sys::cublasLtMatmulAlgo_t| self.call(queue, plan, algorithm, product);
        match &self.card {
            Some(card) if !product.shape.reads_out && plan.algorithms.len() > 1 => {
                timing::fastest(queue, card, &product.shape, &plan.algorithms, run)
            }
            _ => run(&plan.algorithms[0]).map(|()| plan.algorithms[0]),
        }
    }

    fn call(
        &self,
        queue: &Queue,
        plan: &Plan,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        product: &Product,
    ) -> std::result::Result<(), Status> {
        let Places { a, b, bias, out, workspace } = product.places;
        if bias != 0 {
            plan.set_bias(bias)?;
        }
        let [first, second, result] = plan.layouts;
        // SAFETY: the plan's descriptions are those of these operands, whose bounds core has checked; the workspace is as
        // large as the plan was told; scalars are read before the call returns.
        let status = unsafe {
            (self.library.cublasLtMatmul)(
                self.handle,
                plan.product,
                (&raw const product.alpha).cast::<c_void>(),
                b as *const c_void,
                first,
                a as *const c_void,
                second,
                (&raw const product.beta).cast::<c_void>(),
                out as *const c_void,
                result,
                out as *mut c_void,
                result,
                algorithm,
                workspace.address as *mut c_void,
                workspace.bytes as usize,
                queue.stream().cast(),
            )
        };
        if status == 0 { Ok(()) } else { Err(status) }
    }
}

fn failed(status: Status, product: &Product) -> Error {
    Error::backend(NAME, format!("cuBLASLt: status {status} for {:?}", product.shape))
}

impl Drop for BlasLt {
    fn drop(&mut self) {
        self.plans.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // SAFETY: the handle is live, and nobody has it after this. Nothing can be done about a failure.
        let _ = unsafe { (self.library.cublasLtDestroy)(self.handle) };
    }
}
