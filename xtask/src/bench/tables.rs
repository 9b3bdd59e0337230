//! The READMEs' tables of figures, each between `<!-- bench: NAME -->` and `<!-- /bench -->`: made from files of
//! results, never typed.

use anyhow::{Context, bail};
use serde_json::Value;

use super::results::{File, Results, per_operation};

mod beside;
mod cells;
mod peers;
mod tuned;

use cells::{figure, markdown, or_dash, strings, time};

/// Files that contain tables.
pub const READMES: [&str; 2] = ["README.md", "benches/README.md"];

const BEGIN: &str = "<!-- bench: ";
const BEGUN: &str = " -->\n";
const END: &str = "<!-- /bench -->";

/// Returns the text with all tables regenerated.
///
/// # Errors
/// A table's name is unknown, or its end is missing.
pub fn updated(text: &str, results: &Results) -> anyhow::Result<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(BEGUN).context("a table without a name")?;
        let (_, after) = after.split_once(END).with_context(|| format!("table {name:?} does not end"))?;
        let table = table(name, results)?;
        out += &format!("{before}{BEGIN}{name}{BEGUN}{table}{END}");
        rest = after;
    }
    Ok(out + rest)
}

fn table(name: &str, results: &Results) -> anyhow::Result<String> {
    let of = |prefix: &str, make: fn(&File) -> String| {
        let missing = || "Not measured yet: `cargo xtask bench` does it.\n".to_string();
        results.newest(prefix).map_or_else(missing, |file| format!("{}{}", make(file), source(file)))
    };
    Ok(match name {
        "tuned" => results.newest_tuned(true).map_or_else(String::new, tuned::table),
        "tuned without bf16" => results.newest_tuned(false).map_or_else(String::new, tuned::table_of_f32),
        "tuned in short" => results.newest_tuned(true).map_or_else(String::new, tuned::in_short),
        "peers memory" => results.newest_peers("cpu").map_or_else(String::new, peers::by_memory),
        "peers on wgpu" => {
            results.newest_peers("wgpu").map_or_else(|| "Not measured side by side yet.\n".into(), peers::on_wgpu)
        }
        "prediction" => results.newest("dry_run/gpt2").map_or_else(String::new, prediction),
        "dry run" => of("dry_run/", dry_runs),
        "training" => of("training/", training),
        "accounting" => of("accounting/pairs/", accounting),
        "kernels" => of("kernels/", kernels),
        "kernels beside PyTorch" => of("beside/cpu/", beside::on_cpu),
        "kernels beside PyTorch on a GPU" => of("beside/cuda/", beside::on_cuda),
        "allocators" => of("allocators/", allocators),
        "live blocks" => of("allocators/live/", live_blocks),
        "snapshots" => of("snapshots/", snapshots),
        other => bail!("no table is called {other:?}"),
    })
}

/// The source of the figures.
fn source(file: &File) -> String {
    let host = file.head["host"].as_str().map_or(String::new(), |host| format!(", {host}"));
    format!("\n[`{0}`](results/{0}){host}.\n", file.name)
}

fn prediction(file: &File) -> String {
    let gpt2 = file.starting_with("dry_run/gpt2").next().and_then(|(_, row)| row["ns"].as_f64());
    gpt2.map_or_else(String::new, |ns| format!("Predicting GPT-2's training takes {}.\n", time(ns)))
}

/// One column of times, after the names.
fn times(file: &File, prefix: &str, what: &str) -> String {
    let row = |(name, row): (&str, &Value)| vec![format!("`{name}`"), or_dash(row["ns"].as_f64().map(time))];
    markdown(&strings([what, "time"]), &file.starting_with(prefix).map(row).collect::<Vec<_>>())
}

fn dry_runs(file: &File) -> String {
    times(file, "dry_run/", "two steps on `meta`, from nothing")
}

