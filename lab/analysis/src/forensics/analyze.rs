//! Finding the memory that grows.

use std::collections::{BTreeMap, HashMap};

use memcore::Device;
use memcore::memory::{AllocId, Category, Ledger, Live, Origin};

use super::advice::{Cause, Evidence};
use super::{Leak, MIN_STEPS, Mark, Site, holder, settled};

/// The most steps that anyone trains.
const MAX_STEPS: u64 = 1_000_000_000;
/// The most sites that are named.
const MAX_SITES: usize = 5;

/// Allocations from one place in the program that are still alive.
struct Survivors {
    origin: Origin,
    /// Birth step, allocation, and what is known of it, in the order of their births.
    of: Vec<(usize, AllocId, Live)>,
}

/// A site that grows: the allocations that count, and the bytes that a step adds (during the search: from one mark to the next).
struct LeakSite {
    survivors: Survivors,
    bytes_per_step: u64,
}

/// Finds what grows, from the marks; there is one mark for every `stride` steps.
pub(super) fn analyze(device: &Device, marks: &[Mark], stride: usize) -> Option<Leak> {
    let range = settled(marks.len());
    if marks.len() < MIN_STEPS || range.len() < 3 {
        return None;
    }
    let survivors = device.with_ledger(|ledger| survivors_of(ledger, marks));
    let mut growing: Vec<LeakSite> = survivors.into_iter().filter_map(|survivors| kept(survivors, marks)).collect();
    let cause = if growing.is_empty() { Some(Cause::GrowingTensor) } else { None };
    if growing.is_empty() {
        growing.extend(device.with_ledger(|ledger| longer(ledger, marks)));
    }
    growing.iter_mut().for_each(|site| site.bytes_per_step /= stride as u64);
    growing.sort_by_key(|site| std::cmp::Reverse((site.bytes_per_step, site.survivors.of.len())));
    let largest = growing.first()?;
    let (_, id, live) = *largest.survivors.of.last()?;
    let path = holder::path(device, id, &live);
    let evidence = Evidence { live: &live, path: &path };
    let cause = cause.unwrap_or_else(|| Cause::from_evidence(&evidence));
    let per_step =
        |from: u64, to: u64| to.saturating_sub(from) / ((marks.len() - 1 - range.start).max(1) * stride) as u64;
    let (first, last) = (&marks[range.start], &marks[marks.len() - 1]);
    let growth = per_step(first.allocated, last.allocated);
    let sites = device.with_ledger(|ledger| growing.iter().take(MAX_SITES).map(|site| named(ledger, site)).collect());
    Some(Leak {
        steps: marks.len() * stride,
        growth_bytes_per_step: growth,
        nodes_per_step: per_step(first.nodes as u64, last.nodes as u64),
        sites,
        cause,
        advice: cause.advice(&evidence),
        holder: path.links,
        out_of_memory_step: out_of_memory_step(device, marks.len() * stride, growth),
    })
}

/// Groups what is alive by its origin.
fn survivors_of(ledger: &Ledger, marks: &[Mark]) -> Vec<Survivors> {
    let mut sites: HashMap<Origin, Vec<(usize, AllocId, Live)>> = HashMap::new();
    for (id, live) in ledger.usage().all_live().filter(|(_, live)| live.category != Category::Workspace) {
        let born = marks.partition_point(|mark| mark.n_alloc <= id.0);
        sites.entry(live.origin).or_default().push((born, id, *live));
    }
    let survivors = |(origin, mut of): (Origin, Vec<(usize, AllocId, Live)>)| {
        of.sort_by_key(|(_, id, _)| *id);
        Survivors { origin, of }
    };
    let mut survivors: Vec<Survivors> = sites.into_iter().map(survivors).collect();
    // A map has no order of its own: that of the first allocation is the same in every run.
    survivors.sort_by_key(|survivors| survivors.of.first().map(|(_, id, _)| *id));
    survivors
}

