//! Draws charts with characters.

use lab::section::{Chart, Series, Shape};

use super::View;

/// Characters before the plot: a figure and the axis.
const MARGIN: usize = 12;
const ROWS: usize = 10;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LIMIT: char = '┄';
const MARKERS: [char; 12] = ['●', '○', '▲', '△', '■', '□', '◆', '◇', '▼', '▽', '★', '☆'];

/// Draws a chart: areas filled, other series with a mark each. Returns an empty text if there is nothing to draw.
pub(crate) fn text(chart: &Chart, view: View) -> String {
    let columns = view.width - MARGIN;
    let Some((low, high)) = chart.ends() else { return String::new() };
    let max = chart.finite().map(|(_, y)| y).chain(chart.limit.iter().map(|(_, y)| *y)).fold(0.0, f64::max);
    if max <= 0.0 {
        return String::new();
    }
    let height = |value: f64| {
        ((value / max * (ROWS * 8) as f64).round().max(0.0) as usize).clamp(usize::from(value > 0.0), ROWS * 8)
    };
    let row_of = |value: f64| height(value).div_ceil(8).saturating_sub(1);
    let mut grid = vec![vec![' '; columns]; ROWS];
    if let Some((_, limit)) = &chart.limit {
        grid[row_of(*limit)].fill(LIMIT);
    }
    let width = (high - low) / columns as f64;
    for (index, series) in chart.series.iter().enumerate().rev() {
        for column in 0..columns {
            let from = low + width * column as f64;
            let Some(value) = value_in(series, from, if column + 1 == columns { f64::INFINITY } else { from + width })
            else {
                continue;
            };
            if series.shape == Shape::Area {
                for (row, cells) in grid.iter_mut().enumerate() {
                    let filled = height(value).saturating_sub(row * 8).min(8);
                    if filled > 0 {
                        cells[column] = EIGHTHS[filled];
                    }
                }
            } else {
                grid[row_of(value)][column] = MARKERS[index % MARKERS.len()];
            }
        }
    }
    let mut out = String::new();
    for row in (0..ROWS).rev() {
        out.push_str(&margin(row, &chart.value(max), &chart.value(max / 2.0)));
        let line: String = grid[row].iter().collect();
        out.push_str(&limit_marked(line.trim_end(), view));
        trim_line(&mut out);
    }
    out.push_str(&axis(columns, &chart.value(0.0), &chart.label(low.ceil()), &chart.label(high.floor())));
    out + &legend(chart, view)
}

/// Colours the line of the limit.
fn limit_marked(line: &str, view: View) -> String {
    let cells: Vec<char> = line.chars().collect();
    let parts = cells.chunk_by(|a, b| (*a == LIMIT) == (*b == LIMIT));
    let marked = |part: &[char]| {
        let text: String = part.iter().collect();
        if part[0] == LIMIT { view.style.red(&text) } else { text }
    };
    parts.map(marked).collect()
}

/// Returns the legend of the marks.
fn legend(chart: &Chart, view: View) -> String {
    let mut out = String::new();
    for (index, series) in chart.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty()) {
        let mark = if series.shape == Shape::Area { '█' } else { MARKERS[index % MARKERS.len()] };
        let highest = series.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        let last = series.points.last().map_or(0.0, |(_, y)| *y);
        let figures = format!("{} at most, {} at the end", chart.value(highest), chart.value(last));
        let line = format!("{} {}: {figures}", view.style.bold(&mark.to_string()), series.name);
        out += &format!("{:MARGIN$}{}\n", "", super::wrapped(&line, view.width - MARGIN, MARGIN + 2));
    }
    if let Some((name, limit)) = &chart.limit {
        out += &format!("{:MARGIN$}{} {name}: {}\n", "", view.style.red(&LIMIT.to_string()), chart.value(*limit));
    }
    out
}

/// Returns the highest value of a series in a range of the axis; between its points the series' shape decides.
fn value_in(series: &Series, from: f64, to: f64) -> Option<f64> {
    let points = &series.points;
    let inside = points.iter().filter(|(x, _)| (from..to).contains(x)).map(|(_, y)| *y).reduce(f64::max);
    let after = points.partition_point(|(x, _)| *x < from);
    let between = || {
        let before = points.get(after.checked_sub(1)?)?;
        match (series.shape, points.get(after)) {
            (Shape::Dots, _) => None,
            (Shape::Steps | Shape::Area, _) => Some(before.1),
            (Shape::Line | Shape::Predicted, next) => {
                let next = next?;
                Some(before.1 + (next.1 - before.1) * (from - before.0) / (next.0 - before.0))
            }
        }
    };
    let level = || {
        points
            .get(after.checked_sub(1)?)
            .filter(|_| matches!(series.shape, Shape::Steps | Shape::Area))
            .map(|(_, y)| *y)
    };
    inside.map(|inside| level().map_or(inside, |level| inside.max(level))).or_else(between)
}

