//! This project compared with the fastest of PyTorch's options, in float32 and in bfloat16 (autocast for training).

use serde_json::Value;

use super::cells::{figure, markdown, or_dash, strings};
use crate::bench::results::File;

/// Workload of a row, as `benches/compare.sh` calls it.
fn workload(row: &Value) -> String {
    let name = row["workload"].as_str().unwrap_or_default();
    match (row["peer"].as_str(), row["batch"].as_u64()) {
        (Some("vramlab" | "candle" | "burn-flex"), Some(batch)) if matches!(name, "simplecnn" | "resnet18") => {
            format!("{name}-b{batch}")
        }
        _ => name.to_string(),
    }
}

/// True for a row in 16 bits: pure, or under autocast.
fn is_narrow(row: &Value) -> bool {
    let options = row["opts"].as_str().unwrap_or_default();
    options.contains("--bf16") || options.contains("--autocast") || row["dtype"].as_str().is_some_and(|d| d != "f32")
}

/// Milliseconds per step of a program's fastest option; an option's time is the median of its rounds.
fn best(file: &File, peer: &str, name: &str, narrow: bool) -> Option<f64> {
    let rows =
        || file.rows.iter().filter(|row| row["peer"] == peer && workload(row) == name && is_narrow(row) == narrow);
    let median = |options: &Value| {
        let of = rows().filter(|row| row["opts"] == *options);
        let mut times: Vec<f64> = of.filter_map(|row| row["ms_per_step_median"].as_f64()).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    };
    rows().filter_map(|row| median(&row["opts"])).min_by(f64::total_cmp)
}

/// Milliseconds of PyTorch and of this project, and the speed relative to PyTorch's, for each workload in f32 and bf16.
fn rows(file: &File, names: impl Iterator<Item = (String, String)>) -> Vec<Vec<String>> {
    let row = |(workload, shown): (String, String)| {
        let cells = [false, true].into_iter().flat_map(|narrow| {
            let [torch, ours] = ["torch", "vramlab"].map(|peer| best(file, peer, &workload, narrow));
            let ms = |time: Option<f64>| or_dash(time.map(figure));
            let ratio = torch.zip(ours).map(|(torch, ours)| format!("**{:.2}**", torch / ours));
            [ms(torch), ms(ours), or_dash(ratio)]
        });
        std::iter::once(shown).chain(cells).collect()
    };
    names.map(row).collect()
}

fn columns(first: &str) -> Vec<String> {
    strings([first, "PyTorch, f32", "vramlab", "speed", "PyTorch, bf16", "vramlab", "speed"])
}

/// Every workload, in milliseconds.
pub(super) fn table(file: &File) -> String {
    markdown(&columns("workload"), &rows(file, workloads(file))) + &source(file)
}

/// Programs in Rust, which have no options.
const OTHERS: [&str; 2] = ["candle", "burn-flex"];

/// The columns of float32, of a processor that has no others to show; with those of the other programs that ran.
pub(super) fn table_of_f32(file: &File) -> String {
    let others: Vec<&str> =
        OTHERS.into_iter().filter(|peer| file.rows.iter().any(|row| row["peer"] == *peer)).collect();
    let with = |mut cells: Vec<String>, of_others: Vec<String>| {
        cells.truncate(4);
        cells.splice(1..1, of_others);
        cells
    };
    let names: Vec<(String, String)> = workloads(file).collect();
    let rows = rows(file, names.iter().cloned()).into_iter().zip(&names).map(|(cells, (name, _))| {
        let time = |peer: &&str| or_dash(best(file, peer, name, false).map(figure));
        with(cells, others.iter().map(time).collect())
    });
    let version = |peer: &&str| {
        let row = file.rows.iter().find(|row| row["peer"] == *peer);
        let version = row.and_then(|row| row["version"].as_str()).unwrap_or_default();
        format!("{peer} {version}").trim_end().to_string()
    };
    let columns = with(columns("workload"), others.iter().map(version).collect());
    markdown(&columns, &rows.collect::<Vec<_>>()) + &source(file)
}

/// Every workload of this project, and how a table shows it.
fn workloads(file: &File) -> impl Iterator<Item = (String, String)> {
    let mut names: Vec<String> = Vec::new();
    for name in file.rows.iter().filter(|row| row["peer"] == "vramlab").map(workload) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| (name.clone(), format!("`{name}`")))
}

/// Where the figures are from.
fn source(file: &File) -> String {
    let host = |key: &str| file.head[key].as_str().unwrap_or("–").to_string();
    let cores = file.head["cores"].as_u64().unwrap_or(0);
    let date = host("date").chars().take(10).collect::<String>();
    let torch = file.rows.iter().find_map(|row| row["version"].as_str().filter(|_| row["peer"] == "torch"));
    let flags = Some(host("flags")).filter(|flags| !flags.is_empty());
    let (cpu, flags, torch) = (host("cpu"), flags.unwrap_or_else(|| "avx2".into()), torch.unwrap_or("–"));
    format!("\n[`{0}`](results/{0}): {cpu}, {cores} cores, {flags}, torch {torch}, {date}.\n", file.name)
}

pub(super) fn in_short(file: &File) -> String {
    const SHOWN: [(&str, &str); 4] = [
        ("mlp", "MLP, batch 128"),
        ("simplecnn-b128", "the articles' CNN, batch 128"),
        ("gpt-mini", "small GPT, batch 8"),
        ("resnet18-b8", "ResNet-18, batch 8"),
    ];
    let names = SHOWN.map(|(name, shown)| (name.to_string(), shown.to_string()));
    markdown(&columns(""), &rows(file, names.into_iter()))
}
