//! Segments: their alignment, their release, and how a device refuses and continues.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::backend::kernel::Fill;
use memcore::backend::{Backend, Operand, Region, SegmentId, validate};
use memcore::{DType, Error, Layout};

use super::trial::{during, plain_trial, trial};
use crate::device::Device;
use crate::execute::{Segments, Verdict};

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let named = |name: &str| format!("memory::{name}");
    vec![
        plain_trial(named("limits_make_sense"), device, |d| limits(d.backend())),
        plain_trial(named("segments_are_distinct"), device, |d| distinct(d.backend())),
        plain_trial(named("sizes_of_any_kind"), device, |d| sizes(d.backend())),
        plain_trial(named("regions_at_the_alignment"), device, |d| alignment(d.backend())),
        plain_trial(named("freed_memory_comes_back"), device, |d| free_then_realloc(d.backend())),
        plain_trial(named("too_large_is_hopeless"), device, |d| too_large(d.backend())),
        trial(named("full_is_not_hopeless"), device, full),
        plain_trial(named("an_unknown_segment_is_no_panic"), device, |d| unknown(d.backend())),
        plain_trial(named("info_adds_up"), device, |d| info(d.backend())),
    ]
}

pub(super) fn require(condition: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(problem()) }
}

fn limits(backend: &dyn Backend) -> Result<(), String> {
    let limits = backend.limits();
    let alignment = limits.alignment;
    require(alignment.is_power_of_two() && alignment <= 512, || format!("alignment {alignment}"))?;
    require(limits.max_segment_bytes > 0 && limits.max_binding_bytes > 0, || format!("{limits:?}"))?;
    for dtype in [DType::F32, DType::I64, DType::Bool] {
        require(limits.dtypes.contains(&dtype), || format!("no {dtype}: no network can be trained"))?;
    }
    require(!backend.name().is_empty() && !backend.device_name().is_empty(), || "no name".into())
}

fn distinct(backend: &dyn Backend) -> Result<(), String> {
    let segments = during("allocation", Segments::new(backend, &[4096; 8]))?;
    let mut ids = segments.ids.clone();
    ids.sort();
    ids.dedup();
    require(ids.len() == 8, || format!("live segments share ids: {:?}", segments.ids))?;
    if !backend.computes() {
        return Ok(());
    }
    for i in 0..8 {
        during("upload", backend.upload(&[i as u8; 4096], segments.region(i, 0, 4096)))?;
    }
    for i in 0..8 {
        let mut bytes = [0; 4096];
        during("download", backend.download(segments.region(i, 0, 4096), &mut bytes))?;
        require(bytes == [i as u8; 4096], || format!("segment {i} does not hold what was put there"))?;
    }
    Ok(())
}

fn sizes(backend: &dyn Backend) -> Result<(), String> {
    for bytes in [1, 2, 3, 255, 256, 257, 511, 513, 4095, 4097, 1 << 20, (2 << 20) + 512, (20 << 20) + 1] {
        let segments = during(&format!("{bytes} bytes"), Segments::new(backend, &[bytes]))?;
        if backend.computes() {
            round_trip(backend, segments.region(0, bytes - 1, 1))?;
        }
    }
    Ok(())
}

/// Uploads bytes and downloads them again.
pub(super) fn round_trip(backend: &dyn Backend, region: Region) -> Result<(), String> {
    let sent: Vec<u8> = (0..region.len).map(|i| (i * 31 + 7) as u8).collect();
    let mut received = vec![0; sent.len()];
    during("upload", backend.upload(&sent, region))?;
    during("download", backend.download(region, &mut received))?;
    require(sent == received, || format!("{region:?} does not hold what was put there"))
}

fn f32s(region: Region) -> Result<Operand, String> {
    let layout = during("layout", Layout::contiguous(&[region.len as usize / 4]))?;
    Ok(Operand { region, dtype: DType::F32, layout })
}

/// Fills a region by a kernel, and reads it back if values exist.
pub(super) fn fill(backend: &dyn Backend, region: Region, value: f32) -> Result<(), String> {
    let call = Fill { value: value.into(), out: f32s(region)? }.into();
    during("validation", validate(&call))?;
    during("launch", backend.launch(&call))?;
    during("synchronize", backend.synchronize())?;
    if !backend.computes() {
        return Ok(());
    }
    let mut bytes = vec![0; region.len as usize];
    during("download", backend.download(region, &mut bytes))?;
    let right = bytes.chunks(4).all(|chunk| chunk == value.to_le_bytes());
    require(right, || format!("{region:?} was filled with {value} and holds something else"))
}

fn alignment(backend: &dyn Backend) -> Result<(), String> {
    let step = backend.limits().alignment.max(4);
    let segments = during("allocation", Segments::new(backend, &[step * 64]))?;
    for block in [0, 1, 2, 3, 5, 8, 31, 63] {
        fill(backend, segments.region(0, block * step, step), block as f32)?;
    }
    // The first block still has its contents: no block overlaps another.
    if backend.computes() {
        let mut bytes = vec![0; step as usize];
        during("download", backend.download(segments.region(0, step, step), &mut bytes))?;
        require(bytes.chunks(4).all(|chunk| chunk == 1f32.to_le_bytes()), || "block 1 was overwritten".into())?;
    }
    Ok(())
}

