//! How exact a rehearsal is, in words.

use lab_base::figures::short;

use super::rehearsal::{RehearsalResult, UnknownRead};

/// Reasons that the answer names at once why it is not exact.
const REASONS: usize = 2;

/// Says how exact the figures are; `None` if no whole step was seen: then there is nothing to judge.
pub(super) fn exactness(found: &RehearsalResult) -> Option<String> {
    let assumed = found.unknown_reads.iter().any(UnknownRead::is_sound);
    let numbers = found.unknown_reads.iter().any(UnknownRead::is_number);
    let first: Vec<&str> = found.inexact.iter().take(REASONS).map(|reason| reason.what.as_str()).collect();
    let more = found.inexact.len().saturating_sub(REASONS);
    let more = if more > 0 { format!("; {more} more: --full") } else { String::new() };
    let reasons = format!("{}{more}", first.join("; "));
    let how = match (found.exact, found.exact_to) {
        (true, _) if numbers || assumed => {
            "These figures are exact if the script only logs the numbers that it reads, such as losses: vramlab does not compute them (--full lists where)."
                .to_string()
        }
        (true, _) => "These figures are exact: nothing that vramlab does not know can have changed a size.".to_string(),
        (false, Some(bytes)) => format!(
            "Allocated memory may be off by {}, because {reasons}. Reserved memory may be off by more: see the range.",
            short(bytes)
        ),
        (false, None) if !found.inexact.is_empty() => format!("These figures are not exact, because {reasons}."),
        (false, None) => return None,
    };
    Some(match found.runs {
        2 => format!("{how} The script compiles, so vramlab ran it twice, and counts the second run."),
        _ => how,
    })
}

impl UnknownRead {
    /// True for a single number such as a loss, or numbers that a library logs: they change a size only if the script makes a size of them.
    pub fn is_number(&self) -> bool {
        self.event == "unknown_read" && (self.kind == "number" || self.kind == "log")
    }

    /// True for an assumption that numbers are finite, or that a check does not fail: otherwise the training itself would fail.
    pub fn is_sound(&self) -> bool {
        let asks = matches!(self.operator.as_str(), "isfinite" | "isnan" | "isinf" | "_is_all_true");
        let passes = self.answer.as_ref().is_some_and(|answer| answer.ends_with("or an error would be raised"));
        self.event == "assumed"
            && (asks && self.answer.as_deref().is_some_and(|answer| answer == "True" || answer == "False") || passes)
    }

    /// Says why the figures are not exact because of it.
    pub fn as_a_reason(&self) -> String {
        let at = format!("at {} ({})", self.place, self.operator);
        match (self.event.as_str(), self.kind.as_str()) {
            ("unknown_read", "size") => format!("a size depends on data that is not known {at}"),
            ("unknown_read", "branch") => format!("a branch depends on data that is not known {at}"),
            ("unknown_read", "contents") => format!("the script read data that is not known {at}"),
            ("unknown_read", _) => format!("an operator read data that is not known {at}"),
            ("wrong_size", _) => format!("a size is wrong {at}"),
            _ => format!("data is assumed {at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rehearsal::Inexact;
    use super::*;

    #[test]
    fn the_answer_says_what_may_move_a_size_and_how_far() {
        let reason = |bytes| Inexact { what: "workspaces are not known".into(), bytes };
        let with =
            |exact, exact_to, inexact| RehearsalResult { exact, exact_to, inexact, ..RehearsalResult::default() };
        let bounded = exactness(&with(false, Some(12 << 20), vec![reason(Some(12 << 20))])).unwrap();
        let expected = "Allocated memory may be off by 12 MiB, because workspaces are not known. Reserved memory may be off by more: see the range.";
        assert_eq!(bounded, expected);
        let open = exactness(&with(false, None, vec![reason(None), reason(None), reason(None)])).unwrap();
        assert!(
            open.starts_with("These figures are not exact, because workspaces") && open.ends_with("; 1 more: --full."),
            "{open}"
        );
        assert!(exactness(&with(true, Some(0), vec![])).unwrap().starts_with("These figures are exact: "));
        assert_eq!(exactness(&with(false, None, vec![])), None, "no step was seen, or the script failed");
    }

    #[test]
    fn a_check_that_numbers_are_finite_is_no_reason() {
        let read = |event: &str, operator: &str, answer: &str| UnknownRead {
            event: event.into(),
            operator: operator.into(),
            answer: Some(answer.into()),
            ..UnknownRead::default()
        };
        assert!(read("assumed", "isnan", "False").is_sound());
        assert!(read("assumed", "__bool__", "True, or an error would be raised").is_sound());
        assert!(!read("assumed", "isnan", "as before a graph or another package's kernel ran").is_sound());
        assert!(!read("unknown_read", "isnan", "zeros").is_sound());
    }
}
