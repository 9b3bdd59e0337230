//! The meaning of a graph's inputs and outputs: tensors of the network, the user's inputs, results and the loss.

use std::collections::BTreeMap;

use lab_base::error::{Error, Result};
use memcore::DType;

use super::archive::{Archive, Extent};
use super::lifetimes::ENTRY;
use super::program::{Expected, dtype};
use super::schema::{self, Argument, Graph, Size, TensorMeta, WeightsConfig};
use super::symbols::Expression;

/// Meaning of one input of the graph.
pub(super) enum InputKind {
    /// A tensor of the network, by its index in [`Signature::state`].
    State(usize),
    /// An input from the user, by its index in [`Signature::users`].
    User(usize),
    /// An input that is not a tensor: a constant that the graph already contains.
    Nothing,
}

/// Kind of a tensor of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Parameter { trained: bool },
    Buffer,
    Constant,
}

/// A tensor of the network.
pub(super) struct StateTensor {
    /// Path, such as `h.0.attn.weight`.
    pub path: String,
    pub kind: StateKind,
    pub dims: Vec<usize>,
    pub dtype: DType,
    /// Index of the tensor that this one is tied to.
    pub same_as: Option<usize>,
    /// Position of the values in the file; `None` if the file does not have them.
    pub values: Option<Extent>,
}

/// An input from the user.
pub(super) struct UserTensor {
    pub name: String,
    pub meta: TensorMeta,
    pub dtype: DType,
}

/// An output of the graph.
#[derive(Clone)]
pub(super) struct OutputTensor {
    pub name: String,
    /// Sizes as expressions; `None` for one that is not understood.
    pub sizes: Vec<Option<Expression>>,
    /// Sizes and type; `None` for an output that is not a tensor.
    pub expected: Option<Expected>,
    /// True if the file marks the output as the loss.
    pub is_loss: bool,
}

/// All inputs and outputs of a graph.
#[derive(Default)]
pub(super) struct Signature {
    pub inputs: Vec<InputKind>,
    pub state: Vec<StateTensor>,
    pub users: Vec<UserTensor>,
    pub outputs: Vec<OutputTensor>,
    /// Pairs of paths of parameters that are taken to be tied, because the file does not say.
    pub taken_as_one: Vec<(String, String)>,
    /// Parameters of the file with further names of the same parameter, which the file may not have beside.
    pub shared: Vec<(String, String)>,
}

/// Function that makes a tensor of the network from its path, its metadata and the tensors before it.
type StateOf<'a> = dyn FnMut(&str, &TensorMeta, &[StateTensor]) -> Result<StateTensor> + 'a;

/// A folder of the archive that holds values of weights, with its configuration.
struct Weights {
    folder: &'static str,
    config: WeightsConfig,
    /// True if the names of the files tell which parameters are tied.
    tells_ties: bool,
}

impl Weights {
    fn new(folder: &'static str, config: WeightsConfig) -> Self {
        let tells_ties = tells_ties(&config);
        Self { folder, config, tells_ties }
    }
}

/// True if the names of the files tell which parameters are tied. An export on the device `meta` has all tensors of a type in one file, whatever
/// their sizes; then the names do not tell.
fn tells_ties(config: &WeightsConfig) -> bool {
    let mut sizes = BTreeMap::new();
    let entries = config.config.values();
    let of_one = entries.map(|entry| (entry.path_name.as_str(), numbers(&entry.tensor_meta.sizes)));
    let alike = of_one.fold(true, |alike, (name, dims)| alike & (sizes.entry(name).or_insert(dims.clone()) == &dims));
    config.config.len() < 2 || (alike && sizes.len() > 1)
}

impl Signature {
    /// Reads the signature of a graph, with the positions of its weights in the archive. `used` says for each input whether the graph uses it; `tied`
    /// are groups of paths of tied parameters, if the file has them.
    ///
    /// # Errors
    /// [`Error::Usage`] naming entry and tensor: inputs or outputs are not supported; weights are missing or do not match their description.
    pub(super) fn read(
        module: &schema::GraphModule,
        used: &[bool],
        tied: Option<&[Vec<String>]>,
        model: &str,
        archive: &mut Archive,
    ) -> Result<Self> {
        let (graph, signature) = (&module.graph, &module.signature);
        let entry = format!("models/{model}.json");
        if graph.inputs.len() != signature.input_specs.len() || graph.outputs.len() != signature.output_specs.len() {
            return Err(archive.error(&entry, "graph and signature have different numbers of inputs or outputs"));
        }
        let mut weights = Vec::new();
        for (folder, kind) in [("data/weights/", "weights"), ("data/constants/", "constants")] {
            let config = format!("{folder}{model}_{kind}_config.json");
            let config = if archive.has(&config) { archive.json(&config)? } else { WeightsConfig::default() };
            weights.push(Weights::new(folder, config));
        }
        let mut all = Self::default();
        let mut files = BTreeMap::new();
        for (argument, spec) in graph.inputs.iter().zip(&signature.input_specs) {
            let kind = all.input(graph, argument, spec, &mut |path, meta, state| {
                state_of(archive, &weights, path, meta, state, &mut files)
            });
            all.inputs.push(kind.map_err(|problem| archive.error(&entry, problem))?);
        }
        for (argument, spec) in graph.outputs.iter().zip(&signature.output_specs) {
            let output = output(graph, argument, spec).map_err(|problem| archive.error(&entry, problem))?;
            all.outputs.push(output);
        }
        match tied {
            Some(tied) => all.tie(tied).map_err(|problem| archive.error(ENTRY, problem))?,
            None if weights.iter().all(|weights| weights.tells_ties) => {}
            None => all.tie_unused(used),
        }
        Ok(all)
    }

