//! The gradient of layer normalisation over many rows: partial sums, if there are enough rows for the card. Expected: what the unmodified torch 2.11 and 2.15
//! wheels allocate in backward on compute capability 9.0 (both the same).

use std::sync::Arc;

use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::Event;
use memcore::{Array, DType, Device, Profile, Tensor, ops};

/// Rows, elements of a row, the bytes of each allocation.
const RECORDED: [(usize, usize, &[u64]); 4] = [
    (65_536, 96, &[25_165_824, 384, 384]),
    (65_537, 96, &[25_166_208, 384, 384, 786_816, 786_816, 384, 417_792, 8, 384, 417_792, 8]),
    // No more parts than the grid has blocks: 1365 of the 2188 that there would be.
    (70_000, 768, &[215_040_000, 3072, 3072, 4_193_280, 4_193_280, 3072, 8_650_752, 24, 3072, 8_650_752, 24]),
    // Rows so long that there are enough columns for the card.
    (70_000, 4096, &[1_146_880_000, 16_384, 16_384]),
];

fn allocated(device: &Device) -> Vec<u64> {
    let bytes = |event: &Event| match event {
        Event::Alloc { requested_bytes, .. } => Some(*requested_bytes),
        _ => None,
    };
    device.with_ledger(|ledger| ledger.history().iter().filter_map(bytes).collect())
}

#[test]
fn partial_sums_are_as_many_as_recorded() {
    for (rows, len, recorded) in RECORDED {
        let card = DeviceProfile { total_bytes: 64 << 30, ..DeviceProfile::default() };
        let builder = Device::builder(Arc::new(Meta::new(card))).history(true);
        let device = builder.profile(Profile::torch_2_11(90)).build();
        let leaf = |dims: &[usize]| Tensor::leaf(Array::empty(&device, dims, DType::F32).unwrap());
        let (x, weight, bias) = (leaf(&[rows, len]), leaf(&[len]), leaf(&[len]));
        let y = ops::layer_norm(&x, &[len], Some(&weight), Some(&bias), 1e-5).unwrap();
        let grad = y.array().empty_like().unwrap();
        let before = allocated(&device).len();
        y.backward_with(grad, false).unwrap();
        assert_eq!(allocated(&device)[before..], *recorded, "{rows} rows of {len}");
    }
}
