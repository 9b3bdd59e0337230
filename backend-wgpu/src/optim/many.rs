//! One launch over many tensors.
//!
//! A kernel binds at most eight ranges. But tensors of one optimizer lie in few segments: so those whose operands lie in
//! the same segments, operand by operand, are updated by one launch, which binds a range of each segment with all of
//! them in it. A table in the scratch says where each tensor's operands begin in the ranges, and which workgroups have
//! it.

use memcore::backend::{Operand, Region};
use memcore::error::Result;

use crate::element::{Elem, Slot, Width, declare, fill_in};
use crate::job::{Context, Job, SCRATCH_BYTES};
use crate::key::Variant;

/// The most operands of a tensor.
pub(super) const OPERANDS: usize = 6;
/// Words of a tensor in the table: its first workgroup, its units, the first unit of each operand.
const ENTRY: usize = 2 + OPERANDS;
/// Threads of a workgroup.
const THREADS: usize = 256;
/// Units of a thread: quads or elements.
const UNITS: usize = 8;
/// Neighbouring threads that read neighbouring units, as WGSL: as many as compute together.
const RUN: &str = "32u";
const RUN_OF_LANES: &str = "8u";
/// The most tensors in one table.
const TENSORS: usize = SCRATCH_BYTES as usize / (4 * ENTRY);

/// A tensor's operands in the order of the kernel's first slots. All but the last have its size; the last may be a
/// scalar, f32.
pub(super) type Operands<'a> = [Option<&'a Operand>; OPERANDS];

/// Tensors of one launch.
struct Group {
    elem: Elem,
    wide: bool,
    /// The ranges that hold the operands of all of them.
    ranges: [Option<Region>; OPERANDS],
    members: Vec<usize>,
}

fn is_wide(tensor: &Operands<'_>, numel: usize) -> bool {
    let aligned = |x: &Operand| x.region.offset.is_multiple_of(4 * x.dtype.size());
    numel.is_multiple_of(4) && tensor[..OPERANDS - 1].iter().flatten().all(|x| aligned(x))
}

impl Group {
    fn from_operands(tensor: &Operands<'_>, param: &Operand) -> Self {
        let wide = is_wide(tensor, param.numel());
        let ranges = tensor.map(|operand| operand.map(|x| x.region));
        Self { elem: Elem::from_dtype(param.dtype), wide, ranges, members: Vec::new() }
    }

    /// Widens the ranges by another group's; false, and nothing is changed, if it needs another kernel or a range would
    /// be longer than `limit`.
    fn takes(&mut self, other: &Group, align: u64, limit: u64) -> bool {
        if (self.elem, self.wide) != (other.elem, other.wide) {
            return false;
        }
        let mut ranges = self.ranges;
        for (mine, theirs) in ranges.iter_mut().zip(&other.ranges) {
            match (mine, theirs) {
                (None, None) => (),
                (Some(mine), Some(theirs)) if mine.segment == theirs.segment => {
                    let (begin, end) = (mine.offset.min(theirs.offset), mine.end().max(theirs.end()));
                    if end - begin / align * align > limit {
                        return false;
                    }
                    *mine = Region { segment: mine.segment, offset: begin, len: end - begin };
                }
                _ => return false,
            }
        }
        self.ranges = ranges;
        true
    }
}

/// A kernel over many tensors: its slots in the order of a tensor's operands and then of `shared`, the parameters and
/// their values, and its text for each element or quad.
pub(super) struct Many<'a> {
    pub(super) name: &'static str,
    pub(super) variant: Variant,
    /// Slots of `Elem::B4` have the tensors' own type.
    pub(super) slots: Vec<Slot>,
    /// Operands that all tensors have in common.
    pub(super) shared: Vec<Option<&'a Operand>>,
    pub(super) fields: &'static str,
    pub(super) values: &'a dyn Fn(&mut Job),
    /// WGSL from `$BEGIN` on, which declares the `begin` and `end` of a thread's units and each operand's `NAME_first`.
    /// `$4` is the suffix of the accessors of a unit, `$T` its type.
    pub(super) text: &'static str,
    pub(super) texts: &'a [(&'static str, &'static str)],
}

