//! Finds leftovers: memory live at the end, and memory that grows from step to step.

use rustc_hash::FxHashMap;

use super::held::{Held, by_stack};
use super::model::{Action, Snapshot, StackId};

/// Memory that a trace leaves behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leftovers {
    /// Allocated within the trace and live at its end, by stack, largest first.
    pub live: Vec<Held>,
    /// Bytes live at the end of each step; empty if the recording has no steps.
    pub steps: Vec<u64>,
    /// Memory that grows, by stack and size of the allocation, largest first: from the second step on, its allocations are more at the end of every step
    /// than at the end of the one before, at least twice. Empty if all live memory together shrank since the second step.
    pub growing: Vec<Growth>,
}

/// Memory that grows with the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Stack that allocates it.
    pub stack: StackId,
    /// Bytes of each allocation.
    pub bytes: u64,
    /// Allocations after the last step less those after the first step that counts.
    pub more: u64,
    /// Number of steps over which it grew.
    pub steps: u64,
}

/// Number of first steps in which memory that stays may be allocated: optimizer states, workspaces.
const SETTLING: usize = 2;

/// Least number of rises. One rise is not a leak: a tensor may be held over the end of a step and freed in the next.
const MIN_RISES: usize = 2;

/// Least number of steps at which growth can be told.
pub const MIN_STEPS: usize = SETTLING + MIN_RISES;

impl Snapshot {
    /// Returns the end of each training step, if ranges name them: ranges of optimizers' steps or of the profiler.
    pub(crate) fn step_ends(&self, device: usize) -> Vec<i64> {
        let ends = |wanted: fn(&str) -> bool| -> Vec<i64> {
            let ends = self.annotations.iter().filter(|a| !a.start && a.device as usize == device);
            ends.filter(|a| wanted(self.text(a.name))).map(|a| a.time_us).collect()
        };
        let profiler = ends(|name| name.starts_with("ProfilerStep#"));
        if !profiler.is_empty() {
            return profiler;
        }
        ends(|name| name.starts_with("Optimizer.step#") || name == "step")
    }

    /// Returns what was allocated and not freed, and what grows.
    pub fn leftovers(&self, device: usize) -> Leftovers {
        let trace = self.trace(device);
        let last = trace.len().checked_sub(1);
        let live = self.live_after(device, last).into_iter().filter(|(_, event, ..)| event.is_some());
        let live = by_stack(live.map(|(_, _, stack, bytes)| (stack, bytes)));
        let (steps, counts) = self.at_step_ends(device);
        let mut growing = Vec::new();
        let falls = steps.len() >= SETTLING && steps.last() < steps.get(SETTLING - 1);
        if counts.len() >= MIN_STEPS && !falls {
            let counts = &counts[SETTLING - 1..];
            for (&(stack, bytes), &most) in &counts[counts.len() - 1] {
                let rises = |pair: &[Counts]| count(&pair[1], stack, bytes) > count(&pair[0], stack, bytes);
                if counts.windows(2).all(rises) {
                    let more = most - count(&counts[0], stack, bytes);
                    growing.push(Growth { stack, bytes, more, steps: counts.len() as u64 - 1 });
                }
            }
        }
        growing
            .sort_unstable_by_key(|growth| (std::cmp::Reverse(growth.bytes.saturating_mul(growth.more)), growth.stack));
        Leftovers { live, steps, growing }
    }

    /// Returns, for the end of each step, the live bytes and the number of allocations of each stack and size.
    fn at_step_ends(&self, device: usize) -> (Vec<u64>, Vec<Counts>) {
        let ends = self.step_ends(device);
        let (mut bytes, mut counts) = (Vec::new(), Vec::new());
        let (mut sum, mut now): (u64, Counts) = (0, FxHashMap::default());
        let mut live: FxHashMap<u64, (StackId, u64)> = FxHashMap::default();
        for (address, bytes, _) in self.before(device) {
            live.insert(address, (StackId(0), bytes));
            sum = sum.saturating_add(bytes);
        }
        let mut ends = ends.into_iter().peekable();
        for event in self.trace(device) {
            while ends.next_if(|end| *end < event.time_us).is_some() {
                bytes.push(sum);
                counts.push(now.clone());
            }
            match event.action {
                Action::Alloc => {
                    live.insert(event.address, (event.stack, event.bytes));
                    *now.entry((event.stack, event.bytes)).or_default() += 1;
                    sum = sum.saturating_add(event.bytes);
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some((stack, bytes)) = live.remove(&event.address) {
                        sum = sum.saturating_sub(bytes);
                        if let Some(count) = now.get_mut(&(stack, bytes)) {
                            *count = count.saturating_sub(1);
                        }
                    }
                }
                _ => {}
            }
        }
        for _ in ends {
            bytes.push(sum);
            counts.push(now.clone());
        }
        (bytes, counts)
    }
}

/// Number of live allocations of each stack and size.
type Counts = FxHashMap<(StackId, u64), u64>;

fn count(counts: &Counts, stack: StackId, bytes: u64) -> u64 {
    counts.get(&(stack, bytes)).copied().unwrap_or(0)
}
