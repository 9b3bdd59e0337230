//! Layers of a model file: the keys of each type, and the size of its result.

use std::fmt;

use lab_base::error::Result;
use memcore::Tensor;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::nn::AttentionOptions;
use memcore::ops;

use super::reader::Section;

/// A layer with all its sizes.
pub(super) struct Layer {
    /// Name in the module path.
    pub(super) name: String,
    pub(super) op: Op,
}

/// An activation function.
type Function = fn(&Tensor) -> memcore::Result<Tensor>;

/// Operation of a layer.
pub(super) enum Op {
    Conv2d { inputs: usize, outputs: usize, kernel: usize, geometry: Conv2dGeometry, bias: bool },
    Linear { inputs: usize, outputs: usize, bias: bool },
    Activation(Function),
    LeakyRelu { slope: f64 },
    MaxPool2d(Pool2dGeometry),
    AvgPool2d(Pool2dGeometry),
    Flatten,
    Dropout { p: f64 },
    BatchNorm2d { channels: usize },
    LayerNorm { width: usize, eps: f64 },
    RmsNorm { width: usize, eps: f64 },
    GroupNorm { groups: usize, channels: usize, eps: f64 },
    Elu { alpha: f64 },
    Upsample { factor: [usize; 2] },
    Embedding { rows: usize, width: usize, std: f64 },
    PositionEmbedding { length: usize, width: usize, std: f64 },
    Attention { length: usize, width: usize, heads: usize, options: AttentionOptions },
    Residual(Vec<Layer>),
    Sequence(Vec<Layer>),
    Checkpoint(Vec<Layer>),
    Variable(Vec<Layer>),
}

/// Shape of the data between layers, without the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Values(Vec<usize>),
    Tokens { length: usize, vocabulary: usize },
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Values(dims) => write!(f, "{dims:?}"),
            Shape::Tokens { length, vocabulary } => write!(f, "{length} tokens of {vocabulary}"),
        }
    }
}

/// Largest number of layers in a file, repetitions counted: more is a mistake in a `repeat`.
const MAX_LAYERS: usize = 10_000;

/// Largest number of elements of a tensor, and of parameters of a model: far beyond any device, and far from overflow.
pub(super) const MAX_ELEMENTS: u64 = 1 << 48;

/// Totals of the layers read so far.
#[derive(Default)]
pub(super) struct Totals {
    layers: usize,
    parameters: u64,
    /// Elements per example of the largest result.
    pub(super) largest: u64,
}

impl Totals {
    fn add(&mut self, section: &Section<'_>, op: &Op, out: &Shape) -> Result<()> {
        self.layers += 1;
        if self.layers > MAX_LAYERS {
            return Err(section.error(format!("the model has more than {MAX_LAYERS} layers, repetitions counted")));
        }
        let within = |sizes: &[usize]| product(sizes).filter(|&n| n <= MAX_ELEMENTS);
        let parameters = op.parameters().iter().try_fold(self.parameters, |sum, dims| Some(sum + within(dims)?));
        let Some(parameters) = parameters.filter(|&n| n <= MAX_ELEMENTS) else {
            return Err(section.error("with this layer the model has more than 2^48 parameters"));
        };
        self.parameters = parameters;
        let mut results = vec![out.dims()];
        if let Op::Attention { length, heads, .. } = op {
            results.push(vec![*heads, *length, *length]);
        }
        for dims in results {
            let Some(elements) = within(&dims) else {
                return Err(section.error(format!("its result {dims:?} has more than 2^48 elements per example")));
            };
            self.largest = self.largest.max(elements);
        }
        Ok(())
    }
}

fn product(sizes: &[usize]) -> Option<u64> {
    sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(size as u64))
}

impl Shape {
    /// Returns the sizes of one example.
    pub(super) fn dims(&self) -> Vec<usize> {
        match self {
            Shape::Values(dims) => dims.clone(),
            Shape::Tokens { length, .. } => vec![*length],
        }
    }
}

