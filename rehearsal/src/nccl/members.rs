//! The ranks of the whole run that are in a communicator. NCCL knows only their numbers in it, so that the Python layer
//! reports them if some ranks of the run were not started.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::answer::{Answer, driver};
use crate::argument::In;

/// 128 bytes by which ranks find each other, as `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) [u8; 128]);

impl Id {
    /// Name of the communicator with this identity.
    pub(super) fn name(self) -> String {
        self.0[..12].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Ranks of each communicator, by its name.
static MEMBERS: LazyLock<Mutex<HashMap<String, Vec<u32>>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Ranks of the part that this thread makes of a communicator next.
    static PART: RefCell<Option<Vec<u32>>> = const { RefCell::new(None) };
}

pub(super) fn tell(name: String, ranks: Vec<u32>) {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).insert(name, ranks);
}

pub(super) fn members(name: &str) -> Option<Vec<u32>> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

pub(super) fn take_part() -> Option<Vec<u32>> {
    PART.take()
}

fn read(ranks: In<u32>, count: usize) -> Answer<Vec<u32>> {
    (0..count).map(|index| ranks.get_at(index)).collect()
}

/// Sets the ranks of the run that the communicator with this identity will have, in their order in it.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_members(id: In<Id>, ranks: In<u32>, count: usize) -> c_int {
    driver(id.get().and_then(|id| {
        tell(id.name(), read(ranks, count)?);
        Ok(())
    }))
}

/// Sets the ranks of the run that will be in the part that this thread makes of a communicator next, in their order in it.
/// No ranks end that.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_part(ranks: In<u32>, count: usize) -> c_int {
    driver(read(ranks, count).map(|ranks| PART.set(Some(ranks).filter(|ranks| !ranks.is_empty()))))
}
