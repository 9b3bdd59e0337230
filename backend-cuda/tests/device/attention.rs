//! Which attentions cuDNN computes. The stand-in computes the graph of operations that it is given, so that its results are those of
//! attention only if the graph says so; it names engines that the backend must not take, then one that it may.

use std::sync::Arc;

use backend_cuda::Cuda;
use memcore::array::Array;
use memcore::backend::Backend;
use memcore::backend::kernel::AttentionGrad;
use memcore::ops::{self, AttentionOptions};
use memcore::{DType, Device, Tensor};

use crate::convolutions::{with_first, without_cudnn};
use crate::emulator;

const NAMES: [&str; 2] = ["attention", "attention's gradients"];

/// Sizes: batches, query heads, key heads, queries, keys, depth, depth of the values.
#[derive(Clone, Copy, Debug)]
struct Problem {
    dtype: DType,
    sizes: [usize; 7],
    causal: bool,
    mask: Mask,
}

/// What is added to the scores, of all batches and heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    None,
    Numbers,
    /// Of the first query every key is hidden, of the others every third one.
    Hides,
    /// As `Hides`, by the lowest number of the type.
    Lowest,
    /// One row for all queries, which hides every third key.
    Row,
}

const PLAIN: Problem = Problem { dtype: DType::BF16, sizes: [2, 4, 4, 9, 17, 16, 8], causal: false, mask: Mask::None };

/// Calls of the library until it is chosen for a shape: the first, two rounds of three that are timed, and the one whose result is kept.
const UNTIL_CHOSEN: usize = 8;

fn text(error: memcore::Error) -> String {
    error.to_string()
}

/// Numbers of the library's calls so far: forward and backward.
fn counts() -> Result<[usize; 2], String> {
    let [forward, backward] = NAMES.map(emulator::noted);
    Ok([forward?, backward?])
}

fn numbers(device: &Device, dtype: DType, dims: &[usize], seed: usize) -> memcore::Result<Array> {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 + seed * 11) % 64) as f32 / 32.0 - 1.0).collect();
    Array::from_slice(device, dims, &values)?.cast(dtype)
}

fn floats(array: &Array) -> memcore::Result<Vec<f32>> {
    array.cast(DType::F32)?.to_vec::<f32>()
}

fn mask(device: &Device, problem: Problem) -> memcore::Result<Option<Array>> {
    let [_, _, _, t, s, ..] = problem.sizes;
    let hidden = match problem.mask {
        Mask::None => return Ok(None),
        Mask::Numbers => return numbers(device, problem.dtype, &[1, 1, t, s], 4).map(Some),
        Mask::Lowest => -3e38,
        Mask::Hides | Mask::Row => f32::NEG_INFINITY,
    };
    let rows = if problem.mask == Mask::Row { 1 } else { t };
    let value = |i: usize| if (i < s && rows > 1) || i % 3 == 1 { hidden } else { 0.5 };
    let values: Vec<f32> = (0..rows * s).map(value).collect();
    Array::from_slice(device, &[1, 1, rows, s], &values)?.cast(problem.dtype).map(Some)
}

/// The attention and its gradients; all results in order.
fn attend(cuda: Cuda, problem: Problem) -> Result<Vec<f32>, String> {
    let device = Device::builder(Arc::new(cuda)).build();
    let [b, h, hk, t, s, d, dv] = problem.sizes;
    let run = || {
        let leaf = |dims: [usize; 4], seed| {
            Ok::<_, memcore::Error>(Tensor::leaf(numbers(&device, problem.dtype, &dims, seed)?))
        };
        let (q, k, v) = (leaf([b, h, t, d], 1)?, leaf([b, hk, s, d], 2)?, leaf([b, hk, s, dv], 3)?);
        let mask = mask(&device, problem)?.map(Tensor::from_array);
        let options = AttentionOptions { causal: problem.causal, ..Default::default() };
        let out = ops::scaled_dot_product_attention(&q, &k, &v, mask.as_ref(), options)?;
        let mut results = floats(out.array())?;
        out.backward_with(numbers(&device, problem.dtype, &[b, h, t, dv], 5)?, false)?;
        for gradient in [&q, &k, &v].map(Tensor::grad).into_iter().flatten() {
            results.extend(floats(&gradient)?);
        }
        memcore::Result::Ok(results)
    };
    run().map_err(text)
}

