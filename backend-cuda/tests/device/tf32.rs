//! TF32: a product that may be rounded is computed as if its factors had been rounded before; nothing else is rounded.

use std::sync::Arc;

use memcore::array::{Array, MatmulOptions};
use memcore::backend::kernel::Conv2dGeometry;
use memcore::backend::{Backend, Tf32};
use memcore::{Device, Result, Tensor, ops};

use crate::convolutions::without_cudnn;
use crate::emulator;

/// The results of a computation, in order.
type Results = Vec<Vec<f32>>;

/// Rounds to ten mantissa bits, to the nearest value; ties go away from zero.
fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| f32::from_bits((value.to_bits() + 0x1000) & !0x1fff)).collect()
}

/// Returns `count` numbers between -1 and 1, none of which has a short fraction.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 20_011) as f32 / 10_006.0 - 1.0).collect()
}

/// Runs `compute` on a device that may round what `allowed` says, with exact factors, and on one that may not, with exact and with rounded factors.
/// Returns, for each of `allowed`, the distance of the first from each of the others, relative to the largest result.
fn distances<const N: usize>(
    allowed: [Tf32; N],
    sizes: &[usize],
    compute: impl Fn(&Device, &[Vec<f32>]) -> Result<Results>,
) -> std::result::Result<[[f32; 2]; N], String> {
    let text = |error: memcore::Error| error.to_string();
    let factors: Vec<_> = sizes.iter().enumerate().map(|(seed, count)| numbers(*count, seed)).collect();
    let short: Vec<_> = factors.iter().map(|values| rounded(values)).collect();
    let run = |tf32: Option<Tf32>, factors: &[Vec<f32>]| {
        let cuda: Arc<dyn Backend> = Arc::new(emulator::open()?);
        tf32.map_or(Ok(()), |which| cuda.allow_tf32(which)).map_err(text)?;
        compute(&Device::builder(cuda).build(), factors).map_err(text)
    };
    let theirs = [run(None, &factors)?, run(None, &short)?];
    let mut distances = [[0.0; 2]; N];
    for (to, which) in distances.iter_mut().zip(allowed) {
        let ours = run(Some(which), &factors)?;
        *to = theirs.each_ref().map(|theirs| {
            let pairs = || ours.iter().flatten().zip(theirs.iter().flatten());
            let largest = pairs().fold(0.0f32, |most, (_, y)| most.max(y.abs()));
            pairs().fold(0.0f32, |most, (x, y)| most.max((x - y).abs())) / largest
        });
    }
    Ok(distances)
}

/// Asserts that the result is that of rounded factors, and not that of exact ones.
fn is_rounded([from_exact, from_rounded]: [f32; 2]) -> std::result::Result<(), String> {
    // Sums of a few hundred products, added in another order.
    if from_rounded < 2e-6 && from_exact > 1e-5 {
        return Ok(());
    }
    Err(format!("{from_rounded:e} from the result of rounded factors, {from_exact:e} from that of exact ones"))
}

/// Asserts that nothing was rounded.
fn is_exact([from_exact, _]: [f32; 2]) -> std::result::Result<(), String> {
    if from_exact == 0.0 {
        return Ok(());
    }
    Err(format!("{from_exact:e} from the exact product, which was not to be rounded"))
}

/// A convolution and its two gradients, on tensor cores: sizes of input, weight and result, strides, groups.
type Convolution = ([[usize; 4]; 3], [usize; 2], usize);

/// Cases: rows of the weight and planes of the result that are read in packs; some that are not; more rows than a small
/// tile has.
const CONVOLUTIONS: [Convolution; 3] = [
    ([[2, 16, 9, 8], [24, 16, 3, 3], [2, 24, 5, 8]], [2, 1], 1),
    ([[3, 34, 7, 7], [32, 17, 3, 3], [3, 32, 7, 7]], [1, 1], 2),
    ([[1, 72, 12, 12], [80, 72, 3, 3], [1, 80, 12, 12]], [1, 1], 1),
];

