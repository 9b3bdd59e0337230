//! Stacks that another source gives to allocations without one.

use rustc_hash::FxHashMap;

use super::model::{Action, Frame, FrameId, Snapshot, StackId};

/// A frame as text: file, line, function.
pub type AddedFrame = (String, i64, String);

impl Snapshot {
    /// Gives allocations that autograd's engine made the stack of their node: they have none, or one that ends at the call of the engine, as in
    /// a backward pass within another one (checkpointing with `use_reentrant`). `stack_of` is asked with the number of each such allocation of the device, counted from the first of the
    /// trace, and returns a key; `frames` are the frames of a key, innermost first.
    pub fn add_stacks(
        &mut self,
        device: usize,
        mut stack_of: impl FnMut(u64) -> Option<u64>,
        frames: impl Fn(u64) -> Vec<AddedFrame>,
    ) {
        let Some(mut trace) = self.traces.get_mut(device).map(std::mem::take) else { return };
        let (mut known, mut number): (FxHashMap<u64, StackId>, u64) = (FxHashMap::default(), 0);
        let mut made: FxHashMap<Vec<AddedFrame>, StackId> = FxHashMap::default();
        for event in &mut trace {
            if event.action != Action::Alloc {
                continue;
            }
            if self.is_of_the_engine(event.stack)
                && let Some(key) = stack_of(number)
            {
                event.stack = match known.get(&key) {
                    Some(stack) => *stack,
                    None => {
                        // The steps of a training make the same stacks: what grows is told by what it has in common.
                        let stack = *made.entry(frames(key)).or_insert_with_key(|frames| self.added_stack(frames));
                        known.insert(key, stack);
                        stack
                    }
                };
            }
            number += 1;
        }
        self.traces[device] = trace;
    }

    /// True if [`Snapshot::add_stacks`] added the stack.
    pub(super) fn is_added(&self, stack: StackId) -> bool {
        self.first_added.is_some_and(|first| stack.0 >= first)
    }

    fn is_of_the_engine(&self, stack: StackId) -> bool {
        self.stack(stack).next().is_none_or(|frame| frame.name == "_engine_run_backward")
    }

    fn added_stack(&mut self, frames: &[AddedFrame]) -> StackId {
        let mut ids = Vec::with_capacity(frames.len());
        for (file, line, name) in frames {
            let frame = Frame { filename: self.texts.intern(file), line: *line, name: self.texts.intern(name) };
            ids.push(FrameId(self.frames.len() as u32));
            self.frames.push(frame);
        }
        let new = self.stacks.len() as u32;
        self.first_added.get_or_insert(new);
        self.stacks.push(ids.into());
        StackId(new)
    }
}
