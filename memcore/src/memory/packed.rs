//! Events in few bytes, as a step writes them.
//!
//! An [`Event`] takes 80 bytes: a training of the smallest network that keeps them touches a new page in two of three
//! steps, and the system takes a fifth of the step to give it one. Packed, an event takes 4 to 16 bytes. Nothing is
//! copied as the list grows.

use rustc_hash::FxHashMap;

use super::event::{AllocId, Event, Origin, PhaseId, ScopeId};
use super::stream::Stream;
use crate::account::Category;

/// Words of a chunk.
const CHUNK: usize = 16 << 10;
/// Words that an event takes at most.
const MOST: usize = 4;
/// Origins that are found without hashing.
const RECENT: usize = 64;
/// Bits of the first word that say which event follows; three more are a category.
const KIND_BITS: u32 = 3;
const CATEGORY_BITS: u32 = 3;
const _: () = assert!(Category::COUNT == 1 << CATEGORY_BITS);
/// Unit of the distance between addresses that are far from each other: blocks of PyTorch's policy lie at multiples.
const FAR: i64 = 512;

// The lowest bits of an event's first word. Whatever does not fit the words that follow is kept whole.
/// The next of [`Packed::whole`].
const WHOLE: u32 = 0;
/// The next allocation on the default stream: requested bytes, bytes, and how far its address is from the last one's.
const ALLOC_NEAR: u32 = 1;
/// The same, with the distance in units of [`FAR`].
const ALLOC_FAR: u32 = 2;
/// How many allocations before the last one the freed one was.
const FREE: u32 = 3;
/// The same of one whose role changed.
const RETAG: u32 = 4;
const PHASE: u32 = 5;
const RESET_PHASE_PEAK: u32 = 6;

/// Events, in order.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Full chunks.
    full: Vec<Vec<u32>>,
    /// The chunk that grows. No chunk is copied.
    chunk: Vec<u32>,
    len: usize,
    whole: Vec<Event>,
    origins: Origins,
    last: Last,
}

/// The last allocation, from which later events are counted.
#[derive(Clone, Copy, Debug)]
struct Last {
    id: u64,
    address: u64,
}

impl Default for Last {
    fn default() -> Self {
        // The next is the first of a device.
        Self { id: u64::MAX, address: 0 }
    }
}

impl Last {
    fn follow(&mut self, event: &Event) {
        if let Event::Alloc { id, address, .. } = *event {
            *self = Self { id: id.0, address };
        }
    }

    fn before(self, ago: u32) -> AllocId {
        AllocId(self.id.wrapping_sub(u64::from(ago)))
    }
}

impl Packed {
    /// Adds an event at the end.
    #[inline]
    pub(super) fn push(&mut self, event: &Event) {
        self.len += 1;
        if self.push_short(event).is_none() {
            self.words([WHOLE]);
            self.whole.push(*event);
        }
        self.last.follow(event);
    }

    /// Adds an event that fits a few words; `None` for any other.
    #[inline]
    fn push_short(&mut self, event: &Event) -> Option<()> {
        match *event {
            Event::Alloc { id, requested_bytes, bytes, address, stream: Stream::DEFAULT, category, origin }
                if id.0 == self.last.id.wrapping_add(1) =>
            {
                let (requested, bytes) = (u32::try_from(requested_bytes).ok()?, u32::try_from(bytes).ok()?);
                let distance = address.wrapping_sub(self.last.address) as i64;
                let (kind, distance) = match i32::try_from(distance) {
                    Ok(near) => (ALLOC_NEAR, near),
                    Err(_) if distance % FAR == 0 => (ALLOC_FAR, i32::try_from(distance / FAR).ok()?),
                    Err(_) => return None,
                };
                let first = kind | (category as u32) << KIND_BITS | self.origins.tag(&origin)?;
                self.words([first, requested, bytes, distance as u32]);
            }
            Event::Free { id, origin } => {
                let ago = self.ago(id)?;
                let first = FREE | self.origins.tag(&origin)?;
                self.words([first, ago]);
            }
            Event::Retag { id, to } => {
                let ago = self.ago(id)?;
                self.words([RETAG | (to as u32) << KIND_BITS, ago]);
            }
            Event::Phase { phase } if phase.0 >> (u32::BITS - KIND_BITS) == 0 => {
                self.words([PHASE | phase.0 << KIND_BITS]);
            }
            Event::ResetPhasePeak => self.words([RESET_PHASE_PEAK]),
            _ => return None,
        }
        Some(())
    }

    fn ago(&self, id: AllocId) -> Option<u32> {
        u32::try_from(self.last.id.wrapping_sub(id.0)).ok()
    }

