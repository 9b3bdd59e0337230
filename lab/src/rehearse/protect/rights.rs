//! Rights that no process of a run in a namespace needs, and by which it could leave the namespace.

use super::landlock;

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
/// Returns what is not given up.
pub(super) fn give_up() -> std::io::Result<Option<String>> {
    clear_ambient_capability_set()?;
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    // Root can become any user, and reaches into processes of that user's, and into those of root's that have given up as much. Where there
    // is a user namespace, processes outside of it have more rights.
    let lacks = landlock::stay_among_own_processes().err().map(|error| {
        format!("processes outside of the run can be reached as their own user, and files through them: {error}")
    });
    for right in GIVEN_UP {
        remove_capability_from_bounding_set(right)?;
    }
    // Root also gets what may be inherited.
    let mut held = capabilities(None)?;
    GIVEN_UP.iter().for_each(|right| held.inheritable.remove(*right));
    set_capabilities(None, held)?;
    Ok(lacks)
}
