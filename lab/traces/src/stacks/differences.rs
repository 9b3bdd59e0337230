//! Where two recordings begin to differ, and what follows from it.
//!
//! Requests are the same if they have the same size and come from the same place: the lines of the program and its libraries, and PyTorch's operator. A line that an
//! edit or another release of a library has moved is still the same (`shared_lines`). If they name next to no place alike, as a script's and a
//! prediction's do, sizes alone are compared.

use rustc_hash::FxHashMap;

use super::phase::Phase;
use super::place::Place;
use super::shared_lines::{Function, SharedLines, shared_lines};
use crate::snapshot::{Action, Snapshot, StackId};

/// A request for memory in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Size in bytes.
    pub bytes: u64,
    /// Who asked.
    pub place: Place,
    /// Part of the step, if its stack tells.
    pub phase: Option<Phase>,
}

/// The first difference of two recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// They ask for something else after requests that are equal (in size alone, if they share no place), as are the moments at which their memory is freed.
    Request {
        /// Number of equal requests.
        equal: usize,
        /// What each asks for; `None`: that recording ends there.
        asked: [Option<Request>; 2],
    },
    /// One frees the memory of an equal request before the other does.
    Life {
        /// Number of requests before it.
        before: usize,
        /// The request.
        request: Request,
        /// Number of further requests of each until its memory is freed; `None`: it is not freed in that recording.
        requests: [Option<usize>; 2],
    },
}

/// Memory and requests of one place in two recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceDifference {
    /// The place, as the second recording has it, or the first if that alone has it.
    pub place: Place,
    /// Requested bytes that live at each recording's peak.
    pub at_peak: [u64; 2],
    /// Number of requests.
    pub requests: [usize; 2],
}

/// How two recordings differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differences {
    /// The first difference; `None` if requests and lives are equal.
    pub first: Option<First>,
    /// Numbers of requests.
    pub requests: [usize; 2],
    /// Requested bytes at the peak.
    pub peak_bytes: [u64; 2],
    /// Most bytes of segments.
    pub reserved_bytes: [u64; 2],
    /// Places that differ: by bytes at the peak, then by number of requests, the largest difference first.
    pub places: Vec<PlaceDifference>,
}

/// Finds how two recordings of a device differ.
pub fn differences(snapshots: [&Snapshot; 2], device: usize) -> Differences {
    let mut names = Names::from_snapshots(snapshots, device);
    let [one, other] =
        [0, 1].map(|recording| Course::from_snapshot(snapshots[recording], device, recording, &mut names));
    let requests = [one.requests.len(), other.requests.len()];
    let mut places: Vec<PlaceDifference> = (0..names.places.len())
        .map(|at| PlaceDifference {
            place: names.places[at].clone(),
            at_peak: [&one, &other].map(|course| course.at_peak.get(&at).copied().unwrap_or(0)),
            requests: [&one, &other].map(|course| course.count.get(&at).copied().unwrap_or(0)),
        })
        .filter(|place| place.at_peak[0] != place.at_peak[1] || place.requests[0] != place.requests[1])
        .collect();
    let by = |pair: [u64; 2]| pair[0].abs_diff(pair[1]);
    places.sort_by_key(|place| std::cmp::Reverse((by(place.at_peak), by(place.requests.map(|n| n as u64)))));
    Differences {
        first: first(snapshots, [&one, &other], share_places(&one, &other)),
        requests,
        peak_bytes: [one.peak_bytes, other.peak_bytes],
        reserved_bytes: [one.reserved_bytes, other.reserved_bytes],
        places,
    }
}

/// A place in words that two recordings share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    functions: [Option<Function>; 2],
    /// Number of the line, of the program's and of a library's, among the lines of both recordings.
    lines: [usize; 2],
    texts: [Option<String>; 3],
}

/// The names of places, numbered.
struct Names {
    lines: [SharedLines; 2],
    numbers: FxHashMap<Name, usize>,
    /// By number.
    places: Vec<Place>,
}

impl Names {
    fn from_snapshots(snapshots: [&Snapshot; 2], device: usize) -> Self {
        Self { lines: shared_lines(snapshots, device), numbers: FxHashMap::default(), places: Vec::new() }
    }

    /// Returns the number of a place in a recording.
    fn number(&mut self, recording: usize, mut place: Place) -> usize {
        in_general(&mut place);
        let shared = &self.lines[recording];
        let lines = [&place.own, &place.library];
        let name = Name {
            functions: lines.map(|line| line.as_ref().map(|line| shared.function(line))),
            lines: lines.map(|line| line.as_ref().map_or(0, |line| shared.number(line))),
            texts: [place.operator.clone(), place.node.clone(), place.native.clone()],
        };
        let number = *self.numbers.entry(name).or_insert(self.places.len());
        match self.places.get_mut(number) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
        number
    }
}

