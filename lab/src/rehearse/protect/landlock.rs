//! Landlock: a thread gives up, for itself and for all that it starts, the right to write outside of some folders. No process answers, so
//! nothing tells what was refused; and there are no rights for modes, owners, times and attributes (Linux's `userspace-api/landlock.rst`).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::system::{checked, place};
use super::way::Wanted;

const WRITE_FILE: u64 = 1 << 1;
/// To remove folders and files, and to make entries of all kinds.
const ENTRIES: u64 = (1 << 13) - (1 << 4);
/// To move an entry to another folder. Version 1 refuses it everywhere.
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

/// Folders of the system, in which devices and settings are written.
const OF_THE_SYSTEM: [&str; 2] = ["/dev", "/proc"];

/// Kind of a rule: what lies below a folder.
const BELOW: u32 = 1;
/// Flag that asks for the version.
const VERSION: u32 = 1;

/// Confines this thread to the run's folder and the caches. Files that are open stay so.
///
/// # Errors
/// A system without Landlock, or with one that does not know truncation.
pub(super) fn confine(wanted: &Wanted) -> io::Result<()> {
    if version()? < 3 {
        return Err(io::Error::other("Landlock before Linux 6.2 does not know truncation"));
    }
    let handled = WRITE_FILE | ENTRIES | REFER | TRUNCATE;
    let rules = ruleset(handled)?;
    for folder in [&wanted.run].into_iter().chain(&wanted.caches) {
        allow(&rules, folder, handled)?;
    }
    for folder in OF_THE_SYSTEM {
        allow(&rules, Path::new(folder), WRITE_FILE | TRUNCATE)?;
    }
    // Shared memory of processes, which nobody keeps files in. There may be none.
    if Path::new("/dev/shm").is_dir() {
        allow(&rules, Path::new("/dev/shm"), handled)?;
    }
    for output in ["/proc/self/fd/1", "/proc/self/fd/2"].map(Path::new) {
        if fs::metadata(output).is_ok_and(|found| found.is_file()) {
            allow(&rules, output, WRITE_FILE | TRUNCATE)?;
        }
    }
    rustix::thread::set_no_new_privs(true)?;
    restrict(&rules)
}

/// Keeps this thread, and all that it starts, from reaching into processes that it did not start: their memory, what they have open, and
/// the files that they see (`/proc/PID/root`). The rights of a user do not, where both have as many.
///
/// # Errors
/// A system without Landlock, or with one that would refuse renames from folder to folder.
pub(super) fn stay_among_own_processes() -> io::Result<()> {
    if version()? < 2 {
        return Err(io::Error::other("Landlock before Linux 5.19 refuses renames"));
    }
    // A domain must handle something. This is allowed everywhere.
    let rules = ruleset(REFER)?;
    allow(&rules, Path::new("/"), REFER)?;
    restrict(&rules)
}

fn version() -> io::Result<i64> {
    // SAFETY: nothing is read where the version is asked for.
    checked(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u64>(), 0usize, VERSION) })
}

fn restrict(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call takes numbers alone.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0u32) }).map(drop)
}

fn ruleset(handled: u64) -> io::Result<OwnedFd> {
    // SAFETY: the structure of version 1 is one number, and its size is given.
    let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0u32) };
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(checked(made)? as i32) })
}

/// The structure `landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Rule {
    allowed: u64,
    parent: i32,
}

fn allow(rules: &OwnedFd, path: &Path, allowed: u64) -> io::Result<()> {
    let place = place(path, true)?;
    let rule = Rule { allowed, parent: place.as_raw_fd() };
    // SAFETY: both descriptors are open, and the structure lives until the call returns.
    checked(unsafe { libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), BELOW, &raw const rule, 0u32) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_thread_writes_in_the_open_folders_alone() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for folder in ["run", "cache", "work/folder"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("work/file"), "before").unwrap();
        let wanted = Wanted {
            run: at("run"),
            layers: at("run/layers"),
            reached: Vec::new(),
            working: at("work"),
            caches: vec![at("cache")],
            temporary: vec![root.clone()],
            since: SystemTime::now(),
            offline: false,
        };
        let (inside, file) = ([at("run/new"), at("cache/new")], at("work/file"));
        let (folder, moved, new) = (at("work/folder"), at("cache/file"), at("work/new"));
        let attempts = std::thread::spawn(move || -> io::Result<Vec<bool>> {
            confine(&wanted)?;
            inside.iter().try_for_each(|path| fs::write(path, "after"))?;
            fs::write("/dev/null", "after")?;
            Ok(vec![
                fs::write(&file, "after").is_err(),
                fs::File::options().read(true).append(true).open(&file).is_err(),
                fs::remove_file(&file).is_err(),
                fs::rename(&file, &moved).is_err(),
                fs::hard_link(&file, &moved).is_err(),
                fs::remove_dir(&folder).is_err(),
                fs::write(&new, "after").is_err(),
                fs::create_dir(&new).is_err(),
                std::os::unix::fs::symlink("file", &new).is_err(),
            ])
        });
        match attempts.join().unwrap() {
            Ok(refused) => assert_eq!(refused, vec![true; 9]),
            Err(error) => eprintln!("not tested: {error}"),
        }
        assert_eq!(fs::read_to_string(at("work/file")).unwrap(), "before");
        assert_eq!(fs::read_dir(at("work")).unwrap().count(), 2);
    }
}
