//! Enters a mount namespace in which all writes go to upper layers.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::mounts::{self, Plan};
use super::policy::is_disk;
use super::system::{make_all_read_only, make_read_only, mount, path_of, place, unshare};
use super::way::Wanted;

/// Maximum number of sockets of other programs that stay reachable.
const MAX_SOCKETS: usize = 300;

/// Maximum number of disks that are hidden.
const MAX_DISKS: usize = 200;

/// Shared memory of processes. Each run gets its own.
const SHARED_MEMORY: &str = "/dev/shm";

/// Options of an overlay, best first: `volatile` makes nothing wait for the disk; `userxattr` is for those who are not root.
const OPTIONS: [&str; 4] = [",userxattr,volatile", ",userxattr", ",volatile", ""];

/// What was entered.
#[derive(Clone, Debug, Default)]
pub(super) struct Entered {
    /// Folders with an overlay. The upper layer of each is in the folder of its number.
    pub(super) trees: Vec<PathBuf>,
    /// True if the layers lie in memory, and only this process and its children see them.
    pub(super) inside: bool,
    /// What has no overlay, and why. It is read-only.
    pub(super) lacks: Vec<String>,
}

/// Returns the path of an upper layer in the folder of the layers.
pub(super) fn upper(layers: &Path, number: usize) -> PathBuf {
    layers.join(number.to_string()).join("upper")
}

/// Places that stay as they are. They are opened before overlays hide them.
struct Open {
    path: PathBuf,
    place: OwnedFd,
    is_folder: bool,
}

/// Enters the namespace. This process must have a single thread, and is of no other use if this fails.
///
/// # Errors
/// What the system refuses.
pub(super) fn enter(wanted: &Wanted) -> io::Result<Entered> {
    let was_writable = is_writable(&wanted.working);
    isolate()?;
    let list = fs::read("/proc/self/mountinfo")?;
    let plan = mounts::plan(&mounts::read(&list)).ok_or_else(|| io::Error::other("too many mounts"))?;
    let open = opened(wanted, &plan)?;
    // What stays as it is needs no overlay of its own, and a recursive bind would bring the overlay along.
    let stays: Vec<PathBuf> = open.iter().filter_map(|one| fs::canonicalize(&one.path).ok()).collect();
    let trees = plan.trees.iter().filter(|tree| !stays.contains(tree)).cloned().collect();
    let entered = Layers::over(wanted, trees)?;
    give_shared_memory(wanted)?;
    for one in &open {
        if let Err(error) = bind(one) {
            // The script sees the overlay's folder there, which is protected too. The run's own folder must be real.
            if one.path == wanted.run {
                return Err(error);
            }
        }
    }
    let mut lacks = Vec::new();
    for point in plan.read_only.iter().filter(|point| !entered.trees.contains(point)) {
        if let Err(error) = make_read_only(point) {
            lacks.push(format!("{}: {error}", point.display()));
        }
    }
    hide_the_system();
    std::env::set_current_dir(&wanted.working)?;
    if was_writable && !takes_files(&wanted.working) {
        return Err(io::Error::other("no overlay over the working folder is possible"));
    }
    Ok(Entered { lacks: entered.lacks.into_iter().chain(lacks).collect(), ..entered })
}

