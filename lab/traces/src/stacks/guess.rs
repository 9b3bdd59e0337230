//! Guesses the purpose of each allocation from its stack and its lifetime.
//!
//! A trace does not record the purpose of memory. The answer here is a guess, and is marked as one. Memory allocated in the forward pass and freed in
//! the backward pass was saved for it; memory that an optimizer step leaves behind is its state; memory that the backward pass leaves behind is a
//! gradient.

use rustc_hash::{FxHashMap, FxHashSet};

use super::lives::{Life, lives};
use super::phase::Phase;
use crate::snapshot::{Action, Snapshot, StackId};

/// Purpose of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A weight.
    Parameter,
    /// The gradient of a weight.
    Gradient,
    /// Optimizer state of a weight.
    Optimizer,
    /// A buffer of a module.
    Buffer,
    /// Saved for the backward pass.
    Activation,
    /// A batch, or its labels.
    Input,
    /// Freed in the part of the step that made it.
    Temporary,
    /// Scratch that is kept for a library.
    Workspace,
    /// Something else, or not known.
    #[default]
    Other,
}

impl Role {
    /// All.
    pub const ALL: [Role; 9] = [
        Role::Parameter,
        Role::Gradient,
        Role::Optimizer,
        Role::Buffer,
        Role::Activation,
        Role::Input,
        Role::Temporary,
        Role::Workspace,
        Role::Other,
    ];

    /// Returns the name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Role::Parameter => "parameter",
            Role::Gradient => "gradient",
            Role::Optimizer => "optimizer",
            Role::Buffer => "buffer",
            Role::Activation => "activation",
            Role::Input => "input",
            Role::Temporary => "temporary",
            Role::Workspace => "workspace",
            Role::Other => "other",
        }
    }

    /// Returns the category of our own histories with the same meaning, if there is one.
    pub fn category(self) -> Option<memcore::memory::Category> {
        use memcore::memory::Category;
        Some(match self {
            Role::Parameter => Category::Parameter,
            Role::Gradient => Category::Gradient,
            Role::Optimizer => Category::OptimizerState,
            Role::Buffer => Category::Buffer,
            Role::Activation => Category::Activation,
            Role::Input => Category::Input,
            Role::Temporary => Category::Temporary,
            Role::Workspace => Category::Workspace,
            Role::Other => return None,
        })
    }
}

/// A device's trace with the guesses about it.
pub struct Guesses {
    /// All allocations, in order.
    pub lives: Vec<Life>,
    /// Purpose of each allocation.
    pub roles: Vec<Role>,
    /// True if the recording states the purposes: nothing is guessed then.
    pub roles_are_told: bool,
    /// Part of the program of each entry; `None` if nothing tells it.
    pub phases: Vec<Option<Phase>>,
    /// Last entry of each training step.
    pub step_ends: Vec<usize>,
    /// True if steps are from recorded ranges, not from stacks.
    pub steps_are_told: bool,
}

impl Guesses {
    /// Guesses for a device.
    pub fn from_snapshot(snapshot: &Snapshot, device: usize) -> Self {
        let phases = phases(snapshot, device);
        let told = told_step_ends(snapshot, device);
        let steps_are_told = !told.is_empty();
        let step_ends = if steps_are_told { told } else { step_ends(&phases) };
        let lives = lives(snapshot, device);
        let parts = Parts::from_phases(&phases);
        let told = |life: &Life| told_role(snapshot, device, life);
        let roles_are_told = lives.iter().any(|life| told(life).is_some());
        // Frees after the failure that ended the program tell nothing about the purpose.
        let failure = last_failure(snapshot, device);
        let of_life = |life: &Life| match roles_are_told {
            true => told(life).unwrap_or_default(),
            false => {
                let freed = life.freed.filter(|freed| failure.is_none_or(|failure| *freed < failure));
                role(snapshot, &Life { freed, ..*life }, &parts, &step_ends)
            }
        };
        let mut roles: Vec<Role> = lives.iter().map(of_life).collect();
        if !roles_are_told {
            older_parameters(snapshot, &lives, &mut roles);
            only_gradients_of_parameters(snapshot, &lives, &mut roles);
        }
        Self { lives, roles, roles_are_told, phases, step_ends, steps_are_told }
    }

