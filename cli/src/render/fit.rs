//! What fits, for people.

use lab::experiments::{Cell, Table};
use lab::fit::{Fit, Law, Piece, Tried};

use super::style::Style;
use super::{WIDTH, bytes, counted, premises, table, wrapped};
use crate::args::{Gpu, Quantity};
use crate::commands::premises::Premise;
use serde_json::{Map, Value};

/// What was found.
pub(crate) struct Found {
    /// What was made as large as fits.
    pub of: Quantity,
    /// The network.
    pub model: String,
    /// The card, where one was named.
    pub gpu: Option<Gpu>,
    /// What a process may take of it.
    pub budget_bytes: u64,
    /// What fits.
    pub fit: Fit,
    /// The law up to the first size that does not.
    pub law: Law,
    /// What the answer rests on besides, and where that came from.
    pub premises: Vec<Premise>,
    /// Where the figures may not be what was asked for.
    pub warnings: Vec<String>,
    /// Every setting in force.
    pub settings: Map<String, Value>,
}

/// Runs that are shown around the answer.
const AROUND: usize = 4;

/// The answer, the law, the runs that verify it.
pub(crate) fn text(found: &Found, tables: &[Table], style: Style) -> String {
    let mut out = format!(
        "{}\n\n",
        wrapped(&format!("model: {}", found.model), WIDTH, 2).replacen("model", &style.bold("model"), 1)
    );
    out += &format!("{}\n", wrapped(&answer(found), WIDTH, 0));
    out += &format!("{}\n", premises::line(&found.premises));
    for one in tables {
        out += &format!("\n{}", table::titled(one, style));
    }
    out += &format!("{}\n", wrapped(&reading(found), WIDTH, 0));
    out
}

fn unit(of: Quantity) -> &'static str {
    match of {
        Quantity::Batch => "example",
        Quantity::Sequence => "token",
    }
}

fn answer(found: &Found) -> String {
    let room = match found.gpu {
        Some(Gpu::Named(card)) => format!(
            "{} ({}, of which a CUDA context leaves {})",
            card.title,
            bytes::short(card.total_bytes()),
            bytes::both(found.budget_bytes)
        ),
        _ => bytes::both(found.budget_bytes),
    };
    let Some(largest) = found.fit.largest else {
        return format!("Not even one {} fits into {room}.", unit(found.of));
    };
    if found.fit.at_maximum {
        return format!("{} fit into {room}: the most that was asked about.", counted(largest as u64, unit(found.of)));
    }
    let mut text = format!(
        "{} fit into {room}, {} do not.",
        counted(largest as u64, unit(found.of)),
        counted(largest as u64 + 1, unit(found.of))
    );
    let gaps: Vec<String> = found.fit.gaps().iter().map(usize::to_string).collect();
    if !gaps.is_empty() {
        text += &format!(" But {} fail: what is reserved does not rise with every step.", gaps.join(", "));
    }
    text
}

/// How to read the tables.
fn reading(found: &Found) -> String {
    let runs = counted(found.law.runs as u64, "dry run");
    let law = if found.law.complete {
        format!(
            "The law gives the bytes asked for at the highest moment, exactly, for every {} in it; {runs}.",
            found.of.name()
        )
    } else {
        format!("The law has gaps: sizes that lie between two pieces follow no formula that {runs} could find.")
    };
    law + " What is allocated adds the rounding of blocks, what is reserved the cache; a run ends when that, given back, is not enough."
}

/// Where each formula holds.
pub(crate) fn pieces(found: &Found) -> Table {
    let size = found.of.name();
    let with_square = found.law.pieces.iter().any(|piece| piece.square != 0);
    let mut columns = vec![size.to_string(), "constant".into(), format!("per {}", unit(found.of))];
    columns.extend(with_square.then(|| "squared".to_string()));
    columns.push("highest when".into());
    let signed = |bytes: i64| u64::try_from(bytes).map_or(Cell::Difference(bytes), Cell::Bytes);
    let row = |piece: &Piece| {
        let range =
            if piece.from == piece.to { piece.from.to_string() } else { format!("{}–{}", piece.from, piece.to) };
        // A single size that no formula around it gives has none of its own.
        let alone = piece.from == piece.to;
        let grows = |bytes: i64| if alone { Cell::Text("–".into()) } else { signed(bytes) };
        let mut row = vec![Cell::Text(range), signed(piece.constant), grows(piece.slope)];
        row.extend(with_square.then(|| grows(piece.square)));
        let scope = if piece.scope.is_empty() { String::new() } else { format!(" in {}", piece.scope) };
        row.push(Cell::Text(format!("{}: {}{scope}", piece.phase, piece.op)));
        row
    };
    let title = format!("The law: bytes asked for at the peak, by {size}");
    Table { title, columns, rows: found.law.pieces.iter().map(row).collect() }
}

/// Runs on a device of that size, around the answer.
pub(crate) fn runs(found: &Found) -> Table {
    let largest = found.fit.largest.unwrap_or(1);
    let near = |tried: &&Tried| tried.size.abs_diff(largest) <= AROUND || tried.size == 1;
    let bytes = |value: Option<u64>| value.map_or(Cell::Text("–".into()), Cell::Bytes);
    let row = |tried: &Tried| {
        let end = match &tried.out_of_memory {
            None => "fits".to_string(),
            Some(report) => format!("no: {} more", bytes::short(report.requested_bytes)),
        };
        let law = bytes(found.law.at(tried.size));
        vec![
            Cell::Text(tried.size.to_string()),
            Cell::Text(end),
            law,
            bytes(tried.allocated_bytes),
            bytes(tried.reserved_bytes),
        ]
    };
    let columns = [found.of.name(), "under that limit", "law", "allocated", "reserved"].map(String::from).to_vec();
    let title = "Verified: runs on a device of that size".into();
    Table { title, columns, rows: found.fit.tried.iter().filter(near).map(row).collect() }
}
