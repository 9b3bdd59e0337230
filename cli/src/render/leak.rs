//! Memory that grows: by how much, where, who holds it, when it runs out, what to do.

use lab::forensics::{Leak, Link, Site};

use super::style::Style;
use super::{WIDTH, bytes, counted, wrapped};

/// A paragraph.
pub(crate) fn text(leak: &Leak, style: Style) -> String {
    let title = format!(
        "Memory grows by {} in each step (seen over {})",
        bytes::both(leak.growth_bytes_per_step),
        counted(leak.steps as u64, "step")
    );
    let mut lines: Vec<(&str, String)> = leak.sites.iter().map(|site| ("where", place(site))).collect();
    let path: Vec<String> = leak.holder.iter().map(named).collect();
    lines.push(("held by", path.join(" > ")));
    if leak.nodes_per_step > 0 {
        lines.push(("graph", format!("{} more in each step, on the host", counted(leak.nodes_per_step, "node"))));
    }
    if let Some(step) = leak.out_of_memory_step {
        lines.push(("ends", format!("memory runs out at about step {}", super::grouped(step))));
    }
    lines.push(("advice", leak.advice.clone()));
    let line = |(name, text): &(&str, String)| format!("{name:<8}{}\n", wrapped(text, WIDTH - 8, 8));
    format!("{}\n{}", style.bold(&title), lines.iter().map(line).collect::<String>())
}

fn place(site: &Site) -> String {
    let scope = if site.scope.is_empty() { String::new() } else { format!(" in {}", site.scope) };
    let phase = if site.phase.is_empty() { String::new() } else { format!(", phase {}", site.phase) };
    let op = if site.op.is_empty() { "the program" } else { &site.op };
    let bytes = bytes::short(site.bytes_per_step);
    format!("{op}{scope}{phase}: {bytes} per step, {} now", site.category)
}

fn named(link: &Link) -> String {
    if link.scope.is_empty() { link.what.clone() } else { format!("{} in {}", link.what, link.scope) }
}
