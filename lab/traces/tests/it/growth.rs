//! Growth of memory from step to step, in recordings made for it.

use lab_traces::snapshot::{Course, Snapshot, Trend};

/// Makes a recording of steps. Each step allocates blocks (a number, bytes) at line 1 and frees blocks by their numbers.
#[derive(Default)]
struct Program {
    entries: Vec<String>,
    ends: Vec<String>,
    time: u64,
}

impl Program {
    fn entry(&mut self, action: &str, block: u64, bytes: u64) {
        self.time += 1;
        let (address, time) = ((block + 1) << 32, self.time);
        self.entries.push(format!(
            "{{\"action\": \"{action}\", \"addr\": {address}, \"size\": {bytes}, \"stream\": 0, \"time_us\": {time}, \
             \"frames\": [{{\"filename\": \"train.py\", \"line\": 1, \"name\": \"step\"}}]}}"
        ));
    }

    fn step(&mut self, made: &[(u64, u64)], freed: &[u64]) {
        made.iter().for_each(|(block, bytes)| self.entry("alloc", *block, *bytes));
        for block in freed {
            self.entry("free_requested", *block, 0);
            self.entry("free_completed", *block, 0);
        }
        self.time += 1;
        let time = self.time;
        self.ends.push(format!(
            "{{\"stage\": \"END\", \"name\": \"Optimizer.step#SGD.step\", \"device\": 0, \"time_us\": {time}}}"
        ));
    }

    fn course(&self) -> Course {
        self.snapshot().leftovers(0).course
    }

    fn snapshot(&self) -> Snapshot {
        let text = format!(
            "{{\"segments\": [], \"device_traces\": [[{}]], \"external_annotations\": [{}]}}",
            self.entries.join(", "),
            self.ends.join(", ")
        );
        Snapshot::read("steps.json", text.as_bytes()).unwrap()
    }
}

/// Returns the course of 20 steps: `made` says what a step allocates, `freed` what it frees.
fn course(made: impl Fn(u64) -> Vec<(u64, u64)>, freed: impl Fn(u64) -> Vec<u64>) -> Course {
    let mut program = Program::default();
    for step in 0..20 {
        program.step(&made(step), &freed(step));
    }
    program.course()
}

/// Sizes that differ from step to step.
fn length(step: u64) -> u64 {
    4096 * (step * 7 % 11 + 1)
}

#[test]
fn a_leak_of_varying_sizes_is_found_with_its_bytes_a_step() {
    let found = course(|step| vec![(step, length(step))], |_| vec![]);
    assert_eq!(found.trend, Trend::Grows);
    let [growth] = &found.growing[..] else { panic!("{found:?}") };
    assert!(growth.smallest < growth.largest && !growth.freed_together, "{growth:?}");
    let added: u64 = (7..20).map(length).sum();
    assert_eq!((growth.more_bytes, growth.steps), (added, 13));
    // A leak in a branch that is taken every third time.
    let found = course(|step| if step % 3 == 0 { vec![(step, 512)] } else { vec![] }, |_| vec![]);
    assert_eq!((found.trend, found.growing.len()), (Trend::Grows, 1), "{found:?}");
}

/// Returns of how many lines the memory grows every `period` steps of 42.
fn by_period(period: usize, made: impl Fn(u64) -> Vec<(u64, u64)>, freed: impl Fn(u64) -> Vec<u64>) -> usize {
    let mut program = Program::default();
    for step in 0..42 {
        program.step(&made(step), &freed(step));
    }
    let snapshot = program.snapshot();
    let (mut allocations, mut frees) = (0, 0);
    let counts: Vec<(u64, u64)> = (0..42)
        .map(|step| {
            (allocations, frees) = (allocations + made(step).len() as u64, frees + freed(step).len() as u64);
            (allocations, frees)
        })
        .collect();
    let ends = snapshot.ends_at(0, &counts, allocations);
    snapshot.grows_by_period(0, &ends, period).len()
}

#[test]
fn what_one_of_many_steps_adds_is_found_with_its_period() {
    let every = |period: u64| move |step: u64| if step.is_multiple_of(period) { vec![(step, 1 << 20)] } else { vec![] };
    assert_eq!(by_period(10, every(10), |_| vec![]), 1);
    // What replaces the last one, and is larger each time.
    let larger = |step: u64| if step.is_multiple_of(10) { vec![(step, 4096 * (step + 1))] } else { vec![] };
    let last = |step: u64| if step.is_multiple_of(10) { step.checked_sub(10).into_iter().collect() } else { vec![] };
    assert_eq!(by_period(10, larger, last), 1);
    assert_eq!(by_period(10, every(10), last), 0, "replaced by what is alike");
    // What is kept once, what is made in any step, and what was kept until half of the steps.
    assert_eq!(by_period(10, |step| if step == 10 { vec![(step, 512)] } else { vec![] }, |_| vec![]), 0);
    assert_eq!(by_period(5, |step| vec![(step, length(step))], |step| step.checked_sub(1).into_iter().collect()), 0);
    assert_eq!(
        by_period(
            5,
            |step| if [3, 9, 16, 22, 25, 31].contains(&step) { vec![(step, 512)] } else { vec![] },
            |_| vec![]
        ),
        0
    );
    assert_eq!(
        by_period(5, |step| if step < 20 && step.is_multiple_of(5) { vec![(step, 512)] } else { vec![] }, |_| vec![]),
        0
    );
}

