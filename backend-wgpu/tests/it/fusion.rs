//! A unary function in place, directly after the launch that computed its argument, becomes a part of that launch. Only
//! the number of kernels may reveal it.

use std::sync::MutexGuard;

use backend_wgpu::Wgpu;
use memcore::backend::kernel::{Binary, BinaryOp, Fill, Unary, UnaryOp};
use memcore::backend::{Backend, DeviceMemory, KernelCall, Operand, Region, SegmentId};
use memcore::{DType, Layout};

use crate::alone;

/// Floats that kernels compute with.
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// Bytes of the segment per operand.
const AREA: u64 = 1 << 16;
/// Offsets of a case's operands.
const AREAS: [u64; 3] = [0, AREA, 2 * AREA];

const UNARIES: [UnaryOp; 37] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sign,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Reciprocal,
    UnaryOp::Square,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tanh,
    UnaryOp::Sigmoid,
    UnaryOp::Relu,
    UnaryOp::LeakyRelu { slope: 0.1 },
    UnaryOp::Gelu,
    UnaryOp::GeluTanh,
    UnaryOp::Silu,
    UnaryOp::Elu { alpha: 0.7 },
    UnaryOp::Softplus,
    UnaryOp::LogSigmoid,
    UnaryOp::Mish,
    UnaryOp::Hardsigmoid,
    UnaryOp::Hardswish,
    UnaryOp::Huber { delta: 0.9 },
    AFFINE,
    UnaryOp::Affine { mul: 0.1, add: -0.3 },
    UnaryOp::Pow { exponent: 2.0 },
    UnaryOp::Pow { exponent: 3.0 },
    UnaryOp::Pow { exponent: 0.5 },
    UnaryOp::Pow { exponent: -0.5 },
    UnaryOp::Pow { exponent: -1.0 },
    UnaryOp::Pow { exponent: 1.7 },
    UnaryOp::Pow { exponent: -2.0 },
    UnaryOp::Clamp { min: -0.4, max: 1.1 },
    UnaryOp::Clamp { min: 0.0, max: 6.0 },
    UnaryOp::Clamp { min: -1e30, max: 0.5 },
];
/// A product and a sum, which a compiler might contract with the operation before.
const AFFINE: UnaryOp = UnaryOp::Affine { mul: 1.37, add: 0.11 };

const BINARIES: [BinaryOp; 9] = [
    BinaryOp::ADD,
    BinaryOp::Add { alpha: 0.3 },
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Maximum,
    BinaryOp::Minimum,
    BinaryOp::Pow,
    BinaryOp::SquaredDifference,
];

/// Layout of a case's operands: the sizes; for the left one, the right one and the result, the strides and the first
/// element.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    dims: [usize; 2],
    strides: [[usize; 2]; 3],
    first: [u64; 3],
}

const ODD: Place = Place { name: "odd", dims: [7, 37], strides: [[37, 1]; 3], first: [0; 3] };
const PLACES: [Place; 12] = [
    ODD,
    Place { name: "eights", dims: [64, 40], strides: [[40, 1]; 3], first: [0; 3] },
    Place { name: "quads", dims: [33, 12], strides: [[12, 1]; 3], first: [0; 3] },
    Place { name: "row repeats", dims: [24, 40], strides: [[40, 1], [0, 1], [40, 1]], first: [0; 3] },
    Place { name: "column repeats", dims: [24, 40], strides: [[40, 1], [1, 0], [40, 1]], first: [0; 3] },
    Place { name: "transposed", dims: [24, 40], strides: [[1, 24], [40, 1], [40, 1]], first: [0; 3] },
    Place { name: "gaps in the result", dims: [24, 40], strides: [[40, 1], [40, 1], [48, 1]], first: [0, 0, 8] },
    Place { name: "a quad further", dims: [24, 40], strides: [[40, 1]; 3], first: [0, 4, 8] },
    Place { name: "rows a quad apart", dims: [24, 40], strides: [[40, 1], [40, 1], [44, 1]], first: [0; 3] },
    Place { name: "rows an element apart", dims: [24, 40], strides: [[41, 1], [40, 1], [40, 1]], first: [0; 3] },
    Place { name: "shifted", dims: [24, 40], strides: [[40, 1]; 3], first: [2, 6, 4] },
    Place { name: "odd gaps", dims: [5, 11], strides: [[11, 1], [1, 5], [13, 1]], first: [3, 1, 7] },
];

