//! A graph of operations as the library takes it: tensors, products, elementwise functions, reductions.

use std::ffi::c_int;

use super::description::{Built, Kind, kinds};
use super::library::{Functions, Handle, Status};

/// The library's numbers of element types.
pub(super) mod types {
    use std::ffi::c_int;

    pub(crate) const F32: c_int = 0;
    pub(crate) const F16: c_int = 2;
    pub(crate) const I32: c_int = 4;
    pub(crate) const BF16: c_int = 9;
    pub(crate) const BOOL: c_int = 11;
}

/// Elementwise functions, by the library's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Function {
    Add = 0,
    Multiply = 1,
    Divide = 6,
    Subtract = 9,
    Exponential = 13,
    Logarithm = 15,
    /// 1 where x ≥ b.
    NotLess = 303,
    /// The position along an axis.
    Position = 501,
    /// x where t is 1, else b.
    Select = 601,
}

/// Reductions, by the library's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Over {
    Sum = 0,
    Maximum = 3,
}

/// A tensor of a graph, by its number there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor(usize);

/// Sizes and strides of four axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Axes {
    pub(super) sizes: [i64; 4],
    pub(super) strides: [i64; 4],
}

impl Axes {
    /// Without gaps.
    pub(super) fn dense(sizes: [i64; 4]) -> Self {
        let [_, b, c, d] = sizes;
        Self { sizes, strides: [b * c * d, c * d, d, 1] }
    }

    /// With the last two axes exchanged.
    pub(super) fn transposed(self) -> Self {
        let ([a, b, c, d], [sa, sb, sc, sd]) = (self.sizes, self.strides);
        Self { sizes: [a, b, d, c], strides: [sa, sb, sd, sc] }
    }
}

/// A graph while it is built.
pub(super) struct Builder {
    library: &'static Functions,
    tensors: Vec<(Built, Axes)>,
    operations: Vec<Built>,
    /// What operations are made of.
    parts: Vec<Built>,
}

/// Numbers of tensors that hold no memory begin here; those below are the caller's.
const VIRTUAL: i64 = 1000;

/// Every address is a multiple of this.
pub(super) const ALIGNMENT: i64 = 16;

impl Builder {
    pub(super) fn new(library: &'static Functions) -> Self {
        Self { library, tensors: Vec::new(), operations: Vec::new(), parts: Vec::new() }
    }

    fn described(&self, number: i64, kind: c_int, axes: Axes, alignment: i64) -> Result<Built, Status> {
        let tensor = Built::new(self.library, Kind::Tensor)?.choice(901, kinds::DATA_TYPE, kind)?;
        tensor.longs(902, &axes.sizes)?.longs(903, &axes.strides)?.longs(906, &[number])?.longs(900, &[alignment])
    }

    fn keep(&mut self, tensor: Built, axes: Axes) -> Result<Tensor, Status> {
        self.tensors.push((tensor.finished()?, axes));
        Ok(Tensor(self.tensors.len() - 1))
    }

    /// A tensor in memory, by its number in the call.
    pub(super) fn memory(&mut self, number: i64, kind: c_int, axes: Axes) -> Result<Tensor, Status> {
        let tensor = self.described(number, kind, axes, ALIGNMENT)?;
        self.keep(tensor, axes)
    }

    /// A float that the call gives by value.
    pub(super) fn scalar(&mut self, number: i64) -> Result<Tensor, Status> {
        let axes = Axes::dense([1; 4]);
        let tensor = self.described(number, types::F32, axes, ALIGNMENT)?.flag(908, true)?;
        self.keep(tensor, axes)
    }

    /// A tensor that only exists inside.
    fn inner(&mut self, kind: c_int, axes: Axes) -> Result<Tensor, Status> {
        let number = VIRTUAL + self.tensors.len() as i64;
        let tensor = self.described(number, kind, axes, ALIGNMENT)?.flag(907, true)?;
        self.keep(tensor, axes)
    }

    fn description(&self, tensor: Tensor) -> &Built {
        &self.tensors[tensor.0].0
    }

    /// Makes an operation of a description of what it does, under the number of that attribute, and its tensors.
    fn operation(
        &mut self,
        kind: Kind,
        described: Option<(c_int, Built)>,
        tensors: &[(c_int, Tensor)],
    ) -> Result<(), Status> {
        let mut operation = Built::new(self.library, kind)?;
        if let Some((name, described)) = described {
            let described = described.finished()?;
            operation = operation.parts(name, [&described])?;
            self.parts.push(described);
        }
        for &(name, tensor) in tensors {
            operation = operation.parts(name, [self.description(tensor)])?;
        }
        self.operations.push(operation.finished()?);
        Ok(())
    }

