//! A recording in the formats of other programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use super::recording::{Event, NameId, Recording};
use super::timeline::Timeline;

/// Chrome's trace format: a counter per category, phases and operators as slices. Opens in <https://ui.perfetto.dev> and in `chrome://tracing`.
///
/// A microsecond there is an event here: recordings have no time.
pub fn chrome_trace(recording: &Recording) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    let name = |track: u32, name: &str| {
        json!({ "ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": { "name": name } }).to_string()
    };
    let process = json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": recording.name } });
    let _ = write!(out, "{process},\n{},\n{}", name(PHASES, "phases"), name(OPERATORS, "operators"));
    let mut trace = Trace { out, recording, phase: None, operator: None };
    let mut counters = Counters::new(recording);
    for (at, event) in recording.events().iter().enumerate() {
        trace.event(at, event);
        counters.event(&mut trace.out, at, event);
    }
    trace.end(recording.events().len());
    trace.out.push_str("\n]}\n");
    trace.out
}

const PHASES: u32 = 1;
const OPERATORS: u32 = 2;

/// Open slices: their starts and names.
struct Trace<'a> {
    out: String,
    recording: &'a Recording,
    phase: Option<(usize, NameId)>,
    operator: Option<(usize, NameId, NameId)>,
}

impl Trace<'_> {
    fn event(&mut self, at: usize, event: &Event) {
        match *event {
            Event::Phase { name } => {
                self.end(at);
                self.phase = Some((at, name));
            }
            Event::Alloc { op, scope, .. } => self.operator(at, op, Some(scope)),
            Event::Free { op, .. } => self.operator(at, op, None),
            Event::Oom { requested_bytes, op } => {
                let text = self.recording.text(op);
                let args = json!({ "operator": text, "requested_bytes": requested_bytes });
                let instant = json!({ "ph": "i", "s": "g", "pid": 1, "tid": OPERATORS, "ts": at, "name": "out of memory", "args": args });
                let _ = write!(self.out, ",\n{instant}");
            }
            Event::Retag { .. } | Event::SegmentAlloc { .. } | Event::SegmentFree { .. } => {}
        }
    }

    /// Begins or continues the operator of an event. A free names no module, so it stays with the operator's.
    fn operator(&mut self, at: usize, op: NameId, scope: Option<NameId>) {
        if self.operator.is_some_and(|(_, now, of)| now == op && scope.is_none_or(|scope| scope == of)) {
            return;
        }
        self.end_operator(at);
        if op != NameId(0) {
            self.operator = Some((at, op, scope.unwrap_or_default()));
        }
    }

    fn end_operator(&mut self, at: usize) {
        if let Some((from, op, scope)) = self.operator.take() {
            let args = json!({ "module": self.recording.text(scope) });
            self.slice(OPERATORS, from, at, op, &args);
        }
    }

    /// Ends every open slice.
    fn end(&mut self, at: usize) {
        self.end_operator(at);
        if let Some((from, name)) = self.phase.take() {
            self.slice(PHASES, from, at, name, &json!({}));
        }
    }

    fn slice(&mut self, track: u32, from: usize, to: usize, name: NameId, args: &serde_json::Value) {
        let name = self.recording.text(name);
        let slice =
            json!({ "ph": "X", "pid": 1, "tid": track, "ts": from, "dur": to - from, "name": name, "args": args });
        let _ = write!(self.out, ",\n{slice}");
    }
}

/// Bytes by category and reserved bytes, written when they change.
struct Counters<'a> {
    recording: &'a Recording,
    bytes: Vec<u64>,
    reserved: u64,
    lives: Vec<Option<(u64, usize)>>,
}

impl<'a> Counters<'a> {
    fn new(recording: &'a Recording) -> Self {
        Self { recording, bytes: vec![0; recording.categories().len()], reserved: 0, lives: Vec::new() }
    }

