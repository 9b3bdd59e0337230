//! The package of Python in a folder, with the request for one network.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lab_base::error::{Error, Result};
use serde_json::Value;
use tempfile::TempDir;

use super::chosen::{Graph, Told};

/// Files of the package, beside `__main__.py`.
const PACKAGE: [(&str, &str); 19] = [
    ("__init__.py", include_str!("driver/vramlab_driver/__init__.py")),
    ("checkpoint.py", include_str!("driver/vramlab_driver/checkpoint.py")),
    ("classes.py", include_str!("driver/vramlab_driver/classes.py")),
    ("diffusion.py", include_str!("driver/vramlab_driver/diffusion.py")),
    ("fold.py", include_str!("driver/vramlab_driver/fold.py")),
    ("graph.py", include_str!("driver/vramlab_driver/graph.py")),
    ("inputs.py", include_str!("driver/vramlab_driver/inputs.py")),
    ("library.py", include_str!("driver/vramlab_driver/library.py")),
    ("life.py", include_str!("driver/vramlab_driver/life.py")),
    ("losses.py", include_str!("driver/vramlab_driver/losses.py")),
    ("names.py", include_str!("driver/vramlab_driver/names.py")),
    ("own.py", include_str!("driver/vramlab_driver/own.py")),
    ("plan.py", include_str!("driver/vramlab_driver/plan.py")),
    ("program.py", include_str!("driver/vramlab_driver/program.py")),
    ("run.py", include_str!("driver/vramlab_driver/run.py")),
    ("step.py", include_str!("driver/vramlab_driver/step.py")),
    ("tuning.py", include_str!("driver/vramlab_driver/tuning.py")),
    ("vision.py", include_str!("driver/vramlab_driver/vision.py")),
    ("weightless.py", include_str!("driver/vramlab_driver/weightless.py")),
];

/// Files of the package for Python that export a network: a package inside.
const EXPORTING: [(&str, &str); 10] = [
    ("__init__.py", ""),
    ("_binary.py", include_str!("../../../python/vramlab/_binary.py")),
    ("_caches.py", include_str!("../../../python/vramlab/_caches.py")),
    ("_ctc.py", include_str!("../../../python/vramlab/_ctc.py")),
    ("_evaluation.py", include_str!("../../../python/vramlab/_evaluation.py")),
    ("_lives.py", include_str!("../../../python/vramlab/_lives.py")),
    ("_masks.py", include_str!("../../../python/vramlab/_masks.py")),
    ("_objects.py", include_str!("../../../python/vramlab/_objects.py")),
    ("_recorded.py", include_str!("../../../python/vramlab/_recorded.py")),
    ("export.py", include_str!("../../../python/vramlab/export.py")),
];

/// Interval between looks at whether Python has ended, or a stop was requested.
const LOOK: Duration = Duration::from_millis(5);

const MAIN: &str = include_str!("driver/__main__.py");

/// The package of Python in a folder of its own, which is deleted when this is dropped.
pub struct Driver {
    folder: TempDir,
    options: Value,
}

