//! Charts that need no script: series of points, with the axis in binary units. Drawn twice, for wide windows and for phones; the style shows one of
//! them. The names of the series are above the drawing, where they are not cut.

use std::fmt::Write;

use lab_base::section::{Chart, Series, Shape};

use super::text::{escaped, grouped};

/// Size of a drawing, in pixels at its natural scale.
struct Size {
    class: &'static str,
    width: f64,
    height: f64,
    /// The most points of a series that are drawn. If there are more, each stretch keeps its highest and its lowest.
    points: usize,
}

const SIZES: [Size; 2] = [
    Size { class: "wide", width: 760.0, height: 280.0, points: 1000 },
    Size { class: "phone", width: 350.0, height: 240.0, points: 300 },
];
const LEFT: f64 = 72.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 38.0;
/// A character's width, at most.
const CHARACTER: f64 = 6.8;
/// The most points at which each point has a mark.
const MARKED: usize = 40;
/// Number of colours, and of marks, before they repeat. A second round of colours has other marks and dashes.
const COLORS: usize = 8;
const DASHES: [&str; 4] = ["", "9 3", "2 3", "9 3 2 3"];

/// Look of a series: its colour, and its mark or its dashes too.
struct Look {
    color: usize,
    mark: usize,
    dash: &'static str,
}

impl Look {
    /// Look of the series with this index. A predicted series has the colour of the measured one, and dashes.
    fn from_series(series: &Series, place: usize) -> Self {
        let color = series.color % COLORS;
        let dash = if series.shape == Shape::Predicted { "6 4" } else { DASHES[place % DASHES.len()] };
        Self { color, mark: (place + place / COLORS) % COLORS, dash }
    }

    fn dashes(&self) -> String {
        if self.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", self.dash) }
    }

    /// Outline of the mark around a point.
    fn mark(&self, x: f64, y: f64) -> String {
        match self.mark {
            0 => format!("M{:.1} {y:.1}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z", x - 3.5),
            1 => format!("M{:.1} {:.1}h6.4v6.4h-6.4Z", x - 3.2, y - 3.2),
            2 => format!("M{x:.1} {:.1}l4.4 7.6h-8.8Z", y - 4.6),
            3 => format!("M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6Z", y - 4.6),
            4 => format!("M{x:.1} {:.1}l4.4 -7.6h-8.8Z", y + 4.6),
            5 => format!("M{:.1} {y:.1}h8M{x:.1} {:.1}v8", x - 4.0, y - 4.0),
            6 => format!("M{:.1} {:.1}l6.4 6.4M{:.1} {:.1}l-6.4 6.4", x - 3.2, y - 3.2, x + 3.2, y - 3.2),
            _ => format!("M{:.1} {:.1}h9v4h-9Z", x - 4.5, y - 2.0),
        }
    }
}

/// Maps values to positions.
struct Scale<'a> {
    size: &'a Size,
    x: (f64, f64),
    top: f64,
}

impl Scale<'_> {
    fn right(&self) -> f64 {
        self.size.width - RIGHT
    }

    fn base(&self) -> f64 {
        self.size.height - BOTTOM
    }

    fn x(&self, x: f64) -> f64 {
        let (low, high) = self.x;
        LEFT + (x - low) / (high - low).max(f64::MIN_POSITIVE) * (self.right() - LEFT)
    }

    fn y(&self, y: f64) -> f64 {
        self.base() - y / self.top * (self.base() - TOP)
    }

    /// Position of a text's middle, moved so that the text stays inside.
    fn middle(&self, place: f64, half: f64) -> f64 {
        place.min(self.size.width - half - 1.0).max(half)
    }
}

/// A chart as a figure of the page.
pub(super) struct Drawn<'a>(pub(super) &'a Chart);