fn convolution((dims, stride, groups): Convolution, device: &Device, factors: &[Vec<f32>]) -> Result<Results> {
    let array = |which: usize| Array::from_slice(device, &dims[which], &factors[which]);
    let (x, weight) = (Tensor::leaf(array(0)?), Tensor::leaf(array(1)?));
    let geometry = Conv2dGeometry { stride, padding: [1, 1], groups, ..Default::default() };
    let y = ops::conv2d(&x, &weight, None, geometry)?;
    let forward = y.to_vec()?;
    y.backward_with(array(2)?, false)?;
    let gradient = |of: &Tensor| of.grad().map_or(Ok(Vec::new()), |grad| grad.to_vec());
    Ok(vec![forward, gradient(&x)?, gradient(&weight)?])
}

/// A product of matrices that the library accepts.
fn product(device: &Device, factors: &[Vec<f32>]) -> Result<Results> {
    let a = Array::from_slice(device, &[48, 64], &factors[0])?;
    let b = Array::from_slice(device, &[64, 40], &factors[1])?;
    Ok(vec![a.matmul(&b)?.to_vec()?])
}
const PRODUCT: [usize; 2] = [48 * 64, 64 * 40];

/// A product of matrices that the library does not accept, because its bias is not aligned to 16 bytes: rows, columns,
/// inner length, and whether each factor is the transpose of the stored matrix.
type OwnProduct = ([usize; 3], [bool; 2]);

fn own_product(([m, n, k], transposed): OwnProduct, device: &Device, factors: &[Vec<f32>]) -> Result<Results> {
    let matrix = |which: usize, [rows, columns]: [usize; 2]| match transposed[which] {
        false => Array::from_slice(device, &[rows, columns], &factors[which]),
        true => Array::from_slice(device, &[columns, rows], &factors[which])?.t(),
    };
    let bias = Array::from_slice(device, &[n + 1], &vec![0.0f32; n + 1])?.narrow(0, 1, n)?;
    let library = || emulator::part("blas").map_err(|error| memcore::Error::backend("emulator", error));
    let before = library()?;
    let product = matrix(0, [m, k])?
        .matmul_with(&matrix(1, [k, n])?, MatmulOptions { bias: Some(&bias), ..MatmulOptions::default() })?
        .to_vec()?;
    if library()? != before {
        return Err(memcore::Error::backend("emulator", "the library took the product"));
    }
    Ok(vec![product])
}

/// Cases: rows that are read in packs; rows that are not; a sum long enough for parts; two that need several large
/// tiles.
const OWN_PRODUCTS: [[usize; 3]; 5] = [[72, 136, 68], [73, 134, 67], [16, 24, 1032], [132, 256, 68], [131, 255, 67]];

/// By cuDNN, whose stand-in rounds unless it is told to multiply exactly.
pub(crate) fn convolutions() -> std::result::Result<(), String> {
    for case in CONVOLUTIONS {
        let sizes = case.0.map(|dims| dims.iter().product());
        let allowed = [Tf32::Convolutions, Tf32::All];
        let distances = distances(allowed, &sizes, |device, factors| convolution(case, device, factors))?;
        distances.into_iter().try_for_each(is_rounded)?;
    }
    Ok(())
}

/// By this backend's kernels.
pub(crate) fn own_convolutions() -> std::result::Result<(), String> {
    without_cudnn(convolutions)
}

pub(crate) fn products() -> std::result::Result<(), String> {
    let [all, convolutions] = distances([Tf32::All, Tf32::Convolutions], &PRODUCT, product)?;
    is_rounded(all)?;
    is_exact(convolutions)
}

pub(crate) fn own_products() -> std::result::Result<(), String> {
    for [m, n, k] in OWN_PRODUCTS {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let compute = |device: &Device, factors: &[Vec<f32>]| own_product(([m, n, k], transposed), device, factors);
            let case = |problem: String| format!("{m}x{n}x{k}, transposed {transposed:?}: {problem}");
            let [all, convolutions] = distances([Tf32::All, Tf32::Convolutions], &[m * k, k * n], compute)?;
            is_rounded(all).and_then(|()| is_exact(convolutions)).map_err(case)?;
        }
    }
    Ok(())
}
