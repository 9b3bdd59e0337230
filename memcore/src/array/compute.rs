//! Computations on arrays: each function allocates its result and launches one kernel. They record no history.

use super::Array;
use super::grid_reduce::Scratch;
use crate::backend::kernel::{
    Binary, BinaryOp, Copy, MaskedFill, Matmul, Reduce, ReduceOp, Select, Ternary, TernaryOp, Unary, UnaryGrad,
    UnaryGradOp, UnaryOp,
};
use crate::context;
use crate::device::WorkspaceKind;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::broadcast_dims;

/// Options of [`Array::matmul_with`].
#[derive(Clone, Copy, Default)]
pub struct MatmulOptions<'a> {
    /// Added to every row.
    pub bias: Option<&'a Array>,
    /// Whether the conjugates of the first and of the second matrix are multiplied. Of real numbers they are the numbers themselves.
    pub conjugates: [bool; 2],
    /// A matrix that the product is added to.
    pub added: Option<Added<'a>>,
}

/// A matrix beside a product: `beta·to + alpha·(a @ b)`, PyTorch's `addmm`.
#[derive(Clone, Copy)]
pub struct Added<'a> {
    /// The matrix, of the result's shape and type.
    pub to: &'a Array,
    /// Its factor.
    pub beta: f64,
    /// The product's factor.
    pub alpha: f64,
}

impl Array {
    /// Returns a contiguous copy.
    pub fn copied(&self) -> Result<Self> {
        let out = self.empty_like()?;
        self.device().launch(Copy { src: self.operand(), out: out.operand() })?;
        Ok(out)
    }

