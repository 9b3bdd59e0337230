//! Kernels to measure: every family, from sizes that only the launch decides to sizes that memory or arithmetic decide.
//!
//! One file per kind; **to add a kernel**, add an entry to its table: name, sizes, and how the call is made. Contents are such
//! that running it again and again keeps every number finite.

mod elementwise;
mod products;
mod rows;
mod state;

use memcore::array::HostElement;
use memcore::backend::{Backend, KernelCall, Meta, Operand};
use memcore::{Array, DType, Device};

use super::work::{Demand, Work};
use crate::error::Result;

/// Sizes of one measurement; what each means is the kernel's.
pub type Size = &'static [usize];

/// A kernel and how it is measured.
pub struct Kernel {
    /// The file of its definition: `elementwise`, `reduce`, …
    pub family: &'static str,
    /// Its own name, with the variant where it has several.
    pub name: &'static str,
    /// From launch-bound to as large as tells what limits it.
    pub sizes: &'static [Size],
    /// Types that it is measured in; the first at every size, the others at the largest.
    pub dtypes: &'static [DType],
    build: fn(&mut Operands, &[usize]) -> Result<KernelCall>,
}

/// In f32, and in the types of mixed precision.
const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
/// Where a type changes nothing but the width.
const F32: &[DType] = &[DType::F32];
/// Numbers of elements.
const ELEMENTS: &[Size] = &[&[1 << 10], &[1 << 18], &[1 << 24]];
/// Rows and their length.
const ROWS: &[Size] = &[&[32, 32], &[512, 512], &[4096, 4096]];

/// Every kernel that is measured.
pub fn all() -> impl Iterator<Item = &'static Kernel> {
    [elementwise::KERNELS, rows::KERNELS, products::KERNELS, state::KERNELS].into_iter().flatten()
}

/// The kernel of that name.
pub fn named(name: &str) -> Option<&'static Kernel> {
    all().find(|kernel| kernel.name == name)
}

impl Kernel {
    /// What is measured of it: type and sizes.
    pub fn points(&self) -> impl Iterator<Item = (DType, Size)> + '_ {
        let largest = self.sizes.len().saturating_sub(1);
        let sizes = move |first: bool| self.sizes.iter().copied().skip(if first { 0 } else { largest });
        self.dtypes.iter().enumerate().flat_map(move |(i, dtype)| sizes(i == 0).map(move |size| (*dtype, size)))
    }

    /// What it needs at least at a size, without any device.
    ///
    /// # Errors
    /// Sizes that the kernel does not take.
    pub fn demand(&self, dtype: DType, size: &[usize]) -> Result<Demand> {
        Ok(self.prepare(&Device::new(Meta::default()), dtype, size)?.demand())
    }

    /// Why a backend cannot be asked for it, without asking: a type, the size of an operand, the kernel.
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

    /// The call with its operands on `device`, ready to run.
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

/// Several calls on common operands, ready to run.
///
/// # Errors
/// As [`Kernel::prepare`].
pub fn prepare(
    device: &Device,
    dtype: DType,
    build: impl FnOnce(&mut Operands) -> Result<Vec<KernelCall>>,
) -> Result<Work> {
    let mut operands = Operands { device: device.clone(), dtype, arrays: Vec::new() };
    let calls = build(&mut operands)?;
    Work::of_calls(device, calls, operands.arrays)
}

/// Sizes as people read them: `64x64`, `16Mi`.
pub fn label(size: &[usize]) -> String {
    let number = |n: usize| match n {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{}Mi", n >> 20),
        n if n >= 1 << 16 && n.is_multiple_of(1 << 10) => format!("{}Ki", n >> 10),
        n => n.to_string(),
    };
    size.iter().map(|&n| number(n)).collect::<Vec<_>>().join("x")
}

/// Makes operands on a device, and keeps their memory.
pub struct Operands {
    device: Device,
    dtype: DType,
    arrays: Vec<Array>,
}

impl Operands {
    /// Values in [−1, 1).
    ///
    /// # Errors
    /// Those of the device; so have all of these.
    pub fn read(&mut self, dims: &[usize]) -> Result<Operand> {
        self.between(self.dtype, dims, -1.0, 1.0)
    }