impl Op {
    /// Returns the sizes of its own parameters, without those of layers inside.
    fn parameters(&self) -> Vec<Vec<usize>> {
        match self {
            Op::Conv2d { inputs, outputs, kernel, geometry, .. } => {
                vec![vec![*outputs, inputs / geometry.groups, *kernel, *kernel], vec![*outputs]]
            }
            Op::Linear { inputs, outputs, .. } => vec![vec![*outputs, *inputs], vec![*outputs]],
            Op::BatchNorm2d { channels } => vec![vec![2, *channels]],
            Op::LayerNorm { width, .. } => vec![vec![2, *width]],
            Op::RmsNorm { width, .. } => vec![vec![*width]],
            Op::GroupNorm { channels, .. } => vec![vec![2, *channels]],
            Op::Embedding { rows, width, .. } => vec![vec![*rows, *width]],
            Op::PositionEmbedding { length, width, .. } => vec![vec![*length, *width]],
            Op::Attention { width, .. } => vec![vec![4, *width, *width], vec![4, *width]],
            _ => Vec::new(),
        }
    }
}

/// Reads layers in order, each from the shape that the one before returns; `path` is the place of the list in the file: `""`, or `2.` inside layer 2.
pub(super) fn read_layers(
    sections: Vec<Section<'_>>,
    path: &str,
    input: Shape,
    totals: &mut Totals,
) -> Result<(Vec<Layer>, Shape)> {
    let (mut layers, mut shape) = (Vec::new(), input);
    let mut names: Vec<String> = Vec::new();
    for (i, section) in sections.into_iter().enumerate() {
        let place = format!("layer {path}{i}");
        let section = section.titled(place.clone());
        let kind = section.required("type", section.string("type")?, "\"linear\"")?;
        let section = section.titled(format!("{place} ({kind})"));
        let name = section.string("name")?.map_or_else(|| i.to_string(), str::to_string);
        if name.is_empty() || names.contains(&name) {
            return Err(section.key_error("name", format!("{name:?} is empty or the name of a layer before")));
        }
        let repeat = section.size("repeat")?;
        for n in 0..repeat.unwrap_or(1) {
            let name = if repeat.is_some() { format!("{name}.{n}") } else { name.clone() };
            let (op, out) = read_op(&section, kind, &format!("{path}{i}."), &shape, totals)?;
            totals.add(&section, &op, &out)?;
            layers.push(Layer { name, op });
            shape = out;
        }
        names.push(name);
    }
    Ok((layers, shape))
}

/// Types of layers, with the keys of each besides `type`, `name` and `repeat`.
const TYPES: &[(&str, &[&str])] = &[
    ("conv2d", &["out", "kernel", "stride", "padding", "dilation", "groups", "bias"]),
    ("linear", &["out", "bias"]),
    ("relu", &[]),
    ("leaky-relu", &["slope"]),
    ("gelu", &[]),
    ("gelu-tanh", &[]),
    ("silu", &[]),
    ("tanh", &[]),
    ("sigmoid", &[]),
    ("elu", &["alpha"]),
    ("softplus", &[]),
    ("mish", &[]),
    ("relu6", &[]),
    ("hardsigmoid", &[]),
    ("hardswish", &[]),
    ("log-sigmoid", &[]),
    ("max-pool2d", &["kernel", "stride", "padding"]),
    ("avg-pool2d", &["kernel", "stride", "padding"]),
    ("global-avg-pool2d", &[]),
    ("upsample-nearest2d", &["factor"]),
    ("flatten", &[]),
    ("dropout", &["p"]),
    ("batch-norm2d", &[]),
    ("layer-norm", &["eps"]),
    ("rms-norm", &["eps"]),
    ("group-norm", &["groups", "eps"]),
    ("embedding", &["out", "std"]),
    ("position-embedding", &["std"]),
    ("attention", &["heads", "causal", "fused", "dropout"]),
    ("residual", &["layer"]),
    ("sequence", &["layer"]),
    ("checkpoint", &["layer"]),
    ("variable", &["layer"]),
];

