//! A launch under construction: operands, parameters, size.

use memcore::backend::{Operand, Region};
use memcore::error::Result;
use wgpu::Buffer;

use crate::element::has_halves;
use crate::gpu::Gpu;
use crate::halves::{Halves, TRIAL_GROUPS, trial};
use crate::key::{Key, Variant};
use crate::pipelines::{Binding, MAX_BINDINGS, Pipelines};
use crate::queue::{Queue, SLOT_WORDS, bytes_of};
use crate::segments::Segments;

/// Maximum number of workgroups in one dimension of a dispatch, on every adapter.
const MAX_GROUPS: u64 = 65_535;

/// Bytes of [`Context::scratch`].
pub(crate) const SCRATCH_BYTES: u64 = 4 << 20;
/// Bytes of the dummy that is bound for an absent or empty operand.
pub(crate) const DUMMY_BYTES: u64 = 256;

/// Everything that a family needs to launch a kernel.
pub(crate) struct Context<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) queue: &'a mut Queue,
    pub(crate) pipelines: &'a mut Pipelines,
    pub(crate) segments: &'a Segments,
    pub(crate) fixed: &'a Buffer,
    /// Alignment of a binding's offset.
    pub(crate) align: u64,
}

/// Operands and parameters of a dispatch, in the order in which the shader declares them.
pub(crate) struct Job {
    bindings: [Binding; MAX_BINDINGS],
    count: usize,
    words: [u32; SLOT_WORDS],
    len: usize,
    align: u64,
}

/// Words at the front of every dispatch's parameters: the position of each operand's first element in its binding.
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

    /// Records a dispatch of `groups` workgroups. `source` makes the kernel's WGSL at its first use. The shader
    /// computes the index of a workgroup in the grid as `y·width + x`.
    pub(crate) fn run(&mut self, job: &Job, key: Key, groups: u64, source: impl FnOnce() -> String) -> Result<()> {
        if groups == 0 {
            return Ok(());
        }
        // As few rows as possible, of equal length; surplus workgroups at the end do nothing.
        let y = groups.div_ceil(MAX_GROUPS);
        let x = groups.div_ceil(y);
        if y > MAX_GROUPS {
            return Err(self.gpu.error(format!("kernel {}: {groups} workgroups are too many", key.name)));
        }
        let bindings = &job.bindings[..job.count];
        let pipeline = match self.pipelines.known(self.gpu, key) {
            Some(pipeline) => pipeline,
            None => {
                let source = source();
                let halves = if has_halves(&source) { self.halves()?.functions() } else { String::new() };
                self.pipelines.build(self.gpu, key, job.count, &(halves + &source))?
            }
        };
        let (segments, fixed) = (self.segments, self.fixed);
        let buffer_of = |binding: &Binding| match binding.segment {
            Some(segment) => segments.buffer(Region { segment, offset: binding.offset, len: 0 }),
            None => Ok(fixed),
        };
        // A segment id that is not valid must not find a bind group either: those of freed segments were dropped.
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

impl Context<'_> {
    /// Writes words to the beginning of the scratch, after everything recorded so far.
    pub(crate) fn fill_scratch(&mut self, words: &[u32]) -> Result<()> {
        self.queue.upload(self.gpu, bytes_of(words), self.fixed, self.align.max(DUMMY_BYTES))
    }

    /// How the device converts 16-bit floats; tried at the first call.
    fn halves(&mut self) -> Result<Halves> {
        if let Some(halves) = self.gpu.halves.get() {
            return Ok(*halves);
        }
        let converts = self.gpu.device.features().contains(wgpu::Features::SHADER_F16);
        // In the dummy: the scratch may hold what this launch is about to read.
        let mut job = self.job();
        job.bind_opt(None).u(0);
        self.queue.upload(self.gpu, &[0; 12], self.fixed, 0)?;
        let key = Variant::new().with(1, converts.into()).key("f16_trial");
        self.run(&job, key, TRIAL_GROUPS, || trial(converts))?;
        let mut found = [0; 12];
        self.queue.download(self.gpu, self.fixed, 0, &mut found)?;
        let wrong = [0, 4, 8].map(|at| u32::from_le_bytes([found[at], found[at + 1], found[at + 2], found[at + 3]]));
        let halves = Halves::from_masks(wrong, converts);
        Ok(*self.gpu.halves.get_or_init(|| halves))
    }
}

impl Job {
    /// Binds an operand: from the last aligned offset before it, with the number of elements up to its first one as a
    /// parameter.
    pub(crate) fn bind(&mut self, operand: &Operand) -> &mut Self {
        if operand.region.len == 0 {
            return self.bind_nothing();
        }
        self.bind_region(operand.region, operand.dtype.size())
    }

    /// Binds an operand, or the dummy if it is absent.
    pub(crate) fn bind_opt(&mut self, operand: Option<&Operand>) -> &mut Self {
        match operand {
            Some(operand) => self.bind(operand),
            None => self.bind_nothing(),
        }
    }

    /// Binds the fixed scratch. Its contents are undefined before and after a launch.
    pub(crate) fn bind_scratch(&mut self) -> &mut Self {
        self.put(Binding { segment: None, offset: self.align.max(DUMMY_BYTES), size: SCRATCH_BYTES }, 0)
    }

    /// Binds a range, or the dummy; the kernel finds its operands in it.
    pub(crate) fn bind_range(&mut self, range: Option<Region>) -> &mut Self {
        let Some(range) = range else { return self.bind_nothing() };
        let offset = range.offset & !(self.align - 1);
        let size = (range.end() - offset).next_multiple_of(4);
        self.put(Binding { segment: Some(range.segment), offset, size }, 0)
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

    /// Position of operand `i`'s first element in its binding, in elements.
    pub(crate) fn first(&self, i: usize) -> u32 {
        self.words[i]
    }

    /// Pushes a parameter, a number below 2³² (sizes in core are; see `supports`).
    pub(crate) fn u(&mut self, value: usize) -> &mut Self {
        self.word(value as u32)
    }

    /// Pushes a parameter, as f32.
    pub(crate) fn f(&mut self, value: f64) -> &mut Self {
        self.word((value as f32).to_bits())
    }

    /// Pushes a parameter as raw bits.
    pub(crate) fn word(&mut self, word: u32) -> &mut Self {
        self.words[self.len] = word;
        self.len += 1;
        self
    }

    /// Index of the next parameter.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Changes parameter `at`, which was pushed before.
    pub(crate) fn set(&mut self, at: usize, value: usize) -> &mut Self {
        self.words[at] = value as u32;
        self
    }
}
