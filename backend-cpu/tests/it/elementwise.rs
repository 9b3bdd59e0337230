//! Elementwise results that are larger than the caches.

use memcore::backend::kernel::{Binary, BinaryOp, Copy, Fill};
use memcore::backend::{Backend, DeviceMemory, Operand, Region};
use memcore::{DType, Layout};

use backend_cpu::Cpu;

/// Tests results that are written past the caches, with a length that is not a whole number of lines.
#[test]
fn results_larger_than_the_caches_are_whole() {
    let n = (33 << 18) + 5;
    let cpu = Cpu::with_threads(2).unwrap();
    let segment = cpu.alloc_segment(8 * (n as u64 + 64)).unwrap();
    let layout = Layout::contiguous(&[n]).unwrap();
    let operand =
        |at: u64| Operand { region: Region { segment, offset: at, len: 4 * n as u64 }, dtype: DType::F32, layout };
    let (x, out) = (operand(0), operand((4 * n as u64).next_multiple_of(64)));
    let values: Vec<u8> = (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect();
    cpu.upload(&values, x.region).unwrap();
    let check = |what: &str, value: fn(f32) -> f32| {
        let mut bytes = vec![0; 4 * n];
        cpu.download(out.region, &mut bytes).unwrap();
        for (i, got) in bytes.chunks_exact(4).enumerate() {
            let got = f32::from_le_bytes([got[0], got[1], got[2], got[3]]);
            assert_eq!(got, value(i as f32), "{what} [{i}]");
        }
    };
    cpu.launch(&Fill { value: 7.0, out }.into()).unwrap();
    check("fill", |_| 7.0);
    cpu.launch(&Binary { op: BinaryOp::ADD, lhs: x, rhs: x, out }.into()).unwrap();
    check("add", |x| x + x);
    cpu.launch(&Copy { src: x, out }.into()).unwrap();
    check("copy", |x| x);
}
