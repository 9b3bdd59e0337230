//! The table that `torch.cuda.memory_summary()` prints.

use std::fmt::Write;

use crate::memory::{Stat, StatArray, Stats};

/// Renders the table in the layout of 2.15. `abbreviated` omits the rows of single pools.
pub fn memory_summary(stats: &Stats, device: usize, abbreviated: bool) -> String {
    let mut text = String::new();
    let rule = |text: &mut String, c: &str| {
        let _ = writeln!(text, "|{}|", c.repeat(75));
    };
    rule(&mut text, "=");
    let _ = writeln!(text, "| {:16} PyTorch CUDA memory summary, device ID {device:<17} |", "");
    rule(&mut text, "-");
    let (ooms, retries) = (stats.num_ooms, stats.num_alloc_retries);
    let _ = writeln!(text, "|  {:9} CUDA OOMs: {ooms:<12} | {:6} cudaMalloc retries: {retries:<8}  |", "", "");
    rule(&mut text, "=");
    text.push_str("|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n");
    type Cell = fn(u64, u64) -> String;
    let arrays: [(&str, &StatArray, Cell); 9] = [
        ("Allocated memory", &stats.allocated_bytes, bytes_cell),
        ("Active memory", &stats.active_bytes, bytes_cell),
        ("Requested memory", &stats.requested_bytes, bytes_cell),
        ("GPU reserved memory", &stats.reserved_bytes, bytes_cell),
        ("Non-releasable memory", &stats.inactive_split_bytes, bytes_cell),
        ("Allocations", &stats.allocation, count_cell),
        ("Active allocs", &stats.active, count_cell),
        ("GPU reserved segments", &stats.segment, count_cell),
        ("Non-releasable allocs", &stats.inactive_split, count_cell),
    ];
    for (name, array, cell) in arrays {
        rule(&mut text, "-");
        row(&mut text, name, &array.all, &array.all, cell);
        if !abbreviated {
            row(&mut text, "      from large pool", &array.large, &array.all, cell);
            row(&mut text, "      from small pool", &array.small, &array.all, cell);
        }
    }
    for (name, stat) in
        [("Oversize allocations", &stats.oversize_allocations), ("Oversize GPU segments", &stats.oversize_segments)]
    {
        rule(&mut text, "-");
        row(&mut text, name, stat, stat, count_cell);
    }
    rule(&mut text, "=");
    text
}

/// Writes one row. Units follow `reference`, so that the rows of a metric share them.
fn row(text: &mut String, name: &str, stat: &Stat, reference: &Stat, cell: fn(u64, u64) -> String) {
    let columns = |stat: &Stat| [stat.current, stat.peak, stat.allocated, stat.freed()];
    let _ = write!(text, "| {name:<21} ");
    for (value, reference) in columns(stat).into_iter().zip(columns(reference)) {
        let _ = write!(text, "| {} ", cell(value, reference));
    }
    text.push_str("|\n");
}

fn bytes_cell(value: u64, reference: u64) -> String {
    let (value, unit) = scaled(value, reference, 1024, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    format!("{value:6} {unit}")
}

fn count_cell(value: u64, reference: u64) -> String {
    let (value, unit) = scaled(value, reference, 1000, &[" ", "K", "M"]);
    format!("{value:7} {unit} ")
}

/// Divides until the reference is below 750 (or 768) units of the next size.
fn scaled<'a>(mut value: u64, reference: u64, base: u64, units: &[&'a str]) -> (u64, &'a str) {
    let mut reference = reference as f64;
    let mut chosen = units.first().copied().unwrap_or("");
    for unit in units.iter().skip(1) {
        if reference < 0.75 * (base * base) as f64 {
            break;
        }
        value /= base;
        reference /= base as f64;
        chosen = unit;
    }
    (value, chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_pytorchs() {
        let mut stats = Stats::default();
        for (small, bytes) in [(false, 3_000_832), (true, 1024)] {
            stats.served(small, bytes, bytes);
        }
        stats.num_ooms = 1;
        stats.num_alloc_retries = 2;
        let text = memory_summary(&stats, 0, false);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() == 77), "{text}");
        for (at, line) in [
            (1, "|                  PyTorch CUDA memory summary, device ID 0                 |"),
            (3, "|            CUDA OOMs: 1            |        cudaMalloc retries: 2         |"),
            (5, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |"),
            (7, "| Allocated memory      |   2931 KiB |   2931 KiB |   2931 KiB |      0 B   |"),
            (9, "|       from small pool |      1 KiB |      1 KiB |      1 KiB |      0 B   |"),
            (27, "| Allocations           |       2    |       2    |       2    |       0    |"),
            (45, "| Oversize GPU segments |       0    |       0    |       0    |       0    |"),
        ] {
            assert_eq!(lines[at], line);
        }
        assert_eq!(memory_summary(&stats, 0, true).lines().count(), lines.len() - 18);
    }
}
