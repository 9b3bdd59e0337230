//! Which convolutions cuDNN computes. The stand-in names algorithms that the backend must not take, then one that it may;
//! it refuses dilated windows, in some cases only when they run.

use std::sync::Arc;

use backend_cuda::Cuda;
use memcore::array::Array;
use memcore::backend::Backend;
use memcore::backend::kernel::Conv2dGeometry;
use memcore::{DType, Device, Tensor, ops};

use crate::emulator;

const NAMES: [&str; 3] = ["convolution", "convolution of the input's gradient", "convolution of the weight's gradient"];

/// Runs `work` on a device without cuDNN.
pub(crate) fn without_cudnn<T>(work: impl FnOnce() -> T) -> T {
    with_cudnn("0", work)
}

/// Runs `work` on a device that takes cuDNN wherever it accepts a convolution, and times nothing.
pub(crate) fn with_first<T>(work: impl FnOnce() -> T) -> T {
    with_cudnn("first", work)
}

fn with_cudnn<T>(choice: &str, work: impl FnOnce() -> T) -> T {
    // SAFETY: one test runs at a time, and no other thread of this process looks at the environment.
    unsafe { std::env::set_var("VRAMLAB_CUDNN", choice) };
    let outcome = work();
    // SAFETY: as above.
    unsafe { std::env::remove_var("VRAMLAB_CUDNN") };
    outcome
}

fn text(error: memcore::Error) -> String {
    error.to_string()
}

/// Numbers of the library's convolutions so far, by kind.
fn counts() -> Result<[usize; 3], String> {
    let [forward, input, weight] = NAMES.map(emulator::noted);
    Ok([forward?, input?, weight?])
}

/// A convolution with a bias and its gradients, of `channels` channels in and twice as many out; all results in order.
fn convolve(cuda: Cuda, dtype: DType, channels: usize, geometry: Conv2dGeometry) -> Result<Vec<f32>, String> {
    let device = Device::builder(Arc::new(cuda)).build();
    let outputs = 2 * channels;
    let numbers = |dims: &[usize]| {
        let count: usize = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|i| ((i * 37 + 11) % 64) as f32 / 32.0 - 1.0).collect();
        Array::from_slice(&device, dims, &values)?.cast(dtype)
    };
    let run = || {
        let x = Tensor::leaf(numbers(&[2, channels, 9, 8])?);
        let weight = Tensor::leaf(numbers(&[outputs, channels / geometry.groups, 3, 3])?);
        let bias = Tensor::leaf(numbers(&[outputs])?);
        let y = ops::conv2d(&x, &weight, Some(&bias), geometry)?;
        let mut results = y.array().cast(DType::F32)?.to_vec::<f32>()?;
        y.backward_with(Array::zeros_like(y.array())?.affine(1.0, 1.0)?, false)?;
        for gradient in [&x, &weight, &bias].map(Tensor::grad).into_iter().flatten() {
            results.extend(gradient.cast(DType::F32)?.to_vec::<f32>()?);
        }
        memcore::Result::Ok(results)
    };
    run().map_err(text)
}

/// Convolves with and without the library; returns how often the library computed. Both results have to be equal up to
/// some roundings of sums of a few hundred products.
fn compared(dtype: DType, channels: usize, geometry: Conv2dGeometry) -> Result<[usize; 3], String> {
    let own = without_cudnn(|| convolve(emulator::open()?, dtype, channels, geometry))?;
    let before = counts()?;
    let theirs = convolve(emulator::open()?, dtype, channels, geometry)?;
    let after = counts()?;
    let epsilon = match dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        _ => 1e-6,
    };
    let far = own.iter().zip(&theirs).find(|(x, y)| (**x - **y).abs() > 4.0 * epsilon * (1.0 + x.abs()));
    match far {
        None if own.len() == theirs.len() => Ok(std::array::from_fn(|i| after[i] - before[i])),
        other => Err(format!("{dtype}, {geometry:?}: {other:?} of {} and {} results", own.len(), theirs.len())),
    }
}

fn expect(what: &str, got: [usize; 3], want: [usize; 3]) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: cuDNN computed {got:?}, expected {want:?}")) }
}

/// Convolutions of the library until it is chosen for a shape: the first, two rounds of three that are timed, and the one whose result is kept.
const UNTIL_CHOSEN: usize = 8;

