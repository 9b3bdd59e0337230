//! Stamps: a step that passed is not run again until something that it depends on has changed.
//!
//! A stamp is an empty file in the build folder. Its name is a checksum of everything that the step reads: programs by their bytes, files by
//! their contents, tools and drivers by the versions of the system's packages. `cargo xtask test --full` runs every step.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::artifact::target_folder;

/// Everything on which a step depends, as a checksum.
#[derive(Default)]
pub(crate) struct Inputs(DefaultHasher);

/// Variables that choose drivers, devices and tools.
const VARIABLES: [&str; 9] = [
    "CUDA_EMULATOR",
    "LD_LIBRARY_PATH",
    "OCL_ICD_VENDORS",
    "PATH",
    "RAYON_NUM_THREADS",
    "REQUIRE_DEVICE",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "WGPU_BACKEND",
];

impl Inputs {
    /// The processor, the kernel's NVIDIA driver, every package of the system with its version, and the variables that choose among
    /// them. `None` on a system whose packages cannot be listed: a driver may have changed there.
    pub(crate) fn of_this_machine() -> Option<Self> {
        let packages =
            Command::new("dpkg-query").args(["--show"]).output().ok().filter(|output| output.status.success())?;
        let cores = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = ["model name", "flags"]
            .map(|field| cores.lines().find(|line| line.starts_with(field)).unwrap_or_default().to_string());
        let nvidia = std::fs::read("/proc/driver/nvidia/version").unwrap_or_default();
        let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("VRAMLAB_"));
        let own: BTreeMap<OsString, OsString> = own.collect();
        let inputs = Self::default().value(packages.stdout).value(processor).value(nvidia).value(own);
        Some(inputs.value(VARIABLES.map(std::env::var_os)))
    }

    /// Adds a value, such as the arguments of a command.
    pub(crate) fn value(mut self, value: impl Hash) -> Self {
        value.hash(&mut self.0);
        self
    }

    /// Adds the contents of a file, or of every file below a folder with its path. Caches of Python are left out.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn files(mut self, path: &Path) -> anyhow::Result<Self> {
        self.add(path, path)?;
        Ok(self)
    }

    fn add(&mut self, root: &Path, path: &Path) -> anyhow::Result<()> {
        let context = || format!("{}", path.display());
        if path.file_name().is_some_and(|name| name == "__pycache__") {
            return Ok(());
        }
        if path.is_dir() {
            let entries = std::fs::read_dir(path).with_context(context)?;
            let mut entries: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
            entries.sort();
            return entries.iter().try_for_each(|entry| self.add(root, entry));
        }
        path.strip_prefix(root).unwrap_or(path).hash(&mut self.0);
        std::fs::read(path).with_context(context)?.hash(&mut self.0);
        Ok(())
    }

    /// Adds what a command prints, such as a compiler's version; nothing if it does not start.
    pub(crate) fn output(mut self, program: &Path, args: &[&str]) -> Self {
        let output = Command::new(program).args(args).output();
        output.ok().map(|output| (output.stdout, output.stderr)).hash(&mut self.0);
        self
    }

    /// The stamp of a step with these inputs.
    pub(crate) fn stamp(self, root: &Path, step: &str) -> Stamp {
        let stamps = target_folder(root).join("xtask-stamps");
        Stamp(stamps.join(format!("{step}-{:016x}", self.0.finish())))
    }
}

/// A file that says that a step passed.
pub(crate) struct Stamp(PathBuf);

impl Stamp {
    /// True if the step passed with the same inputs.
    pub(crate) fn is_set(&self) -> bool {
        self.0.exists()
    }

    /// Says that the step passed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn set(&self) -> anyhow::Result<()> {
        let context = || format!("{}", self.0.display());
        std::fs::create_dir_all(self.0.parent().unwrap_or(Path::new("."))).with_context(context)?;
        std::fs::write(&self.0, "").with_context(context)
    }
}

#[cfg(test)]
mod tests {
    use super::Inputs;

    #[test]
    fn a_stamp_holds_until_an_input_changes() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("inputs");
        std::fs::create_dir_all(folder.join("__pycache__")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("a.py", "1");
        let stamp = |mode: &str| {
            let inputs = Inputs::default().value(mode).files(&folder).unwrap();
            // Not CARGO_TARGET_DIR, which may be set: the checksum is in the name.
            inputs.stamp(root.path(), "step").0.file_name().unwrap().to_owned()
        };
        let first = stamp("races");
        assert_eq!(stamp("races"), first);
        assert_ne!(stamp("turing"), first);
        write("__pycache__/a.pyc", "compiled");
        assert_eq!(stamp("races"), first);
        write("a.py", "2");
        assert_ne!(stamp("races"), first);
        write("a.py", "1");
        assert_eq!(stamp("races"), first);
        write("b.py", "");
        assert_ne!(stamp("races"), first);
    }
}
