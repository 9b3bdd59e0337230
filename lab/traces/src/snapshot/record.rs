//! Writes our own runs as PyTorch's snapshots.
//!
//! PyTorch's lines of Python are replaced by frames for the operator, the modules around it (innermost first) and the phase of the step. A device's
//! history has no clock, so times count entries.

use memcore::memory::{
    AllocId, AllocatorConfig, BLOCK_BYTES, BlockState, Category, Event, Ledger, Origin, PhaseId, SegmentSnapshot,
    Snapshot as Segments, Stream,
};
use rustc_hash::FxHashMap;

use super::value::{Document, Value};

/// Category of entries without memory. The viewer needs one entry of this category if any entry has a category.
pub(super) const UNKNOWN: &str = "unknown";

/// Data of a snapshot that the history lacks.
#[derive(Clone, Debug, Default)]
pub struct Recording<'a> {
    /// Segments at the end.
    pub segments: Segments,
    /// Number of events at that time; later ones are left out.
    pub events: usize,
    /// Memory of the device in bytes, if the driver reports it.
    pub capacity_bytes: Option<u64>,
    /// Settings of the allocator, if it is PyTorch's.
    pub config: Option<&'a AllocatorConfig>,
}

/// Makes a snapshot of a device's history, which must have been kept from the device's first allocation on.
pub fn record(ledger: &Ledger, recording: &Recording<'_>) -> Document {
    let history = ledger.history();
    let history = &history[..recording.events.min(history.len())];
    let mut writer = Writer::new(ledger, history, recording.capacity_bytes);
    let trace: Vec<Value> = history.iter().flat_map(|event| writer.event(event)).collect();
    writer.phase(PhaseId(0));
    let segments: Vec<Value> = recording.segments.segments.iter().map(|segment| writer.segment(segment)).collect();
    let mut document = writer.document;
    let segments = document.list(segments);
    let trace = document.list(trace);
    let traces = document.list(vec![trace]);
    let annotations = document.list(writer.annotations);
    let defaults = AllocatorConfig::default();
    let settings = settings(&mut document, recording.config.unwrap_or(&defaults));
    document.root = document.dict([
        ("segments", segments),
        ("device_traces", traces),
        ("allocator_settings", settings),
        ("external_annotations", annotations),
    ]);
    document
}

struct Writer<'a> {
    ledger: &'a Ledger,
    document: Document,
    capacity: Option<u64>,
    reserved: u64,
    /// Number of entries and annotations so far.
    time: i64,
    annotations: Vec<Value>,
    phase: PhaseId,
    stacks: FxHashMap<Origin, Value>,
    frames: FxHashMap<(&'static str, String), Value>,
    /// Final category of each allocation: it is often known only later.
    roles: FxHashMap<AllocId, Category>,
    live: FxHashMap<AllocId, Lives>,
    /// Stack of the live allocation at each address.
    owners: FxHashMap<u64, Value>,
    no_stack: Value,
}

/// An allocation that lives.
struct Lives {
    address: u64,
    requested_bytes: u64,
    stream: Stream,
}

impl<'a> Writer<'a> {
    fn new(ledger: &'a Ledger, history: &[Event], capacity: Option<u64>) -> Self {
        let mut roles = FxHashMap::default();
        for event in history {
            match *event {
                Event::Alloc { id, category, .. } => drop(roles.insert(id, category)),
                Event::Retag { id, to } => drop(roles.insert(id, to)),
                _ => {}
            }
        }
        let mut document = Document::default();
        let no_stack = document.list(Vec::new());
        Self {
            ledger,
            document,
            capacity,
            reserved: 0,
            time: 0,
            annotations: Vec::new(),
            phase: PhaseId(0),
            stacks: FxHashMap::default(),
            frames: FxHashMap::default(),
            roles,
            live: FxHashMap::default(),
            owners: FxHashMap::default(),
            no_stack,
        }
    }

