//! Group i: two streams. A device here has one queue, so this program calls the allocator directly.

use std::sync::Arc;

use lab::record::Row;
use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::{Allocator, AllocatorConfig, Block, Caching, DriverEvent, Stream};

use super::compare::row_differences;
use super::recording::{Recording, Step};

struct Program {
    allocator: Caching,
    segments: Vec<Step>,
    rows: Vec<Row>,
    /// Peaks: allocated, reserved.
    highest: [u64; 2],
}

impl Program {
    fn event(segments: &mut Vec<Step>, event: &DriverEvent) {
        match *event {
            DriverEvent::SegmentAlloc { bytes, .. } => segments.push(Step::Driver('S', bytes)),
            DriverEvent::SegmentFree { bytes, .. } => segments.push(Step::Driver('F', bytes)),
            _ => {}
        }
    }

    fn allocate(&mut self, bytes: u64, stream: Stream) -> Block {
        let segments = &mut self.segments;
        self.allocator.allocate(bytes, stream, &mut |event| Self::event(segments, &event)).unwrap()
    }

    fn free(&mut self, blocks: &[Block]) {
        for block in blocks {
            let segments = &mut self.segments;
            self.allocator.free(block.id, &mut |event| Self::event(segments, &event));
        }
    }

    fn row(&mut self, label: &str) {
        let stats = self.allocator.stats();
        let peaks = [stats.allocated_bytes.all.peak, stats.reserved_bytes.all.peak];
        self.highest = [self.highest[0].max(peaks[0]), self.highest[1].max(peaks[1])];
        self.rows.push(Row {
            label: label.into(),
            allocated: stats.allocated_bytes.all.current,
            max_allocated: self.highest[0],
            reserved: stats.reserved_bytes.all.current,
            max_reserved: self.highest[1],
            phase_peak_allocated: peaks[0],
            requested: stats.requested_bytes.all.current,
            active: stats.active_bytes.all.current,
            inactive_split: stats.inactive_split_bytes.all.current,
            segments: stats.segment.all.current,
            n_alloc_plus_free: stats.allocation.all.allocated + stats.allocation.all.freed(),
        });
        self.allocator.reset_peak_stats();
    }

    fn run(&mut self) {
        const SIDE: Stream = Stream(1);
        self.row("start");
        let (x, y) = (self.allocate(4 << 20, Stream::DEFAULT), self.allocate(4000, Stream::DEFAULT));
        self.row("x,y on the default stream");
        let (z, w) = (self.allocate(4 << 20, SIDE), self.allocate(4000, SIDE));
        self.row("z,w on the side stream");
        self.allocator.record_stream(x.id, SIDE);
        self.allocator.record_stream(y.id, SIDE);
        self.allocator.hold_events();
        self.row("x,y recorded on the side stream; events pend from here");
        self.free(&[x, y]);
        self.row("x,y deleted (pending)");
        let a = self.allocate(4 << 20, Stream::DEFAULT);
        self.row("a allocated while x pends");
        self.allocator.complete_events();
        let b = self.allocate(4 << 20, Stream::DEFAULT);
        self.row("b allocated after the events completed");
        self.free(&[z, w]);
        self.row("z,w deleted (never left their stream)");
        let c = self.allocate(4 << 20, Stream::DEFAULT);
        self.row("c does not reuse z");
        self.free(&[a, b, c]);
        self.row("deleted");
        let segments = &mut self.segments;
        self.allocator.empty_cache(&mut |event| Self::event(segments, &event));
        self.row("empty_cache");
        self.row("end");
    }
}

#[test]
fn i_streams() {
    let recording = Recording::load("i_streams");
    let meta = Meta::new(DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() });
    let allocator = Caching::new(Arc::new(meta), AllocatorConfig::default()).unwrap();
    let mut program = Program { allocator, segments: Vec::new(), rows: Vec::new(), highest: [0; 2] };
    program.run();
    let differences = row_differences(&recording, &program.rows);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(program.segments, recording.segments());
}