impl Many<'_> {
    /// Launches the kernel on all tensors, as few times as their segments allow.
    pub(super) fn run(&self, cx: &mut Context<'_>, tensors: &[Operands<'_>]) -> Result<()> {
        for tensors in tensors.chunks(TENSORS) {
            self.run_table(cx, tensors)?;
        }
        Ok(())
    }

    fn run_table(&self, cx: &mut Context<'_>, tensors: &[Operands<'_>]) -> Result<()> {
        let limit = cx.gpu.device.limits().max_storage_buffer_binding_size;
        let mut groups: Vec<Group> = Vec::new();
        for (i, tensor) in tensors.iter().enumerate() {
            let Some(param) = tensor[0].filter(|param| param.numel() > 0) else { continue };
            let one = Group::from_operands(tensor, param);
            let at = groups.iter_mut().position(|group| group.takes(&one, cx.align, limit));
            let at = at.unwrap_or_else(|| {
                groups.push(one);
                groups.len() - 1
            });
            groups[at].members.push(i);
        }
        let (table, jobs) = self.table(cx, tensors, &groups);
        cx.fill_scratch(&table)?;
        for (group, (job, workgroups)) in groups.iter().zip(&jobs) {
            let variant = self.variant.with(4, group.elem.code()).with(1, group.wide.into());
            let run = if cx.gpu.has_lanes { RUN_OF_LANES } else { RUN };
            cx.run(job, variant.key(self.name), *workgroups, || self.source(group, run))?;
        }
        Ok(())
    }

    /// The table, and the job and the number of workgroups of each group.
    fn table(&self, cx: &Context<'_>, tensors: &[Operands<'_>], groups: &[Group]) -> (Vec<u32>, Vec<(Job, u64)>) {
        let (mut table, mut jobs) = (Vec::new(), Vec::new());
        for group in groups {
            let unit = if group.wide { 4 } else { 1 };
            let (first, mut workgroups) = (table.len() / ENTRY, 0);
            for &i in &group.members {
                let units = tensors[i][0].map_or(0, |param| param.numel() / unit);
                table.extend([workgroups as u32, units as u32]);
                for (at, (operand, range)) in tensors[i].iter().zip(&group.ranges).enumerate() {
                    let unit = if at == OPERANDS - 1 { 1 } else { unit as u64 };
                    let begin = |x: &Operand, range: &Region| x.region.offset - range.offset / cx.align * cx.align;
                    let words =
                        operand.zip(range.as_ref()).map_or(0, |(x, range)| begin(x, range) / x.dtype.size() / unit);
                    table.push(words as u32);
                }
                workgroups += units.div_ceil(THREADS * UNITS);
            }
            let mut job = cx.job();
            for range in group.ranges.iter().take(self.slots.len() - self.shared.len()) {
                job.bind_range(*range);
            }
            for operand in &self.shared {
                job.bind_opt(*operand);
            }
            job.bind_scratch().u(first).u(group.members.len());
            (self.values)(&mut job);
            jobs.push((job, workgroups as u64));
        }
        (table, jobs)
    }

    fn source(&self, group: &Group, run: &str) -> String {
        let wide = group.wide;
        let width = if wide { Width::Four } else { Width::One };
        let own = self.slots.len() - self.shared.len();
        let slots = self.slots.iter().enumerate().map(|(i, slot)| {
            let elem = if slot.elem == Elem::B4 { group.elem } else { slot.elem };
            if i < own.min(OPERANDS - 1) { Slot { elem, ..*slot }.wide(width) } else { *slot }
        });
        let mut slots: Vec<Slot> = slots.collect();
        slots.push(Slot::read("table", Elem::B4));
        let firsts: String = self.slots[..own]
            .iter()
            .enumerate()
            .map(|(i, slot)| format!("    let {}_first = table_at(entry + {}u);\n", slot.name, 2 + i))
            .collect();
        let (four, t) = if wide { ("4", "vec4<f32>") } else { ("", "f32") };
        let finite =
            if wide { "is_finite(g.x) && is_finite(g.y) && is_finite(g.z) && is_finite(g.w)" } else { "is_finite(g)" };
        let text = fill_in(self.text, &[("$BEGIN", include_str!("begin.wgsl"))]);
        let text = fill_in(&text, self.texts);
        let texts = [("$4", four), ("$T", t), ("$FIRSTS", firsts.trim_end()), ("$FINITE", finite), ("$RUN", run)];
        declare(&slots, &format!("table: u32, tensors: u32{}", self.fields))
            + include_str!("many.wgsl")
            + &fill_in(&text, &texts)
    }
}
