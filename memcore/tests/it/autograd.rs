//! The autograd engine on a device without values: ownership and release, also in the ledger.

use std::sync::Arc;

use memcore::autograd::checkpoint;
use memcore::backend::Meta;
use memcore::backend::kernel::Reduction;
use memcore::memory::Category;
use memcore::{Array, DType, Device, Error, NoGrad, Tensor, ops};

fn device() -> Device {
    Device::builder(Arc::new(Meta::default())).history(true).build()
}

fn parameter(device: &Device, dims: &[usize]) -> Tensor {
    Tensor::leaf(Array::empty_as(device, dims, DType::F32, Category::Parameter).unwrap())
}

fn loss_of(y: &Tensor) -> Tensor {
    let target = Tensor::from_array(Array::empty(y.device(), y.dims(), DType::F32).unwrap());
    ops::mse_loss(y, &target, Reduction::Mean).unwrap()
}

fn allocated(device: &Device) -> u64 {
    device.stats().allocated_bytes.all.current
}

#[test]
fn a_graph_a_million_nodes_deep_is_dropped_without_recursion() {
    let d = device();
    let x = parameter(&d, &[1]);
    let mut y = ops::view(&x, &[1, 1]).unwrap();
    for i in 0..1_000_000 {
        y = ops::view(&y, if i % 2 == 0 { &[1] } else { &[1, 1] }).unwrap();
    }
    assert_eq!(d.tape().len(), 1_000_001);
    drop(y);
    assert!(d.tape().is_empty());
    assert_eq!(allocated(&d), 512);
}

#[test]
fn backward_releases_what_was_saved_and_a_second_pass_says_so() {
    let d = device();
    let w = parameter(&d, &[8, 4]);
    let x = Tensor::from_array(Array::empty(&d, &[16, 4], DType::F32).unwrap());
    let loss = loss_of(&ops::relu(&ops::linear(&x, &w, None).unwrap()).unwrap());
    loss.backward(true).unwrap();
    let retained = allocated(&d);
    loss.backward(false).unwrap();
    assert!(allocated(&d) < retained, "the first pass kept the saved values, the second did not");
    assert!(matches!(loss.backward(false), Err(Error::BackwardTwice { .. })));
    assert_eq!(w.grad().unwrap().dims(), [8, 4]);
    assert_eq!(d.usage().by_category()[Category::Gradient as usize], 512);
}

#[test]
fn the_tape_keeps_the_sizes_of_results_only_when_asked() {
    let d = device();
    let w = parameter(&d, &[8, 4]);
    let x = Tensor::from_array(Array::empty(&d, &[16, 4], DType::F32).unwrap());
    let before = ops::linear(&x, &w, None).unwrap();
    assert!(d.tape().results().is_empty());
    d.tape().keep_results();
    let _scope = memcore::context::scope(d.scope("head"));
    let after = ops::relu(&before).unwrap();
    // Without a gradient nothing becomes part of the graph.
    ops::relu(&x).unwrap();
    let found = d.tape().results();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].name, found[0].dims.as_slice(), found[0].dtype), ("ReluBackward0", after.dims(), DType::F32));
    assert_eq!(d.with_ledger(|ledger| ledger.scope_path(found[0].scope).to_string()), "head");
}

#[test]
fn holding_a_loss_holds_its_graph() {
    let d = device();
    let w = parameter(&d, &[256, 256]);
    let x = Tensor::from_array(Array::empty(&d, &[64, 256], DType::F32).unwrap());
    let before = allocated(&d);
    let held: Vec<Tensor> = (0..3).map(|_| loss_of(&ops::relu(&ops::linear(&x, &w, None).unwrap()).unwrap())).collect();
    let input = 64 * 256 * 4; // saved by all three
    assert_eq!((d.usage().by_category()[Category::Activation as usize] - input) % 3, 0);
    assert!(allocated(&d) > before + 3 * 64 * 256 * 4);
    drop(held);
    assert_eq!((allocated(&d), d.tape().len()), (before, 0));
}

#[test]
fn a_value_written_in_place_after_it_was_saved_is_refused_by_name() {
    let d = device();
    let x = parameter(&d, &[4]);
    let y = ops::relu(&x).unwrap();
    let loss = loss_of(&y);
    y.array().fill_(0.0).unwrap();
    let error = loss.backward(false).unwrap_err();
    assert!(matches!(error, Error::StaleSavedValue { role: "self", .. }), "{error}");
}

