//! What only cards run, on whatever adapter there is: tiles of every size, which give the same products to the bit; other
//! ways to move and to join.

use std::sync::{Arc, OnceLock};

use conformance::execute::{Verdict, Workspace, check};
use conformance::plan::Spread;
use memcore::{Array, DType, Device, Tensor, ops};

use crate::NAME;
use crate::backend::Wgpu;
use crate::gpu::Gpu;
use crate::halves::Halves;

/// Number of candidates for the largest products.
const TILES: usize = 4;

/// Values between −1 and 1, the same on every machine.
fn values(count: usize, salt: u32) -> Vec<f32> {
    (0..count as u32).map(|i| ((i ^ salt).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Two products of these sizes, which together read each operand both as stored and transposed.
fn products(gpu: Gpu, [m, n, k]: [usize; 3]) -> Vec<Vec<f64>> {
    let device = Device::builder(Arc::new(Wgpu::on(gpu).unwrap())).build();
    let tensor = |dims: [usize; 2], salt| {
        Tensor::from_array(Array::from_slice(&device, &dims, &values(dims[0] * dims[1], salt)).unwrap())
    };
    let (a, b) = (tensor([m, k], 1), tensor([k, n], 2));
    let turned = |dims, salt| ops::transpose(&tensor(dims, salt), 0, 1).unwrap();
    let (at, bt) = (turned([k, m], 3), turned([n, k], 4));
    [(&a, &bt), (&at, &b)].iter().map(|(a, b)| ops::matmul(a, b).unwrap().array().to_f64().unwrap()).collect()
}

#[test]
fn every_tile_makes_the_same_product() {
    let Some(gpu) = conformance::or_skip(NAME, Gpu::open_anew(0)) else { return };
    // Once with quads in every operand; once without, and with edges on every side.
    for sizes in [[128, 132, 16], [129, 131, 17]] {
        // Cards use tiles and quads of words.
        let of_tile = |tile| {
            let mut card = gpu.clone();
            (card.has_lanes, card.by_64, card.forced_tile) = (false, false, Some(tile));
            card
        };
        let usual = products(of_tile(0), sizes);
        for (products, of) in usual.iter().zip(products(gpu.clone(), sizes)) {
            let near = 1e-6 * sizes[2] as f64;
            assert!(products.iter().zip(&of).all(|(x, y)| (x - y).abs() <= near), "{sizes:?}");
        }
        for tile in 1..TILES {
            assert_eq!(products(of_tile(tile), sizes), usual, "{sizes:?} with candidate {tile}");
        }
    }
}

/// The conformance cases of these kernels and this type that the filter takes.
fn cases_pass(gpu: &Gpu, kernels: &[&str], dtype: DType, takes: impl Fn(&str) -> bool) {
    let backend = Wgpu::on(gpu.clone()).unwrap();
    let all = conformance::cases::all().iter();
    let mine = all.filter(|case| case.dtype == dtype && kernels.contains(&case.kernel) && takes(&case.name));
    let mut count = 0;
    for case in mine {
        let verdict = check(&backend, case, Spread::Together, Workspace::AsAsked);
        assert_eq!(verdict, Ok(Verdict::Passed), "{}", case.full_name());
        count += 1;
    }
    assert!(count > 0, "{kernels:?}");
}

/// The same adapter as a card: words instead of 64 bits, tiles instead of subgroups.
fn card(tile: Option<usize>) -> Option<Gpu> {
    let mut gpu = conformance::or_skip(NAME, Gpu::open_anew(0))?;
    (gpu.has_lanes, gpu.has_eights, gpu.by_64, gpu.forced_tile) = (false, false, false, tile);
    Some(gpu)
}

const CONVOLUTIONS: [&str; 3] = ["conv2d", "conv2d_input_grad", "conv2d_weight_grad"];

#[test]
fn convolutions_are_right_in_tiles() {
    let Some(gpu) = card(None) else { return };
    cases_pass(&gpu, &CONVOLUTIONS, DType::F32, |_| true);
}

#[test]
fn convolutions_are_right_in_the_largest_tiles() {
    let Some(gpu) = card(Some(TILES - 1)) else { return };
    cases_pass(&gpu, &CONVOLUTIONS, DType::F32, |name| name.starts_with("many") || name.starts_with("eights"));
}

#[test]
fn attention_is_right_without_subgroups() {
    let Some(gpu) = card(None) else { return };
    let takes = |name: &str| name == "contiguous" || name.contains("tiles") && !name.contains("mask_grad");
    cases_pass(&gpu, &["attention", "attention_grad"], DType::F32, takes);
}

#[test]
fn optimizers_are_right_in_the_runs_of_cards() {
    let Some(gpu) = card(None) else { return };
    cases_pass(&gpu, &["adam_step", "sgd_step", "unscale"], DType::F32, |_| true);
}

/// Conversions that are right on every device, and those that this one was found to have.
#[test]
fn f16_is_right_in_each_way() {
    let (Some(mut integers), Some(own)) = (card(None), card(None)) else { return };
    integers.halves = Arc::new(OnceLock::from(Halves::from_masks([1; 3], false)));
    for gpu in [integers, own] {
        cases_pass(&gpu, &["copy", "unary", "matmul"], DType::F16, |name| {
            !name.contains("many") && !name.contains("f64")
        });
        println!("{:?}", gpu.halves.get());
    }
}
