//! Tables. Each cell knows its kind, so that every output can format it in its own way.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells. Bytes are marked as such, so that every output can format them in its own way.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Returns a table with these names of columns.
    pub fn new(title: impl Into<String>, columns: &[&str], rows: Vec<Vec<Cell>>) -> Self {
        Self { title: title.into(), columns: columns.iter().map(|name| name.to_string()).collect(), rows }
    }

    /// Whether every cell of a column is a figure.
    pub fn is_figures(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column)).peekable();
        cells.peek().is_some() && cells.all(Cell::is_figure)
    }

    /// Whether a column shows outcomes, whose words are coloured.
    pub fn is_verdict(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(|name| matches!(name.as_str(), "fits" | "verdict" | "available"))
    }

    /// Returns the kind of each column: `bytes`, `difference`, `count`, `number`, or `text` if it has only words. A number in JSON does not say its
    /// kind.
    pub fn kinds(&self) -> Vec<&'static str> {
        let kind = |column: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(column)).map(Cell::kind);
            cells.find(|kind| *kind != "text").unwrap_or("text")
        };
        (0..self.columns.len()).map(kind).collect()
    }
}

impl Serialize for Table {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut table = serializer.serialize_struct("Table", 4)?;
        table.serialize_field("title", &self.title)?;
        table.serialize_field("columns", &self.columns)?;
        table.serialize_field("kinds", &self.kinds())?;
        table.serialize_field("rows", &self.rows)?;
        table.end()
    }
}

/// A cell of a [`Table`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// Bytes.
    Bytes(u64),
    /// Bytes with a sign: a difference.
    Difference(i64),
    /// A count.
    Count(u64),
    /// Anything else with digits.
    Number(f64),
}

impl Cell {
    /// Returns a cell with bytes, or an unknown one for `None`.
    pub fn bytes(value: Option<u64>) -> Self {
        value.map_or_else(Self::unknown, Cell::Bytes)
    }

    /// Returns a cell with a difference in bytes, which may be negative.
    pub fn signed(value: i64) -> Self {
        u64::try_from(value).map_or(Cell::Difference(value), Cell::Bytes)
    }

    /// Returns a cell with a share in percent, to a tenth.
    pub fn percent(share: f64) -> Self {
        Cell::Text(crate::figures::percent(share))
    }

    /// Returns a cell for a value that is not known.
    pub fn unknown() -> Self {
        Cell::Text("–".into())
    }

    /// Value that decides the length of its bar.
    pub(super) fn height(&self) -> f64 {
        match self {
            Cell::Text(_) => 0.0,
            Cell::Bytes(n) | Cell::Count(n) => *n as f64,
            Cell::Difference(n) => n.unsigned_abs() as f64,
            Cell::Number(x) => x.abs(),
        }
    }

    /// Whether it is aligned to the right: a figure, or a gap among figures.
    pub fn is_figure(&self) -> bool {
        match self {
            Cell::Text(text) => matches!(text.as_str(), "" | "-" | "–" | "⋮") || text.ends_with(" %"),
            _ => true,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Cell::Text(_) => "text",
            Cell::Bytes(_) => "bytes",
            Cell::Difference(_) => "difference",
            Cell::Count(_) => "count",
            Cell::Number(_) => "number",
        }
    }
}

/// A table as it is written in JSON.
#[derive(Deserialize)]
struct Written {
    title: String,
    columns: Vec<String>,
    kinds: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { title, columns, kinds, rows } = Written::deserialize(deserializer)?;
        let cell = |(i, value)| Cell::read(value, kinds.get(i).map_or("", String::as_str));
        let rows = rows.into_iter().map(|row| row.into_iter().enumerate().map(cell).collect()).collect();
        Ok(Self { title, columns, rows })
    }
}

impl Cell {
    /// Reads a cell from a column of this kind.
    fn read(value: Value, kind: &str) -> Self {
        let whole = value.as_u64();
        match (value, kind, whole) {
            (Value::String(text), ..) => Cell::Text(text),
            (Value::Number(_), "bytes", Some(n)) => Cell::Bytes(n),
            (Value::Number(_), "count", Some(n)) => Cell::Count(n),
            (Value::Number(n), "bytes" | "difference", _) if n.is_i64() || n.is_u64() => {
                n.as_i64().map_or_else(Self::unknown, Cell::Difference)
            }
            (Value::Number(n), ..) => n.as_f64().map_or_else(Self::unknown, Cell::Number),
            (Value::Null, ..) => Self::unknown(),
            (other, ..) => Cell::Text(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_written_is_read_back() {
        let row = |name: &str, cells: [Cell; 4]| std::iter::once(Cell::Text(name.into())).chain(cells).collect();
        let cells = [Cell::Bytes(7), Cell::Difference(-7), Cell::Count(7), Cell::Number(0.5)];
        let gaps = [Cell::unknown(), Cell::unknown(), Cell::unknown(), Cell::unknown()];
        let table =
            Table::new("t", &["name", "bytes", "change", "count", "number"], vec![row("a", gaps), row("b", cells)]);
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table, "{text}");
    }

    #[test]
    fn figures_stand_to_the_right() {
        let row = |text: &str| vec![Cell::Text(text.into()), Cell::Text("–".into()), Cell::percent(0.25)];
        let table = Table::new("t", &["name", "gaps", "share"], vec![row("a"), row("b")]);
        assert_eq!([0, 1, 2, 3].map(|column| table.is_figures(column)), [false, true, true, false]);
    }
}
