//! Origin of a `config.json`: the release that saved it, and the type of the weights.

use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::files;
use serde_json::Value;

use super::dtype::SavedType;
use super::keys::Keys;
use super::releases::Release;

/// Largest file that is read, in bytes.
pub(super) const MAX_BYTES: u64 = 16 << 20;

impl SavedType {
    /// Reads the type that a `config.json` of any network names.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that cannot be read, or whose type is not a name.
    pub fn of_file(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = files::text(path, MAX_BYTES, "a configuration")?;
        let value: Value = serde_json::from_str(&text).map_err(|error| Error::usage(&file, error.to_string()))?;
        let Value::Object(map) = &value else { return Err(Error::usage(file, "is not a JSON object")) };
        Self::read(&Keys::new(&file, map))
    }
}

/// Returns `transformers_version`: the release that saved the file, most often not the one that loads it. It decides nothing here, so one that
/// cannot be read is as good as none.
pub(super) fn release(keys: &Keys<'_>) -> Option<Release> {
    keys.name("transformers_version", "").ok()?.parse().ok()
}
