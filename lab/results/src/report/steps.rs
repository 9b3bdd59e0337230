//! Where the steps of a training begin, and how many of them a page opens on.

use super::recording::{Event, Recording};

/// Runs of more steps than this open on the first ones.
const FEW: usize = 4;
/// So many of them, if that is not too many events.
const OPENS_ON: usize = 3;
/// Events of which every moment is kept.
pub(super) const OPENING_EVENTS: usize = 6000;

/// The first steps of a long run: what a page shows before it is asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The event at which they are over.
    pub end: u32,
    /// How many they are.
    pub steps: u32,
    /// How many the run has.
    pub of: u32,
}

/// The first steps of a run of many; `None` of a run that is looked at as a whole.
pub(super) fn opening(recording: &Recording) -> Option<Opening> {
    let begins = begins(recording);
    if begins.len() <= FEW {
        return None;
    }
    let steps = (1..=OPENS_ON).rev().find(|&steps| begins[steps] as usize <= OPENING_EVENTS).unwrap_or(1);
    Some(Opening { end: begins[steps], steps: steps as u32, of: begins.len() as u32 })
}

/// The event at which each step begins: where the number in `s3.forward` rises, or after the phase `step`.
fn begins(recording: &Recording) -> Vec<u32> {
    let mut begins = vec![0];
    let (mut number, mut stepped) = (0, false);
    for (at, event) in recording.events().iter().enumerate() {
        let Event::Phase { name } = event else { continue };
        let name = recording.text(*name);
        let begun = match numbered(name) {
            Some(now) => {
                let rises = now > number;
                number = now.max(number);
                rises
            }
            None => std::mem::replace(&mut stepped, name == "step") && name != "step",
        };
        if begun {
            begins.push(at as u32);
        }
    }
    begins
}

/// The step of a phase's name, where it has one: 3 of `s3.forward`.
fn numbered(name: &str) -> Option<u64> {
    name.strip_prefix('s')?.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(phases: &[&str]) -> Recording {
        let mut recording = Recording::new("r");
        for phase in phases {
            let name = recording.intern(phase);
            recording.push(Event::Phase { name });
            recording.push(Event::SegmentAlloc { address: 0, bytes: 1 });
        }
        recording
    }

    #[test]
    fn a_long_run_opens_on_three_steps_and_a_short_one_on_all() {
        let step = ["input", "zero_grad", "forward", "backward", "forward", "backward", "step"];
        let run = |steps: usize| recording(&[&["model"][..], &step.repeat(steps)].concat());
        assert_eq!(opening(&run(4)), None);
        assert_eq!(opening(&run(5)), Some(Opening { end: 2 * (1 + 3 * 7), steps: 3, of: 5 }));
        assert_eq!(opening(&recording(&[])), None);
    }

    #[test]
    fn steps_of_a_snapshot_have_numbers() {
        let names: Vec<String> =
            (0..6).flat_map(|i| ["zero_grad", "forward", "step"].map(|p| format!("s{i}.{p}"))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(opening(&recording(&names)), Some(Opening { end: 18, steps: 3, of: 6 }));
    }

    #[test]
    fn of_long_steps_fewer_are_opened_on() {
        let long: Vec<&str> = std::iter::repeat_n("forward", 1200).collect();
        let run = recording(&[&long[..], &["step"], &long, &["step"]].concat().repeat(3));
        assert_eq!(opening(&run), Some(Opening { end: 2 * 2402, steps: 2, of: 6 }));
    }
}
