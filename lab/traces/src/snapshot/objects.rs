//! Reads a pickle with objects of classes as data: each object becomes a record of its class and arguments, and no object is made.

use lab_base::error::{Error, Result};
use serde_json::{Map, Number, Value as Json};

use super::source::Source;
use super::value::{Document, Kind, Value};
use super::{sound, unpickle};

/// Largest number of values returned; what a file shares counts as often as it is reached.
const MAX_VALUES: usize = 1 << 20;

/// Reads a pickle. An object becomes `{"class": "module name", "args": …, "state": …}`; tuples become lists. Errors call the file `name`.
///
/// # Errors
/// [`Error::Usage`] naming the file, and the byte where something is wrong.
pub fn read_objects(name: &str, pickle: &[u8]) -> Result<Json> {
    let mut source = Source::new(pickle, pickle.len() as u64);
    let read = unpickle::read_inert(&mut source).and_then(|document| sound::check(&document).map(|()| document));
    let document = read.map_err(|error| error.error(name))?;
    let mut left = MAX_VALUES;
    json(&document, document.root, &mut left).ok_or_else(|| Error::usage(name, "holds more than a million values"))
}

/// Converts a value; `None` once there are too many.
fn json(document: &Document, value: Value, left: &mut usize) -> Option<Json> {
    *left = left.checked_sub(1)?;
    let list = |items: &[Value], left: &mut usize| -> Option<Json> {
        items.iter().map(|item| json(document, *item, left)).collect::<Option<Vec<_>>>().map(Json::Array)
    };
    Some(match document.kind(value) {
        Kind::None => Json::Null,
        Kind::Bool(value) => Json::Bool(value),
        Kind::Int(value) => i64::try_from(value).map_or_else(|_| Json::from(value as f64), Json::from),
        Kind::Float(value) => Number::from_f64(value).map_or(Json::Null, Json::Number),
        Kind::Text(id) => Json::from(document.texts.get(id)),
        Kind::Tuple(tuple) => list(document.tuple_items(tuple), left)?,
        Kind::List(items) => list(document.items(items), left)?,
        Kind::Dict(dict) => {
            let mut found = Map::new();
            for (key, value) in document.entries(dict) {
                let key = match document.kind(key) {
                    Kind::Text(id) => document.texts.get(id).to_string(),
                    _ => json(document, key, left)?.to_string(),
                };
                found.insert(key, json(document, value, left)?);
            }
            Json::Object(found)
        }
    })
}
