//! Parts of tables and curves that experiments share.

use lab_base::section::{Cell, Table};
use memcore::memory::{Category, CategoryBytes};

use super::Curve;
use super::session::Sample;

pub(super) fn table(title: impl Into<String>, columns: &[&str], rows: Vec<Vec<Cell>>) -> Table {
    Table { title: title.into(), columns: columns.iter().map(|name| name.to_string()).collect(), rows }
}

pub(super) fn text(words: impl Into<String>) -> Cell {
    Cell::Text(words.into())
}

/// Returns a cell with bytes, or a dash for 0.
pub(super) fn some_bytes(bytes: u64) -> Cell {
    if bytes == 0 { text("-") } else { Cell::Bytes(bytes) }
}

/// Makes a curve of allocated and reserved bytes over these samples.
pub(super) fn curve(title: impl Into<String>, moments: &[Sample]) -> Curve {
    let allocated = moments.iter().map(|m| m.row.allocated).collect();
    let reserved = moments.iter().map(|m| m.row.reserved).collect();
    let labels = moments.iter().map(|m| m.row.label.clone()).collect();
    Curve { title: title.into(), series: vec![("allocated".into(), allocated), ("reserved".into(), reserved)], labels }
}

/// Makes a table of compositions: a row for each category that is not zero everywhere, a column per composition, and
/// their sums.
pub(super) fn by_category(title: impl Into<String>, columns: &[(String, CategoryBytes)]) -> Table {
    let mut names = vec!["category".to_string()];
    names.extend(columns.iter().map(|(name, _)| name.clone()));
    let present = |category: &Category| columns.iter().any(|(_, bytes)| bytes[*category as usize] > 0);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for category in Category::ALL.into_iter().filter(present) {
        let mut row = vec![text(category.name().replace('_', " "))];
        row.extend(columns.iter().map(|(_, bytes)| some_bytes(bytes[category as usize])));
        rows.push(row);
    }
    let mut sums = vec![text("sum")];
    sums.extend(columns.iter().map(|(_, bytes)| Cell::Bytes(bytes.iter().sum())));
    rows.push(sums);
    Table { title: title.into(), columns: names, rows }
}
