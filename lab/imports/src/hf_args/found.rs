//! What a file of arguments asks for, argument by argument.

use lab_base::error::{Error, Result};
use serde_json::{Map, Value};

use super::meaning::{Meaning, meaning};

/// What a file of arguments asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HfArgs {
    /// Fields of a run, by name.
    pub fields: Map<String, Value>,
    /// What decides memory and cannot be represented.
    pub refusals: Vec<Refused>,
    /// What the run does not have, though the script will, or has otherwise: sentences.
    pub left_out: Vec<String>,
    /// Names that are not known: nothing was made of them.
    pub unknown: Vec<String>,
    /// `max_grad_norm` is 0 or null.
    pub(super) clips_nothing: bool,
}

/// An argument that cannot be represented.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The argument with its value.
    pub argument: String,
    /// The field of a run that would stand for it: said otherwise, it is not refused.
    pub field: Option<&'static str>,
}

impl HfArgs {
    /// Takes what each argument means.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the argument whose value makes no sense.
    pub(super) fn take(&mut self, arguments: &Map<String, Value>, file: &str) -> Result<()> {
        for (name, value) in arguments {
            let said = || said(name, value);
            match meaning(name, value) {
                Meaning::Nothing => {}
                Meaning::Unknown => self.unknown.push(name.clone()),
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
        }
        Ok(())
    }
}

/// An argument as it is written; of a long value its beginning.
fn said(name: &str, value: &Value) -> String {
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
