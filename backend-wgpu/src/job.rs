//! One launch being put together: operands, parameters, size.

use memcore::backend::{Operand, Region};
use memcore::error::Result;
use wgpu::Buffer;

use crate::gpu::Gpu;
use crate::key::Key;
use crate::pipelines::{Binding, MAX_BINDINGS, Pipelines};
use crate::queue::{Queue, SLOT_WORDS};
use crate::segments::Segments;

/// Workgroups in one dimension of a dispatch, at most, everywhere.
const MAX_GROUPS: u64 = 65_535;

/// Bytes of [`Context::scratch`].
pub(crate) const SCRATCH_BYTES: u64 = 4 << 20;
/// Bytes of what is bound where a kernel's operand is absent or empty.
pub(crate) const DUMMY_BYTES: u64 = 256;

/// Everything that a family's code needs to launch.
pub(crate) struct Context<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) queue: &'a mut Queue,
    pub(crate) pipelines: &'a mut Pipelines,
    pub(crate) segments: &'a Segments,
    pub(crate) fixed: &'a Buffer,
    /// Where a binding may begin.
    pub(crate) align: u64,
}

/// A dispatch's operands and parameters, in the order in which the shader declares them.
pub(crate) struct Job {
    bindings: [Binding; MAX_BINDINGS],
    count: usize,
    words: [u32; SLOT_WORDS],
    len: usize,
    align: u64,
}

/// Words at the front of every dispatch's parameters: where each operand's first element lies in its binding.
const OFFSETS: usize = MAX_BINDINGS;

impl Context<'_> {
    pub(crate) fn job(&self) -> Job {
        Job {
            bindings: [Binding::default(); MAX_BINDINGS],
            count: 0,
            words: [0; SLOT_WORDS],
            len: OFFSETS,
            align: self.align,
        }
    }

    /// Records a dispatch of `groups` workgroups. `source` makes the kernel's WGSL where it was not made before. The shader computes its
    /// number in the grid as `y·width + x`.
    pub(crate) fn run(&mut self, job: &Job, key: Key, groups: u64, source: impl FnOnce() -> String) -> Result<()> {
        if groups == 0 {
            return Ok(());
        }
        // As few rows as can be, of equal length: what is left over at the end does nothing.
        let y = groups.div_ceil(MAX_GROUPS);
        let x = groups.div_ceil(y);
        if y > MAX_GROUPS {
            return Err(self.gpu.error(format!("kernel {}: {groups} workgroups are too many", key.name)));
        }
        let bindings = &job.bindings[..job.count];
        let pipeline = self.pipelines.find(self.gpu, key, job.count, source)?;
        let (segments, fixed) = (self.segments, self.fixed);
        let buffer_of = |binding: &Binding| match binding.segment {
            Some(segment) => segments.buffer(Region { segment, offset: binding.offset, len: 0 }),
            None => Ok(fixed),
        };
        // An id that names nothing must not find a bind group either: those of a freed segment were forgotten.
        self.pipelines.bind(self.gpu, bindings, buffer_of)?;
        let pipelines = &mut *self.pipelines;
        let params = pipelines.params.clone();
        let group = pipelines.bind(self.gpu, bindings, buffer_of)?.clone();
        let words = &job.words[..job.len];
        self.queue.dispatch(
            self.gpu,
            (pipeline, self.pipelines.get(pipeline)),
            &group,
            &params,
            words,
            [x as u32, y as u32],
        )
    }
}

impl Job {
    /// Binds an operand: the range from the last place where a binding may begin, and the elements up to its first one.
    pub(crate) fn bind(&mut self, operand: &Operand) -> &mut Self {
        if operand.region.len == 0 {
            return self.bind_nothing();
        }
        self.bind_region(operand.region, operand.dtype.size())
    }

    /// Binds an operand, or the dummy in its place.
    pub(crate) fn bind_opt(&mut self, operand: Option<&Operand>) -> &mut Self {
        match operand {
            Some(operand) => self.bind(operand),
            None => self.bind_nothing(),
        }
    }

    /// Binds the fixed scratch, of which nothing is known at the start and at the end of a launch.
    pub(crate) fn bind_scratch(&mut self) -> &mut Self {
        self.put(Binding { segment: None, offset: self.align.max(DUMMY_BYTES), size: SCRATCH_BYTES }, 0)
    }

    fn bind_nothing(&mut self) -> &mut Self {
        self.put(Binding { segment: None, offset: 0, size: DUMMY_BYTES }, 0)
    }

    fn bind_region(&mut self, region: Region, unit: u64) -> &mut Self {
        let offset = region.offset & !(self.align - 1);
        let size = (region.end() - offset).next_multiple_of(4);
        self.put(Binding { segment: Some(region.segment), offset, size }, ((region.offset - offset) / unit) as u32)
    }

    fn put(&mut self, binding: Binding, first: u32) -> &mut Self {
        self.bindings[self.count] = binding;
        self.words[self.count] = first;
        self.count += 1;
        self
    }

    /// Where the first element of operand `i` lies in its binding, in elements.
    pub(crate) fn first(&self, i: usize) -> u32 {
        self.words[i]
    }

    /// The next parameter, a number below 2³² (core's sizes are; see `supports`).
    pub(crate) fn u(&mut self, value: usize) -> &mut Self {
        self.word(value as u32)
    }

    /// The next parameter, in f32.
    pub(crate) fn f(&mut self, value: f64) -> &mut Self {
        self.word((value as f32).to_bits())
    }

    /// The next parameter, as it is.
    pub(crate) fn word(&mut self, word: u32) -> &mut Self {
        self.words[self.len] = word;
        self.len += 1;
        self
    }

    /// The number of the next parameter.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Changes parameter `at`, which was pushed before.
    pub(crate) fn set(&mut self, at: usize, value: usize) -> &mut Self {
        self.words[at] = value as u32;
        self
    }
}
