//! The rows of a run, by device.

use memcore::Device;

use crate::record::{Log, Row, RowsKept};

/// Rows that a run has taken so far, for each of its devices.
pub struct Rows {
    devices: Vec<DeviceRows>,
    /// Prefix of every label: `b128.` if several runs share a device.
    tag: String,
}

struct DeviceRows {
    device: Device,
    log: Log,
    /// The highest peak of the phases since the last row.
    peak_since_row: u64,
}

impl Rows {
    pub(crate) fn new(devices: &[Device], tag: &str, kept: RowsKept) -> Self {
        let of = |device: &Device| DeviceRows { device: device.clone(), log: Log::new(kept), peak_since_row: 0 };
        Self { devices: devices.iter().map(of).collect(), tag: tag.into() }
    }

    /// Begins a phase on all devices.
    pub fn phase(&mut self, name: &str) {
        (0..self.devices.len()).for_each(|device| self.phase_of(device, name));
    }

    /// Begins a phase on one device, and resets the device's own peak. The next row has the highest peak of all phases since the previous row.
    pub(crate) fn phase_of(&mut self, device: usize, name: &str) {
        let of = &mut self.devices[device];
        of.peak_since_row = of.peak_since_row.max(of.device.take_phase_peak());
        of.device.phase(name);
    }

    /// Takes a row of each device.
    pub fn take(&mut self, label: &str) {
        for of in &mut self.devices {
            let mut row = Row::take(&of.device, format!("{}{label}", self.tag));
            row.phase_peak_allocated = row.phase_peak_allocated.max(std::mem::take(&mut of.peak_since_row));
            of.log.push(row);
        }
    }

    /// The devices, in order.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().map(|of| &of.device)
    }

    /// Rows of the first device that are kept.
    pub(crate) fn first(&self) -> &[Row] {
        self.devices.first().map_or(&[], |of| of.log.rows())
    }

    /// Rows that are kept, by device.
    pub(crate) fn each(&self) -> Vec<&[Row]> {
        self.devices.iter().map(|of| of.log.rows()).collect()
    }

    /// Number of rows taken of the first device, including those that are not kept.
    pub(crate) fn taken(&self) -> usize {
        self.devices.first().map_or(0, |of| of.log.rows().len() + of.log.left_out())
    }

    /// Rows that are kept, by device.
    pub(crate) fn into_each(self) -> Vec<Vec<Row>> {
        self.devices.into_iter().map(|of| of.log.into_rows()).collect()
    }
}
