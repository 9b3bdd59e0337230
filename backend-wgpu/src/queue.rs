//! The one queue: commands are recorded into an open encoder and submitted together.
//!
//! A submission costs some 700 µs on a software driver, a dispatch in an open pass 20 µs. So an encoder stays open
//! until something is read, a segment is freed, or its [`SLOTS`] parameter slots are used up.
//!
//! Everything for the device passes through a *chunk* of mapped staging memory that belongs to the open encoder: first
//! the parameters of its dispatches, one slot each, then the bytes of uploads. The encoder copies them in the order of
//! the calls. A chunk is mapped again when its submission has completed, so that nothing is allocated after
//! construction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use memcore::error::Result;
use wgpu::{
    Buffer, BufferAsyncError, BufferDescriptor, BufferUsages, CommandEncoder, ComputePass, MapMode, PollType,
    SubmissionIndex,
};

use crate::gpu::Gpu;

/// Maximum number of dispatches per submission.
pub(crate) const SLOTS: usize = 512;
/// Bytes of a dispatch's parameters: the largest alignment that a uniform's offset may need.
pub(crate) const SLOT_BYTES: u64 = 256;
/// Words of a dispatch's parameters.
pub(crate) const SLOT_WORDS: usize = SLOT_BYTES as usize / 4;

const PARAMS_BYTES: u64 = SLOTS as u64 * SLOT_BYTES;
/// Bytes of uploads per submission.
const UPLOAD_BYTES: u64 = 2 << 20;
const CHUNK_BYTES: u64 = PARAMS_BYTES + UPLOAD_BYTES;
/// Number of chunks: one is recorded while others run.
const CHUNKS: usize = 3;
/// Maximum bytes per read.
const DOWNLOAD_BYTES: u64 = 4 << 20;

/// Device memory that the queue holds from its construction on.
pub(crate) const FIXED_BYTES: u64 = PARAMS_BYTES + CHUNKS as u64 * CHUNK_BYTES + DOWNLOAD_BYTES;

/// Staging memory of one submission.
struct Chunk {
    buffer: Buffer,
    mapping: Mapping,
    /// The last submission that reads it.
    submission: Option<SubmissionIndex>,
}

/// An encoder with commands that are not submitted yet.
struct Open {
    encoder: CommandEncoder,
    pass: Option<ComputePass<'static>>,
    chunk: usize,
    upload_bytes: u64,
    slots: usize,
    /// Index of the pipeline that the pass has set.
    pipeline: usize,
}

/// The queue's state.
pub(crate) struct Queue {
    /// Parameters, one slot per dispatch of the open encoder.
    pub(crate) params: Buffer,
    words: Vec<u32>,
    chunks: Vec<Chunk>,
    next_chunk: usize,
    download: Buffer,
    open: Option<Open>,
    submissions: u64,
    dispatches: u64,
}

const NO_PIPELINE: usize = usize::MAX;

