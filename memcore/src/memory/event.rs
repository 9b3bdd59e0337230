//! Events of memory, as data.

use super::stream::Stream;
use crate::account::Category;

/// The number of an allocation on its device, counted from 0. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocId(pub u64);

/// A module path, interned by the [`Ledger`](super::Ledger). 0 is the root: no module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

/// A phase of the training step (forward, backward, …), interned by the ledger. 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseId(pub u32);

/// The code that caused an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The module that was running.
    pub scope: ScopeId,
    /// The operator, by its ATen name (`addmm`); empty if no operator ran and the program dropped a value.
    pub op: &'static str,
    /// The autograd node that the operator ran in (`AddmmBackward0`).
    pub node: Option<&'static str>,
    /// The phase of the step.
    pub phase: PhaseId,
}

/// One event. The state of memory is a fold over these: [`Usage::apply`](super::Usage::apply).
///
/// ```
/// use memcore::memory::Usage;
/// use memcore::prelude::*;
///
/// # fn main() -> Result<()> {
/// let device = Device::meta("torch-2.11-sm90")?;
/// device.set_history(true);
/// let x = Tensor::leaf(Array::empty(&device, &[64, 256], DType::F32)?);
/// let y = x.exp()?;
/// drop(y);
/// device.with_ledger(|ledger| {
///     let made = ledger.history().iter().filter_map(|event| match event {
///         Event::Alloc { origin, requested_bytes, .. } => Some((origin.op, *requested_bytes)),
///         _ => None,
///     });
///     assert_eq!(made.last(), Some(("exp", 64 * 256 * 4)));
///     assert_eq!(Usage::replay(ledger.history()).peak_bytes(), ledger.usage().peak_bytes());
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block was given to a client.
    Alloc {
        /// Id of the allocation in later events.
        id: AllocId,
        /// Bytes that the client asked for.
        requested_bytes: u64,
        /// Bytes of the block that it got.
        bytes: u64,
        /// Virtual address.
        address: u64,
        /// The stream that the block belongs to.
        stream: Stream,
        /// Role of the allocation.
        category: Category,
        /// The code that allocated.
        origin: Origin,
    },
    /// A client freed its block.
    Free {
        /// Id of the allocation.
        id: AllocId,
        /// The code that freed it.
        origin: Origin,
    },
    /// The role of an allocation became known, or changed.
    Retag {
        /// Id of the allocation.
        id: AllocId,
        /// Its new role.
        to: Category,
    },
    /// A segment was taken from the driver.
    SegmentAlloc {
        /// Virtual address.
        address: u64,
        /// Size.
        bytes: u64,
        /// The stream whose blocks it will hold.
        stream: Stream,
    },
    /// A segment was given back.
    SegmentFree {
        /// Virtual address.
        address: u64,
        /// Size.
        bytes: u64,
        /// The stream whose blocks it held.
        stream: Stream,
    },
    /// Pages of an expandable segment were mapped.
    SegmentMap {
        /// Virtual address.
        address: u64,
        /// Size.
        bytes: u64,
        /// The stream whose blocks they will hold.
        stream: Stream,
    },
    /// Pages of an expandable segment were given back.
    SegmentUnmap {
        /// Virtual address.
        address: u64,
        /// Size.
        bytes: u64,
        /// The stream whose blocks they held.
        stream: Stream,
    },
    /// The driver refused a segment or a page.
    Refused {
        /// Size.
        bytes: u64,
    },
    /// The settings asked for expandable segments, but the device has none.
    ExpandableUnsupported,
    /// A phase of the step began. The phase's own peak is reset.
    Phase {
        /// The phase.
        phase: PhaseId,
    },
    /// The phase's peak is reset without a new phase.
    ResetPhasePeak,
    /// All peaks are reset, as by `reset_peak_memory_stats()`.
    ResetPeak,
    /// A request failed for lack of memory.
    Oom {
        /// Bytes that the client asked for.
        requested_bytes: u64,
        /// The code that asked.
        origin: Origin,
    },
}