/// Returns the site if steps in all parts of the run left something there.
fn kept(mut survivors: Survivors, marks: &[Mark]) -> Option<LeakSite> {
    let range = settled(marks.len());
    survivors.of.retain(|(born, ..)| range.contains(born));
    let third = |born: usize| 3 * (born - range.start) / range.len();
    let mut steps: Vec<usize> = survivors.of.iter().map(|(born, ..)| *born).collect();
    steps.dedup();
    let thirds: Vec<bool> = (0..3).map(|part| steps.iter().any(|born| third(*born) == part)).collect();
    if steps.len() < 3 || thirds.contains(&false) || belongs_to_parameters(&survivors, &marks[marks.len() - 1]) {
        return None;
    }
    let bytes: u64 = survivors.of.iter().map(|(.., live)| live.bytes).sum();
    Some(LeakSite { bytes_per_step: bytes / range.len() as u64, survivors })
}

/// Whether these are gradients and states of parameters. Parameters that are first used late get them late, but never more than parameters can have:
/// one gradient each, and three more of Adam's kind.
fn belongs_to_parameters(survivors: &Survivors, now: &Mark) -> bool {
    let parameters = now.bytes_in(Category::Parameter);
    let all = |category: Category| survivors.of.iter().all(|(.., live)| live.category == category);
    (all(Category::Gradient) && now.bytes_in(Category::Gradient) <= 2 * parameters)
        || (all(Category::OptimizerState) && now.bytes_in(Category::OptimizerState) <= 4 * parameters)
}

/// Finds a tensor that is recreated in each step and grows: old steps left nothing, but each step holds more than the one before, although batches
/// stay the same.
fn longer(ledger: &Ledger, marks: &[Mark]) -> Option<LeakSite> {
    let range = settled(marks.len());
    let (first, last) = (&marks[range.start], &marks[marks.len() - 1]);
    let third = range.len() / 3;
    let at = |part: usize| marks[range.start + part * third].allocated;
    let monotone = marks[range.start..].windows(2).all(|pair| pair[0].allocated <= pair[1].allocated);
    let every_third = at(0) < at(1) && at(1) < at(2) && at(2) < last.allocated;
    if !monotone || !every_third || last.bytes_in(Category::Input) > first.bytes_in(Category::Input) {
        return None;
    }
    let usage = ledger.usage();
    // From the last step's allocations, the largest of the category that grew most.
    let grown = Category::ALL.into_iter().max_by_key(|c| last.bytes_in(*c).saturating_sub(first.bytes_in(*c)))?;
    let born = marks.len().checked_sub(2).map_or(0, |before| marks[before].n_alloc);
    let new = usage.all_live().filter(|(id, live)| id.0 >= born && live.category == grown);
    let (id, live) = new.max_by_key(|(id, live)| (live.bytes, *id))?;
    let survivors = Survivors { origin: live.origin, of: vec![(marks.len() - 1, id, *live)] };
    let bytes = last.allocated.saturating_sub(first.allocated);
    Some(LeakSite { survivors, bytes_per_step: bytes / (marks.len() - 1 - range.start) as u64 })
}

fn named(ledger: &Ledger, site: &LeakSite) -> Site {
    let Origin { scope, op, node, phase } = site.survivors.origin;
    let mut categories: BTreeMap<&str, u64> = BTreeMap::new();
    for (.., live) in &site.survivors.of {
        *categories.entry(live.category.name()).or_default() += live.bytes;
    }
    Site {
        op: memcore::context::label(node, op),
        scope: ledger.scope_path(scope).to_string(),
        phase: ledger.phase_name(phase).to_string(),
        category: categories.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(name, _)| name).into(),
        bytes_per_step: site.bytes_per_step,
        allocations: site.survivors.of.len() as u64,
    }
}

/// (driver free + free in the pool − transient need of a step) / growth per step. Segments come in 2 and 20 MiB, so the true step is earlier, by at
/// most the time it takes to fill one.
fn out_of_memory_step(device: &Device, steps: usize, growth: u64) -> Option<u64> {
    let free = device.memory_info()?.free_bytes;
    let stats = device.stats();
    let usage = device.with_ledger(|ledger| {
        let usage = ledger.usage();
        (usage.allocated_bytes(), usage.peak_bytes())
    });
    let cached = stats.reserved_bytes.all.current.saturating_sub(usage.0);
    let moment = usage.1.saturating_sub(usage.0);
    let room = free.saturating_add(cached).saturating_sub(moment);
    room.checked_div(growth).filter(|more| *more < MAX_STEPS).map(|more| steps as u64 + more + 1)
}
