//! Live allocations at a moment, by line of the script and by purpose.

use lab_results::{AtPeak, PeakShares};
use lab_traces::snapshot::{Action, Snapshot};
use lab_traces::stacks::{HeldRow, Life, Line, Role, held_at};

use super::categories::Told;
use super::places::within;

/// Maximum number of lines that are kept.
const MAX_LINES: usize = 200;

/// Live allocations at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// Sums by line and purpose, largest first.
    pub(super) lines: Vec<AtPeak>,
    /// Sums by purpose; `None` if no purpose is known.
    pub(super) by_category: Option<PeakShares>,
}

/// Returns the trace entry of interest: where memory last ran out, if `ran_out`, otherwise the peak of requested bytes.
pub(super) fn moment(snapshot: &Snapshot, device: usize, ran_out: bool) -> Option<usize> {
    let failed = || snapshot.trace(device).iter().rposition(|event| event.action == Action::Oom);
    ran_out.then(failed).flatten().or_else(|| snapshot.peak(device).event)
}

/// Returns the allocations that are live after an entry. Paths in `folder` are shown relative to it.
pub(super) fn held(snapshot: &Snapshot, device: usize, entry: Option<usize>, told: &Told, folder: &str) -> Held {
    let (lives, roles) = told.roles(snapshot, device);
    held_as(snapshot, entry, &lives, &roles, told.anything, folder)
}

/// Does the work of [`held`] with given allocations and purposes. `told` is true if the process reported purposes.
pub(super) fn held_as(
    snapshot: &Snapshot,
    entry: Option<usize>,
    lives: &[Life],
    roles: &[Role],
    told: bool,
    folder: &str,
) -> Held {
    let known = lives.iter().zip(roles.iter().copied());
    let live = known.filter(|(life, _)| life.lives_after(entry)).map(|(life, role)| (life, role, None));
    let rows = held_at(snapshot, live, &|_| true);
    let told = told || roles.iter().any(|role| *role != Role::Other);
    let lines = rows.iter().take(MAX_LINES).map(|row| line(row, told, folder)).collect();
    let sum = |role: Role| lab_traces::snapshot::total(rows.iter().filter(|row| row.role == role).map(|row| row.bytes));
    let shares = || PeakShares {
        parameter: sum(Role::Parameter),
        gradient: sum(Role::Gradient),
        optimizer: sum(Role::Optimizer),
        buffer: sum(Role::Buffer),
        activation: sum(Role::Activation),
        input: sum(Role::Input),
        temporary: sum(Role::Temporary),
        workspace: sum(Role::Workspace),
        other: sum(Role::Other),
    };
    Held { lines, by_category: told.then(shares) }
}

fn line(row: &HeldRow, told: bool, folder: &str) -> AtPeak {
    let shown = |line: &Line| within(&line.within(""), folder);
    let own = row.place.own.as_ref().map(shown);
    let library = row.place.library.as_ref().map(shown);
    AtPeak {
        requested_bytes: row.bytes,
        count: row.allocations,
        place: own.clone().or_else(|| library.clone()),
        inside: library.or(own),
        operator: row.place.node.clone().or_else(|| row.operators.first().map(|(operator, _)| operator.clone())),
        category: told.then(|| row.role.name().into()),
    }
}
