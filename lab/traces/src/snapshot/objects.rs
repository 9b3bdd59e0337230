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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_records_and_nothing_is_called() {
        // pickle.dumps(Path("a"), 2) in short: a class, its arguments, and a state.
        let pickle = b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00echotR}X\x01\x00\x00\x00aK\x01sb.";
        let read = read_objects("it", pickle).unwrap();
        assert_eq!(read, serde_json::json!({"class": "os system", "args": ["echo"], "state": {"a": 1}}));
        let error = Document::read("it", pickle.as_slice()).unwrap_err().to_string();
        assert!(error.contains("GLOBAL is refused"), "a snapshot has none: {error}");
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        for (pickle, why) in [
            (&b"\x80\x02}}b."[..], "BUILD of what is not an object"),
            (b"\x80\x02K\x01)R.", "not a class"),
            (b"\x80\x02cos\nsystem\n)R)R.", "not a class"),
            (b"\x80\x02cos", "a name"),
        ] {
            let error = read_objects("it", pickle).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        // Lists of the list before, twice: 2^40 values of 200 bytes.
        let (mut all, depth) = (b"\x80\x02]q\x00".to_vec(), 40u8);
        for place in 0..depth {
            all.extend([b']', b'q', place + 1, b'(', b'h', place, b'h', place, b'e']);
        }
        // One value must be left: all of them as one tuple.
        let mut whole = vec![0x80, 2, b'('];
        whole.extend(&all[2..]);
        whole.extend(b"t.");
        let error = read_objects("it", &whole).unwrap_err().to_string();
        assert!(error.contains("a million values"), "{error}");
    }
}
