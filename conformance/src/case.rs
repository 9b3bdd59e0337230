//! A case: one kernel call on operands that are described but not yet placed in memory.
//!
//! A case is written as a chain: each operand, followed by its modifiers, and the call at the end.
//!
//! ```
//! use conformance::{Case, Data, Tolerance};
//! use memcore::DType;
//! use memcore::backend::kernel::Softmax;
//!
//! let case = Case::on(DType::F32, "by_rows")
//!     .read("x", &[4, 7, 1], Data::Range(-2.0, 2.0))
//!     .write("out", &[4, 7, 1])
//!     .call(Tolerance::function(1.0, "exp"), |o| Softmax { log: false, x: o.at("x"), out: o.at("out") });
//! assert_eq!(case.full_name(), "softmax::f32::by_rows");
//! ```

use std::fmt;
use std::sync::Arc;

use memcore::backend::{KernelCall, Operand, Region, SegmentId};
use memcore::{DType, Layout};

use crate::data::Data;
use crate::tolerance::Tolerance;

/// One kernel call on described operands, and its tolerance.
#[derive(Clone)]
pub struct Case {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The element type that the case tests.
    pub dtype: DType,
    /// The name of what distinguishes the case.
    pub name: String,
    /// The operands.
    pub operands: Vec<Spec>,
    /// The allowed distance of the results from the reference's.
    pub tolerance: Tolerance,
    /// True if NaN is among the expected results.
    pub expects_nan: bool,
    build: Arc<dyn Fn(&Bound) -> KernelCall + Send + Sync>,
}

/// One operand of a case: its type, its view of a buffer, and the contents.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name by which the call finds it: the kernel's own, followed by a number in lists.
    pub name: &'static str,
    /// Index of the operand that owns the buffer; usually its own index.
    pub buffer: usize,
    /// Element type.
    pub dtype: DType,
    /// Sizes and strides.
    pub layout: Layout,
    /// Elements of the buffer before the operand's first one.
    pub lead: usize,
    /// Contents before the call.
    pub data: Data,
}

impl Spec {
    /// Bytes of the buffer up to the end of this view.
    pub(crate) fn end_bytes(&self) -> u64 {
        (self.lead + self.layout.span()) as u64 * self.dtype.size()
    }
}

/// The operands of a case, placed in memory.
#[derive(Clone, Debug)]
pub struct Bound(pub(crate) Vec<(&'static str, Operand)>);

impl Bound {
    /// Returns the operand of this name.
    ///
    /// # Panics
    /// If the case has none: a mistake in the case.
    pub fn at(&self, name: &str) -> Operand {
        self.get(name).unwrap_or_else(|| panic!("the case has no operand {name}"))
    }

    /// Returns the operand of this name; `None` if the case has none.
    pub fn get(&self, name: &str) -> Option<Operand> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, operand)| *operand)
    }

    /// Changes the operand of this name.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Operand)) {
        if let Some((_, operand)) = self.0.iter_mut().find(|(n, _)| *n == name) {
            change(operand);
        }
    }
}

impl Case {
    /// Begins a case for `dtype`. Operands have this type unless [`CaseBuilder::typed`] sets another.
    pub fn on(dtype: DType, name: impl Into<String>) -> CaseBuilder {
        CaseBuilder { dtype, name: name.into(), operands: Vec::new(), expects_nan: false }
    }

    /// `kernel::dtype::name`.
    pub fn full_name(&self) -> String {
        format!("{}::{}::{}", self.kernel, short(self.dtype), self.name)
    }

    /// Makes the call with the operands of `bound`.
    pub fn call(&self, bound: &Bound) -> KernelCall {
        (self.build)(bound)
    }

    /// Returns the same case with another name and other operands.
    pub(crate) fn with_operands(&self, name: String, operands: Vec<Spec>) -> Case {
        Case { name, operands, ..self.clone() }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full_name())
    }
}

/// A case under construction.
pub struct CaseBuilder {
    dtype: DType,
    name: String,
    operands: Vec<Spec>,
    expects_nan: bool,
}

impl CaseBuilder {
    /// Adds an operand that the kernel reads (or updates), contiguous.
    ///
    /// # Panics
    /// If `dims` are not a valid layout: a mistake in the case. The modifiers panic likewise.
    #[must_use]
    pub fn read(mut self, name: &'static str, dims: &[usize], data: Data) -> Self {
        let layout = Layout::contiguous(dims).expect("a layout");
        let (buffer, dtype) = (self.operands.len(), self.dtype);
        self.operands.push(Spec { name, buffer, dtype, layout, lead: 0, data });
        self
    }

