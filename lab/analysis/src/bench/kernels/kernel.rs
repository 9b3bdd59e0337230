//! A kernel to measure, and its operands.

use lab_base::error::Result;
use memcore::array::HostElement;
use memcore::backend::{Backend, KernelCall, Meta, Operand};
use memcore::{Array, DType, Device};

use crate::bench::labels;
use crate::bench::work::{Demand, Work};

/// Sizes of one measurement; their meaning depends on the kernel.
pub type Size = &'static [usize];

/// A kernel, and how it is measured.
pub struct Kernel {
    /// The file of its definition: `elementwise`, `reduce`, …
    pub family: &'static str,
    /// Name of the kernel, with the variant if it has several.
    pub name: &'static str,
    /// Sizes, from launch-bound to large enough to show what limits the kernel.
    pub sizes: &'static [Size],
    /// Types to measure; the first at every size, the others at the largest.
    pub dtypes: &'static [DType],
    pub(super) build: fn(&mut Operands, &[usize]) -> Result<KernelCall>,
}

/// f32, and the types of mixed precision.
pub(super) const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
/// For kernels in which the type changes only the width.
pub(super) const F32: &[DType] = &[DType::F32];
/// Numbers of elements.
pub(super) const ELEMENTS: &[Size] = &[&[1 << 10], &[1 << 18], &[1 << 24]];
/// Rows and their length.
pub(super) const ROWS: &[Size] = &[&[32, 32], &[512, 512], &[4096, 4096]];

impl Kernel {
    /// Returns the pairs of type and sizes that are measured.
    pub fn points(&self) -> impl Iterator<Item = (DType, Size)> + '_ {
        let largest = self.sizes.len().saturating_sub(1);
        let sizes = move |first: bool| self.sizes.iter().copied().skip(if first { 0 } else { largest });
        self.dtypes.iter().enumerate().flat_map(move |(i, dtype)| sizes(i == 0).map(move |size| (*dtype, size)))
    }

    /// Least cost at a size, computed without any device.
    ///
    /// # Errors
    /// Sizes that the kernel does not take.
    pub fn demand(&self, dtype: DType, size: &[usize]) -> Result<Demand> {
        Ok(self.prepare(&Device::new(Meta::default()), dtype, size)?.demand())
    }

    /// Why a backend cannot run it, found without running: a type, the size of an operand, or the kernel itself.
    pub fn refused_by(&self, backend: &dyn Backend, dtype: DType, size: &[usize]) -> Option<String> {
        let limits = backend.limits();
        let mut operands = Operands { device: Device::new(Meta::default()), dtype, arrays: Vec::new() };
        let call = match (self.build)(&mut operands, size) {
            Ok(call) => call,
            Err(error) => return Some(error.to_string()),
        };
        let mut reason = None;
        call.each_operand(&mut |name, _, operand| {
            if !limits.dtypes.contains(&operand.dtype) {
                reason.get_or_insert_with(|| format!("there is no {}", operand.dtype));
            }
            if operand.region.len > limits.max_binding_bytes {
                reason.get_or_insert_with(|| format!("{name} is larger than an operand can be"));
            }
        });
        let lacks = || format!("there is no {} for {dtype}", call.name());
        reason.or_else(|| (!backend.supports(&call)).then(lacks))
    }

    /// Makes the call with its operands on `device`, ready to run.
    ///
    /// # Errors
    /// What the device refuses: memory, operands beyond its limits, kernels and types that it does not have.
    pub fn prepare(&self, device: &Device, dtype: DType, size: &[usize]) -> Result<Work> {
        let mut operands = Operands { device: device.clone(), dtype, arrays: Vec::new() };
        let call = (self.build)(&mut operands, size)?;
        let call = operands.with_workspace(call)?;
        Work::of_calls(device, vec![call], operands.arrays)
    }
}

/// Makes several calls on common operands, ready to run.
pub fn prepare(
    device: &Device,
    dtype: DType,
    build: impl FnOnce(&mut Operands) -> Result<Vec<KernelCall>>,
) -> Result<Work> {
    let mut operands = Operands { device: device.clone(), dtype, arrays: Vec::new() };
    let calls = build(&mut operands)?;
    Work::of_calls(device, calls, operands.arrays)
}