    /// Returns the part of the program of an entry.
    pub fn phase(&self, entry: usize) -> Option<Phase> {
        self.phases.get(entry).copied().flatten()
    }

    /// Returns the number of steps that ended before an entry.
    pub fn steps_before(&self, entry: usize) -> usize {
        self.step_ends.partition_point(|end| *end < entry)
    }
}

/// Returns the part of the program of each entry: by its stack, else that of the entry before.
fn phases(snapshot: &Snapshot, device: usize) -> Vec<Option<Phase>> {
    let trace = snapshot.trace(device);
    let has = |action: Action| trace.iter().any(|event| event.action == action && snapshot.has_stack(event.stack));
    // The threads of the backward pass run no Python: if only Python was recorded, their stacks are empty.
    let (allocs_have, frees_have) = (has(Action::Alloc), has(Action::FreeRequested));
    let ranges = optimizer_ranges(snapshot, device);
    let mut known: FxHashMap<StackId, Option<Phase>> = FxHashMap::default();
    let mut now = None;
    let of_event = |event: &crate::snapshot::TraceEvent| {
        let begun = ranges.partition_point(|(from, ..)| *from <= event.time_us);
        let within = ranges[..begun].last().filter(|(_, to, _)| event.time_us <= *to);
        let (has_stack, tells) = match event.action {
            Action::Alloc | Action::Oom => (snapshot.has_stack(event.stack), allocs_have),
            Action::FreeRequested => (snapshot.has_stack(event.stack), frees_have),
            _ => (false, false),
        };
        let own = match (has_stack, tells) {
            (true, _) => *known.entry(event.stack).or_insert_with(|| Phase::from_stack(snapshot, event.stack)),
            (false, true) => Some(Phase::Backward),
            (false, false) => None,
        };
        match (own, within) {
            // A range outranks a stack of the program's own lines.
            (None | Some(Phase::Forward), Some((.., phase))) => now = Some(*phase),
            (Some(own), _) => now = Some(own),
            // Without any stacks, only the range's end tells that its part is over.
            (None, None) if !allocs_have => now = None,
            (None, None) => {}
        }
        now
    };
    trace.iter().map(of_event).collect()
}

/// Returns the recorded ranges of optimizer steps and of clearing gradients: from, to, part.
fn optimizer_ranges(snapshot: &Snapshot, device: usize) -> Vec<(i64, i64, Phase)> {
    let phase = |name: &str| match name {
        name if name.starts_with("Optimizer.step#") => Some(Phase::Optimizer),
        name if name.starts_with("Optimizer.zero_grad#") => Some(Phase::ZeroGrad),
        _ => None,
    };
    let ranges = snapshot.time_ranges(device).into_iter();
    ranges.filter_map(|range| Some((range.from, range.to?, phase(range.name)?))).collect()
}

/// Returns the last entry of each step that a range ends.
fn told_step_ends(snapshot: &Snapshot, device: usize) -> Vec<usize> {
    let trace = snapshot.trace(device);
    let entry = |time: &i64| trace.partition_point(|event| event.time_us <= *time).checked_sub(1);
    let mut ends: Vec<usize> = snapshot.step_ends(device).iter().filter_map(entry).collect();
    ends.dedup();
    ends
}

