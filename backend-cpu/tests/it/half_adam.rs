//! Adam in pure float16: its default eps of 1e-8 is 0 there, so that a gradient whose square underflows divides by 0. Without a loss scaler this
//! ends a training in its first step, and PyTorch does the same.

use backend_cpu::Cpu;
use memcore::nn::{Fill, Init};
use memcore::optim::{Adam, AdamOptions, Implementation, Optimizer};
use memcore::{Array, DType, Device};

/// Gradients: none, one whose square is below the least float16, and two that are not.
const GRADIENTS: [f32; 4] = [0.0, 1e-4, 1e-2, 1.0];

/// The float16 next to 1 − 0.001.
const STEPPED: f32 = 1.0 - 1.0 / 1024.0;

/// Parameters of 1 after one step.
fn stepped(options: AdamOptions) -> Vec<f32> {
    let device = Device::new(Cpu::new().unwrap());
    let parameter = Init::new(&device, DType::F16, 0).parameter("p", &[4], Fill::Constant(1.0)).unwrap();
    let gradient = Array::from_slice(&device, &[4], &GRADIENTS).unwrap().cast(DType::F16).unwrap();
    parameter.tensor().set_grad(Some(gradient));
    Adam::new(vec![parameter.clone()], options).unwrap().step().unwrap();
    parameter.array().cast(DType::F32).unwrap().to_vec().unwrap()
}

/// As torch 2.15 printed it: `[nan, -inf, 0.9990234375, 0.9990234375]`, for Adam and AdamW, as a loop and foreach.
#[test]
fn the_first_step_is_as_broken_as_pytorchs() {
    for implementation in [Implementation::Loop, Implementation::Foreach] {
        for options in [AdamOptions::adam(), AdamOptions::adamw()] {
            let p = stepped(AdamOptions { implementation, ..options });
            assert!(p[0].is_nan() && p[1] == f32::NEG_INFINITY, "{implementation:?}: {p:?}");
            assert_eq!(p[2..], [STEPPED, STEPPED], "{implementation:?}");
        }
    }
}

/// The fused kernel computes in float32, as PyTorch's: `[1.0, 0.9990234375, 0.9990234375, 0.9990234375]`. So does a larger eps.
#[test]
fn the_fused_kernel_and_a_larger_eps_are_sound() {
    let fused = stepped(AdamOptions { implementation: Implementation::Fused, ..AdamOptions::adam() });
    let eps = stepped(AdamOptions { eps: 1e-4, ..AdamOptions::adam() });
    for p in [fused, eps] {
        assert_eq!(p, [1.0, STEPPED, STEPPED, STEPPED]);
    }
}
