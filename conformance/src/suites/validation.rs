//! Calls that break the contract are refused before a backend sees them, with an error that names kernel and operand.
//!
//! Broken calls are made from each kernel's representative case, one operand at a time.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::backend::{Access, KernelCall, Operand, SegmentId, validate};
use memcore::{DType, Error, Layout};

use super::trial::plain_trial;
use crate::case::{Bound, Case};
use crate::cases;
use crate::device::Device;
use crate::plan::{Plan, Spread};

/// Operands for which a kernel takes any type.
const ANY_TYPE: [(&str, &str); 3] = [("fill", "out"), ("copy", "src"), ("copy", "out")];

/// Operands whose first size is independent of all others.
const ANY_SIZE: [(&str, &str); 5] =
    [("fill", "out"), ("random", "out"), ("gather", "table"), ("scatter_add", "out"), ("unscale", "grads")];

/// Operands that take any number of dimensions, as each element stands alone.
const ANY_RANK: [(&str, &str); 3] = [("fill", "out"), ("random", "out"), ("unscale", "grads")];

/// Breaks a call in one way, operand by operand.
type Break = fn(&Subject) -> Result<(), String>;

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let breaks: [(&str, Break); 7] = [
        ("short_region", short_region),
        ("misaligned_offset", misaligned),
        ("wrong_type", wrong_type),
        ("wrong_size", wrong_size),
        ("wrong_rank", wrong_rank),
        ("broadcast_output", broadcast_output),
        ("overlapping_output", overlapping_output),
    ];
    let mut out = Vec::new();
    for &kernel in KernelCall::NAMES {
        let Some(case) = cases::representative(kernel) else { continue };
        out.push(plain_trial(format!("validation::{kernel}::accepts_every_case"), device, move |device| {
            accepts(device, kernel)
        }));
        for (name, run) in breaks {
            out.push(plain_trial(format!("validation::{kernel}::{name}"), device, move |_| run(&Subject::new(case))));
        }
    }
    out.push(plain_trial("validation::exceptions".into(), device, |_| exceptions_name_operands()));
    out
}

/// Checks that each exception names an operand, so that the breaks above come past it: they fail for one that is refused after all.
fn exceptions_name_operands() -> Result<(), String> {
    for (kernel, operand) in ANY_TYPE.iter().chain(&ANY_SIZE).chain(&ANY_RANK) {
        let case = cases::representative(kernel).ok_or_else(|| format!("there is no kernel {kernel}"))?;
        if !Subject::new(case).operands.iter().any(|(_, known, _)| known == operand) {
            return Err(format!("{kernel} has no operand {operand}: take it out of its list"));
        }
    }
    Ok(())
}

/// Checks that every case of the kernel is valid, and that a device which does not compute accepts it.
fn accepts(device: &Device, kernel: &str) -> Result<(), String> {
    let backend = device.backend();
    for case in cases::all().iter().filter(|case| case.kernel == kernel) {
        let call = Plan::new(case, backend.limits().alignment, Spread::Together, None).prospective_call();
        validate(&call).map_err(|e| format!("{}: {e}", case.full_name()))?;
        if !backend.computes() {
            backend.launch(&call).map_err(|e| format!("{}: {e}", case.full_name()))?;
        }
    }
    Ok(())
}

/// A valid call that the tests break.
struct Subject {
    case: &'static Case,
    bound: Bound,
    /// The operands of the valid call: their names in the case and in the kernel, and their access.
    operands: Vec<(&'static str, &'static str, Access)>,
}

impl Subject {
    fn new(case: &'static Case) -> Self {
        let plan = Plan::new(case, 512, Spread::Together, None);
        let bound = plan.bind(&[SegmentId(0)]);
        let mut operands = Vec::new();
        case.call(&bound).each_operand(&mut |kernel_name, access, operand| {
            if let Some((name, _)) = bound.0.iter().find(|(_, o)| o.is_same_view(operand)) {
                operands.push((*name, kernel_name, access));
            }
        });
        Self { case, bound, operands }
    }

