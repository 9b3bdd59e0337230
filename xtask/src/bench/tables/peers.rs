//! This project compared with other programs.

use serde_json::Value;

use super::cells::{figure, markdown, or_dash, strings, time};
use crate::bench::results::File;

/// Programs in the order of the table.
const PEERS: [&str; 4] = ["candle", "burn-flex", "torch", "vramlab"];

/// A row's workload with its batch.
fn workload(row: &Value) -> String {
    let name = row["workload"].as_str().unwrap_or_default();
    row["batch"].as_u64().map_or_else(|| format!("`{name}`"), |batch| format!("`{name}` b{batch}"))
}

/// The figure that counts: milliseconds of a step, or a rate, with its unit.
fn counted(row: &Value) -> Option<(f64, &'static str)> {
    let rates = [("gflops", " GFLOP/s"), ("gbps", " GB/s")];
    let rate = rates.into_iter().find_map(|(key, unit)| Some((row[key].as_f64()?, unit)));
    rate.or_else(|| Some((row["ms_per_step_median"].as_f64()?, " ms")))
}

fn of_peer<'a>(file: &'a File, peer: &str, name: &str) -> Option<&'a Value> {
    file.rows.iter().find(|row| row["peer"] == peer && workload(row) == name)
}

fn workloads(file: &File) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in file.rows.iter().map(workload) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// burn and this project on one adapter: a step, and all the time before the first timed step.
pub(super) fn on_wgpu(file: &File) -> String {
    let columns = ["workload", "burn", "vramlab", "speed ÷ burn's", "burn's warm-up", "vramlab's warm-up"];
    let row = |workload: &String| {
        let rows = ["burn-wgpu", "vramlab"].map(|peer| of_peer(file, peer, workload));
        let cells = rows.map(|row| or_dash(row.and_then(counted).map(|(x, unit)| format!("{}{unit}", figure(x)))));
        let step = rows.map(|row| row.and_then(|row| row["ms_per_step_median"].as_f64()));
        let ratio = step[0].zip(step[1]).map(|(theirs, ours)| format!("{:.2}", theirs / ours));
        let warm_up = rows.map(|row| or_dash(row.and_then(|row| row["warmup_s"].as_f64()).map(|s| time(s * 1e9))));
        [workload.clone()].into_iter().chain(cells).chain([or_dash(ratio)]).chain(warm_up).collect()
    };
    let rows: Vec<Vec<String>> = workloads(file).iter().map(row).collect();
    let adapter = file.head["adapter"].as_str().unwrap_or("–");
    markdown(&strings(columns), &rows) + &format!("\n[`{0}`](results/{0}): {adapter}.\n", file.name)
}

/// Peak of memory in use, as each program counts it, and the memory that this project had
/// reserved.
pub(super) fn by_memory(file: &File) -> String {
    let columns =
        ["workload", "candle, heap", "burn-flex, heap", "PyTorch, resident", "vramlab, allocated", "vramlab, reserved"];
    let megabytes = |row: Option<&Value>, key: &str| {
        or_dash(row.and_then(|row| row[key].as_f64()).map(|bytes| format!("{} MB", figure(bytes / 1e6))))
    };
    let row = |workload: &String| {
        let [candle, burn, torch, ours] = PEERS.map(|peer| of_peer(file, peer, workload));
        let theirs = [candle, burn, torch].map(|row| megabytes(row, "peak_bytes"));
        let ours = ["peak_allocated_bytes", "peak_bytes"].map(|key| megabytes(ours, key));
        [workload.clone()].into_iter().chain(theirs).chain(ours).collect()
    };
    let rows: Vec<Vec<String>> = workloads(file).iter().map(row).collect();
    markdown(&strings(columns), &rows)
}