    /// Values of a float type in [low, high).
    fn between(&mut self, dtype: DType, dims: &[usize], low: f64, high: f64) -> Result<Operand> {
        let array = Array::uniform(&self.device, dims, dtype, low, high)?;
        Ok(self.keep(array))
    }

    /// Statistics: positive values in the type that sums are taken in.
    fn statistic(&mut self, dims: &[usize]) -> Result<Operand> {
        self.between(self.dtype.accumulator(), dims, 0.5, 1.0)
    }

    /// One value of a type, everywhere.
    fn full(&mut self, dtype: DType, dims: &[usize], value: f64) -> Result<Operand> {
        let array = Array::full(&self.device, dims, dtype, value)?;
        Ok(self.keep(array))
    }

    /// A mask, every third element unset.
    fn mask(&mut self, dims: &[usize]) -> Result<Operand> {
        let value = |i: usize| u8::from(!i.is_multiple_of(3));
        self.host(dims, &|numel| (0..numel).map(value).collect())
    }

    /// `count` positions below `below`, in no order.
    fn indices(&mut self, count: usize, below: usize) -> Result<Operand> {
        self.host(&[count], &|numel| super::labels(0, numel, below as u64))
    }

    /// A class for each example, of `[examples, classes]`: `[examples, 1]`.
    fn classes(&mut self, d: &[usize]) -> Result<Operand> {
        self.host(&[d[0], 1], &|numel| super::labels(0, numel, d[1] as u64))
    }

    /// Values from the host, which are made only where there are values.
    fn host<T: HostElement>(&mut self, dims: &[usize], values: &dyn Fn(usize) -> Vec<T>) -> Result<Operand> {
        let array = Array::empty(&self.device, dims, T::DTYPE)?;
        if self.device.computes() {
            array.write(&values(array.numel()))?;
        }
        Ok(self.keep(array))
    }

    /// Room for a result.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self, dims: &[usize]) -> Result<Operand> {
        self.write_as(self.dtype, dims)
    }

    /// Room for a result of another type.
    fn write_as(&mut self, dtype: DType, dims: &[usize]) -> Result<Operand> {
        let array = Array::empty(&self.device, dims, dtype)?;
        Ok(self.keep(array))
    }

    fn keep(&mut self, array: Array) -> Operand {
        let operand = array.operand();
        self.arrays.push(array);
        operand
    }

    /// The call with the workspace that the backend asks for.
    fn with_workspace(&mut self, mut call: KernelCall) -> Result<KernelCall> {
        let bytes = self.device.backend().workspace_bytes(&call) as usize;
        if let Some(slot) = call.workspace_mut().filter(|_| bytes > 0) {
            *slot = Some(self.write_as(DType::U8, &[bytes])?);
        }
        Ok(call)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Kernels that say nothing of speed: a scalar's update.
    const UNMEASURED: [&str; 1] = ["update_scale"];

    #[test]
    fn every_kernel_is_measured() {
        let names: BTreeSet<&str> = all().map(|kernel| kernel.name).collect();
        assert_eq!(names.len(), all().count(), "two have one name");
        for kernel in KernelCall::NAMES {
            let measured = names.iter().any(|name| name == kernel || name.starts_with(&format!("{kernel}_")));
            assert!(measured != UNMEASURED.contains(kernel), "{kernel}");
        }
    }

    /// Each call passes validation at every size, moves something, and grows with its size.
    #[test]
    fn calls_are_sound_at_every_size() {
        let device = Device::new(Meta::default());
        for kernel in all() {
            let mut before = 0;
            for (dtype, size) in kernel.points() {
                let work = kernel.prepare(&device, dtype, size);
                let work = work.unwrap_or_else(|error| panic!("{} {} {dtype}: {error}", kernel.name, label(size)));
                let demand = work.demand();
                assert_eq!(demand.launches, 1, "{}", kernel.name);
                assert!(dtype != kernel.dtypes[0] || demand.bytes > before, "{} {}", kernel.name, label(size));
                before = demand.bytes;
            }
        }
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [label(&[1 << 24]), label(&[4096, 4096]), label(&[1 << 18])],
            ["16Mi".to_string(), "4096x4096".into(), "256Ki".into()]
        );
    }
}
