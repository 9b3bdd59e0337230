//! Finds out whether a device's allocator is PyTorch's with its default settings. The closed forms of blocks hold for
//! those rules alone.

use std::sync::Arc;

use lab_base::error::Result;
use memcore::backend::Meta;
use memcore::{Array, DType, Device};

use super::Setup;

/// Request sizes that the allocator's options treat differently: odd sizes, both pools, segments of a request's own size, reuse with a
/// remainder.
const TRIAL_BYTES: [u64; 8] = [513, 700_000, 1_048_577, 1_200_000, 3_000_000, 9_500_000, 12_582_913, 22_020_097];

/// True if block sizes can be predicted: the network is the experiment's own, the device's allocator serves some requests as the
/// default one does on `meta`, and the profile keeps its workspaces.
///
/// # Errors
/// Errors of the device, except that its memory is too small for the trial.
pub(super) fn predictable(setup: &Setup<'_>) -> Result<bool> {
    if setup.model.is_some() {
        return Ok(false);
    }
    let fresh = (setup.open)()?;
    if !fresh.profile().keeps_workspaces || fresh.allocator_name() != "caching" {
        return Ok(false);
    }
    match serves_alike(&fresh, &Device::builder(Arc::new(Meta::default())).build()) {
        Err(memcore::Error::OutOfMemory(_)) => Ok(false),
        other => Ok(other?),
    }
}

fn serves_alike(device: &Device, default: &Device) -> memcore::Result<bool> {
    let (mut alike, mut held) = (true, Vec::new());
    let figures = |device: &Device| {
        let stats = device.stats();
        [stats.allocated_bytes, stats.reserved_bytes, stats.inactive_split_bytes].map(|stat| stat.all.current)
    };
    for round in 0..2 {
        for bytes in TRIAL_BYTES {
            for device in [device, default] {
                held.push(Array::empty(device, &[(bytes >> round) as usize], DType::U8)?);
            }
            alike &= figures(device) == figures(default);
        }
        held.clear();
        alike &= figures(device) == figures(default);
    }
    Ok(alike)
}
