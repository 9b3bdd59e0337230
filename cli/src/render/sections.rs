//! Sections on a terminal and in Markdown.

use lab::section::{Bars, Cell, Figure, Judged, Section, Verdict};

use super::style::Style;
use super::{WIDTH, chart, markdown, table, tries, wrapped};

/// Characters of a bar's name, and of the bar.
const NAME: usize = 28;
const BAR: usize = 30;

/// A result, in 80 columns. `details`: with what few readers want.
pub(crate) fn text(title: &str, sections: &[Section], details: bool, style: Style) -> String {
    let mut parts = Vec::new();
    if !title.is_empty() {
        parts.push(format!("{}\n", style.bold(&wrapped(title, WIDTH, 2))));
    }
    collect(&mut parts, sections, details, style);
    parts.concat()
}

fn collect(out: &mut Vec<String>, sections: &[Section], details: bool, style: Style) {
    for section in sections {
        let (apart, text) = match section {
            Section::Answer(text) | Section::Note(text) => (false, paragraphs(text)),
            // Standard error has them.
            Section::Warning(_) | Section::Failure(_) => continue,
            Section::Heading(text) => (true, format!("{}\n", style.bold(&wrapped(text, WIDTH, 0)))),
            Section::Figures(list) => (false, list.iter().map(figure).collect()),
            Section::Verdicts(claims) => (true, claims.iter().map(|judged| verdict(judged, style)).collect()),
            Section::Table(shown) if shown.rows.is_empty() => continue,
            Section::Table(shown) if shown.title.is_empty() => (false, table::text(shown)),
            Section::Table(shown) => (true, table::titled(shown, style)),
            Section::Drawing(_) if !details => continue,
            Section::Chart(shown) | Section::Drawing(shown) => match chart::text(shown, style) {
                drawn if drawn.is_empty() => continue,
                drawn => (true, format!("{}\n{drawn}", style.bold(&wrapped(&shown.title, WIDTH, 0)))),
            },
            Section::Bars(shown) => (true, format!("{}\n{}", style.bold(&shown.title), bars(shown))),
            Section::Details { .. } if !details => continue,
            Section::Details { title, sections } => {
                out.push(format!("\n{}\n", style.bold(&wrapped(title, WIDTH, 0))));
                collect(out, sections, details, style);
                continue;
            }
            Section::Command(text) => (false, format!("  {text}\n")),
            Section::Try(shown) => (false, tries::text(shown, details, style)),
        };
        out.push(if apart && !out.is_empty() { format!("\n{text}") } else { text });
    }
}

/// Each line of the text, broken where it is too long.
fn paragraphs(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", wrapped(line, WIDTH, 2))).collect()
}

fn figure(Figure { name, value, note }: &Figure) -> String {
    let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
    format!("{}\n", wrapped(&format!("{name}: {}{note}", table::exact(value)), WIDTH, 2))
}

fn verdict(judged: &Judged, style: Style) -> String {
    let Judged { text, source, verdict, condition, number: _ } = judged;
    let word = verdict.name();
    let colored = match verdict {
        Verdict::Holds => style.green(word),
        Verdict::Fails => style.red(word),
        Verdict::Depends => style.yellow(word),
        Verdict::NotTested => style.bold(word),
    };
    format!("{colored}  {}\n", wrapped(&format!("{text} [{source}] {condition}"), WIDTH - word.len() - 2, 2))
}

fn bars(bars: &Bars) -> String {
    let width = bars.rows.iter().map(|(_, cell)| table::cell_text(cell).chars().count()).max().unwrap_or(0);
    let longest = bars.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(NAME);
    let line = |((name, cell), share): (&(String, Cell), f64)| {
        // Something is never drawn as nothing.
        let filled = ((share * BAR as f64).round() as usize).max(usize::from(share > 0.0));
        let bar = format!("{:<BAR$}", "█".repeat(filled));
        format!("{:<longest$} {bar} {:>width$}\n", shortened(name), table::cell_text(cell))
    };
    bars.rows.iter().zip(bars.shares()).map(line).collect()
}

/// A name that fits: of a long one, its end says more than its beginning.
pub(super) fn shortened(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME {
        name.into()
    } else {
        format!("…{}", name.chars().skip(length + 1 - NAME).collect::<String>())
    }
}

