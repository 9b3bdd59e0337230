//! An exported network that was read: it can be built on a device.

use std::path::Path;
use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Defaults, Recompute, Task};
use memcore::DType;
use memcore::nn::{Init, Module, Parameter};

use super::archive;
use super::blocks::{in_words, modules, repeated};
use super::contents::Contents;
use super::inputs::{Content, Input};
use super::loss::{Chosen, LossName};
use super::network::{Network, parameter_order};
use super::operators::{self, Property};
use super::pieces::Pieces;
use super::program::{Node, Program};
use super::read::Read;
use super::regions::Regions;
use super::signature::{InputKind, StateKind, StateTensor};
use super::sizes::Sizes;
use super::stages::described;

/// An exported network, before it is on a device.
pub struct Exported {
    read: Arc<Read>,
    /// Sizes of the inputs, with the tokens of the run.
    sizes: Sizes,
    /// Loss that a training minimises.
    pub loss: Chosen,
    /// Modules that are computed again in the backward pass.
    again: Arc<Regions>,
    /// The discriminator that the network is trained against, as its generator; `None` for a network that is trained alone.
    adversary: Option<Box<Exported>>,
}

/// True if a file begins as a zip archive, which an export is.
pub fn is_export(path: &Path) -> bool {
    archive::is_archive(path)
}

/// Modules of PyTorch that call one kernel for all of themselves under `model.eval()`, without gradients.
const FAST_PATHS: [&str; 2] =
    ["torch.nn.modules.transformer.Transformer", "torch.nn.modules.activation.MultiheadAttention"];

/// Refuses a regular file that has the ending of an export, `.pt2`, and is none.
///
/// # Errors
/// [`Error::Usage`] naming the file.
pub fn check_ending(path: &Path) -> Result<()> {
    let is_named = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("pt2"));
    if is_named && path.is_file() && !is_export(path) {
        let problem = "is not an export: torch.export.save writes a zip archive, and this file does not begin as one";
        return Err(Error::usage(path.display().to_string(), problem));
    }
    Ok(())
}

/// What is trained, and how, in a sentence.
const IN_TURNS: &str = "The two networks are trained in turns as in PyTorch's tutorial of DCGAN: binary cross entropy of the scores, which are \
                                taken to be probabilities, an optimizer each, the discriminator's step first.";

/// Note on a file without lifetimes. The figures are those of the table in `docs/evidence-import.md`.
const GRAPH_ALONE: &str = "The file does not say when Python drops each value, so the peak may be 0.3 % lower to 5 % higher (of 68 networks most \
                           were the same). A file of `vramlab.export` says it.";

impl Exported {
    /// The network of a file that was read, with the loss that is asked for.
    ///
    /// # Errors
    /// A loss that does not fit the network's outputs.
    pub(super) fn from_read(read: Arc<Read>, loss: Option<LossName>) -> Result<Self> {
        let sizes = read.sizes.clone();
        let outputs = sizes.known_outputs(&read.contents.signature.outputs);
        let loss = Chosen::choose(&outputs, loss, &read.contents.file)?;
        Ok(Self { read, sizes, loss, again: Arc::default(), adversary: None })
    }

    /// The same network with examples of so many tokens.
    ///
    /// # Errors
    /// An export that fixes the number, or that does not allow this one.
    pub fn of_length(self, tokens: usize) -> Result<Self> {
        let sizes = self.sizes.of_length(tokens)?;
        let Contents { signature, file, .. } = &self.read.contents;
        let loss = self.loss.kind.filter(|_| self.loss.said);
        let loss = Chosen::choose(&sizes.known_outputs(&signature.outputs), loss, file)?;
        Ok(Self { sizes, loss, ..self })
    }

    /// True if the graph computes attention with one kernel, `scaled_dot_product_attention`.
    pub fn has_fused_attention(&self) -> bool {
        let is = |target: &str| target.starts_with("scaled_dot_product_attention.");
        self.read.contents.program.first(&is).is_some()
    }

    /// The same network with modules that are computed again in the backward pass.
    ///
    /// # Errors
    /// Modules that the network does not have, or whose operators do not follow one another.
    pub fn recomputing(self, recompute: &Recompute) -> Result<Self> {
        Ok(Self { again: self.read.again(recompute)?, ..self })
    }

