//! Measurable work: it runs on a device again and again, and its bytes and operations are known.

use std::time::{Duration, Instant};

use lab_base::error::Result;
use memcore::backend::KernelCall;
use memcore::{Array, Device};

use super::clock::{Limits, Timing, time};

/// Least cost of one run, as the device counted it: see [`KernelCall::cost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes read and written.
    pub bytes: u64,
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
    /// Kernels launched.
    pub launches: u64,
}

/// Work that runs on a device.
pub struct Work {
    device: Device,
    run: Box<dyn FnMut() -> Result<()>>,
    demand: Demand,
}

impl Work {
    /// Wraps a function that queues work on `device`. It runs once here, so that the device counts its cost, compiles it and allocates its memory.
    pub fn new(device: &Device, run: impl FnMut() -> Result<()> + 'static) -> Result<Self> {
        let mut run: Box<dyn FnMut() -> Result<()>> = Box::new(run);
        let before = device.counters();
        run()?;
        let after = device.counters();
        device.synchronize()?;
        let demand = Demand {
            bytes: after.bytes - before.bytes,
            flops: after.flops - before.flops,
            launches: after.launches - before.launches,
        };
        Ok(Self { device: device.clone(), run, demand })
    }

    /// Runs kernel calls one after the other, on arrays that live as long as this. Each call is checked once, here; repeated runs call only the
    /// backend.
    ///
    /// # Errors
    /// Calls that break the contract or that the backend does not have; its own.
    pub fn of_calls(device: &Device, calls: Vec<KernelCall>, arrays: Vec<Array>) -> Result<Self> {
        let (on, mut first) = (device.clone(), true);
        Self::new(device, move || {
            // The arrays must live as long as the calls.
            let _held = &arrays;
            for call in &calls {
                if first {
                    on.launch(call.clone())?;
                } else {
                    on.backend().launch(call)?;
                }
            }
            first = false;
            Ok(())
        })
    }

    /// Least cost of one run.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Runs the work this many times and waits for the device. Returns how long that took.
    pub fn run(&mut self, times: u64) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            (self.run)()?;
        }
        self.device.synchronize()?;
        Ok(start.elapsed())
    }

    /// Times one run.
    pub fn time(&mut self, limits: &Limits<'_>) -> Result<Option<Timing>> {
        time(limits, &mut |runs| self.run(runs))
    }
}
