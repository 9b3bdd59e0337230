//! The five sizes that are always shown together.

/// Five nested measures of one device's memory, in bytes; the gaps between them are what a report explains.
///
/// *requested* → rounding → *allocated*, pending frees → *active* → cache and fragmentation → *reserved* → context,
/// libraries and other processes → *driver*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Bytes that clients asked for. Falls when a free completes.
    pub requested_bytes: u64,
    /// Bytes of the blocks that clients were given. Falls when a free is called, so it may lie below `requested_bytes`
    /// while frees are pending.
    pub allocated_bytes: u64,
    /// Allocated, or freed but still waiting for other streams.
    pub active_bytes: u64,
    /// Bytes that the allocator took from the driver.
    pub reserved_bytes: u64,
    /// Bytes in use on the device, as the driver reports them; `None` if it does not report them.
    pub driver_bytes: Option<u64>,
}

impl Rings {
    /// True if the sizes are nested as they must be: requested ≤ active, allocated ≤ active ≤ reserved ≤ driver.
    pub fn nested(&self) -> bool {
        self.requested_bytes <= self.active_bytes
            && self.allocated_bytes <= self.active_bytes
            && self.active_bytes <= self.reserved_bytes
            && self.driver_bytes.is_none_or(|driver| self.reserved_bytes <= driver)
    }
}