/// Training steps: the last part of a name is the column.
fn training(file: &File) -> String {
    let mut devices: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (device, name) in file.starting_with("training/").filter_map(|(rest, _)| rest.split_once('/')) {
        for (list, item) in [(&mut devices, device), (&mut names, name)] {
            if !list.contains(&item) {
                list.push(item);
            }
        }
    }
    let columns: Vec<String> = ["a step of"].into_iter().chain(devices.iter().copied()).map(String::from).collect();
    let row = |name: &&str| {
        let cell = |device: &&str| {
            or_dash(file.row(&format!("training/{device}/{name}")).and_then(|row| row["ns"].as_f64()).map(time))
        };
        [format!("`{name}`")].into_iter().chain(devices.iter().map(cell)).collect()
    };
    markdown(&columns, &names.iter().map(row).collect::<Vec<_>>())
}

fn accounting(file: &File) -> String {
    let row = |(name, row): (&str, &Value)| {
        let adds = format!("{:+.1} %", 100.0 * (row["ratio"].as_f64()? - 1.0));
        Some(vec![format!("`{name}`"), time(row["ns_without"].as_f64()?), time(row["ns"].as_f64()?), adds])
    };
    let columns = strings(["a step of", "totals alone", "every event kept", "adds"]);
    markdown(&columns, &file.starting_with("accounting/pairs/").filter_map(row).collect::<Vec<_>>())
}

/// A kernel at one size and type: `family/name/dtype/size`.
struct Point<'a> {
    device: &'a str,
    kernel: &'a str,
    dtype: &'a str,
    size: &'a str,
    row: &'a Value,
}

impl<'a> Point<'a> {
    fn from_row((name, row): (&'a str, &'a Value)) -> Option<Self> {
        let mut parts = name.split('/');
        let (device, _family) = (parts.next()?, parts.next()?);
        Some(Self { device, kernel: parts.next()?, dtype: parts.next()?, size: parts.next()?, row })
    }

    fn ns(&self) -> f64 {
        self.row["ns"].as_f64().unwrap_or(0.0)
    }

    fn amount(&self, what: &str) -> f64 {
        self.row[what].as_f64().unwrap_or(0.0)
    }

    /// Fraction of the roofline: the least time for moving and computing, divided by the measured time.
    fn of_roof(&self, file: &File) -> Option<(f64, bool)> {
        let roofs = file.head["roofs"].as_array()?.iter().find(|roofs| roofs["device"] == self.device)?;
        let gemm = &roofs["gemm_gflop_per_s"];
        let product = gemm[self.dtype].as_f64().or_else(|| gemm["float32"].as_f64())?;
        // 10⁹ per second is one per nanosecond.
        let (memory, arithmetic) =
            (self.amount("bytes") / roofs["copy_gb_per_s"].as_f64()?, self.amount("elements") / product);
        Some((memory.max(arithmetic) / self.ns(), arithmetic > memory))
    }

    fn in_short(&self, file: &File) -> String {
        let Some((part, arithmetic)) = self.of_roof(file) else { return time(self.ns()) };
        let (amount, unit) = if arithmetic { ("elements", "GFLOP/s") } else { ("bytes", "GB/s") };
        format!("{}, {} {unit}, {:.0} %", time(self.ns()), figure(self.amount(amount) / self.ns()), 100.0 * part)
    }
}

