//! Origins and purposes of memory in snapshots of every release and of users' own networks.

use std::collections::BTreeMap;

use flate2::read::GzDecoder;
use lab_results::report::{Event, Recording};
use lab_results::{Findings, Looked, SnapshotResult};
use lab_traces::snapshot::{Snapshot, StackId};
use lab_traces::stacks::{Guesses, Origin, Place, Role, callers, held_at, matches, origin};

const RELEASES: [&str; 12] = ["2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15"];

fn golden(name: &str) -> Snapshot {
    let path = format!("{}/../traces/tests/golden/{name}.pickle.gz", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    Snapshot::read(&path, GzDecoder::new(file)).unwrap()
}

/// Live bytes after an entry, by purpose.
fn by_role(guesses: &Guesses, entry: usize) -> BTreeMap<Role, u64> {
    let mut sums = BTreeMap::new();
    for (life, role) in guesses.lives.iter().zip(&guesses.roles).filter(|(life, _)| life.lives_after(Some(entry))) {
        *sums.entry(*role).or_default() += life.bytes;
    }
    sums
}

#[test]
fn the_snapshot_of_every_release_tells_steps_lines_and_purposes() {
    for release in RELEASES {
        let snapshot = golden(&format!("snapshots/defaults/torch-{release}"));
        let guesses = Guesses::from_snapshot(&snapshot, 0);
        assert_eq!(guesses.step_ends.len(), 3, "{release}");
        // Two convolutions and a linear layer, in single precision.
        let parameters: u64 = guesses
            .lives
            .iter()
            .zip(&guesses.roles)
            .filter(|(_, r)| **r == Role::Parameter)
            .map(|(l, _)| l.bytes)
            .sum();
        assert_eq!(parameters, 46_568, "{release}");
        for end in &guesses.step_ends {
            let held = by_role(&guesses, *end);
            assert_eq!(held[&Role::Parameter], parameters, "{release}");
            assert_eq!(held[&Role::Gradient], parameters, "{release}: of each parameter one");
            assert_eq!(held[&Role::Optimizer], 2 * parameters, "{release}: Adam keeps two for each");
        }
        let peak = snapshot.peak(0).event;
        let known = guesses.lives.iter().zip(guesses.roles.iter().copied());
        let live = known.filter(|(life, _)| life.lives_after(peak)).map(|(life, role)| (life, role, None));
        let rows = held_at(&snapshot, live, &|_| true);
        for row in &rows {
            match &row.place.own {
                Some(own) => assert!(own.file.ends_with("train.py") && own.line > 0, "{release}: {own:?}"),
                None => assert!(row.place.node.is_some() || row.place.operator.is_some(), "{release}: {row:?}"),
            }
        }
        assert!(rows.iter().any(|row| row.role == Role::Activation && row.place.own.is_some()), "{release}");
        assert!(rows.iter().any(|row| row.role == Role::Input), "{release}");
    }
}

#[test]
fn no_frame_of_the_machinery_is_shown() {
    let snapshot = golden("recordings/unet_oom");
    for stack in (0..snapshot.stack_count()).map(|stack| StackId(stack as u32)) {
        let place = Place::from_stack(&snapshot, stack);
        let words = place.in_words();
        assert!(!words.contains("unwind") && !words.contains("ceval") && !words.contains("CUDACaching"), "{words}");
        assert!(callers(&snapshot, stack).iter().all(|line| line.file == "train.py"), "{words}");
        assert!(snapshot.stack(stack).all(|frame| origin(&frame) != Origin::Library), "{words}");
    }
}

/// The script had allowed itself 700 MiB of an H200.
#[test]
fn a_limit_of_the_process_is_not_called_fragmentation() {
    for name in ["cards/h200/failing", "cards/h200/expandable_failing"] {
        let snapshot = golden(name);
        let found = SnapshotResult::new(name.into(), &snapshot, 0, &Looked::default());
        let oom = found.out_of_memory.as_ref().unwrap();
        assert!(oom.verdict == "limited" && oom.free_on_device > 100 << 30, "{name}: {oom:?}");
        assert!(oom.what_if.as_ref().unwrap().self_check.exact, "{name}");
    }
}

#[test]
fn out_of_memory_is_told_by_line() {
    let snapshot = golden("recordings/unet_oom");
    let found = SnapshotResult::new("unet".into(), &snapshot, 0, &Looked::default());
    let oom = found.out_of_memory.as_ref().unwrap();
    assert_eq!(
        (oom.requested, oom.verdict.as_str(), oom.place.as_deref()),
        (3 << 30, "full", Some("train.py:21 forward"))
    );
    assert_eq!(oom.missing, oom.requested - oom.free_on_device - oom.free_in_reserved);
    let what_if = oom.what_if.as_ref().unwrap();
    assert!(what_if.self_check.exact && what_if.best().is_none() && what_if.tried.len() > 10);
    let moment = found.moment.as_ref().unwrap();
    assert_eq!((moment.what.as_str(), moment.entry), ("out_of_memory", Some(413)));
    let line = |name: &str| moment.by_line.iter().find(|line| line.name.starts_with(name)).unwrap();
    // By block size, counted by hand: 16.91, 2.11 and 0.12 GiB.
    let all =
        moment.by_line.iter().filter(|line| line.name.starts_with("train.py:7 ")).map(|line| line.requested_bytes);
    assert_eq!(format!("{:.2}", all.sum::<u64>() as f64 / f64::from(1 << 30)), "16.91");
    assert_eq!(
        (line("train.py:20 ").requested_bytes >> 20, line("train.py:20 ").category.as_str()),
        (2_160, "activation")
    );
    assert_eq!(
        (line("train.py:25 ").requested_bytes >> 20, line("train.py:25 ").category.as_str()),
        (118, "parameter")
    );
    let operators: Vec<&str> = line("train.py:7 ").operators.iter().map(|found| found.operator.as_str()).collect();
    assert!(operators.contains(&"conv2d") && operators.contains(&"relu"), "{operators:?}");
    assert_eq!(line("train.py:7 ").callers[..2], ["train.py:7 forward", "train.py:19 forward"]);
    let sum: u64 = moment.by_category.iter().map(|found| found.requested_bytes).sum();
    assert_eq!((sum, moment.requested_bytes), (oom.held, oom.held));
    // Written and read again, it is the same.
    let again: SnapshotResult = serde_json::from_value(found.to_json().unwrap()).unwrap();
    assert_eq!(format!("{:?}", again.sections()), format!("{:?}", found.sections()));
}

#[test]
fn a_range_and_a_search_narrow_what_is_shown() {
    let snapshot = golden("recordings/nanogpt");
    let looked = |range, matching: Option<&str>| {
        let looked = Looked { range, matching: matching.map(String::from), top: None };
        SnapshotResult::new("nanogpt".into(), &snapshot, 0, &looked).moment.unwrap()
    };
    let whole = looked(None, None);
    let part = looked(Some((0, 400)), None);
    assert!(part.requested_bytes < whole.requested_bytes && part.entry.unwrap() <= 400);
    let one = looked(None, Some("model.py:88"));
    assert!(one.by_line.iter().all(|line| line.callers.iter().any(|line| line.starts_with("model.py:88 "))), "{one:?}");
    assert!(one.requested_bytes > 0 && one.requested_bytes < whole.requested_bytes);
    assert_eq!(looked(None, Some("model.py:8")).requested_bytes, 0, "that is another line than model.py:88");
    assert!((0..snapshot.stack_count()).any(|stack| matches(&snapshot, StackId(stack as u32), "cross_entropy")));
}

#[test]
fn a_page_has_categories_and_says_that_they_are_guesses() {
    let snapshot = golden("recordings/unet_oom");
    let recording = Recording::of_snapshot("unet", &snapshot, 0);
    assert!(recording.name.contains("guessed"), "{}", recording.name);
    let category = |event: &Event| match event {
        Event::Alloc { category, .. } => Some(recording.category_name(*category).to_string()),
        _ => None,
    };
    let found: std::collections::BTreeSet<String> = recording.events().iter().filter_map(category).collect();
    assert!(found.contains("activation") && found.contains("parameter"), "{found:?}");
    let phases = |recording: &Recording| -> Vec<String> {
        let names = recording.events().iter().filter_map(|event| match event {
            Event::Phase { name } => Some(recording.text(*name).to_string()),
            _ => None,
        });
        names.collect()
    };
    assert_eq!(phases(&recording), ["model", "forward"], "it does not come to the backward pass");
    let snapshot = golden("snapshots/defaults/torch-2.11");
    let steps = phases(&Recording::of_snapshot("cnn", &snapshot, 0));
    let of = |part: &str| steps.iter().filter(|name| name.ends_with(part)).count();
    assert_eq!((of(".backward"), of(".step")), (3, 3), "{steps:?}");
}

#[test]
fn without_stacks_only_what_ranges_tell_is_said() {
    let path = format!("{}/../traces/tests/golden/snapshots/mlp_oom_plain.pickle", env!("CARGO_MANIFEST_DIR"));
    let snapshot = Snapshot::open(std::path::Path::new(&path)).unwrap();
    let found = SnapshotResult::new("mlp".into(), &snapshot, 0, &Looked::default());
    let oom = found.out_of_memory.as_ref().unwrap();
    assert_eq!(
        (oom.requested, oom.place.as_deref(), found.moment.as_ref().unwrap().phase.as_deref()),
        (32 << 20, None, None)
    );
    let guesses = Guesses::from_snapshot(&snapshot, 0);
    let of = |role: Role| guesses.roles.iter().filter(|known| **known == role).count();
    assert!(of(Role::Optimizer) > 0 && of(Role::Activation) == 0 && of(Role::Gradient) == 0);
}