/// Formats sizes: `64x64`, `16Mi`.
pub fn label(size: &[usize]) -> String {
    let number = |n: usize| match n {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{}Mi", n >> 20),
        n if n >= 1 << 16 && n.is_multiple_of(1 << 10) => format!("{}Ki", n >> 10),
        n => n.to_string(),
    };
    size.iter().map(|&n| number(n)).collect::<Vec<_>>().join("x")
}

/// Makes operands on a device, and keeps their memory alive.
pub struct Operands {
    device: Device,
    pub(super) dtype: DType,
    arrays: Vec<Array>,
}

impl Operands {
    /// Makes values in [−1, 1).
    ///
    /// # Errors
    /// Those of the device, as for all methods here.
    pub fn read(&mut self, dims: &[usize]) -> Result<Operand> {
        self.between(self.dtype, dims, -1.0, 1.0)
    }

    /// Makes values of a float type in [low, high).
    pub(super) fn between(&mut self, dtype: DType, dims: &[usize], low: f64, high: f64) -> Result<Operand> {
        let array = Array::uniform(&self.device, dims, dtype, low, high)?;
        Ok(self.keep(array))
    }

    /// Makes statistics: positive values in the type that sums are computed in.
    pub(super) fn statistic(&mut self, dims: &[usize]) -> Result<Operand> {
        self.between(self.dtype.accumulator(), dims, 0.5, 1.0)
    }

    /// Makes an array filled with one value.
    pub(super) fn full(&mut self, dtype: DType, dims: &[usize], value: f64) -> Result<Operand> {
        let array = Array::full(&self.device, dims, dtype, value)?;
        Ok(self.keep(array))
    }

    /// Makes a mask with every third element unset.
    pub(super) fn mask(&mut self, dims: &[usize]) -> Result<Operand> {
        let value = |i: usize| u8::from(!i.is_multiple_of(3));
        self.host(dims, &|numel| (0..numel).map(value).collect())
    }

    /// Makes `count` unsorted positions below `below`.
    pub(super) fn indices(&mut self, count: usize, below: usize) -> Result<Operand> {
        self.host(&[count], &|numel| labels(0, numel, below as u64))
    }

    /// Makes a class for each example, `[examples, 1]`, from the sizes `[examples, classes]`.
    pub(super) fn classes(&mut self, d: &[usize]) -> Result<Operand> {
        self.host(&[d[0], 1], &|numel| labels(0, numel, d[1] as u64))
    }

    /// Copies values from the host. They are made only if the device holds values.
    fn host<T: HostElement>(&mut self, dims: &[usize], values: &dyn Fn(usize) -> Vec<T>) -> Result<Operand> {
        let array = Array::empty(&self.device, dims, T::DTYPE)?;
        if self.device.computes() {
            array.write(&values(array.numel()))?;
        }
        Ok(self.keep(array))
    }

    /// Allocates an operand for a result.
    pub fn write(&mut self, dims: &[usize]) -> Result<Operand> {
        self.write_as(self.dtype, dims)
    }

    /// Allocates an operand for a result of another type.
    pub(super) fn write_as(&mut self, dtype: DType, dims: &[usize]) -> Result<Operand> {
        let array = Array::empty(&self.device, dims, dtype)?;
        Ok(self.keep(array))
    }

    fn keep(&mut self, array: Array) -> Operand {
        let operand = array.operand();
        self.arrays.push(array);
        operand
    }

    /// Adds to the call the workspace that the backend asks for.
    fn with_workspace(&mut self, mut call: KernelCall) -> Result<KernelCall> {
        let bytes = self.device.backend().workspace_bytes(&call) as usize;
        if let Some(slot) = call.workspace_mut().filter(|_| bytes > 0) {
            *slot = Some(self.write_as(DType::U8, &[bytes])?);
        }
        Ok(call)
    }
}
