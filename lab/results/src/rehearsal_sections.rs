//! A rehearsal in words.

use lab_base::figures::{counted, short};
use lab_base::section::{Cell, Section, Table};

use super::cards::{on_a_desktop, on_windows};
use super::command::quoted;
use super::findings::Findings;
use super::rehearsal::{AtPeak, PeakShares, RehearsalResult, RehearsedRank, RehearsedWorld, UnknownRead};
use super::rehearsal_exactness::exactness;
use super::rehearsal_files;
use super::rehearsal_growth_words as growth;
use super::rehearsal_out_of_memory::{post_mortem, ran_out_before, why_not};

/// Maximum number of rows.
const TOP: usize = 10;
/// Lines of the script that the answer names at once, and that a details section names.
const FIRST: usize = 5;
const MOST: usize = 100;
/// Lines with a smaller share of the memory are left to the details.
const WORTH: f64 = 0.01;
/// Characters of a line of an exception that are shown; the JSON has all of it.
const LONGEST: usize = 300;

impl Findings for RehearsalResult {
    const SCHEMA: &'static str = "vramlab-rehearsal-1";

    fn title(&self) -> String {
        format!("{}: {}", self.verdict_with_figures(), self.command.join(" "))
    }

    fn sections(&self) -> Vec<Section> {
        sections(self)
    }

    fn table(&self) -> Option<Table> {
        Some(ranks(self))
    }
}

impl RehearsalResult {
    /// Returns the answer in a word or two.
    pub(super) fn verdict(&self) -> &'static str {
        let leaks = growth::open(self).is_some_and(|(_, growth)| growth.trend == "leak");
        match (self.fits, self.fits_so_far()) {
            (Some(_), _) => match self.fits_surely() {
                Some(true) => "Yes",
                Some(false) => "No",
                None => "Perhaps",
            },
            (None, Some(true)) if leaks => "Leaks",
            (None, Some(true)) => "Perhaps",
            (None, _) => "Not known",
        }
    }
}

impl RehearsalResult {
    /// Returns the verdict, with the memory that is needed and that of the card.
    fn verdict_with_figures(&self) -> String {
        let (gpu, verdict) = (&self.gpu, self.verdict());
        let has = format!("the {} has {}", gpu.name, short(gpu.total_bytes));
        let Some(peaks) = self.peaks() else {
            return match self.fits {
                Some(false) => format!("{verdict}: more is needed than the {} has", gpu.name),
                _ => verdict.into(),
            };
        };
        let needed = self.figures_of(peaks).needed();
        let taken = peaks.1.saturating_add(gpu.context_bytes);
        match self.fits {
            Some(false) if taken <= gpu.total_bytes => {
                format!("{verdict}: {needed} in larger pieces than are free, {has}")
            }
            None if self.fits_so_far().is_none() => verdict.into(),
            None => format!("{verdict}: {needed} so far, {has}"),
            Some(_) => format!("{verdict}: {needed}, {has}"),
        }
    }
}

