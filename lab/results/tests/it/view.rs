//! The viewer's model: every event of a recording, and what its actions do.

use lab_results::report::{CategoryId, Event, Recording, Timeline};
use lab_results::view::{Action, Browser, History, Marks, Moment};

const MIB: u64 = 1 << 20;

/// Three steps of a small network, whose last allocation fails.
fn recording() -> Recording {
    let mut recording = Recording::new("small");
    let names = ["", "mm", "relu", "fc.1", "fc.2", "forward", "backward", "step"].map(|text| recording.intern(text));
    let [nothing, mm, relu, first, second, forward, backward, step] = names;
    let (parameter, activation) = (recording.category("parameter"), recording.category("activation"));
    let temporary = recording.category("temporary");
    let alloc = |address, bytes, category, op, scope| Event::Alloc {
        address,
        requested_bytes: bytes - 12,
        bytes,
        category,
        op,
        scope,
    };
    recording.push(Event::SegmentAlloc { address: 0, bytes: 20 * MIB });
    recording.push(alloc(0, 2 * MIB, parameter, nothing, first));
    for number in 0..3 {
        recording.push(Event::Phase { name: forward });
        recording.push(alloc(2 * MIB, 4 * MIB, temporary, mm, first));
        let kept = 1 + 2 * number;
        recording.push(Event::Retag { allocation: kept, category: activation });
        recording.push(alloc(8 * MIB, MIB, activation, relu, second));
        recording.push(Event::Phase { name: backward });
        recording.push(Event::Free { allocation: kept, op: mm });
        recording.push(Event::Free { allocation: kept + 1, op: nothing });
        recording.push(Event::Phase { name: step });
    }
    recording.push(Event::SegmentAlloc { address: 64 * MIB, bytes: 2 * MIB });
    recording.push(Event::Oom { requested_bytes: 80 * MIB, op: mm });
    recording
}

fn browser() -> Browser {
    Browser::new(History::from_recording(recording()))
}

fn went(browser: &mut Browser, actions: &[Action]) -> u32 {
    actions.iter().for_each(|action| browser.apply(action));
    browser.cursor()
}

#[test]
fn a_moment_is_what_lives_then() {
    let history = History::from_recording(recording());
    assert_eq!((history.len(), history.highest()), (28, 5));
    let moment = Moment::at_event(&history, 5, None);
    assert_eq!((moment.allocated_bytes, moment.requested_bytes, moment.blocks), (7 * MIB, 7 * MIB - 36, 3));
    assert_eq!((moment.reserved_bytes, moment.split_bytes), (20 * MIB, 13 * MIB));
    let held: Vec<(String, u64)> =
        moment.holders.iter().map(|holder| (history.holder_name(holder), holder.bytes)).collect();
    let expected = [("fc.1 (mm)", 4 * MIB), ("fc.1", 2 * MIB), ("fc.2 (relu)", MIB)];
    assert_eq!(held, expected.map(|(name, bytes)| (name.to_string(), bytes)));
    let categories: Vec<String> =
        moment.categories.iter().map(|(category, _)| history.category_name(*category)).collect();
    assert_eq!(categories, ["activation", "parameter"]);
}

#[test]
fn a_category_changes_when_it_did() {
    let history = History::from_recording(recording());
    let of = |at| Moment::at_event(&history, at, None).holders[0].category;
    assert_eq!([3, 4].map(|at| history.category_name(of(at))), ["temporary", "activation"]);
}

/// What is found from lists must be what reading from the beginning finds, at every event.
#[test]
fn every_moment_agrees_with_the_curves_and_the_report() {
    let recording = recording();
    let timeline = Timeline::from_recording(&recording);
    let history = History::from_recording(recording.clone());
    for at in 0..history.len() {
        let (moment, expected) = (Moment::at_event(&history, at, None), timeline.moment(at));
        assert_eq!(moment.allocated_bytes, expected.allocated_bytes, "{at}");
        assert_eq!(moment.allocated_bytes, history.allocated.at(at), "{at}");
        assert_eq!(moment.requested_bytes, expected.requested_bytes, "{at}");
        assert_eq!(moment.reserved_bytes, expected.reserved_bytes, "{at}");
        assert_eq!(moment.split_bytes, expected.split_bytes, "{at}");
        for (CategoryId(category), bytes) in moment.categories {
            assert_eq!(bytes, expected.by_category[usize::from(category)], "{at}");
        }
    }
}

