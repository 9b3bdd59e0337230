//! Common part of every training loop of such a network: the network, its parameters, and the source of batches.

use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_training::data::Split;
use lab_training::{Accuracy, RunSettings, Source, Update, evaluate_with};
use memcore::Device;
use memcore::nn::{Parameter, Training, trained_values};

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
    pub(super) optimized: Vec<Parameter>,
    pub(super) batches: Batches,
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
        settings: &RunSettings,
        source: Source,
        update: impl FnOnce(&RunSettings, &[Parameter]) -> Result<Update>,
    ) -> Result<(Self, Update)> {
        settings.check()?;
        settings.check_network(model, settings.batch)?;
        device.phase("model");
        settings.check_device(device)?;
        let (network, init) = settings.built(device, |init| model.network(init))?;
        let network = Arc::new(network);
        let parameters = settings.in_optimizer_order(model, init.parameters());
        let update = update(settings, &parameters)?;
        let parts = (parameters, init.training(), &update);
        Ok((Self::around(model, device, network, parts, settings, source), update))
    }

    /// Wraps a network that is on a device, with its parameters, its switch, and what updates them.
    pub(super) fn around(
        model: &Pretrained,
        device: &Device,
        network: Arc<Network>,
        (parameters, training, update): (Vec<Parameter>, Training, &Update),
        settings: &RunSettings,
        source: Source,
    ) -> Self {
        let optimized = update.optimizer().map_or_else(|| parameters.clone(), |known| known.parameters().to_vec());
        let batches = Batches::new(model, device, settings, source);
        Self { device: device.clone(), network, parameters, optimized, batches, training }
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
    pub(super) fn accuracy(&self, settings: &RunSettings) -> Result<Option<Accuracy>> {
        let Source::Dataset { data, .. } = self.batches.source() else { return Ok(None) };
        self.training.set(false);
        let accuracy = evaluate_with(self.batches.task(), data, Split::Test, settings.batch, |batch| {
            let output = self.network.forward(&self.batches.upload(batch)?)?;
            let missing = || Error::usage("data", "a network without scores has no classes to compare");
            output.logits.into_iter().next().ok_or_else(missing)
        });
        self.training.set(true);
        accuracy
    }
}