    /// The same network as a generator, which is trained in turns with this discriminator.
    ///
    /// # Errors
    /// Networks that do not fit each other, and modules that are computed again.
    pub fn against(self, discriminator: Exported) -> Result<Self> {
        if !self.again.modules.is_empty() {
            return Err(Error::usage("checkpoint", "vramlab does not support it with --adversary"));
        }
        match misfit(&self, &discriminator) {
            Some(problem) => Err(Error::usage("adversary", problem)),
            None => Ok(Self { adversary: Some(Box::new(discriminator)), ..self }),
        }
    }

    /// The discriminator that the network is trained against.
    pub fn adversary(&self) -> Option<&Exported> {
        self.adversary.as_deref()
    }

    /// Sizes of the output that a loss is computed from, for a batch; `None` if they are not known.
    pub(super) fn output_dims(&self, batch: usize) -> Option<Vec<usize>> {
        let expected = self.read.contents.signature.outputs.get(self.loss.output)?.expected.as_ref()?;
        let (first, rest) = expected.dims.split_first()?;
        std::iter::once(Some(first.unwrap_or(batch))).chain(rest.iter().copied()).collect()
    }

    /// Inputs of the network, in the order of the graph.
    pub fn inputs(&self) -> &[Input] {
        &self.read.inputs
    }

    /// Sizes of the inputs.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Names the blocks of the network that repeat, as `h.0–11`; `None` if it has none.
    pub fn blocks(&self) -> Option<String> {
        let modules = modules(&self.read.contents.program);
        let blocks = repeated(&modules);
        (!blocks.is_empty()).then(|| in_words(blocks))
    }

    /// The pieces that the network is cut into for several devices: the modules of each, by path, the one that it begins with first.
    pub fn pieces(&self) -> Vec<Vec<String>> {
        Pieces::from_program(&self.read.contents.program).all.into_iter().map(|piece| piece.modules).collect()
    }

    /// Names the pieces by their numbers: `0: wte, wpe; 1–12: h.0–11; 13: ln_f`.
    pub fn pieces_in_words(&self) -> String {
        described(&Pieces::from_program(&self.read.contents.program))
    }

    /// Returns the notes of a run: the loss, the modules that are computed again, unknown lifetimes, the one call if the file records it, what is
    /// assumed of operators or left out, the sizes from the example, the parameters taken to be tied.
    pub fn notes(&self) -> Vec<String> {
        let size =
            |(symbol, value): (&str, i64)| format!("The size {symbol} is {value}, as in the example of the export.");
        let tied = |(first, second): &(String, String)| {
            format!(
                "The graph does not use one of {first} and {second}, and the file has no weights: they are taken to be one (tied)."
            )
        };
        let sizes = self.sizes.others().map(size);
        let recorded = self.sizes.is_recorded.then(|| {
            format!(
                "The file is one recorded call: the batch is {}, and branches that depend on values are those of that call.",
                self.sizes.example
            )
        });
        let unread = |text: &String| {
            format!("A condition of the export on its sizes is not understood, and is not checked: {text}.")
        };
        let unread = self.sizes.unread().iter().map(unread);
        let graph_alone = (!self.read.knows_lifetimes).then(|| GRAPH_ALONE.to_string());
        let again = (!self.again.modules.is_empty()).then(|| {
            format!(
                "Computed again in the backward pass (--checkpoint): {}.",
                in_words(self.again.modules.iter().map(String::as_str))
            )
        });
        let of_operators = self.read.of_operators.iter().map(|note| (*note).to_string());
        let loss = match self.adversary {
            Some(_) => IN_TURNS.to_string(),
            None => self.loss.sentence(),
        };
        std::iter::once(loss)
            .chain(again)
            .chain(graph_alone)
            .chain(recorded)
            .chain(of_operators)
            .chain(sizes)
            .chain(unread)
            .chain(self.read.contents.signature.taken_as_one.iter().map(tied))
            .collect()
    }

    /// True if no parameter is frozen.
    pub fn trains_all(&self) -> bool {
        let state = &self.read.contents.signature.state;
        !state.iter().any(|tensor| tensor.kind == StateKind::Parameter { trained: false })
    }

    /// Parameters that layers share, each with another name of it.
    pub fn shared_names(&self) -> Vec<(String, String)> {
        self.read.contents.signature.shared.clone()
    }

    /// Returns the type of the trained parameters.
    pub fn dtype(&self) -> DType {
        self.read.contents.dtype
    }

