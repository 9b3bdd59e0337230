//! What a program that knows of this library may ask it.

use std::ffi::c_int;

use crate::argument::Out;
use crate::values;

/// Writes how many things ran on the cards, and how many reads of device memory had known and unknown contents.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_counters(counters: Out<[u64; 3]>) -> c_int {
    crate::answer::driver(counters.set(values::counters()))
}