impl Drawn<'_> {
    fn scale<'a>(&self, size: &'a Size) -> Scale<'a> {
        let (low, high) = self.0.ends().unwrap_or((-0.5, 0.5));
        let highest = self.0.finite().map(|(_, y)| y).fold(0.0, f64::max);
        let top = highest.max(self.0.limit.as_ref().map_or(0.0, |(_, limit)| *limit));
        Scale { size, x: (low, high), top: if top > 0.0 { top * 1.04 } else { 1.0 } }
    }

    /// Writes the figure; nothing for a chart without points.
    pub(super) fn draw(&self, out: &mut String) {
        if self.0.finite().next().is_none() {
            return;
        }
        let title = escaped(&self.0.title);
        let _ = writeln!(out, "<figure class=\"chart\">\n<figcaption>{title}</figcaption>");
        self.legend(out);
        let words = escaped(&self.in_words());
        for size in &SIZES {
            let scale = self.scale(size);
            let Size { class, width, height, .. } = size;
            let _ = writeln!(
                out,
                "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}: {words}\">"
            );
            self.axes(out, &scale);
            for (place, series) in self.0.series.iter().enumerate() {
                self.series(out, series, &Look::from_series(series, place), &scale);
            }
            out.push_str("</svg>\n");
        }
        out.push_str("</figure>\n");
    }

    /// Writes each series' name after its line and mark.
    fn legend(&self, out: &mut String) {
        let mut named = self.0.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty()).peekable();
        if named.peek().is_none() {
            return;
        }
        out.push_str("<p class=\"legend\">");
        for (place, series) in named {
            let look = Look::from_series(series, place);
            let color = look.color;
            let _ = write!(
                out,
                "<span><svg class=\"sample\" viewBox=\"0 0 30 12\" width=\"30\" height=\"12\" aria-hidden=\"true\">"
            );
            if series.shape != Shape::Dots {
                let _ = write!(out, "<path class=\"line s{color}\"{} d=\"M0 6H30\"/>", look.dashes());
            }
            if is_marked(series) {
                let _ = write!(out, "<path class=\"dot s{color}\" d=\"{}\"/>", look.mark(15.0, 6.0));
            }
            let _ = write!(out, "</svg>{}</span>", escaped(&series.name));
        }
        out.push_str("</p>\n");
    }

    /// Describes the lines in words, for readers who do not see them.
    fn in_words(&self) -> String {
        let ends = |series: &Series| {
            let highest = series.points.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max);
            let last = series.points.last().map_or(0.0, |(_, y)| *y);
            format!("{} at most {}, at the end {}", series.name, self.0.value(highest), self.0.value(last))
        };
        self.0.series.iter().filter(|series| !series.points.is_empty()).map(ends).collect::<Vec<_>>().join("; ")
    }

    fn axes(&self, out: &mut String, scale: &Scale<'_>) {
        let (right, base) = (scale.right(), scale.base());
        for tick in ticks(scale.top, self.0.bytes) {
            let y = scale.y(tick);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                self.0.value(tick)
            );
        }
        if let Some((name, limit)) = &self.0.limit {
            let y = scale.y(*limit);
            let _ = writeln!(
                out,
                "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT + 6.0,
                y + 14.0,
                escaped(name)
            );
        }
        self.places(out, scale);
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{base}\" y2=\"{base}\"/>\
             <text class=\"tick\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            base + 33.0,
            escaped(&self.0.x)
        );
    }

    /// Writes the names of places along the axis; a name that would touch the previous one is left out.
    fn places(&self, out: &mut String, scale: &Scale<'_>) {
        let (base, mut end) = (scale.base(), f64::NEG_INFINITY);
        for x in self.marks(scale) {
            let text = self.0.label(x);
            let half = text.chars().count() as f64 * CHARACTER / 2.0;
            let place = scale.x(x);
            let middle = scale.middle(place, half);
            if middle - half < end + 10.0 {
                continue;
            }
            end = middle + half;
            let _ = writeln!(
                out,
                "<line class=\"mark\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{base}\" y2=\"{}\"/>\
                 <text class=\"tick\" x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                base + 4.0,
                base + 17.0,
                escaped(&text)
            );
        }
    }

    /// Places along the axis that may have a name: the points themselves if they are few, else round values.
    fn marks(&self, scale: &Scale<'_>) -> Vec<f64> {
        let mut at: Vec<f64> = self.0.finite().map(|(x, _)| x).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        if at.len() <= 12 || !self.0.labels.is_empty() {
            return at;
        }
        let (low, high) = scale.x;
        let step = nice((high - low) / 6.0);
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        (first..=last).map(|k| k as f64 * step).collect()
    }

    fn series(&self, out: &mut String, series: &Series, look: &Look, scale: &Scale<'_>) {
        let points = thinned(&series.points, scale.size.points);
        let color = look.color;
        if series.shape != Shape::Dots {
            let mut path = String::new();
            for (i, (x, y)) in points.iter().enumerate() {
                let (x, y) = (scale.x(*x), scale.y(*y));
                let _ = match (i, series.shape) {
                    (0, _) => write!(path, "M{x:.1} {y:.1}"),
                    (_, Shape::Steps | Shape::Area) => write!(path, "H{x:.1}V{y:.1}"),
                    _ => write!(path, "L{x:.1} {y:.1}"),
                };
            }
            let _ = writeln!(out, "<path class=\"line s{color}\"{} d=\"{path}\"/>", look.dashes());
        }
        if !is_marked(series) {
            return;
        }
        for (x, y) in &points {
            let at = self.0.label(*x);
            let at = if self.0.labels.is_empty() { format!("{} {at}", self.0.x) } else { at };
            let exact = if self.0.bytes { format!(" ({} bytes)", grouped(y.max(0.0) as u64)) } else { String::new() };
            let title = format!("{}: {}{exact} at {at}", series.name, self.0.value(*y));
            let _ = writeln!(
                out,
                "<path class=\"dot s{color}\" d=\"{}\"><title>{}</title></path>",
                look.mark(scale.x(*x), scale.y(*y)),
                escaped(&title)
            );
        }
    }
}