#[test]
fn nothing_is_recorded_without_gradients() {
    let d = device();
    let x = parameter(&d, &[4]);
    let guard = NoGrad::new();
    assert!(!ops::relu(&x).unwrap().requires_grad());
    drop(guard);
    assert!(ops::relu(&x).unwrap().requires_grad());
    assert!(!ops::relu(&x.detach()).unwrap().requires_grad());
}

#[test]
fn a_leaf_used_twice_accumulates_once_per_use() {
    let d = device();
    let w = parameter(&d, &[32, 32]);
    let x = Tensor::from_array(Array::empty(&d, &[8, 32], DType::F32).unwrap());
    let h = ops::linear(&x, &w, None).unwrap();
    let loss = loss_of(&ops::linear(&h, &w, None).unwrap());
    drop(h);
    loss.backward(false).unwrap();
    drop((loss, x));
    assert_eq!(d.usage().by_category()[Category::Gradient as usize], 32 * 32 * 4);
    assert_eq!(allocated(&d), 2 * 32 * 32 * 4);
}

#[test]
fn a_checkpoint_keeps_only_its_input() {
    let run = |checkpointed: bool| {
        let d = device();
        let w = parameter(&d, &[256, 256]);
        let mut h = Tensor::from_array(Array::empty(&d, &[64, 256], DType::F32).unwrap());
        for _ in 0..4 {
            let w = w.clone();
            let body = move |x: &[Tensor]| {
                let y = ops::linear(&x[0], &w, None)?;
                let y = ops::gelu(&y)?;
                ops::gelu(&y)
            };
            h = if checkpointed { checkpoint(&[h], body).unwrap() } else { body(&[h]).unwrap() };
        }
        if checkpointed {
            // The inputs of the four blocks count as saved for backward.
            assert_eq!(d.usage().by_category()[Category::Activation as usize], 4 * 64 * 256 * 4);
        }
        let loss = loss_of(&h);
        drop(h);
        let after_forward = allocated(&d);
        loss.backward(false).unwrap();
        assert_eq!(w.grad().unwrap().dims(), [256, 256]);
        drop(loss);
        assert_eq!(allocated(&d), 2 * 256 * 256 * 4);
        (after_forward, d.stats().allocated_bytes.all.peak)
    };
    let (plain, plain_peak) = run(false);
    let (checkpointed, checkpointed_peak) = run(true);
    assert!(checkpointed < plain && checkpointed_peak < plain_peak);
}

#[test]
fn the_ledger_equals_its_replay_and_everything_goes_back() {
    let d = device();
    {
        let w = parameter(&d, &[64, 64]);
        let x = Tensor::from_array(Array::empty(&d, &[8, 64], DType::F32).unwrap());
        loss_of(&ops::relu(&ops::linear(&x, &w, None).unwrap()).unwrap()).backward(false).unwrap();
        assert!(d.rings().nested());
    }
    d.with_ledger(|ledger| assert_eq!(ledger.replay().as_ref(), Some(ledger.usage())));
    assert_eq!(allocated(&d), 0);
    d.empty_cache();
    assert_eq!(d.stats().reserved_bytes.all.current, 0);
}

#[test]
fn operators_in_place_take_no_memory_and_refuse_what_backward_needs() {
    let d = device();
    let x = parameter(&d, &[64]);
    assert!(matches!(ops::relu_(&x), Err(Error::Invalid { .. })), "a leaf that wants a gradient");
    let y = ops::mul_scalar(&x, 2.0).unwrap();
    let before = allocated(&d);
    let z = ops::add_(&ops::relu_(&y).unwrap(), &x).unwrap();
    assert_eq!(allocated(&d), before);
    // The addition changed what the ReLU saved.
    let error = loss_of(&z).backward(false).unwrap_err();
    assert!(matches!(error, Error::StaleSavedValue { role: "result", .. }), "{error}");
    let y = ops::add_(&ops::mul_scalar(&x, 2.0).unwrap(), &x).unwrap();
    loss_of(&ops::relu_(&y).unwrap()).backward(false).unwrap();
    assert_eq!(x.grad().unwrap().dims(), [64]);
}

#[test]
fn a_product_takes_a_sum_of_another_type_into_its_own_memory() {
    let d = device();
    let (x, y) = (parameter(&d, &[64, 8]), parameter(&d, &[8]));
    let half = ops::cast(&x, DType::BF16).unwrap();
    let before = allocated(&d);
    let z = ops::mul_add_(&x, &y, &half).unwrap();
    assert_eq!((z.dtype(), allocated(&d) - before), (DType::F32, 64 * 8 * 4));
    loss_of(&z).backward(false).unwrap();
    assert_eq!((x.grad().unwrap().dims(), y.grad().unwrap().dims()), (&[64, 8][..], &[8][..]));
}
