//! Which lines of two recordings are the same, whatever their numbers.
//!
//! The lines of a function that ask for memory are aligned in their order by what they ask with: lines are the same that share at least half of their operators.
//! A line that only one recording has is a line of its own, and moves no other. The script itself may have another name.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::frame::{Origin, origin};
use super::place::{Line, Place, file_name};
use crate::snapshot::{Action, Snapshot};

/// The outermost function of a script.
const SCRIPT: &str = "<module>";

/// Lines of a function in both recordings, multiplied, up to which they are aligned; longer functions by the order of their lines.
const MOST: usize = 1 << 20;

/// A function: the name of its file, and its own. The script's file has no name.
pub(super) type Function = (String, String);

/// What a line asks with: operators, and nodes of the backward pass.
type Operators = BTreeSet<(Option<String>, Option<String>)>;

/// The lines of a function that ask, each with what.
type Asking = BTreeMap<i64, Operators>;

/// The lines of one recording that ask for memory.
#[derive(Default)]
pub(super) struct SharedLines {
    script: Option<String>,
    functions: FxHashMap<Function, Asking>,
    numbers: FxHashMap<(Function, i64), usize>,
}

impl SharedLines {
    fn from_snapshot(snapshot: &Snapshot, device: usize) -> Self {
        let trace = snapshot.trace(device).iter().filter(|event| event.action == Action::Alloc);
        let mut seen = FxHashSet::default();
        let stacks: Vec<_> = trace.map(|event| event.stack).filter(|stack| seen.insert(*stack)).collect();
        let script = stacks.iter().find_map(|stack| {
            let outermost = snapshot.stack(*stack).rev().find(|frame| origin(frame) == Origin::Own)?;
            (outermost.name == SCRIPT).then(|| file_name(outermost.filename).to_string())
        });
        let mut lines = Self { script, ..Self::default() };
        for stack in stacks {
            let place = Place::from_stack(snapshot, stack);
            for line in [&place.own, &place.library].into_iter().flatten() {
                let asking = lines.functions.entry(lines.function(line)).or_default();
                asking.entry(line.line).or_default().insert((place.operator.clone(), place.node.clone()));
            }
        }
        lines
    }

    /// Returns the function of a line.
    pub(super) fn function(&self, line: &Line) -> Function {
        let file = file_name(&line.file);
        let file = if self.script.as_deref() == Some(file) { "" } else { file };
        (file.to_string(), line.function.clone())
    }

    /// Returns the number of a line among the lines of both recordings.
    pub(super) fn number(&self, line: &Line) -> usize {
        self.numbers.get(&(self.function(line), line.line)).copied().unwrap_or(0)
    }
}

/// Numbers the lines of two recordings, each with those of the other.
pub(super) fn shared_lines(snapshots: [&Snapshot; 2], device: usize) -> [SharedLines; 2] {
    let [mut one, mut other] = snapshots.map(|snapshot| SharedLines::from_snapshot(snapshot, device));
    let functions: FxHashSet<Function> = one.functions.keys().chain(other.functions.keys()).cloned().collect();
    let mut next = 1;
    let none = Asking::new();
    for function in functions {
        let both = [&one, &other].map(|lines| lines.functions.get(&function).unwrap_or(&none));
        for pair in aligned(both) {
            for (numbers, line) in [&mut one.numbers, &mut other.numbers].into_iter().zip(pair) {
                if let Some(line) = line {
                    numbers.insert((function.clone(), line), next);
                }
            }
            next += 1;
        }
    }
    [one, other]
}

/// Pairs the lines that are the same; a line that only one recording has is alone.
fn aligned([one, other]: [&Asking; 2]) -> Vec<[Option<i64>; 2]> {
    let (one, other): (Vec<_>, Vec<_>) = (one.iter().collect(), other.iter().collect());
    if one.len() * other.len() > MOST {
        let longest = one.len().max(other.len());
        let line = |lines: &[(&i64, _)], at: usize| lines.get(at).map(|(line, _)| **line);
        return (0..longest).map(|at| [line(&one, at), line(&other, at)]).collect();
    }
    // The best that can follow from each pair of lines on.
    let mut best = vec![vec![0u32; other.len() + 1]; one.len() + 1];
    for i in (0..one.len()).rev() {
        for j in (0..other.len()).rev() {
            let alike = alike(one[i].1, other[j].1).map_or(0, |alike| alike + best[i + 1][j + 1]);
            best[i][j] = alike.max(best[i + 1][j]).max(best[i][j + 1]);
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while let (Some((a, with)), Some((b, by))) = (one.get(i), other.get(j)) {
        if alike(with, by).is_some_and(|alike| alike + best[i + 1][j + 1] == best[i][j]) {
            pairs.push([Some(**a), Some(**b)]);
            (i, j) = (i + 1, j + 1);
        } else if best[i + 1][j] == best[i][j] {
            pairs.push([Some(**a), None]);
            i += 1;
        } else {
            pairs.push([None, Some(**b)]);
            j += 1;
        }
    }
    pairs.extend(one[i..].iter().map(|(line, _)| [Some(**line), None]));
    pairs.extend(other[j..].iter().map(|(line, _)| [None, Some(**line)]));
    pairs
}

/// How much two lines ask with the same, in percent; `None` for less than half.
fn alike(one: &Operators, other: &Operators) -> Option<u32> {
    let percent = 200 * one.intersection(other).count() / (one.len() + other.len()).max(1);
    (percent >= 50).then_some(percent as u32)
}
