//! Writing past the caches: lines that nobody reads soon are not read before they are written.

/// True if the processor can write whole lines past its caches.
pub(crate) fn has_streaming() -> bool {
    #[cfg(target_arch = "x86_64")]
    return crate::simd::level() != crate::simd::Level::Baseline;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Size in bytes from which results are written past the caches. No cache holds so much, and a line that is written as a whole need not be read
/// first.
pub const STREAMED_BYTES: usize = 32 << 20;

/// True if a result of `numel` elements is written past the caches, `step` elements at a time: it is too large for them, and each step begins at a cache
/// line.
pub(crate) fn is_streamed<C>(out: *const C, numel: usize, step: usize) -> bool {
    let aligned = (out as usize).is_multiple_of(64) && (step * size_of::<C>()).is_multiple_of(64);
    has_streaming() && aligned && numel * size_of::<C>() >= STREAMED_BYTES
}

/// Copies `values` to `to` past the caches. Other threads see these writes after the next fence: the loop over blocks makes one at the end of a task.
///
/// # Safety
/// There is room, `to` is aligned to a cache line, and [`has_streaming`].
pub(crate) unsafe fn stream<C: Copy>(values: &[C], to: *mut C) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: AVX is there (`has_streaming`), and the caller asserts the rest.
    unsafe {
        stream_avx(values.as_ptr().cast(), to.cast(), size_of_val(values));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller asserts.
    unsafe {
        std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
    }
}

/// Copies `values` to `to` past the caches, if the processor can; the copy is complete for other threads.
///
/// # Safety
/// There is room, and `to` is aligned to a cache line.
pub(crate) unsafe fn copy_past_caches(values: &[u8], to: *mut u8) {
    // SAFETY: as the caller asserts.
    unsafe {
        if has_streaming() {
            stream(values, to);
        } else {
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
        }
    }
    fence();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream_avx(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_stream_si256};
    let whole = bytes - bytes % 64;
    for at in (0..whole).step_by(64) {
        // SAFETY: the caller asserts that these bytes exist, and that `to` is aligned.
        unsafe {
            let (low, high) = (_mm256_loadu_si256(from.add(at).cast()), _mm256_loadu_si256(from.add(at + 32).cast()));
            _mm256_stream_si256(to.add(at).cast(), low);
            _mm256_stream_si256(to.add(at + 32).cast(), high);
        }
    }
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole) };
}

/// Orders this thread's writes past the caches before its later writes.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
