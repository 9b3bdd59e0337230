//! The limits of a device, measured on it: bytes per second of a large copy, and operations per second in its arithmetic units.
//!
//! On the processor neither is a kernel of this program: the copy goes past the caches, and the multiply-adds stay in registers
//! ([`Backend::roof`](memcore::backend::Backend::roof)). Other backends have nothing but kernels: there it is their own copy, and the largest product,
//! which uses the best available library for it (cuBLASLt; none on WebGPU).

use std::time::Instant;

use lab_base::error::{Error, Result};
use memcore::backend::Bound;
use memcore::{DType, Device};

use super::clock::Limits;
use super::kernels;
use super::work::Demand;

/// Bytes on each side of a copy: larger than any cache.
const COPY_BYTES: u64 = 128 << 20;
/// Sides of the products to try, as long as they take a small part of the time.
const SIDES: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];

/// Highest measured speeds of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roofline {
    /// Bytes read and written per second by a copy; 0 if none could be measured.
    pub copy_bytes_per_s: f64,
    /// Operations per second, for each type that was measured.
    pub gemm_flops_per_s: Vec<(DType, f64)>,
}

impl Roofline {
    /// Measures a device, in about `limits.seconds` for the copy and for each type together. The best of all samples counts.
    ///
    /// # Errors
    /// Those of the device. A type that the device does not have is not an error.
    pub fn measure(device: &Device, dtypes: &[DType], limits: &Limits<'_>) -> Result<Self> {
        let each = Limits { seconds: limits.seconds / (dtypes.len() + 1) as f64, ..*limits };
        let own = |bound| if (limits.stop)() { None } else { device.backend().roof(bound, each.seconds) };
        let copy_bytes_per_s = own(Bound::Memory).map_or_else(|| copy(device, &each), Ok)?;
        let mut roofs = Self { copy_bytes_per_s, gemm_flops_per_s: Vec::new() };
        for dtype in dtypes.iter().filter(|dtype| device.backend().limits().dtypes.contains(dtype)) {
            let rate = own(Bound::Arithmetic(*dtype)).map_or_else(|| product(device, *dtype, &each), Ok)?;
            if rate > 0.0 {
                roofs.gemm_flops_per_s.push((*dtype, rate));
            }
        }
        Ok(roofs)
    }

    /// Operations per second for a type; a type that was not measured counts as f32.
    pub fn flops_per_s(&self, dtype: DType) -> Option<f64> {
        let of = |wanted| self.gemm_flops_per_s.iter().find(|(dtype, _)| *dtype == wanted).map(|(_, rate)| *rate);
        of(dtype).or_else(|| of(DType::F32))
    }

    /// Least nanoseconds for a demand if the device is as fast as its roofs. The boolean is true if arithmetic sets that limit, false
    /// if memory does.
    pub fn least_ns(&self, demand: Demand, dtype: DType) -> Option<(f64, bool)> {
        let seconds = |amount: u64, rate: f64| if rate > 0.0 { Some(amount as f64 / rate) } else { None };
        let memory = seconds(demand.bytes, self.copy_bytes_per_s)?;
        let arithmetic = seconds(demand.flops, self.flops_per_s(dtype)?)?;
        Some((memory.max(arithmetic) * 1e9, arithmetic > memory))
    }

    /// Least time divided by the measured time: 1 is the roof. Work that stays in the caches can exceed it.
    pub fn fraction(&self, demand: Demand, dtype: DType, ns: f64) -> Option<f64> {
        let (least, _) = self.least_ns(demand, dtype)?;
        (ns > 0.0 && least > 0.0).then(|| least / ns)
    }
}

/// Bytes to allocate for one array: at most a part of the free memory, and at most what a kernel can address.
fn room(device: &Device, wanted: u64) -> u64 {
    let free = device.memory_info().map_or(u64::MAX, |info| info.free_bytes / 8);
    wanted.min(free).min(device.backend().limits().max_binding_bytes)
}

/// Bytes per second of a copy by the backend.
fn copy(device: &Device, limits: &Limits<'_>) -> Result<f64> {
    let elements = (room(device, COPY_BYTES) / DType::F32.size()) as usize;
    let Some(kernel) = kernels::named("copy") else { return Ok(0.0) };
    let mut work = kernel.prepare(device, DType::F32, &[elements])?;
    let bytes = work.demand().bytes as f64;
    let best = work.time(limits)?.map_or(0.0, |timing| bytes / timing.min_ns * 1e9);
    drop(work);
    device.empty_cache();
    Ok(best)
}

/// Operations per second, the best of growing products.
fn product(device: &Device, dtype: DType, limits: &Limits<'_>) -> Result<f64> {
    let begin = Instant::now();
    let Some(kernel) = kernels::named("matmul") else { return Ok(0.0) };
    let mut best = 0.0f64;
    for side in SIDES {
        let bytes = (side * side) as u64 * dtype.size();
        if bytes > room(device, u64::MAX) {
            break;
        }
        let mut work = match kernel.prepare(device, dtype, &[side]) {
            Ok(work) => work,
            Err(Error::Core(memcore::Error::Unsupported { .. })) => return Ok(0.0),
            Err(error) => return Err(error),
        };
        let left = limits.seconds - begin.elapsed().as_secs_f64();
        let Some(timing) = work.time(&Limits { seconds: left / 4.0, ..*limits })? else { break };
        best = best.max(work.demand().flops as f64 / timing.min_ns * 1e9);
        drop(work);
        device.empty_cache();
        // The next product takes eight times as long, and runs at least twice.
        if 16.0 * timing.min_ns * 1e-9 > limits.seconds - begin.elapsed().as_secs_f64() {
            break;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roofs() -> Roofline {
        Roofline { copy_bytes_per_s: 1e9, gemm_flops_per_s: vec![(DType::F32, 1e10), (DType::F16, 4e10)] }
    }

    #[test]
    fn the_nearer_limit_counts() {
        let (little, much) =
            (Demand { bytes: 1000, flops: 10, launches: 1 }, Demand { bytes: 1000, flops: 100_000, launches: 1 });
        assert_eq!(roofs().least_ns(little, DType::F32), Some((1000.0, false)));
        assert_eq!(roofs().least_ns(much, DType::F32), Some((10_000.0, true)));
        assert_eq!(roofs().least_ns(much, DType::F16), Some((2500.0, true)));
        assert_eq!(roofs().least_ns(much, DType::BF16), Some((10_000.0, true)));
        assert_eq!(roofs().fraction(much, DType::F32, 20_000.0), Some(0.5));
    }

    #[test]
    fn nothing_is_said_without_a_roof() {
        let demand = Demand { bytes: 1000, flops: 10, launches: 1 };
        assert_eq!(Roofline::default().fraction(demand, DType::F32, 1.0), None);
        assert_eq!(roofs().fraction(Demand::default(), DType::F32, 1.0), None);
    }
}
