//! Compiled kernels on disk: with a warm cache nothing is compiled. What was chosen by its time, for products and convolutions, lies
//! beside them.
//!
//! The name of a file is computed from its inputs (source, headers, architecture, compiler; card, library, shape), and the
//! file never changes: a new version of any input is another file. If the cache cannot be read or written, kernels are
//! compiled again, and algorithms timed again.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The environment variable that sets another folder; empty turns the cache off.
pub(crate) const FOLDER_VARIABLE: &str = "VRAMLAB_KERNEL_CACHE";

/// The folder for compiled kernels: by default in the user's cache folder.
fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        return (!folder.is_empty()).then(|| PathBuf::from(folder));
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = set("XDG_CACHE_HOME")
        .or_else(|| set("LOCALAPPDATA"))
        .or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("vramlab").join("cuda"))
}

/// Two independent 64-bit FNV-1a checksums: enough that two sources never collide by chance.
pub(crate) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    const PRIME: u64 = 0x0100_0000_01B3;
    let (mut a, mut b) = (0xCBF2_9CE4_8422_2325u64, 0x6C62_272E_07BB_0142u64);
    for part in parts {
        // A separator that no text contains: moving a byte from one part to the next changes the checksum.
        for byte in part.bytes().chain([0xFF]) {
            a = (a ^ u64::from(byte)).wrapping_mul(PRIME);
            b = (b ^ u64::from(byte)).wrapping_mul(PRIME).rotate_left(23);
        }
    }
    format!("{a:016x}{b:016x}")
}

/// Returns what was stored under this key.
pub(crate) fn load(key: &str) -> Option<Vec<u8>> {
    fs::read(folder()?.join(key)).ok().filter(|bytes| !bytes.is_empty())
}

/// True if nothing is stored under this key although the cache is on.
pub(crate) fn lacks(key: &str) -> bool {
    folder().is_some_and(|folder| !folder.join(key).is_file())
}

/// Stores a file: written to a temporary one and moved to its place, so that no other process sees half of it.
pub(crate) fn store(key: &str, bytes: &[u8]) {
    let Some(folder) = folder() else { return };
    let partial = folder.join(format!("{key}.{}", std::process::id()));
    let written = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&partial, bytes))
        .and_then(|()| fs::rename(&partial, folder.join(key)));
    if written.is_err() {
        // The next start compiles again; nothing else is lost.
        let _ = fs::remove_file(&partial);
    }
}

/// What was chosen by its time, by key: in this process, whether it can be stored on disk or not.
fn choices() -> MutexGuard<'static, Option<HashMap<String, Vec<u8>>>> {
    static CHOICES: Mutex<Option<HashMap<String, Vec<u8>>>> = Mutex::new(None);
    CHOICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the choice that was made under this key, in this process or another.
pub(crate) fn kept(key: &str) -> Option<Vec<u8>> {
    let known = choices().as_ref().and_then(|choices| choices.get(key).cloned());
    known.or_else(|| load(key))
}

/// Keeps a choice, for this process and for others.
pub(crate) fn keep(key: String, choice: Vec<u8>) {
    store(&key, &choice);
    choices().get_or_insert_default().insert(key, choice);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_and_its_place_counts() {
        let of = |parts: &[&str]| fingerprint(parts.iter().copied());
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["ab", "c"]), of(&["ab", "d"]));
        assert_eq!(of(&[]).len(), 32);
    }
}
