//! Common part of every training loop of such a network: the network, its optimizer, and the source of batches.

use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_training::data::Split;
use lab_training::{Accuracy, Parts, RunSettings, Source, Update, data_name, evaluate_with};
use memcore::Device;
use memcore::nn::{Init, Parameter, Training, trained_values};

use super::Pretrained;
use super::batches::Batches;
use super::network::Network;

/// A network on its device, ready for the first batch. Freed in the order of a script's variables.
pub(super) struct Prepared {
    pub(super) device: Device,
    pub(super) network: Arc<Network>,
    /// Parameters in the order of `model.parameters()`.
    pub(super) parameters: Vec<Parameter>,
    /// Parameters in the optimizer's order.
    optimized: Vec<Parameter>,
    pub(super) update: Update,
    pub(super) batches: Batches,
    pub(super) settings: RunSettings,
    /// Switch between training and evaluation.
    training: Training,
}

impl Prepared {
    /// Builds the network, in the phase `model`, and its optimizer.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot work; those of the device.
    pub(crate) fn new(
        model: &Pretrained,
        device: &Device,
        settings: RunSettings,
        source: Source,
        update: impl FnOnce(&RunSettings, &[Parameter]) -> Result<Update>,
    ) -> Result<Self> {
        settings.check()?;
        settings.check_network(model, settings.batch)?;
        device.phase("model");
        let init = settings.tuned(Init::new(device, settings.precision.dtype(), settings.seed));
        let network = Arc::new(model.network(&init)?);
        let parameters = settings.in_optimizer_order(model, init.parameters());
        let update = update(&settings, &parameters)?;
        Ok(Self::around(model, device, network, (parameters, init.training(), update), settings, source))
    }

    /// Wraps a network that is on a device, with its parameters in the optimizer's order, its switch, and what updates it.
    pub(super) fn around(
        model: &Pretrained,
        device: &Device,
        network: Arc<Network>,
        (parameters, training, update): (Vec<Parameter>, Training, Update),
        settings: RunSettings,
        source: Source,
    ) -> Self {
        let optimized = update.optimizer().map_or_else(|| parameters.clone(), |known| known.parameters().to_vec());
        let batches = Batches::new(model, device, &settings, source);
        Self { device: device.clone(), network, parameters, optimized, update, batches, settings, training }
    }

    /// Returns the state that its future depends on. These networks have no buffers that a file holds.
    pub(super) fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.device],
            copies: &[],
            parameters: &self.optimized,
            buffers: &[],
            update: &mut self.update,
            settings: &self.settings,
            data: data_name(self.batches.source()),
        }
    }

    /// `model.train()`, or `model.eval()`.
    pub(super) fn set_training(&self, trains: bool) {
        self.training.set(trains);
    }

    /// Number of trained values; shared ones count once.
    pub(super) fn parameter_count(&self) -> u64 {
        trained_values(&self.parameters)
    }

    /// Returns the accuracy on the test data, if there are any.
    pub(super) fn accuracy(&self) -> Result<Option<Accuracy>> {
        let Source::Dataset { data, .. } = self.batches.source() else { return Ok(None) };
        self.training.set(false);
        let accuracy = evaluate_with(self.batches.task(), data, Split::Test, self.settings.batch, |batch| {
            let output = self.network.forward(&self.batches.upload(batch)?)?;
            let missing = || Error::usage("data", "a network without scores has no classes to compare");
            output.logits.into_iter().next().ok_or_else(missing)
        });
        self.training.set(true);
        accuracy
    }
}
