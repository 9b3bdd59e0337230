//! Which folders get an overlay, from the list of mounts.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Maximum number of overlays. A folder that many mounts lie below takes one for each of its own folders.
const MAX_TREES: usize = 400;

/// File systems that hold no files of a user, or that a program mounts when a folder is looked at.
const PSEUDO: [&str; 21] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// Folders of the system, below which nothing is a user's file.
const OF_THE_SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Folders of container engines, with a mount for each container. They become read-only.
const OF_ENGINES: [&str; 7] = [
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/run/containerd",
    "/run/docker",
    "/run/netns",
];

/// A mount, as the system lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) point: PathBuf,
    kind: String,
    read_only: bool,
}

/// Reads a list in the form of `/proc/self/mountinfo`. The last of several mounts on one point counts: it hides the others.
pub(super) fn read(list: &[u8]) -> Vec<Mount> {
    let mut found: Vec<Mount> = Vec::new();
    for line in list.split(|byte| *byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(dash) = words.iter().position(|word| *word == b"-") else { continue };
        let (Some(point), Some(options), Some(kind)) = (words.get(4), words.get(5), words.get(dash + 1)) else {
            continue;
        };
        let point = PathBuf::from(OsString::from_vec(plain(point)));
        let mut options =
            options.split(|byte| *byte == b',').chain(words.last().unwrap_or(&&b""[..]).split(|b| *b == b','));
        let mount = Mount {
            point,
            kind: String::from_utf8_lossy(kind).into(),
            read_only: options.any(|option| option == b"ro"),
        };
        found.retain(|before| before.point != mount.point);
        found.push(mount);
    }
    found
}

/// Replaces `\040` and the like by the character.
fn plain(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let number = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(number.unwrap_or(text[at]));
        at += if number.is_some() { 4 } else { 1 };
    }
    out
}

/// What is done with the mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Folders without a mount below them, each of which gets an overlay.
    pub(super) trees: Vec<PathBuf>,
    /// Mounts that become read-only: what no overlay covers can then not change.
    pub(super) read_only: Vec<PathBuf>,
}

/// Decides by a list of mounts. `None` if it would take too many overlays.
pub(super) fn plan(mounts: &[Mount]) -> Option<Plan> {
    let mut found = Plan::default();
    for mount in mounts {
        if mount.read_only || PSEUDO.contains(&mount.kind.as_str()) || is_of_the_system(&mount.point) {
            continue;
        }
        // A mount that another one hides is not reached by its path, and neither are its files.
        if mount.point.is_dir() && !is_of_an_engine(&mount.point) {
            cover(&mount.point, mounts, &mut found.trees);
        }
        found.read_only.push(mount.point.clone());
    }
    (found.trees.len() <= MAX_TREES).then_some(found)
}

fn is_of_the_system(path: &Path) -> bool {
    OF_THE_SYSTEM.iter().any(|folder| path.starts_with(folder))
}

fn is_of_an_engine(path: &Path) -> bool {
    OF_ENGINES.iter().any(|folder| path.starts_with(folder))
}

/// Adds a folder, or, where mounts lie below it, its own folders.
fn cover(folder: &Path, mounts: &[Mount], trees: &mut Vec<PathBuf>) {
    if trees.len() > MAX_TREES || is_of_an_engine(folder) || is_of_the_system(folder) {
        return;
    }
    if !mounts.iter().any(|mount| mount.point != folder && mount.point.starts_with(folder)) {
        trees.push(folder.into());
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_mount = mounts.iter().any(|mount| mount.point == path);
        if !is_mount && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cover(&path, mounts, trees);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw - proc proc rw
23 21 0:6 / ROOT/with\\040space rw - tmpfs tmpfs rw
24 21 0:7 / ROOT/a/b rw master:2 - ext4 /dev/sdb rw
25 21 0:8 / ROOT/read-only ro - ext4 /dev/sdc rw
26 21 0:9 / ROOT/auto rw - autofs auto rw
27 21 0:9 / ROOT/with\\040space rw - tmpfs tmpfs ro
";

    #[test]
    fn each_folder_without_a_mount_below_it_gets_an_overlay() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["with space", "a/b/c", "a/other", "read-only", "auto", "plain/deep"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("a/file"), "").unwrap();
        let list = LIST.replace("ROOT", root.path().to_str().unwrap());
        let mounts = read(list.as_bytes());
        let at = |name: &str| root.path().join(name);
        let (first, last) = (&mounts[0], mounts.last().unwrap());
        assert_eq!((first.point.as_path(), first.kind.as_str(), first.read_only), (Path::new("/"), "ext4", false));
        assert_eq!((&last.point, last.read_only), (&at("with space"), true), "the last of two counts");
        // The root of this machine is the folder: how many others lie beside it must not matter.
        let here = |mount: &Mount| Mount {
            point: if mount.point == Path::new("/") { root.path().into() } else { mount.point.clone() },
            ..mount.clone()
        };
        let plan = plan(&mounts.iter().map(here).collect::<Vec<_>>()).unwrap();
        for covered in ["a/b", "a/other", "plain"] {
            assert!(plan.trees.contains(&at(covered)), "{covered}: {plan:?}");
        }
        for other in ["a", "with space", "read-only", "auto", "plain/deep", "a/b/c"] {
            assert!(!plan.trees.contains(&at(other)), "{other}: {plan:?}");
        }
        let mut trees = Vec::new();
        ["/proc", "/dev", "/sys"].iter().for_each(|folder| cover(Path::new(folder), &mounts, &mut trees));
        assert!(!plan.trees.iter().chain(&trees).any(|tree| is_of_the_system(tree)), "{plan:?}");
        assert_eq!(plan.read_only, [root.path().into(), at("a/b")]);
    }
}
