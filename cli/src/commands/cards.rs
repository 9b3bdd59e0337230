//! `vramlab cards`

use lab::cards::{ALL, CONTEXT, Card};
use lab::experiments::{Cell, Table};
use serde_json::{Value, json};

use crate::args::{Gpu, ListArgs};
use crate::exit::{Code, Result};
use crate::output::{self, Results};
use crate::render::{WIDTH, table, wrapped};
use crate::ui::Ui;

/// Lists the cards that `--gpu` knows; with `-v` also where each figure is from.
///
/// # Errors
/// When a result cannot be written.
pub(super) fn run(args: &ListArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let json = json!({ "schema": "vramlab-cards-1", "cards": ALL.iter().map(as_json).collect::<Vec<_>>() });
    let columns = ["card", "name", "total", "context", "profile"].map(String::from).to_vec();
    let rows = ALL.iter().map(row).collect();
    let shown = Table { title: "Cards for --gpu".into(), columns, rows };
    let mut text = table::titled(&shown, ui.style);
    text += &format!("{}\n", wrapped(&reading(), WIDTH, 0));
    if ui.verbose {
        for card in ALL {
            let context = card.context.source.map_or(String::new(), |source| format!("; context: {source}"));
            let sources = format!("{}: total: {}{context}", card.name, card.total_source);
            text += &format!("{}\n", wrapped(&sources, WIDTH, 2));
        }
    }
    output::deliver(ui, &args.output, &Results { json: &json, tables: &[shown], text: &text })?;
    Ok(Code::Done)
}

fn as_json(card: &Card) -> Value {
    json!({
        "name": card.name,
        "title": card.title,
        "total_bytes": card.total_bytes(),
        "total_source": card.total_source,
        "least_context_bytes": card.context.least_bytes(),
        "context_bytes": card.context.most_bytes(),
        "context_source": card.context.source,
        "compute_capability": card.sm,
        "multiprocessors": card.multiprocessors,
        "profile": card.profile(),
    })
}

fn row(card: &Card) -> Vec<Cell> {
    let context = if card.context.source.is_some() { card.context.range() } else { "–".into() };
    vec![
        Cell::Text(card.name.into()),
        Cell::Text(card.title.into()),
        Cell::Bytes(card.total_bytes()),
        Cell::Text(context),
        Cell::Text(card.profile().unwrap_or("none recorded").into()),
    ]
}

fn reading() -> String {
    format!(
        "Total: what the driver says. Context: what a process of PyTorch takes before its first tensor, as seen on that card; – where it was not seen: {} is \
         counted then, the range over all. The most of a range decides whether something fits. -v says where each figure is from.",
        CONTEXT.range()
    )
}

/// A card for other programs; null for a size.
pub(crate) fn of_gpu(gpu: Option<Gpu>) -> Value {
    match gpu {
        Some(Gpu::Named(card)) => as_json(card),
        _ => Value::Null,
    }
}
