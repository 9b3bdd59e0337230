//! This library's own memory comes from the C library, whatever allocator the program brings.
//!
//! An allocator that is preloaded too (jemalloc, tcmalloc) opens files while it starts. Those calls come here, and memory that they then
//! asked of it would never arrive.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
}

/// Alignment of all blocks of the C library on processors of 64 bits.
const USUAL: usize = 16;

struct OfTheCLibrary;

#[global_allocator]
static HEAP: OfTheCLibrary = OfTheCLibrary;

// SAFETY: the C library's blocks have the size and the alignment that are asked for, and belong to nobody else until they are freed. Each
// of these functions takes any block of the others.
unsafe impl GlobalAlloc for OfTheCLibrary {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two may be asked for.
        unsafe {
            if layout.align() <= USUAL {
                __libc_malloc(layout.size()).cast()
            } else {
                __libc_memalign(layout.align(), layout.size()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= USUAL {
            // SAFETY: as above.
            return unsafe { __libc_calloc(1, layout.size()) }.cast();
        }
        // SAFETY: a block that was just made has room for its size.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the block came from here.
        unsafe { __libc_free(block.cast()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.align() <= USUAL {
            // SAFETY: the block came from here.
            return unsafe { __libc_realloc(block.cast(), bytes) }.cast();
        }
        // SAFETY: the caller's size and alignment make a layout, and both blocks have room for what is copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