/// Both round every weight to the type, of which a few dozen are added up.
fn compare(what: &str, problem: Problem, own: &[f32], theirs: &[f32]) -> Result<(), String> {
    let epsilon = if problem.dtype == DType::F16 { 1e-3 } else { 8e-3 };
    // NaN is near nothing.
    let is_near = |x: &f32, y: &f32| (x - y).abs() <= 6.0 * epsilon * (1.0 + x.abs());
    let far = own.iter().zip(theirs).position(|(x, y)| !is_near(x, y));
    match far {
        None if own.len() == theirs.len() => Ok(()),
        Some(i) => Err(format!(
            "{what}, {problem:?}: result {i} of {} is {}, the own kernels' {}",
            own.len(),
            theirs[i],
            own[i]
        )),
        None => Err(format!("{what}, {problem:?}: {} and {} results", own.len(), theirs.len())),
    }
}

/// Attends with and without the library; tells whether the library computed as often as expected, and the same.
fn expect(
    what: &str,
    problem: Problem,
    want: [usize; 2],
    attend_with: impl Fn(Problem) -> Result<Vec<f32>, String>,
) -> Result<(), String> {
    let own = without_cudnn(|| attend(emulator::open()?, problem))?;
    let before = counts()?;
    let theirs = attend_with(problem)?;
    let after = counts()?;
    compare(what, problem, &own, &theirs)?;
    let got: [usize; 2] = std::array::from_fn(|i| after[i] - before[i]);
    if got == want { Ok(()) } else { Err(format!("{what}: cuDNN computed {got:?}, expected {want:?}")) }
}

/// [`expect`], with the library wherever it accepts.
fn expect_first(what: &str, problem: Problem, want: [usize; 2]) -> Result<(), String> {
    expect(what, problem, want, |problem| with_first(|| attend(emulator::open()?, problem)))
}

/// [`expect`], with the library where it is faster.
fn expect_timed(what: &str, problem: Problem, want: [usize; 2]) -> Result<(), String> {
    expect(what, problem, want, |problem| attend(emulator::open()?, problem))
}

/// In 16 bits the library computes both directions, with keys hidden behind the queries too; with fewer key heads forward alone.
pub(crate) fn types() -> Result<(), String> {
    for dtype in [DType::F16, DType::BF16] {
        let plain = Problem { dtype, ..PLAIN };
        expect_first("plain", plain, [1; 2])?;
        expect_first("causal", Problem { causal: true, ..plain }, [1; 2])?;
        expect_first(
            "causal, more queries",
            Problem { causal: true, sizes: [1, 2, 2, 33, 16, 8, 8], ..plain },
            [1; 2],
        )?;
        expect_first("grouped heads", Problem { sizes: [2, 6, 2, 7, 10, 8, 24], causal: true, ..plain }, [1, 0])?;
        expect_first("one key head", Problem { sizes: [1, 3, 1, 5, 12, 32, 16], ..plain }, [1, 0])?;
    }
    expect_first("float32", Problem { dtype: DType::F32, ..PLAIN }, [0; 2])
}

/// The library and the own kernels are timed once for a shape, also for a device that is opened later; but not of small ones.
pub(crate) fn faster() -> Result<(), String> {
    let slow = Problem { sizes: [1, 8, 8, 683, 24, 32, 8], ..PLAIN };
    expect_timed("the slower library", slow, [UNTIL_CHOSEN - 1; 2])?;
    expect_timed("the slower library, chosen before", slow, [0; 2])?;
    let fast = Problem { sizes: [1, 8, 8, 656, 25, 32, 8], ..PLAIN };
    expect_timed("the faster library", fast, [UNTIL_CHOSEN; 2])?;
    expect_timed("the faster library, chosen before", fast, [1; 2])?;
    expect_timed("a small one", PLAIN, [0; 2])
}

/// Masks are added by the library too; rows that see nothing are zero, and so are their gradients.
pub(crate) fn masks() -> Result<(), String> {
    for (name, mask) in
        [("numbers", Mask::Numbers), ("hidden keys", Mask::Hides), ("a row", Mask::Row), ("lowest", Mask::Lowest)]
    {
        expect_first(name, Problem { mask, ..PLAIN }, [1; 2])?;
    }
    expect_first("of float16", Problem { mask: Mask::Hides, dtype: DType::F16, ..PLAIN }, [1; 2])
}