/// The place without the numbers of modules in a list: `blocks.3.fc1` is `blocks.*.fc1`. Our own histories have modules instead of lines.
fn in_general(place: &mut Place) {
    if let Some(module) = place.own.as_mut().filter(|own| own.line == 0) {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let parts = module.function.split('.').map(|part| if is_number(part) { "*" } else { part });
        module.function = parts.collect::<Vec<_>>().join(".");
    }
}

/// The requests of one recording.
struct Course {
    /// Size, place and stack of each.
    requests: Vec<(u64, usize, StackId)>,
    /// Number of requests until the memory of each was freed.
    freed: Vec<Option<usize>>,
    peak_bytes: u64,
    reserved_bytes: u64,
    /// Bytes at the peak by place.
    at_peak: FxHashMap<usize, u64>,
    /// Number of requests by place.
    count: FxHashMap<usize, usize>,
}

impl Course {
    fn from_snapshot(snapshot: &Snapshot, device: usize, recording: usize, names: &mut Names) -> Self {
        let mut known: FxHashMap<StackId, usize> = FxHashMap::default();
        let mut number = |stack: StackId| {
            *known.entry(stack).or_insert_with(|| names.number(recording, Place::from_stack(snapshot, stack)))
        };
        let (mut requests, mut freed) = (Vec::new(), Vec::new());
        let mut live: FxHashMap<u64, usize> = FxHashMap::default();
        let mut count: FxHashMap<usize, usize> = FxHashMap::default();
        for event in snapshot.trace(device) {
            match event.action {
                Action::Alloc => {
                    let place = number(event.stack);
                    live.insert(event.address, requests.len());
                    requests.push((event.bytes, place, event.stack));
                    freed.push(None);
                    *count.entry(place).or_default() += 1;
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some(request) = live.remove(&event.address) {
                        freed[request] = Some(requests.len() - request - 1);
                    }
                }
                _ => {}
            }
        }
        let peak = snapshot.peak(device);
        let mut at_peak: FxHashMap<usize, u64> = FxHashMap::default();
        for held in &peak.by_stack {
            let bytes = at_peak.entry(number(held.stack)).or_default();
            *bytes = bytes.saturating_add(held.bytes);
        }
        let reserved = snapshot.reserved_after(device).max().unwrap_or(0);
        Self {
            requests,
            freed,
            peak_bytes: peak.bytes,
            reserved_bytes: reserved.max(snapshot.reserved_before(device)),
            at_peak,
            count,
        }
    }

    fn request(&self, snapshot: &Snapshot, at: usize) -> Option<Request> {
        let (bytes, _, stack) = *self.requests.get(at)?;
        Some(Request { bytes, place: Place::from_stack(snapshot, stack), phase: Phase::from_stack(snapshot, stack) })
    }
}

/// True if the recordings name places alike: at least a tenth of the requests of one come from places that the other has, too.
fn share_places(one: &Course, other: &Course) -> bool {
    let shared = one.count.iter().map(|(place, count)| *count.min(other.count.get(place).unwrap_or(&0)));
    10 * shared.sum::<usize>() >= one.requests.len().min(other.requests.len())
}

/// The first difference: of a request, or of a life that ends before that. `share_places`: whether the recordings name any place alike.
fn first(snapshots: [&Snapshot; 2], [one, other]: [&Course; 2], share_places: bool) -> Option<First> {
    let same = |((a, at, _), (b, bt, _)): &(&(u64, usize, StackId), &(u64, usize, StackId))| {
        a == b && (at == bt || !share_places)
    };
    let equal = one.requests.iter().zip(&other.requests).take_while(same).count();
    let lives = one.freed.iter().zip(&other.freed).take(equal).enumerate();
    // What one recording frees after its last equal request may be freed in the other, too.
    let ends = lives.filter_map(|(at, (one, other))| {
        let earlier = [one, other].into_iter().flatten().min()?;
        (one != other && at + earlier < equal).then_some((at + earlier, at))
    });
    match ends.min() {
        Some((_, at)) => Some(First::Life {
            before: at,
            request: other.request(snapshots[1], at)?,
            requests: [one.freed[at], other.freed[at]],
        }),
        None if equal == one.requests.len().max(other.requests.len()) => None,
        None => Some(First::Request {
            equal,
            asked: [one.request(snapshots[0], equal), other.request(snapshots[1], equal)],
        }),
    }
}
