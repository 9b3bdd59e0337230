//! Your own backend, in host memory, with three kernels: all others are an error with their name.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::backend::kernel::BinaryOp;
use memcore::backend::{
    Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Operand, Region, SegmentId, SegmentTable,
};
use memcore::prelude::*;

/// Segments are vectors of bytes; kernels run at once.
pub(crate) struct Host {
    limits: Limits,
    segments: Mutex<SegmentTable<Vec<u8>>>,
}

impl Default for Host {
    fn default() -> Self {
        let (alignment, most) = (64, 1 << 30);
        let dtypes = vec![DType::F32];
        let limits = Limits { alignment, max_segment_bytes: most, max_binding_bytes: most, dtypes };
        Self { limits, segments: Mutex::default() }
    }
}

impl Host {
    fn segments(&self) -> MutexGuard<'_, SegmentTable<Vec<u8>>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, region: Region) -> Result<Vec<u8>> {
        Ok(self.segments().get(region.segment)?[region.offset as usize..region.end() as usize].to_vec())
    }

    fn write(&self, region: Region, bytes: &[u8]) -> Result<()> {
        self.segments().get_mut(region.segment)?[region.offset as usize..region.end() as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn floats(&self, operand: &Operand) -> Result<Vec<f32>> {
        let bytes = self.read(operand.region)?;
        Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
    }

    fn store(&self, operand: &Operand, values: impl Iterator<Item = f32>) -> Result<()> {
        self.write(operand.region, &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    }
}

impl DeviceMemory for Host {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        if bytes > self.limits.max_segment_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes: self.limits.max_segment_bytes });
        }
        self.segments().insert(vec![0; bytes as usize])
    }

    fn free_segment(&self, id: SegmentId) {
        self.segments().remove(id);
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        None
    }
}

impl Backend for Host {
    fn name(&self) -> &str {
        "host"
    }

    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        dst.check_host_len(src.len())?;
        self.write(dst, src)
    }

    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        src.check_host_len(dst.len())?;
        dst.copy_from_slice(&self.read(src)?);
        Ok(())
    }

    /// Only what is asked for here, in row-major order: core turns the rest into an error that names kernel and type.
    fn supports(&self, call: &KernelCall) -> bool {
        let mut contiguous = true;
        call.each_operand(&mut |_, _, operand| contiguous &= operand.layout.is_contiguous());
        let known = match call {
            KernelCall::Fill(_) => true,
            KernelCall::Binary(k) => matches!(k.op, BinaryOp::Add { .. } | BinaryOp::Mul),
            _ => false,
        };
        known && contiguous
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        match call {
            KernelCall::Fill(k) => self.store(&k.out, std::iter::repeat_n(k.value as f32, k.out.numel())),
            KernelCall::Binary(k) => {
                let (a, b) = (self.floats(&k.lhs)?, self.floats(&k.rhs)?);
                let pairs = a.into_iter().zip(b);
                match k.op {
                    BinaryOp::Add { alpha } => self.store(&k.out, pairs.map(|(a, b)| a + alpha as f32 * b)),
                    _ => self.store(&k.out, pairs.map(|(a, b)| a * b)),
                }
            }
            other => Err(Error::Unsupported { backend: "host".into(), kernel: other.name(), dtype: other.dtype() }),
        }
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn main() -> Result<()> {
    let device = Device::new(Host::default());
    let x = Tensor::leaf(Array::from_slice(&device, &[3], &[1.0f32, 2.0, 3.0])?);
    let y = x.mul(&x)?.add(&x)?;
    y.backward_with(Array::ones(&device, &[3], DType::F32)?, false)?;
    println!("x² + x = {:?}, its gradient {:?}", y.to_vec::<f32>()?, x.grad().map(|g| g.to_vec::<f32>()).transpose()?);
    println!("e^x: {}", x.exp().map_or_else(|refused| refused.to_string(), |_| "there".into()));
    Ok(())
}
