//! A lock file: JSON with a line per figure, so that a change reads well where files are compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::footprint::Footprint;

/// What such a file calls itself.
pub const SCHEMA: &str = "vramlab-lock-1";

/// The runs of a lock file, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// [`SCHEMA`]
    pub schema: String,
    /// The version of the program that wrote it.
    pub version: String,
    /// The runs.
    pub runs: BTreeMap<String, Locked>,
}

/// A run that is held fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Locked {
    /// The flags that say how to repeat it: as they were given, so that what a model's file says is read anew each time.
    pub flags: Map<String, Value>,
    /// Everything that was in force, for comparison.
    pub settings: Map<String, Value>,
    /// What it took.
    pub memory: Footprint,
}

impl Lock {
    /// Without a run.
    pub fn new(version: &str) -> Self {
        Self { schema: SCHEMA.into(), version: version.into(), runs: BTreeMap::new() }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// What is wrong, with its line and column: text that is not JSON or ends early, another schema, a figure that is missing or is none.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match value.get("schema") {
            Some(Value::String(schema)) if schema == SCHEMA => {}
            Some(other) => return Err(format!("schema: expected {SCHEMA:?}, found {other}")),
            None => return Err(format!("no lock file: there is no \"schema\": {SCHEMA:?}")),
        }
        // From the text once more: a value does not know its line.
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// As [`read`](Self::read) takes it. Equal locks give equal text.
    ///
    /// # Errors
    /// None that is known: a lock is made of names and numbers.
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
        assert!(wrong("[1, 2]").contains("no lock file"));
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
