//! Bytes arrive whole, and in the order of the calls.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::backend::kernel::{Binary, BinaryOp, Copy};
use memcore::backend::{Backend, KernelCall, Operand, Region, validate};
use memcore::{DType, Layout};

use super::trial::{during, plain_trial, trial};
use crate::device::Device;
use crate::execute::{Segments, Verdict, unsupported};

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let named = |name: &str| format!("transfer::{name}");
    vec![
        plain_trial(named("odd_sizes_and_offsets"), device, |d| odd(d.backend())),
        plain_trial(named("nothing"), device, |d| nothing(d.backend())),
        plain_trial(named("large"), device, |d| large(d.backend())),
        launching(named("upload_over_a_pending_read"), device, ordering),
        plain_trial(named("source_may_be_reused"), device, |d| reuse(d.backend())),
        launching(named("a_chain_of_launches"), device, chain),
        launching(named("across_segments"), device, across),
    ]
}

/// A trial that launches kernels; skipped on a backend that does not have them yet.
fn launching(name: String, device: &Arc<Device>, run: fn(&dyn Backend) -> Result<(), String>) -> Trial {
    trial(name, device, move |device| match run(device.backend()) {
        Err(missing) if missing.starts_with(MISSING) => Ok(Verdict::Skipped(missing)),
        done => done.map(|()| Verdict::Passed),
    })
}

/// Prefix of a reason for a kernel that the backend does not have yet.
const MISSING: &str = "not there yet: ";

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(37) ^ (i >> 8) as u8 ^ salt).collect()
}

fn expect(what: &str, got: &[u8], want: &[u8]) -> Result<(), String> {
    match got.iter().zip(want).position(|(a, b)| a != b) {
        Some(at) => Err(format!("{what}: byte {at} of {} is {:#04x}, not {:#04x}", want.len(), got[at], want[at])),
        None => Ok(()),
    }
}

/// Every upload changes its own bytes and no others.
fn odd(backend: &dyn Backend) -> Result<(), String> {
    const BYTES: usize = 1 << 17;
    let segments = during("allocation", Segments::new(backend, &[BYTES as u64]))?;
    let mut want = pattern(BYTES, 0);
    during("upload", backend.upload(&want, segments.region(0, 0, BYTES as u64)))?;
    for (i, len) in [1usize, 2, 3, 5, 7, 13, 63, 255, 257, 4095, 4097, 65_537].into_iter().enumerate() {
        for offset in [0usize, 1, 2, 3, 4, 5, 17, 255, 4099] {
            let sent = pattern(len, (i * 16 + offset) as u8 | 1);
            let region = segments.region(0, offset as u64, len as u64);
            during("upload", backend.upload(&sent, region))?;
            want[offset..offset + len].copy_from_slice(&sent);
            let mut got = vec![0; len];
            during("download", backend.download(region, &mut got))?;
            expect(&format!("{len} bytes at {offset}"), &got, &sent)?;
        }
    }
    let mut got = vec![0; BYTES];
    during("download", backend.download(segments.region(0, 0, BYTES as u64), &mut got))?;
    expect("everything, after all uploads", &got, &want)
}

fn nothing(backend: &dyn Backend) -> Result<(), String> {
    let segments = during("allocation", Segments::new(backend, &[64]))?;
    for offset in [0, 64] {
        during("upload of nothing", backend.upload(&[], segments.region(0, offset, 0)))?;
        during("download of nothing", backend.download(segments.region(0, offset, 0), &mut []))?;
    }
    during("synchronize", backend.synchronize())
}

fn large(backend: &dyn Backend) -> Result<(), String> {
    let len = (33 << 20) + 3;
    let segments = during("allocation", Segments::new(backend, &[len as u64 + 1]))?;
    let sent = pattern(len, 9);
    let region = segments.region(0, 1, len as u64);
    during("upload", backend.upload(&sent, region))?;
    let mut got = vec![0; len];
    during("download", backend.download(region, &mut got))?;
    expect("33 MiB", &got, &sent)
}

fn f32s(region: Region) -> Result<Operand, String> {
    let layout = during("layout", Layout::contiguous(&[region.len as usize / 4]))?;
    Ok(Operand { region, dtype: DType::F32, layout })
}

fn launch(backend: &dyn Backend, call: impl Into<KernelCall>) -> Result<(), String> {
    let call = call.into();
    during("validation", validate(&call))?;
    if let Some(reason) = unsupported(backend, &call) {
        return Err(format!("{MISSING}{reason}"));
    }
    during("launch", backend.launch(&call))
}