impl Queue {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let buffer = |label, size, usage, mapped_at_creation| {
            gpu.device.create_buffer(&BufferDescriptor { label: Some(label), size, usage, mapped_at_creation })
        };
        let staging = BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC;
        let chunk = |_| Chunk {
            buffer: buffer("staging", CHUNK_BYTES, staging, true),
            mapping: Mapping::done(),
            submission: None,
        };
        Self {
            params: buffer("parameters", PARAMS_BYTES, BufferUsages::UNIFORM | BufferUsages::COPY_DST, false),
            words: vec![0; SLOTS * SLOT_WORDS],
            chunks: (0..CHUNKS).map(chunk).collect(),
            next_chunk: 0,
            download: buffer("download", DOWNLOAD_BYTES, BufferUsages::MAP_READ | BufferUsages::COPY_DST, false),
            open: None,
            submissions: 0,
            dispatches: 0,
        }
    }

    /// Number of submissions so far.
    pub(crate) fn submissions(&self) -> u64 {
        self.submissions
    }

    /// Number of dispatches so far.
    pub(crate) fn dispatches(&self) -> u64 {
        self.dispatches
    }

    fn open(&mut self, gpu: &Gpu) -> Result<&mut Open> {
        if self.open.is_none() {
            let chunk = self.next_chunk;
            self.next_chunk = (chunk + 1) % CHUNKS;
            self.await_chunk(gpu, chunk)?;
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&self.chunks[chunk].buffer, 0, &self.params, 0, PARAMS_BYTES);
            self.open = Some(Open { encoder, pass: None, chunk, upload_bytes: 0, slots: 0, pipeline: NO_PIPELINE });
        }
        self.open.as_mut().ok_or_else(|| gpu.error("no encoder"))
    }

    /// Waits until the last submission of a chunk has read it.
    fn await_chunk(&mut self, gpu: &Gpu, chunk: usize) -> Result<()> {
        let chunk = &mut self.chunks[chunk];
        if chunk.mapping.is_done() {
            return Ok(());
        }
        wait(gpu, chunk.submission.take())?;
        chunk.mapping.finish(gpu, "staging memory")
    }

    /// Records a dispatch. `words` are its parameters; `bind` sets its bind groups, given the offset of the slot.
    pub(crate) fn dispatch(
        &mut self,
        gpu: &Gpu,
        pipeline: (usize, &wgpu::ComputePipeline),
        bind_group: &wgpu::BindGroup,
        params: &wgpu::BindGroup,
        words: &[u32],
        groups: [u32; 2],
    ) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.slots == SLOTS) {
            self.submit(gpu)?;
        }
        let open = self.open(gpu)?;
        let slot = open.slots;
        open.slots += 1;
        let pass = open.pass.get_or_insert_with(|| {
            open.pipeline = NO_PIPELINE;
            open.encoder.begin_compute_pass(&Default::default()).forget_lifetime()
        });
        if open.pipeline != pipeline.0 {
            pass.set_pipeline(pipeline.1);
            open.pipeline = pipeline.0;
        }
        pass.set_bind_group(0, bind_group, &[]);
        pass.set_bind_group(1, params, &[(slot as u64 * SLOT_BYTES) as u32]);
        pass.dispatch_workgroups(groups[0], groups[1], 1);
        self.dispatches += 1;
        self.words[slot * SLOT_WORDS..slot * SLOT_WORDS + words.len()].copy_from_slice(words);
        Ok(())
    }

    /// Copies host bytes to `offset` of a buffer, both multiples of 4, after everything recorded so far.
    pub(crate) fn upload(&mut self, gpu: &Gpu, mut src: &[u8], buffer: &Buffer, mut offset: u64) -> Result<()> {
        while !src.is_empty() {
            if self.open.as_ref().is_some_and(|open| open.upload_bytes == UPLOAD_BYTES) {
                self.submit(gpu)?;
            }
            let open = self.open(gpu)?;
            let (chunk, at) = (open.chunk, PARAMS_BYTES + open.upload_bytes);
            let len = (src.len() as u64).min(UPLOAD_BYTES - open.upload_bytes);
            open.pass = None;
            // Mapped ranges begin at multiples of 8.
            open.upload_bytes += len.next_multiple_of(8);
            let staging = self.chunks[chunk].buffer.clone();
            let mut view = staging
                .get_mapped_range_mut(at..at + len)
                .map_err(|error| gpu.error(format!("staging memory: {error}")))?;
            let (now, rest) = src.split_at(len as usize);
            view.copy_from_slice(now);
            drop(view);
            let open = self.open(gpu)?;
            open.encoder.copy_buffer_to_buffer(&staging, at, buffer, offset, len);
            src = rest;
            offset += len;
        }
        Ok(())
    }

    /// Reads `dst.len()` bytes at `offset` of a buffer, both multiples of 4, after everything recorded so far.
    pub(crate) fn download(&mut self, gpu: &Gpu, buffer: &Buffer, mut offset: u64, dst: &mut [u8]) -> Result<()> {
        for part in dst.chunks_mut(DOWNLOAD_BYTES as usize) {
            let len = part.len() as u64;
            let download = self.download.clone();
            let open = self.open(gpu)?;
            open.pass = None;
            open.encoder.copy_buffer_to_buffer(buffer, offset, &download, 0, len);
            let submission = self.submit(gpu)?;
            let mapping = Mapping::begin();
            download.map_async(MapMode::Read, 0..len, mapping.callback());
            wait(gpu, submission)?;
            mapping.finish(gpu, "what was read")?;
            let view = download.get_mapped_range(0..len).map_err(|error| gpu.error(format!("reading: {error}")))?;
            part.copy_from_slice(&view);
            drop(view);
            download.unmap();
            offset += len;
        }
        Ok(())
    }

    /// Submits the recorded commands to the device.
    pub(crate) fn submit(&mut self, gpu: &Gpu) -> Result<Option<SubmissionIndex>> {
        let Some(mut open) = self.open.take() else { return Ok(None) };
        open.pass = None;
        let chunk = &mut self.chunks[open.chunk];
        if open.slots > 0 {
            let words = &self.words[..open.slots * SLOT_WORDS];
            let mut view = chunk
                .buffer
                .get_mapped_range_mut(0..words.len() as u64 * 4)
                .map_err(|error| gpu.error(format!("staging memory: {error}")))?;
            view.copy_from_slice(bytes_of(words));
        }
        chunk.buffer.unmap();
        chunk.mapping = Mapping::begin();
        let submission = gpu.queue.submit([open.encoder.finish()]);
        self.submissions += 1;
        chunk.buffer.map_async(MapMode::Write, .., chunk.mapping.callback());
        chunk.submission = Some(submission.clone());
        gpu.check()?;
        Ok(Some(submission))
    }

    /// Submits, and waits until the device has no work left.
    pub(crate) fn finish(&mut self, gpu: &Gpu) -> Result<()> {
        self.submit(gpu)?;
        wait(gpu, None)
    }
}

