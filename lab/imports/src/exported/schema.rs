//! The JSON of `torch.export.save`, as PyTorch's `torch/_export/serde/schema.py` defines it; only the parts that are needed here. Unknown keys are
//! passed over. Unknown kinds of arguments are kept by name, so that an error can name them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// The whole of `models/NAME.json`.
#[derive(Deserialize)]
pub(super) struct ExportedProgram {
    pub graph_module: GraphModule,
    pub schema_version: SchemaVersion,
    #[serde(default)]
    pub range_constraints: BTreeMap<String, Range>,
    pub torch_version: Option<String>,
    /// Conditions on the sizes of the inputs, as expressions of Python.
    #[serde(default)]
    pub guards_code: Vec<String>,
}

/// Version of the schema that a file is written in.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct SchemaVersion {
    pub major: u64,
    pub minor: u64,
}

/// Smallest and largest value of a symbol; a bound that is not a number is read as no bound.
#[derive(Default, Deserialize)]
pub(super) struct Range {
    #[serde(default, deserialize_with = "bound")]
    pub min_val: Option<i64>,
    #[serde(default, deserialize_with = "bound")]
    pub max_val: Option<i64>,
}

fn bound<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_i64())
}

#[derive(Deserialize)]
pub(super) struct GraphModule {
    pub graph: Graph,
    pub signature: Signature,
}

/// A graph: the exported one, or one inside of a node.
#[derive(Deserialize)]
pub(super) struct Graph {
    /// Name of the region that it is inside of; empty for the exported one.
    #[serde(skip)]
    pub name: String,
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    pub nodes: Vec<Node>,
    #[serde(default)]
    pub tensor_values: BTreeMap<String, TensorMeta>,
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub target: String,
    pub inputs: Vec<NamedArgument>,
    pub outputs: Vec<Argument>,
    #[serde(default)]
    pub metadata: BTreeMap<String, serde_json::Value>,
}

impl Node {
    /// Returns an entry of the node's metadata as text.
    pub(super) fn metadata(&self, key: &str) -> &str {
        self.metadata.get(key).and_then(serde_json::Value::as_str).unwrap_or_default()
    }
}

#[derive(Deserialize)]
pub(super) struct NamedArgument {
    #[serde(default)]
    pub name: String,
    pub arg: Argument,
}

/// Sizes, strides and type of a tensor.
#[derive(Clone, Deserialize)]
pub(super) struct TensorMeta {
    pub dtype: i64,
    pub sizes: Vec<Size>,
    #[serde(default)]
    pub strides: Vec<Size>,
    #[serde(default)]
    pub storage_offset: Option<Size>,
    #[serde(default)]
    pub requires_grad: bool,
}

/// A number, or an expression of symbols with its value in the example.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Size {
    AsInt(i64),
    AsExpr(Expression),
}

#[derive(Clone, Deserialize)]
pub(super) struct Expression {
    pub expr_str: String,
    #[serde(default)]
    pub hint: Option<Hint>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Hint {
    #[serde(default)]
    pub as_int: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct Signature {
    pub input_specs: Vec<BTreeMap<String, InputSpec>>,
    pub output_specs: Vec<BTreeMap<String, serde_json::Value>>,
}

/// One input of the graph. The key of its entry says what kind of input it is.
#[derive(Deserialize)]
pub(super) struct InputSpec {
    #[serde(default)]
    pub parameter_name: Option<String>,
    #[serde(default)]
    pub buffer_name: Option<String>,
    #[serde(default)]
    pub tensor_constant_name: Option<String>,
}

/// Contents of `model_weights_config.json` and of `model_constants_config.json`.
#[derive(Default, Deserialize)]
pub(super) struct WeightsConfig {
    pub config: BTreeMap<String, WeightEntry>,
}

#[derive(Deserialize)]
pub(super) struct WeightEntry {
    pub path_name: String,
    #[serde(default)]
    pub use_pickle: bool,
    pub tensor_meta: TensorMeta,
}

/// A number of the graph: given in the file, or the value of this name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Given(i64),
    Named(String),
}

/// An argument or a result of a node.
pub(super) enum Argument {
    None,
    Tensor(String),
    Tensors(Vec<Option<String>>),
    Int(i64),
    Float(f64),
    Floats(Vec<f64>),
    Bool(bool),
    Bools,
    Text(String),
    /// A number that the graph computes.
    Named(String),
    Numbers(Vec<Number>),
    /// A `ScalarType`.
    Type(i64),
    MemoryFormat(i64),
    Layout,
    Device,
    Graph(Box<Graph>),
    /// The name of a kind that is not supported.
    Other(String),
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Inside {
    #[serde(default)]
    name: String,
    graph: Graph,
}

/// A float. JSON has no infinities and no NaN, so they are read from text.
struct Float(f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(Self(value)),
            Written::Text(text) => match text.as_str() {
                "Infinity" => Ok(Self(f64::INFINITY)),
                "-Infinity" => Ok(Self(f64::NEG_INFINITY)),
                "NaN" => Ok(Self(f64::NAN)),
                _ => Err(serde::de::Error::custom(format!("{text:?} for a number"))),
            },
        }
    }
}