    #[inline]
    fn words<const N: usize>(&mut self, words: [u32; N]) {
        if self.chunk.len() + MOST > self.chunk.capacity() {
            self.begin_chunk();
        }
        self.chunk.extend_from_slice(&words);
    }

    #[cold]
    fn begin_chunk(&mut self) {
        let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        self.full.push(full);
    }

    /// The events as they were.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.len);
        let (mut whole, mut last) = (self.whole.iter(), Last::default());
        for chunk in self.full.iter().chain([&self.chunk]) {
            let mut words = chunk.iter().copied();
            while let Some(first) = words.next() {
                let event = match first {
                    WHOLE => whole.next().copied(),
                    _ => self.short(first, &mut words, last),
                };
                event.iter().for_each(|event| last.follow(event));
                events.extend(event);
            }
        }
        debug_assert_eq!(events.len(), self.len);
        events
    }

    /// The event of [`push_short`](Self::push_short).
    fn short(&self, first: u32, words: &mut impl Iterator<Item = u32>, last: Last) -> Option<Event> {
        let category = Category::ALL[(first >> KIND_BITS) as usize % Category::COUNT];
        let kind = first % (1 << KIND_BITS);
        let mut word = || words.next();
        Some(match kind {
            ALLOC_NEAR | ALLOC_FAR => {
                let (requested_bytes, bytes) = (u64::from(word()?), u64::from(word()?));
                let distance = i64::from(word()? as i32) * if kind == ALLOC_FAR { FAR } else { 1 };
                let (id, origin) = (AllocId(last.id.wrapping_add(1)), self.origins.tagged(first));
                let address = last.address.wrapping_add(distance as u64);
                Event::Alloc { id, requested_bytes, bytes, address, stream: Stream::DEFAULT, category, origin }
            }
            FREE => Event::Free { id: last.before(word()?), origin: self.origins.tagged(first) },
            RETAG => Event::Retag { id: last.before(word()?), to: category },
            PHASE => Event::Phase { phase: PhaseId(first >> KIND_BITS) },
            _ => Event::ResetPhasePeak,
        })
    }
}

/// Where the names of an origin lie, and its numbers: what tells it apart without reading the names. Equal names that
/// lie in two places count as two origins, which costs a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Place {
    op: usize,
    node: usize,
    lengths: (u32, u32),
    scope: u32,
    phase: u32,
}

impl Place {
    #[inline]
    fn from_origin(origin: &Origin) -> Self {
        let Origin { scope: ScopeId(scope), op, node, phase: PhaseId(phase) } = *origin;
        let node = node.map_or((0, 0), |node| (node.as_ptr() as usize, node.len()));
        Self { op: op.as_ptr() as usize, node: node.0, lengths: (op.len() as u32, node.1 as u32), scope, phase }
    }

    /// A place among the recent ones. Names lie side by side: what differs are the middle bits of their addresses.
    #[inline]
    fn slot(&self) -> usize {
        (self.op ^ self.op >> 6 ^ self.node >> 3 ^ self.scope.wrapping_mul(7) as usize ^ self.phase as usize) % RECENT
    }
}

/// The origins of events, by number.
#[derive(Debug)]
struct Origins {
    all: Vec<Origin>,
    known: FxHashMap<Place, u32>,
    recent: Box<[(Place, u32); RECENT]>,
}

impl Default for Origins {
    fn default() -> Self {
        // No name lies at address 0.
        Self { all: Vec::new(), known: FxHashMap::default(), recent: Box::new([(Place::default(), 0); RECENT]) }
    }
}

impl Origins {
    /// The number of an origin, above the bits of kind and category.
    #[inline]
    fn tag(&mut self, origin: &Origin) -> Option<u32> {
        let place = Place::from_origin(origin);
        let slot = place.slot();
        let (recent, number) = &self.recent[slot];
        let number = if *recent == place { *number } else { self.look_up(place, slot, origin) };
        (number >> (u32::BITS - KIND_BITS - CATEGORY_BITS) == 0).then_some(number << (KIND_BITS + CATEGORY_BITS))
    }

    fn look_up(&mut self, place: Place, slot: usize, origin: &Origin) -> u32 {
        let all = &mut self.all;
        let number = *self.known.entry(place).or_insert_with(|| {
            all.push(*origin);
            all.len() as u32 - 1
        });
        self.recent[slot] = (place, number);
        number
    }

