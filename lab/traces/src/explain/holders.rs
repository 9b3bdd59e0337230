//! Holders of the device's memory, as far as a message names them.

use super::message::{Message, Wording};
use super::size::Size;

/// Upper bound of what a context, kernels and libraries take: 0.3 to 1.5 GiB are usual. Bytes.
const MAX_CONTEXT: u64 = 2 << 30;
/// Most that a desktop usually takes. Where this process is known with all that it holds, more than that is another process's. Bytes.
const MAX_DESKTOP: u64 = 3 << 29;

/// Holders of the device's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    /// Memory of this process, PyTorch's and other.
    pub(super) own: Option<Size>,
    /// Pid of this process if PyTorch did not recognize it as its own.
    pub(super) own_pid: Option<u64>,
    /// Other processes: pid and memory.
    pub(super) others: Vec<(u64, Size)>,
    /// Bytes that the message attributes to no process; negative by rounding.
    pub(super) unnamed: Option<i64>,
    /// True if PyTorch holds more than the device has.
    pub(super) borrowed: bool,
}

impl Holders {
    pub(super) fn from_message(message: &Message) -> Self {
        // Of a message that is cut off, what this process holds may be known, and not how much of it is PyTorch's.
        let reserved = message.all_reserved().or(message.allocated).or(message.process);
        let mut holders = Self { own: message.process, others: message.processes.clone(), ..Self::default() };
        let (Some(reserved), Some(total)) = (reserved, message.total) else { return holders };
        holders.borrowed = reserved.surely_exceeds(total);
        let Some(free) = message.free.filter(|_| !holders.borrowed) else { return holders };
        if holders.own.is_none() && holders.left(total, free, reserved) < -holders.rounding(total, free, reserved) {
            holders.recognize(reserved);
        }
        // The pool of cudaMallocAsync may hold more than is allocated.
        if message.wording != Wording::Async {
            holders.unnamed = Some(holders.left(total, free, reserved));
        }
        holders
    }

    /// Finds this process among those listed. In a container PyTorch does not know its own pid on the host, and lists itself as `Process …`. If
    /// counting all listed processes as others would exceed the memory in use, the one whose size fits PyTorch's segments is this process.
    fn recognize(&mut self, reserved: Size) {
        let fits = |size: &Size| size.bytes + size.tolerance + reserved.tolerance >= reserved.bytes;
        let candidates = self.others.iter().enumerate().filter(|(_, (_, size))| fits(size));
        let closest = candidates.min_by_key(|(_, (_, size))| size.bytes.abs_diff(reserved.bytes)).map(|(at, _)| at);
        if let Some(at) = closest {
            let (pid, size) = self.others.remove(at);
            (self.own, self.own_pid) = (Some(size), Some(pid));
        }
    }

    fn left(&self, total: Size, free: Size, reserved: Size) -> i64 {
        let own = self.own.unwrap_or(reserved);
        // Each is below 2^60, but others may be many.
        let others = i64::try_from(self.others_bytes()).unwrap_or(i64::MAX);
        (total.bytes as i64 - free.bytes as i64 - own.bytes as i64).saturating_sub(others)
    }

    fn rounding(&self, total: Size, free: Size, reserved: Size) -> i64 {
        let others: u64 = self.others.iter().map(|(_, size)| size.tolerance).sum();
        (total.tolerance + free.tolerance + self.own.unwrap_or(reserved).tolerance + others) as i64
    }

    pub(super) fn others_bytes(&self) -> u64 {
        self.others.iter().map(|(_, size)| size.bytes).fold(0, u64::saturating_add)
    }

    /// Memory that no process accounts for, if it is too much for this process's context.
    pub(super) fn unexplained(&self) -> Option<Size> {
        let bytes = u64::try_from(self.unnamed?).ok()?;
        let usual = if self.own.is_some() { MAX_DESKTOP } else { MAX_CONTEXT };
        (bytes > usual).then_some(Size::from_bytes(bytes))
    }

    /// Memory of this process outside of PyTorch's segments, if it is more than a context takes.
    pub(super) fn beside_pytorch(&self, reserved: Option<Size>) -> Option<Size> {
        let beside = self.own?.minus(reserved?);
        (beside.bytes > MAX_CONTEXT).then_some(beside)
    }
}
