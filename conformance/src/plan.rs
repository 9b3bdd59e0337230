//! Memory for the operands of a case: each has a block of its own, with guard bytes around it.

use memcore::DType;
use memcore::Layout;
use memcore::backend::{KernelCall, Operand, Region, SegmentId};

use crate::case::{Bound, Case};
use crate::data::seed;
use crate::reference::{POISON, positions};

/// Minimum number of guard bytes before and after each operand.
const GUARD_BYTES: u64 = 64;

/// Distribution of a case's buffers over segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All in one segment, as a caching allocator packs them.
    Together,
    /// Each in a segment of its own.
    Apart,
}

/// A case with its operands placed in memory.
pub struct Plan<'a> {
    case: &'a Case,
    /// Size of each segment.
    pub(crate) segments: Vec<u64>,
    /// Index of the segment, and offset, of each operand's first element.
    places: Vec<(usize, u64)>,
    /// Segment, offset and size of each buffer.
    buffers: Vec<(usize, u64, u64)>,
    workspace: Option<(usize, u64, u64)>,
}

impl<'a> Plan<'a> {
    /// Places the buffers of `case` at multiples of `alignment`, and a workspace of this many bytes if one is given.
    pub fn new(case: &'a Case, alignment: u64, spread: Spread, workspace_bytes: Option<u64>) -> Self {
        let mut plan = Plan { case, segments: Vec::new(), places: Vec::new(), buffers: Vec::new(), workspace: None };
        let mut buffer_of = vec![None; case.operands.len()];
        for spec in &case.operands {
            let at = match buffer_of[spec.buffer] {
                Some(at) => at,
                None => {
                    let sharing = case.operands.iter().filter(|other| other.buffer == spec.buffer);
                    let bytes = sharing.map(|other| other.end_bytes()).max().unwrap_or(0);
                    let at = plan.place(bytes, alignment, spread);
                    plan.buffers.push((at.0, at.1, bytes));
                    *buffer_of[spec.buffer].insert(at)
                }
            };
            plan.places.push((at.0, at.1 + spec.lead as u64 * spec.dtype.size()));
        }
        plan.workspace = workspace_bytes.map(|bytes| {
            let (segment, offset) = plan.place(bytes, alignment, spread);
            (segment, offset, bytes)
        });
        plan
    }

    /// Takes a block in the last segment or in a new one, with guards on both sides.
    fn place(&mut self, bytes: u64, alignment: u64, spread: Spread) -> (usize, u64) {
        if self.segments.is_empty() || spread == Spread::Apart {
            self.segments.push(GUARD_BYTES);
        }
        let last = self.segments.len() - 1;
        let offset = self.segments[last].next_multiple_of(alignment);
        self.segments[last] = offset + bytes + GUARD_BYTES;
        (last, offset)
    }

    /// Returns the operands in these segments.
    pub fn bind(&self, ids: &[SegmentId]) -> Bound {
        let operand = |(spec, &(segment, offset)): (&crate::case::Spec, &(usize, u64))| {
            let len = spec.layout.span() as u64 * spec.dtype.size();
            let region = Region { segment: ids[segment], offset, len };
            (spec.name, Operand { region, dtype: spec.dtype, layout: spec.layout })
        };
        Bound(self.case.operands.iter().zip(&self.places).map(operand).collect())
    }

    /// Returns the call in these segments, with its workspace.
    pub fn call(&self, ids: &[SegmentId]) -> KernelCall {
        let mut call = self.case.call(&self.bind(ids));
        if let (Some(slot), Some((segment, offset, len))) = (call.workspace_mut(), self.workspace) {
            let region = Region { segment: ids[segment], offset, len };
            let layout = Layout::contiguous(&[len as usize]).unwrap_or(Layout::scalar());
            *slot = Some(Operand { region, dtype: DType::U8, layout });
        }
        call
    }

    /// Returns the call in segments that do not exist: only for questions about it, not for launching.
    pub fn prospective_call(&self) -> KernelCall {
        let ids: Vec<SegmentId> = (0..self.segments.len()).map(|i| SegmentId(i as u32)).collect();
        self.call(&ids)
    }

    /// Contents of the segments before the call: guards everywhere, poison in the buffers, then the operands' data.
    pub fn images(&self) -> Vec<Vec<u8>> {
        let mut images: Vec<Vec<u8>> = self.segments.iter().map(|&bytes| guard(bytes)).collect();
        let workspace = self.workspace.iter();
        for &(segment, offset, bytes) in self.buffers.iter().chain(workspace) {
            images[segment][offset as usize..(offset + bytes) as usize].fill(POISON);
        }
        for (spec, &(segment, offset)) in self.case.operands.iter().zip(&self.places) {
            let size = spec.dtype.size() as usize;
            let image = &mut images[segment][offset as usize..];
            let seed = seed(&format!("{}::{}", self.case.full_name(), spec.name));
            let mut places = positions(&spec.layout);
            spec.data.each_element(spec.dtype, spec.layout.numel(), seed, |_, bytes| {
                let at = places.next().unwrap_or(0) * size;
                image[at..at + size].copy_from_slice(bytes);
            });
        }
        images
    }

    /// Blanks the workspace in the images: its contents mean nothing afterwards.
    pub(crate) fn without_workspace(&self, mut images: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if let Some((segment, offset, bytes)) = self.workspace {
            images[segment][offset as usize..(offset + bytes) as usize].fill(0);
        }
        images
    }

    /// Name of the operand at a byte, or of the next one before it, for messages.
    pub(crate) fn name_at(&self, segment: usize, byte: u64) -> String {
        let near = self
            .case
            .operands
            .iter()
            .zip(&self.places)
            .filter(|(_, place)| place.0 == segment && place.1 <= byte)
            .max_by_key(|(_, place)| place.1);
        match near {
            Some((spec, place)) => {
                let (into, len) = (byte - place.1, spec.layout.span() as u64 * spec.dtype.size());
                let (name, side) = (spec.name, if into < len { "inside" } else { "behind" });
                format!("{side} {name}, {into} bytes from its start ({len} bytes long)")
            }
            None => "before the first operand".into(),
        }
    }
}

/// Guard bytes: neighbours always differ, so that a shifted copy shows.
fn guard(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(167) >> 1) as u8 ^ 0x5A).collect()
}
