//! Helpers for writing a kernel's expected results by hand.

use memcore::backend::{Backend, DeviceMemory, KernelCall, Operand, Region, validate};
use memcore::{DType, Layout};

use super::{Number, Reference, load, store};

/// A reference device for one test.
pub(crate) struct Bench(Reference);

impl Bench {
    pub(crate) fn new() -> Self {
        Self(Reference::default())
    }

    /// A contiguous operand with these values, in a segment of its own.
    pub(crate) fn put(&self, dtype: DType, dims: &[usize], values: &[f64]) -> Operand {
        let out = self.fresh(dtype, dims);
        assert_eq!(values.len(), out.numel());
        let size = dtype.size() as usize;
        let mut bytes = vec![0; out.region.len as usize];
        for (value, slot) in values.iter().zip(bytes.chunks_mut(size)) {
            store(dtype, Number::F(*value), slot);
        }
        self.0.upload(&bytes, out.region).unwrap();
        out
    }

    pub(crate) fn f32(&self, dims: &[usize], values: &[f64]) -> Operand {
        self.put(DType::F32, dims, values)
    }

    /// An f64 operand: results come back without rounding.
    pub(crate) fn f64(&self, dims: &[usize], values: &[f64]) -> Operand {
        self.put(DType::F64, dims, values)
    }

    /// An operand that nothing was written to: poison.
    pub(crate) fn fresh(&self, dtype: DType, dims: &[usize]) -> Operand {
        let layout = Layout::contiguous(dims).unwrap();
        let len = layout.span() as u64 * dtype.size();
        let segment = self.0.alloc_segment(len.max(1)).unwrap();
        Operand { region: Region { segment, offset: 0, len }, dtype, layout }
    }

    /// Validates and runs a call.
    pub(crate) fn run(&self, call: impl Into<KernelCall>) {
        let call = call.into();
        validate(&call).unwrap();
        self.0.launch(&call).unwrap();
    }

    /// The elements of a contiguous operand.
    pub(crate) fn get(&self, x: &Operand) -> Vec<f64> {
        let mut bytes = vec![0; x.region.len as usize];
        self.0.download(x.region, &mut bytes).unwrap();
        bytes.chunks(x.dtype.size() as usize).map(|b| load(x.dtype, b).to_f64()).collect()
    }

    /// Fails unless the elements are `want`, to 1e-6 (f32's rounding) relative to the larger of 1 and the value.
    #[track_caller]
    pub(crate) fn expect(&self, x: &Operand, want: &[f64]) {
        let got = self.get(x);
        let close =
            |(g, w): (&f64, &f64)| g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= 1e-6 * w.abs().max(1.0);
        assert!(got.len() == want.len() && got.iter().zip(want).all(close), "got {got:?}, expected {want:?}");
    }
}