#[test]
fn a_leak_in_some_of_the_steps_is_found() {
    for added in [vec![4, 8, 12, 16], vec![2, 3, 4, 6, 7, 9, 11, 12, 15], (2..17).collect()] {
        let course = course(
            |step| {
                let kept = if added.contains(&step) { vec![(step, 1 << 20)] } else { vec![] };
                [vec![(100 + step, length(step))], kept].concat()
            },
            |step| vec![100 + step],
        );
        assert_eq!(course.trend, Trend::Grows, "{added:?}: {course:?}");
    }
}

#[test]
fn one_tensor_that_is_made_anew_and_larger_grows() {
    let found = course(|step| vec![(step, 4096 * (step + 1))], |step| step.checked_sub(1).into_iter().collect());
    assert_eq!(found.trend, Trend::Grows);
    assert_eq!(found.growing[0].bytes_per_step(), 4096, "{found:?}");
}

#[test]
fn cycles_are_told_from_leaks() {
    // The collector runs in every sixth step.
    let freed = |step: u64| if step % 6 == 5 { (step - 5..step).collect() } else { vec![] };
    let found = course(|step| vec![(step, 1 << 20)], freed);
    let [growth] = &found.growing[..] else { panic!("{found:?}") };
    assert!(growth.freed_together, "{growth:?}");
    assert_eq!(growth.bytes_per_step(), 1 << 20, "{growth:?}");
    assert!(!course(|step| vec![(step, length(step))], |_| vec![]).growing[0].freed_together);
}

#[test]
fn what_fills_or_is_replaced_does_not_grow() {
    let bounded: [(&str, Course); 6] = [
        (
            "a cache of eight lengths that come at random",
            course(
                |step| {
                    let kept =
                        if [2, 3, 4, 8, 9, 10, 13].contains(&step) { vec![(step, length(step))] } else { vec![] };
                    [vec![(100 + step, length(step))], kept].concat()
                },
                |step| vec![100 + step],
            ),
        ),
        (
            "a cache of eight lengths",
            course(|step| if step < 8 { vec![(step, length(step))] } else { vec![] }, |_| vec![]),
        ),
        (
            "the last five outputs",
            course(|step| vec![(step, length(step))], |step| step.checked_sub(5).into_iter().collect()),
        ),
        (
            "the last output",
            course(|step| vec![(step, length(step))], |step| step.checked_sub(1).into_iter().collect()),
        ),
        (
            "an average from the fifth step on",
            course(
                |step| if step == 5 { vec![(1, 1 << 20)] } else { vec![(100 + step, length(step))] },
                |step| if step == 5 { vec![] } else { vec![100 + step] },
            ),
        ),
        (
            "an evaluation in every fourth step",
            course(
                |step| if step % 4 == 3 { vec![(step, 1 << 20)] } else { vec![] },
                |step| if step % 4 == 3 && step > 4 { vec![step - 4] } else { vec![] },
            ),
        ),
    ];
    for (what, found) in bounded {
        assert_ne!(found.trend, Trend::Grows, "{what}: {found:?}");
        assert!(found.growing.is_empty(), "{what}: {found:?}");
    }
}

#[test]
fn a_step_that_repeats_the_one_before_it_is_flat() {
    let mut program = Program::default();
    program.step(&[(0, 1 << 20)], &[]);
    for step in 1..4 {
        program.step(&[(step, 4096), (100 + step, 512)], &[step, 100 + step]);
    }
    assert_eq!(program.course().trend, Trend::Flat);
    program.step(&[(9, 8192)], &[9]);
    assert_eq!(program.course().trend, Trend::Bounded, "another size");
    let mut short = Program::default();
    short.step(&[(0, 512)], &[]);
    short.step(&[(1, 512)], &[]);
    assert_eq!(short.course().trend, Trend::Unseen);
}

#[test]
fn what_backward_passes_add_grows_as_what_other_lines_do() {
    let mut program = Program::default();
    for step in 0..20 {
        // A gradient that a hook keeps, and one that is freed before the next step.
        program.step(&[(2 * step, 1 << 20), (2 * step + 1, 4 << 20)], &[2 * step + 1]);
    }
    for entry in &mut program.entries {
        entry.truncate(entry.find(", \"frames\"").unwrap());
        entry.push_str(", \"frames\": []}");
    }
    let mut snapshot = program.snapshot();
    // Each allocation has a key of its own, as each node of each backward pass has.
    snapshot.add_stacks(0, Some, |number| vec![("train.py".into(), number as i64 % 2, "MulBackward0".into())]);
    let found = snapshot.leftovers(0).course;
    let [growth] = &found.growing[..] else { panic!("{found:?}") };
    assert_eq!((found.trend, growth.bytes_per_step()), (Trend::Grows, 1 << 20));
}

#[test]
fn what_a_backward_pass_within_another_one_makes_has_the_line_of_its_node() {
    let mut program = Program::default();
    program.step(&[(0, 1 << 20), (1, 4 << 20)], &[]);
    let end = program.entries[0].find(", \"frames\"").unwrap();
    program.entries[0].truncate(end);
    let engine = "{\"filename\": \"graph.py\", \"line\": 7, \"name\": \"_engine_run_backward\"}";
    program.entries[0].push_str(&format!(", \"frames\": [{engine}]}}"));
    let mut snapshot = program.snapshot();
    snapshot.add_stacks(0, Some, |_| vec![("train.py".into(), 3, "MulBackward0".into())]);
    let names: Vec<_> =
        snapshot.trace(0).iter().map(|event| snapshot.stack(event.stack).next().unwrap().name).collect();
    assert_eq!(names[0], "MulBackward0");
    assert_ne!(names[1], "MulBackward0", "the script made this one");
}
