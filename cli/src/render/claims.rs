//! Claims with their verdicts, as one table.

use lab::claims::CheckedClaim;
use lab::experiments::Verdict;
use lab::section::{Cell, Table};

use super::style::Style;
use super::{WIDTH, counted, table, wrapped};

/// Letters of a condition that a terminal is given.
const MAX_LETTERS: usize = 120;

/// For files: everything.
pub(crate) fn table(claims: &[CheckedClaim]) -> Table {
    of(claims, |claim| claim.condition.clone())
}

/// For a terminal: of each condition its beginning.
pub(crate) fn text(claims: &[CheckedClaim], style: Style) -> String {
    let mut out = table::titled(&of(claims, |claim| beginning(&claim.condition)), style);
    let count = |verdict: Verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let sum = format!(
        "{}: {} hold, {} depend, {} fail, {} not tested. Whole conditions: vramlab run NAME, or --export-markdown.",
        counted(claims.len() as u64, "claim"),
        count(Verdict::Holds),
        count(Verdict::Depends),
        count(Verdict::Fails),
        count(Verdict::NotTested)
    );
    out += &format!("{}\n", wrapped(&sum, WIDTH, 0));
    out
}

fn of(claims: &[CheckedClaim], condition: impl Fn(&CheckedClaim) -> String) -> Table {
    let row = |claim: &CheckedClaim| {
        let texts = [claim.claim.to_string(), source(claim), claim.verdict.name().into(), claim.number.clone()];
        texts.into_iter().chain([condition(claim)]).map(Cell::Text).collect()
    };
    let columns = ["claim", "source", "verdict", "number", "condition"].map(String::from).to_vec();
    Table { title: "Claims, checked".into(), columns, rows: claims.iter().map(row).collect() }
}

/// The article's number, or who else says so.
fn source(claim: &CheckedClaim) -> String {
    if claim.articles.is_empty() { claim.source.to_string() } else { claim.articles.join(", ") }
}

fn beginning(condition: &str) -> String {
    if condition.chars().count() <= MAX_LETTERS {
        return condition.to_string();
    }
    let cut: String = condition.chars().take(MAX_LETTERS).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{} …", &cut[..end])
}
