//! Formats the changes to try for a terminal: in nine lines, or in full.

use lab::figures::short;
use lab::section::{Tries, Try};

use super::{View, wrapped};

/// Lines of a short answer.
const LINES: usize = 9;
/// Entries with their code that are better than more entries without.
const WITH_CODE: usize = 2;
/// Characters of a figure, with the space before it.
const FIGURE: usize = 11;
/// Least width with which figures are in the change's line; below it they are under the change.
const ROOMY: usize = 64;
/// Indentation of an entry's lines.
const INDENT: usize = 4;

/// Line below an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    /// Command that repeats the run with the change.
    Command,
    /// Flags that the change sets.
    Flags,
    /// Change of the script only.
    Script,
    /// Nothing: the change itself says enough, and `--full` shows the rest.
    Nothing,
}

/// Formats as many entries as nine lines hold, with as much detail as there is room for; everything if `whole`.
pub(super) fn text(tries: &Tries, view: View) -> String {
    let all = tries.entries.len();
    if view.full || all == 0 {
        return lines(tries, all, Below::Command, view).concat();
    }
    let fitting = |n: usize, belows: &[Below], most: usize| {
        let forms = belows.iter().map(|below| lines(tries, n, *below, view));
        forms.into_iter().find(|lines| lines.len() <= most)
    };
    // Three entries with little detail are better than two with much, and two are better than one.
    let with_code = [Below::Command, Below::Flags, Below::Script];
    // The code of adapters takes a line more.
    let most = |n: usize| LINES + usize::from(n < all && shown(&tries.entries, n).iter().any(|entry| adapts(entry)));
    let several = (WITH_CODE.min(all)..=all).rev().find_map(|n| fitting(n, &with_code, most(n)));
    let bare = || (WITH_CODE..=all).rev().find_map(|n| fitting(n, &[Below::Nothing], LINES + 1));
    let one = || fitting(1, &with_code, LINES).unwrap_or_else(|| lines(tries, 1, Below::Script, view));
    several.or_else(bare).unwrap_or_else(one).concat()
}

/// The first entries; if none of them trains adapters, the first that does has the place of the last one, since many people begin with these.
fn shown(entries: &[Try], n: usize) -> Vec<&Try> {
    let mut shown: Vec<&Try> = entries.iter().take(n).collect();
    if n > 1
        && !shown.iter().any(|entry| adapts(entry))
        && let (Some(last), Some(entry)) = (shown.last_mut(), entries.iter().find(|entry| adapts(entry)))
    {
        *last = entry;
    }
    shown
}

fn adapts(entry: &Try) -> bool {
    entry.flags.split(' ').any(|flag| flag == "--lora")
}

fn lines(tries: &Tries, n: usize, below: Below, view: View) -> Vec<String> {
    let shown = shown(&tries.entries, n);
    let with_room = shown.iter().any(|entry| entry.left_bytes.is_some());
    let mut out = vec![heading(tries, shown.is_empty(), with_room, view)];
    for (number, entry) in shown.iter().enumerate() {
        out.extend(first_line(number + 1, entry, with_room, view.width));
        if below != Below::Nothing {
            out.extend(under(entry, below, view.width));
        }
    }
    if below == Below::Nothing {
        out.push(format!("{:INDENT$}Code and commands: --full.\n", ""));
    }
    let rest = [&tries.search, &tries.not_here].into_iter().filter(|text| !text.is_empty());
    out.extend(rest.flat_map(|text| indented(text, 0, view.width)));
    out
}

fn heading(tries: &Tries, empty: bool, with_room: bool, view: View) -> String {
    if empty {
        return format!("{}\n", wrapped(&tries.order, view.width, 2));
    }
    let names = if with_room { &["peak", "reserved", "left"][..] } else { &["peak", "reserved"] };
    let known = tries.entries.iter().any(|entry| entry.checked);
    let names: String =
        names.iter().filter(|_| known && view.width >= ROOMY).map(|name| format!("{name:>FIGURE$}")).collect();
    if names.is_empty() {
        return format!("{}\n", view.style.bold(&wrapped(&tries.order, view.width, 2)));
    }
    let width = view.width.saturating_sub(names.len());
    format!("{}{names}\n", view.style.bold(&format!("{:<width$}", tries.order)))
}

/// Formats the change, with its figures at the end of its last line.
fn first_line(number: usize, entry: &Try, with_room: bool, columns: usize) -> Vec<String> {
    let figures = [entry.peak_bytes, entry.reserved_bytes].into_iter().chain(with_room.then_some(entry.left_bytes));
    if columns < ROOMY {
        return indented(&format!("{number} {}: {}", entry.change, self::figures(entry)), INDENT - 2, columns);
    }
    let cell = |bytes: Option<u64>| format!("{:>FIGURE$}", bytes.map_or("–".into(), short));
    let figures: String = if entry.checked { figures.map(cell).collect() } else { format!("{:>12}", "not checked") };
    let width = columns.saturating_sub(figures.chars().count());
    let text = wrapped(&entry.change, width.saturating_sub(INDENT + 1).max(1), 0);
    let last = text.lines().count().saturating_sub(1);
    let line = |(i, line): (usize, &str)| {
        let before = if i == 0 { format!("{number:>3} ") } else { " ".repeat(INDENT) };
        let line = format!("{before}{line}");
        if i == last { format!("{line:<width$}{figures}\n") } else { format!("{line}\n") }
    };
    text.lines().enumerate().map(line).collect()
}

