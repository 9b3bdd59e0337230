//! Formats sections for a terminal and as Markdown.

use lab::section::{Bars, Cell, Figure, Judged, Section, Verdict};

use super::{View, chart, markdown, table, tries, wrapped};

/// Largest width of a bar's name, and of a bar.
const NAME: usize = 28;
const BAR: usize = 30;

/// Formats a result for a terminal.
pub(crate) fn text(title: &str, sections: &[Section], view: View) -> String {
    let mut parts = Vec::new();
    if !title.is_empty() {
        parts.push(view.heading(title, 2));
    }
    collect(&mut parts, sections, view);
    parts.concat()
}

fn collect(out: &mut Vec<String>, sections: &[Section], view: View) {
    for section in sections {
        let (apart, text) = match section {
            Section::Answer(text) | Section::Note(text) => (false, paragraphs(text, view)),
            // These go to standard error.
            Section::Warning(_) | Section::Failure(_) => continue,
            Section::Heading(text) => (true, view.heading(text, 0)),
            Section::Figures(list) => (false, list.iter().map(|one| figure(one, view)).collect()),
            Section::Verdicts(claims) if view.full => (true, claims.iter().map(|one| verdict(one, view)).collect()),
            Section::Verdicts(claims) => (false, claims.iter().map(|one| verdict_beside_claim(one, view)).collect()),
            Section::Table(shown) | Section::List(shown) if shown.rows.is_empty() => continue,
            Section::List(shown) if !view.full && shown.title.is_empty() => (false, table::lines(shown, view)),
            Section::List(shown) if !view.full => (true, view.heading(&shown.title, 0) + &table::lines(shown, view)),
            Section::Table(shown) | Section::List(shown) if shown.title.is_empty() => (false, table::text(shown, view)),
            Section::Table(shown) | Section::List(shown) => (true, table::titled(shown, view)),
            Section::Drawing(_) if !view.full => continue,
            Section::Chart(shown) | Section::Drawing(shown) => match chart::text(shown, view) {
                drawn if drawn.is_empty() => continue,
                drawn => (true, view.heading(&shown.title, 0) + &drawn),
            },
            Section::Bars(shown) => (true, view.heading(&shown.title, 0) + &bars(shown, view)),
            Section::Details { .. } | Section::Rest(_) if !view.full => continue,
            Section::Rest(sections) => {
                collect(out, sections, view);
                continue;
            }
            Section::Details { title, sections } => {
                out.push(format!("\n{}", view.heading(title, 0)));
                collect(out, sections, view);
                continue;
            }
            Section::Command(text) => (false, command(text, view)),
            Section::Try(shown) => (false, tries::text(shown, view)),
        };
        out.push(if apart && !out.is_empty() { format!("\n{text}") } else { text });
    }
}

/// Formats each line of the text, broken where it is too long.
fn paragraphs(text: &str, view: View) -> String {
    view.figures(text).lines().map(|line| format!("{}\n", wrapped(line, view.width, 2))).collect()
}