fn read_op(s: &Section<'_>, kind: &str, path: &str, x: &Shape, totals: &mut Totals) -> Result<(Op, Shape)> {
    let Some((_, keys)) = TYPES.iter().find(|(name, _)| *name == kind) else {
        let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        return Err(s.key_error("type", format!("unknown type {kind:?}; known: {}", known.join(", "))));
    };
    s.only(&[&["type", "name", "repeat"], *keys].concat())?;
    let same = |op: Op| Ok((op, Shape::Values(values(s, x)?.to_vec())));
    match kind {
        "conv2d" => conv2d(s, x),
        "linear" => linear(s, x),
        "relu" => same(Op::Activation(ops::relu)),
        "leaky-relu" => same(Op::LeakyRelu { slope: s.number("slope")?.unwrap_or(0.01) }),
        "gelu" => same(Op::Activation(ops::gelu)),
        "gelu-tanh" => same(Op::Activation(ops::gelu_tanh)),
        "silu" => same(Op::Activation(ops::silu)),
        "tanh" => same(Op::Activation(ops::tanh)),
        "sigmoid" => same(Op::Activation(ops::sigmoid)),
        "elu" => same(Op::Elu { alpha: s.number("alpha")?.unwrap_or(1.0) }),
        "softplus" => same(Op::Activation(ops::softplus)),
        "mish" => same(Op::Activation(ops::mish)),
        "relu6" => same(Op::Activation(ops::relu6)),
        "hardsigmoid" => same(Op::Activation(ops::hardsigmoid)),
        "hardswish" => same(Op::Activation(ops::hardswish)),
        "log-sigmoid" => same(Op::Activation(ops::log_sigmoid)),
        "max-pool2d" | "avg-pool2d" => pool2d(s, x, kind == "max-pool2d"),
        "global-avg-pool2d" => {
            let [channels, ..] = image(s, x)?;
            Ok((Op::Activation(|x| ops::adaptive_avg_pool2d(x, [1, 1])), Shape::Values(vec![channels, 1, 1])))
        }
        "upsample-nearest2d" => upsample(s, x),
        "flatten" => {
            let elements = product(values(s, x)?).and_then(|n| usize::try_from(n).ok());
            let elements = elements.ok_or_else(|| s.error(format!("{x} has too many elements")))?;
            Ok((Op::Flatten, Shape::Values(vec![elements])))
        }
        "dropout" => same(Op::Dropout { p: probability(s, "p", 0.5)? }),
        "batch-norm2d" => {
            let [channels, ..] = image(s, x)?;
            same(Op::BatchNorm2d { channels })
        }
        "layer-norm" => same(Op::LayerNorm { width: last(s, x)?, eps: s.number("eps")?.unwrap_or(1e-5) }),
        "rms-norm" => same(Op::RmsNorm { width: last(s, x)?, eps: s.number("eps")?.unwrap_or(1e-5) }),
        "group-norm" => group_norm(s, x),
        "embedding" | "position-embedding" => embedding(s, x, kind == "embedding"),
        "attention" => attention(s, x),
        _ => nested(s, x, kind, path, totals),
    }
}

/// Returns the sizes of an example of floats.
fn values<'x>(s: &Section<'_>, x: &'x Shape) -> Result<&'x [usize]> {
    match x {
        Shape::Values(dims) => Ok(dims),
        Shape::Tokens { .. } => {
            Err(s.error(format!("{x} arrive, and it takes floats; an embedding layer turns tokens into those")))
        }
    }
}

/// Returns the last size of an example.
fn last(s: &Section<'_>, x: &Shape) -> Result<usize> {
    Ok(values(s, x)?.last().copied().unwrap_or(1))
}

