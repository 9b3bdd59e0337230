//! Whether the memory of a process grows from step to step: from its marks, its snapshot, and who holds what grew.

use std::collections::HashMap;

use lab_results::{GrowingLine, RehearsedGrowth, SeldomLine};
use lab_traces::snapshot::{Course, Growth, Snapshot, Trend, total};
use lab_traces::stacks::{Line, Place, lives};
use memcore::memory::BLOCK_BYTES;

use super::answers::{Answer, Card, Holder};
use super::places::within;
use super::request::RequestedCard;

/// Growth is slow if the card lasts for this number of steps.
const SLOW_STEPS: u64 = 10_000_000;

/// Maximum number of lines that run seldom that are listed.
const MAX_SELDOM: usize = 100;

/// Returns how memory went on a card. `None` if the process made no step.
pub(super) fn growth(
    answer: &Answer,
    card: &Card,
    snapshot: Option<&Snapshot>,
    requested: &RequestedCard,
    folder: &str,
) -> Option<RehearsedGrowth> {
    let marks: Vec<(u64, u64)> =
        answer.growth.marks.iter().flatten().filter(|mark| mark.0 == card.index).map(|mark| (mark.1, mark.2)).collect();
    if marks.is_empty() {
        return None;
    }
    let seldom = seldom(answer, folder);
    let told = RehearsedGrowth { steps: answer.steps, seldom, ..RehearsedGrowth::default() };
    let Some(snapshot) = snapshot.filter(|snapshot| snapshot.records_requests(card.index)) else {
        let trend = if answer.growth.flat { "flat" } else { "unseen" };
        return Some(RehearsedGrowth { trend: trend.into(), ..told });
    };
    let ends = snapshot.ends_at(card.index, &marks, card.made);
    let mut course = snapshot.course(card.index, &ends);
    // The last two steps are alike, but the process has seen memory grow shortly before: one of several steps keeps something.
    let grew = course.growing.iter().any(|growth| growth.more > 0 || !growth.freed_together);
    if course.trend == Trend::Flat && !answer.growth.flat && grew {
        course.trend = Trend::Grows;
    }
    add_periods(&mut course, snapshot, answer, card.index, &ends);
    let growing: Vec<&Growth> =
        course.growing.iter().filter(|growth| growth.more > 0 || !growth.freed_together).collect();
    let lines = lines(snapshot, answer, card.index, &growing, folder);
    let added: u64 = total(
        growing
            .iter()
            .map(|growth| growth.more_bytes.max(growth.more.saturating_mul(BLOCK_BYTES)) / growth.steps.max(1)),
    );
    let room = requested.room().saturating_sub(card.peak_allocated);
    let full = (added > 0).then(|| answer.steps.saturating_add(room / added.max(1)).saturating_add(1));
    let trend = trend(&course, &lines, full, answer);
    let grows = trend != "flat" && trend != "bounded" && trend != "unseen";
    Some(RehearsedGrowth {
        trend: trend.into(),
        bytes_per_step: if grows { total(lines.iter().map(|line| line.bytes_per_step)) } else { 0 },
        full_at_step: full.filter(|_| grows && !end_within(&lines, room)),
        lines: if grows { lines } else { Vec::new() },
        ..told
    })
}

/// True if the holders of all lines have limits, with which what they hold fits this room. Bytes.
fn end_within(lines: &[GrowingLine], room: u64) -> bool {
    let most = |line: &GrowingLine| Some(line.limit?.saturating_mul(line.largest_bytes.max(line.bytes_per_step)));
    lines.iter().map(most).sum::<Option<u64>>().is_some_and(|most| most <= room)
}

/// Adds what grows every so many steps: the last two steps may be alike all the same, and whole periods give the bytes of a step.
fn add_periods(course: &mut Course, snapshot: &Snapshot, answer: &Answer, device: usize, ends: &[usize]) {
    let periods = answer.periods.iter().filter(|period| period.of == "step");
    let mut periods: Vec<usize> = periods.filter_map(|period| usize::try_from(period.every).ok()).collect();
    periods.sort_unstable();
    periods.dedup();
    let mut found: Vec<Growth> = Vec::new();
    for period in periods {
        let growing = snapshot.grows_by_period(device, ends, period).into_iter();
        // A multiple of a period is one, too.
        let new: Vec<Growth> = growing.filter(|new| found.iter().all(|known| known.stack != new.stack)).collect();
        found.extend(new);
    }
    if found.is_empty() {
        return;
    }
    course.trend = Trend::Grows;
    course.growing.retain(|growth| found.iter().all(|new| new.stack != growth.stack));
    course.growing.extend(found);
}