/// The first adapter, for this test alone, and a segment on it.
struct Rig {
    backend: Wgpu,
    segment: SegmentId,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    fn open() -> Option<Self> {
        let alone = alone();
        let backend = conformance::or_skip("wgpu", Wgpu::open(0))?;
        let segment = backend.alloc_segment(3 * AREA).unwrap();
        let rig = Self { backend, segment, _alone: alone };
        // A trial of the device's conversions precedes the first kernel of 16-bit floats, and is counted.
        for dtype in [DType::F16, DType::BF16] {
            let x = rig.operand(0, dtype, Layout::contiguous(&[8]).unwrap());
            rig.launch(Unary { op: UnaryOp::Neg, x, out: x });
            rig.backend.synchronize().unwrap();
        }
        Some(rig)
    }

    fn operand(&self, base: u64, dtype: DType, layout: Layout) -> Operand {
        let region = Region { segment: self.segment, offset: base, len: layout.span() as u64 * dtype.size() };
        Operand { region, dtype, layout }
    }

    /// The left operand, the right operand and the result.
    fn operands(&self, place: &Place, dtype: DType) -> [Operand; 3] {
        std::array::from_fn(|i| {
            let layout = Layout::strided(&place.dims, &place.strides[i]).unwrap();
            self.operand(AREAS[i] + place.first[i] * dtype.size(), dtype, layout)
        })
    }

    /// Contiguous f32 operands of `count` elements, one after another in the segment.
    fn rows(&self, count: usize) -> [Operand; 3] {
        AREAS.map(|base| self.operand(base, DType::F32, Layout::contiguous(&[count]).unwrap()))
    }

    fn launch(&self, call: impl Into<KernelCall>) {
        let call = call.into();
        memcore::backend::validate(&call).unwrap();
        self.backend.launch(&call).unwrap();
    }

    /// Number of kernels that `work` recorded.
    fn count(&self, work: impl FnOnce()) -> u64 {
        let before = self.backend.statistics().dispatches;
        work();
        self.backend.statistics().dispatches - before
    }

    /// The bytes in the segment after a launch and a function of its result in place, and the number of kernels
    /// recorded.
    fn bytes(&self, dtype: DType, calls: [&KernelCall; 2], apart: bool) -> (Vec<u8>, u64) {
        let whole = Region { segment: self.segment, offset: 0, len: 3 * AREA };
        self.backend.upload(&values(dtype), whole).unwrap();
        let kernels = self.count(|| {
            self.launch(calls[0].clone());
            if apart {
                self.backend.synchronize().unwrap();
            }
            self.launch(calls[1].clone());
        });
        let mut bytes = vec![0; whole.len as usize];
        self.backend.download(whole, &mut bytes).unwrap();
        (bytes, kernels)
    }

    /// Asserts that the numbers are the same, bit for bit, whether the two are one kernel or two.
    fn same(&self, what: &str, first: impl Into<KernelCall>, then: UnaryOp, out: Operand) {
        let (first, dtype) = (first.into(), out.dtype);
        let second = KernelCall::from(Unary { op: then, x: out, out });
        let (apart, two) = self.bytes(dtype, [&first, &second], true);
        let (fused, one) = self.bytes(dtype, [&first, &second], false);
        assert_eq!((one, two), (1, 2), "{what}, {then:?}: kernels");
        let size = dtype.size() as usize;
        for (i, (fused, apart)) in fused.chunks(size).zip(apart.chunks(size)).enumerate() {
            // No driver specifies which NaN results: its sign depends on how negations are moved.
            let same = fused == apart || (number(fused, dtype).is_nan() && number(apart, dtype).is_nan());
            assert!(same, "{what}, {then:?}, {dtype:?}: {fused:x?} instead of {apart:x?} at element {i}");
        }
    }
}

