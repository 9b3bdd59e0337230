//! Memory needs of a script that ran out of memory. The script is run once more, on a card with enough memory.

use lab_base::error::Result;
use lab_results::{RehearsedNeeds, TOGETHER};
use lab_traces::snapshot::{Action, Snapshot};

use super::collect::Rehearsed;
use super::peak;
use super::places::working_folder;
use super::request::{Request, RequestedCard};

/// Memory of the larger card, as a multiple of the requested card's, and the least of it unless the request says: a script that always grows fills it.
const TIMES: u64 = 4;
const LEAST: u64 = 256 << 30;

/// Returns the request for the same script on the larger card. Files that the script would write are discarded.
pub(super) fn request(request: &Request) -> Request {
    let total_bytes = request.card.total_bytes.saturating_mul(TIMES).max(request.enough.unwrap_or(LEAST));
    let card = RequestedCard { total_bytes, ..request.card.clone() };
    Request { card, keep_outputs: None, silent: true, ..request.clone() }
}

/// Adds what the script needs. If both runs made the same allocations until memory ran out, also adds the purposes of memory at that time.
pub(super) fn add(found: &mut Rehearsed, more: &Rehearsed) -> Result<()> {
    let Some(largest) = more.result.ranks.iter().max_by_key(|rank| rank.peak_reserved) else { return Ok(()) };
    // Several processes on a card take what they had at once there.
    found.result.not_as_on_a_card.retain(|one| one.event != TOGETHER);
    let of_several = more.result.not_as_on_a_card.iter().filter(|one| one.event == TOGETHER).cloned();
    found.result.not_as_on_a_card.extend(of_several);
    let gpu = &found.result.gpu;
    let (peak_allocated, peak_reserved) =
        more.result.peaks().unwrap_or((largest.peak_allocated, largest.peak_reserved));
    let taken = peak_reserved.saturating_add(gpu.context_bytes);
    found.result.with_memory_enough = Some(RehearsedNeeds {
        total_bytes: more.result.gpu.total_bytes,
        // Of a script that grows, too, it is known what it took.
        fits: more.result.fits_so_far(),
        stopped: more.result.stopped.clone(),
        steps: largest.steps,
        peak_allocated,
        peak_reserved,
        missing: taken.saturating_sub(gpu.total_bytes),
        at_peak: largest.at_peak.clone(),
        by_category: largest.by_category,
        basis: Some(more.result.basis()),
    });
    found.result.phases.clone_from(&more.result.phases);
    let Some((process, rank)) = found.largest() else { return Ok(()) };
    let Some(other) = more.processes.iter().find(|other| other.rank == process.rank) else { return Ok(()) };
    let (device, pid) = (rank.gpu, rank.pid);
    let (short, long) = (process.open()?, other.open()?);
    if !went_the_same_way(&short, &long, device) {
        return Ok(());
    }
    // The longer run begins with the allocations of the shorter one, so its purposes apply to them.
    let (lives, _) = process.told.roles(&short, device);
    let (_, roles) = other.told.roles(&long, device);
    let entry = peak::moment(&short, device, true);
    let roles = roles.get(..lives.len()).unwrap_or(&roles);
    let held = peak::held_as(&short, entry, &lives, roles, other.told.anything, &working_folder());
    if let Some(rank) = found.result.ranks.iter_mut().find(|rank| rank.pid == pid && rank.gpu == device) {
        (rank.at_peak, rank.by_category) = (held.lines, held.by_category);
    }
    Ok(())
}

/// True if, from the first request until memory ran out, a run requested the same sizes as the longer one.
fn went_the_same_way(short: &Snapshot, long: &Snapshot, device: usize) -> bool {
    let asked = |snapshot: &Snapshot, until: usize| {
        let trace = &snapshot.trace(device)[..until];
        let allocations = trace.iter().filter(|event| event.action == Action::Alloc);
        allocations.map(|event| event.bytes).collect::<Vec<u64>>()
    };
    let failed = short.trace(device).iter().rposition(|event| event.action == Action::Oom);
    let Some(failed) = failed else { return false };
    let (short, long) = (asked(short, failed), asked(long, long.trace(device).len()));
    !short.is_empty() && long.starts_with(&short)
}
