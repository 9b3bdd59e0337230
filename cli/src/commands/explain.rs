//! `vramlab explain`: what PyTorch said when memory ran out.

use std::io::{self, Read};

use lab::experiments::{Cell, Table};
use lab::explain::{Explanation, explain};
use serde_json::{Value, json};

use crate::args::ExplainArgs;
use crate::exit::{Code, Failure, Result};
use crate::output::{self, Results};
use crate::render::{WIDTH, bytes, table, wrapped};
use crate::ui::Ui;

/// More is no message.
const MOST_STDIN: u64 = 1 << 20;

/// Explains a message.
///
/// # Errors
/// A text without one; results that cannot be written.
pub(super) fn run(args: &ExplainArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let text = match args.text.as_slice() {
        [] => stdin()?,
        [dash] if dash == "-" => stdin()?,
        words => words.join(" "),
    };
    let explanation = explain(&text)?;
    let tables = vec![figures(&explanation)];
    let text = for_people(&explanation, &tables, ui);
    output::deliver(ui, &args.output, &Results { json: &as_json(&explanation), tables: &tables, text: &text })?;
    Ok(Code::Done)
}

fn stdin() -> Result<String> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(MOST_STDIN).read_to_end(&mut text);
    read.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn figures(explanation: &Explanation) -> Table {
    let row = |figure: &lab::explain::Figure| {
        vec![Cell::Text(figure.name.into()), Cell::Text(figure.size.to_string()), Cell::Text(figure.meaning.clone())]
    };
    let columns = ["figure", "size", "meaning"].map(String::from).to_vec();
    Table { title: "What each figure means".into(), columns, rows: explanation.figures.iter().map(row).collect() }
}

fn for_people(explanation: &Explanation, tables: &[Table], ui: &Ui) -> String {
    let verdict = explanation.verdict.map_or("unknown".to_string(), |verdict| verdict.to_string());
    let device = explanation.device.map_or(String::new(), |device| format!(" on GPU {device}"));
    let mut out = format!("{}: {}\n", ui.style.bold(&format!("{verdict}{device}")), explanation.wording.name());
    out += &format!("{}\n", wrapped(&explanation.reason, WIDTH, 2));
    if !explanation.figures.is_empty() {
        out += &format!("\n{}", table::titled(&tables[0], ui.style));
    }
    for sum in &explanation.sums {
        let left = bytes::signed(sum.remainder);
        let exact = match sum.remainder.unsigned_abs() <= sum.tolerance {
            true => format!("adds up (to ±{}, as the figures are rounded)", bytes::short(sum.tolerance)),
            false => format!("{left} (±{})", bytes::short(sum.tolerance)),
        };
        out += &format!("{}\n", wrapped(&format!("{}: {exact}", sum.text), WIDTH, 2));
    }
    out += &format!("\n{}\n", ui.style.bold("What to try, first things first"));
    for (number, advice) in explanation.advice.iter().enumerate() {
        out += &format!("{}\n", wrapped(&format!("{}. {}", number + 1, advice.what), WIDTH, 3));
        if let Some(command) = &advice.command {
            out += &format!("     {command}\n");
        }
    }
    out
}

fn as_json(explanation: &Explanation) -> Value {
    let figure = |figure: &lab::explain::Figure| {
        json!({
            "name": figure.name,
            "bytes": figure.size.bytes,
            "tolerance_bytes": figure.size.tolerance,
            "meaning": figure.meaning,
        })
    };
    let sum = |sum: &lab::explain::Sum| json!({ "text": sum.text, "remainder_bytes": sum.remainder, "tolerance_bytes": sum.tolerance });
    json!({
        "schema": "vramlab-explain-1",
        "wording": explanation.wording.name(),
        "device": explanation.device,
        "verdict": explanation.verdict.map(|verdict| verdict.to_string()),
        "reason": explanation.reason,
        "figures": explanation.figures.iter().map(figure).collect::<Vec<_>>(),
        "sums": explanation.sums.iter().map(sum).collect::<Vec<_>>(),
        "advice": explanation.advice.iter()
            .map(|advice| json!({ "what": advice.what, "command": advice.command }))
            .collect::<Vec<_>>(),
    })
}