/// Decodes the bytes of an element.
fn number(bytes: &[u8], dtype: DType) -> f32 {
    match (dtype, bytes) {
        (DType::F32, [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]),
        (DType::F16, [a, b]) => half::f16::from_le_bytes([*a, *b]).to_f32(),
        (DType::BF16, [a, b]) => half::bf16::from_le_bytes([*a, *b]).to_f32(),
        _ => panic!("{dtype:?} in {} bytes", bytes.len()),
    }
}

/// Encodes a number as an element.
fn stored(number: f32, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => number.to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(number).to_le_bytes().to_vec(),
        _ => half::bf16::from_f32(number).to_le_bytes().to_vec(),
    }
}

/// Bytes of a segment full of elements: most of moderate size, some with arbitrary bits, infinities and zeros of both
/// signs.
fn values(dtype: DType) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let special = [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1e-6, 3e38];
    let float = |n: u32, any: u32| match n % 16 {
        0 => special[any as usize % special.len()],
        1 => f32::from_bits(any),
        _ => any as f32 / (1u32 << 29) as f32 - 4.0,
    };
    let count = 3 * AREA / dtype.size();
    (0..count).flat_map(|_| stored(float(next(), next()), dtype)).collect()
}

fn every_function_after_every_function_of_two(dtype: DType) {
    let Some(rig) = Rig::open() else { return };
    let [lhs, rhs, out] = rig.operands(&ODD, dtype);
    for op in BINARIES {
        for then in UNARIES {
            rig.same(&format!("{op:?}"), Binary { op, lhs, rhs, out }, then, out);
        }
    }
}

#[test]
fn every_function_after_every_function_of_two_f32() {
    every_function_after_every_function_of_two(DType::F32);
}

#[test]
fn every_function_after_every_function_of_two_f16() {
    every_function_after_every_function_of_two(DType::F16);
}

#[test]
fn every_function_after_every_function_of_two_bf16() {
    every_function_after_every_function_of_two(DType::BF16);
}

#[test]
fn functions_after_functions_of_one() {
    let Some(rig) = Rig::open() else { return };
    for dtype in FLOATS {
        let [x, _, out] = rig.operands(&ODD, dtype);
        for op in UNARIES {
            for then in [AFFINE, UnaryOp::Sign] {
                rig.same(&format!("{op:?}"), Unary { op, x, out }, then, out);
            }
        }
    }
}

#[test]
fn operands_lie_anyhow() {
    let Some(rig) = Rig::open() else { return };
    let pairs = [(BinaryOp::ADD, UnaryOp::Relu), (BinaryOp::Mul, AFFINE), (BinaryOp::Sub, UnaryOp::Exp)];
    for dtype in FLOATS {
        for place in &PLACES {
            let [lhs, rhs, out] = rig.operands(place, dtype);
            for (op, then) in pairs {
                rig.same(place.name, Binary { op, lhs, rhs, out }, then, out);
            }
            // The result overwrites the left operand.
            rig.same(place.name, Binary { op: BinaryOp::ADD, lhs: out, rhs, out }, UnaryOp::Relu, out);
            rig.same(place.name, Unary { op: AFFINE, x: out, out }, UnaryOp::Exp, out);
        }
    }
}

