//! System calls that change files, and what each of them changes.

use libc::c_long;

use super::filter::Rule;

/// Flags of `open` with which something may change.
const WRITES: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// `ioctl`s that change a file or a folder through a descriptor for reading: `FS_IOC_SETFLAGS` (also of 32 bits), `FS_IOC_FSSETXATTR`,
/// `FS_IOC_SETVERSION`, `EXT4_IOC_SETVERSION`, `EXT4_IOC_MIGRATE`, `FS_IOC_ENABLE_VERITY`, `FS_IOC_SET_ENCRYPTION_POLICY`,
/// `FAT_IOCTL_SET_ATTRIBUTES`; those that make, change or remove a subvolume of Btrfs; those that open by a file's number or change
/// attributes by it on XFS; and those that change a file system as a whole: `FIFREEZE`, `FS_IOC_SHUTDOWN`, `FS_IOC_SETFSLABEL`,
/// `EXT4_IOC_RESIZE_FS`, `EXT4_IOC_GROUP_EXTEND`, `EXT4_IOC_SETFSUUID`.
const FLAGS: [u32; 24] = [
    0x4008_6602,
    0x4004_6602,
    0x401c_5820,
    0x4008_7602,
    0x4008_6604,
    0x0000_6609,
    0x4080_6685,
    0x800c_6613,
    0x4004_7211,
    0x5000_9401,
    0x5000_940e,
    0x5000_9417,
    0x5000_9418,
    0x4008_941a,
    0x5000_940f,
    0x5000_943f,
    0xc038_586b,
    0x4048_587b,
    0xc004_5877,
    0x8004_587d,
    0x4100_9432,
    0x4008_6610,
    0x4008_6607,
    0x4008_662c,
];

/// An entry that a call changes, by the numbers of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A path, from the working folder on.
    Path(usize),
    /// A folder's descriptor and a path from there on.
    At(usize, usize),
    /// What is open. A path of null after `At` means that, too.
    Open(usize),
    /// The path in the address of a socket.
    Socket(usize),
}

/// How a call treats a link at the end of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Itself,
    /// Followed unless this argument has one of these flags.
    Unless(usize, u32),
    /// Followed if this argument has this flag.
    If(usize, u32),
    /// As the flags of `open` say.
    ByFlags,
}

