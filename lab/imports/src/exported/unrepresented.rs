//! Operators of a file that are not supported: what a refusal says of them.

use super::names::Place;

/// An operator that is not supported, with the number of its nodes and the origin of the first.
pub(super) struct Unknown {
    pub target: String,
    pub count: usize,
    pub place: Place,
}

/// Formats the error that names all operators that are not supported, and why where more is known than that nobody wrote them.
pub(super) fn refusal(unknown: &[Unknown]) -> String {
    let one = |operator: &Unknown| format!("{} ({} ×, first in {})", operator.target, operator.count, operator.place);
    let all: Vec<String> = unknown.iter().map(one).collect();
    let noun = if unknown.len() == 1 { "operator" } else { "operators" };
    let mut reasons: Vec<&str> = unknown.iter().filter_map(|operator| reason(&operator.target)).collect();
    reasons.dedup();
    let reasons: String = reasons.iter().map(|reason| format!(". {reason}")).collect();
    format!("vramlab does not support {} {noun}: {}{reasons}", unknown.len(), all.join("; "))
}

/// Returns why an operator is not supported.
fn reason(target: &str) -> Option<&'static str> {
    let name = target.split('.').next().unwrap_or_default();
    match name {
        "nonzero" | "masked_select" | "unique_consecutive" | "_unique2" | "bincount" => {
            Some("The size of such a result follows from values, not from sizes")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_given_once() {
        let place = || Place::new("", "");
        let unknown = |target: &str| Unknown { target: target.into(), count: 1, place: place() };
        let text = refusal(&[unknown("nonzero.default"), unknown("bincount.default"), unknown("special.default")]);
        assert_eq!(text.matches("follows from values").count(), 1, "{text}");
        assert!(!refusal(&[unknown("special.default")]).contains(". "), "{text}");
    }
}