    /// Ties the parameters that the file says are tied.
    fn tie(&mut self, tied: &[Vec<String>]) -> Result<(), String> {
        self.state.iter_mut().for_each(|tensor| tensor.same_as = None);
        for group in tied {
            let mut numbers = Vec::new();
            for path in group {
                // A path that the graph does not have takes no memory of its own.
                numbers.extend(self.state.iter().position(|tensor| tensor.path == *path));
            }
            numbers.sort_unstable();
            let Some((&first, others)) = numbers.split_first() else { continue };
            let kept = self.state[first].path.clone();
            self.shared.extend(group.iter().filter(|path| **path != kept).map(|path| (kept.clone(), path.clone())));
            for &other in others.iter().filter(|other| **other != first) {
                let (one, twin) = (&self.state[first], &self.state[other]);
                if (&one.dims, one.dtype, one.kind) != (&twin.dims, twin.dtype, twin.kind) {
                    return Err(format!(
                        "{} and {} are said to be one, and differ in sizes, type or kind",
                        one.path, twin.path
                    ));
                }
                self.state[other].same_as = Some(self.state[first].same_as.unwrap_or(first));
            }
        }
        Ok(())
    }

    /// Ties unused matrices to used ones of the same sizes and type. A file without values does not say which parameters are tied, but its graph uses
    /// only one of two tied ones. Vectors are left out, because many have the same size.
    fn tie_unused(&mut self, used: &[bool]) {
        let mut is_used = vec![false; self.state.len()];
        for (kind, used) in self.inputs.iter().zip(used) {
            if let InputKind::State(number) = kind {
                is_used[*number] = *used;
            }
        }
        let open = |tensor: &StateTensor| {
            let is_matrix = matches!(tensor.kind, StateKind::Parameter { .. }) && tensor.dims.len() >= 2;
            is_matrix && tensor.values.is_none() && tensor.same_as.is_none()
        };
        for unused in 0..self.state.len() {
            let tensor = &self.state[unused];
            if is_used[unused] || !open(tensor) {
                continue;
            }
            let alike = |other: &StateTensor| other.dims == tensor.dims && other.dtype == tensor.dtype;
            let twin = (0..self.state.len()).find(|&i| is_used[i] && open(&self.state[i]) && alike(&self.state[i]));
            if let Some(twin) = twin {
                let (first, second) = (unused.min(twin), unused.max(twin));
                self.taken_as_one.push((self.state[first].path.clone(), self.state[second].path.clone()));
                self.state[second].same_as = Some(first);
            }
        }
    }

    fn input(
        &mut self,
        graph: &Graph,
        argument: &Argument,
        spec: &BTreeMap<String, schema::InputSpec>,
        state_of: &mut StateOf<'_>,
    ) -> Result<InputKind, String> {
        let (kind, spec) = spec.first_key_value().ok_or("an input of no kind")?;
        let name = match argument {
            Argument::Tensor(name) => name,
            Argument::Named(name) => {
                return Err(format!("the input {name} is a symbolic number, which is not supported"));
            }
            _ => return Ok(InputKind::Nothing),
        };
        let meta = graph.tensor_values.get(name).ok_or_else(|| format!("nothing is said of the input {name}"))?;
        let element = dtype(meta.dtype);
        let element =
            element.ok_or_else(|| format!("{name}: element type {} of PyTorch's is not supported", meta.dtype))?;
        let wanted = match kind.as_str() {
            "user_input" => {
                self.users.push(UserTensor { name: name.clone(), meta: meta.clone(), dtype: element });
                return Ok(InputKind::User(self.users.len() - 1));
            }
            "parameter" => StateKind::Parameter { trained: meta.requires_grad },
            "buffer" => StateKind::Buffer,
            "tensor_constant" => StateKind::Constant,
            other => return Err(format!("the input {name} is a {other}, which is not supported")),
        };
        let path = path(spec).ok_or_else(|| format!("the input {name} has no path"))?;
        let found = state_of(path, meta, &self.state).map_err(|error| error.to_string())?;
        self.state.push(StateTensor { kind: wanted, ..found });
        Ok(InputKind::State(self.state.len() - 1))
    }
}

