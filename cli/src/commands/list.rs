//! `vramlab list`

use lab::experiments::{ALL, Experiment, Size};
use lab::section::{Cell, Table};
use serde_json::{Value, json};

use crate::args::ListArgs;
use crate::exit::{Code, Result};
use crate::output::{self, Results};
use crate::render::{WIDTH, wrapped};
use crate::ui::Ui;

/// Lists the experiments with their questions and claims; with `-v` also the sizes that can be set.
///
/// # Errors
/// When a result cannot be written.
pub(super) fn run(args: &ListArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let experiments: Vec<Value> = ALL.iter().map(|e| describe(*e)).collect();
    let json = json!({ "schema": "vramlab-list-1", "experiments": experiments });
    let columns = ["experiment", "question", "claims"].map(String::from).to_vec();
    let claims = |e: &dyn Experiment| e.claims().iter().map(|c| c.text).collect::<Vec<_>>().join("; ");
    let row =
        |e: &&dyn Experiment| [e.name().to_string(), e.question().to_string(), claims(*e)].map(Cell::Text).to_vec();
    let table = Table { title: "Experiments".into(), columns, rows: ALL.iter().map(row).collect() };
    let text: Vec<String> = ALL.iter().map(|e| paragraph(*e, ui)).collect();
    let text = text.join("\n");
    output::deliver(ui, &args.output, &Results { json: &json, tables: &[table], text: &text })?;
    Ok(Code::Done)
}

fn describe(experiment: &dyn Experiment) -> Value {
    let sizes: serde_json::Map<String, Value> =
        experiment.sizes().iter().map(|size| (size.name.to_string(), json!(size.meaning))).collect();
    json!({
        "name": experiment.name(),
        "question": experiment.question(),
        "claims": experiment.claims(),
        "sizes": sizes,
    })
}

/// A claim does not fit a column: the list is one paragraph per experiment.
fn paragraph(experiment: &dyn Experiment, ui: &Ui) -> String {
    let mut text =
        format!("{}\n  {}\n", ui.style.bold(experiment.name()), wrapped(experiment.question(), WIDTH - 2, 2));
    for claim in experiment.claims() {
        let claim = format!("{} [{}]", claim.text, claim.source);
        text += &format!("    - {}\n", wrapped(&claim, WIDTH - 6, 6));
    }
    if ui.verbose {
        for Size { name, meaning, .. } in experiment.sizes() {
            text += &format!("    --set {name}=…  {}\n", wrapped(meaning, WIDTH - name.len() - 14, 6));
        }
    }
    text
}