fn sections(found: &RehearsalResult) -> Vec<Section> {
    let mut out = vec![Section::Answer(answer(found))];
    out.extend(post_mortem(found));
    out.extend(on_windows(&found.gpu.name).filter(|_| found.ran_out()).map(|text| Section::Note(text.into())));
    if found.fits_surely() == Some(true) {
        let left = found.gpu.total_bytes.saturating_sub(found.on_card.upper_bytes);
        out.extend(on_a_desktop(&found.gpu.name, left).map(Section::Note));
    }
    if !found.ranks.is_empty() && found.fits_so_far().is_some() {
        out.extend(growth::in_words(found).map(Section::Note));
        out.extend(growth::lines(found));
        out.extend(growth::seldom(found).map(Section::Note));
    }
    out.extend(rehearsal_files::asked(found));
    out.extend(found.problems.iter().map(|problem| Section::Warning(problem.clone())));
    if found.ranks.len() > 1 {
        out.push(Section::Table(ranks(found)));
    }
    out.extend(found.world.as_ref().and_then(not_started));
    out.extend(found.phases_in_words());
    if let Some(rank) = largest(found) {
        let when = if rank.oom.is_some() { "When memory ran out" } else { "At the peak, by line of the script" };
        // What is drawn is what is told: the run with enough memory, if there was one.
        match found.with_memory_enough.as_ref().filter(|needs| needs.fits == Some(true) && !needs.at_peak.is_empty()) {
            Some(needs) => {
                out.extend(at_peak("At the peak, with enough memory", &needs.at_peak, needs.by_category));
                out.push(Section::Details {
                    title: "When memory ran out".into(),
                    sections: at_peak("", &rank.at_peak, rank.by_category),
                });
            }
            None => out.extend(at_peak(when, &rank.at_peak, rank.by_category)),
        }
    }
    out.extend(on_the_host(found));
    out.extend(changes(found));
    // What the answer rests on comes last.
    if let Some(figures) = found.peaks().map(|peaks| found.figures_of(peaks)) {
        let is_open = found.fits.is_some() && found.fits_surely().is_none();
        out.extend(is_open.then(|| Section::Note(figures.what_settles_it(true))));
        out.push(Section::Note(figures.in_words()));
    }
    out.extend(exactness(found).map(Section::Note));
    out.extend(not_reached(found).map(Section::Note));
    out.extend(reads(found));
    out.extend(not_as_on_a_card(found));
    out.extend(rehearsal_files::sections(found));
    out.extend(more(found));
    out
}

/// Names what the script may do after the steps that were run, and the flag that waits for it.
fn not_reached(found: &RehearsalResult) -> Option<String> {
    let names = (!found.not_reached.is_empty()).then(|| found.not_reached.join(", no "))?;
    let waited = [("evaluation", "eval"), ("saving", "save"), ("generation", "generate")];
    let flags: Vec<&str> = waited
        .iter()
        .filter(|(name, _)| found.not_reached.iter().any(|one| one == name))
        .map(|(_, flag)| *flag)
        .collect();
    let how = match flags[..] {
        [] => String::new(),
        _ => format!(" vramlab waits for it with --until-seen {}.", flags.join(",")),
    };
    Some(format!("These steps had no {names}, which may need more.{how}"))
}

/// Returns the verdict, which comes first.
fn answer(found: &RehearsalResult) -> String {
    let (gpu, what) = (&found.gpu, stretch(found));
    let Some(rank) = largest(found) else {
        return format!("No answer: {}.", ended(found));
    };
    // The first line's figures, where there are any: without memory that ran out, these are those of this rank.
    let alone = (rank.peak_allocated, rank.peak_reserved);
    let (allocated, reserved) = found.together().map_or(alone, |(_, allocated, reserved)| (allocated, reserved));
    let on_card = found.figures_of((allocated, reserved));
    let figures = format!(
        "{} of {}: {} reserved by PyTorch ({} allocated at most){}",
        short(on_card.expected_bytes),
        short(gpu.total_bytes),
        short(reserved),
        short(allocated),
        on_card.beside_in_words()
    );
    let each = if found.ranks.len() > 1 { ", on the fullest card" } else { "" };
    match found.fits {
        Some(true) => format!("{what} {figures}{each}."),
        Some(false) => format!("Memory runs out {}.", why_not(found)),
        None if found.fits_so_far() == Some(true) => {
            format!("{what} {figures}{each}, so far.")
        }
        None => format!(
            "Whether it fits on {} is not known: {}.{} Until then it took {figures}{each}.",
            gpu.name,
            ended(found),
            ran_out_before(found)
        ),
    }
}

