//! A decoded snapshot of PyTorch's allocator.

use memcore::memory::BlockState;

use super::release::Releases;
use super::value::{TextId, Texts};

/// Contents of a `torch.cuda.memory._dump_snapshot` file: segments and their blocks at the end, and the events that led there.
///
/// Texts, frames and stacks are kept once and named by number; [`text`](Self::text) and [`stack`](Self::stack) return them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Segments of all devices, by device and address.
    pub segments: Vec<Segment>,
    /// Why the file's segments were left out, if they contradict each other; the traces were read all the same.
    pub unread_segments: Option<String>,
    /// Recorded events by device, oldest first.
    pub traces: Vec<Vec<TraceEvent>>,
    /// Settings of the allocator; `None` if the file has none.
    pub settings: Option<AllocatorSettings>,
    /// Ranges that the program named: profiler ranges, steps of optimizers.
    pub annotations: Vec<Annotation>,
    /// True if the file has keys that releases after 2.11 write.
    pub newer: bool,
    /// Releases that may have written the file.
    pub releases: Releases,
    /// True if the file is from PyTorch 2.12: its events name their pool, as in later releases, and its settings lack what later releases add.
    pub of_2_12: bool,
    pub(super) texts: Texts,
    pub(super) frames: Vec<Frame>,
    pub(super) stacks: Vec<Box<[FrameId]>>,
    /// First stack that the file does not have.
    pub(super) first_added: Option<u32>,
    pub(super) streams: Vec<u64>,
    pub(super) pools: Vec<(u64, u64)>,
}

/// A segment: memory from the driver, tiled by blocks. An expandable segment appears as one per run of mapped pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the device.
    pub device: u32,
    /// First address.
    pub address: u64,
    /// Size in bytes: the sum of its blocks.
    pub bytes: u64,
    /// Stream of its blocks.
    pub stream: StreamId,
    /// True for the pool of small blocks.
    pub small: bool,
    /// True if the segment can grow.
    pub expandable: bool,
    /// Private pool; (0, 0) for none.
    pub pool: PoolId,
    /// Stack that made it grow, if recorded.
    pub stack: StackId,
    /// Blocks, in order of address.
    pub blocks: Vec<Block>,
}

/// A block: a part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that the client requested.
    pub requested_bytes: u64,
    /// State of the block.
    pub state: BlockState,
    /// Stack that allocated it.
    pub stack: StackId,
}

/// One entry of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// What happened.
    pub action: Action,
    /// Address; for [`Action::Oom`] the device's free bytes.
    pub address: u64,
    /// Bytes: as requested for allocations and frees, as taken for segments.
    pub bytes: u64,
    /// Time in microseconds since 1970; 0 if the file has none.
    pub time_us: i64,
    /// Stream.
    pub stream: StreamId,
    /// Stack.
    pub stack: StackId,
    /// The program's own description; `""` for none.
    pub metadata: TextId,
    /// What was being compiled; `N/A` for nothing.
    pub context: TextId,
    /// Purpose of the memory, if known; `""` if not.
    pub category: TextId,
    /// Private pool; (0, 0) for none.
    pub pool: PoolId,
}

/// Kind of an entry. The names are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// A block was given to a client.
    Alloc,
    /// A client freed a block.
    FreeRequested,
    /// The block is free: no stream uses it any more.
    FreeCompleted,
    /// A segment was taken from the driver.
    SegmentAlloc,
    /// A segment was returned to the driver.
    SegmentFree,
    /// Pages of an expandable segment were mapped.
    SegmentMap,
    /// Pages of an expandable segment were unmapped.
    SegmentUnmap,
    /// A request failed for lack of memory.
    Oom,
    /// A snapshot was taken.
    Snapshot,
    /// An action of a release that is newer than this program.
    Other,
}

impl Action {
    /// All actions except [`Other`](Self::Other).
    pub const ALL: [Action; 9] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::Oom,
        Action::Snapshot,
    ];

    /// Returns the name as it stands in the file.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Oom => "oom",
            Action::Snapshot => "snapshot",
            Action::Other => "other",
        }
    }
}

