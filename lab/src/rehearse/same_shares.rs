//! Tests that the answer, the page, the events and the snapshot of a rehearsal have the same categories.

use std::collections::BTreeMap;
use std::fs;

use lab_results::report::{Event, Recording};
use lab_traces::snapshot::Snapshot;
use lab_traces::stacks::{Guesses, Role, lives};

use super::changed::Before;
use super::collect::{Rehearsed, collect};
use super::damaged::{request, snapshot};
use super::folder::Folder;
use super::open::Caches;
use super::run::{Ending, Followed, Ran};

type Shares = BTreeMap<&'static str, u64>;

/// Collects a run whose process wrote the golden snapshot, and reported purposes: those of every third allocation at the peak.
fn rehearsed() -> Rehearsed {
    let recorded = Snapshot::open(&snapshot()).unwrap();
    let peak = recorded.peak(0).event.unwrap();
    let time = recorded.trace(0)[peak].time_us;
    let held: Vec<u64> =
        lives(&recorded, 0).iter().filter(|life| life.lives_after(Some(peak))).map(|life| life.address).collect();
    let third = |of: usize| held.iter().skip(of).step_by(3).collect::<Vec<_>>();
    let answer = serde_json::json!({
        "pid": 7, "rank": 0, "world": 1, "why": "steps", "steps": 3, "torch": "2.11.0+cu130", "entries": recorded.trace(0).len(),
        "cards": [{"index": 0, "peak_allocated": 68264960, "peak_reserved": 90177536, "ooms": 0}],
        "held": [{"time_us": time, "parameter": third(0), "optimizer": third(1)}], "backward": [[time + 1, null]], "inputs": [],
    });
    let folder = Folder::make(std::path::Path::new("/nonexistent/library"), &request()).unwrap();
    fs::write(folder.answers().join("7.json"), answer.to_string()).unwrap();
    fs::write(folder.answers().join("7.started"), "{\"torch\": \"2.11.0\", \"cuda\": \"13.0\"}").unwrap();
    fs::copy(snapshot(), folder.answers().join("7.pickle")).unwrap();
    let followed = Followed { ending: Ending::Steps, exit: None };
    let ran = Ran { followed, keeper: None, before: Before::look(Vec::new(), Vec::new()) };
    collect(&request(), folder, &Caches::find(), ran, 1).unwrap()
}

/// Returns the bytes of a recording at the peak of requested bytes, by category.
fn drawn(recording: &Recording) -> BTreeMap<String, u64> {
    let (mut made, mut live, mut largest) = (Vec::new(), BTreeMap::new(), (0, BTreeMap::new()));
    for event in recording.events() {
        match *event {
            Event::Alloc { requested_bytes, category, .. } => {
                live.insert(made.len() as u32, requested_bytes);
                made.push(category);
            }
            Event::Free { allocation, .. } => drop(live.remove(&allocation)),
            Event::Retag { allocation, category } => made[allocation as usize] = category,
            _ => {}
        }
        let sum: u64 = live.values().sum();
        if sum > largest.0 {
            largest = (sum, live.clone());
        }
    }
    let mut shares = BTreeMap::new();
    for (allocation, bytes) in largest.1 {
        *shares.entry(recording.category_name(made[allocation as usize]).to_string()).or_default() += bytes;
    }
    shares
}

#[test]
fn the_answer_the_page_and_the_snapshot_have_the_same_categories() {
    let found = rehearsed();
    let told = found.result.ranks[0].by_category.unwrap();
    let shares: Shares = [
        (Role::Parameter, told.parameter),
        (Role::Optimizer, told.optimizer),
        (Role::Activation, told.activation),
        (Role::Temporary, told.temporary),
        (Role::Other, told.other),
    ]
    .into_iter()
    .filter(|(_, bytes)| *bytes > 0)
    .map(|(role, bytes)| (role.category().map_or("unknown", |category| category.name()), bytes))
    .collect();
    assert!(shares.len() > 2 && shares.contains_key("unknown"), "{shares:?}");

    // The page and the file of events are of one recording.
    let drawn = drawn(&found.recording().unwrap().unwrap());
    let expected: BTreeMap<String, u64> = shares.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect();
    assert_eq!(drawn, expected);

    let mut file = Vec::new();
    found.write_snapshot(0, &mut file).unwrap();
    let written = Snapshot::read("written", file.as_slice()).unwrap();
    let (guesses, peak) = (Guesses::from_snapshot(&written, 0), written.peak(0).event);
    assert!(guesses.roles_are_told);
    let mut kept = Shares::new();
    for (life, role) in guesses.lives.iter().zip(&guesses.roles).filter(|(life, _)| life.lives_after(peak)) {
        *kept.entry(role.category().map_or("unknown", |category| category.name())).or_default() += life.bytes;
    }
    assert_eq!(kept, shares);
    // Nothing else of PyTorch's file is lost.
    let original = Snapshot::open(&snapshot()).unwrap();
    assert_eq!((written.trace(0).len(), written.segments), (original.trace(0).len(), original.segments));
}
