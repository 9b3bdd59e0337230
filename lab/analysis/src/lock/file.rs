//! A lock file: JSON with one figure per line, so that a diff of it reads well.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::footprint::Footprint;

/// Schema name of a lock file.
pub const SCHEMA: &str = "vramlab-lock-1";

/// The runs of a lock file, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// [`SCHEMA`]
    pub schema: String,
    /// Version of the program that wrote it.
    pub version: String,
    /// The runs.
    pub runs: BTreeMap<String, Locked>,
}

/// A locked run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Locked {
    /// Flags that repeat the run, as they were given: a model's file is read anew each time.
    pub flags: Map<String, Value>,
    /// All settings in force, for comparison.
    pub settings: Map<String, Value>,
    /// Its memory.
    pub memory: Footprint,
}

impl Lock {
    /// Returns a lock without runs.
    pub fn new(version: &str) -> Self {
        Self { schema: SCHEMA.into(), version: version.into(), runs: BTreeMap::new() }
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// Says what is wrong, with its line and column: text that is not JSON or ends early, another schema, a figure that is missing or not a number.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match value.get("schema") {
            Some(Value::String(schema)) if schema == SCHEMA => {}
            Some(other) => return Err(format!("schema: expected {SCHEMA:?}, found {other}")),
            None => return Err(format!("not a lock file: it has no \"schema\": {SCHEMA:?}")),
        }
        // Parsed from the text once more, because a value does not know its line.
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Writes the text that [`read`](Self::read) takes. Equal locks give equal text.
    ///
    /// # Errors
    /// None in practice: a lock consists of names and numbers.
    pub fn text(&self) -> Result<String, String> {
        Ok(serde_json::to_string_pretty(self).map_err(|error| error.to_string())? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::footprint::{EventList, Peak};
    use super::*;

    fn lock() -> Lock {
        let mut lock = Lock::new("1.2.3");
        let memory = Footprint {
            peak: Peak { allocated: 512, reserved: 2 << 20, ..Peak::default() },
            expected: None,
            held: 0,
            by_category: [("input".to_string(), 512)].into(),
            by_phase: BTreeMap::new(),
            events: EventList { count: 2, hash: "0".repeat(16) },
            at_peak: BTreeMap::new(),
        };
        let flags = Map::from_iter([("batch".to_string(), Value::from("8"))]);
        lock.runs.insert("default".into(), Locked { flags, settings: Map::new(), memory });
        lock
    }

    #[test]
    fn a_lock_survives_its_text() {
        let text = lock().text().unwrap();
        assert_eq!(Lock::read(&text).unwrap(), lock());
        assert!(
            text.ends_with("}\n") && text.contains("\n        \"peak\": {\n          \"allocated\": 512,\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let text = lock().text().unwrap();
        let wrong = |text: &str| Lock::read(text).unwrap_err();
        assert!(wrong(&text[..text.len() / 2]).contains("EOF"), "{}", wrong(&text[..text.len() / 2]));
        assert!(wrong("[1, 2]").contains("not a lock file"));
        assert!(wrong("{\"schema\": \"vramlab-train-1\"}").contains("found \"vramlab-train-1\""));
        let line = text.lines().position(|line| line.contains("\"allocated\"")).unwrap() + 1;
        let word = wrong(&text.replace("\"allocated\": 512", "\"allocated\": \"few\""));
        assert!(word.contains("\"few\"") && word.contains(&format!("line {line} ")), "{word}");
        let missing = wrong(&text.replace("\"held\": 0,", ""));
        assert!(missing.contains("missing field `held`"), "{missing}");
        let negative = wrong(&text.replace("512", "-1"));
        assert!(negative.contains("-1"), "{negative}");
    }
}
