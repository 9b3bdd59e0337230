//! `dlsym`: programs that look cuBLASLt's functions up by name get those of this library.
//!
//! The wheel's cuBLASLt is in the process because PyTorch is linked to it, and a library that opens it by name (cuDNN
//! does) gets the wheel's own, which needs a card to start. All other names are left to the system's `dlsym`, which is
//! entered by a jump: to it, the caller is whoever called here (`RTLD_NEXT` and `RTLD_DEFAULT` depend on that).

use std::ffi::{CStr, c_char, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address of the system's `dlsym`; 0 until the first call.
static SYSTEM: AtomicUsize = AtomicUsize::new(0);

/// Handle of this library, however it was loaded.
static SELF: LazyLock<usize> = LazyLock::new(|| {
    // SAFETY: all zeros are a good `Dl_info`, and `dladdr` fills it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let found = unsafe { libc::dladdr(own as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return 0;
    }
    // SAFETY: the loader's name ends with a zero; nothing is loaded that is not loaded already.
    let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    handle as usize
});

/// Versions of the system's `dlsym`: since glibc 2.34, and before.
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Looks a name up as the system does.
pub(crate) fn system(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: `find_system` returns the address of a function of this type.
    let dlsym: Dlsym = unsafe { std::mem::transmute(find_system()) };
    // SAFETY: the name ends with a zero; handles are those of `dlopen`.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// Returns the address of an exported function of this library, or null.
pub(crate) fn own(name: &CStr) -> *mut c_void {
    if *SELF == 0 { std::ptr::null_mut() } else { system(*SELF as *mut c_void, name) }
}

#[cfg(target_arch = "x86_64")]
fn find_system() -> usize {
    let known = SYSTEM.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let found = VERSIONS.iter().map(|version| {
        // SAFETY: both texts end with a zero. `dlvsym` is not replaced.
        unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) as usize }
    });
    let found = found.into_iter().find(|address| *address != 0).unwrap_or(finds_nothing as Dlsym as usize);
    SYSTEM.store(found, Ordering::Relaxed);
    found
}

#[cfg(not(target_arch = "x86_64"))]
fn find_system() -> usize {
    libc::dlsym as usize
}

/// Stands for the system's `dlsym` if there is none.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn finds_nothing(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

/// Returns this library's function if it replaces the one with this name, else null. [`SYSTEM`] is set afterwards.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn replacement(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    find_system();
    let is_of_a_library = handle != libc::RTLD_NEXT && handle != libc::RTLD_DEFAULT;
    if !is_of_a_library || name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: callers of `dlsym` pass a text that ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes().starts_with(b"cublasLt") { own(name) } else { std::ptr::null_mut() }
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        // The stack is aligned to 16 bytes at a call.
        "sub rsp, 8",
        "call {replacement}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "jmp qword ptr [rip + {system}]",
        "2:",
        "ret",
        replacement = sym replacement,
        system = sym SYSTEM,
    )
}
