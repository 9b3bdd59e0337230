//! What each allocation was for, written into a snapshot of PyTorch, as our own recordings have it.

use super::model::{Action, Snapshot, StackId};
use super::parse_error::{ParseError, Result};
use super::record::UNKNOWN;
use super::value::{Document, Value};

impl Document {
    /// Gives the entries of a device's trace categories, and the stacks that [`Snapshot::add_stacks`] added. `snapshot` is the decoded form of
    /// this document, `category` the purpose of the allocation that an entry made. The entries of frees get that of the allocation that they end.
    ///
    /// # Errors
    /// [`lab_base::error::Error::Usage`] with `name`: a trace that is not that of `snapshot`, or more values than 32 bits count.
    pub fn tell_purposes(
        &mut self,
        name: &str,
        device: usize,
        snapshot: &Snapshot,
        category: impl Fn(usize) -> Option<&'static str>,
    ) -> lab_base::error::Result<()> {
        self.tell(device, snapshot, category).map_err(|error| error.error(name))
    }

    fn tell(
        &mut self,
        device: usize,
        snapshot: &Snapshot,
        category: impl Fn(usize) -> Option<&'static str>,
    ) -> Result<()> {
        let Some(list) = self.trace_of(device) else { return Ok(()) };
        let trace = snapshot.trace(device);
        if self.items(list).len() != trace.len() {
            return Err(ParseError::new(0, "the trace of another snapshot"));
        }
        let (key, frames) = (self.text("category"), self.text("frames"));
        let mut living = rustc_hash::FxHashMap::default();
        let mut stacks = rustc_hash::FxHashMap::default();
        for (entry, event) in trace.iter().enumerate() {
            let Some(old) = self.items(list)[entry].as_dict() else { continue };
            let category = match event.action {
                Action::Alloc => {
                    let category = category(entry).unwrap_or(UNKNOWN);
                    living.insert(event.address, category);
                    category
                }
                Action::FreeRequested => living.get(&event.address).copied().unwrap_or(UNKNOWN),
                Action::FreeCompleted => living.remove(&event.address).unwrap_or(UNKNOWN),
                _ => UNKNOWN,
            };
            let mut changes = vec![(key, self.text(category))];
            if snapshot.is_added(event.stack) {
                let stack = match stacks.get(&event.stack) {
                    Some(stack) => *stack,
                    None => *stacks.entry(event.stack).or_insert(self.frames_of(snapshot, event.stack)),
                };
                changes.push((frames, stack));
            }
            let new = self.changed(old, &changes)?;
            self.items_mut(list)[entry] = new;
        }
        Ok(())
    }

    /// Returns the list with a device's trace.
    fn trace_of(&self, device: usize) -> Option<u32> {
        let traces = self.get(self.root.as_dict()?, "device_traces")?;
        self.items(traces.as_list()?).get(device)?.as_list()
    }

    fn frames_of(&mut self, snapshot: &Snapshot, stack: StackId) -> Value {
        let mut frames = Vec::new();
        for frame in snapshot.stack(stack) {
            let items = [
                ("name", self.text(frame.name)),
                ("filename", self.text(frame.filename)),
                ("line", self.int(frame.line.into())),
            ];
            frames.push(self.dict(items));
        }
        self.list(frames)
    }

    /// Returns a new dict: a copy with other values of some keys.
    fn changed(&mut self, dict: u32, changes: &[(Value, Value)]) -> Result<Value> {
        let mut items: Vec<Value> = self.entries(dict).flat_map(|(key, value)| [key, value]).collect();
        for (key, value) in changes {
            match items.chunks_exact_mut(2).find(|item| item[0] == *key) {
                Some(item) => item[1] = *value,
                None => items.extend([*key, *value]),
            }
        }
        let new = self.new_dict(0)?;
        if let Some(new) = new.as_dict() {
            self.set(new, &items, 0)?;
        }
        Ok(new)
    }
}
