//! Columns of a file, before they are interpreted.

use super::trace::Fault;

/// A column of numbers as it stands in the file.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The numbers; 0 for entries that are not a number.
    pub(super) values: Vec<i64>,
    /// First entry that is not a number, and its text.
    pub(super) fault: Option<(usize, String)>,
    /// True if the file has the column.
    pub(super) present: bool,
}

impl Numbers {
    /// Returns an entry; an error names its operation.
    pub(super) fn at(&self, entry: usize, operation: usize, what: &str) -> Result<i64, Fault> {
        match (&self.fault, self.values.get(entry)) {
            (Some((at, text)), _) if *at == entry => {
                Err(Fault::new(operation, format!("{what} {text} is not a whole number of 64 bits")))
            }
            (_, Some(value)) => Ok(*value),
            _ => Err(Fault::new(operation, format!("has no {what}: the column ends after {entry} entries"))),
        }
    }

    /// Returns an entry that must not be negative.
    pub(super) fn natural(&self, entry: usize, operation: usize, what: &str) -> Result<u64, Fault> {
        let value = self.at(entry, operation, what)?;
        u64::try_from(value).map_err(|_| Fault::new(operation, format!("{what} {value} is negative")))
    }
}

/// Columns of a file, before they are interpreted.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) format: String,
    pub(super) name: String,
    pub(super) torch: String,
    pub(super) alloc_conf: String,
    pub(super) capacity: Option<f64>,
    pub(super) memory_fraction: Option<f64>,
    /// `op` or `ev`: a character per operation.
    pub(super) kinds: Vec<u8>,
    pub(super) id: Numbers,
    pub(super) size: Numbers,
    pub(super) stream: Numbers,
    pub(super) seg: Numbers,
    pub(super) free_ref: Numbers,
    /// Column being read, and the number of entries read.
    pub(super) reading: Option<(&'static str, usize)>,
}

/// Error for an operation that no format has.
pub(super) fn unknown(at: usize, kind: u8) -> Fault {
    Fault::new(at, format!("{:?} is not an operation", char::from(kind)))
}

/// Checks that no column continues after the last operation: such a column belongs to another file.
pub(super) fn ended(columns: &[(&str, &Numbers, usize)], operations: usize) -> Result<(), Fault> {
    match columns.iter().find(|(_, column, used)| column.values.len() != *used) {
        None => Ok(()),
        Some((name, column, used)) => {
            let problem = format!("column {name} has {} entries, but the operations use {used}", column.values.len());
            Err(Fault::new(operations.saturating_sub(1), problem))
        }
    }
}