    /// Returns the values in another type, or the same array if it has that type already.
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        // PyTorch's `_to_copy` keeps the strides of a dense tensor, also of dimensions of size 1, where other operators make new ones.
        let out = match self.layout.is_dense() {
            true => Self::empty_laid_out(self.device(), self.layout, dtype)?,
            false => Self::empty_for(self.device(), self.dims(), &[&self.layout], dtype)?,
        };
        self.device().launch(Copy { src: self.operand(), out: out.operand() })?;
        Ok(out)
    }

    /// Overwrites the elements with those of `src`, broadcast and converted.
    ///
    /// # Errors
    /// [`Error::Shape`] if it does not fit; errors of the backend.
    pub fn copy_(&self, src: &Array) -> Result<()> {
        let src = src.broadcast_to(self.dims())?;
        self.launch_in_place(Copy { src: src.operand(), out: self.operand() })
    }

    /// `op(self)`.
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        let dtype = if op == UnaryOp::IsZero { DType::Bool } else { self.dtype() };
        let out = Self::empty_for(self.device(), self.dims(), &[&self.layout], dtype)?;
        self.device().launch(Unary { op, x: self.operand(), out: out.operand() })?;
        Ok(out)
    }

    /// `self = op(self)`.
    pub fn unary_(&self, op: UnaryOp) -> Result<()> {
        self.launch_in_place(Unary { op, x: self.operand(), out: self.operand() })
    }

    /// `mul·self + add`.
    pub fn affine(&self, mul: f64, add: f64) -> Result<Self> {
        self.unary(UnaryOp::Affine { mul, add })
    }

    /// `grad · f′`, from the value that forward saved.
    pub fn unary_grad(op: UnaryGradOp, saved: &Array, grad: &Array) -> Result<Self> {
        // The result is laid out as the operand that PyTorch's kernel names first.
        let saved_first = matches!(op, UnaryGradOp::Relu | UnaryGradOp::LeakyRelu { .. });
        // The gradient of the log-sigmoid is laid out as its incoming gradient.
        let other = if op == UnaryGradOp::LogSigmoid { &grad.layout } else { &saved.layout };
        let layouts = if saved_first { [&saved.layout, &grad.layout] } else { [&grad.layout, other] };
        let out = Self::empty_for(grad.device(), saved.dims(), &layouts, saved.dtype())?;
        grad.device().launch(UnaryGrad { op, saved: saved.operand(), grad: grad.operand(), out: out.operand() })?;
        Ok(out)
    }

    /// `op(self, rhs)`, broadcast against each other.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit, [`Error::DType`] if the types differ; as [`Array::empty`].
    pub fn binary(&self, op: BinaryOp, rhs: &Array) -> Result<Self> {
        self.check_partner("binary", rhs)?;
        let dims = broadcast_dims(self.dims(), rhs.dims())?;
        let dtype = if op.is_comparison() { DType::Bool } else { self.dtype() };
        let (lhs, rhs) = (self.broadcast_to(&dims)?, rhs.broadcast_to(&dims)?);
        let out = Self::empty_for(self.device(), &dims, &[&lhs.layout, &rhs.layout], dtype)?;
        self.device().launch(Binary { op, lhs: lhs.operand(), rhs: rhs.operand(), out: out.operand() })?;
        Ok(out)
    }

    /// `self = op(self, rhs)`, with `rhs` broadcast.
    pub fn binary_(&self, op: BinaryOp, rhs: &Array) -> Result<()> {
        self.check_partner("binary_", rhs)?;
        let rhs = rhs.broadcast_to(self.dims())?;
        self.launch_in_place(Binary { op, lhs: self.operand(), rhs: rhs.operand(), out: self.operand() })
    }

    /// `self + rhs`.
    pub fn add(&self, rhs: &Array) -> Result<Self> {
        self.binary(BinaryOp::ADD, rhs)
    }

    /// `self · rhs`.
    pub fn mul(&self, rhs: &Array) -> Result<Self> {
        self.binary(BinaryOp::Mul, rhs)
    }

    /// `self += rhs`.
    pub fn add_(&self, rhs: &Array) -> Result<()> {
        self.binary_(BinaryOp::ADD, rhs)
    }

    /// `op(a, b, c)`, with all three broadcast to `dims`.
    pub fn ternary(op: TernaryOp, a: &Array, b: &Array, c: &Array, dims: &[usize]) -> Result<Self> {
        let out = Self::empty(a.device(), dims, a.dtype())?;
        let (a, b, c) = (a.broadcast_to(dims)?, b.broadcast_to(dims)?, c.broadcast_to(dims)?);
        a.device().launch(Ternary { op, a: a.operand(), b: b.operand(), c: c.operand(), out: out.operand() })?;
        Ok(out)
    }

    /// `self = op(self, b, c)`.
    pub(crate) fn ternary_(&self, op: TernaryOp, b: &Array, c: &Array) -> Result<()> {
        self.check_partner("ternary_", b)?;
        self.check_partner("ternary_", c)?;
        let (b, c) = (b.broadcast_to(self.dims())?, c.broadcast_to(self.dims())?);
        self.launch_in_place(Ternary { op, a: self.operand(), b: b.operand(), c: c.operand(), out: self.operand() })
    }

    /// `mask ? self : other`, broadcast against each other.
    pub fn select_by(&self, mask: &Array, other: &Array) -> Result<Self> {
        self.check_partner("where", other)?;
        let dims = broadcast_dims(&broadcast_dims(self.dims(), other.dims())?, mask.dims())?;
        let (mask, a, b) = (mask.broadcast_to(&dims)?, self.broadcast_to(&dims)?, other.broadcast_to(&dims)?);
        let out = Self::empty_for(self.device(), &dims, &[&mask.layout, &a.layout, &b.layout], self.dtype())?;
        let (mask, on_true, on_false) = (mask.operand(), a.operand(), b.operand());
        self.device().launch(Select { mask, on_true, on_false, out: out.operand() })?;
        Ok(out)
    }

    /// `mask ? value : self`, with the mask broadcast.
    pub fn masked_fill(&self, mask: &Array, value: f64) -> Result<Self> {
        let mask = mask.broadcast_to(self.dims())?;
        let out = self.empty_like()?;
        self.device().launch(MaskedFill { x: self.operand(), mask: mask.operand(), value, out: out.operand() })?;
        Ok(out)
    }

    /// `self = mask ? value : self`, with the mask broadcast.
    pub fn masked_fill_(&self, mask: &Array, value: f64) -> Result<()> {
        let mask = mask.broadcast_to(self.dims())?;
        self.launch_in_place(MaskedFill { x: self.operand(), mask: mask.operand(), value, out: self.operand() })
    }

    /// Reduces by `op` over `axes`. With `keepdim` the axes stay with size 1. No axes means all axes.
    ///
    /// # Errors
    /// [`Error::Shape`] for an axis that does not exist; as [`Array::empty`].
    pub fn reduce(&self, op: ReduceOp, axes: &[usize], keepdim: bool) -> Result<Self> {
        self.reduced(None, self.dtype(), op, axes, keepdim)
    }

    /// As [`Array::reduce`], in the type `dtype`. A sum of 16-bit floats in their accumulator's type is not rounded. For every other type the
    /// elements are converted first, after the result has its memory.
    pub(crate) fn reduce_as(&self, dtype: DType, op: ReduceOp, axes: &[usize], keepdim: bool) -> Result<Self> {
        self.reduced(None, dtype, op, axes, keepdim)
    }

    /// As [`Array::reduce`], with the result's memory attributed to an operator inside the current one.
    pub(crate) fn reduce_made_by(
        &self,
        maker: Option<&'static str>,
        op: ReduceOp,
        axes: &[usize],
        keepdim: bool,
    ) -> Result<Self> {
        self.reduced(maker, self.dtype(), op, axes, keepdim)
    }

    fn reduced(
        &self,
        maker: Option<&'static str>,
        dtype: DType,
        op: ReduceOp,
        axes: &[usize],
        keepdim: bool,
    ) -> Result<Self> {
        let mask = self.axis_mask(axes)?;
        let kept = self.reduced_dims(mask);
        let out = {
            let _op = maker.map(context::op);
            Self::empty(self.device(), &kept, dtype)?
        };
        let _sum = maker.map(|_| context::op("sum"));
        let direct = dtype == self.dtype() || dtype == self.dtype().accumulator();
        let x = if direct { self.clone() } else { context::within("to>_to_copy", || self.cast(dtype))? };
        {
            let _scratch = x.reduction_scratch(op, mask)?;
            self.device().launch(Reduce { op, axes: mask, x: x.operand(), out: out.operand(), indices: None })?;
        }
        drop(x);
        if keepdim { Ok(out) } else { out.drop_axes(mask) }
    }

    /// Reduces by `op` over all axes, into an existing scalar.
    pub(crate) fn reduce_into(&self, op: ReduceOp, out: &Array) -> Result<()> {
        self.reduce_over_into(op, &[], out)
    }

    /// Reduces by `op` over `axes` (all axes if empty), into existing memory. The sizes of `out` may lack those axes.
    pub(crate) fn reduce_over_into(&self, op: ReduceOp, axes: &[usize], out: &Array) -> Result<()> {
        let axes = self.axis_mask(axes)?;
        let out = out.view(&self.reduced_dims(axes))?;
        let _scratch = self.reduction_scratch(op, axes)?;
        out.launch_in_place(Reduce { op, axes, x: self.operand(), out: out.operand(), indices: None })
    }

    /// Returns the extremum over one axis, and the position of its first occurrence.
    pub fn extremum(&self, op: ReduceOp, axis: usize, keepdim: bool) -> Result<(Self, Self)> {
        let mask = self.axis_mask(&[axis])?;
        let kept = self.reduced_dims(mask);
        let out = Self::empty(self.device(), &kept, self.dtype())?;
        let indices = Self::empty(self.device(), &kept, DType::I64)?;
        // A partial value is a pair of value and position.
        let _scratch = Scratch::new(self, mask, 16)?;
        let call = Reduce { op, axes: mask, x: self.operand(), out: out.operand(), indices: Some(indices.operand()) };
        self.device().launch(call)?;
        if keepdim { Ok((out, indices)) } else { Ok((out.drop_axes(mask)?, indices.drop_axes(mask)?)) }
    }

    /// Returns the position of the first extremum over one axis. PyTorch's kernel writes positions alone; a device that computes needs memory for the
    /// values, too, until it has launched.
    pub fn extremum_position(&self, op: ReduceOp, axis: usize, keepdim: bool) -> Result<Self> {
        if self.device().computes() {
            return Ok(self.extremum(op, axis, keepdim)?.1);
        }
        let mask = self.axis_mask(&[axis])?;
        let indices = Self::empty(self.device(), &self.reduced_dims(mask), DType::I64)?;
        let _scratch = Scratch::new(self, mask, 16)?;
        if keepdim { Ok(indices) } else { indices.drop_axes(mask) }
    }

    /// Allocates the scratch that PyTorch's kernel holds during a reduction. Sums are accumulated in another type than extrema.
    fn reduction_scratch(&self, op: ReduceOp, axes: u8) -> Result<Option<Scratch>> {
        let extremum = matches!(op, ReduceOp::Max | ReduceOp::Min);
        let partial = if extremum { self.dtype() } else { self.dtype().accumulator() };
        Scratch::new(self, axes, partial.size() as usize)
    }

    /// Allocates the scratch of a reduction over `axes` (all axes if there are none) that PyTorch's kernel makes with partial values of this
    /// size, until the result is dropped.
    pub(crate) fn scratch_of_partials(&self, axes: &[usize], partial_bytes: usize) -> Result<Option<Scratch>> {
        Scratch::new(self, self.axis_mask(axes)?, partial_bytes)
    }

    /// Sums down to `dims`, which undoes a broadcast. Returns the same array if there is nothing to sum.
    ///
    /// # Errors
    /// [`Error::Shape`] if `dims` does not broadcast to this shape.
    pub(crate) fn sum_to(&self, dims: &[usize]) -> Result<Self> {
        if self.dims() == dims {
            return Ok(self.clone());
        }
        let lead = self.rank().checked_sub(dims.len());
        let lead = lead.ok_or_else(|| Error::shape("sum_to", format!("{:?} to {dims:?}", self.dims())))?;
        let axes: smallvec::SmallVec<[usize; 6]> =
            (0..self.rank()).filter(|&i| i < lead || (dims[i - lead] == 1 && self.dims()[i] != 1)).collect();
        let summed = if axes.is_empty() { self.clone() } else { self.reduce(ReduceOp::Sum, &axes, true)? };
        // A view drops the leading dimensions.
        let viewed = summed.view(dims)?;
        Ok(if lead > 0 { viewed.keeping_base() } else { viewed })
    }

    fn axis_mask(&self, axes: &[usize]) -> Result<u8> {
        if axes.is_empty() {
            return Ok(((1u16 << self.rank()) - 1) as u8);
        }
        let mut mask = 0;
        for &axis in axes {
            if axis >= self.rank() {
                return Err(Error::shape("reduce", format!("axis {axis} of {:?}", self.dims())));
            }
            mask |= 1 << axis;
        }
        Ok(mask)
    }

    fn reduced_dims(&self, mask: u8) -> smallvec::SmallVec<[usize; 6]> {
        self.dims().iter().enumerate().map(|(i, &d)| if mask >> i & 1 == 1 { 1 } else { d }).collect()
    }

    fn drop_axes(&self, mask: u8) -> Result<Self> {
        let dims: smallvec::SmallVec<[usize; 6]> =
            self.dims().iter().enumerate().filter(|(i, _)| mask >> i & 1 == 0).map(|(_, &d)| d).collect();
        self.view(&dims)
    }

    /// `self @ rhs` for matrices (`[m, k] @ [k, n]`) or batches of them (`[b, m, k] @ [b, k, n]`).
    ///
    /// # Errors
    /// [`Error::Shape`] if they do not fit; as [`Array::empty`].
    pub fn matmul(&self, rhs: &Array) -> Result<Self> {
        self.matmul_with(rhs, MatmulOptions::default())
    }

    /// As [`Array::matmul`], with options. Allocates the result first, then the workspaces of the profile.
    pub fn matmul_with(&self, rhs: &Array, options: MatmulOptions<'_>) -> Result<Self> {
        self.check_partner("matmul", rhs)?;
        let misfit = || Error::shape("matmul", format!("{:?} @ {:?}", self.dims(), rhs.dims()));
        let (a, b, out_rank) = match (self.rank(), rhs.rank()) {
            (2, 2) => (self.unsqueeze(0)?, rhs.unsqueeze(0)?, 2),
            (3, 3) if self.dims()[0] == rhs.dims()[0] => (self.clone(), rhs.clone(), 3),
            _ => return Err(misfit()),
        };
        let (m, k, n) = (a.dims()[1], a.dims()[2], b.dims()[2]);
        if b.dims()[1] != k {
            return Err(misfit());
        }
        let dims = [a.dims()[0], m, n];
        let out = Self::empty(self.device(), &dims[3 - out_rank..], self.dtype())?;
        if let Some(added) = options.added {
            out.copy_(added.to)?;
        }
        let (alpha, beta) = options.added.map_or((1.0, 0.0), |added| (added.alpha, added.beta));
        let [of_a, of_b] = options.conjugates;
        // As BLAS sees it, the product of the transposed matrices is made, the second one first; a batch of single columns is as it stands.
        let is_column = out_rank == 3 && n == 1;
        let batched = out_rank == 3;
        let readable = |x: &Self, conjugates| x.readable(conjugates, is_column, batched);
        let first = if is_column { readable(&a, of_a)? } else { readable(&b, of_b)? };
        let second = if is_column { readable(&b, of_b)? } else { readable(&a, of_a)? };
        let (a, b) = if is_column { (&first, &second) } else { (&second, &first) };
        // PyTorch gives a product with a bias to cuBLASLt unless the second matrix is a single row or column. Older releases also exclude a first
        // matrix of a single row.
        let several = m > 1 || self.device().profile().one_row_has_epilogue;
        let epilogue = options.bias.is_some() && k > 1 && n > 1 && several;
        let kind = if epilogue { WorkspaceKind::GemmEpilogue } else { WorkspaceKind::Gemm };
        let workspace = self.device().product_workspace(kind)?;
        let into = if out_rank == 2 { out.unsqueeze(0)? } else { out.clone() };
        self.device().launch(Matmul {
            alpha,
            beta,
            a: a.operand(),
            b: b.operand(),
            bias: options.bias.map(Array::operand),
            out: into.operand(),
            workspace: workspace.operand,
        })?;
        Ok(out)
    }

    /// Returns a batch of matrices with a stride of 1 in each matrix, as BLAS requires. Copies if this batch has none. BLAS conjugates only what it
    /// transposes: row-major matrices, or column-major ones if `transposes` is true. Others are conjugated into a copy.
    /// A single row or column is read with any stride, unless it belongs to a batch.
    fn readable(&self, conjugates: bool, transposes: bool, batched: bool) -> Result<Self> {
        let (d, s) = (self.dims(), self.layout().strides());
        let is_line = !batched && (d[1] <= 1 || d[2] <= 1);
        if !(s[1] == 1 || s[2] == 1 || is_line) {
            return context::within("clone", || self.copied());
        }
        let is_row_major = s[2] == 1 && s[1] >= d[2].max(1);
        let conjugate = if conjugates && is_row_major != transposes { self.conjugated()? } else { None };
        Ok(conjugate.unwrap_or_else(|| self.clone()))
    }

    /// Type of the result of two operands, each of which may be converted (PyTorch's `result_type`). A scalar does not widen floats that are
    /// not scalars.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`]; [`Error::DType`] for types that do not meet.
    pub(crate) fn result_type(&self, op: &'static str, rhs: &Array) -> Result<DType> {
        self.check_device(op, rhs)?;
        let (a, b) = (self.dtype(), rhs.dtype());
        match (self.rank(), rhs.rank()) {
            (0, 1..) if b.is_complex() || b.is_float() && !a.is_complex() => return Ok(b),
            (1.., 0) if a.is_complex() || a.is_float() && !b.is_complex() => return Ok(a),
            _ => {}
        }
        a.promoted(b).ok_or(Error::DType { op, operand: "rhs", found: b, expected: a.name() })
    }

    pub(super) fn check_device(&self, op: &'static str, rhs: &Array) -> Result<()> {
        if self.device().is_same(rhs.device()) {
            return Ok(());
        }
        let (lhs, rhs) = (self.device().name().into(), rhs.device().name().into());
        Err(Error::DeviceMismatch { op, lhs, rhs })
    }

    pub(crate) fn check_partner(&self, op: &'static str, rhs: &Array) -> Result<()> {
        self.check_device(op, rhs)?;
        if self.dtype() != rhs.dtype() {
            return Err(Error::DType { op, operand: "rhs", found: rhs.dtype(), expected: self.dtype().name() });
        }
        Ok(())
    }
}
