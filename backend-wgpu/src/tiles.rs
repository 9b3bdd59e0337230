//! Every tile size gives the same products, to the bit, whichever a card would choose.

use std::sync::Arc;

use memcore::{Array, Device, Tensor, ops};

use crate::NAME;
use crate::backend::Wgpu;
use crate::gpu::Gpu;

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
        let card = |tile| {
            let mut card = gpu.clone();
            (card.has_lanes, card.by_64, card.forced_tile) = (false, false, Some(tile));
            card
        };
        let usual = products(card(0), sizes);
        for (products, of) in usual.iter().zip(products(gpu.clone(), sizes)) {
            let near = 1e-6 * sizes[2] as f64;
            assert!(products.iter().zip(&of).all(|(x, y)| (x - y).abs() <= near), "{sizes:?}");
        }
        for tile in 1..TILES {
            assert_eq!(products(card(tile), sizes), usual, "{sizes:?} with candidate {tile}");
        }
    }
}
