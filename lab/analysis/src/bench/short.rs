//! The short benchmark: a few kernels, two training steps, the allocators; one device at a time, within a given time.

use std::sync::Arc;

use lab_base::error::Result;
use lab_traces::replay::POLICY_NAMES;
use memcore::backend::Backend;
use memcore::backend::kernel::{Binary, BinaryOp, Unary, UnaryOp};
use memcore::{DType, Device};

use super::clock::{Limits, Timing};
use super::roofline::Roofline;
use super::work::{Demand, Work};
use super::{allocators, kernels, training};

/// Elements of the large elementwise kernels.
const ELEMENTS: usize = 1 << 24;

/// Kernels measured on a device, in f32: label, kernel, size.
const KERNELS: [(&str, &str, &[usize]); 7] = [
    ("launch", "binary_add", &[1 << 10]),
    ("copy", "copy", &[ELEMENTS]),
    ("add, relu", "", &[ELEMENTS]),
    ("sum of rows", "reduce_rows", &[4096, 4096]),
    ("softmax", "softmax", &[4096, 4096]),
    ("matmul", "matmul", &[1024]),
    ("conv2d 3x3", "conv2d", &[8, 64, 64, 28]),
];

/// Networks of which a training step is measured.
const TRAINED: [&str; 2] = ["mlp", "simplecnn-b32"];

/// Number of kernels that the roofs count as when the time is divided.
const ROOF_SHARES: usize = 3;

/// Time limit, how to end early, and a callback for progress.
#[derive(Clone, Copy)]
pub struct Short<'a> {
    /// Seconds for everything on one device, or for all allocators. Opening and compiling are not counted.
    pub seconds: f64,
    /// True if a stop was requested.
    pub stop: &'a dyn Fn() -> bool,
    /// Called with the name of the next measurement.
    pub tell: &'a dyn Fn(&str),
}

/// A kernel that was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Label.
    pub name: &'static str,
    /// Its size.
    pub size: String,
    /// Its type.
    pub dtype: DType,
    /// Least cost.
    pub demand: Demand,
    /// Measured duration.
    pub timing: Timing,
    /// Share of the roof that it reaches.
    pub of_roof: Option<f64>,
    /// True if arithmetic sets the roof, false if memory does.
    pub by_arithmetic: bool,
}

/// A training step that was measured.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The step, measured like a kernel.
    pub step: Measured,
    /// Examples in a step.
    pub batch: usize,
    /// Peak of reserved memory.
    pub peak_reserved_bytes: u64,
}

/// A measurement that a device could not do.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Label of the measurement.
    pub name: &'static str,
    /// Reason.
    pub reason: String,
}

/// Measurement of an allocation policy.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Name of the policy.
    pub policy: &'static str,
    /// Number of operations in the program.
    pub operations: usize,
    /// Duration of a run.
    pub timing: Timing,
}

/// Measurements of a device.
#[derive(Clone, Debug, Default)]
pub struct OfDevice {
    /// Its highest speeds.
    pub roofs: Roofline,
    /// Its kernels.
    pub kernels: Vec<Measured>,
    /// Its training steps.
    pub training: Vec<Trained>,
    /// Measurements that it could not do.
    pub skipped: Vec<Skipped>,
}

