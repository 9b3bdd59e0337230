//! Compares reductions with plain loops in f64, over shapes that reach every branch.

use memcore::DType;
use memcore::Layout;
use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::backend::{Backend, DeviceMemory, KernelCall, Operand, Region, validate};

use backend_cpu::Cpu;

struct Case {
    dims: &'static [usize],
    order: &'static [usize],
    axes: u8,
}

/// Returns values with an uneven distribution that are exact in f32.
fn value(i: usize) -> f32 {
    ((i * 7919 % 1013) as f32 - 400.0) / 64.0
}

fn operand(cpu: &Cpu, values: &[f32], layout: Layout) -> Operand {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let segment = cpu.alloc_segment(bytes.len() as u64).unwrap();
    let region = Region { segment, offset: 0, len: bytes.len() as u64 };
    cpu.upload(&bytes, region).unwrap();
    Operand { region, dtype: DType::F32, layout }
}

fn values(cpu: &Cpu, x: &Operand) -> Vec<f32> {
    let mut bytes = vec![0; x.region.len as usize];
    cpu.download(x.region, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

fn check(cpu: &Cpu, case: &Case, op: ReduceOp) -> Vec<f32> {
    let stored: Vec<usize> = case.order.iter().map(|&i| case.dims[i]).collect();
    let numel: usize = stored.iter().product();
    let data: Vec<f32> = (0..numel).map(value).collect();
    // `order` is the order in memory; the view has the order of `dims`.
    let mut inverse = vec![0; case.order.len()];
    case.order.iter().enumerate().for_each(|(i, &axis)| inverse[axis] = i);
    let layout = Layout::contiguous(&stored).unwrap().permuted(&inverse).unwrap();
    let x = operand(cpu, &data, layout);
    let out_dims: Vec<usize> =
        case.dims.iter().enumerate().map(|(i, &d)| if case.axes >> i & 1 == 1 { 1 } else { d }).collect();
    let out_layout = Layout::contiguous(&out_dims).unwrap();
    let out = operand(cpu, &vec![f32::NAN; out_layout.numel()], out_layout);
    let call = KernelCall::from(Reduce { op, axes: case.axes, x, out, indices: None });
    validate(&call).unwrap();
    cpu.launch(&call).unwrap();
    let got = values(cpu, &out);

    let mut groups = vec![Vec::new(); out_layout.numel()];
    for i in 0..numel {
        let (mut rest, mut offset, mut group) = (i, 0, 0);
        for axis in (0..case.dims.len()).rev() {
            let index = rest % case.dims[axis];
            rest /= case.dims[axis];
            offset += index * layout.strides()[axis];
            group += if case.axes >> axis & 1 == 1 { 0 } else { index * out_layout.strides()[axis] };
        }
        groups[group].push(data[offset] as f64);
    }
    for (got, group) in got.iter().zip(&groups) {
        let magnitude: f64 = group.iter().map(|x| x.abs().max(x * x)).sum();
        let want = match op {
            ReduceOp::Sum => group.iter().sum(),
            ReduceOp::Mean => group.iter().sum::<f64>() / group.len() as f64,
            ReduceOp::SumSquares => group.iter().map(|x| x * x).sum(),
            ReduceOp::Max => group.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ReduceOp::Min => group.iter().copied().fold(f64::INFINITY, f64::min),
        };
        let scale = if op == ReduceOp::Mean { magnitude / group.len() as f64 } else { magnitude };
        assert!(
            (*got as f64 - want).abs() <= 2e-7 * scale + 1e-30,
            "{op:?} {:?} {:#b}: {got} not {want}",
            case.dims,
            case.axes
        );
    }
    cpu.free_segment(x.region.segment);
    cpu.free_segment(out.region.segment);
    got
}

#[test]
fn every_shape_of_loop_gives_the_sum_whatever_the_threads() {
    let cases = [
        Case { dims: &[5, 7], order: &[0, 1], axes: 0b10 },
        Case { dims: &[5, 7], order: &[0, 1], axes: 0b01 },
        Case { dims: &[5, 7], order: &[1, 0], axes: 0b01 },
        Case { dims: &[300_000], order: &[0], axes: 0b1 },
        Case { dims: &[3, 100_001], order: &[0, 1], axes: 0b10 },
        Case { dims: &[5000, 10], order: &[0, 1], axes: 0b01 },
        Case { dims: &[700, 300], order: &[0, 1], axes: 0b01 },
        Case { dims: &[40, 5000], order: &[0, 1], axes: 0b01 },
        Case { dims: &[8, 6, 33, 3], order: &[0, 1, 2, 3], axes: 0b1101 },
        Case { dims: &[8, 6, 33, 3], order: &[0, 1, 2, 3], axes: 0b0101 },
        Case { dims: &[8, 6, 33, 3], order: &[3, 1, 0, 2], axes: 0b0110 },
        Case { dims: &[8, 6, 33, 3], order: &[2, 0, 3, 1], axes: 0b1001 },
        Case { dims: &[1, 4, 1], order: &[0, 1, 2], axes: 0b111 },
        Case { dims: &[4, 4], order: &[0, 1], axes: 0 },
    ];
    let (one, four) = (Cpu::with_threads(1).unwrap(), Cpu::with_threads(4).unwrap());
    for case in &cases {
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::SumSquares, ReduceOp::Max, ReduceOp::Min] {
            assert_eq!(check(&one, case, op), check(&four, case, op), "{op:?} {:?}", case.dims);
        }
    }
}
