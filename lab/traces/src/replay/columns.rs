//! Writes a replay in the columns of the recordings (format `oracle-trace-1`).

use std::collections::BTreeMap;
use std::io::Write;

use memcore::memory::{Allocator, Block, DriverEvent};

use super::run::Observer;

const MIB2: u64 = 2 << 20;

/// Columns of changes, in the order in which they are written.
const CHANGES: [&str; 10] = [
    "d_alloc512",
    "d_active512",
    "d_isplit512",
    "d_resv2m",
    "d_req",
    "d_retries",
    "d_ooms",
    "d_nseg",
    "d_peak512",
    "d_rpeak2m",
];

/// Records the place of every block and the changes of the statistics, in the encoding of the recordings. Places count segments in order of creation
/// and offsets in units of 512 bytes. `d_…` are changes from operation to operation (an empty list: always 0). The driver's figures are in units of 2
/// MiB, rounded down where a policy has odd sizes.
///
/// The text grows during the run by some 30 bytes per operation.
#[derive(Debug, Default)]
pub struct Recorder {
    seg: List,
    off512: List,
    changes: [Changes; 10],
    driver_op: List,
    driver_kind: Vec<u8>,
    driver_address: List,
    driver_size: List,
    /// Address of the first segment.
    base: Option<u64>,
    /// Number of each existing segment, by its address.
    segments: BTreeMap<u64, u64>,
    made: u64,
}

/// A list of numbers as JSON, without its brackets.
#[derive(Debug, Default)]
struct List(Vec<u8>);

impl List {
    fn push(&mut self, value: i64) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        // Writing to memory does not fail.
        let _ = write!(self.0, "{value}");
    }
}

/// Changes of one statistic.
#[derive(Debug, Default)]
struct Changes {
    list: List,
    last: i64,
    ever: bool,
}

impl Changes {
    fn push(&mut self, value: u64) {
        let change = value as i64 - self.last;
        self.last = value as i64;
        self.ever |= change != 0;
        self.list.push(change);
    }
}

impl Recorder {
    fn call(&mut self, operation: usize, kind: u8, address: Option<u64>, bytes: u64) {
        if matches!(kind, b'M' | b'V')
            && let Some(address) = address
        {
            self.base.get_or_insert(address);
            self.segments.insert(address, self.made);
            self.made += 1;
        }
        let base = self.base.unwrap_or(0);
        self.driver_op.push(operation as i64);
        self.driver_kind.push(kind);
        let relative = |address: u64| (address.wrapping_sub(base) as i64).div_euclid(MIB2 as i64);
        self.driver_address.push(address.map_or(-1, relative));
        self.driver_size.push((bytes / MIB2) as i64);
        if matches!(kind, b'F' | b'D')
            && let Some(address) = address
        {
            self.segments.remove(&address);
        }
    }

    fn pages(&mut self, operation: usize, kind: u8, address: u64, bytes: u64, page_bytes: u64) {
        for page in 0..bytes / page_bytes.max(1) {
            self.call(operation, kind, Some(address + page * page_bytes), page_bytes);
        }
    }

    /// Returns all columns as one JSON object, with the allocator's statistics at the end of the run.
    pub fn finish<A: Allocator + ?Sized>(self, allocator: &A) -> Vec<u8> {
        let mut out = b"{".to_vec();
        let mut column = |name: &str, list: &[u8]| {
            out.extend_from_slice(format!("\"{name}\":[").as_bytes());
            out.extend_from_slice(list);
            out.extend_from_slice(b"],");
        };
        column("seg", &self.seg.0);
        column("off512", &self.off512.0);
        for (name, changes) in CHANGES.into_iter().zip(&self.changes) {
            column(name, if changes.ever { &changes.list.0 } else { &[] });
        }
        out.extend_from_slice(b"\"driver\":{\"op\":[");
        out.extend_from_slice(&self.driver_op.0);
        out.extend_from_slice(b"],\"kind\":\"");
        out.extend_from_slice(&self.driver_kind);
        out.extend_from_slice(b"\",\"addr2m\":[");
        out.extend_from_slice(&self.driver_address.0);
        out.extend_from_slice(b"],\"size2m\":[");
        out.extend_from_slice(&self.driver_size.0);
        out.extend_from_slice(b"]},\"final_stats\":{");
        let stats = allocator.stats().flatten();
        for (index, (name, value)) in stats.iter().filter(|(_, value)| *value != 0).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            out.extend_from_slice(format!("{comma}\"{name}\":{value}").as_bytes());
        }
        out.extend_from_slice(b"}}\n");
        out
    }
}

impl Observer for Recorder {
    fn driver(&mut self, operation: usize, event: DriverEvent) {
        match event {
            DriverEvent::SegmentAlloc { address, bytes, .. } => self.call(operation, b'M', Some(address), bytes),
            DriverEvent::SegmentFree { address, bytes, .. } => self.call(operation, b'F', Some(address), bytes),
            DriverEvent::Reserve { address, bytes, .. } => self.call(operation, b'V', Some(address), bytes),
            DriverEvent::Release { address, bytes, .. } => self.call(operation, b'D', Some(address), bytes),
            DriverEvent::Map { address, bytes, page_bytes, .. } => {
                self.pages(operation, b'm', address, bytes, page_bytes);
            }
            DriverEvent::Unmap { address, bytes, page_bytes, .. } => {
                self.pages(operation, b'u', address, bytes, page_bytes);
            }
            DriverEvent::Refused { bytes } => self.call(operation, b'X', None, bytes),
            DriverEvent::MapRefused { bytes } => self.call(operation, b'C', None, bytes),
            DriverEvent::ExpandableUnsupported => {}
        }
    }

    fn allocated(&mut self, _operation: usize, block: Option<&Block>) {
        let segment = block.and_then(|block| self.segments.range(..=block.address).next_back());
        let (seg, off512) = match (block, segment) {
            (Some(block), Some((base, number))) => (*number as i64, ((block.address - base) / 512) as i64),
            _ => (-1, -1),
        };
        self.seg.push(seg);
        self.off512.push(off512);
    }

    fn after<A: Allocator + ?Sized>(&mut self, _operation: usize, allocator: &A) {
        let stats = allocator.stats();
        let values = [
            stats.allocated_bytes.all.current / 512,
            stats.active_bytes.all.current / 512,
            stats.inactive_split_bytes.all.current / 512,
            stats.reserved_bytes.all.current / MIB2,
            stats.requested_bytes.all.current,
            stats.num_alloc_retries,
            stats.num_ooms,
            stats.segment.all.current,
            stats.allocated_bytes.all.peak / 512,
            stats.reserved_bytes.all.peak / MIB2,
        ];
        for (changes, value) in self.changes.iter_mut().zip(values) {
            changes.push(value);
        }
    }
}
