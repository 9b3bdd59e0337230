//! Temporary folder of a run: links to the library, the code that Python loads, and the files that the script's processes write.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use lab_base::error::{Error, Result};
use lab_imports::published;
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use super::contract::{self, Settings};
use super::left_folders;
use super::library::NAME;
use super::processes::ASK;
use super::protect::{Layer, remove_folder};
use super::request::{LEAST_STEPS, MOST_SECONDS, MOST_STEPS, Request};
use super::world::VARIABLES;

/// Name of the folder of the answers.
const ANSWERS: &str = "answers";

/// Names under which programs look for the driver and for NVML. Links with these names exist only in this folder: a program outside
/// of a rehearsal must never find them.
const LINKS: [&str; 3] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"];

/// Contents of `sitecustomize.py`, which Python imports at its start. The program beside it is compiled without a file name, like the
/// interpreter's own code, so that a search for the script's lines skips it.
const START: &str = "import os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'boot.py'), encoding='utf-8') as _file:
    exec(compile(_file.read(), '<vramlab>', 'exec'))
";

/// Maximum number of events that PyTorch keeps for a snapshot.
const ENTRIES: u64 = 1_000_000;

/// Refuses a folder whose path the system's loader cannot take: it splits its lists of files at some characters.
///
/// # Errors
/// [`Error::Usage`] naming `TMPDIR`.
pub(super) fn check_path(folder: &Path) -> Result<()> {
    let path = folder.to_str().unwrap_or_default();
    if path.is_empty() || path.contains([' ', ':', ';', '\t', '\n']) {
        let problem = format!("{} has characters that the system's loader cannot take", folder.display());
        return Err(Error::usage("TMPDIR", problem));
    }
    Ok(())
}

/// Links the library into a folder, under its own name, which is returned, and under those of the driver and of NVML.
pub(super) fn link_library(library: &Path, folder: &Path) -> std::io::Result<PathBuf> {
    let own = folder.join(NAME);
    symlink(library, &own)?;
    LINKS.iter().try_for_each(|name| symlink(NAME, folder.join(name)))?;
    Ok(own)
}

/// Temporary folder. It is deleted when this is dropped.
pub(super) struct Folder {
    root: TempDir,
    /// The folder of the answers: a script may put a link in its place.
    told: OwnedFd,
    /// A lock on the folder, as long as this process or its keeper lives.
    _held: fs::File,
}

impl Folder {
    /// Makes the folder and fills it.
    ///
    /// # Errors
    /// A folder for temporary files that cannot be used, or whose path the system's loader cannot take.
    pub(super) fn make(library: &Path, request: &Request) -> Result<Self> {
        let place = place();
        let cannot = |error: std::io::Error| {
            let problem = format!("{}: {error}; TMPDIR names another one", place.display());
            Error::host("the folder for temporary files", problem)
        };
        left_folders::remove_left(&place);
        let root = tempfile::Builder::new().prefix(left_folders::PREFIX).tempdir_in(&place).map_err(cannot)?;
        let held = left_folders::hold(root.path()).map_err(cannot)?;
        let answers = root.path().join(ANSWERS);
        let told = fs::create_dir(&answers).and_then(|()| Ok(OwnedFd::from(fs::File::open(&answers)?)));
        let folder = Self { root, told: told.map_err(cannot)?, _held: held };
        check_path(folder.path())?;
        folder.fill(library, request).map_err(cannot)?;
        Ok(folder)
    }

    fn fill(&self, library: &Path, request: &Request) -> std::io::Result<()> {
        link_library(library, self.path())?;
        let own = [self.python(), self.files(), self.meeting(), self.programs(), self.layers()];
        for folder in own.into_iter().chain([self.temporary()]) {
            fs::create_dir(folder)?;
        }
        fs::write(self.last_written(), "\n")?;
        let program = self.programs().join("nvidia-smi");
        fs::write(&program, rehearsal_python::NVIDIA_SMI)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        fs::write(self.python().join("sitecustomize.py"), START)?;
        fs::write(self.python().join("boot.py"), rehearsal_python::boot())?;
        let settled = contract::Settled { least: LEAST_STEPS, most: MOST_STEPS, seconds: MOST_SECONDS };
        let settings = Settings {
            answers: self.answers(),
            steps: request.stop.steps,
            until: request.stop.until.clone(),
            settled: request.stop.settled.then_some(settled),
            stacks: request.stacks,
            phases: request.phases,
            values: request.values,
            known: self.python().join("known.json"),
            make_data: request.make_data,
            entries: ENTRIES,
            world: request.world.as_ref().map(|world| contract::World {
                size: world.size,
                started: world.ranks.clone(),
                meet: self.meeting(),
                variables: VARIABLES.into(),
            }),
            signal: ASK,
        };
        fs::write(self.python().join("settings.json"), serde_json::to_string(&settings)?)?;
        fs::write(settings.known, serde_json::to_string(&published::files_by_name())?)
    }