#[test]
fn sums_are_those_of_the_elements_that_the_operands_name() {
    let Some(rig) = Rig::open() else { return };
    for (dtype, place) in FLOATS.into_iter().flat_map(|dtype| PLACES.iter().map(move |place| (dtype, place))) {
        let [lhs, rhs, out] = rig.operands(place, dtype);
        let [sum, relu] = [
            KernelCall::from(Binary { op: BinaryOp::ADD, lhs, rhs, out }),
            KernelCall::from(Unary { op: UnaryOp::Relu, x: out, out }),
        ];
        let (found, _) = rig.bytes(dtype, [&sum, &relu], false);
        let size = dtype.size() as usize;
        let mut expected = values(dtype);
        for (row, column) in (0..place.dims[0]).flat_map(|row| (0..place.dims[1]).map(move |column| (row, column))) {
            let [a, b, at] = std::array::from_fn(|i| {
                let [down, along] = place.strides[i];
                (AREAS[i] / dtype.size() + place.first[i]) as usize + row * down + column * along
            });
            let sum = stored(
                number(&expected[a * size..][..size], dtype) + number(&expected[b * size..][..size], dtype),
                dtype,
            );
            let sum = number(&sum, dtype);
            expected[at * size..][..size].copy_from_slice(&stored(if sum <= 0.0 { 0.0 } else { sum }, dtype));
        }
        for (i, (found, expected)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
            let same = found == expected || (number(found, dtype).is_nan() && number(expected, dtype).is_nan());
            assert!(same, "{}, {dtype:?}: {found:x?} instead of {expected:x?} at element {i}", place.name);
        }
    }
}

#[test]
fn what_lies_between_keeps_them_apart() {
    let Some(rig) = Rig::open() else { return };
    let [a, b, out] = rig.rows(64);
    let sum = || rig.launch(Binary { op: BinaryOp::ADD, lhs: a, rhs: b, out });
    let relu = |x, out| rig.launch(Unary { op: UnaryOp::Relu, x, out });
    let kernels = |between: &dyn Fn()| {
        rig.count(|| {
            sum();
            between();
            relu(out, out);
        })
    };
    let mut bytes = [0; 256];
    assert_eq!(kernels(&|| ()), 1);
    assert_eq!(kernels(&|| rig.backend.synchronize().unwrap()), 2);
    assert_eq!(kernels(&|| rig.backend.upload(&[0; 256], a.region).unwrap()), 2);
    assert_eq!(kernels(&|| rig.launch(Fill { value: 1.0, out: a })), 3);
    assert_eq!(kernels(&|| assert!(rig.backend.statistics().dispatches > 0)), 2);
    let other = rig.backend.alloc_segment(1024).unwrap();
    assert_eq!(kernels(&|| rig.backend.free_segment(other)), 2);
    let read = rig.count(|| {
        sum();
        rig.backend.download(b.region, &mut bytes).unwrap();
        relu(out, out);
    });
    assert_eq!(read, 2);
    // One function can be fused, not two.
    assert_eq!(kernels(&|| relu(out, out)), 2);
    // Queries change nothing.
    assert_eq!(kernels(&|| assert!(rig.backend.memory_info().is_none_or(|info| info.total_bytes > 0))), 1);
    let taken = std::cell::Cell::new(None);
    assert_eq!(kernels(&|| taken.set(rig.backend.alloc_segment(1024).ok())), 1);
    rig.backend.free_segment(taken.get().unwrap());
}

