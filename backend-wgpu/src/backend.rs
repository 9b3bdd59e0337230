//! [`Wgpu`]: the backend's two traits, and the dispatch of kernels to their families.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::backend::{Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Region, SegmentId};
use memcore::error::{Error, Result};
use wgpu::{Buffer, BufferDescriptor};

use crate::NAME;
use crate::adapter::{AdapterInfo, DTYPES};
use crate::fusion::PendingLaunch;
use crate::gpu::Gpu;
use crate::job::{Context, DUMMY_BYTES, SCRATCH_BYTES};
use crate::pipelines::Pipelines;
use crate::queue::{FIXED_BYTES, Queue};
use crate::segments::{STORAGE, Segments};
use crate::{attention, conv, elementwise, index, loss, matmul, norm, optim, pool, quant, random, reduce, softmax};

/// A graphics card, or a software adapter; see the crate's documentation.
pub struct Wgpu {
    gpu: Gpu,
    limits: Limits,
    /// Alignment of a binding's offset.
    align: u64,
    state: Mutex<State>,
}

struct State {
    segments: Segments,
    queue: Queue,
    pipelines: Pipelines,
    /// A dummy that is bound for absent operands, followed by the scratch.
    fixed: Buffer,
    /// The last launch, if the next call may become a part of it.
    pending: Option<PendingLaunch>,
    /// An error from a call that could not return one.
    untold: Option<Error>,
}

/// Counters of the backend's work so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Command buffers submitted to the device.
    pub submissions: u64,
    /// Kernels recorded; a kernel that was fused into another does not count.
    pub dispatches: u64,
    /// Kernels compiled.
    pub pipelines: u64,
    /// Bytes that the layer below has taken from the driver; `None` if it does not report them.
    pub reserved_bytes: Option<u64>,
}

impl Wgpu {
    /// Opens the adapter at `index` of [`adapters`](crate::adapters).
    ///
    /// # Errors
    /// [`Error::Backend`] if there is no such adapter, or it lacks a feature that every kernel needs.
    pub fn open(index: usize) -> Result<Self> {
        Self::on(Gpu::open(index)?)
    }

    /// Creates the backend on an opened device.
    pub(crate) fn on(gpu: Gpu) -> Result<Self> {
        let wanted = gpu.device.limits();
        for (what, have, need) in [
            ("storage buffers per kernel", wanted.max_storage_buffers_per_shader_stage, 8),
            ("threads per workgroup", wanted.max_compute_invocations_per_workgroup, 256),
            ("bytes of workgroup memory", wanted.max_compute_workgroup_storage_size, 16_384),
        ] {
            if have < need {
                return Err(gpu.error(format!("{what}: {have}, and kernels need {need}")));
            }
        }
        let align = u64::from(wanted.min_storage_buffer_offset_alignment).max(256);
        let total = crate::driver::memory_info(&gpu, 0).map_or(u64::MAX, |info| info.total_bytes);
        let limits = Limits {
            alignment: 256,
            max_segment_bytes: wanted.max_buffer_size.min(total) & !15,
            // An operand is bound from the last aligned offset before it.
            max_binding_bytes: (wanted.max_storage_buffer_binding_size - align) & !15,
            dtypes: DTYPES.to_vec(),
        };
        let queue = Queue::new(&gpu);
        let pipelines = Pipelines::new(&gpu, &queue.params);
        let fixed = gpu.device.create_buffer(&BufferDescriptor {
            label: Some("scratch"),
            size: DUMMY_BYTES.max(align) + SCRATCH_BYTES,
            usage: STORAGE,
            mapped_at_creation: false,
        });
        gpu.check()?;
        let state = State { segments: Segments::default(), queue, pipelines, fixed, pending: None, untold: None };
        Ok(Self { gpu, limits, align, state: Mutex::new(state) })
    }

    /// Properties of the adapter.
    pub fn info(&self) -> &AdapterInfo {
        &self.gpu.info
    }

    /// Counters of the work so far.
    pub fn statistics(&self) -> Statistics {
        let state = &mut *self.state();
        state.untold = self.flush(state).err();
        Statistics {
            submissions: state.queue.submissions(),
            dispatches: state.queue.dispatches(),
            pipelines: state.pipelines.len() as u64,
            reserved_bytes: self.gpu.device.generate_allocator_report().map(|report| report.total_reserved_bytes),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for Wgpu {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        if bytes > self.limits.max_segment_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes: self.limits.max_segment_bytes });
        }
        self.gpu.check()?;
        self.state().segments.alloc(&self.gpu, bytes)
    }

    fn free_segment(&self, id: SegmentId) {
        let state = &mut *self.state();
        if !state.segments.contains(id) {
            return;
        }
        // Waits until work that uses the segment has completed. The next call that can return an error reports one.
        let flushed = self.flush(state);
        let finished = flushed.and(state.queue.finish(&self.gpu));
        state.pipelines.forget(id);
        if let Some(buffer) = state.segments.remove(id) {
            buffer.destroy();
            drop(buffer);
        }
        if finished.is_ok() {
            // The driver frees the memory when the device is next polled.
            let _ = self.gpu.device.poll(wgpu::PollType::Poll);
        }
        state.untold = finished.err();
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let held = self.state().segments.held_bytes();
        crate::driver::memory_info(&self.gpu, held)
    }

    fn host_memory(&self) -> bool {
        self.gpu.info.is_software || self.gpu.info.kind == "integrated"
    }
}