    /// Returns the entries of an event: two for a free, none for most of the book-keeping.
    fn event(&mut self, event: &Event) -> Vec<Value> {
        match *event {
            Event::Alloc { id, requested_bytes, address, stream, ref origin, .. } => {
                let stack = self.stack(origin);
                self.live.insert(id, Lives { address, requested_bytes, stream });
                self.owners.insert(address, stack);
                vec![self.entry("alloc", ("addr", address), requested_bytes, stream, Some(stack), self.role(id))]
            }
            Event::Free { id, ref origin } => {
                let Some(Lives { address, requested_bytes, stream }) = self.live.remove(&id) else { return Vec::new() };
                self.owners.remove(&address);
                let stack = Some(self.stack(origin));
                let role = self.role(id);
                ["free_requested", "free_completed"]
                    .map(|action| self.entry(action, ("addr", address), requested_bytes, stream, stack, role))
                    .into()
            }
            Event::SegmentAlloc { address, bytes, stream } => {
                self.segment_event("segment_alloc", address, bytes, stream)
            }
            Event::SegmentFree { address, bytes, stream } => self.segment_event("segment_free", address, bytes, stream),
            Event::SegmentMap { address, bytes, stream } => self.segment_event("segment_map", address, bytes, stream),
            Event::SegmentUnmap { address, bytes, stream } => {
                self.segment_event("segment_unmap", address, bytes, stream)
            }
            Event::Oom { requested_bytes, ref origin } => {
                let stack = Some(self.stack(origin));
                let free = self.capacity.unwrap_or(self.reserved).saturating_sub(self.reserved);
                let bytes = requested_bytes.next_multiple_of(BLOCK_BYTES);
                vec![self.entry("oom", ("device_free", free), bytes, Stream::DEFAULT, stack, UNKNOWN)]
            }
            Event::Phase { phase } => {
                self.phase(phase);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn role(&self, id: AllocId) -> &'static str {
        self.roles.get(&id).map_or(UNKNOWN, |role| role.name())
    }

    fn segment_event(&mut self, action: &str, address: u64, bytes: u64, stream: Stream) -> Vec<Value> {
        self.reserved = match action {
            "segment_alloc" | "segment_map" => self.reserved.saturating_add(bytes),
            _ => self.reserved.saturating_sub(bytes),
        };
        vec![self.entry(action, ("addr", address), bytes, stream, None, UNKNOWN)]
    }

    fn entry(
        &mut self,
        action: &str,
        (place, address): (&str, u64),
        bytes: u64,
        stream: Stream,
        stack: Option<Value>,
        category: &str,
    ) -> Value {
        self.time += 1;
        let document = &mut self.document;
        let mut items = vec![
            ("action", document.text(action)),
            (place, document.int(address.into())),
            ("size", document.int(bytes.into())),
            ("stream", document.int(stream.0.into())),
            ("time_us", document.int(self.time.into())),
            ("compile_context", document.text("N/A")),
            ("user_metadata", document.text("")),
            ("category", document.text(category)),
        ];
        items.extend(stack.map(|stack| ("frames", stack)));
        document.dict(items)
    }

    /// Ends a phase and begins another; 0 for none.
    fn phase(&mut self, next: PhaseId) {
        for (phase, stage) in [(self.phase, "END"), (next, "START")] {
            let name = self.ledger.phase_name(phase).to_string();
            if name.is_empty() {
                continue;
            }
            self.time += 1;
            let document = &mut self.document;
            let items = [
                ("stage", document.text(stage)),
                ("name", document.text(&name)),
                ("device", Value::small(0)),
                ("time_us", Value::small(self.time)),
            ];
            self.annotations.push(document.dict(items));
        }
        self.phase = next;
    }

    /// Returns the frames: the operator, the modules from the inside out, the phase.
    fn stack(&mut self, origin: &Origin) -> Value {
        if let Some(&known) = self.stacks.get(origin) {
            return known;
        }
        let op = memcore::context::label(origin.node, origin.op);
        let op = if op.is_empty() { "(the program)".to_string() } else { op };
        let mut frames = vec![self.frame("op", op)];
        let mut scope = self.ledger.scope_path(origin.scope);
        while !scope.is_empty() {
            frames.push(self.frame("module", scope.to_string()));
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
        let phase = self.ledger.phase_name(origin.phase).to_string();
        if !phase.is_empty() {
            frames.push(self.frame("phase", phase));
        }
        let stack = self.document.list(frames);
        self.stacks.insert(*origin, stack);
        stack
    }

    fn frame(&mut self, kind: &'static str, name: String) -> Value {
        let document = &mut self.document;
        *self.frames.entry((kind, name)).or_insert_with_key(|(kind, name)| {
            let items = [("name", document.text(name)), ("filename", document.text(kind)), ("line", Value::small(0))];
            document.dict(items)
        })
    }

    fn segment(&mut self, segment: &SegmentSnapshot) -> Value {
        let mut blocks = Vec::new();
        for block in &segment.blocks {
            let owner = match block.state {
                BlockState::Inactive => None,
                _ => self.owners.get(&block.address).copied(),
            };
            let document = &mut self.document;
            let items = [
                ("address", document.int(block.address.into())),
                ("size", document.int(block.bytes.into())),
                ("requested_size", document.int(block.requested_bytes.into())),
                ("state", document.text(block.state.name())),
                ("frames", owner.unwrap_or(self.no_stack)),
            ];
            blocks.push(document.dict(items));
        }
        let document = &mut self.document;
        let pool = [segment.pool_id.0, segment.pool_id.1].map(|part| document.int(part.into()));
        let items = [
            ("device", Value::small(0)),
            ("address", document.int(segment.address.into())),
            ("total_size", document.int(segment.total_bytes.into())),
            ("allocated_size", document.int(segment.allocated_bytes().into())),
            ("active_size", document.int(segment.active_bytes().into())),
            ("requested_size", document.int(segment.requested_bytes().into())),
            ("stream", document.int(segment.stream.0.into())),
            ("segment_type", document.text(if segment.small { "small" } else { "large" })),
            ("segment_pool_id", document.tuple(&pool)),
            ("is_expandable", Value::bool(segment.expandable)),
            ("frames", self.no_stack),
            ("blocks", document.list(blocks)),
        ];
        document.dict(items)
    }
}

fn settings(document: &mut Document, config: &AllocatorConfig) -> Value {
    let divisions = config.roundup_power2_divisions.iter().enumerate();
    let divisions: Vec<(String, Value)> =
        divisions.map(|(place, steps)| ((1u64 << place).to_string(), document.int((*steps).into()))).collect();
    let divisions = document.dict(divisions.iter().map(|(key, value)| (key.as_str(), *value)));
    let max_split = match config.max_split_size_bytes {
        u64::MAX => -1,
        bytes => i128::from(bytes),
    };
    let items = [
        ("PYTORCH_CUDA_ALLOC_CONF", document.text(&config.last_settings)),
        ("max_split_size", document.int(max_split)),
        ("garbage_collection_threshold", document.float(config.garbage_collection_threshold)),
        ("expandable_segments", Value::bool(config.expandable_segments)),
        ("pinned_num_register_threads", document.int(config.pinned.num_register_threads.into())),
        ("release_lock_on_cudamalloc", Value::bool(config.release_lock_on_device_malloc)),
        ("pinned_use_cuda_host_register", Value::bool(config.pinned.use_host_register)),
        ("graph_capture_record_stream_reuse", Value::bool(config.graph_capture_record_stream_reuse)),
        ("roundup_power2_divisions", divisions),
    ];
    document.dict(items)
}
