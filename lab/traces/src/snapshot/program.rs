//! Program behind a trace: its requests, in order, for a replay under other settings.
//!
//! A trace holds the results of calls, not the calls. Allocations that lived before the trace are made first, in order of address; PyTorch's allocator
//! begins with them in the places where they were, if these are known (`rewind.rs`). Memory returned to the driver may have been requested by the program or decided by the allocator; the entries that follow tell them apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use lab_base::error::{Error, Result};
use memcore::memory::{AllocatorConfig, BlockState, TorchVersion};
use rustc_hash::FxHashMap;

use super::model::{Action, PoolId, Snapshot, StreamId, TraceEvent};
use super::pools::Homes;
use super::rewind::SMALL_SEGMENT_BYTES;
use crate::replay::{Operation, Settings, Trace};

/// A trace as a program, with the recorded addresses of its allocations.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub trace: Trace,
    /// Recorded address of each allocation; `None` if it failed.
    pub addresses: Vec<Option<u64>>,
    /// Entry of the trace from which each operation is; 0 for allocations that lived before.
    pub events: Vec<u32>,
    /// Number of allocations that lived before the trace began.
    pub before: usize,
    /// Number of entries that contradict those before them.
    pub gaps: usize,
}

/// Stream that pending frees wait for, if the recording has no other.
const OTHER_STREAM: u16 = u16::MAX;

impl Snapshot {
    /// Returns the settings of the allocator and the release that wrote them.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that PyTorch would not take either.
    pub fn allocator_config(&self) -> Result<AllocatorConfig> {
        let mut config = AllocatorConfig::for_version(self.version());
        let Some(settings) = &self.settings else { return Ok(config) };
        let update = config.update(&settings.alloc_conf);
        update.map_err(|error| Error::usage("allocator_settings", error.to_string()))?;
        // The fields hold the settings in force, however they were set.
        config.max_split_size_bytes = settings.max_split_bytes.unwrap_or(u64::MAX);
        config.garbage_collection_threshold = settings.garbage_collection_threshold;
        config.expandable_segments = settings.expandable_segments;
        for (interval_mib, steps) in &settings.roundup_power2_divisions {
            let place = interval_mib.checked_ilog2().map(|place| place as usize);
            if let Some(division) = place.and_then(|place| config.roundup_power2_divisions.get_mut(place)) {
                *division = *steps;
            }
        }
        Ok(config)
    }

    /// Returns the release that wrote the snapshot, as far as the allocator's behaviour depends on it.
    fn version(&self) -> TorchVersion {
        match self.newer {
            true => TorchVersion::V2_15,
            false if self.of_2_12 => TorchVersion::V2_12,
            false => TorchVersion::V2_11,
        }
    }

    /// Returns the program of a device.
    ///
    /// # Errors
    /// [`Error::Usage`] without a trace, and for one with more streams than a replay has.
    pub fn program(&self, name: &str, device: usize) -> Result<Program> {
        let trace = self.trace(device);
        if !self.records_requests(device) {
            let problem = format!(
                "no requests were recorded on device {device}; torch.cuda.memory._record_memory_history() starts recording"
            );
            return Err(Error::usage(name, problem));
        }
        let before = self.before(device);
        let mut maker = Maker::new(self, device, &before)?;
        for (at, _) in trace.iter().enumerate() {
            maker.event(at)?;
        }
        let settings = Settings {
            alloc_conf: self.settings.as_ref().map(|settings| settings.alloc_conf.clone()).unwrap_or_default(),
            capacity_bytes: maker.capacity,
            memory_fraction: None,
            version: self.version(),
        };
        let (addresses, events, gaps) = (maker.addresses, maker.events, maker.gaps);
        let start = self.start(device, &before, &self.allocator_config()?);
        let trace = Trace::new(name, settings, maker.operations)?.starting(start.map(Arc::new));
        Ok(Program { trace, addresses, events, before: before.len(), gaps })
    }

