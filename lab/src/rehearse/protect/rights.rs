//! Rights that no process of a run in a namespace needs, and by which it could leave the namespace.

use rustix::thread::{
    CapabilitySet, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
};

/// To mount, unmount and enter other namespaces; to reach files through processes outside of the run (`/proc/1/root`); to open a file
/// by its number; to make and to reach disks.
const GIVEN_UP: [CapabilitySet; 5] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::MKNOD,
    CapabilitySet::SYS_RAWIO,
];

/// Gives up these rights for all programs that this thread starts. A user who is not root has none of them after a program was started.
pub(super) fn give_up() -> std::io::Result<()> {
    clear_ambient_capability_set()?;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for right in GIVEN_UP {
        remove_capability_from_bounding_set(right)?;
    }
    // Root also gets what may be inherited.
    let mut held = capabilities(None)?;
    GIVEN_UP.iter().for_each(|right| held.inheritable.remove(*right));
    Ok(set_capabilities(None, held)?)
}