    fn tagged(&self, first: u32) -> Origin {
        self.all[(first >> (KIND_BITS + CATEGORY_BITS)) as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn origin() -> impl Strategy<Value = Origin> {
        let op = prop::sample::select(vec!["", "mm", "addmm", "relu>add", "."]);
        let node = prop::sample::select(vec![None, Some(""), Some("AddmmBackward0"), Some("ReluBackward0")]);
        (op, node, 0u32..90, 0u32..5).prop_map(|(op, node, scope, phase)| Origin {
            scope: ScopeId(scope),
            op,
            node,
            phase: PhaseId(phase),
        })
    }

    /// Numbers about the borders of 32 bits, and any.
    fn number() -> impl Strategy<Value = u64> {
        let multiple = |range: std::ops::Range<u64>| {
            (range, -2..3i64).prop_map(|(blocks, off): (u64, i64)| (512 * blocks).wrapping_add_signed(off))
        };
        prop_oneof![4 => 0..5000u64, 2 => multiple(0..1 << 34), 1 => multiple((1 << 23) - 2..(1 << 23) + 2), 1 => any::<u64>()]
    }

    fn event() -> impl Strategy<Value = Event> {
        let category = || (0..Category::COUNT).prop_map(|which| Category::ALL[which]);
        let stream = prop_oneof![4 => Just(0), 1 => any::<u32>()].prop_map(Stream);
        let sizes = (number(), number(), number(), number());
        let alloc = (sizes, stream.clone(), category(), origin()).prop_map(
            |((id, requested_bytes, bytes, address), stream, category, origin)| Event::Alloc {
                id: AllocId(id),
                requested_bytes,
                bytes,
                address,
                stream,
                category,
                origin,
            },
        );
        prop_oneof![
            4 => alloc,
            3 => (number(), origin()).prop_map(|(id, origin)| Event::Free { id: AllocId(id), origin }),
            1 => (number(), category()).prop_map(|(id, to)| Event::Retag { id: AllocId(id), to }),
            1 => any::<u32>().prop_map(|phase| Event::Phase { phase: PhaseId(phase) }),
            1 => Just(Event::ResetPhasePeak),
            1 => Just(Event::ResetPeak),
            1 => Just(Event::ExpandableUnsupported),
            1 => number().prop_map(|bytes| Event::Refused { bytes }),
            1 => (number(), number(), stream).prop_map(|(address, bytes, stream)| Event::SegmentMap { address, bytes, stream }),
            1 => (number(), origin()).prop_map(|(requested_bytes, origin)| Event::Oom { requested_bytes, origin }),
        ]
    }

    /// A device's own numbers, in turn, where they are small; addresses of blocks, or any.
    fn numbered(mut events: Vec<Event>) -> Vec<Event> {
        let mut next = 0;
        for event in &mut events {
            match event {
                Event::Alloc { id, bytes, .. } if *bytes < 5000 => {
                    *id = AllocId(next);
                    next += 1;
                }
                Event::Alloc { id, .. } => next = id.0.wrapping_add(1),
                Event::Free { id, .. } | Event::Retag { id, .. } if id.0 < 5000 => {
                    id.0 = u64::wrapping_sub(next, 1 + id.0 % 50);
                }
                _ => {}
            }
        }
        events
    }

    proptest! {
        #[test]
        fn every_event_comes_back(events in prop::collection::vec(event(), 0..300)) {
            let events = numbered(events);
            let mut packed = Packed::default();
            events.iter().for_each(|event| packed.push(event));
            prop_assert_eq!(packed.events(), events);
        }
    }

    #[test]
    fn events_come_back_over_the_ends_of_chunks() {
        let event = |id| match id % 3 {
            0 => Event::Free { id: AllocId(id), origin: Origin::default() },
            1 => Event::Phase { phase: PhaseId(id as u32) },
            _ => Event::Refused { bytes: id },
        };
        let events: Vec<Event> = (0..3 * CHUNK as u64).map(event).collect();
        let mut packed = Packed::default();
        events.iter().for_each(|event| packed.push(event));
        assert!(packed.full.len() > 2 && packed.full.iter().all(|chunk| chunk.capacity() <= CHUNK));
        assert_eq!(packed.events(), events);
    }

    /// What a training sends: blocks of a few segments, freed soon.
    #[test]
    fn common_events_take_few_words() {
        let origin = Origin { op: "mm", node: Some("MmBackward0"), scope: ScopeId(3), phase: PhaseId(2) };
        let mut packed = Packed::default();
        for id in 0..100 {
            let (requested_bytes, bytes, address) = (1280, 1536, (7 << 40) + id % 5 * (3 << 30));
            let (id, stream, category) = (AllocId(id), Stream::DEFAULT, Category::Activation);
            packed.push(&Event::Phase { phase: PhaseId(2) });
            packed.push(&Event::Alloc { id, requested_bytes, bytes, address, stream, category, origin });
            packed.push(&Event::Retag { id, to: Category::Gradient });
            packed.push(&Event::Free { id, origin });
        }
        assert_eq!((packed.whole.len(), packed.origins.all.len()), (1, 1), "the first address is far from 0");
        assert!(packed.chunk.len() <= 100 * (1 + 4 + 2 + 2));
    }
}
