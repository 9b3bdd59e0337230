//! An event in words.

use lab_base::figures::{grouped, short};

use super::found::plain;
use super::history::{History, Marks};
use super::moment::Holder;
use crate::report::{CategoryId, Event, NameId};

/// Name of a holder whose line was not recorded.
const NO_LINE: &str = "no line recorded";
const NO_MODULE: &str = "no module (loss, optimizer, batch)";

impl History {
    /// Says what happened at an event: `512 KiB allocated by mm of fc.1`.
    pub fn happened(&self, at: u32) -> String {
        let events = self.recording.events();
        let of_block = |allocation: u32| match self.made.get(allocation as usize).map(|&made| &events[made as usize]) {
            Some(&Event::Alloc { bytes, op, scope, .. }) => (short(bytes), op, scope),
            _ => ("a block".to_string(), NameId(0), NameId(0)),
        };
        match events.get(at as usize) {
            Some(&Event::Alloc { bytes, op, scope, .. }) if at < self.recording.begins_at => {
                format!(
                    "{} there when the recording began{}",
                    short(bytes),
                    self.by(op, scope).replacen(" by ", ", of ", 1)
                )
            }
            Some(&Event::SegmentAlloc { bytes, .. }) if at < self.recording.begins_at => {
                format!("{} reserved when the recording began", short(bytes))
            }
            Some(&Event::Alloc { bytes, op, scope, .. }) => format!("{} allocated{}", short(bytes), self.by(op, scope)),
            Some(&Event::Free { allocation, op }) => {
                let (bytes, made_by, scope) = of_block(allocation);
                let whose = if op == NameId(0) {
                    self.by(made_by, scope).replacen(" by ", " of ", 1)
                } else {
                    self.by(op, scope)
                };
                format!("{bytes} freed{whose}")
            }
            Some(&Event::Retag { allocation, category }) => {
                let (bytes, made_by, scope) = of_block(allocation);
                let whose = self.by(made_by, scope).replacen(" by ", " of ", 1);
                format!("{bytes}{whose} became {}", self.category_name(category))
            }
            Some(&Event::SegmentAlloc { bytes, .. }) => format!("{} taken from the driver", short(bytes)),
            Some(&Event::SegmentFree { bytes, .. }) => format!("{} given back to the driver", short(bytes)),
            Some(&Event::Phase { name }) => format!("{} begins", self.phase_name(name)),
            Some(&Event::Oom { requested_bytes, op }) => {
                format!("out of memory: {} requested{}", short(requested_bytes), self.by(op, NameId(0)))
            }
            None => "nothing recorded".to_string(),
        }
    }

    fn by(&self, op: NameId, scope: NameId) -> String {
        let recording = &self.recording;
        let scope = if recording.scopes_are_stacks { "" } else { recording.text(scope) };
        match (recording.text(op), scope) {
            ("", "") => String::new(),
            ("", scope) => format!(" in {}", plain(scope)),
            (op, "") => format!(" by {op}"),
            (op, scope) => format!(" by {op} in {}", plain(scope)),
        }
    }

    fn phase_name(&self, name: NameId) -> &str {
        match self.recording.text(name) {
            "" => "a phase without a name",
            name => name,
        }
    }

    /// Says where in the run an event lies: `step 2 of 5, forward`; `None` if the recording has neither steps nor phases.
    pub fn place(&self, at: u32) -> Option<String> {
        if at < self.recording.begins_at {
            return Some("before the recording".to_string());
        }
        let phase = self.phases.partition_point(|(from, _)| *from <= at).checked_sub(1);
        let phase = phase.map(|phase| self.phase_name(self.phases[phase].1));
        // A snapshot's phases have the number of their step in their names.
        let part = |name: &str| match name.split_once('.') {
            Some((step, part)) if step.strip_prefix('s').is_some_and(|n| n.parse::<u64>().is_ok()) => part.to_string(),
            _ => name.to_string(),
        };
        match (&self.marks, phase) {
            (Marks::Steps(begins), phase) => {
                let step = begins.partition_point(|from| *from <= at).max(1);
                let phase = phase.map(|phase| format!(", {}", part(phase))).unwrap_or_default();
                Some(format!("step {} of {}{phase}", grouped(step as u64, ' '), grouped(begins.len() as u64, ' ')))
            }
            (Marks::Phases(_), Some(phase)) => Some(phase.to_string()),
            (Marks::Phases(_), None) => Some("before the first phase".to_string()),
            (Marks::None, _) => None,
        }
    }

    /// Names a category; a question mark says that it is a guess from stacks.
    pub fn category_name(&self, category: CategoryId) -> String {
        let name = self.recording.category_name(category);
        let guess = self.recording.categories_are_guesses && name != crate::report::UNKNOWN;
        name.replace('_', " ") + if guess { "?" } else { "" }
    }

    /// Names a holder of memory: a line of the program with PyTorch's operator; or a module, with the operator of its largest block.
    pub fn holder_name(&self, holder: &Holder) -> String {
        let recording = &self.recording;
        let (op, scope) = (recording.text(holder.op), recording.text(holder.scope));
        match (recording.scopes_are_stacks, op, scope) {
            (true, "", _) => NO_LINE.to_string(),
            (true, line, _) => line.to_string(),
            (false, "", "") => NO_MODULE.to_string(),
            (false, "", scope) => plain(scope),
            (false, op, "") => format!("{NO_MODULE} ({op})"),
            (false, op, scope) => format!("{} ({op})", plain(scope)),
        }
    }
}