/// Settings of the allocator, as in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorSettings {
    /// Text that was parsed last, in the syntax of `PYTORCH_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Blocks larger than this are not split; `None` if all are. Bytes.
    pub max_split_bytes: Option<u64>,
    /// Threshold of garbage collection; 0 for off.
    pub garbage_collection_threshold: f64,
    /// True if segments can grow.
    pub expandable_segments: bool,
    /// Number of steps into which each power of two from 1 MiB on is divided.
    pub roundup_power2_divisions: Vec<(u64, u64)>,
}

/// Beginning or end of a range that the program named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Name of the range.
    pub name: TextId,
    /// True at the beginning, false at the end.
    pub start: bool,
    /// Index of the device.
    pub device: u32,
    /// Time in microseconds since 1970.
    pub time_us: i64,
}

/// A stack frame: a line of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The file.
    pub filename: TextId,
    /// The line.
    pub line: i64,
    /// The function.
    pub name: TextId,
}

/// Number of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameId(pub u32);

/// Number of a stack; 0 if none was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Number of a stream, in order of appearance; 0: the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamId(pub u32);

/// Number of a private pool, in order of appearance; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolId(pub u32);

/// A frame with its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameText<'a> {
    /// The file.
    pub filename: &'a str,
    /// The line.
    pub line: i64,
    /// The function.
    pub name: &'a str,
}

/// Saturating sum: absurd sizes in a file do not overflow it.
pub fn total(bytes: impl IntoIterator<Item = u64>) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

impl Segment {
    /// Bytes of blocks that clients hold.
    pub fn allocated_bytes(&self) -> u64 {
        self.sum(|block| (block.state == BlockState::ActiveAllocated).then_some(block.bytes))
    }

    /// Bytes of blocks that clients hold, or whose free waits for a stream.
    pub fn active_bytes(&self) -> u64 {
        self.sum(|block| (block.state != BlockState::Inactive).then_some(block.bytes))
    }

    /// Bytes that clients requested, of active blocks.
    pub fn requested_bytes(&self) -> u64 {
        self.sum(|block| (block.state != BlockState::Inactive).then_some(block.requested_bytes))
    }

    /// Bytes of the largest free block.
    pub fn largest_free_bytes(&self) -> u64 {
        let free = self.blocks.iter().filter(|block| block.state == BlockState::Inactive);
        free.map(|block| block.bytes).max().unwrap_or(0)
    }

    fn sum(&self, of: impl Fn(&Block) -> Option<u64>) -> u64 {
        total(self.blocks.iter().filter_map(of))
    }
}

impl Snapshot {
    /// Returns a text.
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id)
    }

    /// True if a stack was recorded.
    pub fn has_stack(&self, stack: StackId) -> bool {
        self.stacks.get(stack.0 as usize).is_some_and(|frames| !frames.is_empty())
    }

    /// Returns the frames of a stack, innermost first; none for a stack that was not recorded.
    pub fn stack(&self, stack: StackId) -> impl DoubleEndedIterator<Item = FrameText<'_>> {
        let frames = self.stacks.get(stack.0 as usize).map_or(&[][..], |frames| frames);
        frames.iter().filter_map(|frame| self.frames.get(frame.0 as usize)).map(|frame| FrameText {
            filename: self.text(frame.filename),
            line: frame.line,
            name: self.text(frame.name),
        })
    }

    /// Number of different stacks; their ids count from 0.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Returns the stream as CUDA names it.
    pub fn stream(&self, stream: StreamId) -> u64 {
        self.streams.get(stream.0 as usize).copied().unwrap_or(0)
    }

    /// Returns the id of a private pool.
    pub fn pool(&self, pool: PoolId) -> (u64, u64) {
        self.pools.get(pool.0 as usize).copied().unwrap_or_default()
    }

    /// Number of devices in the snapshot.
    pub fn devices(&self) -> usize {
        let segments = self.segments.iter().map(|segment| segment.device as usize + 1).max().unwrap_or(0);
        segments.max(self.traces.len())
    }

    /// Returns the segments of a device.
    pub fn segments_of(&self, device: usize) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.device as usize == device)
    }

    /// Returns the recorded events of a device.
    pub fn trace(&self, device: usize) -> &[TraceEvent] {
        self.traces.get(device).map_or(&[], Vec::as_slice)
    }

    /// True if a device's trace has requests. Where only states are recorded, it has a few other entries.
    pub fn records_requests(&self, device: usize) -> bool {
        self.trace(device)
            .iter()
            .any(|event| matches!(event.action, Action::Alloc | Action::FreeRequested | Action::Oom))
    }
}
