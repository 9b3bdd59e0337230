//! `vramlab plan --hand-over FOLDER`: a plan as files for other programs.

use std::fs;
use std::path::{Path, PathBuf};

use lab::results::{HandedFile, HandedOver};
use lab::run::{DryRunner, HandOver, Planned};

use crate::args::config_text;
use crate::destination::Destination;
use crate::exit::{Failure, Result};
use crate::ui::Ui;

/// The plan as a configuration of vramlab's own, which says all of it.
const OWN: &str = "plan.toml";

/// The files of a plan that are still to be written.
pub(super) struct Files {
    folder: PathBuf,
    made: HandOver,
}

/// Refuses a folder in which files would be replaced, before anything is searched.
///
/// # Errors
/// A file in its place, or files in the folder.
pub(super) fn check(folder: &Path) -> Result<()> {
    let shown = folder.display();
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(false) => Err(Failure::usage(format!(
            "--hand-over {shown}: files lie there already, and none is replaced: name a new folder"
        ))),
        Err(_) if fs::symlink_metadata(folder).is_ok() => {
            Err(Failure::usage(format!("--hand-over {shown}: it is not a folder that can be read")))
        }
        _ => Ok(()),
    }
}

impl Files {
    /// Makes the files of a plan.
    ///
    /// # Errors
    /// Those of dry runs.
    pub(super) fn of_plan(folder: &Path, runner: &DryRunner<'_>, best: &Planned) -> Result<Self> {
        let mut made = HandOver::of_plan(runner, &best.spec, &heading(best))?;
        let purpose = "vramlab predict --config".into();
        let own = HandedFile {
            name: OWN.into(),
            purpose,
            peak_bytes: best.changes.peak_bytes,
            reserved_bytes: best.changes.reserved_bytes,
            ..HandedFile::default()
        };
        made.files.insert(0, (own, format!("# {}\n{}", heading(best), config_text(&absolute(best)))));
        Ok(Self { folder: folder.to_path_buf(), made })
    }

    /// Writes them. Each appears whole.
    ///
    /// # Errors
    /// The system's, naming the folder or the file.
    pub(super) fn write(self, ui: &Ui) -> Result<HandedOver> {
        let shown = self.folder.display().to_string();
        fs::create_dir_all(&self.folder)
            .map_err(|error| Failure::usage(format!("--hand-over {shown}: it cannot be made: {error}")))?;
        check(&self.folder)?;
        let mut files = Vec::new();
        for (file, text) in self.made.files {
            Destination::File(self.folder.join(&file.name)).write(ui, text.as_bytes())?;
            files.push(file);
        }
        Ok(HandedOver { folder: shown, files, left_out: self.made.left_out })
    }
}

/// The run's fields. The path of a network's file holds wherever the configuration lies.
fn absolute(best: &Planned) -> lab::results::Settings {
    let mut fields = best.spec.said();
    for name in ["model-file", "adversary"] {
        let whole = fields.get(name).and_then(|path| std::path::absolute(path.as_str()?).ok());
        if let Some(path) = whole {
            fields.insert(name.into(), path.display().to_string().into());
        }
    }
    fields
}

/// The plan in a line, for the heads of files: nothing in it ends a line or a text of Python.
fn heading(best: &Planned) -> String {
    let model = best.spec.model.model_file.as_deref().map_or_else(
        || best.spec.model.name().to_string(),
        |path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
    );
    let changes = if best.changes.change.is_empty() { "no changes" } else { &best.changes.change };
    let line = format!("Planned by vramlab for {model}: {changes}");
    line.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect()
}
