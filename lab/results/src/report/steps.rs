//! Beginnings of a training's steps, and the number of steps that a page opens with.

use super::recording::{Event, Recording};

/// Runs of more steps than this open with the first ones.
const FEW: usize = 4;
/// Number of steps to open with, if they do not have too many events.
const OPENS_ON: usize = 3;
/// The most events at the beginning of which every moment is kept.
pub(super) const OPENING_EVENTS: usize = 6000;

/// First steps of a long run: a page opens with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Event at which they end.
    pub end: u32,
    /// Number of these steps.
    pub steps: u32,
    /// Number of steps in the run.
    pub of: u32,
}

/// Returns the first steps of a run with many; `None` if the page opens with the whole run.
pub(super) fn opening(recording: &Recording) -> Option<Opening> {
    let begins = begins(recording);
    if begins.len() <= FEW {
        return None;
    }
    let steps = (1..=OPENS_ON).rev().find(|&steps| begins[steps] as usize <= OPENING_EVENTS).unwrap_or(1);
    Some(Opening { end: begins[steps], steps: steps as u32, of: begins.len() as u32 })
}

/// Returns the event at which each step begins: where the number in `s3.forward` rises, or after the phase `step`.
pub(crate) fn begins(recording: &Recording) -> Vec<u32> {
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

/// The name of a phase without the number of its step: `forward` for `s3.forward`.
pub(crate) fn kind(name: &str) -> &str {
    match numbered(name) {
        Some(_) => name.split_once('.').map_or(name, |(_, kind)| kind),
        None => name,
    }
}

/// Step in the name of a phase: 3 for `s3.forward`; `None` if it has none.
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