impl Backend for Wgpu {
    fn name(&self) -> &str {
        NAME
    }

    fn how_it_copies(&self) -> Option<&'static str> {
        Some(
            "WebGPU has no other way than page-locked memory: every upload is written to a mapped staging buffer of the driver",
        )
    }

    fn device_name(&self) -> String {
        self.gpu.info.name.clone()
    }

    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        dst.check_host_len(src.len())?;
        let state = &mut *self.state();
        let buffer = state.segments.buffer(dst)?.clone();
        self.flush(state)?;
        self.gpu.check()?;
        let head = (dst.offset.wrapping_neg() % 4).min(dst.len) as usize;
        let body = (src.len() - head) & !3;
        // The first and last words may belong to others in part: only this region's bytes of them change.
        let (first, rest) = src.split_at(head);
        let (middle, last) = rest.split_at(body);
        let mut cx = self.context(state);
        crate::transfer::patch(&mut cx, dst.part(0, head as u64), first)?;
        crate::transfer::patch(&mut cx, dst.part((head + body) as u64, last.len() as u64), last)?;
        state.queue.upload(&self.gpu, middle, &buffer, dst.offset + head as u64)
    }

    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        src.check_host_len(dst.len())?;
        let state = &mut *self.state();
        let buffer = state.segments.buffer(src)?.clone();
        if dst.is_empty() {
            return Ok(());
        }
        self.flush(state)?;
        let lead = (src.offset % 4) as usize;
        if lead == 0 && dst.len().is_multiple_of(4) {
            return state.queue.download(&self.gpu, &buffer, src.offset, dst);
        }
        // Downloads whole words and copies the region's part of them.
        let mut words = vec![0; (lead + dst.len()).next_multiple_of(4)];
        state.queue.download(&self.gpu, &buffer, src.offset - lead as u64, &mut words)?;
        dst.copy_from_slice(&words[lead..lead + dst.len()]);
        Ok(())
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        let state = &mut *self.state();
        let mut problem = Ok(());
        call.each_operand(&mut |name, _, operand| {
            if let Err(error) = state.segments.buffer(operand.region) {
                problem = Err(error);
            }
            let (len, limit) = (operand.region.len, self.limits.max_binding_bytes);
            if len > limit {
                let kernel = call.name();
                let text = format!(
                    "kernel {kernel}: {name} spans {len} bytes, and a kernel sees at most {limit} of one operand"
                );
                problem = Err(self.gpu.error(text));
            }
        });
        problem?;
        if self.gpu.is_lost() {
            self.gpu.check()?;
        }
        if state.pending.as_mut().is_some_and(|pending| pending.merge(call)) {
            return Ok(());
        }
        self.flush(state)?;
        state.pending = PendingLaunch::from_call(call);
        if state.pending.is_some() { Ok(()) } else { dispatch(&mut self.context(state), call) }
    }

    fn synchronize(&self) -> Result<()> {
        let state = &mut *self.state();
        self.flush(state)?;
        state.queue.finish(&self.gpu)
    }

    fn supports(&self, call: &KernelCall) -> bool {
        let mut fits = true;
        call.each_operand(&mut |_, _, operand| {
            // Shaders count in 32 bits.
            fits &= operand.numel() < 1 << 32 && operand.layout.span() < 1 << 32;
            fits &= DTYPES.contains(&operand.dtype);
        });
        fits && supports(call)
    }

    fn scratch_bytes(&self) -> u64 {
        FIXED_BYTES + DUMMY_BYTES.max(self.align) + SCRATCH_BYTES
    }
}

impl Wgpu {
    /// Records the pending launch. Any other work calls this first.
    fn flush(&self, state: &mut State) -> Result<()> {
        let recorded = match state.pending.take() {
            Some(_) if self.gpu.is_lost() => self.gpu.check(),
            Some(pending) => pending.record(&mut self.context(state)),
            None => Ok(()),
        };
        // The earliest error is reported first.
        state.untold.take().map_or(recorded, Err)
    }

    fn context<'a>(&'a self, state: &'a mut State) -> Context<'a> {
        Context {
            gpu: &self.gpu,
            queue: &mut state.queue,
            pipelines: &mut state.pipelines,
            segments: &state.segments,
            fixed: &state.fixed,
            align: self.align,
        }
    }
}

/// True if a family has the kernel for these types and shapes.
fn supports(call: &KernelCall) -> bool {
    match call {
        KernelCall::Unary(k) => elementwise::supports_unary(k),
        KernelCall::Binary(k) => elementwise::supports_binary(k),
        KernelCall::Reduce(k) => reduce::supports(k),
        KernelCall::Attention(k) => attention::supports(&k.q, &k.v),
        KernelCall::AttentionGrad(k) => attention::supports(&k.q, &k.v),
        _ => true,
    }
}

fn dispatch(cx: &mut Context<'_>, call: &KernelCall) -> Result<()> {
    memcore::by_family!(call, cx)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that could not be returned is reported once, by the next call that can.
    #[test]
    fn what_could_not_be_told_is_told_next() {
        let Some(backend) = conformance::or_skip("wgpu", Wgpu::open(0)) else { return };
        backend.state().untold = Some(backend.gpu.error("lost on the way"));
        let told = backend.synchronize().unwrap_err().to_string();
        assert!(told.contains("lost on the way"), "{told}");
        backend.synchronize().unwrap();
    }
}