/// Takes a mount namespace: with a user namespace, in which this user is the only one, unless the user may mount anyway.
fn isolate() -> io::Result<()> {
    if unshare(libc::CLONE_NEWNS).is_err() {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    mount(Path::new("none"), Path::new("/"), "", libc::MS_REC | libc::MS_PRIVATE, "")
}

/// True if a file can be made in a folder. To have the right is not enough: the system must be able to copy the folder.
fn takes_files(folder: &Path) -> bool {
    let trial = folder.join(format!(".vramlab-{}", std::process::id()));
    is_writable(folder) && fs::File::create_new(&trial).is_ok() && fs::remove_file(&trial).is_ok()
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Opens what stays as it is: the run's folder, caches, and sockets of other programs, which nobody answers through an overlay.
fn opened(wanted: &Wanted, plan: &Plan) -> io::Result<Vec<Open>> {
    let mut found = vec![Open { path: wanted.run.clone(), place: place(&wanted.run, true)?, is_folder: true }];
    for path in &wanted.caches {
        if let Ok(place) = place(path, true) {
            found.push(Open { path: path.clone(), place, is_folder: true });
        }
    }
    let list = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets =
        list.lines().filter_map(|line| line.split_once(" /").map(|(_, path)| PathBuf::from(format!("/{path}"))));
    let is_hidden = |path: &PathBuf| plan.trees.iter().any(|tree| path.starts_with(tree));
    let is_socket = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let mut sockets: Vec<PathBuf> = sockets.filter(is_hidden).filter(is_socket).collect();
    sockets.sort();
    sockets.dedup();
    for path in sockets.into_iter().take(MAX_SOCKETS) {
        if let Ok(place) = place(&path, false) {
            found.push(Open { path, place, is_folder: false });
        }
    }
    Ok(found)
}

fn bind(open: &Open) -> io::Result<()> {
    if open.is_folder {
        fs::create_dir_all(&open.path)?;
    }
    mount(&path_of(open.place.as_fd()), &open.path, "", libc::MS_BIND | libc::MS_REC, "")
}

/// Gives the run shared memory of its own. What other programs have there is hidden.
fn give_shared_memory(wanted: &Wanted) -> io::Result<()> {
    let path = Path::new(SHARED_MEMORY);
    if !path.is_dir() || wanted.working.starts_with(path) {
        return Ok(());
    }
    let found = rustix::fs::statvfs(path)?;
    let size = found.f_blocks.saturating_mul(found.f_frsize);
    mount(Path::new("tmpfs"), path, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &format!("mode=1777,size={size}"))
}

/// Settings of the system and the list of devices become read-only, and disks are hidden, as far as this user could change them.
fn hide_the_system() {
    let settings = Path::new("/proc/sys");
    // Without success, only root may write there.
    let _as_before =
        mount(settings, settings, "", libc::MS_BIND | libc::MS_REC, "").and_then(|()| make_all_read_only(settings));
    let _as_before = make_all_read_only(Path::new("/sys"));
    let devices = Path::new("/dev");
    let folders = [devices.to_path_buf(), devices.join("mapper"), devices.join("bsg")];
    let entries = folders.into_iter().flat_map(fs::read_dir).flatten().flatten();
    let is_one = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| is_disk(&found, path));
    for disk in entries.map(|entry| entry.path()).filter(is_one).filter(|disk| is_writable(disk)).take(MAX_DISKS) {
        let _as_before = mount(&devices.join("null"), &disk, "", libc::MS_BIND, "");
    }
    // Devices are written to as before. Their modes, and what else lies there, are those of all users.
    let _as_before = make_read_only(devices).or_else(|_| {
        mount(devices, devices, "", libc::MS_BIND | libc::MS_REC, "")?;
        make_read_only(devices)
    });
}

/// Folder of the upper layers while overlays are made.
struct Layers<'a> {
    wanted: &'a Wanted,
    folder: OwnedFd,
    options: Option<&'static str>,
    inside: bool,
}

impl<'a> Layers<'a> {
    /// Puts an overlay over each of these folders.
    fn over(wanted: &'a Wanted, mut trees: Vec<PathBuf>) -> io::Result<Entered> {
        if wanted.working.starts_with(SHARED_MEMORY) {
            trees.push(SHARED_MEMORY.into());
        }
        // The first one shows what is possible.
        trees.sort_by_key(|tree| !wanted.working.starts_with(tree));
        let folder = place(&wanted.layers, true)?;
        let mut layers = Self { wanted, folder, options: None, inside: false };
        let mut entered = Entered::default();
        for tree in trees {
            match layers.add(&tree, entered.trees.len()) {
                Ok(()) => entered.trees.push(tree),
                Err(error) if entered.trees.is_empty() => return Err(error),
                Err(error) => entered.lacks.push(format!("{}: {error}", tree.display())),
            }
        }
        entered.inside = layers.inside;
        Ok(entered)
    }

