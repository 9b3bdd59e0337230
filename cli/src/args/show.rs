//! Flags of `show`: a network from the inside.

use std::path::PathBuf;

use lab::run::{CardSpec, ModelSpec, ProfileSpec, RunSpec, TrainingSpec};
use lab::similar::did_you_mean;
use lab::training::Precision;

use super::{HtmlArgs, ModelArgs, OutputArgs, values};

/// Help of `--gpu` here, where its memory does not matter.
const GPU: &str =
    "The card: it decides which kernels PyTorch takes, and so what they save [default: one of compute capability 9.0]";

/// `vramlab show`
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("gpu", |arg| arg.help(GPU).value_name("NAME").help_heading("Model")))]
pub(crate) struct NetworkArgs {
    /// The network: a name, or a file (TOML, a `config.json` of transformers, a `.pt2` of torch.export) [default: simple-cnn].
    #[arg(value_name = "MODEL", conflicts_with_all = ["model", "model_file"], value_parser = which)]
    pub network: Option<Which>,
    #[command(flatten)]
    pub model: ModelArgs,
    /// Examples [default: the model's].
    #[arg(long, help_heading = values::MOST_USED, value_name = "N")]
    pub batch: Option<usize>,
    /// Types: float32, float32 with products in a 16-bit type (autocast), or a 16-bit type throughout [default: the file's, or fp32].
    #[arg(long, value_name = "TYPE", value_parser = values::one_of::<Precision>(Precision::NAMES))]
    pub precision: Option<Precision>,
    #[command(flatten)]
    pub card: CardSpec,
    #[command(flatten)]
    pub profile: ProfileSpec,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What a word names.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// A network of this program.
    Name(String),
    /// A file.
    File(PathBuf),
}

fn which(word: &str) -> Result<Which, String> {
    if let Some(name) = super::model::named(word).filter(|_| !std::path::Path::new(word).exists()) {
        return Ok(Which::Name(name.into()));
    }
    if word.contains(['.', '/', '\\']) || std::path::Path::new(word).exists() {
        return Ok(Which::File(word.into()));
    }
    let meant = did_you_mean(word, super::model::names());
    Err(format!("neither a file nor one of the networks of `vramlab info models`{meant}"))
}

impl NetworkArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        let model = self.model.spec.clone();
        let model = match self.network.clone() {
            None => model,
            Some(Which::Name(name)) => ModelSpec { model: Some(name), ..model },
            Some(Which::File(path)) => ModelSpec { model_file: Some(path), ..model },
        };
        RunSpec {
            model,
            training: TrainingSpec { batch: self.batch, precision: self.precision, ..TrainingSpec::default() },
            profile: self.profile.clone(),
            card: self.card.clone(),
            ..RunSpec::default()
        }
    }
}