impl Driver {
    /// Writes the package. `options` are those of [`options`](super::options()).
    ///
    /// # Errors
    /// A folder for temporary files that cannot be used.
    pub fn make(options: Value) -> Result<Self> {
        let cannot = |error: std::io::Error| Error::host("the folder for temporary files", error.to_string());
        let folder = tempfile::Builder::new().prefix("vramlab-model-").tempdir().map_err(cannot)?;
        let package = folder.path().join("site-packages").join("vramlab_driver");
        let exporting = package.join("exporting");
        fs::create_dir_all(&exporting).map_err(cannot)?;
        fs::write(folder.path().join("__main__.py"), MAIN).map_err(cannot)?;
        for (folder, files) in [(&package, &PACKAGE[..]), (&exporting, &EXPORTING[..])] {
            files.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text)).map_err(cannot)?;
        }
        Ok(Self { folder, options })
    }

    /// Returns the command that trains the network under a rehearsal. `file`: the name under which the program's lines are shown.
    ///
    /// # Errors
    /// A folder for temporary files that cannot be used.
    pub fn train(&self, python: &Path, file: &str) -> Result<Vec<OsString>> {
        self.command(python, "train", file)
    }

    /// Asks what would be chosen, without a rehearsal, on any system.
    ///
    /// # Errors
    /// A Python that cannot be started, or that gives no answer; [`Error::Interrupted`] if a stop was requested.
    pub fn plan(&self, python: &Path, stop: &dyn Fn() -> bool) -> Result<Told> {
        let text = self.said(python, "plan", Stdio::inherit(), stop)?;
        Told::read(&text).ok_or_else(|| Error::usage(python.display().to_string(), "it gave no answer"))
    }

    /// Exports the network, and returns the file: an export or a folded graph, which lies as long as this lives.
    ///
    /// # Errors
    /// A Python that cannot be started; a network that has no graph, with the reason; [`Error::Interrupted`] if a stop was requested.
    pub fn export(&self, python: &Path, stop: &dyn Fn() -> bool) -> Result<PathBuf> {
        let text = self.said(python, "export", Stdio::null(), stop)?;
        match Graph::read(&text) {
            Some(Graph::Written { file }) => Ok(file),
            Some(Graph::Refused { refused }) => Err(Error::usage("export", refused)),
            None => Err(Error::usage("export", "Python gave no answer")),
        }
    }

    /// What the driver says in a mode. Python ends if a stop is requested: an export may take minutes.
    fn said(&self, python: &Path, mode: &str, errors: Stdio, stop: &dyn Fn() -> bool) -> Result<String> {
        let words = self.command(python, mode, "")?;
        let path = self.folder.path().join(format!("{mode}.said"));
        let cannot = |error: std::io::Error| Error::usage(python.display().to_string(), error.to_string());
        let said = fs::File::create(&path).map_err(cannot)?;
        let mut command = Command::new(&words[0]);
        let mut child =
            command.args(&words[1..]).stdin(Stdio::null()).stdout(said).stderr(errors).spawn().map_err(cannot)?;
        while child.try_wait().map_err(cannot)?.is_none() {
            if stop() {
                // One that has just ended by itself cannot be killed.
                let _ = child.kill();
                child.wait().map_err(cannot)?;
                break;
            }
            std::thread::sleep(LOOK);
        }
        // Ctrl-C reaches Python, too: its words then are not an answer.
        if stop() {
            return Err(Error::Interrupted);
        }
        Ok(String::from_utf8_lossy(&fs::read(&path).map_err(cannot)?).into_owned())
    }

    fn command(&self, python: &Path, mode: &str, file: &str) -> Result<Vec<OsString>> {
        let mut request = self.options.clone();
        request["mode"] = mode.into();
        request["file"] = file.into();
        request["into"] = self.folder.path().display().to_string().into();
        let path = self.folder.path().join(format!("{mode}.json"));
        fs::write(&path, request.to_string())
            .map_err(|error| Error::host("the folder for temporary files", error.to_string()))?;
        Ok(vec![python.into(), self.folder.path().into(), path.into()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_stop_ends_an_export() {
        use std::os::unix::fs::PermissionsExt;

        let driver = Driver::make(serde_json::json!({ "model": "config.json" })).unwrap();
        let python = driver.folder.path().join("python");
        fs::write(&python, "#!/bin/sh\nexec sleep 600\n").unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let looks = std::cell::Cell::new(0);
        let stop = || looks.replace(looks.get() + 1) > 2;
        assert!(matches!(driver.export(&python, &stop), Err(Error::Interrupted)));
        let missing = driver.export(Path::new("/nonexistent/python"), &|| false).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/python: "), "{missing}");
    }

    #[test]
    fn the_folder_has_every_file_of_the_package() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/any_model/driver/vramlab_driver");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = entries.filter(|name| name.ends_with(".py")).collect();
            names.sort();
            names
        };
        let driver = Driver::make(serde_json::json!({ "model": "config.json" })).unwrap();
        let exporting = names(&driver.folder.path().join("site-packages/vramlab_driver/exporting"));
        assert_eq!(exporting, EXPORTING.map(|(name, _)| name));
        assert_eq!(names(&driver.folder.path().join("site-packages/vramlab_driver")), names(&source));
        let words = driver.train(Path::new("python3"), "program.py").unwrap();
        let request: Value = serde_json::from_slice(&fs::read(&words[2]).unwrap()).unwrap();
        assert_eq!((request["mode"].as_str(), request["model"].as_str()), (Some("train"), Some("config.json")));
    }
}
