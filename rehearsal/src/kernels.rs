//! Launches of kernels. They are checked as on the card, and then nothing runs.

use std::cell::RefCell;
use std::ffi::c_int;

use crate::answer::{Answer, Code};
use crate::card::{MAX_THREADS, architecture};
use crate::work::{HostFunction, kind, work};
use crate::{context, images, values};

/// Three sizes, as C passes them by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// Configuration of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Launch {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: usize,
    pub(crate) stream: usize,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Launch>> = const { RefCell::new(Vec::new()) };
}

/// Checks the one attribute of a kernel that can fail: more shared memory than the card has.
pub(crate) fn check_attribute(attribute: c_int, value: c_int) -> Answer {
    const MAX_DYNAMIC_SHARED: c_int = 8;
    if attribute == MAX_DYNAMIC_SHARED && !(0..=architecture().shared_opt_in).contains(&value) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}

/// Keeps a configuration between `<<<…>>>` and its launch.
pub(crate) fn push(launch: Launch) {
    CONFIGURATIONS.with_borrow_mut(|kept| kept.push(launch));
}

/// Returns the configuration that was kept last.
pub(crate) fn pop() -> Answer<Launch> {
    CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Code(52))
}

impl Launch {
    fn check(&self) -> Answer {
        let Dim3 { x, y, z } = self.block;
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        let is_sound = threads > 0 && threads <= MAX_THREADS as u64 && z <= 64;
        let grid = self.grid;
        let fits =
            grid.x > 0 && grid.x <= i32::MAX as u32 && (1..=65535).contains(&grid.y) && (1..=65535).contains(&grid.z);
        if !is_sound || !fits {
            return Err(Code::INVALID_CONFIGURATION);
        }
        if self.shared > architecture().shared_opt_in as usize { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
}

/// Launches a kernel of the program, by the address of its function on the host.
pub(crate) fn launch(function: usize, launch: Launch) -> Answer {
    if function == 0 {
        return Err(Code::INVALID_DEVICE_FUNCTION);
    }
    context::used()?;
    if !images::has_image(function) {
        return Err(Code::NO_KERNEL_IMAGE);
    }
    launch_loaded(launch)
}

/// Launches a kernel of a loaded module. Its image is not checked here.
pub(crate) fn launch_loaded(launch: Launch) -> Answer {
    launch.check()?;
    work().capture_node(launch.stream, kind::KERNEL, None)?;
    values::launched();
    Ok(())
}

/// Calls a function of the program when the stream reaches it: now, or whenever the captured graph is launched.
pub(crate) fn call(stream: usize, host: HostFunction) -> Answer {
    let is_captured = work().capture_node(stream, kind::HOST, Some(host))?;
    if !is_captured {
        (host.function)(host.argument);
    }
    Ok(())
}
