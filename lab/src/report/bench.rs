//! Speed (`vramlab-bench-1`): how near each device comes to its own roofs, kernel by kernel, side by side.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::chart::{Chart, Series, Shape};
use super::command;
use super::table::{Cell, list, plain, settings, table};
use super::text::{element, escaped};

/// Devices that a chart can tell apart.
const MOST_SERIES: usize = 8;

/// Writes the part.
pub(super) fn show(out: &mut String, result: &Value) {
    out.push_str("<header>\n");
    element(out, "h1", "How fast the devices are");
    let early = if result["interrupted"] == true { " It was stopped early." } else { "" };
    let _ = writeln!(
        out,
        "<p class=\"lead\">Each device beside its own roofs: what a large copy moves on it, and what a large product \
         computes.{early}</p>\n</header>"
    );
    let devices: Vec<&Value> = list(&result["devices"]).iter().collect();
    let measured: Vec<&Value> = devices.iter().copied().filter(|device| device["available"] == true).collect();
    roofs(out, &devices);
    chart(out, &measured);
    for (title, part, per) in [("Kernels", "kernels", "µs"), ("Training steps", "training", "ms")] {
        out.push_str("<section>\n");
        rows(out, title, part, per, &measured);
        out.push_str("</section>\n");
    }
    allocators(out, list(&result["allocators"]));
    let in_force = result["settings"].as_object();
    settings(out, in_force, &command::again(&["bench"], in_force.unwrap_or(&Map::new())));
}

/// `cpu:0`, and whether it only pretends to be a device of its own.
fn name(device: &Value) -> String {
    let software = if device["software"] == true { " (software)" } else { "" };
    match device["index"].as_u64() {
        Some(index) => format!("{}:{index}{software}", plain(&device["backend"])),
        None => plain(&device["backend"]),
    }
}

fn figure(value: &Value) -> Cell {
    Cell::value(value, "")
}

fn roofs(out: &mut String, devices: &[&Value]) {
    let row = |device: &&Value| {
        let what = match device["reason"].as_str() {
            Some(reason) => format!("absent: {reason}"),
            None => plain(&device["name"]),
        };
        let roofs = &device["roofs"];
        vec![
            Cell::text(&name(device)),
            Cell::text(&what),
            figure(&roofs["copy_gb_per_s"]),
            figure(&roofs["gemm_gflop_per_s"]),
        ]
    };
    let columns = ["device", "name", "copy, GB/s", "product in f32, GFLOP/s"].map(String::from);
    out.push_str("<section>\n<h2>The roofs</h2>\n");
    table(out, "Devices and their roofs", &columns, &devices.iter().map(row).collect::<Vec<_>>());
    for device in devices {
        for skipped in list(&device["skipped"]) {
            let (what, why) = (plain(&skipped["name"]), plain(&skipped["reason"]));
            let _ = writeln!(
                out,
                "<p class=\"note\">{}: {} is left out: {}</p>",
                escaped(&name(device)),
                escaped(&what),
                escaped(&why)
            );
        }
    }
    out.push_str("</section>\n");
}

/// Kernels along the axis, a series for each device.
fn chart(out: &mut String, devices: &[&Value]) {
    let mut labels: Vec<String> = Vec::new();
    for kernel in devices.iter().flat_map(|device| list(&device["kernels"])) {
        let label = plain(&kernel["name"]);
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let series = |(color, device): (usize, &&Value)| {
        let point = |kernel: &Value| {
            let place = labels.iter().position(|label| *label == plain(&kernel["name"]))?;
            Some((place as f64, 100.0 * kernel["of_roof"].as_f64()?))
        };
        let points = list(&device["kernels"]).iter().filter_map(point).collect();
        Series { name: name(device), points, color, shape: Shape::Dots }
    };
    let chart = Chart {
        title: "Percent of the roof that is nearer: memory or arithmetic".into(),
        x: "kernel".into(),
        series: devices.iter().take(MOST_SERIES).enumerate().map(series).collect(),
        labels,
        bytes: false,
        limit: Some(("the roof".into(), 100.0)),
    };
    out.push_str("<section>\n<h2>How near</h2>\n<p class=\"note\">What stays in the caches can pass the roof.</p>\n");
    chart.draw(out);
    out.push_str("</section>\n");
}

/// One row for each device and measurement.
fn rows(out: &mut String, title: &str, part: &str, per: &str, devices: &[&Value]) {
    let scale = if per == "ms" { 1e-3 } else { 1.0 };
    let row = |device: &Value, measured: &Value| {
        let time = |key: &str| figure(&measured[key].as_f64().map(|us| us * scale).into());
        let percent = measured["of_roof"].as_f64().map_or_else(Cell::none, |part| {
            // Of ten thousand, so that tenths of a percent are shown.
            Cell::share((part * 1e4).clamp(0.0, 1e9) as u64, 10_000)
        });
        vec![
            Cell::text(&plain(&measured["name"])),
            Cell::text(&plain(&measured["size"])),
            Cell::text(&name(device)),
            time("us"),
            time("us_min"),
            figure(&measured["gb_per_s"]),
            figure(&measured["gflop_per_s"]),
            percent,
            Cell::text(&plain(&measured["bound"])),
        ]
    };
    let all: Vec<Vec<Cell>> =
        devices.iter().flat_map(|device| list(&device[part]).iter().map(|measured| row(device, measured))).collect();
    let [time, least] = [per.to_string(), format!("{per}, least")];
    let columns = ["what", "size", "device"].map(String::from).into_iter().chain([time, least]);
    let columns: Vec<String> =
        columns.chain(["GB/s", "GFLOP/s", "of the roof", "which is"].map(String::from)).collect();
    table(out, title, &columns, &all);
}

fn allocators(out: &mut String, policies: &[Value]) {
    let row = |policy: &Value| {
        vec![Cell::text(&plain(&policy["policy"])), figure(&policy["ns_per_operation"]), figure(&policy["operations"])]
    };
    let columns = ["policy", "ns per operation", "operations of the program"].map(String::from);
    out.push_str("<section>\n");
    table(out, "Allocators, on the host", &columns, &policies.iter().map(row).collect::<Vec<_>>());
    out.push_str("</section>\n");
}