/// Returns the last entry of each run of entries in the optimizer; if the optimizer has none, of each backward pass.
fn step_ends(phases: &[Option<Phase>]) -> Vec<usize> {
    let ends = |is: fn(Phase) -> bool, after: fn(Phase) -> bool| {
        let (mut found, mut last) = (Vec::new(), None);
        for (entry, phase) in phases.iter().enumerate() {
            match *phase {
                Some(phase) if is(phase) => last = Some(entry),
                Some(phase) if after(phase) => found.extend(last.take()),
                _ => {}
            }
        }
        (found, last)
    };
    // Several optimizers may step one after the other; a new step begins with a new forward pass.
    let (mut optimizer, last) =
        ends(|p| p == Phase::Optimizer, |p| matches!(p, Phase::Forward | Phase::Backward | Phase::Input));
    optimizer.extend(last);
    if !optimizer.is_empty() {
        return optimizer;
    }
    // The last step may be incomplete.
    ends(|p| matches!(p, Phase::Backward | Phase::Recompute), |p| matches!(p, Phase::Forward | Phase::Input)).0
}

/// Calls memory from before the recording parameters if an optimizer makes a state of the same size for each: so many states (one to three) for every
/// one of nearly all sizes.
fn older_parameters(snapshot: &Snapshot, lives: &[Life], roles: &mut [Role]) {
    let mut older: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    let mut states: FxHashMap<u64, usize> = FxHashMap::default();
    for (at, (life, role)) in lives.iter().zip(roles.iter()).enumerate() {
        match (life.made, *role) {
            (None, Role::Other) if !snapshot.has_stack(life.stack) => older.entry(life.bytes).or_default().push(at),
            // Counters of steps do not have a parameter's size.
            (Some(_), Role::Optimizer) if life.bytes > COUNTER_BYTES => *states.entry(life.bytes).or_default() += 1,
            _ => {}
        }
    }
    let fitting = |each: usize| {
        let fits = |(bytes, count): (&u64, &usize)| older.get(bytes).is_some_and(|older| older.len() * each == *count);
        states.iter().filter(|state| fits(*state)).count()
    };
    let Some(each) = (1..=3).max_by_key(|each| (fitting(*each), std::cmp::Reverse(*each))) else { return };
    if states.is_empty() || fitting(each) * 2 < states.len() {
        return;
    }
    for (bytes, count) in &states {
        // Of more than there are states for, those that live longest.
        let mut candidates = older.get(bytes).cloned().unwrap_or_default();
        candidates.sort_by_key(|at| std::cmp::Reverse(lives[*at].freed.unwrap_or(usize::MAX)));
        candidates.into_iter().take(count / each).for_each(|at| roles[at] = Role::Parameter);
    }
}

/// Largest size of an optimizer's counter of steps. Bytes.
const COUNTER_BYTES: u64 = 8;

/// Keeps as gradients only memory of the backward pass that has the size of a parameter: the rest is a workspace or a buffer.
fn only_gradients_of_parameters(snapshot: &Snapshot, lives: &[Life], roles: &mut [Role]) {
    let known = lives.iter().zip(roles.iter());
    // Memory from before the recording may be a parameter.
    let parameters = known.filter(|(life, role)| **role == Role::Parameter || life.made.is_none());
    let sizes: FxHashSet<u64> = parameters.map(|(life, _)| life.bytes).collect();
    let mut workspaces: FxHashMap<StackId, bool> = FxHashMap::default();
    for (life, role) in lives.iter().zip(roles) {
        let mut is_workspace =
            || *workspaces.entry(life.stack).or_insert_with(|| Phase::is_workspace(snapshot, life.stack));
        let is_gradient = *role == Role::Gradient;
        if is_gradient && !sizes.is_empty() && !sizes.contains(&life.bytes) || *role != Role::Other && is_workspace() {
            *role = Role::Other;
        }
    }
}

/// Returns the entry of a failure after which nothing was allocated.
fn last_failure(snapshot: &Snapshot, device: usize) -> Option<usize> {
    let trace = snapshot.trace(device);
    let last = trace.iter().rposition(|event| matches!(event.action, Action::Oom | Action::Alloc))?;
    (trace[last].action == Action::Oom).then_some(last)
}