    /// `out = a @ b`, in float32.
    pub(super) fn product_into(&mut self, a: Tensor, b: Tensor, out: Tensor) -> Result<(), Status> {
        let described = Built::new(self.library, Kind::Matmul)?.choice(1500, kinds::DATA_TYPE, types::F32)?;
        self.operation(Kind::MatmulOperation, Some((1523, described)), &[(1520, a), (1521, b), (1522, out)])
    }

    /// [`product_into`](Self::product_into) a tensor inside.
    pub(super) fn product(&mut self, a: Tensor, b: Tensor, kind: c_int, axes: Axes) -> Result<Tensor, Status> {
        let out = self.inner(kind, axes)?;
        self.product_into(a, b, out).map(|()| out)
    }

    fn function(&self, function: Function, kind: c_int) -> Result<Built, Status> {
        let described = Built::new(self.library, Kind::Pointwise)?;
        described.choice(0, kinds::POINTWISE_MODE, function as c_int)?.choice(1, kinds::DATA_TYPE, kind)
    }

    /// `out = function(x)` or `function(x, b)`, in float32; sizes of 1 are repeated.
    pub(super) fn apply_into(
        &mut self,
        function: Function,
        x: Tensor,
        b: Option<Tensor>,
        out: Tensor,
    ) -> Result<(), Status> {
        let described = self.function(function, types::F32)?;
        let tensors: Vec<_> = [Some((751, x)), b.map(|b| (752, b)), Some((753, out))].into_iter().flatten().collect();
        self.operation(Kind::PointwiseOperation, Some((750, described)), &tensors)
    }

    /// [`apply_into`](Self::apply_into) a tensor inside, of x's sizes.
    pub(super) fn apply(&mut self, function: Function, x: Tensor, b: Option<Tensor>) -> Result<Tensor, Status> {
        self.apply_as(types::F32, function, x, b)
    }

    /// [`apply`](Self::apply), with a result of this type.
    pub(super) fn apply_as(
        &mut self,
        kind: c_int,
        function: Function,
        x: Tensor,
        b: Option<Tensor>,
    ) -> Result<Tensor, Status> {
        let out = self.inner(kind, Axes::dense(self.tensors[x.0].1.sizes))?;
        self.apply_into(function, x, b, out).map(|()| out)
    }

    /// Positions along an axis, in x's sizes.
    fn positions(&mut self, x: Tensor, axis: i64) -> Result<Tensor, Status> {
        let out = self.inner(types::I32, Axes::dense(self.tensors[x.0].1.sizes))?;
        let described = self.function(Function::Position, types::F32)?.longs(9, &[axis])?;
        self.operation(Kind::PointwiseOperation, Some((750, described)), &[(751, x), (753, out)])?;
        Ok(out)
    }

    /// Scores of which those of keys behind the query are `hidden`.
    pub(super) fn causal(&mut self, scores: Tensor, hidden: Tensor) -> Result<Tensor, Status> {
        let axes = Axes::dense(self.tensors[scores.0].1.sizes);
        let (rows, columns) = (self.positions(scores, 2)?, self.positions(scores, 3)?);
        let seen = self.inner(types::BOOL, axes)?;
        let described = self.function(Function::NotLess, types::BOOL)?;
        let tensors = [(751, rows), (752, columns), (753, seen)];
        self.operation(Kind::PointwiseOperation, Some((750, described)), &tensors)?;
        let out = self.inner(types::F32, axes)?;
        let described = self.function(Function::Select, types::F32)?;
        let tensors = [(751, scores), (752, hidden), (753, out), (758, seen)];
        self.operation(Kind::PointwiseOperation, Some((750, described)), &tensors)?;
        Ok(out)
    }

    /// Reduces the axes in which `out` is shorter.
    pub(super) fn reduce_into(&mut self, over: Over, x: Tensor, out: Tensor) -> Result<(), Status> {
        let described = Built::new(self.library, Kind::Reduction)?;
        let described =
            described.choice(1601, kinds::DATA_TYPE, types::F32)?.choice(1600, kinds::REDUCTION, over as c_int)?;
        self.operation(Kind::ReductionOperation, Some((1612, described)), &[(1610, x), (1611, out)])
    }

