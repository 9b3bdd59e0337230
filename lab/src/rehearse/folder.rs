//! The run's temporary folder: links to the library, what Python loads, and what the script's processes write.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lab_base::error::{Error, Result};
use serde_json::json;
use tempfile::TempDir;

use super::library::NAME;
use super::processes::ASK;
use super::request::Request;

/// Names under which programs look for the driver and for NVML. Links under them lie nowhere else: a program that is no
/// rehearsal must never find them.
const LINKS: [&str; 3] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"];

/// What each Python of the run executes at its start.
const BOOT: &str = concat!(
    include_str!("boot/start.py"),
    include_str!("boot/roles.py"),
    include_str!("boot/answer.py"),
    include_str!("boot/world.py"),
    include_str!("boot/watch.py"),
    include_str!("boot/withhold.py"),
    include_str!("boot/end.py"),
);

/// What Python finds as `sitecustomize`. The code has no file's name, as code of the interpreter's own: whoever looks for
/// the script's lines passes over it.
const START: &str = "import os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'boot.py'), encoding='utf-8') as _file:
    exec(compile(_file.read(), '<vramlab>', 'exec'))
";

/// The most events that PyTorch keeps for a snapshot.
const ENTRIES: usize = 1_000_000;

/// The folder; it goes when this is dropped.
pub(super) struct Folder {
    root: TempDir,
}

impl Folder {
    /// # Errors
    /// A folder for temporary files that cannot be used.
    pub(super) fn make(library: &Path, request: &Request) -> Result<Self> {
        let cannot = |error: std::io::Error| Error::host("the folder for temporary files", error.to_string());
        let root = tempfile::Builder::new().prefix("vramlab-rehearsal-").tempdir().map_err(cannot)?;
        let folder = Self { root };
        let path = folder.path().to_str().unwrap_or_default();
        // The loader's lists of files are split there.
        if path.is_empty() || path.contains([' ', ':', ';', '\t', '\n']) {
            let problem = format!("{} has characters that the system's loader cannot take", folder.path().display());
            return Err(Error::usage("TMPDIR", problem));
        }
        folder.fill(library, request).map_err(cannot)?;
        Ok(folder)
    }

    fn fill(&self, library: &Path, request: &Request) -> std::io::Result<()> {
        symlink(library, self.library())?;
        for name in LINKS {
            symlink(NAME, self.path().join(name))?;
        }
        for folder in [self.python(), self.answers(), self.files(), self.meeting()] {
            fs::create_dir(folder)?;
        }
        fs::write(self.python().join("sitecustomize.py"), START)?;
        fs::write(self.python().join("boot.py"), BOOT)?;
        let settings = json!({
            "answers": self.answers(),
            "steps": request.stop.steps,
            "until": request.stop.until,
            "stacks": request.stacks,
            "values": request.values,
            "entries": ENTRIES,
            "world": request.world.as_ref().map(|world| world.settings(&self.meeting())),
            "signal": ASK,
        });
        fs::write(self.python().join("settings.json"), settings.to_string())
    }

    /// The folder itself.
    pub(super) fn path(&self) -> &Path {
        self.root.path()
    }

    /// The library, as it is preloaded.
    pub(super) fn library(&self) -> PathBuf {
        self.path().join(NAME)
    }

    /// What Python looks into before anything else.
    pub(super) fn python(&self) -> PathBuf {
        self.path().join("python")
    }

    /// Where processes write what they have to say.
    pub(super) fn answers(&self) -> PathBuf {
        self.path().join("answers")
    }

    /// Where processes find that all ranks have come as far as they should.
    pub(super) fn stop(&self) -> PathBuf {
        self.answers().join("stop")
    }

    /// What the library could not answer as a card does.
    pub(super) fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    /// Through which processes of one machine share its cards.
    pub(super) fn shared(&self, machine: u32) -> PathBuf {
        self.path().join(format!("shared-{machine}"))
    }

    /// Where ranks meet.
    pub(super) fn meeting(&self) -> PathBuf {
        self.path().join("meeting")
    }

    /// Copies of what the script would write.
    pub(super) fn files(&self) -> PathBuf {
        self.path().join("files")
    }
}
