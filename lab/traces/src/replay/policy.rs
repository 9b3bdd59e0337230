//! Allocation policies by name, on a device that accounts for memory and stores nothing.

use std::sync::Arc;

use lab_base::error::{Error, Result};
use memcore::backend::{DeviceMemory, DeviceProfile, Meta};
use memcore::memory::planned::{Bound, pack};
use memcore::memory::{Allocator, AllocatorConfig, Bfc, Block, Buddy, Caching, Direct, DriverEvent, Planned, Tlsf};

use super::run::{Observer, resume};
use super::trace::Trace;

/// Names of all policies, in the order in which they are compared.
pub const POLICY_NAMES: [&str; 7] = ["caching", "expandable", "direct", "bfc", "buddy", "tlsf", "planned"];

/// Allocation policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// PyTorch's allocator, with settings.
    Caching(Box<AllocatorConfig>),
    /// No cache: every request goes to the driver.
    Direct,
    /// Best fit with coalescing.
    Bfc,
    /// The buddy system.
    Buddy,
    /// Two-level segregated fit.
    Tlsf,
    /// A plan made from the whole run.
    Planned,
}

/// The device that a replay pretends to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Memory of the device in bytes; `None` for no limit.
    pub capacity_bytes: Option<u64>,
    /// Share of the memory that the process may use. Policies without such a limit get a device of that size.
    pub memory_fraction: Option<f64>,
}

/// Proven properties of a plan; they do not depend on how it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Size of the plan: all allocations have a place within that many bytes, and no two that live at one time overlap.
    pub plan_bytes: u64,
    /// Packing method.
    pub packing: &'static str,
    /// Lower bound: this many bytes live at one time, so no plan is smaller.
    pub bound_bytes: u64,
    /// Operation after which `bound_bytes` live.
    pub bound_operation: u64,
    /// Number of allocations that live then.
    pub bound_allocations: usize,
    /// True if the device has room for the plan. The plan is followed in any case: it shows what the best placement takes.
    pub fits: bool,
}

impl Certificate {
    /// True if no allocator can do better.
    pub fn is_optimal(&self) -> bool {
        self.plan_bytes == self.bound_bytes
    }
}

/// An allocator of a policy, ready to serve.
pub struct Opened {
    /// Device from which the allocator takes memory.
    pub device: Arc<Meta>,
    /// The allocator.
    pub allocator: Box<dyn Allocator>,
    /// Certificate of a plan; `None` for other policies.
    pub certificate: Option<Certificate>,
    /// Results of the trace's first allocations, if the allocator began with them.
    held: Vec<Block>,
}

impl Opened {
    /// Runs the trace for which it was opened, as [`replay`](super::replay) does.
    ///
    /// # Errors
    /// Those of the device, other than that memory ran out.
    pub fn replay<O: Observer>(&mut self, trace: &Trace, observer: &mut O) -> Result<()> {
        resume(trace, &mut *self.allocator, &self.held, observer)
    }
}

impl Policy {
    /// Returns the policy of a name; `config` holds the settings of the caching allocator.
    ///
    /// # Errors
    /// [`Error::Usage`] listing the names.
    pub fn by_name(name: &str, config: &AllocatorConfig) -> Result<Self> {
        let expandable = || AllocatorConfig { expandable_segments: true, ..config.clone() };
        Ok(match name {
            "caching" => Policy::Caching(Box::new(config.clone())),
            "expandable" => Policy::Caching(Box::new(expandable())),
            "direct" => Policy::Direct,
            "bfc" => Policy::Bfc,
            "buddy" => Policy::Buddy,
            "tlsf" => Policy::Tlsf,
            "planned" => Policy::Planned,
            other => {
                let known = POLICY_NAMES.join(", ");
                return Err(Error::usage("policy", format!("unknown policy {other:?}; known: {known}")));
            }
        })
    }

    /// Opens an allocator of this policy for a run of `trace`. PyTorch's allocator begins where the recording's did, if that is known; others begin
    /// empty.
    ///
    /// # Errors
    /// Settings that the device does not support.
    pub fn open(&self, trace: &Trace, machine: &Machine, driver: &mut dyn FnMut(DriverEvent)) -> Result<Opened> {
        let capacity = machine.capacity_bytes.unwrap_or(DeviceProfile::default().total_bytes);
        let share = |fraction: f64| (capacity as f64 * fraction) as u64;
        let allowed = machine.memory_fraction.map_or(capacity, share);
        let caching = matches!(self, Policy::Caching(_));
        let total_bytes = match self {
            Policy::Planned => DeviceProfile::default().total_bytes,
            _ if caching => capacity,
            _ => allowed,
        };
        let device = Arc::new(Meta::new(DeviceProfile { total_bytes, ..DeviceProfile::default() }));
        let memory: Arc<dyn DeviceMemory> = device.clone();
        let (mut certificate, mut held) = (None, Vec::new());
        let mut allocator: Box<dyn Allocator> = match self {
            Policy::Caching(config) => {
                let (caching, began) = resumed(trace, memory, config)?;
                held = began;
                Box::new(caching)
            }
            Policy::Direct => Box::new(Direct::new(memory)),
            Policy::Bfc => Box::new(Bfc::new(memory)),
            Policy::Buddy => Box::new(Buddy::new(memory)),
            Policy::Tlsf => Box::new(Tlsf::new(memory)),
            Policy::Planned => {
                let (planned, known) = plan(trace, memory, allowed, driver)?;
                certificate = Some(known);
                Box::new(planned)
            }
        };
        if let (Some(fraction), true) = (machine.memory_fraction, caching) {
            allocator.set_memory_fraction(fraction)?;
        }
        Ok(Opened { device, allocator, certificate, held })
    }
}

/// Makes PyTorch's allocator, and the blocks that it begins with. It begins empty on a device without room for the recorded state, and under settings
/// whose pages are of another size than the recorded ones: a program that had them from its start would have come to another state.
fn resumed(trace: &Trace, memory: Arc<dyn DeviceMemory>, config: &AllocatorConfig) -> Result<(Caching, Vec<Block>)> {
    let restored = trace
        .start
        .as_ref()
        .filter(|_| trace.resumes_under(config))
        .map(|start| Caching::restored(memory.clone(), config.clone(), &start.memory, &start.later));
    match restored {
        Some(Err(error)) if error.is_out_of_memory() => {}
        Some(restored) => return Ok(restored?),
        None => {}
    }
    Ok((Caching::new(memory, config.clone())?, Vec::new()))
}

fn plan(
    trace: &Trace,
    memory: Arc<dyn DeviceMemory>,
    allowed: u64,
    driver: &mut dyn FnMut(DriverEvent),
) -> Result<(Planned, Certificate)> {
    let lifetimes = trace.lifetimes();
    let (plan, bound) = (pack(&lifetimes), Bound::from_lifetimes(&lifetimes));
    if !bound.check(&lifetimes) {
        return Err(memcore::Error::invalid("lower bound", "it does not hold for these lifetimes").into());
    }
    let certificate = Certificate {
        plan_bytes: plan.bytes,
        packing: plan.packing.name(),
        bound_bytes: bound.bytes,
        bound_operation: bound.at,
        bound_allocations: bound.live.len(),
        fits: plan.bytes <= allowed,
    };
    // `Planned::new` checks the plan.
    Ok((Planned::new(memory, plan, &lifetimes, driver)?, certificate))
}
