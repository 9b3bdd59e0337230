//! Puts the measurements of a run into its result.

use lab_base::figures::median;
use lab_training::record::{Row, op_name};
use lab_training::{Partial, RunResult};
use memcore::Device;
use memcore::memory::{Origin, PeakComposition, ScopeId};

use super::figures::{
    HostBytes, OutOfMemoryResult, OverheadPart, OverheadsResult, PeakResult, ScopeBytes, by_category,
};
use super::train::TrainResult;

/// Number of modules that are named.
const TOP_SCOPES: usize = 6;

impl TrainResult {
    /// Adds the figures of a run that completed. The device's ledger must still be that of the run.
    #[must_use]
    pub fn finished(mut self, run: RunResult, device: &Device) -> Self {
        let reserved = run.rows.iter().map(|row| row.max_reserved).max().unwrap_or(0);
        self.peak = Some(peak(&run.peak, peak_label(&run.rows), reserved, device));
        self.by_category = Some(by_category(run.usage.by_category()));
        self.rings = Some((&run.rings).into());
        self.overheads = overheads(&run);
        self.parameters = Some(run.parameters);
        self.interrupted = run.interrupted;
        self.rows_left_out = run.rows_left_out;
        self.reason = if !self.computes() {
            Some("meta only counts memory and computes nothing")
        } else if run.ms_per_step.is_empty() {
            Some("no step was finished")
        } else if run.losses.is_empty() {
            Some("no step has a loss")
        } else {
            None
        }
        .map(String::from);
        if self.computes() {
            self.losses = Self::losses(&run.losses);
            self.ms_per_step_median = median(&run.ms_per_step);
            self.ms_per_step = Some(run.ms_per_step);
            self.accuracy = run.accuracy.map(Into::into);
        }
        self.steps = run.rows;
        self
    }

    /// Adds the figures of a run that ran out of memory, until then. The device's ledger still has the peak.
    #[must_use]
    pub fn failed(mut self, partial: Partial, why: OutOfMemoryResult, device: &Device) -> Self {
        let highest = device.usage().at_peak();
        let reached = partial.rows.iter().any(|row| row.max_allocated == highest.allocated_bytes);
        let label = peak_label(&partial.rows).filter(|_| reached);
        self.peak = Some(peak(&highest, label, device.stats().reserved_bytes.all.peak, device));
        if let Some(moment) = &why.moment {
            self.by_category = Some(moment.by_category.clone());
            self.rings = Some(moment.rings);
        }
        self.out_of_memory = Some(why);
        self.rows_left_out = partial.rows_left_out;
        self.reason = Some("memory ran out before the end".into());
        if self.computes() {
            self.losses = Self::losses(&partial.losses);
            self.ms_per_step = Some(partial.ms_per_step);
        } else {
            self.reason = Some("meta only counts memory and computes nothing".into());
        }
        self.steps = partial.rows;
        self
    }

    fn computes(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.computes)
    }
}

impl PeakResult {
    /// Returns the highest moment of a device so far.
    pub fn of_device(device: &Device) -> Self {
        peak(&device.usage().at_peak(), None, device.stats().reserved_bytes.all.peak, device)
    }
}

/// Returns the label of the row in which the peak was reached.
fn peak_label(rows: &[Row]) -> Option<&str> {
    let peak = rows.iter().map(|row| row.max_allocated).max()?;
    rows.iter().find(|row| row.max_allocated == peak).map(|row| row.label.as_str())
}

/// Makes a peak, with the origin of the allocation that reached it, and the modules that held most then.
fn peak(peak: &PeakComposition, label: Option<&str>, reserved_bytes: u64, device: &Device) -> PeakResult {
    device.with_ledger(|ledger| {
        let Origin { scope, phase, .. } = peak.origin;
        let held = |bytes: &[u64]| bytes.iter().sum::<u64>();
        let mut scopes: Vec<_> = peak.by_scope.iter().enumerate().filter(|(_, bytes)| held(&bytes[..]) > 0).collect();
        let path = |id: usize| ledger.scope_path(ScopeId(id as u32)).to_string();
        scopes.sort_by(|a, b| held(&b.1[..]).cmp(&held(&a.1[..])).then_with(|| path(a.0).cmp(&path(b.0))));
        scopes.truncate(TOP_SCOPES);
        let held_by = |(id, bytes): (usize, &_)| ScopeBytes { scope: path(id), by_category: by_category(bytes) };
        PeakResult {
            label: label.map(String::from),
            op: op_name(&peak.origin, false),
            scope: ledger.scope_path(scope).to_string(),
            phase: ledger.phase_name(phase).to_string(),
            by_scope: scopes.into_iter().map(held_by).collect(),
            host: HostBytes::of_device(device),
            ..PeakResult::from_peak(peak, reserved_bytes)
        }
    })
}

/// Returns the parts of the driver's figure besides segments, and its unexplained rest; `None` if the backend measures nothing.
fn overheads(run: &RunResult) -> Option<OverheadsResult> {
    let unexplained = run.rings.unexplained_bytes(&run.overheads).filter(|_| !run.overheads.is_empty());
    let part = |part: &memcore::backend::Overhead| OverheadPart { name: part.name.into(), bytes: part.bytes };
    unexplained
        .map(|bytes| OverheadsResult { parts: run.overheads.iter().map(part).collect(), unexplained_bytes: bytes })
}