/// Memory of the host that cards read, of all processes together.
fn on_the_host(found: &RehearsalResult) -> Option<Section> {
    // A process has a row for each card that it used.
    let first = |rank: &&RehearsedRank| {
        let own = found.ranks.iter().find(|other| other.pid == rank.pid);
        own.is_some_and(|own| own.gpu == rank.gpu)
    };
    let sum = |bytes: fn(&RehearsedRank) -> u64| found.ranks.iter().filter(first).map(bytes).sum::<u64>();
    let kinds = [("page-locked", sum(|rank| rank.host_locked)), ("managed", sum(|rank| rank.host_managed))];
    let taken: Vec<String> =
        kinds.iter().filter(|(_, bytes)| *bytes > 0).map(|(kind, bytes)| format!("{} {kind}", short(*bytes))).collect();
    let each = if found.ranks.len() > 1 { ", all processes together" } else { "" };
    (!taken.is_empty()).then(|| {
        let taken = taken.join(" and ");
        Section::Note(format!("On the host at most {taken}{each}, beside pageable memory, which is not counted."))
    })
}

/// Says which ranks were not started, and what replaces them.
fn not_started(world: &RehearsedWorld) -> Option<Section> {
    let absent: Vec<u32> = (0..world.size).filter(|rank| !world.started.contains(rank)).collect();
    if absent.is_empty() {
        return None;
    }
    let first = spans(&absent);
    let names = if first.len() > SPANS { format!("{}, …", first[..SPANS].join(", ")) } else { first.join(", ") };
    Some(Section::Note(format!(
        "vramlab started {} of {}, without {names}. Sizes are as if all ran. Where a value of an absent rank decides something, \
         vramlab takes that of a started one, and lists it.",
        world.started.len(),
        counted(world.size.into(), "rank"),
    )))
}

/// Maximum number of spans of ranks that are named.
const SPANS: usize = 12;

/// Formats numbers in order, consecutive ones as `4 to 6`.
fn spans(numbers: &[u32]) -> Vec<String> {
    let spans = numbers.chunk_by(|one, next| one + 1 == *next);
    spans
        .map(|span| match span {
            [first, last] => format!("{first}, {last}"),
            [first, .., last] => format!("{first} to {last}"),
            one => one.iter().map(u32::to_string).collect(),
        })
        .collect()
}

fn stretch(found: &RehearsalResult) -> String {
    let steps = found.ranks.iter().map(|rank| rank.steps).max().unwrap_or(0);
    match (found.stopped.as_str(), steps) {
        ("end", 0) => "The whole script, which makes no step of an optimizer, uses".into(),
        ("end", steps) => format!("The whole script, {}, uses", counted(steps, "step")),
        (_, 1) => "1 step uses".into(),
        (_, steps) => format!("{} use", counted(steps, "step")),
    }
}

/// Shortens an exception to its first line. If it carries the traceback of another process, the last line is added.
fn in_short(exception: &str) -> String {
    let mut lines = exception.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let carries_another = exception.contains("Traceback (most recent call last)");
    let last = lines.next_back().filter(|_| carries_another);
    let short = |line: &str| line.trim_end_matches(['.', ':']).chars().take(LONGEST).collect::<String>();
    match last {
        Some(last) => format!("{}: {}", short(first), short(last)),
        None => short(first),
    }
}

/// Says how the script ended, if that is why there is no answer.
fn ended(found: &RehearsalResult) -> String {
    let failed = |how: String| match &found.exception {
        Some(exception) => format!("the script failed with {}", in_short(exception)),
        None => how,
    };
    match (found.stopped.as_str(), found.script_exit) {
        ("interrupted", _) if found.ranks.is_empty() => {
            "it was interrupted before anything was allocated on a card".into()
        }
        ("interrupted", _) => "it was interrupted".into(),
        ("time", _) => "the time ended before the first step of an optimizer".into(),
        (_, Some(code)) if code != 0 => failed(format!("the script failed with exit code {code}")),
        _ if !found.ranks.is_empty() => failed("a process of the script ended without a final report".into()),
        _ if found.torch.is_none() => "the script did not import PyTorch".into(),
        _ => "the script allocated nothing on the card".into(),
    }
}

/// Returns the process that took most.
fn largest(found: &RehearsalResult) -> Option<&RehearsedRank> {
    let failed = found.ranks.iter().find(|rank| found.fits == Some(false) && rank.oom.is_some());
    failed.or_else(|| found.ranks.iter().max_by_key(|rank| (rank.peak_reserved, std::cmp::Reverse(rank.rank))))
}