/// Returns the lines that run only every so many steps, where the steps do not show what they keep. A script that ended by itself has
/// reached all of them.
fn seldom(answer: &Answer, folder: &str) -> Vec<SeldomLine> {
    let open = answer.periods.iter().filter(|period| answer.why != "exit" && !period.settled);
    let seldom = open.map(|period| SeldomLine {
        place: within(&period.r#where, folder),
        every: period.every,
        of: period.of.clone(),
        loop_at: period.r#loop.as_ref().map(|line| within(line, folder)),
    });
    seldom.take(MAX_SELDOM).collect()
}

fn trend(course: &Course, lines: &[GrowingLine], full: Option<u64>, answer: &Answer) -> &'static str {
    let kinds = |kind: &str| lines.iter().any(|line| line.kind == kind);
    match course.trend {
        // A trace that lost its first entries may lack the steps; the process itself saw them.
        Trend::Unseen if answer.growth.flat => "flat",
        Trend::Unseen => "unseen",
        Trend::Flat => "flat",
        Trend::Bounded => "bounded",
        Trend::Grows if full.is_none_or(|full| full >= answer.steps.saturating_add(SLOW_STEPS)) => "slow",
        Trend::Grows if kinds("leak") => "leak",
        Trend::Grows if kinds("may_fill") => "may_fill",
        Trend::Grows => "cycles",
    }
}

/// Sums what grows by line of the script, most first.
fn lines(snapshot: &Snapshot, answer: &Answer, device: usize, growing: &[&Growth], folder: &str) -> Vec<GrowingLine> {
    let stacks: HashMap<u64, _> = lives(snapshot, device)
        .into_iter()
        .map(|life| (life.address, Place::from_stack(snapshot, life.stack)))
        .collect();
    let same = |one: &Place, other: &Place| one.own == other.own && one.library == other.library;
    let holder_of = |place: &Place| {
        let holders = answer.growth.holders.iter().filter(|holder| holder.card == device);
        holders
            .max_by_key(|holder| {
                let here = holder.addresses.iter().any(|at| stacks.get(at).is_some_and(|other| same(place, other)));
                (here && holder.holder.is_some(), here)
            })
            .filter(|holder| holder.addresses.iter().any(|at| stacks.get(at).is_some_and(|other| same(place, other))))
    };
    let mut lines: Vec<(Place, GrowingLine)> = Vec::new();
    for growth in growing {
        let place = Place::from_stack(snapshot, growth.stack);
        let per_step = growth.bytes_per_step();
        if let Some((_, line)) = lines.iter_mut().find(|(known, _)| same(known, &place)) {
            line.bytes_per_step = line.bytes_per_step.saturating_add(per_step);
            line.count = line.count.saturating_add(growth.more);
            line.smallest_bytes = line.smallest_bytes.min(growth.smallest);
            line.largest_bytes = line.largest_bytes.max(growth.largest);
            continue;
        }
        let line = line(growth, &place, holder_of(&place), folder);
        lines.push((place, line));
    }
    let mut lines: Vec<GrowingLine> = lines.into_iter().map(|(_, line)| line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes_per_step));
    lines
}

fn line(growth: &Growth, place: &Place, holder: Option<&Holder>, folder: &str) -> GrowingLine {
    let shown = |line: &Line| within(&line.within(""), folder);
    let own = place.own.as_ref().map(shown);
    let library = place.library.as_ref().map(shown);
    let text = |line: &Option<String>| line.as_ref().map(|line| within(line, folder));
    let kind = match holder {
        Some(holder) if holder.cycle => "cycles",
        Some(holder) if holder.fills => "may_fill",
        // What is freed at once now and then is emptied by something.
        None if growth.freed_together => "cycles",
        _ if growth.freed_together => "may_fill",
        _ => "leak",
    };
    GrowingLine {
        bytes_per_step: growth.bytes_per_step(),
        smallest_bytes: growth.smallest,
        largest_bytes: growth.largest,
        count: growth.more,
        place: own.clone().or_else(|| library.clone()),
        inside: library.or(own),
        operator: place.operator.clone(),
        holder: holder.and_then(|holder| holder.holder.clone()),
        held_at: holder.and_then(|holder| text(&holder.r#where)),
        kind: kind.into(),
        emptied_at: holder.and_then(|holder| text(&holder.emptied)),
        limit: holder.and_then(|holder| holder.limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_all_holders_end_the_growth() {
        let line = |limit| GrowingLine { limit, largest_bytes: 10, bytes_per_step: 8, ..GrowingLine::default() };
        assert!(end_within(&[line(Some(3)), line(Some(4))], 70));
        assert!(!end_within(&[line(Some(3)), line(Some(4))], 69));
        assert!(!end_within(&[line(Some(3)), line(None)], 1000));
    }
}
