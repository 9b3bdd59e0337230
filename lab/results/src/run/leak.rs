//! Memory that grows: by how much, where, who holds it, when it runs out, what to do.

use lab_analysis::forensics::{Leak, Link, Site};
use lab_base::figures::{both, counted, grouped, short};
use lab_base::section::{Cell, Figure, Section};

/// A paragraph under its own heading.
pub(super) fn sections(leak: &Leak) -> [Section; 2] {
    let title = format!(
        "Memory grows by {} in each step (seen over {})",
        both(leak.growth_bytes_per_step),
        counted(leak.steps as u64, "step")
    );
    let mut lines: Vec<(&str, String)> = leak.sites.iter().map(|site| ("where", place(site))).collect();
    let path: Vec<String> = leak.holder.iter().map(link).collect();
    lines.push(("held by", path.join(" > ")));
    if leak.nodes_per_step > 0 {
        lines.push(("graph", format!("{} more in each step, on the host", counted(leak.nodes_per_step, "node"))));
    }
    if let Some(step) = leak.out_of_memory_step {
        lines.push(("ends", format!("memory runs out at about step {}", grouped(step, ' '))));
    }
    lines.push(("advice", leak.advice.clone()));
    let figure =
        |(name, text): (&str, String)| Figure { name: name.into(), value: Cell::Text(text), note: String::new() };
    [Section::Heading(title), Section::Figures(lines.into_iter().map(figure).collect())]
}

fn place(site: &Site) -> String {
    let scope = if site.scope.is_empty() { String::new() } else { format!(" in {}", site.scope) };
    let phase = if site.phase.is_empty() { String::new() } else { format!(", phase {}", site.phase) };
    let op = if site.op.is_empty() { "the program" } else { &site.op };
    format!("{op}{scope}{phase}: {} per step, {} now", short(site.bytes_per_step), site.category)
}

fn link(hop: &Link) -> String {
    if hop.scope.is_empty() { hop.what.clone() } else { format!("{} in {}", hop.what, hop.scope) }
}