/// A row for each process and card.
fn ranks(found: &RehearsalResult) -> Table {
    let columns = ["rank", "card", "steps", "allocated at most", "reserved at most", "out of memory"];
    let row = |rank: &RehearsedRank| {
        vec![
            Cell::Count(rank.rank),
            Cell::Count(rank.gpu as u64),
            Cell::Count(rank.steps),
            Cell::Bytes(rank.peak_allocated),
            Cell::Bytes(rank.peak_reserved),
            Cell::Count(rank.ooms),
        ]
    };
    Table::new("Processes", &columns, found.ranks.iter().map(row).collect())
}

fn at_peak(when: &str, rows: &[AtPeak], by: Option<PeakShares>) -> Vec<Section> {
    if rows.is_empty() {
        return Vec::new();
    }
    let recorded = rows.iter().any(|held| held.place.is_some());
    let row = |held: &AtPeak| {
        let place = match &held.place {
            None if !recorded => "no line was recorded".into(),
            None if held.operator.is_some() => with_operator("no line of the script:".into(), held.operator.as_deref()),
            Some(place) => with_operator(with_inside(place, held.inside.as_deref()), held.operator.as_deref()),
            None => "no line of Python (the backward pass)".into(),
        };
        vec![
            Cell::Bytes(held.requested_bytes),
            Cell::Count(held.count),
            Cell::Text(held.category.clone().unwrap_or_else(|| "–".into())),
            Cell::Text(place),
        ]
    };
    let columns = ["bytes", "allocations", "for", "allocated at"];
    let table = |title: &str, count: usize| {
        Section::Table(Table::new(title, &columns, rows.iter().take(count).map(row).collect()))
    };
    let all: u64 = rows.iter().map(|held| held.requested_bytes).sum();
    let counts = |held: &&AtPeak| held.requested_bytes as f64 >= WORTH * all as f64;
    let shown = rows.iter().take(FIRST).take_while(counts).count().max(1);
    let rest = rows.len() - shown;
    let title = if rest > 0 { format!("{when} ({rest} more: --full)") } else { when.into() };
    let mut out = vec![table(&title, shown)];
    out.extend(by.map(shares));
    if rest > 0 {
        out.push(Section::Details { title: "All lines".into(), sections: vec![table("", MOST)] });
    }
    out
}

/// Formats the script's line; if it calls a library, the library's line follows.
fn with_inside(place: &str, inside: Option<&str>) -> String {
    let name = |line: &str| line.rsplit('/').next().unwrap_or(line).to_string();
    match inside.map(name) {
        Some(inside) if inside != name(place) && inside != "?" => format!("{place}, in {inside}"),
        _ => place.into(),
    }
}

/// Adds PyTorch's operator to a line.
fn with_operator(place: String, operator: Option<&str>) -> String {
    operator.map_or(place.clone(), |operator| format!("{place} {operator}"))
}

/// The sums at the peak.
fn shares(by: PeakShares) -> Section {
    let shares: Vec<String> = by
        .named()
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(name, bytes)| format!("{name} {}", short(*bytes)))
        .collect();
    Section::Note(format!("In all: {}.", shares.join(", ")))
}

fn reads(found: &RehearsalResult) -> Vec<Section> {
    let (numbers, others): (Vec<&UnknownRead>, Vec<_>) =
        found.unknown_reads.iter().partition(|read| read.is_number() || read.is_sound());
    let row = |read: &&UnknownRead| {
        vec![
            Cell::Text(if read.event == "unknown_read" { read.kind.clone() } else { read.event.clone() }),
            Cell::Text(read.operator.clone()),
            Cell::Text(with_inside(&read.place, Some(&read.inside))),
            Cell::Count(read.count),
        ]
    };
    let columns = ["what", "by", "at", "times"];
    let table = |title: &str, reads: &[&UnknownRead]| {
        Section::Table(Table::new(title, &columns, reads.iter().take(TOP).map(row).collect()))
    };
    let mut out = Vec::new();
    if !others.is_empty() {
        out.push(table("Values that the script read and vramlab does not know: sizes or branches may differ", &others));
    }
    if !numbers.is_empty() {
        let title = "Numbers that the script read and got zeros for, and checks that vramlab let pass".to_string();
        out.push(Section::Details { title, sections: vec![table("", &numbers)] });
    }
    out
}