    /// Returns the type that some trained parameters have beside [`dtype`](Self::dtype).
    pub fn other_type(&self) -> Option<DType> {
        self.read.contents.other_type
    }

    /// Returns the contents of the file.
    pub(super) fn contents(&self) -> &Contents {
        &self.read.contents
    }

    /// Modules that are computed again in the backward pass.
    pub(super) fn again(&self) -> &Arc<Regions> {
        &self.again
    }

    /// Returns the path of a trained parameter that the graph does not use, under none of its names.
    pub(super) fn without_gradient(&self) -> Option<&str> {
        let Contents { signature, program, .. } = &self.read.contents;
        let state = &signature.state;
        let mut is_used = vec![false; state.len()];
        for (kind, used) in signature.inputs.iter().zip(program.used_inputs()) {
            if let InputKind::State(number) = kind {
                is_used[state[*number].same_as.unwrap_or(*number)] |= used;
            }
        }
        let is_trained =
            |tensor: &StateTensor| tensor.kind == StateKind::Parameter { trained: true } && tensor.same_as.is_none();
        let unused = state.iter().zip(is_used).find(|(tensor, used)| is_trained(tensor) && !used);
        unused.map(|(tensor, _)| tensor.path.as_str())
    }

    /// Builds the network on the device of `init`.
    ///
    /// # Errors
    /// Values that the file does not have or that cannot be read; those of the device.
    pub(super) fn network(&self, init: &Init) -> memcore::Result<Network> {
        self.network_of(init, &|_| init.clone())
    }

    /// Builds the network, each of its tensors, by their numbers, through the `Init` that `at` returns.
    ///
    /// # Errors
    /// Those of [`network`](Self::network).
    pub(super) fn network_of(&self, init: &Init, at: &dyn Fn(usize) -> Init) -> memcore::Result<Network> {
        Network::new(&self.read.contents, self.again.clone(), self.loss.output, init, at)
    }

    /// True if the network can be trained on a data set: it has one input, of floats, and a cross entropy outside the network.
    pub(super) fn takes_examples(&self) -> bool {
        self.read.inputs.len() == 1
            && self.read.inputs[0].content == Content::Floats
            && matches!(self.loss.task(), lab_models::Loss::CrossEntropy { .. })
    }

    fn parameters(&self) -> usize {
        let is_one = |kind: StateKind| matches!(kind, StateKind::Parameter { .. });
        self.read
            .contents
            .signature
            .state
            .iter()
            .filter(|tensor| is_one(tensor.kind) && tensor.same_as.is_none())
            .count()
    }
}

impl Architecture for Exported {
    fn name(&self) -> &str {
        &self.read.name
    }

    fn description(&self) -> String {
        let torch = self.read.torch.as_ref().map(|torch| format!(", exported by torch {torch}")).unwrap_or_default();
        let own = format!(
            "{} operators, {} parameter tensors{torch}",
            self.read.contents.program.nodes.len(),
            self.parameters()
        );
        match &self.adversary {
            Some(other) => format!("{own}; against {}: {}", other.read.name, other.description()),
            None => own,
        }
    }

    fn task(&self) -> Task {
        let first = self.read.inputs.first();
        let dims = first.and_then(|input| input.dims(&self.sizes, self.sizes.example)).unwrap_or_default();
        let rest = dims.get(1..).unwrap_or_default().to_vec();
        let input = match first.map(|input| input.content) {
            Some(Content::Below(vocabulary)) if rest.len() == 1 => {
                lab_models::Input::Tokens { length: rest[0], vocabulary }
            }
            _ => lab_models::Input::Values(rest),
        };
        Task { input, loss: self.loss.task() }
    }

    fn defaults(&self) -> Defaults {
        let (optimizer, lr) = if self.adversary.is_some() { ("adam", 2e-4) } else { ("adamw", 1e-3) };
        Defaults { batch: self.sizes.example, optimizer, lr }
    }

    fn check(&self, batch: usize, _: DType) -> Result<()> {
        self.sizes.check(batch)?;
        match self.read.inputs.iter().find(|input| input.dims(&self.sizes, batch).is_none()) {
            Some(input) => {
                Err(Error::usage("batch", format!("{batch}: the input {} is beyond what 64 bits count", input.name)))
            }
            None => Ok(()),
        }
    }

