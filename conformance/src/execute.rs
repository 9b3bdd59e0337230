//! Runs a case on a backend and compares every byte with the reference's result.

use memcore::backend::{Access, Backend, KernelCall, Operand, Region, SegmentId, validate};

use crate::case::Case;
use crate::plan::{Plan, Spread};
use crate::reference::{Reference, load, positions};

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was correct.
    Passed,
    /// The backend does not support the case; with the reason.
    Skipped(String),
}

/// The workspace that a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// As much as the backend asks for.
    AsAsked,
    /// No workspace.
    Absent,
    /// This many bytes, whatever the backend asks for.
    Bytes(u64),
}

/// Segments that are freed on drop.
pub(crate) struct Segments<'a> {
    backend: &'a dyn Backend,
    pub(crate) ids: Vec<SegmentId>,
}

impl<'a> Segments<'a> {
    pub(crate) fn new(backend: &'a dyn Backend, sizes: &[u64]) -> memcore::Result<Self> {
        let mut segments = Self { backend, ids: Vec::new() };
        for &bytes in sizes {
            segments.ids.push(backend.alloc_segment(bytes)?);
        }
        Ok(segments)
    }

    pub(crate) fn region(&self, segment: usize, offset: u64, len: u64) -> Region {
        Region { segment: self.ids[segment], offset, len }
    }
}

impl Drop for Segments<'_> {
    fn drop(&mut self) {
        for &id in &self.ids {
            self.backend.free_segment(id);
        }
    }
}

/// Returns the reason why the backend cannot run this call; `None` if it can.
pub fn unsupported(backend: &dyn Backend, call: &KernelCall) -> Option<String> {
    let limits = backend.limits();
    let mut problem = None;
    call.each_operand(&mut |name, _, operand| {
        if !limits.dtypes.contains(&operand.dtype) {
            problem.get_or_insert_with(|| format!("{} has no {}", backend.name(), operand.dtype));
        }
        if operand.region.len > limits.max_binding_bytes {
            problem.get_or_insert_with(|| format!("{name} is larger than one binding of {}", backend.name()));
        }
    });
    if problem.is_none() && !backend.supports(call) {
        problem = Some(format!("{} does not support {} for {}", backend.name(), call.name(), call.dtype()));
    }
    problem
}

/// Places a case for a backend, with its workspace. `Err` holds the reason to skip it.
pub fn plan<'a>(
    backend: &dyn Backend,
    case: &'a Case,
    spread: Spread,
    workspace: Workspace,
) -> Result<Plan<'a>, String> {
    let alignment = backend.limits().alignment;
    let mut call = Plan::new(case, alignment, spread, None).prospective_call();
    if let Some(reason) = unsupported(backend, &call) {
        return Err(reason);
    }
    let bytes = match workspace {
        _ if call.workspace_mut().is_none() => None,
        Workspace::AsAsked => Some(backend.workspace_bytes(&call)).filter(|&bytes| bytes > 0),
        Workspace::Absent => None,
        Workspace::Bytes(bytes) => Some(bytes),
    };
    Ok(Plan::new(case, alignment, spread, bytes))
}

/// Runs a planned case: uploads the contents of its segments, launches, and downloads the new contents.
pub fn run(backend: &dyn Backend, plan: &Plan<'_>, before: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let segments = Segments::new(backend, &plan.segments).map_err(|e| text(backend, "allocation", e))?;
    run_in(&segments, plan, before)
}

fn run_in(segments: &Segments<'_>, plan: &Plan<'_>, before: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let backend = segments.backend;
    for (i, image) in before.iter().enumerate() {
        let region = segments.region(i, 0, image.len() as u64);
        backend.upload(image, region).map_err(|e| text(backend, "upload", e))?;
    }
    let call = plan.call(&segments.ids);
    validate(&call).map_err(|e| text(backend, "validation", e))?;
    backend.launch(&call).map_err(|e| text(backend, "launch", e))?;
    let mut after: Vec<Vec<u8>> = before.iter().map(|image| vec![0; image.len()]).collect();
    for (i, image) in after.iter_mut().enumerate() {
        let region = segments.region(i, 0, image.len() as u64);
        backend.download(region, image).map_err(|e| text(backend, "download", e))?;
    }
    Ok(after)
}

fn text(backend: &dyn Backend, what: &str, error: memcore::Error) -> String {
    format!("{what} on {}: {error}", backend.name())
}

/// The reference's results for a case.
struct Expected {
    /// Contents of the segments afterwards.
    images: Vec<Vec<u8>>,
    /// For each result, in the order of [`written`]: its elements before rounding, if they are 16-bit floats.
    unrounded: Vec<Option<Vec<f64>>>,
}

fn expected(plan: &Plan<'_>, before: &[Vec<u8>]) -> Result<Expected, String> {
    let reference = Reference::keeping_unrounded();
    let segments = Segments::new(&reference, &plan.segments).map_err(|e| text(&reference, "allocation", e))?;
    let images = run_in(&segments, plan, before)?;
    let half = |operand: &Operand| reference.unrounded(operand).filter(|_| operand.dtype.is_half());
    let unrounded = written(&plan.call(&segments.ids)).iter().map(|(_, operand)| half(operand)).collect();
    Ok(Expected { images, unrounded })
}

