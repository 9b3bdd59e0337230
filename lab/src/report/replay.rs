//! A trace under other allocators (`vramlab-replay-1`): what each policy reserved over the operations, beside the bound of any.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::chart::{Chart, Series, Shape};
use super::command;
use super::table::{Cell, list, plain, settings, table};
use super::text::{bytes, element, escaped, grouped};

/// Policies that a chart can tell apart.
const MOST_SERIES: usize = 7;

/// Writes the part.
pub(super) fn show(out: &mut String, result: &Value) {
    let (trace, bound) = (&result["trace"], &result["lower_bound"]);
    let name = plain(&trace["name"]);
    out.push_str("<header>\n");
    element(out, "h1", &title(result));
    let counted = |key: &str| trace[key].as_u64().map_or_else(String::new, grouped);
    let _ = writeln!(
        out,
        "<p class=\"lead\">{} operations, {} of them allocations. No allocator can do with less than {}, which are alive after operation {}.</p>\n\
         </header>",
        counted("operations"),
        counted("allocations"),
        bytes(bound["bytes"].as_u64().unwrap_or(0)),
        bound["operation"].as_u64().map_or_else(String::new, grouped)
    );
    let policies = list(&result["policies"]);
    chart(out, policies, bound["bytes"].as_f64());
    out.push_str("<section>\n");
    memory(out, policies, bound["bytes"].as_u64());
    driver(out, policies);
    for policy in policies {
        if let Some(message) = policy["last_oom_message"].as_str() {
            let _ = writeln!(out, "<p class=\"note\">{}: {}</p>", escaped(&plain(&policy["policy"])), escaped(message));
        }
    }
    out.push_str("</section>\n");
    let in_force = result["settings"].as_object();
    settings(out, in_force, &command::again(&["replay", &name], in_force.unwrap_or(&Map::new())));
}

/// What the part, and a page of it alone, is called.
pub(super) fn title(result: &Value) -> String {
    match list(&result["policies"]) {
        [one] => format!("{} under {}", plain(&result["trace"]["name"]), plain(&one["policy"])),
        several => format!("{} under {} policies", plain(&result["trace"]["name"]), several.len()),
    }
}

/// A policy's samples: operation and the figure in that column.
fn samples(policy: &Value, column: usize) -> Vec<(f64, f64)> {
    let point = |sample: &Value| Some((sample[0].as_f64()?, sample[column].as_f64()?));
    list(&policy["samples"]).iter().filter_map(point).collect()
}

/// Reserved under each policy; the trace's own curve, allocated, once.
fn chart(out: &mut String, policies: &[Value], bound: Option<f64>) {
    let reserved = policies.iter().take(MOST_SERIES).enumerate().map(|(color, policy)| Series {
        name: plain(&policy["policy"]),
        points: samples(policy, 2),
        color: color + 1,
        shape: Shape::Steps,
    });
    let allocated = policies.first().map(|policy| Series {
        name: "allocated".into(),
        points: samples(policy, 1),
        color: 0,
        shape: Shape::Line,
    });
    let chart = Chart {
        title: "Reserved over the operations, and what of it was allocated".into(),
        x: "operation".into(),
        labels: Vec::new(),
        series: allocated.into_iter().chain(reserved).collect(),
        bytes: true,
        limit: bound.map(|bound| ("lower bound".to_string(), bound)),
    };
    out.push_str("<section>\n<h2>Reserved over time</h2>\n");
    if policies.len() > MOST_SERIES {
        let _ = writeln!(out, "<p class=\"note\">The first {MOST_SERIES} of {} are drawn.</p>", policies.len());
    }
    chart.draw(out);
    out.push_str("</section>\n");
}

fn memory(out: &mut String, policies: &[Value], bound: Option<u64>) {
    let row = |policy: &Value| {
        let above = match (policy["peak"]["reserved"].as_u64(), bound) {
            (Some(peak), Some(bound)) => Cell::share(peak.saturating_sub(bound), bound),
            _ => Cell::none(),
        };
        let unused = policy["fragmentation"]["unused_bytes_at_peak"].as_u64();
        let share = match (unused, policy["peak"]["reserved"].as_u64()) {
            (Some(unused), Some(peak)) => Cell::share(unused, peak),
            _ => Cell::none(),
        };
        vec![
            Cell::text(&plain(&policy["policy"])),
            Cell::bytes_of(&policy["peak"]["reserved"]),
            above,
            Cell::bytes_of(&policy["peak"]["allocated"]),
            share,
            Cell::bytes_of(&policy["final"]["reserved"]),
            Cell::bytes_of(&policy["final"]["allocated"]),
        ]
    };
    let columns = [
        "policy",
        "peak reserved",
        "above the bound",
        "peak allocated",
        "unused at the peak",
        "reserved at the end",
        "allocated at the end",
    ];
    table(out, "Memory", &columns.map(String::from), &policies.iter().map(row).collect::<Vec<_>>());
}

fn driver(out: &mut String, policies: &[Value]) {
    let row = |policy: &Value| {
        let calls = &policy["driver_calls"];
        let figures = [
            &calls["total"],
            &calls["segment_allocs"],
            &calls["segment_frees"],
            &calls["refusals"],
            &policy["retries"],
            &policy["newly_failed"],
            &policy["ns_per_operation"],
        ];
        let name = Cell::text(&plain(&policy["policy"]));
        std::iter::once(name).chain(figures.map(|value| Cell::value(value, ""))).collect()
    };
    let columns = ["policy", "driver calls", "taken", "given back", "refused", "retries", "failed", "ns per operation"];
    let title = "Segments asked of the driver, requests that failed, time";
    table(out, title, &columns.map(String::from), &policies.iter().map(row).collect::<Vec<_>>());
}