    /// Says that there is no room for what the run writes, if that is so; `layers` is where the script's files go. `failed` is a path whose change
    /// found none, though there may be some again.
    pub(super) fn lacks_room(&self, layers: &[Layer], failed: Option<&str>) -> Option<String> {
        let places = [self.path()].into_iter().chain(layers.iter().map(|layer| layer.upper.as_path()));
        let is_full = places.into_iter().any(is_full);
        (is_full || failed.is_some()).then(|| {
            let parent = self.path().parent().unwrap_or(self.path()).display();
            let change = failed.map(|path| format!(" for a change of {path}")).unwrap_or_default();
            format!(
                "no room was left in {parent} (TMPDIR){change}, where what the script writes is kept during the run: it may have failed, \
                 or told too little, because of that"
            )
        })
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        self.root.path()
    }

    /// Returns the path under which the library is preloaded.
    pub(super) fn library(&self) -> PathBuf {
        self.path().join(NAME)
    }

    /// Returns the folder that Python searches first for modules.
    pub(super) fn python(&self) -> PathBuf {
        self.path().join("python")
    }

    /// Returns the folder of programs that stand in for those of the driver.
    pub(super) fn programs(&self) -> PathBuf {
        self.path().join("bin")
    }

    /// Returns the folder into which processes write their answers.
    pub(super) fn answers(&self) -> PathBuf {
        self.path().join(ANSWERS)
    }

    /// Tells processes that all ranks are done, by a file. Nothing that a script has put there is followed or replaced.
    pub(super) fn say_stop(&self) {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        // If it cannot be made, each rank waits for its own maximum time.
        let _waiting = rustix::fs::openat(&self.told, contract::STOP, flags, Mode::from_bits_truncate(0o600));
    }

    /// Returns the path of the library's log, which lists what it could not answer as a card does.
    pub(super) fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    /// Returns the path of the file that holds the last byte of the script's output.
    pub(super) fn last_written(&self) -> PathBuf {
        self.path().join("last-written")
    }

    /// True if the script's output ends within a line.
    pub(super) fn ends_within_a_line(&self) -> bool {
        let plain = || fs::symlink_metadata(self.last_written()).is_ok_and(|about| about.is_file() && about.len() == 1);
        plain() && fs::read(self.last_written()).is_ok_and(|last| last != b"\n")
    }

    /// Returns the path of the file through which the processes of one machine share its cards.
    pub(super) fn shared(&self, machine: u32) -> PathBuf {
        self.path().join(format!("shared-{machine}"))
    }

    /// Returns the folder through which ranks exchange data.
    pub(super) fn meeting(&self) -> PathBuf {
        self.path().join("meeting")
    }

    /// Returns the folder for upper layers, which hold what the script writes.
    pub(super) fn layers(&self) -> PathBuf {
        self.path().join("layers")
    }

    /// Returns the run's own folder for temporary files, for where it can write in no other.
    pub(super) fn temporary(&self) -> PathBuf {
        self.path().join("tmp")
    }

    /// Returns the folder for copies of the files that the script would write.
    pub(super) fn files(&self) -> PathBuf {
        self.path().join("files")
    }
}

/// Less free memory of a disk than this number of bytes is none.
const LEAST_ROOM: u64 = 256 << 10;

/// True if nothing more can be written to the file system of a folder.
fn is_full(folder: &Path) -> bool {
    let Ok(found) = rustix::fs::statvfs(folder) else { return false };
    let no_blocks = found.f_blocks > 0 && found.f_bavail.saturating_mul(found.f_frsize) < LEAST_ROOM;
    no_blocks || found.f_files > 0 && found.f_favail == 0
}

/// Returns the folder for temporary files. If it lies in the working folder, where nothing must change, returns another one if there is one.
fn place() -> PathBuf {
    let temporary = std::env::temp_dir();
    let is_outside = |path: &Path| {
        let working = std::env::current_dir().and_then(|folder| folder.canonicalize()).unwrap_or_default();
        path.canonicalize().is_ok_and(|path| !path.starts_with(working))
    };
    let is_usable = |path: &Path| is_outside(path) && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let others = [PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    let other = (!is_outside(&temporary)).then(|| others.into_iter().find(|path| is_usable(path))).flatten();
    other.unwrap_or(temporary)
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The temporary folder's own removal fails where a script left folders without rights.
        remove_folder(self.path());
    }
}

#[cfg(test)]
mod tests {
    use super::super::damaged;
    use super::*;

    #[test]
    fn a_link_in_place_of_the_answers_leads_nowhere() {
        let users = tempfile::tempdir().unwrap();
        let folder = Folder::make(Path::new("/nonexistent"), &damaged::request()).unwrap();
        fs::rename(folder.answers(), folder.path().join("away")).unwrap();
        symlink(users.path(), folder.answers()).unwrap();
        folder.say_stop();
        folder.say_stop();
        assert_eq!(fs::read_dir(users.path()).unwrap().count(), 0, "the user's folder");
        assert!(folder.path().join("away").join(contract::STOP).exists());
    }
}
