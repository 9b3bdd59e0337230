//! Headline of a run with a limit: the memory that it needs, of the memory available.

use lab_base::figures::short;
use serde_json::Value;

/// Memory needed and available.
pub(super) struct Headline {
    /// The figures, in words.
    pub(super) text: String,
    /// True if the run fits.
    pub(super) fits: bool,
    /// Available memory, with its name.
    pub(super) limit: (String, u64),
}

impl Headline {
    /// Reads a result; `None` if nothing limits the run.
    pub(super) fn of(result: &Value) -> Option<Self> {
        let (failed, needs) = (&result["out_of_memory"], &result["needs"]);
        let card = result["card"]["title"].as_str();
        if let (Some(there), Some(fits)) = (result["budget_bytes"].as_u64(), result["fits"].as_bool()) {
            let takes = needs["reserved_here_bytes"].as_u64().or_else(|| needs["reserved_bytes"].as_u64())?;
            return Some(Self::new(takes, there, fits, card.unwrap_or("what there is")));
        }
        let there = failed["allowed_bytes"].as_u64().or_else(|| failed["total_bytes"].as_u64())?;
        let takes = failed["needs"]["reserved_bytes"].as_u64()?;
        Some(Self::new(takes, there, false, "what there is"))
    }

    fn new(takes: u64, there: u64, fits: bool, name: &str) -> Self {
        let verb = if fits { "takes" } else { "needs" };
        Self { text: format!("{verb} {}", of(takes, there)), fits, limit: (name.into(), there) }
    }
}

/// Returns the memory that there is for a run, with its name, as its result tells it.
pub fn limit_of(result: &Value) -> Option<(String, u64)> {
    Headline::of(result).map(|headline| headline.limit)
}

/// `37.4 of 23.02 GiB`: the unit is written once if both have it.
fn of(part: u64, whole: u64) -> String {
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
    fn what_is_needed_stands_beside_what_there_is() {
        let predicted = |fits: bool| {
            json!({ "budget_bytes": 24_714_391_060u64, "fits": fits, "card": { "title": "GeForce RTX 4090" },
                "needs": { "reserved_bytes": 40_170_946_560u64, "reserved_here_bytes": fits.then_some(512 << 20) } })
        };
        let headline = Headline::of(&predicted(false)).unwrap();
        assert_eq!((headline.text.as_str(), headline.fits), ("needs 37.41 of 23.02 GiB", false));
        assert_eq!(headline.limit.0, "GeForce RTX 4090");
        assert_eq!(Headline::of(&predicted(true)).unwrap().text, "takes 512 MiB of 23.02 GiB");
        let failed = json!({ "out_of_memory": { "allowed_bytes": 100, "needs": { "reserved_bytes": 300 } } });
        assert_eq!(Headline::of(&failed).unwrap().text, "needs 300 of 100 B");
        assert!(Headline::of(&json!({ "out_of_memory": null })).is_none());
    }
}
