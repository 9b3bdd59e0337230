//! The allocator's published rules in their shortest form: enough to say what a list of requests takes.

const MIB: u64 = 1 << 20;

/// A block of a segment.
#[derive(Clone, Copy, Debug)]
struct Span {
    bytes: u64,
    /// Whose it is; `None` when free.
    holder: Option<u64>,
}

#[derive(Clone, Debug)]
struct Segment {
    small: bool,
    spans: Vec<Span>,
}

/// Segments and blocks under PyTorch's default settings: sizes in multiples of 512 bytes, two pools, best fit, a remainder of at
/// most 1 MiB left with a large block. Written from the published description, apart from the allocator that it predicts.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    segments: Vec<Segment>,
    next: u64,
    allocated: u64,
    reserved: u64,
}

/// `bytes` rounded up to a multiple of 512, at least 512.
pub fn rounded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(512)
}

impl Shelf {
    /// Gives a block for a request; returns its name and its size.
    pub fn take(&mut self, requested_bytes: u64) -> (u64, u64) {
        let bytes = rounded(requested_bytes);
        let small = bytes <= MIB;
        let (segment, index) = self.best_fit(small, bytes).unwrap_or_else(|| self.grow(small, bytes));
        let spans = &mut self.segments[segment].spans;
        let rest = spans[index].bytes - bytes;
        if rest > if small { 0 } else { MIB } {
            spans[index].bytes = bytes;
            spans.insert(index + 1, Span { bytes: rest, holder: None });
        }
        let holder = self.next;
        self.next += 1;
        spans[index].holder = Some(holder);
        self.allocated += spans[index].bytes;
        (holder, spans[index].bytes)
    }

    /// The smallest free block that is big enough, the first made among equals.
    fn best_fit(&self, small: bool, bytes: u64) -> Option<(usize, usize)> {
        let mut best: Option<(u64, usize, usize)> = None;
        for (s, segment) in self.segments.iter().enumerate().filter(|(_, segment)| segment.small == small) {
            for (i, span) in segment.spans.iter().enumerate() {
                let fits = span.holder.is_none() && span.bytes >= bytes;
                if fits && best.is_none_or(|(least, ..)| span.bytes < least) {
                    best = Some((span.bytes, s, i));
                }
            }
        }
        best.map(|(_, segment, index)| (segment, index))
    }

    fn grow(&mut self, small: bool, bytes: u64) -> (usize, usize) {
        let size = match bytes {
            _ if small => 2 * MIB,
            _ if bytes < 10 * MIB => 20 * MIB,
            _ => bytes.next_multiple_of(2 * MIB),
        };
        self.reserved += size;
        self.segments.push(Segment { small, spans: vec![Span { bytes: size, holder: None }] });
        (self.segments.len() - 1, 0)
    }

    /// Takes a block back; it joins its free neighbours.
    pub fn free(&mut self, holder: u64) {
        for segment in &mut self.segments {
            let spans = &mut segment.spans;
            let Some(mut i) = spans.iter().position(|span| span.holder == Some(holder)) else { continue };
            spans[i].holder = None;
            self.allocated -= spans[i].bytes;
            if i + 1 < spans.len() && spans[i + 1].holder.is_none() {
                spans[i].bytes += spans.remove(i + 1).bytes;
            }
            if i > 0 && spans[i - 1].holder.is_none() {
                spans[i - 1].bytes += spans.remove(i).bytes;
                i -= 1;
            }
            debug_assert!(spans[i].holder.is_none());
            return;
        }
    }

    /// Gives every segment without a held block back to the driver.
    pub fn empty_cache(&mut self) {
        self.segments.retain(|segment| {
            let held = segment.spans.iter().any(|span| span.holder.is_some());
            if !held {
                self.reserved -= segment.spans.iter().map(|span| span.bytes).sum::<u64>();
            }
            held
        });
    }

    /// Bytes of all held blocks.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Bytes of all segments.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Free bytes of segments that also have held blocks.
    pub fn inactive_split(&self) -> u64 {
        let split = self.segments.iter().filter(|segment| segment.spans.len() > 1);
        split.flat_map(|segment| &segment.spans).filter(|span| span.holder.is_none()).map(|span| span.bytes).sum()
    }
}