/// Allocates and frees more in total than could be lost unnoticed.
fn free_then_realloc(backend: &dyn Backend) -> Result<(), String> {
    const TIMES: u64 = 64;
    let bytes = (16 << 20).min(backend.limits().max_segment_bytes);
    let free_before = backend.memory_info().map(|info| info.free_bytes);
    for time in 0..TIMES {
        let segments = during(&format!("allocation {time}"), Segments::new(backend, &[bytes]))?;
        if backend.computes() {
            round_trip(backend, segments.region(0, bytes - 64, 64))?;
        }
    }
    // A driver may keep a little, and other users of the device may come and go; half of all allocations is more than
    // either.
    if let (Some(before), Some(after)) = (free_before, backend.memory_info().map(|info| info.free_bytes)) {
        let lost = before.saturating_sub(after);
        require(lost < bytes * TIMES / 2, || format!("{lost} bytes were not given back"))?;
    }
    Ok(())
}

fn stays_usable(backend: &dyn Backend) -> Result<(), String> {
    let segments = during("allocation after a refusal", Segments::new(backend, &[1 << 20]))?;
    fill(backend, segments.region(0, 0, 1 << 20), 3.5)
}

fn too_large(backend: &dyn Backend) -> Result<(), String> {
    for requested in [backend.limits().max_segment_bytes.saturating_add(1), u64::MAX / 2] {
        if requested <= backend.limits().max_segment_bytes {
            continue;
        }
        match backend.alloc_segment(requested) {
            Err(Error::TooLarge { requested_bytes, limit_bytes }) => {
                require(requested_bytes == requested, || format!("asked for {requested}, told of {requested_bytes}"))?;
                require(limit_bytes < requested, || format!("{requested} is within the limit {limit_bytes}"))?;
            }
            Err(other) => return Err(format!("{requested} bytes are hopeless, not: {other}")),
            Ok(id) => {
                backend.free_segment(id);
                return Err(format!("{requested} bytes were given, beyond the limit"));
            }
        }
        stays_usable(backend)?;
    }
    Ok(())
}

/// Asks for more than is free, but not more than is possible: the device must report that it is full, not that the
/// request is hopeless.
fn full(device: &Device) -> Result<Verdict, String> {
    let backend = device.backend();
    if !device.options.may_fill {
        return Ok(Verdict::Skipped("not asked to fill this device".into()));
    }
    let Some(info) = backend.memory_info() else {
        return Ok(Verdict::Skipped("the driver does not say what is free".into()));
    };
    // Allocates segments of the largest size until one is refused. Each takes at least an eighth of the device, else
    // the trial is skipped.
    let bytes = backend.limits().max_segment_bytes.min(info.total_bytes);
    if bytes < info.total_bytes / 8 {
        return Ok(Verdict::Skipped("too many segments would be needed".into()));
    }
    let mut held = Segments::new(backend, &[]).map_err(|e| e.to_string())?;
    let refusal = loop {
        match backend.alloc_segment(bytes) {
            Ok(id) => held.ids.push(id),
            Err(error) => break error,
        }
        require(held.ids.len() <= 9, || format!("more than the {} bytes of the device were given", info.total_bytes))?;
    };
    let Error::DeviceFull { requested_bytes, .. } = refusal else {
        return Err(format!("the device is merely full, not: {refusal}"));
    };
    require(requested_bytes == bytes, || format!("asked for {bytes}, told of {requested_bytes}"))?;
    drop(held);
    stays_usable(backend)?;
    Ok(Verdict::Passed)
}

fn unknown(backend: &dyn Backend) -> Result<(), String> {
    backend.free_segment(SegmentId(u32::MAX));
    let id = during("allocation", backend.alloc_segment(256))?;
    backend.free_segment(id);
    backend.free_segment(id);
    if backend.computes() {
        let region = Region { segment: id, offset: 0, len: 16 };
        require(backend.upload(&[0; 16], region).is_err(), || "upload to a freed segment is not an error".into())?;
        require(backend.download(region, &mut [0; 16]).is_err(), || "download from a freed one is none".into())?;
        let call = Fill { value: 1.0, out: f32s(region)? }.into();
        let launched = backend.launch(&call).and_then(|()| backend.synchronize());
        require(launched.is_err(), || "a kernel on a freed segment is not an error".into())?;
    }
    stays_usable(backend)
}

fn info(backend: &dyn Backend) -> Result<(), String> {
    let Some(info) = backend.memory_info() else { return Ok(()) };
    require(info.total_bytes > 0 && info.free_bytes <= info.total_bytes, || format!("{info:?}"))
}
