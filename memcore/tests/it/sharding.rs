//! Mechanisms of sharded training: memory that is attached to and detached from a tensor, parameters in flat arrays, hooks on gradients.

use std::sync::{Arc, Mutex};

use memcore::backend::Meta;
use memcore::memory::{Category, Usage};
use memcore::nn::{Fill, Init, Linear, Module};
use memcore::{Array, DType, Device, Error, Tensor, ops};

fn meta() -> Device {
    Device::builder(Arc::new(Meta::default())).history(true).build()
}

fn allocated(device: &Device) -> u64 {
    device.usage().allocated_bytes()
}

#[test]
fn memory_comes_and_goes_under_its_views() {
    let device = meta();
    let flat = Array::unbacked(&device, &[100], DType::F32, Category::Workspace).unwrap();
    let view = flat.narrow(0, 10, 20).unwrap().view(&[4, 5]).unwrap();
    assert_eq!(allocated(&device), 0);
    let refused = view.fill_(1.0).unwrap_err();
    assert!(matches!(refused, Error::InvalidCall { .. }), "{refused}");
    for _ in 0..2 {
        assert!(flat.storage().acquire().unwrap());
        assert!(!view.storage().acquire().unwrap(), "it is there already");
        assert_eq!(allocated(&device), 512);
        assert_eq!(device.usage().by_category()[Category::Workspace as usize], 512);
        view.fill_(1.0).unwrap();
        assert!(view.storage().release().unwrap());
        assert!(!flat.storage().release().unwrap());
        assert_eq!(allocated(&device), 0);
        assert!(view.fill_(1.0).is_err());
    }
    flat.storage().acquire().unwrap();
    drop((flat, view));
    assert_eq!(allocated(&device), 0, "what is there goes with the last view");
    device.with_ledger(|ledger| assert_eq!(Usage::replay(ledger.history()), *ledger.usage()));
    let fixed = Array::empty(&device, &[4], DType::F32).unwrap();
    assert!(fixed.storage().release().is_err() && fixed.storage().acquire().is_err());
}

#[test]
fn out_of_memory_leaves_the_tensor_without() {
    let profile = memcore::backend::DeviceProfile { total_bytes: 4 << 20, ..Default::default() };
    let device = Device::new(Meta::new(profile));
    let large = Array::unbacked(&device, &[2 << 20], DType::F32, Category::Workspace).unwrap();
    assert!(matches!(large.storage().acquire(), Err(Error::OutOfMemory(_))));
    assert_eq!(large.storage().region().len, 0);
    assert!(Array::empty(&device, &[100], DType::F32).is_ok());
}

#[test]
fn parameters_are_views_of_flat_arrays() {
    let device = meta();
    let flat = |n: usize| Array::empty_as(&device, &[n], DType::BF16, Category::Parameter).unwrap();
    let (first, second) = (flat(6 * 4 + 4), flat(4 * 2));
    let before = allocated(&device);
    let init = Init::new(&device, DType::BF16, 0).inside(vec![first.clone(), second.clone()]);
    let a = Linear::new(&init.at("a"), 6, 4, true).unwrap();
    let b = Linear::new(&init.at("b"), 4, 2, false).unwrap();
    assert_eq!(allocated(&device), before);
    assert!(Arc::ptr_eq(a.bias.as_ref().unwrap().array().storage(), first.storage()));
    assert!(Arc::ptr_eq(b.weight.array().storage(), second.storage()));
    assert_eq!(a.bias.as_ref().unwrap().array().operand().region.offset - first.operand().region.offset, 2 * 6 * 4);
    assert_eq!(
        init.parameters().iter().map(|p| p.path().to_string()).collect::<Vec<_>>(),
        ["a.weight", "a.bias", "b.weight"]
    );
    assert!(init.parameter("c", &[1], Fill::Constant(0.0)).is_err(), "no room");
}

#[test]
fn a_hook_sees_each_gradient_and_may_let_it_go() {
    let device = meta();
    let init = Init::new(&device, DType::F32, 0);
    let layer = Linear::new(&init, 3, 2, true).unwrap();
    let seen: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
    for (index, parameter) in init.parameters().iter().enumerate() {
        let seen = seen.clone();
        let hook = Box::new(move |leaf: &memcore::autograd::Leaf| {
            let grad = leaf.grad().ok_or(Error::NoHistory { op: "hook" })?;
            seen.lock().unwrap().push((index, grad.numel()));
            drop(grad);
            leaf.set_grad(None);
            Ok(())
        });
        parameter.tensor().register_post_accumulate_grad_hook(hook).unwrap();
        assert!(parameter.tensor().register_post_accumulate_grad_hook(Box::new(|_| Ok(()))).is_err());
    }
    let x = Tensor::from_array(Array::empty(&device, &[5, 3], DType::F32).unwrap());
    assert!(x.register_post_accumulate_grad_hook(Box::new(|_| Ok(()))).is_err(), "no leaf");
    for pass in 1..=2 {
        ops::sum(&layer.forward(&x).unwrap()).unwrap().backward(false).unwrap();
        let mut now = seen.lock().unwrap().clone();
        now.sort_unstable();
        let mut expected = [(0, 6), (1, 2)].repeat(pass);
        expected.sort_unstable();
        assert_eq!(now, expected);
        assert!(init.parameters().iter().all(|parameter| parameter.grad().is_none()));
    }
    assert_eq!(device.usage().by_category()[Category::Gradient as usize], 0);
}