/// Returns the purpose that the recording states; our own histories do.
fn told_role(snapshot: &Snapshot, device: usize, life: &Life) -> Option<Role> {
    let event = snapshot.trace(device).get(life.made?)?;
    let name = snapshot.text(event.category);
    Role::ALL.into_iter().find(|role| role.category().is_some_and(|known| known.name() == name))
}

/// Guesses the purpose of an allocation.
fn role(snapshot: &Snapshot, life: &Life, parts: &Parts<'_>, step_ends: &[usize]) -> Role {
    let made = match life.made {
        Some(made) => parts.phase(made),
        // It existed before the recording: the block at the end may tell its stack.
        None if snapshot.has_stack(life.stack) => Phase::from_stack(snapshot, life.stack),
        None => None,
    };
    let Some(made_in) = made else { return Role::Other };
    let from = life.made.unwrap_or(0);
    let freed_in = life.freed.and_then(|freed| parts.phase(freed));
    let backward = |phase: Phase| matches!(phase, Phase::Backward | Phase::Recompute);
    let next_end = step_ends.get(step_ends.partition_point(|end| *end < from));
    let over_a_step = next_end.is_some_and(|end| life.freed.is_none_or(|freed| freed > *end));
    match made_in {
        Phase::Setup if life.freed.is_none() || over_a_step => Role::Parameter,
        Phase::Setup => Role::Temporary,
        Phase::Input => Role::Input,
        Phase::Optimizer if parts.outlived_by(life) => Role::Optimizer,
        Phase::Optimizer | Phase::ZeroGrad => Role::Temporary,
        Phase::Backward if parts.outlived_by(life) => Role::Gradient,
        Phase::Backward => Role::Temporary,
        Phase::Recompute => Role::Activation,
        Phase::Forward if freed_in.is_some_and(backward) => Role::Activation,
        Phase::Forward if life.freed.is_some() && !over_a_step && !parts.meets_backward(life) => Role::Temporary,
        // The trace ends before a backward pass could have freed it.
        Phase::Forward if life.freed.is_none() && next_end.is_none() => Role::Activation,
        Phase::Forward => Role::Other,
    }
}

/// Parts of the program of all entries, and their ends.
struct Parts<'a> {
    phases: &'a [Option<Phase>],
    /// For each entry, the first one after it in another part.
    ends: Vec<usize>,
    /// For each entry, the next one (or itself) in the backward pass.
    backward: Vec<usize>,
}

impl<'a> Parts<'a> {
    fn from_phases(phases: &'a [Option<Phase>]) -> Self {
        let n = phases.len();
        let (mut ends, mut backward) = (vec![n; n], vec![n; n]);
        // Recomputation belongs to the backward pass.
        let part = |phase: Option<Phase>| if phase == Some(Phase::Recompute) { Some(Phase::Backward) } else { phase };
        for entry in (0..n).rev() {
            let next = entry + 1;
            if next < n {
                ends[entry] = if part(phases[next]) == part(phases[entry]) { ends[next] } else { next };
                backward[entry] = backward[next];
            }
            if part(phases[entry]) == Some(Phase::Backward) {
                backward[entry] = entry;
            }
        }
        Self { phases, ends, backward }
    }

    fn phase(&self, entry: usize) -> Option<Phase> {
        self.phases.get(entry).copied().flatten()
    }

    /// True if an allocation outlives the part that made it, or lives until the trace ends in that part.
    fn outlived_by(&self, life: &Life) -> bool {
        let end = self.ends.get(life.made.unwrap_or(0)).copied().unwrap_or(0);
        life.freed.is_none_or(|freed| freed >= end)
    }

    /// True if a backward pass begins while the allocation lives.
    fn meets_backward(&self, life: &Life) -> bool {
        let next = self.backward.get(life.made.unwrap_or(0)).copied().unwrap_or(usize::MAX);
        next < life.freed.unwrap_or(usize::MAX) && next < self.phases.len()
    }
}
