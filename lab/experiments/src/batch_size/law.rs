//! Peak and reserved memory as functions of the batch, from dry runs. A law gives the requested bytes; a dry run of each batch gives the
//! bytes that the allocator adds.

use std::sync::Arc;

use lab_analysis::fit::{self, Room};
use lab_base::error::Result;
use memcore::Device;
use memcore::backend::Meta;

use crate::session::Session;

/// Number of steps after which no figure changes any more.
const STEPS: usize = 3;

/// Figures of a dry run with one batch size, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) batch: usize,
    /// The most that was requested at one time; `None` outside the range of the law.
    pub(super) requested: Option<u64>,
    /// The most that was allocated.
    pub(super) peak: u64,
    /// The most that was reserved.
    pub(super) reserved: u64,
}

impl Point {
    /// Bytes of blocks beyond the request at the peak: blocks are rounded up, and large ones keep a remainder.
    pub(super) fn added(&self) -> u64 {
        self.requested.map_or(0, |requested| self.peak.saturating_sub(requested))
    }
}

/// The law of the peak, for batch sizes from 1 on.
pub(super) struct Law {
    /// Law of the requested bytes at the peak.
    pub(super) asked: fit::Law,
    /// One point per batch size.
    pub(super) points: Vec<Point>,
    /// Batch sizes whose successor reserves less: the batch, bytes that it reserves, bytes that the successor
    /// reserves. The deepest fall comes first.
    pub(super) falls: Vec<(usize, u64, u64)>,
}

impl Law {
    /// Finds the law for this device's profile, up to `largest` examples.
    pub(super) fn from_run(device: &Device, largest: usize) -> Result<Self> {
        let profile = device.profile();
        // Returns the device, and the most that was allocated on it.
        let dry = |batch: usize, history: bool| -> Result<(Device, u64)> {
            let device = Device::builder(Arc::new(Meta::default())).profile(profile.clone()).history(history).build();
            let mut session = Session::simple_cnn(&device, 0)?;
            let mut peak = 0;
            for step in 0..STEPS {
                peak = peak.max(session.whole_step(&format!("e{step}"), batch)?.peak.allocated_bytes);
            }
            Ok((device, peak))
        };
        let asked = fit::Law::from_run(&|batch, room| Ok(dry(batch, room == Room::Endless)?.0), 1, largest)?;
        let point = |batch: usize| -> Result<Point> {
            let (device, peak) = dry(batch, false)?;
            Ok(Point { batch, requested: asked.at(batch), peak, reserved: device.stats().reserved_bytes.all.peak })
        };
        let points: Vec<Point> = (1..=largest).map(point).collect::<Result<_>>()?;
        let mut falls: Vec<(usize, u64, u64)> = points
            .windows(2)
            .filter(|pair| pair[1].reserved < pair[0].reserved)
            .map(|pair| (pair[0].batch, pair[0].reserved, pair[1].reserved))
            .collect();
        falls.sort_by_key(|&(batch, more, less)| (less as i64 - more as i64, batch));
        Ok(Self { asked, points, falls })
    }

    /// Returns the points at powers of two, and on both sides of the deepest falls of reserved memory.
    pub(super) fn sample(&self) -> impl Iterator<Item = &Point> {
        let deepest = &self.falls[..self.falls.len().min(3)];
        let falls = |batch: usize| deepest.iter().any(|&(before, ..)| batch == before || batch == before + 1);
        self.points.iter().filter(move |point| point.batch.is_power_of_two() || falls(point.batch))
    }
}
