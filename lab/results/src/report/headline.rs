//! Headline of a run with a limit: the memory that it needs, of the memory available.

use lab_base::figures::short;
use serde_json::Value;

/// Memory needed and available.
pub(super) struct Headline {
    /// The figures of a run that ran out of memory, in words; a prediction's title has them.
    pub(super) text: Option<String>,
    /// Available memory, with its name.
    pub(super) limit: (String, u64),
}

impl Headline {
    /// Reads a result; `None` if nothing limits the run.
    pub(super) fn from_result(result: &Value) -> Option<Self> {
        let failed = &result["out_of_memory"];
        let card = result["card"]["title"].as_str();
        if let (Some(there), Some(_)) = (result["budget_bytes"].as_u64(), result["fits"].as_bool()) {
            return Some(Self { text: None, limit: (card.unwrap_or("what there is").into(), there) });
        }
        let there = failed["allowed_bytes"].as_u64().or_else(|| failed["total_bytes"].as_u64())?;
        let needs = failed["needs"]["reserved_bytes"].as_u64()?;
        Some(Self { text: Some(format!("needs {}", percent(needs, there))), limit: ("what there is".into(), there) })
    }
}

/// Returns the memory that there is for a run, with its name, as its result tells it.
pub fn limit_of(result: &Value) -> Option<(String, u64)> {
    Headline::from_result(result).map(|headline| headline.limit)
}

/// `37.4 of 23.02 GiB`: the unit is written once if both have it.
fn percent(part: u64, whole: u64) -> String {
    let (part, whole) = (short(part), short(whole));
    let unit = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_string());
    let part = if unit(&part) == unit(&whole) { part.rsplit_once(' ').map_or("", |(n, _)| n) } else { &part };
    format!("{part} of {whole}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_needed_stands_beside_what_there_is_once() {
        let predicted =
            json!({ "budget_bytes": 24_714_391_060u64, "fits": false, "card": { "title": "GeForce RTX 4090" } });
        let headline = Headline::from_result(&predicted).unwrap();
        assert_eq!((headline.text, headline.limit), (None, ("GeForce RTX 4090".into(), 24_714_391_060)));
        let failed = json!({ "out_of_memory": { "allowed_bytes": 100, "needs": { "reserved_bytes": 300 } } });
        assert_eq!(Headline::from_result(&failed).unwrap().text.as_deref(), Some("needs 300 of 100 B"));
        assert!(Headline::from_result(&json!({ "out_of_memory": null })).is_none());
    }
}
