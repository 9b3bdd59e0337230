//! Segments whose memory is mapped and unmapped piece by piece, on devices that support it: the basis of expandable
//! segments.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::backend::{Backend, Region, SegmentId, VirtualMemory};
use memcore::{DType, Error};

use super::memory::{fill, require, round_trip};
use super::trial::{during, trial};
use crate::device::Device;
use crate::execute::Verdict;

/// The granularity of expandable segments in PyTorch, and of CUDA.
const PIECE: u64 = 2 << 20;

/// Number of pieces in a reservation.
const PIECES: u64 = 16;

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let checks: [(&str, Check); 4] = [
        ("kernels_cross_pieces", kernels_cross_pieces),
        ("unmapping_keeps_the_others", unmapping_keeps_the_others),
        ("unmapped_memory_comes_back", unmapped_memory_comes_back),
        ("a_refused_map_maps_nothing", a_refused_map_maps_nothing),
    ];
    let one = |(name, check): (&str, Check)| {
        trial(format!("virtual_memory::{name}"), device, move |device| match device.backend().virtual_memory() {
            Some(memory) => check(device, memory),
            None => Ok(Verdict::Skipped(format!("{} has no virtual memory", device.backend().name()))),
        })
    };
    checks.into_iter().map(one).collect()
}

type Check = fn(&Device, &dyn VirtualMemory) -> Result<Verdict, String>;

/// A reservation and its mapped pieces; released on drop.
struct Reservation<'a> {
    memory: &'a dyn VirtualMemory,
    id: SegmentId,
    mapped: Vec<(u64, u64)>,
}

impl<'a> Reservation<'a> {
    fn new(memory: &'a dyn VirtualMemory, bytes: u64) -> Result<Self, String> {
        let id = during("reserve", memory.reserve(bytes, PIECE))?;
        Ok(Self { memory, id, mapped: Vec::new() })
    }

    /// Maps `count` pieces from piece `first` on.
    fn map(&mut self, first: u64, count: u64) -> memcore::Result<()> {
        self.memory.map(self.id, first * PIECE, count * PIECE)?;
        self.mapped.push((first, count));
        Ok(())
    }

    fn unmap(&mut self, first: u64, count: u64) {
        self.memory.unmap(self.id, first * PIECE, count * PIECE);
        self.mapped.retain(|piece| *piece != (first, count));
    }

    fn region(&self, offset: u64, len: u64) -> Region {
        Region { segment: self.id, offset, len }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        for (first, count) in std::mem::take(&mut self.mapped) {
            self.memory.unmap(self.id, first * PIECE, count * PIECE);
        }
        self.memory.release(self.id);
    }
}

fn kernels_cross_pieces(device: &Device, memory: &dyn VirtualMemory) -> Result<Verdict, String> {
    let backend = device.backend();
    let mut reserved = Reservation::new(memory, PIECES * PIECE)?;
    for piece in 0..3 {
        during("map", reserved.map(piece, 1))?;
    }
    fill(backend, reserved.region(PIECE / 2, 2 * PIECE), 2.5)?;
    if backend.computes() {
        round_trip(backend, reserved.region(PIECE - 3, 7))?;
    }
    // A piece apart from the others, and several at once.
    during("map", reserved.map(7, 4))?;
    fill(backend, reserved.region(7 * PIECE, 4 * PIECE), -1.0)?;
    fill(backend, reserved.region(0, 3 * PIECE), 1.0)?;
    Ok(Verdict::Passed)
}

fn expect_filled(backend: &dyn Backend, region: Region, value: f32) -> Result<(), String> {
    if !backend.computes() {
        return Ok(());
    }
    let mut bytes = vec![0; region.len as usize];
    during("download", backend.download(region, &mut bytes))?;
    let right = bytes.chunks(DType::F32.size() as usize).all(|chunk| chunk == value.to_le_bytes());
    require(right, || format!("{region:?} no longer holds {value}"))
}

fn unmapping_keeps_the_others(device: &Device, memory: &dyn VirtualMemory) -> Result<Verdict, String> {
    let backend = device.backend();
    let mut reserved = Reservation::new(memory, PIECES * PIECE)?;
    for piece in 0..3 {
        during("map", reserved.map(piece, 1))?;
        fill(backend, reserved.region(piece * PIECE, PIECE), piece as f32)?;
    }
    for _ in 0..3 {
        reserved.unmap(1, 1);
        expect_filled(backend, reserved.region(0, PIECE), 0.0)?;
        expect_filled(backend, reserved.region(2 * PIECE, PIECE), 2.0)?;
        during("map again", reserved.map(1, 1))?;
        fill(backend, reserved.region(PIECE, PIECE), 9.0)?;
    }
    expect_filled(backend, reserved.region(2 * PIECE, PIECE), 2.0)?;
    Ok(Verdict::Passed)
}

/// Maps and unmaps more in total than could be lost unnoticed.
fn unmapped_memory_comes_back(device: &Device, memory: &dyn VirtualMemory) -> Result<Verdict, String> {
    const TIMES: u64 = 32;
    let backend = device.backend();
    let free = || backend.memory_info().map(|info| info.free_bytes);
    let before = free();
    let mut reserved = Reservation::new(memory, PIECES * PIECE)?;
    for _ in 0..TIMES {
        during("map", reserved.map(0, PIECES))?;
        fill(backend, reserved.region(PIECE, PIECE), 4.0)?;
        reserved.unmap(0, PIECES);
    }
    drop(reserved);
    if let (Some(before), Some(after)) = (before, free()) {
        let lost = before.saturating_sub(after);
        require(lost < TIMES * PIECES * PIECE / 2, || format!("{lost} bytes were not given back"))?;
    }
    Ok(Verdict::Passed)
}

fn a_refused_map_maps_nothing(device: &Device, memory: &dyn VirtualMemory) -> Result<Verdict, String> {
    let backend = device.backend();
    let Some(info) = backend.memory_info().filter(|_| device.options.may_fill) else {
        return Ok(Verdict::Skipped("not asked to fill this device, or it does not say what it has".into()));
    };
    let pieces = info.total_bytes / PIECE + 1;
    let mut reserved = Reservation::new(memory, (pieces + 1) * PIECE)?;
    let refusal = reserved.map(0, pieces);
    let full = matches!(refusal, Err(Error::DeviceFull { .. }));
    require(full, || format!("mapping more than the device has gives {refusal:?}"))?;
    // If some of it had been mapped, mapping it now would fail.
    during("map after a refusal", reserved.map(0, 1))?;
    fill(backend, reserved.region(0, PIECE), 7.0)?;
    Ok(Verdict::Passed)
}