/// For each kernel the smallest size, where the launch dominates, and the largest size in every type.
fn kernels(file: &File) -> String {
    const TYPES: [&str; 4] = ["float32", "float16", "bfloat16", "float64"];
    let points: Vec<Point<'_>> = file.starting_with("kernels/").filter_map(Point::from_row).collect();
    let mut out = String::new();
    let mut devices: Vec<&str> = points.iter().map(|point| point.device).collect();
    devices.dedup();
    for device in devices {
        let mut names: Vec<&str> =
            points.iter().filter(|point| point.device == device).map(|point| point.kernel).collect();
        names.dedup();
        let row = |name: &&str| {
            let of = |dtype: &'static str| {
                points.iter().filter(move |p| p.device == device && p.kernel == *name && p.dtype == dtype)
            };
            let by_bytes = |a: &&Point<'_>, b: &&Point<'_>| a.amount("bytes").total_cmp(&b.amount("bytes"));
            let smallest = or_dash(of("float32").min_by(by_bytes).map(|point| time(point.ns())));
            let size = or_dash(of("float32").max_by(by_bytes).map(|point| point.size.to_string()));
            let cells = TYPES.map(|dtype| or_dash(of(dtype).max_by(by_bytes).map(|point| point.in_short(file))));
            [format!("`{name}`"), smallest, size].into_iter().chain(cells).collect()
        };
        let columns: Vec<String> =
            strings(["kernel", "smallest", "largest"]).into_iter().chain(TYPES.map(String::from)).collect();
        let roofs = file.head["roofs"].as_array().into_iter().flatten().find(|roofs| roofs["device"] == device);
        out += &format!("{}\n\n", heading(device, roofs));
        out += &markdown(&columns, &names.iter().map(row).collect::<Vec<_>>());
    }
    out
}

fn heading(device: &str, roofs: Option<&Value>) -> String {
    let Some(roofs) = roofs else { return format!("**{device}**") };
    let rate = |value: &Value| or_dash(value.as_f64().map(figure));
    let products = roofs["gemm_gflop_per_s"].as_object().into_iter().flatten();
    let products: Vec<String> = products.map(|(dtype, rate_of)| format!("{} in {dtype}", rate(rate_of))).collect();
    format!(
        "**{device}** ({}): roofs of {} GB/s, and of {} GFLOP/s.",
        roofs["name"].as_str().unwrap_or("–"),
        rate(&roofs["copy_gb_per_s"]),
        products.join(", ")
    )
}

/// Allocators: traces are columns, policies are rows.
fn allocators(file: &File) -> String {
    let traces: Vec<&str> = ["default_train", "default_mixed", "gpt"]
        .into_iter()
        .filter(|trace| file.starting_with("allocators/").any(|(rest, _)| rest.split('/').next() == Some(*trace)))
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for (_, name) in file
        .starting_with("allocators/")
        .filter_map(|(rest, _)| rest.split_once('/').filter(|(t, _)| traces.contains(t)))
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let columns: Vec<String> =
        ["nanoseconds per operation"].into_iter().chain(traces.iter().copied()).map(String::from).collect();
    let row = |name: &&str| {
        let cell = |trace: &&str| {
            let row = file.row(&format!("allocators/{trace}/{name}")).and_then(per_operation);
            or_dash(row.map(|ns| format!("{ns:.0}")))
        };
        [format!("`{name}`")].into_iter().chain(traces.iter().map(cell)).collect()
    };
    markdown(&columns, &names.iter().map(row).collect::<Vec<_>>())
}

fn live_blocks(file: &File) -> String {
    let mut rows: Vec<(u64, f64)> = file
        .starting_with("allocators/live/")
        .filter_map(|(live, row)| Some((live.parse().ok()?, per_operation(row)?)))
        .collect();
    rows.sort_by_key(|(live, _)| *live);
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(live, ns)| vec![live.to_string(), format!("{ns:.0}")]).collect();
    markdown(&strings(["live blocks, and as many holes", "nanoseconds per operation"]), &rows)
}

fn snapshots(file: &File) -> String {
    let row = |(name, row): (&str, &Value)| {
        let rate = row["bytes"]
            .as_f64()
            .zip(row["ns"].as_f64())
            .map(|(bytes, ns)| format!("{} MB/s", figure(1e3 * bytes / ns)));
        vec![format!("`{name}`"), or_dash(row["ns"].as_f64().map(time)), or_dash(rate)]
    };
    let rows: Vec<Vec<String>> =
        file.starting_with("snapshots/").chain(file.starting_with("reports/")).map(row).collect();
    markdown(&strings(["", "time", "of the file"]), &rows)
}
