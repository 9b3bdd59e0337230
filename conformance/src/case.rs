//! A case: one kernel call on operands that are described, not yet placed.
//!
//! A case is written as a chain: each operand in turn, its modifiers behind it, the call at the end.
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

/// One kernel call on described operands, and how near its results must come to the reference's.
#[derive(Clone)]
pub struct Case {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The type that the case is about.
    pub dtype: DType,
    /// What is particular about it.
    pub name: String,
    /// The operands.
    pub operands: Vec<Spec>,
    /// How near the results must come to the reference's.
    pub tolerance: Tolerance,
    /// Whether NaN belongs to the expected results.
    pub expects_nan: bool,
    build: Arc<dyn Fn(&Bound) -> KernelCall + Send + Sync>,
}

/// One operand of a case: its type, its view of a buffer, and what that holds.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name by which the call finds it: the kernel's own, with a number behind it in lists.
    pub name: &'static str,
    /// Index of the operand whose buffer it lies in; its own, ordinarily.
    pub buffer: usize,
    /// Element type.
    pub dtype: DType,
    /// Sizes and strides.
    pub layout: Layout,
    /// Elements of the buffer before its first one.
    pub lead: usize,
    /// What it holds.
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
    /// The operand of this name.
    ///
    /// # Panics
    /// When the case has none: a mistake in the case.
    pub fn at(&self, name: &str) -> Operand {
        self.get(name).unwrap_or_else(|| panic!("the case has no operand {name}"))
    }

    /// The operand of this name, where the case has it.
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
    /// Begins a case about `dtype`. Operands have this type unless [`CaseBuilder::typed`] says otherwise.
    pub fn on(dtype: DType, name: impl Into<String>) -> CaseBuilder {
        CaseBuilder { dtype, name: name.into(), operands: Vec::new(), expects_nan: false }
    }

    /// `kernel::dtype::name`.
    pub fn full_name(&self) -> String {
        format!("{}::{}::{}", self.kernel, short(self.dtype), self.name)
    }

    /// The call on operands that lie where `bound` says.
    pub fn call(&self, bound: &Bound) -> KernelCall {
        (self.build)(bound)
    }

    /// The same case with another name and other operands.
    pub(crate) fn with_operands(&self, name: String, operands: Vec<Spec>) -> Case {
        Case { name, operands, ..self.clone() }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full_name())
    }
}

/// A case being written.
pub struct CaseBuilder {
    dtype: DType,
    name: String,
    operands: Vec<Spec>,
    expects_nan: bool,
}

impl CaseBuilder {
    /// An operand that the kernel reads (or updates), contiguous.
    ///
    /// # Panics
    /// When `dims` are not a layout: a mistake in the case. So do the modifiers.
    #[must_use]
    pub fn read(mut self, name: &'static str, dims: &[usize], data: Data) -> Self {
        let layout = Layout::contiguous(dims).expect("a layout");
        let (buffer, dtype) = (self.operands.len(), self.dtype);
        self.operands.push(Spec { name, buffer, dtype, layout, lead: 0, data });
        self
    }

    /// An operand that the kernel writes: poison until then.
    #[must_use]
    pub fn write(self, name: &'static str, dims: &[usize]) -> Self {
        self.read(name, dims, Data::Poison)
    }

    /// An operand only where `present`.
    #[must_use]
    pub fn read_if(self, present: bool, name: &'static str, dims: &[usize], data: Data) -> Self {
        if present { self.read(name, dims, data) } else { self }
    }

    /// A written operand only where `present`.
    #[must_use]
    pub fn write_if(self, present: bool, name: &'static str, dims: &[usize]) -> Self {
        self.read_if(present, name, dims, Data::Poison)
    }

    /// An operand that is another view of `of`'s buffer, `lead` elements in, with data of its own.
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

    /// The last operand has this type.
    #[must_use]
    pub fn typed(self, dtype: DType) -> Self {
        self.last(|spec| spec.dtype = dtype)
    }

    /// The last operand starts `elements` into its buffer: an offset view.
    #[must_use]
    pub fn offset(self, elements: usize) -> Self {
        self.last(|spec| spec.lead += elements)
    }

    /// The last operand is stored with dimensions `a` and `b` exchanged: the same sizes, other strides.
    #[must_use]
    pub fn transposed(self, a: usize, b: usize) -> Self {
        self.last(|spec| {
            let stored = spec.layout.transposed(a, b);
            spec.layout = Layout::contiguous(stored.dims()).expect("a layout").transposed(a, b);
        })
    }

    /// The last operand's rows lie `gap` elements apart.
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

    /// The last operand repeats along sizes of 1 to reach `dims`.
    #[must_use]
    pub fn broadcast(self, dims: &[usize]) -> Self {
        self.last(|spec| spec.layout = spec.layout.broadcast_to(dims).expect("sizes that broadcast"))
    }

    /// The last operand repeats along dimension `axis`, whatever it held there.
    #[must_use]
    pub fn broadcast_axis(self, axis: usize) -> Self {
        self.last(|spec| {
            let mut strides = spec.layout.strides().to_vec();
            strides[axis] = 0;
            spec.layout = Layout::strided(spec.layout.dims(), &strides).expect("a layout");
        })
    }

    /// The last operand has these strides.
    #[must_use]
    pub fn strides(self, strides: &[usize]) -> Self {
        self.last(|spec| spec.layout = Layout::strided(spec.layout.dims(), strides).expect("a layout"))
    }

    /// NaN belongs to the expected results.
    #[must_use]
    pub fn expecting_nan(mut self) -> Self {
        self.expects_nan = true;
        self
    }

    /// Ends the case with its call. `build` is also run on operands that lie nowhere, to learn the kernel's name.
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
    }
}