/// A buffer that is being mapped for the host.
struct Mapping(Arc<AtomicU8>);

const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const REFUSED: u8 = 2;

/// Maximum time to wait for the mapping after the device has finished its work.
const MAPPING_PATIENCE: Duration = Duration::from_secs(10);

impl Mapping {
    fn begin() -> Self {
        Self(Arc::new(AtomicU8::new(PENDING)))
    }

    fn done() -> Self {
        Self(Arc::new(AtomicU8::new(MAPPED)))
    }

    fn callback(&self) -> impl FnOnce(std::result::Result<(), BufferAsyncError>) + Send + 'static {
        let state = Arc::clone(&self.0);
        move |result| state.store(if result.is_ok() { MAPPED } else { REFUSED }, Ordering::Release)
    }

    fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == MAPPED
    }

    /// Waits for the mapping. Another thread may be about to receive the answer: polling a device receives the answers
    /// for all threads.
    fn finish(&self, gpu: &Gpu, what: &str) -> Result<()> {
        let begun = Instant::now();
        while self.0.load(Ordering::Acquire) == PENDING && begun.elapsed() < MAPPING_PATIENCE {
            let _ = gpu.device.poll(PollType::Poll);
            std::thread::yield_now();
        }
        if self.is_done() {
            return Ok(());
        }
        gpu.check()?;
        Err(gpu.error(format!("{what} could not be mapped")))
    }
}

/// Waits for a submission, or for all.
fn wait(gpu: &Gpu, submission_index: Option<SubmissionIndex>) -> Result<()> {
    let waited = gpu.device.poll(PollType::Wait { submission_index, timeout: None });
    if waited.is_err() {
        // A lost device refuses to wait for work that it never began; polling then reports the loss.
        let _ = gpu.device.poll(PollType::Poll);
    }
    gpu.check()?;
    waited.map(|_| ()).map_err(|error| gpu.error(error))
}

/// The bytes of the words, as the device sees them.
pub(crate) fn bytes_of(words: &[u32]) -> &[u8] {
    // SAFETY: any word is four valid bytes, and the slice covers the same memory.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