/// Uploads A, copies it away, uploads B over A, copies that away: each copy must have its own bytes.
fn ordering(backend: &dyn Backend) -> Result<(), String> {
    // Large enough that a copy is still running when the next upload comes.
    const LEN: u64 = 8 << 20;
    let segments = during("allocation", Segments::new(backend, &[3 * LEN]))?;
    let [source, first, second] = [0, 1, 2].map(|i| segments.region(0, i * LEN, LEN));
    for round in 0..4u8 {
        let (a, b) = (finite(LEN as usize, round), finite(LEN as usize, round + 100));
        during("upload", backend.upload(&a, source))?;
        launch(backend, Copy { src: f32s(source)?, out: f32s(first)? })?;
        during("upload", backend.upload(&b, source))?;
        launch(backend, Copy { src: f32s(source)?, out: f32s(second)? })?;
        let mut got = vec![0; LEN as usize];
        during("download", backend.download(first, &mut got))?;
        expect("the copy of A", &got, &a)?;
        during("download", backend.download(second, &mut got))?;
        expect("the copy of B", &got, &b)?;
    }
    Ok(())
}

/// Bytes of finite f32 values: a copy may normalise a NaN.
fn finite(len: usize, salt: u8) -> Vec<u8> {
    (0..len / 4).flat_map(|i| ((i as u32).wrapping_mul(2_654_435_761 ^ u32::from(salt)) as f32).to_le_bytes()).collect()
}

/// The host's buffer may be reused as soon as `upload` returns.
fn reuse(backend: &dyn Backend) -> Result<(), String> {
    const LEN: usize = 64 << 10;
    let segments = during("allocation", Segments::new(backend, &[16 * LEN as u64]))?;
    let mut buffer = vec![0; LEN];
    for i in 0..16 {
        buffer.fill(i as u8);
        during("upload", backend.upload(&buffer, segments.region(0, (i * LEN) as u64, LEN as u64)))?;
    }
    buffer.fill(0xEE);
    for i in 0..16 {
        let mut got = vec![0; LEN];
        during("download", backend.download(segments.region(0, (i * LEN) as u64, LEN as u64), &mut got))?;
        expect(&format!("upload {i}"), &got, &vec![i as u8; LEN])?;
    }
    Ok(())
}

/// 300 additions without waiting in between; each reads the result of the one before.
fn chain(backend: &dyn Backend) -> Result<(), String> {
    const LEN: u64 = 4096;
    let segments = during("allocation", Segments::new(backend, &[3 * LEN]))?;
    let [x, y, one] = [0, 1, 2].map(|i| segments.region(0, i * LEN, LEN));
    let words = |value: f32| value.to_le_bytes().repeat(LEN as usize / 4);
    during("upload", backend.upload(&words(0.0), x))?;
    during("upload", backend.upload(&words(1.0), one))?;
    let (mut from, mut to) = (f32s(x)?, f32s(y)?);
    for _ in 0..300 {
        launch(backend, Binary { op: BinaryOp::ADD, lhs: from, rhs: f32s(one)?, out: to })?;
        std::mem::swap(&mut from, &mut to);
    }
    let mut got = vec![0; LEN as usize];
    during("download", backend.download(from.region, &mut got))?;
    expect("300 additions of 1", &got, &words(300.0))
}

/// A kernel whose operands are in three segments; the third is freed while the kernel may still run.
fn across(backend: &dyn Backend) -> Result<(), String> {
    const LEN: u64 = 1 << 20;
    let words = |value: f32| value.to_le_bytes().repeat(LEN as usize / 4);
    let out = during("allocation", Segments::new(backend, &[LEN]))?;
    {
        let inputs = during("allocation", Segments::new(backend, &[LEN, LEN]))?;
        let (lhs, rhs) = (inputs.region(0, 0, LEN), inputs.region(1, 0, LEN));
        during("upload", backend.upload(&words(2.0), lhs))?;
        during("upload", backend.upload(&words(0.5), rhs))?;
        let out = f32s(out.region(0, 0, LEN))?;
        launch(backend, Binary { op: BinaryOp::Mul, lhs: f32s(lhs)?, rhs: f32s(rhs)?, out })?;
    }
    // Writes garbage where the inputs were, in case a backend freed them too early.
    let reused = during("allocation", Segments::new(backend, &[LEN, LEN]))?;
    during("upload", backend.upload(&words(9.0), reused.region(0, 0, LEN)))?;
    during("upload", backend.upload(&words(9.0), reused.region(1, 0, LEN)))?;
    let mut got = vec![0; LEN as usize];
    during("download", backend.download(out.region(0, 0, LEN), &mut got))?;
    expect("2 · 0.5", &got, &words(1.0))
}