/// Runs a case on a backend and on the reference, and compares them: results within the case's tolerance, everything
/// else (guards, operands that are only read, gaps between strided rows) to the bit.
pub fn check(backend: &dyn Backend, case: &Case, spread: Spread, workspace: Workspace) -> Result<Verdict, String> {
    let plan = match plan(backend, case, spread, workspace) {
        Ok(plan) => plan,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let before = plan.images();
    let want = expected(&plan, &before)?;
    let got = run(backend, &plan, &before)?;
    compare(case, &plan, &before, &want, got)?;
    Ok(Verdict::Passed)
}

/// Operands of a call whose contents it writes and that are meaningful afterwards, each with the index of its segment.
fn written(call: &KernelCall) -> Vec<(&'static str, Operand)> {
    let mut out = Vec::new();
    call.each_operand(&mut |name, access, operand| {
        if access.writes() && access != Access::Workspace {
            out.push((name, *operand));
        }
    });
    out
}

fn compare(
    case: &Case,
    plan: &Plan<'_>,
    before: &[Vec<u8>],
    want: &Expected,
    mut got: Vec<Vec<u8>>,
) -> Result<(), String> {
    let mut call = plan.prospective_call();
    for ((name, operand), unrounded) in written(&call).into_iter().zip(&want.unrounded) {
        let segment = operand.region.segment.0 as usize;
        compare_operand(case, name, &operand, (&want.images[segment], unrounded.as_deref()), &got[segment])?;
        restore(&operand, &before[segment], &mut got[segment]);
    }
    if let Some(Some(workspace)) = call.workspace_mut() {
        restore(workspace, &before[workspace.region.segment.0 as usize], &mut got[workspace.region.segment.0 as usize]);
    }
    // The results were set back to their old contents; everything else must never have changed.
    for (segment, (before, got)) in before.iter().zip(&got).enumerate() {
        if before != got {
            let byte = before.iter().zip(got).position(|(a, b)| a != b).unwrap_or(0);
            let (was, is) = (before[byte], got[byte]);
            let place = plan.name_at(segment, byte as u64);
            return Err(format!("a byte that must not change did, {place}: {was:#04x} became {is:#04x}"));
        }
    }
    Ok(())
}

/// Compares a result with the reference's: the bytes, and for 16-bit floats the elements before rounding.
fn compare_operand(
    case: &Case,
    name: &str,
    operand: &Operand,
    (want, unrounded): (&[u8], Option<&[f64]>),
    got: &[u8],
) -> Result<(), String> {
    let size = operand.dtype.size() as usize;
    let base = operand.region.offset as usize;
    let (mut wrong, mut first) = (0u64, None);
    for (index, position) in positions(&operand.layout).enumerate() {
        let at = base + position * size;
        let (want, got) = (&want[at..at + size], &got[at..at + size]);
        if want == got && !operand.dtype.is_float() {
            continue;
        }
        let (want, got) = (load(operand.dtype, want), load(operand.dtype, got));
        if want.to_f64().is_nan() && !case.expects_nan {
            return Err(format!(
                "the reference gives NaN for {name} at {:?}: a mistake in the case",
                at_dims(operand, index)
            ));
        }
        // An element that no kernel wrote has no value before rounding: its old contents remain.
        let exact = unrounded.map(|all| all[index]).filter(|x| !x.is_nan()).unwrap_or(want.to_f64());
        // Integers beyond 2⁵³ are compared as integers.
        let same = want == got || case.tolerance.accepts(operand.dtype, exact, got.to_f64());
        if !same {
            wrong += 1;
            first.get_or_insert((index, exact, got));
        }
    }
    let Some((index, want, got)) = first else { return Ok(()) };
    Err(format!(
        "{name} {} {:?} at {:?}: {} instead of {want}, more than {:.3e} off ({}); {wrong} of {} elements are wrong",
        operand.dtype,
        operand.layout,
        at_dims(operand, index),
        got.to_f64(),
        case.tolerance.allowed(operand.dtype, want),
        case.tolerance.reason,
        operand.numel()
    ))
}

/// The index of an element, given its number in row-major order.
fn at_dims(operand: &Operand, linear: usize) -> Vec<usize> {
    let mut rest = linear;
    let mut index: Vec<usize> = Vec::new();
    for &size in operand.dims().iter().rev() {
        index.push(rest % size);
        rest /= size;
    }
    index.reverse();
    index
}

/// Sets the elements of an operand back to their old contents.
fn restore(operand: &Operand, before: &[u8], now: &mut [u8]) {
    let size = operand.dtype.size() as usize;
    let base = operand.region.offset as usize;
    if operand.layout.is_contiguous() {
        let range = base..base + operand.layout.span() * size;
        now[range.clone()].copy_from_slice(&before[range]);
        return;
    }
    for position in positions(&operand.layout) {
        let at = base + position * size;
        now[at..at + size].copy_from_slice(&before[at..at + size]);
    }
}