/// A union of the schema with one key.
#[derive(Deserialize)]
enum Symbolic {
    #[serde(rename = "as_name")]
    Name(String),
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_bool")]
    Bool(bool),
    #[serde(rename = "as_float")]
    Float(Float),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum MaybeTensor {
    AsTensor(Name),
    AsNone(IgnoredAny),
}

impl MaybeTensor {
    fn name(self) -> Option<String> {
        match self {
            Self::AsTensor(tensor) => Some(tensor.name),
            Self::AsNone(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ArgumentVisitor)
    }
}

struct ArgumentVisitor;

impl<'de> Visitor<'de> for ArgumentVisitor {
    type Value = Argument;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an argument, such as {\"as_int\": 1}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Argument, A::Error> {
        let Some(kind) = map.next_key::<String>()? else {
            return Err(serde::de::Error::custom("an argument of no kind"));
        };
        let argument = read(&kind, &mut map)?;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(argument)
    }
}

fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Argument, A::Error> {
    let given = |numbers: Vec<i64>| Argument::Numbers(numbers.into_iter().map(Number::Given).collect());
    Ok(match kind {
        "as_tensor" => Argument::Tensor(map.next_value::<Name>()?.name),
        "as_tensors" => {
            Argument::Tensors(map.next_value::<Vec<Name>>()?.into_iter().map(|tensor| Some(tensor.name)).collect())
        }
        "as_optional_tensor" => map.next_value::<MaybeTensor>()?.name().map_or(Argument::None, Argument::Tensor),
        "as_optional_tensors" => {
            let tensors = map.next_value::<Vec<MaybeTensor>>()?;
            Argument::Tensors(tensors.into_iter().map(MaybeTensor::name).collect())
        }
        "as_int" => Argument::Int(map.next_value()?),
        "as_ints" => given(map.next_value()?),
        "as_float" => Argument::Float(map.next_value::<Float>()?.0),
        "as_floats" => Argument::Floats(map.next_value::<Vec<Float>>()?.into_iter().map(|value| value.0).collect()),
        "as_bool" => Argument::Bool(map.next_value()?),
        "as_bools" => {
            map.next_value::<Vec<bool>>()?;
            Argument::Bools
        }
        "as_string" => Argument::Text(map.next_value()?),
        "as_scalar_type" => Argument::Type(map.next_value()?),
        "as_memory_format" => Argument::MemoryFormat(map.next_value()?),
        "as_sym_int" | "as_sym_bool" | "as_sym_float" => symbolic(map.next_value()?),
        "as_sym_ints" => {
            Argument::Numbers(map.next_value::<Vec<Symbolic>>()?.into_iter().map(number).collect::<Result<_, _>>()?)
        }
        "as_graph" => {
            let Inside { name, graph } = map.next_value()?;
            Argument::Graph(Box::new(Graph { name, ..graph }))
        }
        "as_none" | "as_device" | "as_layout" => {
            map.next_value::<IgnoredAny>()?;
            match kind {
                "as_none" => Argument::None,
                "as_device" => Argument::Device,
                _ => Argument::Layout,
            }
        }
        other => {
            map.next_value::<IgnoredAny>()?;
            Argument::Other(other.to_string())
        }
    })
}

fn symbolic(value: Symbolic) -> Argument {
    match value {
        Symbolic::Name(name) => Argument::Named(name),
        Symbolic::Int(value) => Argument::Int(value),
        Symbolic::Bool(value) => Argument::Bool(value),
        Symbolic::Float(value) => Argument::Float(value.0),
    }
}

fn number<E: serde::de::Error>(value: Symbolic) -> Result<Number, E> {
    match value {
        Symbolic::Name(name) => Ok(Number::Named(name)),
        Symbolic::Int(value) => Ok(Number::Given(value)),
        Symbolic::Bool(_) | Symbolic::Float(_) => Err(E::custom("a list of numbers with something else in it")),
    }
}