    /// Changes one operand and requires that the call is refused. The error must name one of `blamed`; any operand will
    /// do if `blamed` is empty.
    fn refuses(&self, name: &str, blamed: &[&str], change: impl FnOnce(&mut Operand)) -> Result<(), String> {
        let mut bound = self.bound.clone();
        bound.change(name, change);
        let call = self.case.call(&bound);
        let what = format!("{name} as {:?}", bound.at(name));
        match validate(&call) {
            Ok(()) => Err(format!("{} accepts {what}", self.case.kernel)),
            Err(Error::InvalidCall { kernel, operand, problem }) => {
                let names = |name: &str| self.operands.iter().any(|(_, known, _)| *known == name);
                let right = if blamed.is_empty() { names(operand) } else { blamed.contains(&operand) };
                if kernel == self.case.kernel && right && !problem.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{what}: the error names {kernel}, {operand}: {problem:?}; expected {blamed:?}"))
                }
            }
            // If sizes fit no geometry, the error comes from the geometry.
            Err(Error::Shape { op, .. }) if self.case.kernel.starts_with(op) => Ok(()),
            Err(other) => Err(format!("{what}: {other}")),
        }
    }

    /// Changes one operand and requires what its table says: the call is accepted if it is in the table, and refused otherwise.
    fn refuses_unless(
        &self,
        table: &[(&str, &str)],
        (name, kernel_name): (&str, &str),
        change: impl FnOnce(&mut Operand),
    ) -> Result<(), String> {
        if !table.contains(&(self.case.kernel, kernel_name)) {
            return self.refuses(name, &[], change);
        }
        let mut bound = self.bound.clone();
        bound.change(name, change);
        validate(&self.case.call(&bound))
            .map_err(|error| format!("{kernel_name} is refused: take it out of its list ({error})"))
    }

    fn operand(&self, name: &str) -> Operand {
        self.bound.at(name)
    }

    /// Runs `f` for each operand, with its names in the case and in the kernel and its access.
    fn each(&self, mut f: impl FnMut(&'static str, &'static str, Access) -> Result<(), String>) -> Result<(), String> {
        self.operands.iter().try_for_each(|(name, kernel_name, access)| f(name, kernel_name, *access))
    }
}

/// Makes the region one byte shorter than the layout's span.
fn short_region(s: &Subject) -> Result<(), String> {
    s.each(|name, kernel_name, _| s.refuses(name, &[kernel_name], |o| o.region.len -= 1))
}

/// Moves the offset between two elements.
fn misaligned(s: &Subject) -> Result<(), String> {
    s.each(|name, kernel_name, _| {
        if s.operand(name).dtype.size() == 1 {
            return Ok(());
        }
        s.refuses(name, &[kernel_name], |o| o.region.offset += 1)
    })
}

/// Changes the element type, with a region of the right length.
fn wrong_type(s: &Subject) -> Result<(), String> {
    s.each(|name, kernel_name, _| {
        let wrong = if s.operand(name).dtype == DType::I32 { DType::F32 } else { DType::I32 };
        s.refuses_unless(&ANY_TYPE, (name, kernel_name), |o| {
            o.dtype = wrong;
            o.region.len = o.layout.span() as u64 * wrong.size();
        })
    })
}

/// Adds one row, in existing memory.
fn wrong_size(s: &Subject) -> Result<(), String> {
    s.each(|name, kernel_name, _| {
        let mut dims = s.operand(name).dims().to_vec();
        match dims.first_mut() {
            Some(first) => *first += 1,
            None => dims.push(2),
        }
        s.refuses_unless(&ANY_SIZE, (name, kernel_name), |o| relayout(o, &dims))
    })
}

/// Adds a dimension.
fn wrong_rank(s: &Subject) -> Result<(), String> {
    s.each(|name, kernel_name, _| {
        // Scalars may have dimensions of size 1.
        if s.operand(name).numel() == 1 {
            return Ok(());
        }
        let mut dims = s.operand(name).dims().to_vec();
        dims.insert(0, 1);
        s.refuses_unless(&ANY_RANK, (name, kernel_name), |o| relayout(o, &dims))
    })
}

fn relayout(operand: &mut Operand, dims: &[usize]) {
    if let Ok(layout) = Layout::contiguous(dims) {
        operand.layout = layout;
        operand.region.len = layout.span() as u64 * operand.dtype.size();
    }
}

/// Makes the rows of a result overlap.
fn broadcast_output(s: &Subject) -> Result<(), String> {
    s.each(|name, kernel_name, access| {
        let operand = s.operand(name);
        let Some(axis) = operand.dims().iter().position(|&d| d > 1) else { return Ok(()) };
        if !access.writes() {
            return Ok(());
        }
        let mut strides = operand.layout.strides().to_vec();
        strides[axis] = 0;
        let layout = Layout::strided(operand.dims(), &strides).map_err(|e| e.to_string())?;
        s.refuses(name, &[kernel_name, "param"], |o| o.layout = layout)
    })
}

/// Maximum distance of two operands in a call for `validate` to compare them: the lists of a multi-tensor kernel are
/// compared in windows, which contain all operands of one tensor.
const WINDOW: usize = 15;

/// Makes a result share bytes with another operand without being the same view.
fn overlapping_output(s: &Subject) -> Result<(), String> {
    let place = |name: &str| s.operands.iter().position(|(known, _, _)| *known == name).unwrap_or(0);
    s.each(|name, kernel_name, access| {
        if !access.writes() {
            return Ok(());
        }
        s.each(|other, other_kernel_name, _| {
            if place(name).abs_diff(place(other)) > WINDOW {
                return Ok(());
            }
            let (written, read) = (s.operand(name), s.operand(other));
            // One element in, or half of one: never the same view.
            let into = written.dtype.size();
            if name == other || into >= read.region.len.max(written.region.len) {
                return Ok(());
            }
            let offset = if into < read.region.len { read.region.offset + into } else { read.region.offset };
            s.refuses(name, &[kernel_name, other_kernel_name], |o| o.region.offset = offset)
        })
    })
}