/// Odd and wide heads, and what the library refuses when it runs.
pub(crate) fn refused() -> Result<(), String> {
    expect_first("odd heads", Problem { sizes: [1, 2, 2, 5, 6, 12, 8], ..PLAIN }, [0; 2])?;
    expect_first("wide heads", Problem { sizes: [1, 1, 1, 4, 5, 136, 136], ..PLAIN }, [0; 2])?;
    expect_first("refused when it runs", Problem { sizes: [1, 2, 2, 23, 9, 8, 8], ..PLAIN }, [0; 2])
}

/// With graphs, the results are the same.
pub(crate) fn graph() -> Result<(), String> {
    let problem = Problem { sizes: [2, 2, 2, 11, 13, 8, 8], causal: true, ..PLAIN };
    let by_graphs = || {
        let cuda = emulator::open()?;
        cuda.use_graphs().map_err(text)?;
        attend(cuda, problem)
    };
    let before = counts()?;
    let (plain, graphs) = with_first(|| Ok::<_, String>((attend(emulator::open()?, problem)?, by_graphs()?)))?;
    let after = counts()?;
    if after != before.map(|count| count + 2) {
        return Err(format!("cuDNN computed {before:?} times before, {after:?} after"));
    }
    if plain == graphs { Ok(()) } else { Err("the results are others".into()) }
}

/// Of heads of 40, the stand-in's gradients take 12 MiB of workspace a batch: core gives it for all batches; without, batches are
/// computed one after another in the backend's scratch. The results are the same.
pub(crate) fn batches() -> Result<(), String> {
    const A_BATCH: u64 = 12 << 20;
    let problem = Problem { sizes: [3, 2, 2, 10, 12, 40, 40], causal: true, ..PLAIN };
    let cuda = Arc::new(with_first(emulator::open)?);
    let device = Device::builder(cuda.clone()).build();
    let [b, h, hk, t, s, d, dv] = problem.sizes;
    let run = |given: bool| {
        let dtype = problem.dtype;
        let [q, out, grad, dq] = [[b, h, t, d], [b, h, t, dv], [b, h, t, dv], [b, h, t, d]];
        let make = |dims: &[usize], seed| numbers(&device, dtype, dims, seed);
        let (q, dq, out, grad) = (make(&q, 1)?, make(&dq, 9)?, make(&out, 4)?, make(&grad, 5)?);
        let (k, dk) = (make(&[b, hk, s, d], 2)?, make(&[b, hk, s, d], 9)?);
        let (v, dv) = (make(&[b, hk, s, dv], 3)?, make(&[b, hk, s, dv], 9)?);
        let rows = |value: f32| Array::from_slice(&device, &[b, h, t], &vec![value; b * h * t]);
        let (logsumexp, delta) = (rows(2.0)?, rows(0.0)?);
        let mut call = AttentionGrad {
            scale: 0.25,
            causal: true,
            q: q.operand(),
            k: k.operand(),
            v: v.operand(),
            mask: None,
            out: out.operand(),
            logsumexp: logsumexp.operand(),
            grad: grad.operand(),
            delta: delta.operand(),
            dq: dq.operand(),
            dk: dk.operand(),
            dv: dv.operand(),
            dmask: None,
            workspace: None,
        };
        let wanted = cuda.workspace_bytes(&call.clone().into());
        let workspace = given.then(|| Array::empty(&device, &[wanted as usize], DType::U8)).transpose()?;
        call.workspace = workspace.as_ref().map(Array::operand);
        let before = emulator::noted(NAMES[1]);
        device.launch(call)?;
        let results = [dq, dk, dv].iter().map(floats).collect::<memcore::Result<Vec<_>>>()?.concat();
        let calls = emulator::noted(NAMES[1]).unwrap_or(0) - before.unwrap_or(0);
        memcore::Result::Ok((wanted, calls, results))
    };
    let (wanted, one, whole) = run(true).map_err(text)?;
    let (_, each, divided) = run(false).map_err(text)?;
    let as_expected = wanted == 3 * A_BATCH && one == 1 && each == 3;
    if !as_expected {
        return Err(format!("{wanted} bytes wanted, {one} and {each} calls"));
    }
    if whole == divided { Ok(()) } else { Err("the results are others".into()) }
}
