//! The library's interface for other programs: the examples, and the functions that they use.

use std::sync::Arc;

use memcore::backend::kernel::KernelCall;
use memcore::memory::{Arena, Caching};
use memcore::nn::{Activation, Checkpoint, Conv2d, LayerNorm, Linear, Sequential};
use memcore::ops::Conv2dGeometry;
use memcore::prelude::*;

#[path = "../../examples/allocator.rs"]
mod allocator;
#[path = "../../examples/backend.rs"]
mod backend;
#[path = "../../examples/experiment.rs"]
mod experiment;

#[test]
fn the_experiment_finds_its_peaks() {
    experiment::main().unwrap();
    let (bytes, by_category, op) = experiment::peak(2).unwrap();
    assert_eq!((bytes, op), (70_921_728, "Adam.step>_foreach_sqrt"));
    assert_eq!(by_category.iter().sum::<u64>(), bytes);
}

#[test]
fn the_allocator_of_the_example_serves() {
    allocator::main().unwrap();
    let (reserved, peak) =
        allocator::reserved_and_peak(|memory| Box::new(Arena::with_rules(memory, allocator::FirstFit::default())))
            .unwrap();
    let (cached, same) = allocator::reserved_and_peak(|memory| Box::new(Caching::with_defaults(memory))).unwrap();
    assert_eq!(peak, same, "blocks of both are rounded to 512 bytes");
    assert!(peak <= reserved && reserved < cached, "{peak} in use of {reserved}; PyTorch's reserves {cached}");
}

#[test]
fn the_backend_of_the_example_computes_and_refuses() {
    backend::main().unwrap();
    let device = Device::new(backend::Host::default());
    let x = Tensor::leaf(Array::from_slice(&device, &[2], &[3.0f32, -1.0]).unwrap());
    let y = x.mul(&x).unwrap().add(&x).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [12.0, 0.0]);
    y.backward_with(Array::ones(&device, &[2], DType::F32).unwrap(), false).unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [7.0, -1.0]);
    let refused = x.exp().unwrap_err();
    assert!(matches!(&refused, Error::Unsupported { kernel: "unary", .. }), "{refused}");
    assert!(KernelCall::NAMES.contains(&"unary"));
}

#[test]
fn short_indices_of_an_embedding_are_predicted_and_not_computed() {
    let rows = |device: &Device, count: usize| {
        let weight = Tensor::leaf(Array::empty(device, &[10, 4], DType::F32)?);
        let indices = Tensor::leaf(Array::empty(device, &[count], DType::I32)?).detach();
        let y = ops::embedding(&indices, &weight, None)?;
        y.backward_with(Array::empty(device, &[count, 4], DType::F32)?, false)?;
        Ok::<_, Error>((y.dims().to_vec(), weight.grad().unwrap().dims().to_vec()))
    };
    let dry = Device::new(memcore::backend::Meta::default());
    assert_eq!(rows(&dry, 3).unwrap(), (vec![3, 4], vec![10, 4]));
    assert!(rows(&dry, 3073).unwrap_err().to_string().contains("more than 3072 int32 indices"));
    let refused = rows(&Device::new(backend::Host::default()), 3).unwrap_err();
    assert!(refused.to_string().contains("predicted only"), "{refused}");
}

/// Makes a network like a script, and returns its parameters' paths.
fn network(device: &Device) -> (Sequential, Init) {
    let init = Init::new(device, DType::F32, 0);
    let conv = Conv2d::new(&init.at("conv"), 3, 8, 3, Conv2dGeometry::default(), true).unwrap();
    let first = Linear::new(&init.at("first"), 8, 8, false).unwrap();
    let tied = Linear::tied(&init.at("tied"), &first.weight);
    let mut net = Sequential::new();
    net.push(conv);
    net.push(first);
    net.push(Activation::new(&init, ops::relu));
    net.push(Checkpoint::new(LayerNorm::new(&init.at("norm"), 8, 1e-5).unwrap()));
    net.push(tied);
    (net, init)
}

#[test]
fn a_module_lists_its_parameters_once_and_in_order() {
    let (net, init) = network(&Device::meta("native").unwrap());
    let paths = |parameters: Vec<Parameter>| parameters.iter().map(|p| p.path().to_string()).collect::<Vec<_>>();
    let listed = paths(net.parameters().unwrap());
    assert_eq!(listed, ["conv.weight", "conv.bias", "first.weight", "norm.weight", "norm.bias"]);
    assert_eq!(listed, paths(init.parameters()));
}

#[test]
fn a_module_that_does_not_list_its_parameters_says_so() {
    struct Silent;
    impl Module for Silent {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            Ok(x.clone())
        }
    }
    let (mut net, _) = network(&Device::meta("native").unwrap());
    net.push(Silent);
    assert!(net.parameters().unwrap_err().to_string().contains("does not list"));
}

#[test]
fn a_device_by_the_name_of_its_profile() {
    let device = Device::meta("torch-2.11-sm90").unwrap();
    assert_eq!(device.profile(), &Profile::torch_2_11(90));
    let unknown = |name: &str| Device::meta(name).err().unwrap().to_string();
    assert!(unknown("torch-2.11-sm91").contains("torch-2.11-sm90 is nearest"), "{}", unknown("torch-2.11-sm91"));
    assert!(unknown("jax").contains("torch-2.11-sm90 is one"), "{}", unknown("jax"));
}

/// All spellings of an operator cause the same events.
#[test]
fn methods_are_the_operators() {
    let events = |run: fn(&Tensor) -> Result<Tensor>| {
        let device = Device::builder(Arc::new(memcore::backend::Meta::default()))
            .profile(Profile::torch_2_11(90))
            .history(true)
            .build();
        let x = Tensor::leaf(Array::empty(&device, &[64, 256], DType::F32).unwrap());
        run(&x).unwrap().backward(false).unwrap();
        device.with_ledger(|ledger| ledger.history().to_vec())
    };
    let by_methods = events(|x| x.gelu()?.matmul(&x.t()?)?.softmax(1)?.sum());
    let by_functions = events(|x| ops::sum(&ops::softmax(&ops::matmul(&ops::gelu(x)?, &ops::t(x)?)?, 1)?));
    assert!(by_methods.len() > 10);
    assert_eq!(by_methods, by_functions);
}