#[test]
fn segments_have_their_blocks_and_gaps() {
    let history = History::from_recording(recording());
    let moment = Moment::at_event(&history, 5, None);
    let [segment] = &moment.segments[..] else { panic!("one segment") };
    assert_eq!((segment.bytes, segment.used_bytes, segment.free_bytes()), (20 * MIB, 7 * MIB, 13 * MIB));
    let used: Vec<f64> = segment.cells(10).iter().map(|cell| cell.used).collect();
    assert_eq!(used, [1.0, 1.0, 1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(Moment::at_event(&history, 27, None).segments.len(), 2);
}

#[test]
fn it_opens_where_memory_ran_out_else_at_the_highest() {
    assert_eq!(browser().cursor(), 27);
    let mut recording = Recording::new("r");
    for address in 0..3 {
        let (category, name) = (CategoryId(0), Default::default());
        let one = Event::Alloc { address, requested_bytes: 1, bytes: 1, category, op: name, scope: name };
        recording.push(one);
    }
    recording.push(Event::Free { allocation: 0, op: Default::default() });
    assert_eq!(Browser::new(History::from_recording(recording)).cursor(), 2);
}

#[test]
fn moves_stop_at_the_ends() {
    let mut browser = browser();
    assert_eq!(went(&mut browser, &[Action::By(1)]), 27);
    assert_eq!(went(&mut browser, &[Action::By(-1), Action::By(-3)]), 23);
    assert_eq!(went(&mut browser, &[Action::ByPercent(-1)]), 22);
    assert_eq!(went(&mut browser, &[Action::By(i64::MIN)]), 0);
    assert_eq!(went(&mut browser, &[Action::Last]), 27);
    assert_eq!(went(&mut browser, &[Action::First, Action::Highest]), 5);
}

#[test]
fn peaks_steps_and_failures_follow_each_other() {
    let mut browser = browser();
    assert_eq!(browser.history.peaks, [5, 13, 21]);
    assert_eq!(went(&mut browser, &[Action::First, Action::Peak(true)]), 5);
    assert_eq!(browser.said(), Some("peak 1 of 3"));
    assert_eq!(went(&mut browser, &[Action::Peak(true), Action::Peak(true), Action::Peak(true)]), 21);
    assert_eq!(browser.said(), Some("no peak after this event"));
    assert_eq!(went(&mut browser, &[Action::Peak(false)]), 13);
    assert_eq!(went(&mut browser, &[Action::Failure(true)]), 27);
    assert_eq!(browser.said(), Some("request that failed 1 of 1"));
    assert_eq!(browser.history.marks, Marks::Steps(vec![0, 10, 18]));
    assert_eq!(went(&mut browser, &[Action::Step(false)]), 18);
    assert_eq!(went(&mut browser, &[Action::Step(false), Action::Step(true), Action::Step(true)]), 27);
    assert_eq!(browser.history.place(13).as_deref(), Some("step 2 of 3, forward"));
}

#[test]
fn what_is_shown_follows_the_cursor() {
    let mut browser = browser();
    assert_eq!((browser.from(), browser.shown()), (0, 28));
    browser.apply(&Action::Zoom(true));
    assert_eq!((browser.from(), browser.shown()), (12, 16));
    assert_eq!(went(&mut browser, &[Action::First]), 0);
    assert_eq!((browser.from(), browser.shown()), (0, 16));
    browser.apply(&Action::Zoom(false));
    assert_eq!((browser.from(), browser.shown()), (0, 28));
}

#[test]
fn a_search_goes_round_and_says_what_is_held() {
    let mut browser = browser();
    assert_eq!(went(&mut browser, &[Action::First, Action::Find("RELU".into())]), 5);
    assert_eq!(browser.said(), Some("\"RELU\": 1 of 3 allocations, 1 MiB held here"));
    assert!(browser.moment().holders.iter().any(|holder| holder.found && holder.bytes == MIB));
    assert_eq!(went(&mut browser, &[Action::Hit(true), Action::Hit(true), Action::Hit(true)]), 5);
    assert_eq!(went(&mut browser, &[Action::Hit(false)]), 21);
    assert_eq!(went(&mut browser, &[Action::Find("nowhere".into())]), 21);
    assert_eq!(browser.said(), Some("no line, module or operator has \"nowhere\""));
    assert!(browser.found().is_none() && browser.moment().found_bytes == 0);
    browser.apply(&Action::Hit(true));
    assert_eq!(browser.said(), Some("nothing was searched for: / begins a search"));
}

#[test]
fn events_are_told_in_words() {
    let history = History::from_recording(recording());
    let told = |at| history.happened(at);
    assert_eq!(told(0), "20 MiB taken from the driver");
    assert_eq!(told(1), "2 MiB allocated in fc.1");
    assert_eq!(told(2), "forward begins");
    assert_eq!(told(3), "4 MiB allocated by mm in fc.1");
    assert_eq!(told(4), "4 MiB of mm in fc.1 became activation");
    assert_eq!(told(7), "4 MiB freed by mm in fc.1");
    assert_eq!(told(8), "1 MiB freed of relu in fc.2");
    assert_eq!(told(27), "out of memory: 80 MiB requested by mm");
}

#[test]
fn what_was_there_before_the_recording_is_told_as_such() {
    let mut recording = recording();
    recording.begins_at = 2;
    let history = History::from_recording(recording);
    assert_eq!(history.happened(0), "20 MiB reserved when the recording began");
    assert_eq!(history.happened(1), "2 MiB there when the recording began in fc.1");
    assert_eq!(history.place(1).as_deref(), Some("before the recording"));
    assert_eq!(history.place(2).as_deref(), Some("step 1 of 3, forward"));
}

/// Recordings of the real PyTorch: what lives at any event sums to the curve, and segments hold it.
#[test]
fn recordings_of_pytorch_agree_at_every_event() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/golden/snapshots");
    for name in ["mlp_oom_plain", "mlp_expandable", "cnn_b128_stacks"] {
        let snapshot = lab_traces::snapshot::Snapshot::open(&golden.join(format!("{name}.pickle"))).unwrap();
        let history = History::from_recording(Recording::of_snapshot(name, &snapshot, snapshot.main_device()));
        assert!(history.len() > 100);
        for at in 0..history.len() {
            let moment = Moment::at_event(&history, at, None);
            assert_eq!(moment.allocated_bytes, history.allocated.at(at), "{name} {at}");
            let segments = &moment.segments;
            assert_eq!(segments.iter().map(|segment| segment.bytes).sum::<u64>(), moment.reserved_bytes, "{name} {at}");
            let used = segments.iter().map(|segment| segment.used_bytes).sum::<u64>();
            assert_eq!(used, moment.allocated_bytes, "{name} {at}");
        }
    }
}

/// A file can claim blocks that lie on each other, and segments of any size.
#[test]
fn absurd_sizes_are_looked_at() {
    let mut recording = Recording::new("absurd");
    let op = recording.intern("mm");
    let category = recording.category("activation");
    for address in [0, 1, 2, u64::MAX] {
        recording.push(Event::SegmentAlloc { address, bytes: u64::MAX });
        recording.push(Event::Alloc { address, requested_bytes: u64::MAX, bytes: u64::MAX, category, op, scope: op });
    }
    let mut browser = Browser::new(History::from_recording(recording));
    for at in 0..browser.history.len() {
        went(&mut browser, &[Action::First, Action::By(i64::from(at))]);
        assert_eq!(browser.moment().at, at);
        browser.moment().segments.iter().for_each(|segment| assert_eq!(segment.cells(7).len(), 7));
    }
}
