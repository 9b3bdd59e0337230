//! The OpenCL backend: segments are buffers; bytes and kernels go through one queue.

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::backend::{Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Region, SegmentId, SegmentTable};
use memcore::{DType, Error, Result};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::types::{CL_BLOCKING, cl_mem};
use portable_kernels::{Arguments, Launch};

use crate::device::{Found, devices};
use crate::programs::Programs;
use crate::{NAME, failed};

/// Work items per group. Work items do not cooperate, so any number is correct.
const GROUP: usize = 64;

/// An OpenCL device.
pub struct OpenCl {
    found: Found,
    limits: Limits,
    context: Context,
    queue: CommandQueue,
    state: Mutex<State>,
}

struct State {
    segments: SegmentTable<Segment>,
    held_bytes: u64,
    programs: Programs,
}

struct Segment {
    buffer: Buffer<u8>,
    bytes: u64,
}

// SAFETY: objects of OpenCL may be used from any thread, but for the arguments of a kernel between setting them and launching it, and these are set and
// launched under the lock of `state`.
unsafe impl Send for OpenCl {}
// SAFETY: as above.
unsafe impl Sync for OpenCl {}

impl OpenCl {
    /// Number of devices.
    pub fn count() -> Result<usize> {
        Ok(devices()?.len())
    }

    /// Opens the device at `index`.
    ///
    /// # Errors
    /// No such device; errors of the driver.
    pub fn open(index: usize) -> Result<Self> {
        let absent = || Error::backend(NAME, format!("there is no device {index}"));
        let found = devices()?.into_iter().nth(index).ok_or_else(absent)?;
        let context = Context::from_device(&found.device).map_err(|error| failed("no context", error))?;
        // Without properties the queue runs in order.
        let queue = CommandQueue::create_default_with_properties(&context, 0, 0);
        let queue = queue.map_err(|error| failed("no queue", error))?;
        let parameters = found.device.max_parameter_size().unwrap_or(0);
        if parameters < size_of::<Arguments>() {
            return Err(Error::backend(
                NAME,
                format!("{}: kernels take {parameters} bytes of arguments at most", found.name),
            ));
        }
        let limits = Limits {
            alignment: found.alignment.clamp(16, 512),
            max_segment_bytes: found.max_segment_bytes,
            max_binding_bytes: found.max_segment_bytes,
            dtypes: DType::ALL.into_iter().filter(|&dtype| found.doubles || dtype != DType::F64).collect(),
        };
        let state = State { segments: SegmentTable::default(), held_bytes: 0, programs: Programs::new(&found) };
        Ok(Self { found, limits, context, queue, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a launch.
    fn run(&self, state: &mut State, launch: &Launch) -> Result<()> {
        let told = |error| failed(launch.function, error);
        let kernel = state.programs.kernel(&self.context, launch)?;
        // SAFETY: the function takes what the launch says: its arguments by value, then a buffer for each region, null where none is used.
        unsafe { kernel.set_arg(0, &launch.arguments) }.map_err(told)?;
        for (k, region) in launch.regions().iter().enumerate() {
            let buffer = match region {
                Some(region) => state.segments.get(region.segment)?.buffer.get(),
                None => ptr::null_mut(),
            };
            // SAFETY: as above; the buffer lives until `free_segment`, which waits for the queue.
            unsafe { kernel.set_arg::<cl_mem>(k as u32 + 1, &buffer) }.map_err(told)?;
        }
        let items = [(launch.items as usize).next_multiple_of(GROUP)];
        // SAFETY: the kernel has all its arguments. Core has checked that its operands lie in their segments; items beyond the launch's do nothing.
        unsafe {
            self.queue.enqueue_nd_range_kernel(kernel.get(), 1, ptr::null(), items.as_ptr(), [GROUP].as_ptr(), &[])
        }
        .map_err(told)?;
        Ok(())
    }
}

impl DeviceMemory for OpenCl {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        let Limits { max_segment_bytes, .. } = self.limits;
        if bytes > max_segment_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes: max_segment_bytes });
        }
        let mut state = self.state();
        state.segments.check_room()?;
        // A driver may hand out more memory than the device has, and fail when a kernel touches it.
        let free = self.found.total_bytes.saturating_sub(state.held_bytes);
        let full = Error::DeviceFull { requested_bytes: bytes, free_bytes: Some(free) };
        if bytes > free {
            return Err(full);
        }
        // SAFETY: no memory of the host is handed over.
        let made = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, bytes as usize, ptr::null_mut()) };
        let Ok(buffer) = made else { return Err(full) };
        state.held_bytes += bytes;
        state.segments.insert(Segment { buffer, bytes })
    }

    fn free_segment(&self, id: SegmentId) {
        let mut state = self.state();
        if let Some(segment) = state.segments.remove(id) {
            // The next call that waits for the queue reports its failures.
            let _ = self.queue.finish();
            state.held_bytes -= segment.bytes;
        }
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        // OpenCL does not report the memory that other processes use.
        None
    }

    fn host_memory(&self) -> bool {
        self.found.host_memory
    }
}

impl Backend for OpenCl {
    fn name(&self) -> &str {
        NAME
    }

    fn device_name(&self) -> String {
        self.found.name.clone()
    }

    fn how_it_copies(&self) -> Option<&'static str> {
        Some(
            "OpenCL copies from ordinary host memory here and waits until the source may be reused; whether its driver locks pages is its own affair",
        )
    }

    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        dst.check_host_len(src.len())?;
        let mut state = self.state();
        let buffer = &mut state.segments.get_mut(dst.segment)?.buffer;
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: the call blocks until the source has been read; core has checked that the region lies in its segment.
        let done = unsafe { self.queue.enqueue_write_buffer(buffer, CL_BLOCKING, dst.offset as usize, src, &[]) };
        done.map(drop).map_err(|error| failed("upload", error))
    }

    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        src.check_host_len(dst.len())?;
        let state = self.state();
        let buffer = &state.segments.get(src.segment)?.buffer;
        if dst.is_empty() {
            return Ok(());
        }
        // SAFETY: the call blocks until the bytes are there; core has checked that the region lies in its segment.
        let done = unsafe { self.queue.enqueue_read_buffer(buffer, CL_BLOCKING, src.offset as usize, dst, &[]) };
        done.map(drop).map_err(|error| failed("download", error))
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        let mut state = self.state();
        portable_kernels::each_launch(call, &mut |launch| self.run(&mut state, launch))
    }

    fn synchronize(&self) -> Result<()> {
        self.queue.finish().map_err(|error| failed("waiting for the queue", error))
    }

    fn supports(&self, call: &KernelCall) -> bool {
        portable_kernels::supports(call)
    }
}
