//! Products with sizes for which kernels take other forms than in the conformance suite, compared with the CPU.

use std::sync::Arc;

use backend_cpu::Cpu;
use backend_wgpu::Wgpu;
use memcore::backend::Backend;
use memcore::{Array, Device, Tensor, ops};

use crate::alone;

/// Values between −1 and 1, the same on every machine.
fn values(count: usize, salt: u32) -> Vec<f32> {
    (0..count as u32).map(|i| ((i ^ salt).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn product(backend: Arc<dyn Backend>, [m, n, k]: [usize; 3]) -> Vec<f64> {
    let device = Device::builder(backend).build();
    let tensor = |dims: [usize; 2], salt| {
        Tensor::from_array(Array::from_slice(&device, &dims, &values(dims[0] * dims[1], salt)).unwrap())
    };
    let out = ops::matmul(&tensor([m, k], 1), &tensor([k, n], 2)).unwrap();
    out.array().to_f64().unwrap()
}

#[test]
fn large_products_are_the_cpus() {
    let _alone = alone();
    let Some(backend) = conformance::or_skip("wgpu", Wgpu::open(0)).map(Arc::new) else { return };
    // Edges that no tile divides; a narrow result; an inner size so long that it is cut into parts; one of the largest
    // form.
    for sizes in [[130, 200, 130], [5, 300, 2000], [33, 40, 9000], [520, 515, 510]] {
        let mine = product(backend.clone(), sizes);
        let theirs = product(Arc::new(Cpu::new().unwrap()), sizes);
        let near = 1e-6 * sizes[2] as f64;
        for (i, (x, y)) in mine.iter().zip(&theirs).enumerate() {
            assert!((x - y).abs() <= near, "{sizes:?}: element {i} is {x} instead of {y}");
        }
        assert_eq!(mine.len(), theirs.len());
    }
}
