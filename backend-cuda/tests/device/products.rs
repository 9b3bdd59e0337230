//! Which of the library's algorithms computes a product. The stand-in names four for a small one: they take 3, 2.95 and 1
//! milliseconds, and the last one does not run.

use std::sync::Arc;

use memcore::array::Array;
use memcore::backend::kernel::Matmul;
use memcore::{DType, Device};

use crate::emulator;

const ALGORITHMS: [&str; 4] = ["algorithm 0", "algorithm 1", "algorithm 2", "algorithm 3"];

/// Runs `work`; returns how often each algorithm ran in it.
fn runs(work: impl FnOnce() -> memcore::Result<()>) -> Result<[usize; 4], String> {
    let count = || {
        let mut counts = [0; 4];
        for (count, name) in counts.iter_mut().zip(ALGORITHMS) {
            *count = emulator::noted(name)?;
        }
        Ok::<_, String>(counts)
    };
    let before = count()?;
    work().map_err(|error| error.to_string())?;
    let after = count()?;
    Ok(std::array::from_fn(|i| after[i] - before[i]))
}

fn expect(what: &str, got: [usize; 4], want: [usize; 4]) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: the algorithms ran {got:?} times, expected {want:?}")) }
}

/// A matrix of ones.
fn ones(device: &Device, dims: [usize; 2]) -> memcore::Result<Array> {
    let ones = Array::empty(device, &dims, DType::F32)?;
    ones.fill_(1.0).map(|()| ones)
}

/// Multiplies matrices of ones, and checks the result.
fn product(device: &Device, [m, n, k]: [usize; 3]) -> memcore::Result<()> {
    let out = ones(device, [m, k])?.matmul(&ones(device, [k, n])?)?.to_vec::<f32>()?;
    match out.iter().all(|&x| x == k as f32) {
        true => Ok(()),
        false => Err(memcore::Error::backend("emulator", format!("{k} ones make {out:?}"))),
    }
}

fn open() -> Result<Device, String> {
    Ok(Device::builder(Arc::new(emulator::open()?)).build())
}

/// Each runs once to load its kernels, and three times for its time; then the fastest computes the result, and every later
/// one, also on a device that is opened later. An algorithm that is hardly faster does not replace the first.
pub(crate) fn fastest() -> Result<(), String> {
    let device = open()?;
    expect("the first product", runs(|| product(&device, [16, 40, 24]))?, [4, 4, 5, 1])?;
    expect("the second product", runs(|| product(&device, [16, 40, 24]))?, [0, 0, 1, 0])?;
    expect("another device", runs(|| product(&open_again()?, [16, 40, 24]))?, [0, 0, 1, 0])?;
    expect("another shape", runs(|| product(&device, [40, 16, 24]))?, [4, 4, 5, 1])
}

fn open_again() -> memcore::Result<Device> {
    open().map_err(|error| memcore::Error::backend("emulator", error))
}

/// Runs `work` with the library's first algorithms.
pub(crate) fn with_first<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: one test runs at a time, and no other thread of this process looks at the environment.
    unsafe { std::env::set_var("VRAMLAB_CUBLASLT", "first") };
    let outcome = work();
    // SAFETY: as above.
    unsafe { std::env::remove_var("VRAMLAB_CUBLASLT") };
    outcome
}

pub(crate) fn first() -> Result<(), String> {
    let device = with_first(open)?;
    expect("the first product", runs(|| product(&device, [24, 40, 16]))?, [1, 0, 0, 0])?;
    expect("the second product", runs(|| product(&device, [24, 40, 16]))?, [1, 0, 0, 0])
}

/// A choice in the folder of compiled kernels is taken without timing; one that cannot be right is not.
pub(crate) fn stored() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("vramlab-chosen-{}", std::process::id()));
    // SAFETY: one test runs at a time, and no other thread of this process looks at the environment.
    unsafe { std::env::set_var("VRAMLAB_KERNEL_CACHE", &folder) };
    let outcome = (|| {
        let device = open()?;
        expect("the first product", runs(|| product(&device, [16, 24, 40]))?, [4, 4, 5, 1])?;
        let text = |error: std::io::Error| error.to_string();
        let files = std::fs::read_dir(&folder).map_err(text)?.flatten().map(|entry| entry.path());
        let chosen: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "algorithm")).collect();
        let [file] = &chosen[..] else { return Err(format!("the choice is not one file: {chosen:?}")) };
        let bytes = std::fs::read(file).map_err(text)?;
        // The stand-in has the number of the algorithm in its sixth word.
        if bytes.len() == 64 && bytes[40..48] == 2u64.to_le_bytes() { Ok(()) } else { Err(format!("{bytes:?}")) }
    })();
    // SAFETY: as above.
    unsafe { std::env::set_var("VRAMLAB_KERNEL_CACHE", "") };
    std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    outcome
}

pub(crate) fn adding() -> Result<(), String> {
    let text = |error: memcore::Error| error.to_string();
    let device = open()?;
    let matrix = |rows: usize, columns: usize| {
        let array = ones(&device, [rows, columns])?;
        array.view(&[1, rows, columns])
    };
    let (a, b, out) = (matrix(16, 24).map_err(text)?, matrix(24, 32).map_err(text)?, matrix(16, 32).map_err(text)?);
    let (a, b, to) = (a.operand(), b.operand(), out.operand());
    let call = Matmul { a, b, bias: None, out: to, alpha: 1.0, beta: 1.0, workspace: None };
    expect("a product that adds", runs(|| device.launch(call))?, [1, 0, 0, 0])?;
    let sums: Vec<f32> = out.to_vec().map_err(text)?;
    if sums.iter().all(|&x| x == 25.0) { Ok(()) } else { Err(format!("1 + 24 ones make {sums:?}")) }
}
