//! Tensors between devices: events on both sides, counted bytes, refusals. Values are compared in `lab/training/tests/it/pipeline.rs`.

use std::sync::Arc;

use memcore::autograd::Tensor;
use memcore::backend::kernel::Reduction;
use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::{Category, Event};
use memcore::{Array, DType, Device, Error, ops};

fn device() -> Device {
    Device::builder(Arc::new(Meta::default())).history(true).build()
}

fn parameter(device: &Device, dims: &[usize]) -> Tensor {
    Tensor::leaf(Array::empty_as(device, dims, DType::F32, Category::Parameter).unwrap())
}

/// Memory events since the `from`-th: `+` and bytes, or `-`, with the operator.
fn events(device: &Device, from: usize) -> Vec<String> {
    device.with_ledger(|ledger| {
        let of = |event: &Event| match event {
            Event::Alloc { requested_bytes, origin, .. } => {
                Some(format!("+{requested_bytes} {}", memcore::context::label(origin.node, origin.op)))
            }
            Event::Free { .. } => Some("-".into()),
            _ => None,
        };
        ledger.history()[from..].iter().filter_map(of).collect()
    })
}

fn seen(device: &Device) -> usize {
    device.with_ledger(|ledger| ledger.history().len())
}

#[test]
fn each_side_sees_its_own_half_of_a_move() {
    let (a, b) = (device(), device());
    let x = parameter(&a, &[16, 8]);
    let (on_a, on_b) = (seen(&a), seen(&b));
    let y = ops::to_device(&x, &b).unwrap();
    assert!(y.device().is_same(&b) && y.requires_grad() && !y.is_leaf());
    assert_eq!(events(&a, on_a), Vec::<String>::new(), "the source stays with its owner");
    assert_eq!(events(&b, on_b), ["+512 to>_to_copy"]);
    assert_eq!((a.counters().sent_bytes, b.counters().received_bytes), (512, 512));
    assert_eq!((a.counters().received_bytes, b.counters().sent_bytes), (0, 0));
    assert_eq!((a.counters().downloaded_bytes, b.counters().uploaded_bytes), (0, 0), "there are no values to carry");

    let target = Tensor::from_array(Array::empty(&b, &[16, 8], DType::F32).unwrap());
    let loss = ops::mse_loss(&y, &target, Reduction::Mean).unwrap();
    drop(y);
    let on_a = seen(&a);
    loss.backward(false).unwrap();
    // The gradient arrives in fresh memory that nobody else holds: it is kept as it is.
    assert_eq!(events(&a, on_a), ["+512 ToCopyBackward0>to>_to_copy"]);
    assert!(x.grad().unwrap().device().is_same(&a));
    assert_eq!(a.usage().by_category()[Category::Gradient as usize], 512);
    assert_eq!((b.counters().sent_bytes, a.counters().received_bytes), (512, 512));
    drop((loss, target));
    assert_eq!(b.stats().allocated_bytes.all.current, 0, "nothing is left behind");
    assert_eq!(a.stats().allocated_bytes.all.current, 1024, "the parameter and its gradient");
}

#[test]
fn a_move_to_where_it_is_does_nothing() {
    let a = device();
    let x = parameter(&a, &[4]);
    let y = ops::to_device(&x, &a).unwrap();
    assert!(y.is_leaf() && Arc::ptr_eq(y.array().storage(), x.array().storage()));
    assert_eq!(a.counters().sent_bytes, 0);
}

#[test]
fn strides_move_along_and_gaps_do_not() {
    let (a, b) = (device(), device());
    let x = Array::empty(&a, &[6, 10], DType::F32).unwrap();
    let from = seen(&a);
    let turned = x.transpose(0, 1).unwrap().to_device(&b).unwrap();
    assert_eq!((turned.dims(), turned.layout().strides()), (&[10, 6][..], &[1, 10][..]));
    assert_eq!(events(&a, from), Vec::<String>::new());
    let column = x.narrow(1, 0, 3).unwrap().to_device(&b).unwrap();
    assert!(column.layout().is_contiguous());
    assert_eq!(events(&a, from), ["+72 contiguous>clone", "-"], "a view with gaps is made contiguous where it is");
    assert_eq!(a.counters().sent_bytes, 4 * (60 + 18));
}

#[test]
fn no_memory_on_the_other_side_is_an_error_there_and_both_stay_usable() {
    let a = device();
    let small = DeviceProfile { total_bytes: 4 << 20, context_bytes: 0, ..DeviceProfile::default() };
    let b = Device::new(Meta::new(small));
    let x = parameter(&a, &[8 << 20]);
    assert!(matches!(ops::to_device(&x, &b), Err(Error::OutOfMemory(_))));
    assert_eq!((a.counters().sent_bytes, b.stats().allocated_bytes.all.current), (0, 0));
    assert!(ops::to_device(&parameter(&a, &[4]), &b).is_ok());
}
