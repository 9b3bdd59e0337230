//! Starting programs: whatever environment they are given, they load this library too.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::look::at;
use super::open::{given, opened_path};
use super::protection::protection;
use super::real::real;
use super::system::HERE;

unsafe extern "C" {
    static mut environ: Texts;
}

/// A list of texts that ends with null.
type Texts = *const *const c_char;

/// Variables that each program of a run needs, from the environment in which this process began.
static NEEDED: OnceLock<Vec<CString>> = OnceLock::new();

// The environment is read before the program can change it.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = remember;

extern "C" fn remember() {
    let _known = NEEDED.get_or_init(needed);
}

fn needed() -> Vec<CString> {
    if std::env::var_os("VRAMLAB_REHEARSAL_FILES").is_none_or(|value| value.is_empty()) {
        return Vec::new();
    }
    let own = |name: &str| name == "LD_PRELOAD" || name.starts_with("VRAMLAB_REHEARSAL_");
    let variables = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(own));
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        CString::new([name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat()).ok()
    };
    variables.filter_map(text).collect()
}

/// Returns the name of a variable and its value.
fn parts(variable: &CStr) -> (&[u8], &[u8]) {
    let bytes = variable.to_bytes();
    let end = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// An environment with what is needed, and texts that it refers to.
struct Environment {
    list: Vec<*const c_char>,
    _own: Vec<CString>,
}

/// Adds what is needed to an environment; `None` if nothing is missing.
fn completed(list: Texts) -> Option<Environment> {
    let needed = NEEDED.get().filter(|needed| !needed.is_empty())?;
    let mut found = Vec::new();
    let mut at = list;
    // SAFETY: callers pass a list that ends with null, or null.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: as above.
        unsafe {
            found.push(*at);
            at = at.add(1);
        }
    }
    let (mut own, mut changed) = (Vec::new(), false);
    for variable in needed {
        let (name, value) = parts(variable);
        let is_it = |text: &*const c_char| {
            // SAFETY: the texts of an environment end with a zero.
            parts(unsafe { CStr::from_ptr(*text) }).0 == name
        };
        let Some(place) = found.iter().position(is_it) else {
            found.push(variable.as_ptr());
            changed = true;
            continue;
        };
        // SAFETY: as above.
        let held = parts(unsafe { CStr::from_ptr(found[place]) }).1;
        let first = value.split(|byte| *byte == b':').next().unwrap_or_default();
        let is_loaded = held.split(|byte| *byte == b':' || *byte == b' ').any(|path| path == first);
        if name == b"LD_PRELOAD" && !is_loaded {
            let colon: &[u8] = if held.is_empty() { b"" } else { b":" };
            let joined = [&b"LD_PRELOAD="[..], first, colon, held].concat();
            if let Ok(text) = CString::new(joined) {
                found[place] = text.as_ptr();
                own.push(text);
                changed = true;
            }
        }
    }
    found.push(std::ptr::null());
    changed.then_some(Environment { list: found, _own: own })
}

/// Runs a call with a complete environment.
fn with_environment<T>(list: Texts, call: impl FnOnce(Texts) -> T) -> T {
    match completed(list) {
        Some(environment) => call(environment.list.as_ptr()),
        None => call(list),
    }
}

/// Puts what is needed into the environment of this process, from which some functions take it.
fn complete_own() {
    // SAFETY: the C library's own list. Threads that change it at the same time must not, as the C library says.
    unsafe {
        if let Some(environment) = completed(environ) {
            // Never freed: the C library keeps the list, and its texts.
            let environment = std::mem::ManuallyDrop::new(environment);
            environ = environment.list.as_ptr();
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn system(command: *const c_char) -> c_int {
    complete_own();
    real!(system as fn(*const c_char) -> c_int, -1; command)
}

#[unsafe(no_mangle)]
extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    complete_own();
    real!(popen as fn(*const c_char, *const c_char) -> *mut c_void, std::ptr::null_mut(); command, mode)
}

#[unsafe(no_mangle)]
extern "C" fn execve(path: *const c_char, words: Texts, environment: Texts) -> c_int {
    with_environment(environment, |environment| {
        at(
            HERE,
            path,
            true,
            -1,
            |_, path| real!(execve as fn(*const c_char, Texts, Texts) -> c_int, -1; path, words, environment),
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn execv(path: *const c_char, words: Texts) -> c_int {
    // SAFETY: the C library's own list.
    execve(path, words, unsafe { environ })
}

#[unsafe(no_mangle)]
extern "C" fn execvpe(name: *const c_char, words: Texts, environment: Texts) -> c_int {
    with_environment(environment, |environment| {
        // A name with a slash is a path, and others are searched for.
        if given(name).is_ok_and(|name| name.contains(&b'/')) {
            return execve(name, words, environment);
        }
        real!(execvpe as fn(*const c_char, Texts, Texts) -> c_int, -1; name, words, environment)
    })
}

#[unsafe(no_mangle)]
extern "C" fn execvp(name: *const c_char, words: Texts) -> c_int {
    // SAFETY: the C library's own list.
    execvpe(name, words, unsafe { environ })
}

#[unsafe(no_mangle)]
extern "C" fn fexecve(descriptor: c_int, words: Texts, environment: Texts) -> c_int {
    with_environment(
        environment,
        |environment| real!(fexecve as fn(c_int, Texts, Texts) -> c_int, -1; descriptor, words, environment),
    )
}

macro_rules! spawns {
    ($($name:ident $at:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            pid: *mut c_int,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            words: Texts,
            environment: Texts,
        ) -> c_int {
            with_environment(environment, |environment| {
                let call = |path: *const c_char| {
                    real!($name as fn(*mut c_int, *const c_char, *const c_void, *const c_void, Texts, Texts) -> c_int, libc::ENOSYS;
                        pid, path, actions, attributes, words, environment)
                };
                let is_path = $at || given(path).is_ok_and(|name| name.contains(&b'/'));
                if is_path { at(HERE, path, true, libc::ENOENT, |_, path| call(path)) } else { call(path) }
            })
        }
    )*};
}

spawns! { posix_spawn true; posix_spawnp false; }

/// A file that a process opens when it is started. It is looked up now, because the system's call is not seen later.
#[unsafe(no_mangle)]
extern "C" fn posix_spawn_file_actions_addopen(
    actions: *mut c_void,
    descriptor: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    let call = |path: *const c_char| {
        real!(posix_spawn_file_actions_addopen as fn(*mut c_void, c_int, *const c_char, c_int, c_uint) -> c_int, libc::ENOSYS;
            actions, descriptor, path, flags, mode)
    };
    match protection().map(|protection| opened_path(protection, path, flags)) {
        Some(Ok(Some(other))) => call(other.as_ptr()),
        Some(Err(error)) => error,
        _ => call(path),
    }
}
