//! Type in which `from_pretrained` loads a checkpoint's weights.

use lab_base::error::{Error, Result};
use memcore::DType;

use super::keys::Keys;

/// The `dtype` argument of `from_pretrained`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadAs {
    /// `"auto"`, the default of transformers 5: the type that the configuration names.
    #[default]
    Saved,
    /// `torch.float32`, the default of transformers 4, whatever the configuration names.
    Float32,
}

/// Type that a configuration names for its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavedType {
    /// None: the library then takes the type of the first weights in the checkpoint, which a configuration does not show.
    Unnamed,
    /// A supported type.
    Named(DType),
    /// Another type, as it is written.
    NotRepresented(String),
}

impl SavedType {
    /// Reads `dtype`, or `torch_dtype` if that is absent or null. Checked with `from_pretrained` of release 5.23: of both, `dtype` is taken; the
    /// names are attributes of `torch`, aliases included.
    ///
    /// # Errors
    /// [`Error::Usage`] for a value that is not a name.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Self> {
        let old = keys.name("torch_dtype", "")?;
        Ok(match keys.name("dtype", old)? {
            "" => Self::Unnamed,
            "float32" | "float" => Self::Named(DType::F32),
            "bfloat16" => Self::Named(DType::BF16),
            "float16" | "half" => Self::Named(DType::F16),
            other => Self::NotRepresented(other.into()),
        })
    }

    /// Returns the type of the weights that `from_pretrained` makes: float32 if the configuration names none. `file` is the configuration's name.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a type that is not supported.
    pub(super) fn loaded(&self, load_as: LoadAs, file: &str) -> Result<DType> {
        match (load_as, self) {
            (LoadAs::Float32, _) | (LoadAs::Saved, Self::Unnamed) => Ok(DType::F32),
            (LoadAs::Saved, Self::Named(dtype)) => Ok(*dtype),
            (LoadAs::Saved, Self::NotRepresented(name)) => {
                let problem = format!("vramlab does not support {name:?} weights (float32, bfloat16 and float16 work)");
                Err(Error::usage(format!("{file}: dtype"), problem))
            }
        }
    }
}
