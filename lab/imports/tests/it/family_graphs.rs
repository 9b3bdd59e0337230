//! Graphs of a family's networks, as `vramlab.export` gives them, beside the recordings of the same networks: how many rows the graphs take otherwise.
//! `scripts/export/families.py` makes the graphs, in the folder that VRAMLAB_FAMILY_GRAPHS names. The result is in `docs/evidence-import.md`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use lab_imports::exported;
use lab_training::record::{COLUMNS, Row};
use lab_training::{Continuation, RunSettings, Source};
use serde_json::Value;

use crate::golden_models::{device, optimizer, precision, recorded};

/// A row of a graph that differs from the recorded one: in which columns, and by how much.
struct Different {
    label: String,
    columns: Vec<(&'static str, i64)>,
}

/// Our rows of a recorded run, of the network's graph.
fn rows(path: &Path, again: &str, run: &Value) -> Result<Vec<Row>, String> {
    let options = &run["options"];
    let count = |key: &Value| key.as_u64().unwrap() as usize;
    let model = exported::load(path, None).map_err(|error| error.to_string())?;
    let model = model.of_length(count(&run["seq"])).map_err(|error| error.to_string())?;
    let model = model.recomputing(&again.parse().unwrap()).map_err(|error| error.to_string())?;
    let settings = RunSettings {
        accumulate: count(&options["grad_accumulation"]),
        precision: precision(options["precision"].as_str().unwrap()),
        ..RunSettings::new(count(&run["batch"]), 3, optimizer(options["optimizer"].as_str().unwrap()))
    };
    let source = Source::Renewed { seed: 0 };
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = exported::train_from(&model, &device(options), &settings, source, &mut Continuation::default(), go_on);
    result.map(|result| result.rows).map_err(|failed| failed.error.to_string())
}

fn different(ours: &[Row], theirs: &Value) -> Vec<Different> {
    let theirs = theirs.as_array().unwrap();
    let of = |ours: &Row| {
        let row = theirs.iter().find(|row| row[0] == ours.label.as_str())?;
        let figures = ours.figures().into_iter().zip(&row.as_array()?[1..]).zip(&COLUMNS[1..]);
        let off = figures.map(|((ours, theirs), column)| (*column, ours as i64 - theirs.as_i64().unwrap_or_default()));
        let columns: Vec<(&str, i64)> = off.filter(|(_, off)| *off != 0).collect();
        (!columns.is_empty()).then(|| Different { label: ours.label.clone(), columns })
    };
    // At the end a recording still holds the network, and ours does not.
    ours.iter().filter(|row| row.label != "end").filter_map(of).collect()
}

#[test]
#[ignore = "needs graphs that scripts/export/families.py makes with PyTorch"]
fn rows_of_graphs_and_of_recordings() {
    let folder = std::env::var("VRAMLAB_FAMILY_GRAPHS").expect("VRAMLAB_FAMILY_GRAPHS names the folder of the graphs");
    let folder = Path::new(&folder);
    let index: Vec<Value> = serde_json::from_slice(&std::fs::read(folder.join("INDEX.json")).unwrap()).unwrap();
    let (mut compared, mut differing, mut left_out) = (0, 0, BTreeMap::<String, usize>::new());
    for entry in &index {
        let text = |key: &str| entry[key].as_str().unwrap();
        let about = format!("{} {}", text("recording"), text("name"));
        let run = recorded(text("recording")).into_iter().find(|run| run["name"] == entry["name"]).unwrap();
        let ours = match entry["left_out"].as_str() {
            Some(why) => Err(why.to_string()),
            None => rows(&folder.join(text("graph")), text("again"), &run),
        };
        let ours = match ours {
            Ok(ours) => ours,
            Err(why) => {
                *left_out.entry(why).or_default() += 1;
                continue;
            }
        };
        let found = different(&ours, &run["steps"]);
        (compared, differing) = (compared + ours.len() - 1, differing + found.len());
        println!("{about}: {} of {} rows differ", found.len(), ours.len() - 1);
        for row in found {
            let columns: Vec<String> = row.columns.iter().map(|(column, off)| format!("{column} {off:+}")).collect();
            println!("    {}: {}", row.label, columns.join(", "));
        }
    }
    println!("{differing} of {compared} rows differ");
    left_out.iter().for_each(|(why, count)| println!("{count} recordings not compared: {why}"));
    assert!(compared > 0);
}