fn under(entry: &Try, below: Below, columns: usize) -> Vec<String> {
    let flags =
        if below == Below::Flags && !entry.flags.is_empty() { format!("   ({})", entry.flags) } else { String::new() };
    let together = format!("{}{flags}", entry.script);
    let mut out = match together.chars().count() + INDENT <= columns {
        true if together.is_empty() => Vec::new(),
        true => vec![format!("{:INDENT$}{together}\n", "")],
        false => [indented(&entry.script, INDENT, columns), indented(flags.trim(), INDENT, columns)].concat(),
    };
    if below == Below::Command || entry.script.is_empty() {
        out.extend(entry.command.iter().flat_map(|command| continued(command, columns)));
    }
    out
}

/// Indents a text, broken where it is too long.
fn indented(text: &str, indent: usize, columns: usize) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let text = wrapped(text, columns - indent, 0);
    text.lines().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// Formats a command that can be pasted as it is.
fn continued(command: &str, columns: usize) -> Vec<String> {
    let text = wrapped(command, columns - INDENT - 2, 2);
    let n = text.lines().count();
    let line = |(i, line): (usize, &str)| format!("{:INDENT$}{line}{}\n", "", if i + 1 < n { " \\" } else { "" });
    text.lines().enumerate().map(line).collect()
}

/// Formats the changes as a Markdown list.
pub(super) fn as_markdown(tries: &Tries, escaped: impl Fn(&str) -> String) -> String {
    let mut out = format!("**{}**\n\n", escaped(&tries.order));
    for entry in &tries.entries {
        out += &format!("1. {}: {}\n", escaped(&entry.change), escaped(&figures(entry)));
        let code = [Some(&entry.script), entry.command.as_ref()].into_iter().flatten().filter(|text| !text.is_empty());
        out.extend(code.map(|text| format!("   - `{}`\n", text.replace('`', "'"))));
    }
    for text in [&tries.search, &tries.not_here].into_iter().filter(|text| !text.is_empty()) {
        out += &format!("\n{}\n", escaped(text));
    }
    out
}

fn figures(entry: &Try) -> String {
    let named = [("peak", entry.peak_bytes), ("reserved", entry.reserved_bytes), ("left", entry.left_bytes)];
    let known: Vec<String> =
        named.iter().filter_map(|(name, bytes)| Some(format!("{name} {}", short((*bytes)?)))).collect();
    if entry.checked { known.join(", ") } else { "not checked".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::style::Style;

    fn view(width: usize, full: bool) -> View {
        View { width, full, style: Style::new(false) }
    }

    fn entry(change: &str, checked: bool) -> Try {
        let bytes = checked.then_some(16 << 30);
        Try {
            change: change.into(),
            script: "model.gradient_checkpointing_enable()".into(),
            flags: "--checkpoint blocks".into(),
            command: Some(
                "vramlab predict --model-file config.json --sequence 2048 --batch 4 --gpu rtx4090 --checkpoint blocks"
                    .into(),
            ),
            checked,
            peak_bytes: bytes,
            reserved_bytes: bytes,
            left_bytes: bytes,
            ..Try::default()
        }
    }

    fn tries(entries: Vec<Try>) -> Tries {
        Tries { entries, search: String::new(), ..Tries::none("Try, the smallest change first (each was run)") }
    }

    #[test]
    fn adapters_are_among_the_entries_of_a_short_answer() {
        let [first, second, third] = ["checkpointing", "momentum", "LoRA"].map(|change| entry(change, true));
        let lora = Try { flags: "--checkpoint blocks --lora 16".into(), ..third };
        let all = [first, second, lora];
        let names = |n: usize| shown(&all, n).iter().map(|entry| entry.change.clone()).collect::<Vec<_>>();
        assert_eq!(names(2), ["checkpointing", "LoRA"]);
        assert_eq!(names(3), ["checkpointing", "momentum", "LoRA"]);
        assert_eq!(names(1), ["checkpointing"]);
    }

    #[test]
    fn nine_lines_are_enough_and_none_is_too_long() {
        let long = "bf16 weights + checkpointing + only the loss kept + expandable_segments + accumulation 4 × 1";
        for n in 0..=4 {
            for change in ["checkpointing", long] {
                let all = tries((0..n).map(|_| entry(change, true)).collect());
                let shown = text(&all, view(80, false));
                assert!(shown.lines().count() <= LINES + 1, "{shown}");
                for (width, full) in [40, 60, 80, 120].into_iter().flat_map(|width| [(width, false), (width, true)]) {
                    let shown = text(&all, view(width, full));
                    assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}: {shown}");
                }
            }
        }
        let shown = text(&tries(vec![entry("checkpointing", true); 3]), view(80, false));
        assert_eq!(shown.matches("enable()   (--checkpoint blocks)").count(), 3, "{shown}");
        assert!(shown.contains("  1 checkpointing ") && shown.contains("   16 GiB     16 GiB     16 GiB\n"), "{shown}");
    }

    #[test]
    fn what_was_not_run_has_no_figures() {
        let all = tries(vec![entry("a smaller batch", false)]);
        let shown = text(&all, view(80, false));
        assert!(shown.contains("not checked") && !shown.contains("GiB"), "{shown}");
        assert!(shown.contains("vramlab predict") && shown.contains(" \\\n"), "{shown}");
        assert!(as_markdown(&all, str::to_string).contains("1. a smaller batch: not checked"));
    }
}