/// Lists what may be different on a card, and can change the figures.
fn not_as_on_a_card(found: &RehearsalResult) -> Option<Section> {
    let row = |one: &super::NotAsOnACard| {
        // Some events name a number of bytes.
        let what = one.name.parse().map_or_else(|_| Cell::Text(one.name.clone()), |bytes| Cell::bytes(Some(bytes)));
        vec![Cell::Text(one.event.replace('_', " ")), what]
    };
    let rows: Vec<_> = found.not_as_on_a_card.iter().filter(|one| one.can_change_figures()).map(row).collect();
    let table = || Section::Table(Table::new("", &["event", "what"], rows.clone()));
    let title = "Where the simulated card differs from a real one";
    (!rows.is_empty()).then(|| Section::Details { title: title.into(), sections: vec![table()] })
}

/// Returns the changes that make it fit.
fn changes(found: &RehearsalResult) -> Vec<Section> {
    let mut out = Vec::new();
    if let Some(what_if) = found.what_if.as_ref().filter(|_| !found.ranks.is_empty()) {
        match &found.tries {
            // Nothing was tried to its end before the user interrupted.
            Some(tries) if tries.entries.is_empty() && tries.search.is_empty() => {}
            Some(tries) if tries.entries.is_empty() => out.push(Section::Note(format!("Try: {}", tries.search))),
            Some(tries) => out.push(Section::Try(tries.clone())),
            // Where nothing is lacking, nothing is proposed.
            None if found.fits == Some(false) => {
                out.push(what_if.section(None, largest(found).map(|rank| rank.peak_allocated)))
            }
            None => {}
        }
        out.push(what_if.details());
    }
    out
}

/// Returns where to see more.
fn more(found: &RehearsalResult) -> Option<Section> {
    let section = match &found.snapshot {
        Some(file) => Section::Command(format!("vramlab open {}", quoted(file))),
        None => Section::Note("--html FILE draws a page, and --snapshot FILE keeps PyTorch's snapshot.".into()),
    };
    Some(section).filter(|_| !found.ranks.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_were_not_started_are_named() {
        let world = RehearsedWorld { size: 8, started: vec![0, 3, 7] };
        let Some(Section::Note(text)) = not_started(&world) else { panic!("five are missing") };
        assert!(text.starts_with("vramlab started 3 of 8 ranks, without 1, 2, 4 to 6."), "{text}");
        assert!(not_started(&RehearsedWorld { size: 2, started: vec![0, 1] }).is_none());
    }

    #[test]
    fn only_differences_that_can_matter_are_listed() {
        let one = |event: &str, name: &str| crate::NotAsOnACard { event: event.into(), name: name.into() };
        let of =
            |not_as_on_a_card| super::not_as_on_a_card(&RehearsalResult { not_as_on_a_card, ..Default::default() });
        let harmless = one("asked_size", "cudnn execution plan");
        assert!(of(vec![harmless.clone()]).is_none());
        let Some(Section::Details { sections, .. }) = of(vec![harmless, one("asked_in_a_range", "17302016")]) else {
            panic!("one can matter")
        };
        let text = format!("{sections:?}");
        assert!(text.contains("asked in a range") && text.contains("17302016") && !text.contains("plan"), "{text}");
        assert!(!text.contains("Text(\"17302016\")"), "{text}");
    }

    #[test]
    fn an_exception_is_told_in_a_sentence() {
        let worker = "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  \
                      File \"a.py\", line 3\nValueError: no padding token.\n";
        assert_eq!(
            in_short(worker),
            "ValueError: Caught ValueError in DataLoader worker process 0: ValueError: no padding token"
        );
        assert_eq!(in_short("KeyError: 'x'.\nmore"), "KeyError: 'x'");
        assert_eq!(in_short(""), "");
    }
}