    /// Adds an operand that the kernel writes, poisoned before the call.
    #[must_use]
    pub fn write(self, name: &'static str, dims: &[usize]) -> Self {
        self.read(name, dims, Data::Poison)
    }

    /// Adds an operand only if `present`.
    #[must_use]
    pub fn read_if(self, present: bool, name: &'static str, dims: &[usize], data: Data) -> Self {
        if present { self.read(name, dims, data) } else { self }
    }

    /// Adds a written operand only if `present`.
    #[must_use]
    pub fn write_if(self, present: bool, name: &'static str, dims: &[usize]) -> Self {
        self.read_if(present, name, dims, Data::Poison)
    }

    /// Adds an operand that is another view of `of`'s buffer, `lead` elements in, with data of its own.
    #[must_use]
    pub fn read_beside(mut self, of: &str, name: &'static str, lead: usize, layout: Layout, data: Data) -> Self {
        let beside = self.operands.iter().find(|spec| spec.name == of).expect("the operand beside it");
        let (buffer, dtype) = (beside.buffer, beside.dtype);
        self.operands.push(Spec { name, buffer, dtype, layout, lead, data });
        self
    }

    fn last(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        change(self.operands.last_mut().expect("an operand to modify"));
        self
    }

    /// Sets the type of the last operand.
    #[must_use]
    pub fn typed(self, dtype: DType) -> Self {
        self.last(|spec| spec.dtype = dtype)
    }

    /// Starts the last operand `elements` into its buffer: an offset view.
    #[must_use]
    pub fn offset(self, elements: usize) -> Self {
        self.last(|spec| spec.lead += elements)
    }

    /// Stores the last operand with dimensions `a` and `b` exchanged: the same sizes, other strides.
    #[must_use]
    pub fn transposed(self, a: usize, b: usize) -> Self {
        self.last(|spec| {
            let stored = spec.layout.transposed(a, b);
            spec.layout = Layout::contiguous(stored.dims()).expect("a layout").transposed(a, b);
        })
    }

    /// Leaves a gap of `gap` elements between the rows of the last operand.
    #[must_use]
    pub fn gapped(self, gap: usize) -> Self {
        self.last(|spec| {
            let mut dims = spec.layout.dims().to_vec();
            let Some(last) = dims.last_mut() else { return };
            let len = *last;
            *last += gap;
            let axis = dims.len() - 1;
            spec.layout = Layout::contiguous(&dims).expect("a layout").narrowed(axis, 0, len).0;
        })
    }

    /// Repeats the last operand along sizes of 1 to reach `dims`.
    #[must_use]
    pub fn broadcast(self, dims: &[usize]) -> Self {
        self.last(|spec| spec.layout = spec.layout.broadcast_to(dims).expect("sizes that broadcast"))
    }

    /// Repeats the last operand along dimension `axis`, whatever its stride was.
    #[must_use]
    pub fn broadcast_axis(self, axis: usize) -> Self {
        self.last(|spec| {
            let mut strides = spec.layout.strides().to_vec();
            strides[axis] = 0;
            spec.layout = Layout::strided(spec.layout.dims(), &strides).expect("a layout");
        })
    }

    /// Sets the strides of the last operand.
    #[must_use]
    pub fn strides(self, strides: &[usize]) -> Self {
        self.last(|spec| spec.layout = Layout::strided(spec.layout.dims(), strides).expect("a layout"))
    }

    /// Marks NaN as an expected result.
    #[must_use]
    pub fn expecting_nan(mut self) -> Self {
        self.expects_nan = true;
        self
    }

    /// Ends the case with its call. `build` is also run on operands without memory, to learn the kernel's name.
    pub fn call<K: Into<KernelCall>>(
        self,
        tolerance: Tolerance,
        build: impl Fn(&Bound) -> K + Send + Sync + 'static,
    ) -> Case {
        let build = Arc::new(move |bound: &Bound| build(bound).into());
        let nowhere = |spec: &Spec| {
            let region = Region { segment: SegmentId(0), offset: 0, len: spec.end_bytes() };
            (spec.name, Operand { region, dtype: spec.dtype, layout: spec.layout })
        };
        let call: KernelCall = build(&Bound(self.operands.iter().map(nowhere).collect()));
        Case {
            kernel: call.name(),
            dtype: self.dtype,
            name: self.name,
            operands: self.operands,
            tolerance,
            expects_nan: self.expects_nan,
            build,
        }
    }
}

/// The short name of a type, for the names of trials: `f32`, `bf16`, `i64`, …
pub fn short(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::Bool => "bool",
        DType::C64 => "c64",
    }
}
