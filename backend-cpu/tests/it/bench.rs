//! Helpers: a device with one segment, operands in it with values of any type given as f64, and launches that are validated
//! as core validates them.

use half::{bf16, f16};
use memcore::backend::{Backend, DeviceMemory, KernelCall, Operand, Region, SegmentId, validate};
use memcore::{DType, Layout};

use backend_cpu::Cpu;

/// A device, and the operands that a test makes on it.
pub(crate) struct Bench {
    pub(crate) cpu: Cpu,
    segment: SegmentId,
    len: u64,
    used: u64,
}

impl Bench {
    /// Makes a device with `threads` threads, and a segment of 32 MiB of garbage.
    pub(crate) fn new(threads: usize) -> Self {
        Self::with_room(threads, 32 << 20)
    }

    /// The same with a segment of `len` bytes.
    pub(crate) fn with_room(threads: usize, len: u64) -> Self {
        let cpu = Cpu::with_threads(threads).unwrap();
        let segment = cpu.alloc_segment(len).unwrap();
        cpu.upload(&vec![0xff; len as usize], Region { segment, offset: 0, len }).unwrap();
        Self { cpu, segment, len, used: 0 }
    }

    /// Makes an operand of garbage (NaN in every float type).
    pub(crate) fn garbage(&mut self, dtype: DType, layout: Layout) -> Operand {
        let len = layout.span() as u64 * dtype.size();
        let region = Region { segment: self.segment, offset: self.used, len };
        self.used = (region.end() + 64).next_multiple_of(64);
        assert!(self.used <= self.len, "test segment is full");
        Operand { region, dtype, layout }
    }

    /// Makes an operand that holds `values` in row-major order, whatever its strides.
    pub(crate) fn operand(&mut self, dtype: DType, layout: Layout, values: &[f64]) -> Operand {
        let operand = self.garbage(dtype, layout);
        let size = dtype.size() as usize;
        let mut bytes = vec![0xff; operand.region.len as usize];
        for (value, at) in values.iter().zip(offsets(&layout)) {
            bytes[at * size..][..size].copy_from_slice(&encode(dtype, *value));
        }
        self.cpu.upload(&bytes, operand.region).unwrap();
        operand
    }

    /// Makes a contiguous operand of reproducible values around 0.
    pub(crate) fn random(&mut self, dtype: DType, dims: &[usize], seed: u64) -> Operand {
        let layout = Layout::contiguous(dims).unwrap();
        self.operand(dtype, layout, &noise(layout.numel(), seed))
    }

    /// Returns the contents of an operand, in row-major order.
    pub(crate) fn read(&self, operand: &Operand) -> Vec<f64> {
        let size = operand.dtype.size() as usize;
        let mut bytes = vec![0; operand.region.len as usize];
        self.cpu.download(operand.region, &mut bytes).unwrap();
        offsets(&operand.layout).map(|at| decode(operand.dtype, &bytes[at * size..][..size])).collect()
    }

    /// Validates and launches a call.
    pub(crate) fn launch(&self, call: impl Into<KernelCall>) {
        let call = call.into();
        validate(&call).unwrap();
        assert!(self.cpu.supports(&call), "{call:?}");
        self.cpu.launch(&call).unwrap();
    }

    /// Asserts that `operand` holds `want`, to a relative error of `tolerance` roundings of its type.
    pub(crate) fn assert_close(&self, what: &str, operand: &Operand, want: &[f64], tolerance: f64) {
        let got = self.read(operand);
        assert_eq!(got.len(), want.len(), "{what}");
        let unit = match operand.dtype {
            DType::F64 => 2f64.powi(-52),
            DType::F32 => 2f64.powi(-23),
            DType::F16 => 2f64.powi(-10),
            _ => 2f64.powi(-7),
        };
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let close = (got - want).abs() <= tolerance * unit * want.abs().max(1.0) || got == want;
            assert!(close, "{what} [{i}]: {got}, expected {want}");
        }
    }
}

/// Returns reproducible values between −1 and 1 that are exact in the eight bits of every float type.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) % 129) as f64 / 64.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Returns the offsets of a layout's elements, in row-major order.
fn offsets(layout: &Layout) -> impl Iterator<Item = usize> + '_ {
    (0..layout.numel()).map(|mut i| {
        layout.dims().iter().zip(layout.strides()).rev().fold(0, |at, (d, s)| {
            let here = i % d;
            i /= d;
            at + here * s
        })
    })
}

fn encode(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::F64 => x.to_le_bytes().to_vec(),
        DType::F32 => (x as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        DType::I64 => (x as i64).to_le_bytes().to_vec(),
        other => panic!("tests do not make {other}"),
    }
}

fn decode(dtype: DType, b: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes(b.try_into().unwrap()),
        DType::F32 => f32::from_le_bytes(b.try_into().unwrap()) as f64,
        DType::F16 => f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
        DType::BF16 => bf16::from_le_bytes(b.try_into().unwrap()).to_f64(),
        DType::I64 => i64::from_le_bytes(b.try_into().unwrap()) as f64,
        other => panic!("tests do not read {other}"),
    }
}