/// In 16 bits the library takes no bias and no gradients of groups. It is opened at the first convolution, and its memory is known from then on.
pub(crate) fn types() -> Result<(), String> {
    let same = Conv2dGeometry { padding: [1, 1], ..Default::default() };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let in_full = if dtype == DType::F32 { UNTIL_CHOSEN } else { 0 };
        expect("plain", compared(dtype, 8, same)?, [in_full, UNTIL_CHOSEN, UNTIL_CHOSEN])?;
        let strided = Conv2dGeometry { stride: [2, 1], padding: [0, 2], groups: 2, ..same };
        expect("strided, in groups", compared(dtype, 8, strided)?, [in_full; 3])?;
    }
    let cuda = emulator::open()?;
    if cuda.memory_steps().cudnn_bytes != 0 || emulator::part("dnn")? != 0 {
        return Err("the library is open before the first convolution".into());
    }
    if !cuda.device_name().contains("cuDNN 9.19") {
        return Err(format!("{} does not name the library", cuda.device_name()));
    }
    let device = Arc::new(cuda);
    let x = Array::zeros(&Device::builder(device.clone()).build(), &[2, 8, 9, 8], DType::F32).map_err(text)?;
    let weight = Array::zeros(x.device(), &[16, 8, 3, 3], DType::F32).map_err(text)?;
    ops::conv2d(&Tensor::leaf(x), &Tensor::leaf(weight), None, same).map_err(text)?;
    let (known, taken) = (device.memory_steps().cudnn_bytes, emulator::part("dnn")?);
    if known == taken && taken > 0 { Ok(()) } else { Err(format!("{known} bytes are known, {taken} taken")) }
}

/// The library and the own kernels are timed once for a shape, and the faster ones compute it from then on, also on a device that is opened later.
pub(crate) fn faster() -> Result<(), String> {
    let same = Conv2dGeometry { padding: [1, 1], ..Default::default() };
    let slow = 24;
    expect("the slower library", compared(DType::F32, slow, same)?, [UNTIL_CHOSEN - 1; 3])?;
    expect("the slower library, chosen before", compared(DType::F32, slow, same)?, [0; 3])?;
    expect("the faster library", compared(DType::F32, 16, same)?, [UNTIL_CHOSEN; 3])?;
    expect("the faster library, chosen before", compared(DType::F32, 16, same)?, [1; 3])
}

/// Single channels, small convolutions, and what the library refuses: at once, or when it runs.
pub(crate) fn refused() -> Result<(), String> {
    let same = Conv2dGeometry { padding: [1, 1], ..Default::default() };
    expect("single channels", compared(DType::F32, 8, Conv2dGeometry { groups: 8, ..same })?, [0; 3])?;
    let apart = Conv2dGeometry { padding: [2, 2], dilation: [1, 2], ..Default::default() };
    expect("without an algorithm", compared(DType::F32, 8, apart)?, [0; 3])?;
    let apart = Conv2dGeometry { padding: [2, 2], dilation: [2, 1], ..Default::default() };
    expect("refused when it runs", compared(DType::BF16, 8, apart)?, [0; 3])
}

/// With graphs, the results are the same: also where a choice is made while launches are collected.
pub(crate) fn graph() -> Result<(), String> {
    let same = Conv2dGeometry { padding: [1, 1], ..Default::default() };
    let by_graphs = |channels, geometry| {
        let cuda = emulator::open()?;
        cuda.use_graphs().map_err(text)?;
        convolve(cuda, DType::F32, channels, geometry)
    };
    let plain = convolve(emulator::open()?, DType::F32, 8, same)?;
    // No test has this shape, and the own kernels are faster.
    let (slow, wider) = (24, Conv2dGeometry { padding: [1, 2], ..same });
    let before = counts()?;
    let chosen = by_graphs(slow, wider)?;
    let after = counts()?;
    expect("while collected", std::array::from_fn(|i| after[i] - before[i]), [UNTIL_CHOSEN - 1; 3])?;
    let own = without_cudnn(|| by_graphs(slow, wider))?;
    if plain == by_graphs(8, same)? && chosen == own { Ok(()) } else { Err("the results are others".into()) }
}