/// Whether each point of a series has a mark.
fn is_marked(series: &Series) -> bool {
    let few = || series.points.len() <= MARKED;
    series.shape == Shape::Dots || (matches!(series.shape, Shape::Line | Shape::Steps) && few())
}

/// Reduces many points to the highest and the lowest of each stretch.
fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    if points.len() <= most {
        return points;
    }
    let mut kept = Vec::new();
    for stretch in points.chunks(points.len().div_ceil(most / 2)) {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let both = [stretch.iter().min_by(by_height), stretch.iter().max_by(by_height)];
        let mut both: Vec<(f64, f64)> = both.into_iter().flatten().copied().collect();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both.dedup();
        kept.extend(both);
    }
    kept
}

/// Round values from 0 to the top; for bytes, powers of two and their multiples.
fn ticks(top: f64, bytes: bool) -> Vec<f64> {
    let step = if bytes { (top / 6.0).max(1.0).log2().ceil().exp2() } else { nice(top / 5.0) };
    (0..=16).map(|k| f64::from(k) * step).take_while(|tick| *tick <= top).collect()
}

/// The next larger 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|nice| *nice >= step).unwrap_or(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let series = Series { name: "a<b".into(), points, color: 0, shape: Shape::Dots };
        Chart {
            title: "T".into(),
            x: "batch".into(),
            labels: Vec::new(),
            series: vec![series],
            bytes: true,
            limit: None,
        }
    }

    #[test]
    fn points_are_drawn_inside_with_their_exact_numbers() {
        let mut out = String::new();
        Drawn(&chart(vec![(1.0, 1024.0), (2.0, 2048.0)])).draw(&mut out);
        assert!(out.contains("a&lt;b: 2 KiB (2\u{202f}048 bytes) at batch 2"), "{out}");
        assert!(out.contains("<text class=\"tick\" x=\"64.0\"") && out.contains(">512 B</text>"), "{out}");
        assert!(!out.contains("a<b") && !out.contains("NaN") && !out.contains("inf"), "{out}");
    }

    #[test]
    fn one_point_or_odd_ones_do_no_harm() {
        let mut out = String::new();
        Drawn(&chart(vec![(3.0, 0.0)])).draw(&mut out);
        Drawn(&chart(vec![(f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, 5.0)])).draw(&mut out);
        assert!(!out.contains("NaN") && !out.contains("inf\""), "{out}");
        let mut nothing = String::new();
        Drawn(&chart(Vec::new())).draw(&mut nothing);
        assert_eq!(nothing, "");
    }

    #[test]
    fn no_two_series_look_alike_and_no_name_is_cut() {
        let mut chart = chart(vec![(0.0, 1.0), (1.0, 2.0)]);
        let one = |i: usize| Series {
            name: format!("{i}: a name that is far longer than the margin"),
            color: i % 8,
            shape: Shape::Steps,
            ..chart.series[0].clone()
        };
        chart.series = (0..11).map(one).collect();
        let looks: Vec<Look> =
            chart.series.iter().enumerate().map(|(i, series)| Look::from_series(series, i)).collect();
        for (i, a) in looks.iter().enumerate() {
            for b in &looks[..i] {
                assert!(a.mark != b.mark || a.color != b.color && a.dash != b.dash, "{i}");
                assert!(a.color != b.color || a.mark != b.mark, "{i}");
            }
        }
        let mut out = String::new();
        Drawn(&chart).draw(&mut out);
        assert!(chart.series.iter().all(|series| out.contains(&format!("</svg>{}</span>", series.name))), "{out}");
        // A level until the next point, not a slope to it.
        assert!(out.contains("H746.0V") && !out.contains("\"M72.0 132.9L"), "{out}");
    }

    #[test]
    fn the_names_of_the_ends_stay_inside() {
        let mut chart = chart((0..5).map(|i| (f64::from(i), 1.0)).collect());
        chart.labels = (0..5).map(|i| format!("the step number {i}")).collect();
        for size in &SIZES {
            let mut out = String::new();
            Drawn(&chart).places(&mut out, &Drawn(&chart).scale(size));
            let places = out.split("<text class=\"tick\" x=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
            let half = 17.0 * CHARACTER / 2.0;
            let places: Vec<f64> = places.map(|place| place.parse().unwrap()).collect();
            assert!(places.len() > 1 && places.iter().all(|x| *x >= half && x + half <= size.width), "{places:?}");
        }
    }

    #[test]
    fn of_many_points_the_highest_stays() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        points[77_777].1 = 9.0;
        let kept = thinned(&points, 1000);
        assert!(kept.len() <= 1000 && kept.contains(&(77_777.0, 9.0)));
    }
}