/// Returns channels, height and width.
fn image(s: &Section<'_>, x: &Shape) -> Result<[usize; 3]> {
    match values(s, x)? {
        [channels, height, width] => Ok([*channels, *height, *width]),
        dims => Err(s.error(format!("{dims:?} arrives, and it takes [channels, height, width]"))),
    }
}

/// Returns tokens and width.
fn sequence(s: &Section<'_>, x: &Shape) -> Result<[usize; 2]> {
    match values(s, x)? {
        [length, width] => Ok([*length, *width]),
        dims => Err(s.error(format!("{dims:?} arrives, and it takes [tokens, width]"))),
    }
}

fn probability(s: &Section<'_>, key: &str, default: f64) -> Result<f64> {
    let p = s.number(key)?.unwrap_or(default);
    if p > 1.0 { Err(s.key_error(key, format!("is {p}, expected 0 to 1"))) } else { Ok(p) }
}

fn linear(s: &Section<'_>, x: &Shape) -> Result<(Op, Shape)> {
    let outputs = s.required("out", s.size("out")?, "10")?;
    let inputs = last(s, x)?;
    let mut dims = values(s, x)?.to_vec();
    if let Some(last) = dims.last_mut() {
        *last = outputs;
    }
    Ok((Op::Linear { inputs, outputs, bias: s.flag("bias")?.unwrap_or(true) }, Shape::Values(dims)))
}

fn conv2d(s: &Section<'_>, x: &Shape) -> Result<(Op, Shape)> {
    let outputs = s.required("out", s.size("out")?, "16")?;
    let kernel = s.required("kernel", s.size("kernel")?, "3")?;
    let geometry = Conv2dGeometry {
        stride: s.pair("stride", 1)?.unwrap_or([1, 1]),
        padding: s.pair("padding", 0)?.unwrap_or([0, 0]),
        dilation: s.pair("dilation", 1)?.unwrap_or([1, 1]),
        groups: s.size("groups")?.unwrap_or(1),
    };
    let bias = s.flag("bias")?.unwrap_or(true);
    let [inputs, height, width] = image(s, x)?;
    let groups = geometry.groups;
    if !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        let problem =
            format!("{groups} groups do not divide the {inputs} channels that arrive and the {outputs} that leave");
        return Err(s.key_error("groups", problem));
    }
    let size = geometry.output_size([height, width], [kernel, kernel]);
    let [height, width] = size.map_err(|error| s.error(format!("{x} arrives: {error}")))?;
    let out = Shape::Values(vec![outputs, height, width]);
    Ok((Op::Conv2d { inputs, outputs, kernel, geometry, bias }, out))
}

fn pool2d(s: &Section<'_>, x: &Shape, max: bool) -> Result<(Op, Shape)> {
    let window = s.required("kernel", s.pair("kernel", 1)?, "2")?;
    let stride = s.pair("stride", 1)?.unwrap_or(window);
    let geometry = Pool2dGeometry { window, stride, padding: s.pair("padding", 0)?.unwrap_or([0, 0]) };
    let [channels, height, width] = image(s, x)?;
    let fits = |[h, w]: [usize; 2]| {
        let [ph, pw] = geometry.padding;
        window[0] <= h + 2 * ph && window[1] <= w + 2 * pw
    };
    if !fits([height, width]) {
        return Err(s.key_error("kernel", format!("a window of {window:?} does not fit {x} (padding included)")));
    }
    if 2 * geometry.padding[0] > window[0] || 2 * geometry.padding[1] > window[1] {
        return Err(s.key_error("padding", format!("is more than half of the window {window:?}")));
    }
    let [height, width] = geometry.output_size([height, width]).map_err(|error| s.error(error.to_string()))?;
    let op = if max { Op::MaxPool2d(geometry) } else { Op::AvgPool2d(geometry) };
    Ok((op, Shape::Values(vec![channels, height, width])))
}

