//! What this program was started with open: the commands inherit it, and with it a way past whatever protects the user's files.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use super::system::checked;
use super::way::Way;

/// The streams to which the output of this program itself goes.
const OUTPUTS: [i32; 2] = [1, 2];

/// Opens inherited files and folders again where the commands are started, so that they are those of the namespace. Where there is none, or
/// that fails, the commands get none that they could write to.
pub(super) fn open_again(way: Way) {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| !OUTPUTS.contains(number)) {
        // SAFETY: the descriptor is open while it is looked at: this process has a single thread, and the list's own one is closed already.
        let open = unsafe { BorrowedFd::borrow_raw(number) };
        // What this program opened itself is closed when a command starts.
        if fcntl_getfd(open).map_or(true, |flags| flags.contains(FdFlags::CLOEXEC)) {
            continue;
        }
        let link = PathBuf::from(format!("/proc/self/fd/{number}"));
        let Ok(found) = fs::metadata(&link) else { continue };
        let settled = match way {
            _ if acts_for_another(&link) => Err(io::ErrorKind::PermissionDenied.into()),
            Way::Namespace if is_kept(&found) => again(open, &link),
            _ if is_kept(&found) && writes(open) => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(()),
        };
        if settled.is_err() {
            let _stays_open = fcntl_setfd(open, FdFlags::CLOEXEC);
        }
    }
}

/// True for rings of requests, which the system works off as the process that made them, and for events that bring open files.
fn acts_for_another(link: &Path) -> bool {
    let target = fs::read_link(link).unwrap_or_default();
    ["anon_inode:[io_uring]", "anon_inode:[fanotify]"].iter().any(|kind| target == Path::new(kind))
}

/// True for what has a name and holds something that could change.
fn is_kept(found: &Metadata) -> bool {
    found.nlink() > 0 && (found.is_file() || found.is_dir() || found.file_type().is_block_device())
}

fn writes(open: BorrowedFd) -> bool {
    rustix::fs::fcntl_getfl(open).is_ok_and(|flags| flags.intersects(OFlags::WRONLY | OFlags::RDWR))
}

/// Opens the same path in the same way, at the same place, under the same number.
fn again(open: BorrowedFd, link: &Path) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(open)?;
    let path = fs::read_link(link)?;
    let reads = !flags.contains(OFlags::WRONLY);
    let kept = flags & (OFlags::APPEND | OFlags::NONBLOCK | OFlags::PATH | OFlags::DIRECTORY);
    let mut file: File =
        OpenOptions::new().read(reads).write(writes(open)).custom_flags(kept.bits() as i32).open(&path)?;
    if fs::metadata(link)?.is_file() && !flags.contains(OFlags::PATH) {
        file.seek(SeekFrom::Start(rustix::fs::tell(open)?))?;
    }
    // SAFETY: both descriptors are open; the first one's number now means what the second one does.
    checked(unsafe { libc::dup2(file.as_raw_fd(), open.as_raw_fd()) }.into()).map(drop)
}
