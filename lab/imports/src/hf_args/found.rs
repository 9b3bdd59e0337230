//! Collects the meaning of a file of arguments, argument by argument.

use lab_base::error::{Error, Result};
use serde_json::{Map, Value};

use super::meaning::{Meaning, meaning};

/// Meaning of a file of arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HfArgs {
    /// Fields of a run, by name.
    pub fields: Map<String, Value>,
    /// Arguments that decide memory and cannot be supported.
    pub refusals: Vec<Refused>,
    /// Sentences on what the script does and the run lacks or does differently.
    pub left_out: Vec<String>,
    /// Unknown names: they are ignored.
    pub unknown: Vec<String>,
    /// True if `max_grad_norm` is 0 or null.
    pub(super) clips_nothing: bool,
}

/// An argument that cannot be supported.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The argument with its value.
    pub argument: String,
    /// Field of a run that could replace it: if that field is set, the argument is not refused.
    pub field: Option<&'static str>,
}

/// What an argument does to the memory of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Without,
    /// It is a field, an error, or a sentence.
    Counted,
    /// Nobody knows.
    Unknown,
}

impl HfArgs {
    /// Takes the meaning of each argument.
    ///
    /// # Errors
    /// [`Error::Usage`] naming an argument with a senseless value.
    pub(super) fn take(&mut self, arguments: &Map<String, Value>, file: &str) -> Result<()> {
        for (name, value) in arguments {
            if self.take_one(name, value, file)? == Effect::Unknown {
                self.unknown.push(name.clone());
            }
        }
        Ok(())
    }

    /// Takes the meaning of one argument, unless it is unknown.
    ///
    /// # Errors
    /// [`Error::Usage`] naming an argument with a senseless value.
    pub(crate) fn take_one(&mut self, name: &str, value: &Value, file: &str) -> Result<Effect> {
        let said = || said(name, value);
        match meaning(name, value) {
            Meaning::Nothing => return Ok(Effect::Without),
            Meaning::Unknown => return Ok(Effect::Unknown),
            Meaning::Field(field, value) => {
                self.fields.insert(field.into(), value);
            }
            Meaning::Optimizer(kind, form) => {
                self.fields.insert("optimizer".into(), kind.into());
                self.fields.insert("optimizer-impl".into(), form.into());
            }
            Meaning::ClipsNothing => self.clips_nothing = true,
            Meaning::Nested => {
                if let Value::Object(inner) = value {
                    self.take(inner, file)?;
                }
            }
            Meaning::Refused(field) => self.refusals.push(Refused { argument: said(), field }),
            Meaning::LeftOut(what) => self.left_out.push(format!("{} ({what})", said())),
            Meaning::Wrong(expected) => {
                return Err(Error::usage(file, format!("{}: expected {expected}", said())));
            }
        }
        Ok(Effect::Counted)
    }

    /// Takes the largest norm of the gradients; with 0 they are not clipped.
    pub(crate) fn clip(&mut self, norm: f64) {
        match norm > 0.0 {
            true => drop(self.fields.insert("clip-grad-norm".into(), norm.into())),
            false => self.clips_nothing = true,
        }
    }
}

/// Formats an argument as it is written; a long value is cut.
pub(crate) fn said(name: &str, value: &Value) -> String {
    const MOST: usize = 80;
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{name}={}…", &text[..end]),
        None => format!("{name}={text}"),
    }
}