fn upsample(s: &Section<'_>, x: &Shape) -> Result<(Op, Shape)> {
    let factor = s.pair("factor", 1)?.unwrap_or([2, 2]);
    let [channels, height, width] = image(s, x)?;
    let [Some(height), Some(width)] = [height.checked_mul(factor[0]), width.checked_mul(factor[1])] else {
        return Err(s.key_error("factor", format!("{factor:?} times {x} is too large")));
    };
    Ok((Op::Upsample { factor }, Shape::Values(vec![channels, height, width])))
}

fn group_norm(s: &Section<'_>, x: &Shape) -> Result<(Op, Shape)> {
    let groups = s.required("groups", s.size("groups")?, "8")?;
    let (channels, dims) = match values(s, x)? {
        [] => return Err(s.error("nothing arrives")),
        dims => (dims[0], dims.to_vec()),
    };
    if !channels.is_multiple_of(groups) {
        return Err(s.key_error("groups", format!("{groups} groups do not divide the {channels} channels that arrive")));
    }
    if dims[1..].iter().all(|&size| size == 1) {
        return Err(s.error(format!("{x} arrives, and it takes channels of more than one position")));
    }
    Ok((Op::GroupNorm { groups, channels, eps: s.number("eps")?.unwrap_or(1e-5) }, Shape::Values(dims)))
}

fn embedding(s: &Section<'_>, x: &Shape, of_tokens: bool) -> Result<(Op, Shape)> {
    let std = s.number("std")?;
    if !of_tokens {
        let [length, width] = sequence(s, x)?;
        let op = Op::PositionEmbedding { length, width, std: std.unwrap_or(0.02) };
        return Ok((op, Shape::Values(vec![length, width])));
    }
    let width = s.required("out", s.size("out")?, "64")?;
    let Shape::Tokens { length, vocabulary } = *x else {
        return Err(s.error(format!("{x} arrives, and it takes tokens: [input] tokens = 64, vocabulary = 512")));
    };
    let op = Op::Embedding { rows: vocabulary, width, std: std.unwrap_or(1.0) };
    Ok((op, Shape::Values(vec![length, width])))
}

fn attention(s: &Section<'_>, x: &Shape) -> Result<(Op, Shape)> {
    let heads = s.required("heads", s.size("heads")?, "4")?;
    let options = AttentionOptions {
        causal: s.flag("causal")?.unwrap_or(false),
        fused: s.flag("fused")?.unwrap_or(false),
        dropout: probability(s, "dropout", 0.0)?,
    };
    if options.fused && options.dropout > 0.0 {
        return Err(s.key_error("dropout", "the fused kernel drops nothing; leave one of the two out"));
    }
    let [length, width] = sequence(s, x)?;
    if !width.is_multiple_of(heads) {
        return Err(s.key_error("heads", format!("{heads} heads do not divide the width {width} that arrives")));
    }
    Ok((Op::Attention { length, width, heads, options }, Shape::Values(vec![length, width])))
}

fn nested(s: &Section<'_>, x: &Shape, kind: &str, path: &str, totals: &mut Totals) -> Result<(Op, Shape)> {
    let sections = s.tables("layer")?;
    if sections.is_empty() {
        return Err(s.error("has no layers inside: write them as [[layer.layer]] below it"));
    }
    let (layers, out) = read_layers(sections, path, x.clone(), totals)?;
    match kind {
        "sequence" => return Ok((Op::Sequence(layers), out)),
        "checkpoint" => return Ok((Op::Checkpoint(layers), out)),
        "variable" => return Ok((Op::Variable(layers), out)),
        _ => {}
    }
    values(s, x)?;
    if out != *x {
        return Err(
            s.error(format!("{x} arrives and its layers make {out} of it; the two are added and must be equal"))
        );
    }
    Ok((Op::Residual(layers), out))
}