    /// Builds a module of one tensor. The network must have one input, and a loss outside it that takes targets.
    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        let has_task = self.loss.task() != lab_models::Loss::Inside;
        if self.read.inputs.len() != 1 || !has_task {
            let problem = "is a module of one tensor only with one input and --loss cross-entropy or mse";
            return Err(memcore::Error::invalid(self.read.contents.file.clone(), problem));
        }
        Ok(Box::new(self.network(init)?))
    }

    fn indivisible(&self) -> Option<&'static str> {
        if self.adversary.is_some() {
            return Some("two networks that are trained in turns are on one device here");
        }
        Some("an exported graph is not a chain of modules; exported::train_split cuts it into stages")
    }

    fn not_evaluated(&self) -> Option<String> {
        if self.adversary.is_some() {
            return Some("vramlab does not support it with --adversary".into());
        }
        let Contents { program, signature, evaluation, .. } = &self.read.contents;
        match evaluation {
            None => not_the_same(program),
            Some(Err(problem)) => Some(format!("the network under model.eval() is not supported: {problem}")),
            Some(Ok(evaluation)) => fast_path(&evaluation.program)
                .or_else(|| evaluation.without_output(self.loss.output, signature).map(|problem| problem + REHEARSED)),
        }
    }

    fn not_channels_last(&self) -> Option<String> {
        let dims = |input: &Input| input.dims(&self.sizes, self.sizes.example);
        let is_picture =
            |input: &Input| input.content == Content::Floats && dims(input).is_some_and(|dims| dims.len() == 4);
        let pictures = self.read.inputs.iter().any(is_picture);
        (!pictures).then(|| "the export has no input of four dimensions, which a picture is".into())
    }

    fn one_length(&self) -> Option<&'static str> {
        Some("an export has examples of one length in a run: --sequence")
    }

    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        parameter_order(&self.read.contents.signature.state, parameters)
    }
}

/// What to do where no export says what an evaluation takes.
const REHEARSED: &str = "; instead: vramlab predict train.py, which rehearses the script";

/// Why the graph of a training does not say what an evaluation takes; `None` if both are one.
fn not_the_same(program: &Program) -> Option<String> {
    if let Some(problem) = fast_path(program) {
        return Some(problem);
    }
    let trains = program.trains_otherwise();
    // Recorded beside eager PyTorch, an evaluation with batch norm took 0.8 % more than the graph says, one with dropout 1,536 bytes.
    let otherwise = |target: &str| ["batch_norm.", "dropout."].iter().any(|begin| target.starts_with(begin));
    let is_unknown = |name: &str| {
        operators::has(name, Property::Draws) || trains && (operators::has(name, Property::Layers) || otherwise(name))
    };
    let (operator, place) = program.first(&is_unknown)?;
    Some(format!(
        "the export computes {operator} in {place} as in training; the graph does not say what it is under model.eval(), which \
         vramlab.export of this release writes beside it: vramlab.export(model.train(), inputs, path=\"model.pt2\")"
    ))
}

/// Refuses a module whose path on a card is not the graph's.
fn fast_path(program: &Program) -> Option<String> {
    let is_of = |node: &&Node| FAST_PATHS.iter().any(|name| node.modules.contains(name));
    let node = program.nodes.iter().find(is_of)?;
    Some(format!(
        "the export computes {} in {}, which is of a module of PyTorch that takes another path under model.eval(){REHEARSED}",
        node.target, node.place
    ))
}

/// Why a network cannot be the adversary of a generator; `None` if it can.
fn misfit(generator: &Exported, discriminator: &Exported) -> Option<String> {
    let one_of_floats = |model: &Exported| model.inputs().len() == 1 && model.inputs()[0].content == Content::Floats;
    if !one_of_floats(generator) || !one_of_floats(discriminator) {
        return Some("both networks take one input of floats each".into());
    }
    let batch = generator.sizes().example;
    let pictures = generator.output_dims(batch);
    let wanted = discriminator.inputs()[0].dims(discriminator.sizes(), batch);
    if pictures.is_none() || pictures != wanted {
        let of = |dims: &Option<Vec<usize>>| {
            dims.as_ref().map_or("sizes that are not known".into(), |dims| format!("{dims:?}"))
        };
        return Some(format!("the generator gives {}, and the discriminator takes {}", of(&pictures), of(&wanted)));
    }
    let scores = discriminator.output_dims(batch).unwrap_or_default();
    (scores.iter().product::<usize>() != batch || scores.is_empty())
        .then(|| format!("the discriminator gives {scores:?}, and has to give one score for each of {batch} pictures"))
}