/// Formats a command so that it stays one command for a shell: lines break between words only.
fn command(text: &str, view: View) -> String {
    let mut lines = vec![String::from(" ")];
    for word in shell_words(text) {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        // Leaves room for the continuation mark.
        if line > 4 && line + 1 + word.chars().count() + 2 > view.width {
            lines.push(String::from("   "));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join(" \\\n") + "\n"
}

/// Splits a command into words, with their quotes.
fn shell_words(text: &str) -> impl Iterator<Item = &str> {
    let mut quote = None;
    let ends = move |c: char| match (quote, c) {
        (None, '\'' | '"') => {
            quote = Some(c);
            false
        }
        (Some(open), c) if c == open => {
            quote = None;
            false
        }
        (None, ' ') => true,
        _ => false,
    };
    text.split(ends).filter(|word| !word.is_empty())
}

fn figure(Figure { name, value, note }: &Figure, view: View) -> String {
    let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
    let line = view.figures(&format!("{name}: {}{note}", table::exact(value)));
    format!("{}\n", wrapped(&line, view.width, 2))
}

fn verdict(judged: &Judged, view: View) -> String {
    let Judged { text, source, verdict, condition, .. } = judged;
    let word = verdict.name();
    let rest = view.figures(&format!("{}{text} [{source}] {condition}", lead(judged)));
    format!("{}  {}\n", view.style.verdict(word), wrapped(&rest, view.width - word.len() - 2, 2))
}

/// Formats a verdict beside its claim.
fn verdict_beside_claim(judged: &Judged, view: View) -> String {
    /// Width of the longest verdict.
    const WORD: usize = Verdict::NotTested.name().len();
    let word = judged.verdict.name();
    let claim = wrapped(&format!("{}{}", lead(judged), judged.text), view.width - WORD - 2, 0);
    let claim = claim.replace('\n', &format!("\n{:WORD$}  ", ""));
    format!("{}{:gap$}  {claim}\n", view.style.verdict(word), "", gap = WORD - word.len())
}

fn lead(judged: &Judged) -> String {
    match (judged.verdict, judged.lead.as_str()) {
        (Verdict::Depends, lead) if !lead.is_empty() => format!("{lead}: "),
        _ => String::new(),
    }
}

fn bars(bars: &Bars, view: View) -> String {
    let width = bars.rows.iter().map(|(_, cell)| table::cell_text(cell).chars().count()).max().unwrap_or(0);
    let longest = bars.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let longest = longest.min(NAME).min(view.width.saturating_sub(width) / 2);
    let room = BAR.min(view.width.saturating_sub(longest + width + 2)).max(1);
    let line = |((name, cell), share): (&(String, Cell), f64)| {
        // A positive share is drawn with at least one character.
        let filled = ((share * room as f64).round() as usize).max(usize::from(share > 0.0));
        let (bar, gap) = ("█".repeat(filled), " ".repeat(room - filled));
        // The longest bar is coloured.
        let bar = if share == 1.0 { view.style.yellow(&bar) } else { bar };
        format!("{:<longest$} {bar}{gap} {:>width$}\n", shortened(name, longest), table::cell_text(cell))
    };
    bars.rows.iter().zip(bars.shares()).map(line).collect()
}

/// Shortens a name to its end, which is more informative than its beginning.
fn shortened(name: &str, most: usize) -> String {
    match name.chars().count() {
        length if length <= most => name.into(),
        length => format!("…{}", name.chars().skip(length + 1 - most).collect::<String>()),
    }
}

/// Formats a result as Markdown; charts are drawn with characters.
pub(crate) fn as_markdown(title: &str, sections: &[Section]) -> String {
    below("##", title, sections)
}

/// Formats sections under a heading of the given level.
fn below(level: &str, title: &str, sections: &[Section]) -> String {
    format!("{level} {}\n{}", markdown::escaped(title), parts(level, sections))
}

fn parts(level: &str, sections: &[Section]) -> String {
    let part = |section: &Section| match section {
        Section::Rest(rest) => parts(level, rest),
        other => format!("\n{}", part(level, other)),
    };
    sections.iter().map(part).collect()
}

fn part(level: &str, section: &Section) -> String {
    let view = View::of_document();
    match section {
        Section::Answer(text) => format!("**{}**\n", markdown::escaped(text)),
        Section::Note(text) | Section::Warning(text) => format!("{}\n", markdown::escaped(text)),
        Section::Failure(text) | Section::Command(text) => fenced(text),
        Section::Heading(text) => format!("{level}# {}\n", markdown::escaped(text)),
        Section::Figures(list) => {
            list.iter().map(|one| format!("- {}", markdown::escaped(&figure(one, view)) + "\n")).collect()
        }
        Section::Verdicts(claims) => claims.iter().map(judged).collect(),
        Section::Table(shown) | Section::List(shown) => markdown::markdown(shown),
        Section::Chart(shown) | Section::Drawing(shown) => titled(&shown.title, &chart::text(shown, view)),
        Section::Bars(shown) => titled(&shown.title, &bars(shown, view)),
        Section::Details { title, sections } => below(&format!("{level}#"), title, sections),
        Section::Rest(rest) => parts(level, rest),
        Section::Try(shown) => tries::as_markdown(shown, markdown::escaped),
    }
}

fn judged(judged: &Judged) -> String {
    let Judged { text, source, verdict, condition, .. } = judged;
    let line = format!("{}{text} [{source}] {condition}", lead(judged));
    format!("- **{}** {}\n", verdict.name(), markdown::escaped(&line))
}

fn titled(title: &str, drawn: &str) -> String {
    if drawn.is_empty() { String::new() } else { format!("**{}**\n\n{}", markdown::escaped(title), fenced(drawn)) }
}

/// Puts text into a code block that none of its lines ends.
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
    fn every_line_fits_and_details_wait_for_their_flag() {
        for width in [40, 60, 80, 120, 200] {
            let full = View { width, ..View::of_document() };
            let (short, long) = (text("title", &all(), View { full: false, ..full }), text("title", &all(), full));
            assert!(long.lines().all(|line| line.chars().count() <= width), "{long}");
            assert!(!short.contains("hidden") && long.contains("more\n") && long.contains("hidden"), "{short}");
            assert!(short.contains("peak: 1.5 GiB (by add)") && short.contains("\n  vramlab cards\n"), "{short}");
            assert!(long.contains("peak: 1.5 GiB (1610612736)"), "{long}");
            let bar = |name: &str| short.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string();
            assert!(bar("none").ends_with(" 0 B") && !bar("none").contains('█'), "{short}");
            let filled = bar("…x").matches('█').count();
            assert!(if width >= 80 { filled == BAR } else { (8..BAR).contains(&filled) }, "{short}");
        }
    }

    #[test]
    fn a_long_command_stays_one_command() {
        let long = "vramlab predict --model gpt2 --batch 8 --optimizer adamw --gpu rtx4090";
        let narrow = command(long, View { width: 40, ..View::of_document() });
        assert!(narrow.lines().count() > 1 && narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        let words: Vec<&str> = narrow.split_whitespace().filter(|word| *word != "\\").collect();
        assert_eq!(words.join(" "), long);
        let quoted = "vramlab replay 'a file of mine.json' --alloc-conf '' --memory-limit 8GiB";
        let narrow = command(quoted, View { width: 40, ..View::of_document() });
        assert_eq!(
            narrow,
            "  vramlab replay 'a file of mine.json' \\\n    --alloc-conf '' --memory-limit \\\n    8GiB\n"
        );
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
