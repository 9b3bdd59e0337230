//! What fits, for people.

use lab::experiments::{Cell, Table};
use lab::fit::{Fit, Law, Piece, Stretch, Tried, outline};

use super::style::Style;
use super::{WIDTH, bytes, card, counted, premises, table, wrapped};
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
    /// The largest that fits with the smallest context that the card may have, where that is more.
    pub perhaps: Option<usize>,
    /// The law up to the first size that does not.
    pub law: Law,
    /// What the answer rests on besides, and where that came from.
    pub premises: Vec<Premise>,
    /// What the figures stand for, and what not.
    pub notes: Vec<&'static str>,
    /// Where the figures may not be what was asked for.
    pub warnings: Vec<String>,
    /// Every setting in force.
    pub settings: Map<String, Value>,
}

/// Runs that are shown around the answer.
const AROUND: usize = 4;

/// The answer, the law, the runs that verify it.
pub(crate) fn text(found: &Found, style: Style) -> String {
    let mut out = format!(
        "{}\n\n",
        wrapped(&format!("model: {}", found.model), WIDTH, 2).replacen("model", &style.bold("model"), 1)
    );
    out += &format!("{}\n", wrapped(&answer(found), WIDTH, 0));
    out += &format!("{}\n", premises::line(&found.premises));
    found.notes.iter().for_each(|note| out += &format!("{}\n", wrapped(note, WIDTH, 0)));
    let stretches = outline(&found.law);
    let law = stretches.as_ref().map_or_else(|| pieces(found), |stretches| in_stretches(found, stretches));
    for one in [&law, &runs(found)] {
        out += &format!("\n{}", table::titled(one, style));
    }
    out += &format!("{}\n", wrapped(&reading(found, stretches.is_some()), WIDTH, 0));
    out
}

fn unit(of: Quantity) -> &'static str {
    match of {
        Quantity::Batch => "example",
        Quantity::Sequence => "token",
    }
}

fn answer(found: &Found) -> String {
    let room = card::room(found.gpu, found.budget_bytes);
    let perhaps = match found.perhaps {
        Some(size) => format!(
            " With the smallest context that is known {} would fit: which it is, only the card tells.",
            counted(size as u64, unit(found.of))
        ),
        None => String::new(),
    };
    let Some(largest) = found.fit.largest else {
        let missing = found.fit.run(1).and_then(Tried::missing_bytes);
        let missing = missing.map_or(String::new(), |missing| format!(": {} more are needed", bytes::short(missing)));
        return format!("Not even one {} fits into {room}{missing}.{perhaps}", unit(found.of));
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
    text + &perhaps
}

/// How to read the tables.
fn reading(found: &Found, in_stretches: bool) -> String {
    let runs = counted(found.law.runs as u64, "dry run");
    let law = if found.law.complete && in_stretches {
        format!(
            "The law gives the bytes asked for at the highest moment, as closely as it says; --json has it exactly, for every {}, in {}; \
             {runs}.",
            found.of.name(),
            counted(found.law.pieces.len() as u64, "piece")
        )
    } else if found.law.complete {
        format!(
            "The law gives the bytes asked for at the highest moment, exactly, for every {} in it; {runs}.",
            found.of.name()
        )
    } else {
        format!("The law has gaps: sizes between those that it names follow no formula that {runs} could find.")
    };
    law + " What is allocated adds the rounding of blocks, what is reserved the cache; a run ends when that, given back, is not enough."
}

/// The law, as a reader can keep it in mind.
fn in_stretches(found: &Found, stretches: &[Stretch]) -> Table {
    let size = found.of.name();
    let more = format!("each {} more", unit(found.of));
    let columns = vec![size.into(), "at the first".into(), more, "to within".into(), "highest when".into()];
    let signed = |bytes: i64| u64::try_from(bytes).map_or(Cell::Difference(bytes), Cell::Bytes);
    let row = |stretch: &Stretch| {
        let alone = stretch.from == stretch.to;
        let range = if alone { stretch.from.to_string() } else { format!("{}–{}", stretch.from, stretch.to) };
        vec![
            Cell::Text(range),
            signed(stretch.bytes),
            if alone { Cell::Text("–".into()) } else { signed(stretch.slope) },
            if stretch.off_bytes == 0 { Cell::Text("exact".into()) } else { Cell::Bytes(stretch.off_bytes) },
            Cell::Text(highest_when(&stretch.last)),
        ]
    };
    let title = format!("The law: bytes asked for at the peak, by {size}");
    Table { title, columns, rows: stretches.iter().map(row).collect() }
}

fn highest_when(piece: &Piece) -> String {
    let scope = if piece.scope.is_empty() { String::new() } else { format!(" in {}", piece.scope) };
    format!("{}: {}{scope}", piece.phase, piece.op)
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
        row.push(Cell::Text(highest_when(piece)));
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
            Some(report) => bytes::lacking(report.missing_bytes()),
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