    fn event(&mut self, out: &mut String, at: usize, event: &Event) {
        let last = self.bytes.len().saturating_sub(1);
        match *event {
            Event::Alloc { bytes, category, .. } => {
                let category = usize::from(category.0).min(last);
                self.lives.push(Some((bytes, category)));
                self.bytes[category] += bytes;
                self.write(out, at, category);
            }
            Event::Free { allocation, .. } => {
                if let Some((bytes, category)) = self.lives.get_mut(allocation as usize).and_then(Option::take) {
                    self.bytes[category] -= bytes;
                    self.write(out, at, category);
                }
            }
            Event::Retag { allocation, category } => {
                let to = usize::from(category.0).min(last);
                if let Some(Some((bytes, category))) = self.lives.get_mut(allocation as usize) {
                    let (bytes, from) = (*bytes, std::mem::replace(category, to));
                    self.bytes[from] -= bytes;
                    self.bytes[to] += bytes;
                    self.write(out, at, from);
                    self.write(out, at, to);
                }
            }
            Event::SegmentAlloc { bytes, .. } => self.reserve(out, at, self.reserved + bytes),
            Event::SegmentFree { bytes, .. } => self.reserve(out, at, self.reserved.saturating_sub(bytes)),
            Event::Phase { .. } | Event::Oom { .. } => {}
        }
    }

    fn write(&self, out: &mut String, at: usize, category: usize) {
        counter(out, at, &self.recording.categories()[category], self.bytes[category]);
    }

    fn reserve(&mut self, out: &mut String, at: usize, bytes: u64) {
        self.reserved = bytes;
        counter(out, at, "reserved", bytes);
    }
}

fn counter(out: &mut String, at: usize, name: &str, bytes: u64) {
    let name = serde_json::Value::from(name);
    let _ = write!(out, ",\n{{\"ph\":\"C\",\"pid\":1,\"ts\":{at},\"name\":{name},\"args\":{{\"bytes\":{bytes}}}}}");
}

/// Blocks that were live at the peak, as folded stacks: category, module by module, operator, then bytes. Opens in `flamegraph.pl --countname bytes`
/// and in <https://www.speedscope.app>.
pub fn folded_stacks(recording: &Recording) -> String {
    let peak = Timeline::from_recording(recording).peak;
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    // The state at the peak: later changes of a block do not count.
    let mut lives: Vec<Option<(u64, u8, NameId, NameId)>> = Vec::with_capacity(recording.allocations());
    for event in recording.events().iter().take(peak.at as usize + 1) {
        match *event {
            Event::Alloc { bytes, category, op, scope, .. } => lives.push(Some((bytes, category.0, op, scope))),
            Event::Free { allocation, .. } => {
                lives.get_mut(allocation as usize).into_iter().for_each(|live| *live = None)
            }
            Event::Retag { allocation, category } => {
                if let Some(Some((_, now, ..))) = lives.get_mut(allocation as usize) {
                    *now = category.0;
                }
            }
            _ => {}
        }
    }
    for (bytes, category, op, scope) in lives.into_iter().flatten() {
        let category = recording.category_name(super::CategoryId(category));
        let modules = recording.text(scope).split('.').filter(|part| !part.is_empty());
        let op = Some(recording.text(op)).filter(|op| !op.is_empty());
        let frames: Vec<String> = std::iter::once(category).chain(modules).chain(op).map(frame).collect();
        *stacks.entry(frames.join(";")).or_default() += bytes;
    }
    stacks.into_iter().map(|(stack, bytes)| format!("{stack} {bytes}\n")).collect()
}

/// Name of a frame, without the characters that separate frames and lines.
fn frame(name: &str) -> String {
    name.chars().map(|c| if c == ';' || c.is_control() { '_' } else { c }).collect()
}

/// Lifetimes as the input of MiniMalloc, <https://github.com/google/minimalloc>: `id,lower,upper,size`, a line per
/// allocation that takes bytes. `lower` is its event, `upper` the event that freed it, or the end.
pub fn minimalloc(recording: &Recording) -> String {
    let events = recording.events();
    let mut lives: Vec<(usize, usize, u64)> = Vec::with_capacity(recording.allocations());
    for (at, event) in events.iter().enumerate() {
        match *event {
            Event::Alloc { bytes, .. } => lives.push((at, events.len(), bytes)),
            Event::Free { allocation, .. } => {
                if let Some((_, to, _)) = lives.get_mut(allocation as usize) {
                    *to = at.min(*to);
                }
            }
            _ => {}
        }
    }
    let mut out = String::from("id,lower,upper,size\n");
    for (id, (from, to, bytes)) in lives.into_iter().enumerate().filter(|(_, (_, _, bytes))| *bytes > 0) {
        let _ = writeln!(out, "{id},{from},{to},{bytes}");
    }
    out
}