#[test]
fn only_a_function_of_the_very_result_joins_it() {
    let Some(rig) = Rig::open() else { return };
    let [a, b, out] = rig.rows(64);
    let dims = |dims: &[usize], strides: &[usize]| Layout::strided(dims, strides).unwrap();
    let kernels = |first: KernelCall, x: Operand, out: Operand| {
        rig.count(|| {
            rig.launch(first);
            rig.launch(Unary { op: UnaryOp::Relu, x, out });
        })
    };
    let sum = |lhs, rhs, out| KernelCall::from(Binary { op: BinaryOp::ADD, lhs, rhs, out });
    assert_eq!(kernels(sum(a, b, out), out, out), 1);
    assert_eq!(kernels(sum(a, a, a), a, a), 1);
    // Not fused: another operand, not in place, a part, the next bytes, other strides, other types.
    assert_eq!(kernels(sum(a, b, out), a, a), 2);
    assert_eq!(kernels(sum(a, b, out), out, a), 2);
    assert_eq!(kernels(sum(a, b, out), a, out), 2);
    let part = rig.operand(AREAS[2], DType::F32, dims(&[32], &[1]));
    assert_eq!(kernels(sum(a, b, out), part, part), 2);
    let shifted = rig.operand(AREAS[2] + 4, DType::F32, dims(&[64], &[1]));
    assert_eq!(kernels(sum(a, b, out), shifted, shifted), 2);
    let [square, turned] =
        [[8, 1], [1, 8]].map(|strides| AREAS.map(|base| rig.operand(base, DType::F32, dims(&[8, 8], &strides))));
    assert_eq!(kernels(sum(square[0], square[1], square[2]), turned[2], turned[2]), 2);
    let halves = AREAS.map(|base| rig.operand(base, DType::F16, dims(&[64], &[1])));
    let others = AREAS.map(|base| rig.operand(base, DType::BF16, dims(&[64], &[1])));
    assert_eq!(kernels(sum(halves[0], halves[1], halves[2]), halves[2], halves[2]), 1);
    assert_eq!(kernels(sum(halves[0], halves[1], halves[2]), others[2], others[2]), 2);
    // Integers and masks do not wait for fusion.
    let whole = AREAS.map(|base| rig.operand(base, DType::I32, dims(&[64], &[1])));
    assert_eq!(kernels(sum(whole[0], whole[1], whole[2]), whole[2], whole[2]), 2);
    let mask = rig.operand(AREAS[2], DType::Bool, dims(&[64], &[1]));
    assert_eq!(rig.count(|| rig.launch(Binary { op: BinaryOp::Lt, lhs: a, rhs: b, out: mask })), 1);
    // A function whose result is a mask cannot be in place.
    let zero = Unary { op: UnaryOp::IsZero, x: out, out: rig.operand(AREAS[0], DType::Bool, dims(&[64], &[1])) };
    let both = rig.count(|| {
        rig.launch(sum(b, b, out));
        rig.launch(zero);
    });
    assert_eq!(both, 2);
}

#[test]
fn what_waits_is_seen_by_whoever_comes_next() {
    let Some(rig) = Rig::open() else { return };
    let [a, b, out] = rig.rows(4);
    let upload = |values: [f32; 4], to: Operand| rig.backend.upload(&values.map(f32::to_le_bytes).concat(), to.region);
    let download = |from: Operand| {
        let mut bytes = [0; 16];
        rig.backend.download(from.region, &mut bytes).unwrap();
        let word = |i: usize| f32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        [word(0), word(4), word(8), word(12)]
    };
    upload([1.0, -2.0, 3.0, -4.0], a).unwrap();
    upload([0.5, 0.5, -9.0, 9.0], b).unwrap();
    let sum = Binary { op: BinaryOp::ADD, lhs: a, rhs: b, out };
    let relu = Unary { op: UnaryOp::Relu, x: out, out };
    rig.launch(sum.clone());
    assert_eq!(download(out), [1.5, -1.5, -6.0, 5.0]);
    rig.launch(sum.clone());
    rig.launch(relu.clone());
    assert_eq!(download(out), [1.5, 0.0, 0.0, 5.0]);
    // The launch's input changes only afterwards.
    rig.launch(sum.clone());
    upload([0.0; 4], a).unwrap();
    assert_eq!(download(out), [1.5, -1.5, -6.0, 5.0]);
    // The launch's output is overwritten afterwards.
    rig.launch(sum.clone());
    upload([7.0; 4], out).unwrap();
    assert_eq!(download(out), [7.0; 4]);
    rig.launch(sum.clone());
    rig.launch(Binary { op: BinaryOp::Mul, lhs: out, rhs: out, out: a });
    assert_eq!(download(a), [0.25, 0.25, 81.0, 81.0]);

    // The segment is freed while a launch on it waits, and later the backend is dropped.
    rig.launch(sum.clone());
    rig.launch(relu);
    rig.backend.free_segment(rig.segment);
    rig.backend.synchronize().unwrap();
    let segment = rig.backend.alloc_segment(3 * AREA).unwrap();
    let rig = Rig { segment, ..rig };
    let [lhs, rhs, out] = rig.rows(4);
    rig.launch(Binary { op: BinaryOp::ADD, lhs, rhs, out });
    drop(rig);
}