/// A result as Markdown; what is drawn is drawn with characters.
pub(crate) fn as_markdown(title: &str, sections: &[Section]) -> String {
    below("##", title, sections)
}

/// Under a heading of that level.
fn below(level: &str, title: &str, sections: &[Section]) -> String {
    let mut out = format!("{level} {}\n", markdown::escaped(title));
    for section in sections {
        out += "\n";
        out += &match section {
            Section::Answer(text) => format!("**{}**\n", markdown::escaped(text)),
            Section::Note(text) | Section::Warning(text) => format!("{}\n", markdown::escaped(text)),
            Section::Failure(text) | Section::Command(text) => fenced(text),
            Section::Heading(text) => format!("{level}# {}\n", markdown::escaped(text)),
            Section::Figures(list) => {
                list.iter().map(|one| format!("- {}", markdown::escaped(&figure(one)) + "\n")).collect()
            }
            Section::Verdicts(claims) => claims.iter().map(judged).collect(),
            Section::Table(shown) => markdown::markdown(shown),
            Section::Chart(shown) | Section::Drawing(shown) => {
                titled(&shown.title, &chart::text(shown, Style::new(false)))
            }
            Section::Bars(shown) => titled(&shown.title, &bars(shown)),
            Section::Details { title, sections } => below(&format!("{level}#"), title, sections),
            Section::Try(shown) => tries::as_markdown(shown, markdown::escaped),
        };
    }
    out
}

fn judged(Judged { text, source, verdict, condition, number: _ }: &Judged) -> String {
    let line = format!("{text} [{source}] {condition}");
    format!("- **{}** {}\n", verdict.name(), markdown::escaped(&line))
}

fn titled(title: &str, drawn: &str) -> String {
    if drawn.is_empty() { String::new() } else { format!("**{}**\n\n{}", markdown::escaped(title), fenced(drawn)) }
}

/// Text as it is; no line of it ends the block.
fn fenced(text: &str) -> String {
    format!("```text\n{}\n```\n", text.trim_end().replace("```", "'''"))
}

#[cfg(test)]
mod tests {
    use lab::section::{Chart, Series, Shape, Table};

    use super::*;

    fn all() -> Vec<Section> {
        let cell = Cell::Bytes(3 << 29);
        let series = Series { name: "s".into(), points: vec![(0.0, 1.0), (1.0, 2.0)], color: 0, shape: Shape::Line };
        let chart = Chart {
            title: "curve".into(),
            x: "batch".into(),
            labels: Vec::new(),
            series: vec![series],
            bytes: true,
            limit: None,
        };
        let table = |title: &str| Section::Table(Table::new(title, &["a"], vec![vec![cell.clone()]]));
        vec![
            Section::Answer("yes ".repeat(30)),
            Section::Note("because ".repeat(30)),
            Section::Figures(vec![Figure { name: "peak".into(), value: cell.clone(), note: "by add".into() }]),
            table("rows"),
            Section::Chart(chart),
            Section::Bars(Bars {
                title: "bars".into(),
                rows: vec![("x".repeat(99), cell.clone()), ("none".into(), Cell::Bytes(0))],
            }),
            Section::Details { title: "more".into(), sections: vec![table("hidden")] },
            Section::Command("vramlab cards".into()),
        ]
    }

    #[test]
    fn everything_fits_the_screen_and_details_wait_for_their_flag() {
        let plain = Style::new(false);
        let (short, long) = (text("title", &all(), false, plain), text("title", &all(), true, plain));
        assert!(long.lines().all(|line| line.chars().count() <= WIDTH), "{long}");
        assert!(!short.contains("hidden") && long.contains("more\n") && long.contains("hidden"), "{short}");
        assert!(
            short.contains("peak: 1.5 GiB (1610612736) (by add)") && short.contains("\n  vramlab cards\n"),
            "{short}"
        );
        let bar = |name: &str| short.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string();
        assert!(bar("none").ends_with(" 0 B") && !bar("none").contains('█'), "{short}");
        assert_eq!(bar("…x").matches('█').count(), BAR, "{short}");
    }

    #[test]
    fn markdown_has_all_of_it() {
        let text = as_markdown("a|b", &all());
        for part in ["## a\\|b\n", "**rows**", "**curve**\n\n```text\n", "### more\n", "**hidden**", "- peak: 1.5 GiB"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches("```").count() % 2, 0, "{text}");
    }
}
