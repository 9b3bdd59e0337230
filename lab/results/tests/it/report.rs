//! Recorded scripts of PyTorch as timelines and pages.

use std::fs;
use std::path::PathBuf;

use lab_results::report::{Event, Part, Source, Timeline, html, read};

fn recordings() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().ends_with(".json.gz")).collect();
    files.sort();
    files
}

/// Peak of requested bytes and final bytes in segments, counted from the events.
fn counted(events: &[Event]) -> (u64, u64) {
    let (mut sizes, mut now, mut most, mut reserved) = (Vec::new(), 0, 0, 0);
    for event in events {
        match *event {
            Event::Alloc { bytes, .. } => {
                sizes.push(bytes);
                now += bytes;
                most = most.max(now);
            }
            Event::Free { allocation, .. } => now -= sizes[allocation as usize],
            Event::SegmentAlloc { bytes, .. } => reserved += bytes,
            Event::SegmentFree { bytes, .. } => reserved -= bytes,
            _ => {}
        }
    }
    (most, reserved)
}

#[test]
fn every_recorded_script_is_a_page() {
    let mut pages = 0;
    for path in recordings() {
        let Ok(Source::Recording(recording)) = read::open(&path) else { continue };
        if recording.events().is_empty() {
            continue;
        }
        let name = path.display();
        let timeline = Timeline::from_recording(&recording);
        let (most, reserved) = counted(recording.events());
        assert_eq!(timeline.peak.allocated_bytes, most, "{name}");
        assert_eq!(timeline.moments.last().map(|moment| moment.reserved_bytes), Some(reserved), "{name}");
        for moment in &timeline.moments {
            assert_eq!(moment.by_category.iter().sum::<u64>(), moment.allocated_bytes, "{name}");
            assert!(moment.allocated_bytes + moment.split_bytes <= moment.reserved_bytes, "{name}: {moment:?}");
        }
        let page = html(&[Part::Recording(&recording)]).unwrap();
        assert!(page.len() < 5_000_000 && page.contains("unknown"), "{name}");
        pages += 1;
    }
    assert!(pages > 60, "{pages} pages");
}
