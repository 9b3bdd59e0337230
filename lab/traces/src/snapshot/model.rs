//! A snapshot of PyTorch's allocator, understood.

use memcore::memory::BlockState;

use super::release::Releases;
use super::value::{TextId, Texts};

/// What `torch.cuda.memory._dump_snapshot` writes: segments and their blocks as they are at the end, and what led there.
///
/// Texts, frames and stacks are kept once and named by number; [`text`](Self::text) and [`stack`](Self::stack) give them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The segments of all devices, by device and address.
    pub segments: Vec<Segment>,
    /// What was recorded, by device, oldest first.
    pub traces: Vec<Vec<TraceEvent>>,
    /// The allocator's settings; `None` where the file has none.
    pub settings: Option<AllocatorSettings>,
    /// Ranges that the program named: profiler ranges, steps of optimizers.
    pub annotations: Vec<Annotation>,
    /// Whether the file has keys that releases after 2.11 write.
    pub newer: bool,
    /// The releases that may have written it.
    pub releases: Releases,
    /// Whether it is one of PyTorch 2.12: its events name their pool, which later releases do as well, and its settings lack what these have.
    pub of_2_12: bool,
    pub(super) texts: Texts,
    pub(super) frames: Vec<Frame>,
    pub(super) stacks: Vec<Box<[FrameId]>>,
    pub(super) streams: Vec<u64>,
    pub(super) pools: Vec<(u64, u64)>,
}

/// A run of memory that the driver gave, tiled by blocks. An expandable segment shows as one per run of mapped pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the device.
    pub device: u32,
    /// First address.
    pub address: u64,
    /// Size in bytes: the sum of its blocks.
    pub bytes: u64,
    /// Whose blocks it holds.
    pub stream: StreamId,
    /// Whether it belongs to the pool of small blocks.
    pub small: bool,
    /// Whether it can grow.
    pub expandable: bool,
    /// The private pool; (0, 0): none.
    pub pool: PoolId,
    /// Who made it grow, where that was recorded.
    pub stack: StackId,
    /// In order of address.
    pub blocks: Vec<Block>,
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// What the client asked for.
    pub requested_bytes: u64,
    /// What it is in.
    pub state: BlockState,
    /// Who asked for it.
    pub stack: StackId,
}

/// One entry of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// What happened.
    pub action: Action,
    /// Where; for [`Action::Oom`] what was free on the device.
    pub address: u64,
    /// Bytes: as requested for allocations and frees, as taken for segments.
    pub bytes: u64,
    /// When, in microseconds since 1970; 0 where the file does not say.
    pub time_us: i64,
    /// For which stream.
    pub stream: StreamId,
    /// By whom.
    pub stack: StackId,
    /// What the program says of it; `""`: nothing.
    pub metadata: TextId,
    /// What was being compiled; `N/A`: nothing.
    pub context: TextId,
    /// What the memory is for, where that is known; `""`: it is not.
    pub category: TextId,
    /// The private pool; (0, 0): none.
    pub pool: PoolId,
}

/// What happened to memory. The names are PyTorch's.
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
    /// A segment was given back.
    SegmentFree,
    /// Pages of an expandable segment were mapped.
    SegmentMap,
    /// Pages of an expandable segment were given back.
    SegmentUnmap,
    /// A request failed for lack of memory.
    Oom,
    /// A snapshot was taken.
    Snapshot,
    /// Something else, in a release that is newer than this program.
    Other,
}

impl Action {
    /// All but [`Other`](Self::Other).
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

    /// As it stands in the file.
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

/// The allocator's settings, as the file has them.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorSettings {
    /// The text that was parsed last, in the syntax of `PYTORCH_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Larger blocks are not split; `None`: all are. Bytes.
    pub max_split_bytes: Option<u64>,
    /// 0: off.
    pub garbage_collection_threshold: f64,
    /// Whether segments can grow.
    pub expandable_segments: bool,
    /// For each power of two from 1 MiB, in how many steps it is divided.
    pub roundup_power2_divisions: Vec<(u64, u64)>,
}

/// One end of a range that the program named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub name: TextId,
    /// Whether it begins here, or ends.
    pub start: bool,
    /// Index of the device.
    pub device: u32,
    /// When, in microseconds since 1970.
    pub time_us: i64,
}

/// A line of a program.
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

/// Number of a stack; 0: none was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Number of a stream, in order of appearance; 0: the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamId(pub u32);

/// Number of a private pool, in order of appearance; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolId(pub u32);

/// A frame in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameText<'a> {
    /// The file.
    pub filename: &'a str,
    /// The line.
    pub line: i64,
    /// The function.
    pub name: &'a str,
}

/// A sum that a file's absurd sizes do not break.
pub fn total(bytes: impl IntoIterator<Item = u64>) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

impl Segment {
    /// Bytes of blocks that clients hold.
    pub fn allocated_bytes(&self) -> u64 {
        self.sum(|block| (block.state == BlockState::ActiveAllocated).then_some(block.bytes))
    }

    /// The same, and of those whose free waits.
    pub fn active_bytes(&self) -> u64 {
        self.sum(|block| (block.state != BlockState::Inactive).then_some(block.bytes))
    }

    /// What clients asked for, of active blocks.
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
    /// A text.
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id)
    }

    /// Whether a stack was recorded.
    pub fn has_stack(&self, stack: StackId) -> bool {
        self.stacks.get(stack.0 as usize).is_some_and(|frames| !frames.is_empty())
    }

    /// The frames of a stack, innermost first; none for a stack that was not recorded.
    pub fn stack(&self, stack: StackId) -> impl DoubleEndedIterator<Item = FrameText<'_>> {
        let frames = self.stacks.get(stack.0 as usize).map_or(&[][..], |frames| frames);
        frames.iter().filter_map(|frame| self.frames.get(frame.0 as usize)).map(|frame| FrameText {
            filename: self.text(frame.filename),
            line: frame.line,
            name: self.text(frame.name),
        })
    }

    /// How many different stacks there are; their ids count from 0.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// The stream as CUDA names it.
    pub fn stream(&self, stream: StreamId) -> u64 {
        self.streams.get(stream.0 as usize).copied().unwrap_or(0)
    }

    /// The private pool's id.
    pub fn pool(&self, pool: PoolId) -> (u64, u64) {
        self.pools.get(pool.0 as usize).copied().unwrap_or_default()
    }

    /// How many devices it speaks of.
    pub fn devices(&self) -> usize {
        let segments = self.segments.iter().map(|segment| segment.device as usize + 1).max().unwrap_or(0);
        segments.max(self.traces.len())
    }

    /// The device with the longest trace, as the viewer chooses; without a trace, the first with a segment.
    pub fn main_device(&self) -> usize {
        let longest = self.traces.iter().enumerate().rev().max_by_key(|(_, trace)| trace.len());
        match longest {
            Some((device, trace)) if !trace.is_empty() => device,
            _ => self.segments.first().map_or(0, |segment| segment.device as usize),
        }
    }

    /// The segments of a device.
    pub fn segments_of(&self, device: usize) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.device as usize == device)
    }

    /// What was recorded on a device.
    pub fn trace(&self, device: usize) -> &[TraceEvent] {
        self.traces.get(device).map_or(&[], Vec::as_slice)
    }
}
