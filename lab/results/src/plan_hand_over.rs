//! A plan as files, for other programs.

use lab_base::figures::short;
use lab_base::section::{Cell, Table};
use serde::{Deserialize, Serialize};

/// Files that say a plan to other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// The folder.
    pub folder: String,
    /// The files.
    pub files: Vec<HandedFile>,
    /// Files that cannot say the plan, or that it does not need.
    pub left_out: Vec<NotHanded>,
}

/// A file of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedFile {
    /// Its name in the folder.
    pub name: String,
    /// Its contents, or the call or command that reads it.
    pub purpose: String,
    /// Settings of the run that it gives which the plan has otherwise: a trainer decides them by itself.
    pub differs: Vec<String>,
    /// Peak of allocated memory of the run that it gives; null if vramlab does not read it. Bytes.
    pub peak_bytes: Option<u64>,
    /// Peak of reserved memory of that run. Bytes.
    pub reserved_bytes: Option<u64>,
}

/// A file that was not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotHanded {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

impl HandedOver {
    /// The files, then those that were not written.
    pub(super) fn table(&self) -> Table {
        let written = self.files.iter().map(|file| {
            let figure = |bytes: Option<u64>| Cell::Text(bytes.map_or_else(|| "-".into(), short));
            vec![
                Cell::Text(file.name.clone()),
                Cell::Text(file.purpose.clone()),
                figure(file.peak_bytes),
                Cell::Text(file.differs.join(", ")),
            ]
        });
        let left_out = self.left_out.iter().map(|file| {
            let why = format!("not written: {}", file.why);
            vec![Cell::Text(file.name.clone()), Cell::Text(why), Cell::Text("-".into()), Cell::Text(String::new())]
        });
        let title = format!("Files in {}", self.folder);
        Table::new(&title, &["file", "for", "peak", "differs"], written.chain(left_out).collect())
    }
}