    fn add(&mut self, tree: &Path, number: usize) -> io::Result<()> {
        if self.options.is_some() {
            return self.mount(tree, number, self.options.unwrap_or_default());
        }
        let first = self.find_options(tree, number);
        if first.is_ok() {
            return first;
        }
        // Layers cannot lie on an overlay, as that of a container, but in memory they can.
        mount(Path::new("tmpfs"), &self.wanted.layers, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, "mode=0700")?;
        self.folder = place(&self.wanted.layers, true)?;
        self.inside = true;
        self.find_options(tree, number)
    }

    fn find_options(&mut self, tree: &Path, number: usize) -> io::Result<()> {
        let mut last = Ok(());
        for options in OPTIONS {
            last = self.mount(tree, number, options);
            if last.is_ok() {
                self.options = Some(options);
                break;
            }
        }
        last
    }

    fn mount(&self, tree: &Path, number: usize, options: &str) -> io::Result<()> {
        // By their descriptors, because the folder lies below an overlay soon, and names may have characters that options do not take.
        let layers = path_of(self.folder.as_fd());
        let (upper, work) = (upper(&layers, number), layers.join(number.to_string()).join("work"));
        for folder in [&upper, &work] {
            fs::create_dir_all(folder)?;
        }
        let lower = place(tree, true)?;
        let lower = path_of(lower.as_fd());
        let reached = self.wanted.reached.iter().filter_map(|folder| folder.strip_prefix(tree).ok());
        prepare(&lower, &upper, reached)?;
        let data =
            format!("lowerdir={},upperdir={},workdir={}{options}", lower.display(), upper.display(), work.display());
        mount(Path::new("overlay"), tree, "overlay", 0, &data)
    }
}

/// Makes the folders of an upper layer that the system would not make: in a user namespace it copies no folder of another user or group,
/// not even to make an entry somewhere below it. `reached` are the folders to which there must be a way, from the tree on.
fn prepare<'a>(lower: &Path, upper: &Path, reached: impl Iterator<Item = &'a Path>) -> io::Result<()> {
    let mut made = vec![PathBuf::new()];
    for folder in reached.filter(|_| !rustix::process::geteuid().is_root()) {
        let parts: Vec<PathBuf> = folder.ancestors().map(Path::to_path_buf).collect();
        // From the deepest one on; those around it must be there, too.
        let foreign = parts.iter().position(|part| is_of_others(&lower.join(part))).unwrap_or(parts.len());
        made.extend_from_slice(&parts[foreign..]);
    }
    made.sort();
    made.dedup();
    for folder in &made {
        fs::create_dir_all(upper.join(folder))?;
    }
    // The inner ones first, because an entry that is made changes the time of its folder.
    made.iter().rev().try_for_each(|folder| take_attributes(&lower.join(folder), &upper.join(folder)))
}

fn is_of_others(path: &Path) -> bool {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    fs::symlink_metadata(path).is_ok_and(|found| (found.uid(), found.gid()) != own)
}

/// Gives an upper layer the attributes of the folder below it: the overlay shows those of the upper one.
fn take_attributes(lower: &Path, upper: &Path) -> io::Result<()> {
    let found = fs::metadata(lower)?;
    let mut mode = found.mode() & 0o7777;
    if std::os::unix::fs::chown(upper, Some(found.uid()), Some(found.gid())).is_err() {
        // Another user's folder: everybody gets what this user has.
        let may = |what| rustix::fs::access(lower, what).is_ok();
        use rustix::fs::Access;
        let class = [(Access::READ_OK, 4), (Access::WRITE_OK, 2), (Access::EXEC_OK, 1)];
        let class: u32 = class.into_iter().filter(|(what, _)| may(*what)).map(|(_, bit)| bit).sum();
        mode = (mode & 0o7000) | (class * 0o111);
    }
    fs::set_permissions(upper, fs::Permissions::from_mode(mode))?;
    let time = |seconds, nanoseconds| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = rustix::fs::Timestamps {
        last_access: time(found.atime(), found.atime_nsec() as _),
        last_modification: time(found.mtime(), found.mtime_nsec() as _),
    };
    rustix::fs::utimensat(rustix::fs::CWD, upper, &times, rustix::fs::AtFlags::empty())?;
    Ok(())
}