/// The path of the network's tensor that an input is; `None` for an input of another kind.
pub(super) fn path(spec: &schema::InputSpec) -> Option<&str> {
    [&spec.parameter_name, &spec.buffer_name, &spec.tensor_constant_name].into_iter().find_map(Option::as_deref)
}

/// True if a tensor of this description has these sizes and this type.
pub(super) fn is_like(meta: &TensorMeta, dims: &[usize], element: DType) -> bool {
    numbers(&meta.sizes).is_some_and(|sizes| sizes == dims) && dtype(meta.dtype) == Some(element)
}

/// Returns the sizes as numbers; `None` if one is an expression.
fn numbers(sizes: &[Size]) -> Option<Vec<usize>> {
    let number = |size: &Size| match size {
        Size::AsInt(value) => usize::try_from(*value).ok(),
        Size::AsExpr(_) => None,
    };
    sizes.iter().map(number).collect()
}

fn state_of(
    archive: &mut Archive,
    weights: &[Weights],
    path: &str,
    meta: &TensorMeta,
    before: &[StateTensor],
    files: &mut BTreeMap<String, usize>,
) -> Result<StateTensor> {
    let wrong = |problem: String| Error::usage(path.to_string(), problem);
    let dims = numbers(&meta.sizes).ok_or_else(|| wrong("its sizes are not numbers".into()))?;
    let numel = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64)).filter(|n| *n <= 1 << 48);
    let numel = numel.ok_or_else(|| wrong("its sizes are beyond any device".into()))?;
    let element = dtype(meta.dtype).ok_or_else(|| wrong("its element type is not supported".into()))?;
    if !is_contiguous(meta, &dims) {
        return Err(wrong("it does not lie in row-major order, which is not supported".into()));
    }
    let mut state =
        StateTensor { path: path.into(), kind: StateKind::Constant, dims, dtype: element, same_as: None, values: None };
    let found = weights.iter().find_map(|weights| Some((weights.folder, weights.config.config.get(path)?)));
    let Some((folder, entry)) = found else { return Ok(state) };
    if entry.use_pickle {
        return Ok(state);
    }
    let file = format!("{folder}{}", entry.path_name);
    let offset = match &entry.tensor_meta.storage_offset {
        Some(Size::AsInt(offset)) => u64::try_from(*offset).ok(),
        None => Some(0),
        Some(Size::AsExpr(_)) => None,
    };
    // Parameters in one file share one storage; but an export on the device `meta`, which has no values, puts all of them into one file.
    let tells_ties = weights.iter().all(|weights| weights.tells_ties);
    let bytes = numel * element.size();
    let start = offset.and_then(|offset| offset.checked_mul(element.size()));
    let start = start.ok_or_else(|| archive.error(&file, format!("{path} begins nowhere in it")))?;
    let extent = archive.extent(&file)?;
    // A storage on the device `meta` has no bytes.
    if extent.bytes > 0 {
        if entry.tensor_meta.dtype != meta.dtype || start.checked_add(bytes).is_none_or(|end| end > extent.bytes) {
            return Err(archive.error(&file, format!("has {} bytes, not those of {path}", extent.bytes)));
        }
        state.values = Some(Extent { start: extent.start + start, bytes });
    } else if !tells_ties {
        return Ok(state);
    }
    let key = format!("{file} {start}");
    let first = *files.entry(key).or_insert(before.len());
    state.same_as =
        before.get(first).filter(|first| first.dims == state.dims && first.dtype == state.dtype).map(|_| first);
    Ok(state)
}

/// True if the strides are those of row-major order. A dimension of size 1 may have any stride.
fn is_contiguous(meta: &TensorMeta, dims: &[usize]) -> bool {
    let Some(strides) = numbers(&meta.strides).filter(|strides| strides.len() == dims.len()) else {
        return meta.strides.is_empty();
    };
    let mut expected = 1usize;
    dims.iter().zip(&strides).rev().all(|(&dim, &stride)| {
        let fits = dim <= 1 || stride == expected;
        expected = expected.saturating_mul(dim.max(1));
        fits
    })
}

/// Reads an output of a graph.
///
/// # Errors
/// One that a program has which was made functional.
pub(super) fn output(
    graph: &Graph,
    argument: &Argument,
    spec: &BTreeMap<String, serde_json::Value>,
) -> Result<OutputTensor, String> {
    let (kind, _) = spec.first_key_value().ok_or("an output of no kind")?;
    if kind != "user_output" && kind != "loss_output" {
        return Err(format!(
            "an output is a {kind}: the program was made functional; save it as torch.export.export gives it, without run_decompositions()"
        ));
    }
    let name = if let Argument::Tensor(name) = argument { name.clone() } else { String::new() };
    let meta = graph.tensor_values.get(&name);
    let sizes = meta.map_or_else(Vec::new, |meta| meta.sizes.iter().map(Expression::from_size).collect());
    let expected = meta.map(Expected::from_meta);
    Ok(OutputTensor { name, sizes, expected, is_loss: kind == "loss_output" })
}
