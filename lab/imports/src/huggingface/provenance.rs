//! Origin of a `config.json`: the release that saved it, and the type of the weights.

use lab_base::error::{Error, Result};
use serde_json::Value;

use super::dtype::SavedType;
use super::keys::Keys;
use super::known::Configuration;
use super::releases::Release;

impl SavedType {
    /// Reads the type that a configuration of any network names.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that cannot be read, or whose type is not a name.
    pub fn of_configuration(configuration: Configuration<'_>) -> Result<Self> {
        let (file, text) = (configuration.name(), configuration.text()?);
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
