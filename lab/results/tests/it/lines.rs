//! Lines and purposes that a snapshot's stacks tell: the program's line before a library's, parameters by their optimizer states, an evaluation that keeps
//! a graph.

use lab_base::section::Section;
use lab_results::{Findings, Looked, SnapshotResult};
use lab_traces::snapshot::Snapshot;
use serde_json::{Value, json};

/// Entries of a trace, and where each allocation is.
#[derive(Default)]
struct Recorded {
    entries: Vec<Value>,
    next: u64,
}

fn frame(file: &str, line: u64, name: &str) -> Value {
    json!({ "filename": file, "line": line, "name": name })
}

const EINOPS: &str = "/v/lib/python3.11/site-packages/einops/_backends.py";
const ADAM: &str = "/v/lib/python3.11/site-packages/torch/optim/adam.py";
const ENGINE: &str = "/v/lib/python3.11/site-packages/torch/autograd/graph.py";

impl Recorded {
    fn entry(&mut self, action: &str, address: u64, size: u64, frames: &[Value]) {
        let time = self.entries.len() + 1;
        self.entries.push(
            json!({ "action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames }),
        );
    }

    fn take(&mut self, size: u64, frames: &[Value]) -> u64 {
        self.next += 1 << 20;
        self.entry("alloc", self.next, size, frames);
        self.next
    }

    fn free(&mut self, address: u64, frames: &[Value]) {
        self.entry("free_requested", address, 0, frames);
        self.entry("free_completed", address, 0, frames);
    }

    /// The snapshot; `before` are sizes of what lived before, in one segment.
    fn shown(self, before: &[u64]) -> SnapshotResult {
        let block = |size: &u64| json!({ "size": size, "requested_size": size, "state": "active_allocated" });
        let blocks: Vec<Value> = before.iter().map(block).collect();
        let total: u64 = before.iter().sum();
        let segment = json!({ "address": 1u64 << 44, "total_size": total, "stream": 0, "segment_type": "large", "blocks": blocks });
        let segments: Vec<Value> = if before.is_empty() { Vec::new() } else { vec![segment] };
        let text = json!({ "segments": segments, "device_traces": [self.entries] }).to_string();
        let snapshot = Snapshot::read("lines.json", text.as_bytes()).unwrap();
        SnapshotResult::new("lines.json".into(), &snapshot, 0, &Looked::default())
    }
}

fn bytes_in(found: &SnapshotResult, category: &str) -> u64 {
    let sums = &found.moment.as_ref().unwrap().by_category;
    sums.iter().find(|sum| sum.category == category).map_or(0, |sum| sum.requested_bytes)
}

#[test]
fn the_programs_line_comes_before_the_librarys() {
    let mut recorded = Recorded::default();
    let inner = frame(EINOPS, 288, "einsum");
    for line in [32, 33, 34] {
        recorded.take(54 << 20, &[inner.clone(), frame("/home/me/swiglu.py", line, "forward")]);
    }
    // A program whose own lines are only in a library: its line.
    recorded.take(9 << 20, &[inner, frame("/v/bin/torchrun", 8, "<module>")]);
    let found = recorded.shown(&[]);
    let names: Vec<_> = found.moment.as_ref().unwrap().by_line.iter().map(|line| line.name.as_str()).collect();
    let line = |number: u64| format!("swiglu.py:{number} forward, in _backends.py:288");
    assert_eq!(names[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{names:?}");
    assert!((32..=34).all(|number| names.contains(&line(number).as_str())), "{names:?}");
    assert_eq!(names[3], "_backends.py:288 einsum");
}

/// Parameters of sizes that were there before, and so many states of each that the first optimizer step makes.
fn first_step(sizes: &[u64], states: u64) -> SnapshotResult {
    let mut recorded = Recorded::default();
    let own = frame("/home/me/train.py", 5, "<module>");
    let activation = recorded.take(1 << 20, &[frame("/home/me/train.py", 4, "forward"), own.clone()]);
    recorded.free(activation, &[frame(ENGINE, 7, "_engine_run_backward"), own.clone()]);
    for size in sizes {
        for _ in 0..states {
            recorded.take(*size, &[frame(ADAM, 170, "_init_group"), frame(ADAM, 220, "step"), own.clone()]);
        }
    }
    recorded.take(512, &[own]);
    recorded.shown(&[sizes, &[77 << 10]].concat())
}

#[test]
fn parameters_older_than_the_trace_are_known_by_their_states() {
    let sizes = [4096, 8192, 8192, 1 << 20, 512 * 3];
    let sum: u64 = sizes.iter().sum();
    for states in [1, 2, 3] {
        let found = first_step(&sizes, states);
        assert_eq!(
            (bytes_in(&found, "parameter"), bytes_in(&found, "optimizer")),
            (sum, sum * states),
            "{states}: {:?}",
            found.moment
        );
        // What no state has the size of stays unknown.
        assert!(bytes_in(&found, "other") >= 77 << 10);
    }
    // Without states nothing is known of them.
    assert_eq!(bytes_in(&first_step(&sizes, 0), "parameter"), 0);
}

/// A step of training and then an evaluation, which keeps its activations until its end or frees each after the next.
fn evaluated(keeps: bool) -> SnapshotResult {
    let mut recorded = Recorded::default();
    let own = |line| frame("/home/me/train.py", line, "main");
    let small = recorded.take(1 << 10, &[own(3)]);
    recorded.free(small, &[frame(ENGINE, 7, "_engine_run_backward"), own(4)]);
    let step = recorded.take(256, &[frame(ADAM, 170, "_init_group"), frame(ADAM, 220, "step"), own(5)]);
    let mut live = Vec::new();
    for line in 20..32 {
        live.push(recorded.take(50 << 20, &[frame("/home/me/model.py", line, "forward"), own(9)]));
        if !keeps && live.len() > 2 {
            recorded.free(live.remove(0), &[own(9)]);
        }
    }
    for address in live {
        recorded.free(address, &[own(9)]);
    }
    let again = recorded.take(1 << 10, &[own(3)]);
    recorded.free(again, &[frame(ENGINE, 7, "_engine_run_backward"), own(4)]);
    recorded.free(step, &[own(10)]);
    recorded.shown(&[])
}

#[test]
fn an_evaluation_that_keeps_a_graph_is_named() {
    let found = evaluated(true);
    assert_eq!(found.moment.as_ref().unwrap().kept_in_vain, 12 * (50 << 20), "{:?}", found.moment);
    let says = |found: &SnapshotResult| {
        found
            .sections()
            .iter()
            .any(|section| matches!(section, Section::Note(note) if note.contains("torch.no_grad()")))
    };
    assert!(says(&found));
    let found = evaluated(false);
    assert_eq!(found.moment.as_ref().unwrap().kept_in_vain, 0);
    assert!(!says(&found));
}
