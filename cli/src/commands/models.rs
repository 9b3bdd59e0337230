//! `vramlab models`: the networks that have a name.

use lab::huggingface::{Configuration, Known, MODEL_TYPES, Options};
use lab::models::{ALL, Architecture, ModelOptions};
use lab::results::{ListedModel, ModelsResult};

use crate::args::ModelsArgs;
use crate::exit::{Code, Result};
use crate::output;
use crate::ui::Ui;

/// Lists the networks with their layers and sizes, and the types of `config.json` that are read.
pub(super) fn run(args: &ModelsArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    output::deliver_findings(ui, &args.output, None, &listed()?)?;
    Ok(Code::Done)
}

/// Every network that has a name.
///
/// # Errors
/// None that a build of this program has: its networks can be read.
pub(super) fn listed() -> lab::Result<ModelsResult> {
    let models = ALL.iter().map(|(name, network)| {
        let description = network(&ModelOptions::default())?.description();
        Ok(ListedModel { name: (*name).into(), description })
    });
    let mut models = models.collect::<lab::Result<Vec<_>>>()?;
    let known = lab::huggingface::known().iter().map(described);
    models.extend(known.collect::<lab::Result<Vec<_>>>()?);
    let recorded = lab::exported::listed()?.into_iter();
    models.extend(recorded.map(|one| ListedModel { name: one.name.into(), description: one.description }));
    Ok(ModelsResult { models, model_types: MODEL_TYPES.map(String::from).to_vec() })
}

/// A network of transformers that is known by name: its layers, its parameters and its class.
fn described(one: &'static Known) -> lab::Result<ListedModel> {
    let model = Configuration::Known(one).load(&Options::default())?;
    let count = match one.parameters {
        count @ 1_000_000_000.. => format!("{:.2} billion", count as f64 / 1e9),
        count => format!("{} million", (count + 500_000) / 1_000_000),
    };
    let description = format!("{count} parameters: {}", model.description());
    Ok(ListedModel { name: one.name.clone(), description })
}
