//! The peak as a function of the batch, exactly: which tensors exist at the highest moment, what each adds per example, where sizes
//! cross a border of the pools.

use std::sync::Arc;

use memcore::Device;
use memcore::backend::Meta;

use crate::error::Result;
use crate::experiments::rig::Rig;
use crate::predict::{Forecast, Network, PredictedPeak, Rules, rounded};

const MIB: u64 = 1 << 20;
/// Steps after which nothing changes any more.
const STEPS: usize = 3;

/// The peak and the reservation for one batch size.
pub(super) struct Point {
    /// Examples.
    pub(super) batch: usize,
    /// What exists at the highest moment.
    pub(super) peak: PredictedPeak,
    /// Reserved in the end.
    pub(super) reserved: u64,
}

impl Point {
    /// Bytes that the pool adds to the rounded sizes.
    pub(super) fn slack(&self) -> u64 {
        self.peak.pieces.iter().map(|piece| piece.slack_bytes()).sum()
    }

    /// Bytes per example of the tensors that grow with the batch.
    pub(super) fn slope(&self) -> u64 {
        let growing = self.peak.pieces.iter().filter(|piece| piece.per_example);
        growing.map(|piece| piece.requested_bytes / self.batch as u64).sum()
    }

    /// Bytes of those that do not, rounded.
    pub(super) fn constant(&self) -> u64 {
        let fixed = self.peak.pieces.iter().filter(|piece| !piece.per_example);
        fixed.map(|piece| rounded(piece.requested_bytes)).sum()
    }

    /// What rounding adds to those that grow.
    pub(super) fn rounding(&self) -> u64 {
        let growing = self.peak.pieces.iter().filter(|piece| piece.per_example);
        growing.map(|piece| rounded(piece.requested_bytes) - piece.requested_bytes).sum()
    }
}

/// Batch sizes whose peak consists of the same tensors.
pub(super) struct Stretch {
    /// The first batch size.
    pub(super) from: usize,
    /// The last one.
    pub(super) to: usize,
    /// When the peak is: `e1.backward`.
    pub(super) phase: String,
    /// Bytes that do not depend on the batch.
    pub(super) constant: u64,
    /// Bytes per example.
    pub(super) slope: u64,
    /// The most that the pool adds.
    pub(super) most_slack: u64,
}

/// A tensor that grows with the batch.
pub(super) struct Growing {
    /// What it is.
    pub(super) what: String,
    /// Bytes per example.
    pub(super) per_example: u64,
    /// The first batch with which it leaves the small pool.
    pub(super) large_from: u64,
    /// The first batch with which it gets a segment to measure.
    pub(super) own_from: u64,
}

/// The law for batch sizes from 1 on.
pub(super) struct Law {
    /// One per batch size.
    pub(super) points: Vec<Point>,
    /// Parts of equal form.
    pub(super) stretches: Vec<Stretch>,
    /// Tensors at the peak with the largest batch.
    pub(super) growing: Vec<Growing>,
    /// Batch sizes that were run on a dry device: measured peak and reservation.
    pub(super) checked: Vec<(usize, u64, u64)>,
    /// Batch sizes whose successor reserves less: batch, its reservation, the successor's.
    pub(super) falls: Vec<(usize, u64, u64)>,
}

impl Law {
    /// Computes the law for this device's profile, and checks it by dry runs; `None` under an allocator that the prediction does not know.
    ///
    /// # Errors
    /// Those of the dry runs.
    pub(super) fn of(device: &Device, batches: &[usize], largest: usize) -> Result<Option<Self>> {
        let dry = || Device::builder(Arc::new(Meta::default())).profile(device.profile().clone()).build();
        let (Some(_), Some(rules)) = (Rules::of(device), Rules::of(&dry())) else { return Ok(None) };
        let points: Vec<Point> = (1..=largest).map(|batch| point(rules.clone(), batch)).collect();
        let stretches = stretches(&points);
        let growing = growing(&points[points.len() - 1]);
        let mut falls: Vec<(usize, u64, u64)> = points
            .windows(2)
            .filter(|pair| pair[1].reserved < pair[0].reserved)
            .map(|pair| (pair[0].batch, pair[0].reserved, pair[1].reserved))
            .collect();
        falls.sort_by_key(|&(batch, more, less)| (less as i64 - more as i64, batch));
        let mut checks: Vec<usize> = batches.to_vec();
        checks.extend([1, 2, largest]);
        checks.extend(stretches.iter().flat_map(|stretch| [stretch.from, stretch.to]).take(24));
        checks.extend(falls.iter().take(2).flat_map(|&(batch, ..)| [batch, batch + 1]));
        checks.extend(growing.iter().flat_map(|g| [g.large_from - 1, g.large_from]).map(|b| b as usize));
        checks.retain(|&batch| (1..=largest).contains(&batch));
        checks.sort_unstable();
        checks.dedup();
        let checked: Result<Vec<_>> = checks.into_iter().map(|batch| measured(&dry(), batch)).collect();
        Ok(Some(Self { points, stretches, growing, checked: checked?, falls }))
    }

    /// The point of a batch size.
    pub(super) fn at(&self, batch: usize) -> Option<&Point> {
        self.points.get(batch.checked_sub(1)?)
    }
}

fn point(rules: Rules, batch: usize) -> Point {
    let mut forecast = Forecast::new(rules, Network::simple_cnn());
    forecast.model("model");
    for step in 0..STEPS {
        forecast.step(&format!("e{step}"), batch);
    }
    Point { batch, peak: forecast.peak().clone(), reserved: forecast.reserved() }
}

fn measured(device: &Device, batch: usize) -> Result<(usize, u64, u64)> {
    let mut rig = Rig::simple_cnn(device, 0)?;
    let mut peak = 0;
    for step in 0..STEPS {
        peak = peak.max(rig.step(&format!("e{step}"), batch)?.peak.allocated_bytes);
    }
    Ok((batch, peak, device.stats().reserved_bytes.all.peak))
}

fn stretches(points: &[Point]) -> Vec<Stretch> {
    let names = |point: &Point| -> Vec<String> { point.peak.pieces.iter().map(|p| p.what.clone()).collect() };
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut last: Option<(String, Vec<String>)> = None;
    for point in points {
        let form = Some((point.peak.phase.clone(), names(point)));
        match stretches.last_mut().filter(|_| form == last) {
            Some(stretch) => {
                stretch.to = point.batch;
                stretch.most_slack = stretch.most_slack.max(point.slack());
            }
            None => stretches.push(Stretch {
                from: point.batch,
                to: point.batch,
                phase: point.peak.phase.clone(),
                constant: point.constant(),
                slope: point.slope(),
                most_slack: point.slack(),
            }),
        }
        last = form;
    }
    stretches
}

fn growing(point: &Point) -> Vec<Growing> {
    let growing = point.peak.pieces.iter().filter(|piece| piece.per_example);
    growing
        .map(|piece| {
            let per_example = piece.requested_bytes / point.batch as u64;
            // The first batch whose size, rounded to 512, is above 1 MiB or at least 10 MiB.
            let large_from = MIB / per_example + 1;
            let own_from = (10 * MIB - 512) / per_example + 1;
            Growing { what: piece.what.clone(), per_example, large_from, own_from }
        })
        .collect()
}