fn margin(row: usize, max: &str, half: &str) -> String {
    let width = MARGIN - 2;
    match row {
        _ if row == ROWS - 1 => format!("{max:>width$} ┤"),
        _ if row == ROWS / 2 - 1 => format!("{half:>width$} ┤"),
        _ => format!("{:>width$} │", ""),
    }
}

fn axis(columns: usize, zero: &str, first: &str, last: &str) -> String {
    let line = format!("{zero:>width$} └{}\n", "─".repeat(columns), width = MARGIN - 2);
    let gap = columns.saturating_sub(first.chars().count() + last.chars().count());
    format!("{line}{:MARGIN$}{first}{}{last}\n", "", " ".repeat(gap))
}

fn trim_line(out: &mut String) {
    out.truncate(out.trim_end().len());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(chart: &str) -> bool {
        chart.lines().all(|line| line.chars().count() <= 80)
    }

    #[test]
    fn more_points_than_columns_keep_their_highest() {
        let mut points: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i), 1.0)).collect();
        points[500].1 = 8.0;
        let drawn = text(&chart(vec![series("a", Shape::Area, &points)]), View::of_document());
        assert_eq!(drawn.lines().next().map(|line| line.matches('█').count()), Some(1), "{drawn}");
        assert!(fits(&drawn));
    }

    #[test]
    fn nothing_to_draw_is_nothing() {
        assert_eq!(text(&chart(Vec::new()), View::of_document()), "");
        assert_eq!(text(&chart(vec![series("a", Shape::Line, &[])]), View::of_document()), "");
        assert_eq!(text(&chart(vec![series("a", Shape::Steps, &[(0.0, 0.0)])]), View::of_document()), "");
        assert!(fits(&text(&chart(vec![series("a", Shape::Area, &[(0.0, 0.0), (1.0, 1.8e19)])]), View::of_document())));
    }

    fn series(name: &str, shape: Shape, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec(), color: 0, shape }
    }

    fn chart(series: Vec<Series>) -> Chart {
        let labels = vec!["e0".to_string(), "e1".into()];
        Chart { title: "t".into(), x: "step".into(), labels, series, bytes: true, limit: None }
    }

    #[test]
    fn series_have_their_marks() {
        let (flat, rising) = ([(0.0, 10.0), (1.0, 10.0)], [(0.0, 10.0), (1.0, 100.0)]);
        let drawn = |shape| {
            let both = vec![series("sgd", shape, &flat), series("adam", shape, &rising)];
            text(&chart(both), View::of_document())
        };
        for shape in [Shape::Line, Shape::Steps, Shape::Predicted, Shape::Dots] {
            let drawn = drawn(shape);
            assert!(fits(&drawn), "{drawn}");
            assert!(drawn.contains("● sgd: 10 B at most, 10 B") && drawn.contains("○ adam: 100 B at most"), "{drawn}");
            let row = |row: usize, mark: char| drawn.lines().nth(row).unwrap_or_default().matches(mark).count();
            let every = if shape == Shape::Dots { 2 } else { 80 - MARGIN };
            assert_eq!((row(ROWS - 1, '●'), row(0, '○') > 0), (every, true), "{shape:?}: {drawn}");
        }
        let steps = drawn(Shape::Steps);
        assert_eq!(steps.lines().next().map(|line| line.matches('○').count()), Some(1), "{steps}");
    }

    #[test]
    fn areas_are_filled_and_limits_are_lines() {
        let mut area = chart(vec![series("allocated", Shape::Area, &[(0.0, 40.0), (1.0, 80.0)])]);
        area.limit = Some(("card".into(), 80.0));
        let drawn = text(&area, View::of_document());
        let line = |row: usize| drawn.lines().nth(row).unwrap_or_default().to_string();
        assert_eq!((line(0).matches('┄').count(), line(0).matches('█').count()), ((80 - MARGIN) - 1, 1), "{drawn}");
        assert_eq!(line(ROWS / 2).matches('█').count(), (80 - MARGIN), "{drawn}");
        assert!(drawn.contains("█ allocated: 80 B at most") && drawn.contains("┄ card: 80 B"), "{drawn}");
    }
}