    /// Reduces the last axis.
    pub(super) fn reduce_rows(&mut self, over: Over, x: Tensor) -> Result<Tensor, Status> {
        let [a, b, c, _] = self.tensors[x.0].1.sizes;
        let out = self.inner(types::F32, Axes::dense([a, b, c, 1]))?;
        self.reduce_into(over, x, out).map(|()| out)
    }

    /// x with its last two axes exchanged, as this type.
    pub(super) fn transpose(&mut self, x: Tensor, kind: c_int) -> Result<Tensor, Status> {
        let axes = self.tensors[x.0].1.transposed();
        let out = self.inner(kind, axes)?;
        self.operation(Kind::ReshapeOperation, None, &[(2200, x), (2201, out)])?;
        Ok(out)
    }

    /// Ends the graph; returns it with all that it is made of.
    pub(super) fn finish(self, handle: Handle) -> Result<Graph, Status> {
        let graph = Built::new(self.library, Kind::OperationGraph)?.handle(800, handle)?;
        let graph = graph.parts(801, &self.operations)?.finished()?;
        let tensors = self.tensors.into_iter().map(|(tensor, _)| tensor);
        let parts = self.parts.into_iter().chain(self.operations).chain(tensors).collect();
        Ok(Graph { graph, _parts: parts })
    }
}

/// A finished graph.
pub(super) struct Graph {
    graph: Built,
    _parts: Vec<Built>,
}

/// Engines of the heuristic, then those that compute everything in some way.
const MODES: [c_int; 2] = [3, 2];

/// The note of an engine whose results differ from run to run.
const NOT_DETERMINISTIC: c_int = 4;

/// A graph with the engine that computes it.
pub(super) struct Engine {
    plan: Built,
    /// Bytes that a call needs besides its tensors.
    pub(super) workspace_bytes: u64,
    _configuration: Built,
    _graph: Graph,
}

impl Graph {
    /// Takes the first of the library's engines that gives the same bits in every run. `None` if there is none.
    pub(super) fn engine(self, library: &'static Functions, handle: Handle) -> Option<Engine> {
        let (configuration, plan) = MODES.into_iter().find_map(|mode| self.first(library, handle, mode).ok()?)?;
        let workspace_bytes = u64::try_from(plan.long(402).ok()?).ok()?;
        Some(Engine { plan, workspace_bytes, _configuration: configuration, _graph: self })
    }

    fn first(
        &self,
        library: &'static Functions,
        handle: Handle,
        mode: c_int,
    ) -> Result<Option<(Built, Built)>, Status> {
        let asked = Built::new(library, Kind::Heuristics)?.parts(201, [&self.graph])?;
        let asked = asked.choice(200, kinds::HEURISTIC_MODE, mode)?.finished()?;
        for configuration in asked.descriptions(202, Kind::EngineConfiguration)? {
            let notes = match configuration.descriptions(300, Kind::Engine)?.first() {
                Some(engine) => engine.choices(1303, kinds::NUMERICAL_NOTE)?,
                None => continue,
            };
            if notes.contains(&NOT_DETERMINISTIC) {
                continue;
            }
            let plan = Built::new(library, Kind::ExecutionPlan)?.handle(400, handle)?;
            if let Ok(plan) = plan.parts(401, [&configuration])?.finished() {
                return Ok(Some((configuration, plan)));
            }
        }
        Ok(None)
    }
}

impl Engine {
    /// Queues the graph: `tensors` are the numbers and the addresses of those in memory, of those by value on the host.
    ///
    /// # Safety
    /// The addresses are of tensors as they were described, and the workspace is as large as the engine says.
    pub(super) unsafe fn run(
        &self,
        library: &'static Functions,
        handle: Handle,
        tensors: &[(i64, u64)],
        workspace: u64,
    ) -> Result<(), Status> {
        let numbers: Vec<i64> = tensors.iter().map(|(number, _)| *number).collect();
        let places: Vec<_> = tensors.iter().map(|(_, place)| *place as *mut _).collect();
        let pack = Built::new(library, Kind::VariantPack)?.longs(1000, &numbers)?.pointers(1001, &places)?;
        let pack = pack.pointers(1003, &[workspace as *mut _])?.finished()?;
        // SAFETY: handle, plan and pack are live; the rest is the caller's promise.
        super::library::succeeded(unsafe { (library.cudnnBackendExecute)(handle.0, self.plan.raw, pack.raw) })
    }
}
