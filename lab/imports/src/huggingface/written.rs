//! Origin of a `config.json`: the release that wrote it, and the type of the weights.

use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::files;
use serde_json::Value;

use super::MAX_BYTES;
use super::dtype::SavedType;
use super::keys::Keys;
use super::releases::Release;

/// Origin of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// `transformers_version`: the release that wrote it, which is most often not the one that loads it.
    pub release: Option<Release>,
    /// The type of the weights.
    pub saved_type: SavedType,
}

impl Written {
    /// Reads a `config.json` of any network.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that cannot be read, or whose release or type is not a name.
    pub fn read(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = files::text(path, MAX_BYTES, "a configuration")?;
        let value: Value = serde_json::from_str(&text).map_err(|error| Error::usage(&file, error.to_string()))?;
        let Value::Object(map) = &value else { return Err(Error::usage(file, "is not a JSON object")) };
        let keys = Keys::new(&file, map);
        let release = match keys.name("transformers_version", "")? {
            "" => None,
            written => Some(written.parse().map_err(|problem: String| keys.error("transformers_version", problem))?),
        };
        Ok(Self { release, saved_type: SavedType::read(&keys)? })
    }
}
