//! The five sizes that are always shown together.

/// Five nested measures of one device's memory, in bytes; the gaps between them are what a report explains.
///
/// *requested* → rounding → *allocated*, pending frees → *active* → cache and fragmentation → *reserved* → context,
/// libraries and other processes → *driver*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// What clients asked for. Falls when a free completes.
    pub requested_bytes: u64,
    /// What they were given. Falls when a free is called: with frees pending it may lie below `requested_bytes`.
    pub allocated_bytes: u64,
    /// Given, or freed and waiting for other streams.
    pub active_bytes: u64,
    /// Taken from the driver by the allocator.
    pub reserved_bytes: u64,
    /// In use on the device, says the driver; `None` where it will not say.
    pub driver_bytes: Option<u64>,
}

impl Rings {
    /// Whether they are nested as they must be: requested ≤ active, allocated ≤ active ≤ reserved ≤ driver.
    pub fn nested(&self) -> bool {
        self.requested_bytes <= self.active_bytes
            && self.allocated_bytes <= self.active_bytes
            && self.active_bytes <= self.reserved_bytes
            && self.driver_bytes.is_none_or(|driver| self.reserved_bytes <= driver)
    }
}