/// What a call changes.
pub(super) type Change = (c_long, Rule, &'static [Entry], Links);

const NOFOLLOW: u32 = libc::AT_SYMLINK_NOFOLLOW as u32;

/// The numbers of `setxattrat`, `removexattrat` and `file_setattr`, which the C library does not name yet; of `open_tree_attr` and of
/// `quotactl_fd`.
const NEW: [c_long; 3] = [463, 466, 469];
const OPEN_TREE: c_long = 467;
const QUOTA: c_long = 443;

/// Requests of `ptrace` that take hold of a process: `PTRACE_ATTACH` and `PTRACE_SEIZE` have one of these bits.
const TAKES_HOLD: u32 = 0x4010;

/// Returns the calls that reach into another process, which would then make changes in place of this one.
pub(super) fn reaches() -> [(c_long, Rule); 3] {
    [
        (libc::SYS_ptrace, Rule::AskIfAny(0, TAKES_HOLD)),
        (libc::SYS_process_vm_writev, Rule::Ask),
        (libc::SYS_pidfd_getfd, Rule::Ask),
    ]
}

/// Returns the calls that set limits: that for the file which the system writes when a program crashes must not rise.
pub(super) fn limits() -> [(c_long, Rule); 2] {
    [(libc::SYS_prlimit64, Rule::AskIfGiven(2)), (libc::SYS_setrlimit, Rule::Ask)]
}

/// Returns the calls that change files, by the architecture for which they are known.
#[cfg(target_arch = "x86_64")]
pub(super) fn changes() -> Vec<Change> {
    use Entry::{At, Open, Path, Socket};
    use Links::{ByFlags, Followed, If, Itself, Unless};
    use Rule::{Ask, AskIfAny};
    vec![
        (libc::SYS_open, AskIfAny(1, WRITES), &[Path(0)], ByFlags),
        (libc::SYS_openat, AskIfAny(2, WRITES), &[At(0, 1)], ByFlags),
        (libc::SYS_openat2, Ask, &[At(0, 1)], ByFlags),
        (libc::SYS_creat, Ask, &[Path(0)], ByFlags),
        (libc::SYS_truncate, Ask, &[Path(0)], Followed),
        (libc::SYS_mkdir, Ask, &[Path(0)], Itself),
        (libc::SYS_mkdirat, Ask, &[At(0, 1)], Itself),
        (libc::SYS_rmdir, Ask, &[Path(0)], Itself),
        (libc::SYS_unlink, Ask, &[Path(0)], Itself),
        (libc::SYS_unlinkat, Ask, &[At(0, 1)], Itself),
        (libc::SYS_rename, Ask, &[Path(0), Path(1)], Itself),
        (libc::SYS_renameat, Ask, &[At(0, 1), At(2, 3)], Itself),
        (libc::SYS_renameat2, Ask, &[At(0, 1), At(2, 3)], Itself),
        (libc::SYS_link, Ask, &[Path(0), Path(1)], Itself),
        (libc::SYS_linkat, Ask, &[At(0, 1), At(2, 3)], If(4, libc::AT_SYMLINK_FOLLOW as u32)),
        (libc::SYS_symlink, Ask, &[Path(1)], Itself),
        (libc::SYS_symlinkat, Ask, &[At(1, 2)], Itself),
        (libc::SYS_mknod, Ask, &[Path(0)], Itself),
        (libc::SYS_mknodat, Ask, &[At(0, 1)], Itself),
        (libc::SYS_chmod, Ask, &[Path(0)], Followed),
        (libc::SYS_fchmodat, Ask, &[At(0, 1)], Followed),
        (libc::SYS_fchmodat2, Ask, &[At(0, 1)], Unless(3, NOFOLLOW)),
        (libc::SYS_fchmod, Ask, &[Open(0)], Followed),
        (libc::SYS_chown, Ask, &[Path(0)], Followed),
        (libc::SYS_lchown, Ask, &[Path(0)], Itself),
        (libc::SYS_fchownat, Ask, &[At(0, 1)], Unless(4, NOFOLLOW)),
        (libc::SYS_fchown, Ask, &[Open(0)], Followed),
        (libc::SYS_utime, Ask, &[Path(0)], Followed),
        (libc::SYS_utimes, Ask, &[Path(0)], Followed),
        (libc::SYS_futimesat, Ask, &[At(0, 1)], Followed),
        (libc::SYS_utimensat, Ask, &[At(0, 1)], Unless(3, NOFOLLOW)),
        (libc::SYS_setxattr, Ask, &[Path(0)], Followed),
        (libc::SYS_lsetxattr, Ask, &[Path(0)], Itself),
        (libc::SYS_fsetxattr, Ask, &[Open(0)], Followed),
        (libc::SYS_removexattr, Ask, &[Path(0)], Followed),
        (libc::SYS_lremovexattr, Ask, &[Path(0)], Itself),
        (libc::SYS_fremovexattr, Ask, &[Open(0)], Followed),
        (NEW[0], Ask, &[At(0, 1)], Unless(2, NOFOLLOW)),
        (NEW[1], Ask, &[At(0, 1)], Unless(2, NOFOLLOW)),
        (NEW[2], Ask, &[At(0, 1)], Unless(4, NOFOLLOW)),
        (libc::SYS_bind, Ask, &[Socket(1)], Itself),
    ]
}

/// Nothing is known of other architectures, so that this way does not work there.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn changes() -> Vec<Change> {
    Vec::new()
}

/// Returns the calls that no process of a run may make, because their change could not be seen.
pub(super) fn refused() -> Vec<(c_long, Rule)> {
    let forbidden = Rule::Fails(libc::EPERM);
    let mut rules: Vec<(c_long, Rule)> = [
        libc::SYS_open_by_handle_at,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        OPEN_TREE,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_fsmount,
        libc::SYS_mount_setattr,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_quotactl,
        QUOTA,
        libc::SYS_acct,
        // Its events bring descriptors of files that are open for writing.
        libc::SYS_fanotify_init,
        libc::SYS_setns,
    ]
    .map(|number| (number, forbidden))
    .into();
    let ring = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    rules.extend(ring.map(|number| (number, Rule::Missing)));
    rules.extend(FLAGS.map(|flags| (libc::SYS_ioctl, Rule::FailsIfIs(1, flags, libc::EPERM))));
    rules
}