    /// Returns what lived when the trace began, by address: address, requested bytes, stream.
    pub(super) fn before(&self, device: usize) -> Vec<(u64, u64, StreamId)> {
        let mut made: FxHashMap<u64, bool> = FxHashMap::default();
        let mut before = BTreeMap::new();
        for event in self.trace(device) {
            match event.action {
                Action::Alloc => drop(made.insert(event.address, true)),
                Action::FreeRequested | Action::FreeCompleted if made.insert(event.address, false).is_none() => {
                    before.insert(event.address, (event.bytes, event.stream));
                }
                _ => {}
            }
        }
        for segment in self.segments_of(device) {
            for block in &segment.blocks {
                if block.state != BlockState::Inactive && !made.contains_key(&block.address) {
                    before.insert(block.address, (block.requested_bytes, segment.stream));
                }
            }
        }
        before.into_iter().map(|(address, (bytes, stream))| (address, bytes, stream)).collect()
    }
}

struct Maker<'a> {
    trace: &'a [TraceEvent],
    operations: Vec<Operation>,
    events: Vec<u32>,
    addresses: Vec<Option<u64>>,
    homes: Homes,
    /// Live allocation at each address.
    lives: FxHashMap<u64, u32>,
    /// Addresses whose free waits for a stream.
    pending: FxHashMap<u64, u32>,
    reserved: u64,
    capacity: Option<u64>,
    collects: bool,
    gaps: usize,
}

impl<'a> Maker<'a> {
    fn new(snapshot: &'a Snapshot, device: usize, before: &[(u64, u64, StreamId)]) -> Result<Self> {
        let trace = snapshot.trace(device);
        let settings = snapshot.settings.as_ref();
        let mut maker = Self {
            trace,
            operations: Vec::with_capacity(trace.len()),
            events: Vec::with_capacity(trace.len()),
            addresses: Vec::new(),
            homes: Homes::from_snapshot(snapshot, device),
            lives: FxHashMap::default(),
            pending: FxHashMap::default(),
            reserved: snapshot.reserved_before(device),
            capacity: None,
            collects: settings.is_some_and(|settings| settings.garbage_collection_threshold > 0.0),
            gaps: 0,
        };
        maker.capacity = maker.capacity(snapshot);
        for (address, bytes, stream) in before {
            let pool = maker.homes.pool(*address, None);
            maker.allocate(0, *address, *bytes, *stream, pool)?;
        }
        let waits = |at: usize| trace[at].action == Action::FreeRequested && !maker.completes(at);
        if (0..trace.len()).any(waits) {
            maker.push(0, Operation::HoldEvents);
        }
        Ok(maker)
    }

