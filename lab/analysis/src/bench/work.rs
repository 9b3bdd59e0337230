//! Something to measure: it runs on a device again and again, and is known by what it must move and compute.

use std::time::{Duration, Instant};

use lab_base::error::Result;
use memcore::backend::KernelCall;
use memcore::{Array, Device};

use super::clock::{Limits, Timing, time};

/// What one run needs at least, as the device counted it: see [`KernelCall::cost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes read and written.
    pub bytes: u64,
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
    /// Kernels launched.
    pub launches: u64,
}

/// Something that runs on a device.
pub struct Work {
    device: Device,
    run: Box<dyn FnMut() -> Result<()>>,
    demand: Demand,
}

impl Work {
    /// What `run` queues on `device`. It is run once here, so that the device has counted what it needs, compiled it and
    /// taken its memory.
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

    /// Kernel calls, one after the other, on arrays that live as long as this. Each is checked here, once; what is run
    /// again and again is the backend alone.
    ///
    /// # Errors
    /// Calls that break the contract or that the backend does not have; its own.
    pub fn of_calls(device: &Device, calls: Vec<KernelCall>, arrays: Vec<Array>) -> Result<Self> {
        let (on, mut first) = (device.clone(), true);
        Self::new(device, move || {
            // They are in use as long as the calls are.
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

    /// What one run needs at least.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Runs it so many times, waits for the device, and says how long that took.
    pub fn run(&mut self, times: u64) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            (self.run)()?;
        }
        self.device.synchronize()?;
        Ok(start.elapsed())
    }

    /// How long one run takes.
    pub fn time(&mut self, limits: &Limits<'_>) -> Result<Option<Timing>> {
        time(limits, &mut |runs| self.run(runs))
    }
}
