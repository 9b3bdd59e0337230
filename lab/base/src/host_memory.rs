//! An allocator that ends the program with a sentence and an exit code when the host runs out of memory; the standard library would abort.
//!
//! Devices that run out of memory return an error instead, and the run's report names the holders. It stands here, not in the program, because each
//! allocation goes through it, and the program's own crate is not optimized.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The system's allocator; a request that it cannot serve ends the program.
#[derive(Debug)]
pub struct EndingAllocator {
    exit_code: i32,
    /// The reserve, until it is given back.
    reserved: AtomicPtr<u8>,
}

// SAFETY: everything is passed on to the system's allocator with the same arguments, and what it gives is returned unless the program ends.
unsafe impl GlobalAlloc for EndingAllocator {
    // SAFETY: as of the trait.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        self.or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    // SAFETY: as of the trait.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        self.or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    // SAFETY: as of the trait.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        self.or_end(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    // SAFETY: as of the trait.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that are free again once the program ends: other threads go on for a moment, and the C library aborts if it has none for them.
const RESERVE: Layout = Layout::new::<[u8; 64 << 10]>();

impl EndingAllocator {
    /// Makes one that ends the program with this exit code.
    pub const fn new(exit_code: u8) -> Self {
        Self { exit_code: exit_code as i32, reserved: AtomicPtr::new(null_mut()) }
    }

    /// Takes the reserve, and lets the C library keep what is freed. For the begin of the program.
    pub fn keep_reserve(&self) {
        keep_freed();
        // SAFETY: the layout is of more than no bytes.
        self.reserved.store(unsafe { self.alloc(RESERVE) }, Ordering::Relaxed);
    }

    /// Gives the reserve back to the C library.
    fn free_reserve(&self) {
        let reserve = self.reserved.swap(null_mut(), Ordering::Relaxed);
        if !reserve.is_null() {
            // SAFETY: it is of this allocator and layout, and after the exchange nobody else has it.
            unsafe { self.dealloc(reserve, RESERVE) }
        }
    }

    fn or_end(&self, pointer: *mut u8, bytes: usize) -> *mut u8 {
        if pointer.is_null() { self.end(bytes) } else { pointer }
    }

    /// Ends the process without another allocation. Work in progress is left as it is; files being written do not have their names yet.
    #[cold]
    fn end(&self, bytes: usize) -> ! {
        self.free_reserve();
        let mut sentence = [0; 160];
        let mut rest = &mut sentence[..];
        let _ = writeln!(rest, "error: out of host memory: the system has no {bytes} bytes for this process");
        let left = rest.len();
        // Stderr has no buffer, and its lock may be taken again by the thread that holds it.
        let _ = std::io::stderr().write_all(&sentence[..sentence.len() - left]);
        // SAFETY: the C library's function has this signature, on every system, and may be called at any time. Unlike `exit` it runs no handlers,
        // which could allocate or wait for other threads.
        unsafe { _exit(self.exit_code) }
    }
}

/// Lets GNU's C library grow its heap by a mebibyte at a time, and keep up to 64 MiB of it that are free. By itself it gives back what lies free at the heap's
/// end beyond 128 KiB and takes it again with new pages: 4 % of the time of an answer of 12 ms. Blocks of 16 MiB and more come from the system one by one.
fn keep_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const M_TRIM_THRESHOLD: i32 = -1;
        const M_TOP_PAD: i32 = -2;
        const M_MMAP_THRESHOLD: i32 = -3;
        // SAFETY: every C library has this function with this signature.
        unsafe extern "C" {
            fn mallopt(parameter: i32, value: i32) -> i32;
        }
        for (parameter, mebibytes) in [(M_TRIM_THRESHOLD, 64), (M_TOP_PAD, 1), (M_MMAP_THRESHOLD, 16)] {
            // SAFETY: these parameters (mallopt(3)) only decide when the library takes memory and gives it back. It returns 0 for one that it does not
            // know, and goes on as without.
            unsafe { mallopt(parameter, mebibytes << 20) };
        }
    }
}

// SAFETY: every C library has this function with this signature.
unsafe extern "C" {
    fn _exit(code: i32) -> !;
}