    /// Returns the memory that the program could have had: free plus reserved memory at the moment memory ran out. If the card had room for the
    /// request, the process had a share of it, which was at least what had been reserved by then.
    fn capacity(&self, snapshot: &Snapshot) -> Option<u64> {
        let (mut reserved, mut most) = (self.reserved, self.reserved);
        for event in self.trace {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => reserved = reserved.saturating_add(event.bytes),
                Action::SegmentFree | Action::SegmentUnmap => reserved = reserved.saturating_sub(event.bytes),
                Action::Oom if snapshot.card_had_room(event) => return Some(most),
                Action::Oom => return reserved.checked_add(event.address),
                _ => {}
            }
            most = most.max(reserved);
        }
        None
    }

    fn push(&mut self, at: usize, operation: Operation) {
        self.operations.push(operation);
        self.events.push(at as u32);
    }

    fn allocate(&mut self, at: usize, address: u64, bytes: u64, stream: StreamId, pool: PoolId) -> Result<()> {
        let (Ok(stream), Ok(pool)) = (u16::try_from(stream.0), u16::try_from(pool.0)) else {
            return Err(Error::usage(format!("entry {at}"), "more than 65535 streams or private pools"));
        };
        let allocation = self.addresses.len() as u32;
        self.addresses.push(Some(address));
        self.push(at, Operation::Allocate { bytes, stream, pool, served: true });
        if let Some(replaced) = self.lives.insert(address, allocation) {
            self.gaps += 1;
            self.push(at, Operation::Free { allocation: replaced });
        }
        Ok(())
    }

    /// True if the free requested here completes at once.
    fn completes(&self, at: usize) -> bool {
        let next = self.trace.get(at + 1);
        next.is_some_and(|next| next.action == Action::FreeCompleted && next.address == self.trace[at].address)
    }

    fn event(&mut self, at: usize) -> Result<()> {
        let event = self.trace[at];
        match event.action {
            Action::Alloc => {
                // Later releases name the pool of each entry.
                let named = Some(event.pool).filter(|pool| *pool != PoolId::default());
                let pool = named.unwrap_or_else(|| self.homes.pool(event.address, Some(at)));
                self.allocate(at, event.address, event.bytes, event.stream, pool)?;
            }
            Action::Oom => {
                self.addresses.push(None);
                let (stream, pool) = (u16::try_from(event.stream.0), u16::try_from(event.pool.0));
                let (stream, pool) = (stream.unwrap_or(0), pool.unwrap_or(0));
                self.push(at, Operation::Allocate { bytes: event.bytes, stream, pool, served: false });
            }
            Action::FreeRequested => self.free(at, event.address),
            Action::FreeCompleted => self.completed(at, event.address),
            Action::SegmentAlloc | Action::SegmentMap => self.reserved = self.reserved.saturating_add(event.bytes),
            Action::SegmentFree | Action::SegmentUnmap => self.given_back(at),
            Action::Snapshot | Action::Other => {}
        }
        Ok(())
    }

    fn free(&mut self, at: usize, address: u64) {
        let Some(allocation) = self.lives.remove(&address) else {
            self.gaps += 1;
            return;
        };
        if !self.completes(at) {
            self.pending.insert(address, allocation);
            self.push(at, Operation::RecordStream { allocation, stream: OTHER_STREAM });
        }
        self.push(at, Operation::Free { allocation });
    }

    fn completed(&mut self, at: usize, address: u64) {
        if self.pending.remove(&address).is_some() {
            if !matches!(self.operations.last(), Some(Operation::CompleteEvents)) {
                self.push(at, Operation::CompleteEvents);
            }
        } else if at == 0 || !self.completes(at - 1) || self.trace[at - 1].action != Action::FreeRequested {
            // The free was requested before the trace began.
            match self.lives.remove(&address) {
                Some(allocation) => self.push(at, Operation::Free { allocation }),
                None => self.gaps += 1,
            }
        }
    }

    /// Handles a run of segments returned to the driver: by the program, or by the allocator, which returns them when the driver refuses and when it
    /// collects old segments.
    fn given_back(&mut self, at: usize) {
        let gives = |event: &TraceEvent| matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
        let first = at == 0 || !gives(&self.trace[at - 1]);
        if first {
            let run = &self.trace[at..];
            let next = run.iter().find(|event| !gives(event));
            let asked = match next.map(|next| (next.action, next.bytes)) {
                Some((Action::Oom, _)) => false,
                Some((Action::SegmentAlloc | Action::SegmentMap, bytes)) => {
                    let refused = self.capacity.is_some_and(|most| self.reserved.saturating_add(bytes) > most);
                    // Collection returns only segments of the large pool.
                    let small =
                        run.iter().take_while(|event| gives(event)).any(|event| event.bytes == SMALL_SEGMENT_BYTES);
                    !refused && (!self.collects || small)
                }
                _ => true,
            };
            if asked {
                self.push(at, Operation::EmptyCache);
            }
        }
        self.reserved = self.reserved.saturating_sub(self.trace[at].bytes);
    }
}