impl Short<'_> {
    fn share(&self) -> Limits<'_> {
        let shares = ROOF_SHARES + KERNELS.len() + TRAINED.len();
        Limits { seconds: self.seconds / shares as f64, stop: self.stop }
    }

    /// Measures a device. Failures are reported with the results; a stop keeps the results until then.
    pub fn device(&self, backend: &Arc<dyn Backend>) -> OfDevice {
        let mut found = OfDevice::default();
        (self.tell)("roofs");
        let limits = Limits { seconds: self.share().seconds * ROOF_SHARES as f64, stop: self.stop };
        match Roofline::measure(&Device::builder(backend.clone()).build(), &[DType::F32], &limits) {
            Ok(roofs) => found.roofs = roofs,
            Err(error) => found.skipped.push(Skipped { name: "roofs", reason: error.to_string() }),
        }
        for (name, kernel, size) in KERNELS {
            if (self.stop)() {
                return found;
            }
            (self.tell)(name);
            match self.kernel(backend, &found.roofs, (name, kernel, size)) {
                Ok(measured) => found.kernels.extend(measured),
                Err(error) => found.skipped.push(Skipped { name, reason: error.to_string() }),
            }
        }
        for name in TRAINED {
            if (self.stop)() {
                return found;
            }
            (self.tell)(name);
            match self.training(backend, &found.roofs, name) {
                Ok(trained) => found.training.extend(trained),
                Err(error) => found.skipped.push(Skipped { name, reason: error.to_string() }),
            }
        }
        found
    }

    fn kernel(
        &self,
        backend: &Arc<dyn Backend>,
        roofs: &Roofline,
        (name, kernel, size): (&'static str, &str, &[usize]),
    ) -> Result<Option<Measured>> {
        let device = Device::builder(backend.clone()).build();
        let dtype = DType::F32;
        let work = match kernels::named(kernel) {
            Some(kernel) => kernel.prepare(&device, dtype, size)?,
            None => add_relu(&device, dtype, size)?,
        };
        self.measured(roofs, (name, kernels::label(size)), work)
    }

    fn training(&self, backend: &Arc<dyn Backend>, roofs: &Roofline, name: &'static str) -> Result<Option<Trained>> {
        let device = Device::builder(backend.clone()).build();
        let Some(workload) = training::named(name) else { return Ok(None) };
        let work = workload.prepare(&device)?.into_work()?;
        let batch = workload.batch;
        let step = self.measured(roofs, (name, format!("batch {batch}")), work)?;
        let peak_reserved_bytes = device.stats().reserved_bytes.all.peak;
        Ok(step.map(|step| Trained { step, batch, peak_reserved_bytes }))
    }

    fn measured(
        &self,
        roofs: &Roofline,
        (name, size): (&'static str, String),
        mut work: Work,
    ) -> Result<Option<Measured>> {
        let (dtype, demand) = (DType::F32, work.demand());
        let timing = work.time(&self.share())?;
        Ok(timing.map(|timing| Measured {
            name,
            size,
            dtype,
            demand,
            timing,
            of_roof: roofs.fraction(demand, dtype, timing.median_ns),
            by_arithmetic: roofs.least_ns(demand, dtype).is_some_and(|(_, arithmetic)| arithmetic),
        }))
    }

    /// Measures every allocation policy on the program of a training run.
    pub fn allocators(&self) -> Result<Vec<Allocator>> {
        let trace = allocators::training_program()?;
        let limits = Limits { seconds: self.seconds / POLICY_NAMES.len() as f64, stop: self.stop };
        let mut found = Vec::new();
        for policy in POLICY_NAMES {
            (self.tell)(policy);
            let timing = allocators::measure(policy, &trace, &limits)?;
            let operations = trace.operations().len();
            found.extend(timing.map(|timing| Allocator { policy, operations, timing }));
        }
        Ok(found)
    }
}

/// `relu(a + b)`: two kernels, the second in place.
fn add_relu(device: &Device, dtype: DType, size: &[usize]) -> Result<Work> {
    kernels::prepare(device, dtype, |o| {
        let (lhs, rhs, out) = (o.read(size)?, o.read(size)?, o.write(size)?);
        let add = Binary { op: BinaryOp::ADD, lhs, rhs, out };
        Ok(vec![add.into(), Unary { op: UnaryOp::Relu, x: out, out }.into()])
    })
}

impl Measured {
    /// Bytes moved per nanosecond, which is 10⁹ per second.
    pub fn gb_per_s(&self) -> f64 {
        self.demand.bytes as f64 / self.timing.median_ns
    }

    /// Operations per nanosecond.
    pub fn gflop_per_s(&self) -> f64 {
        self.demand.flops as f64 / self.timing.median_ns
    }
}

impl Allocator {
    /// Nanoseconds per operation.
    pub fn ns_per_operation(&self) -> f64 {
        self.timing.median_ns / self.operations as f64
    }
}

#[cfg(test)]
mod tests {
    use memcore::backend::Meta;

    use super::*;

    fn short(stop: &dyn Fn() -> bool) -> Short<'_> {
        Short { seconds: 0.0, stop, tell: &|_| {} }
    }

    /// Nothing is computed on this device, but everything is launched.
    #[test]
    fn everything_is_measured_on_a_device() {
        let backend: Arc<dyn Backend> = Arc::new(Meta::default());
        let found = short(&|| false).device(&backend);
        assert!(found.skipped.is_empty(), "{:?}", found.skipped);
        assert_eq!((found.kernels.len(), found.training.len()), (KERNELS.len(), TRAINED.len()));
        let demand = |kernel: usize| found.kernels[kernel].demand;
        assert_eq!((demand(2).launches, demand(2).bytes), (2, 20 * ELEMENTS as u64));
        assert_eq!(demand(5).flops, 2 << 30);
    }

    #[test]
    fn an_end_leaves_what_was_measured() {
        let backend: Arc<dyn Backend> = Arc::new(Meta::default());
        let told = std::cell::RefCell::new(Vec::new());
        let stop = || told.borrow().len() > 3;
        let tell = |name: &str| told.borrow_mut().push(name.to_string());
        let found = Short { seconds: 0.0, stop: &stop, tell: &tell }.device(&backend);
        assert_eq!(*told.borrow(), ["roofs", "launch", "copy", "add, relu"]);
        assert_eq!((found.kernels.len(), found.training.len()), (2, 0));
    }
}
