//! The ZeRO paper's arithmetic, to compare a ledger with.

use super::settings::{DataParallelSettings, Stage};
use super::tally::ModelStates;
use crate::OptimizerSettings;

/// Bytes for one trained value: the value, its gradient, and the optimizer's states for it.
///
/// Rajbhandari, Rasley, Ruwase and He, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models* (2020, arXiv 1910.02054), section 3.1:
/// 2 + 2 + 12 for Adam in mixed precision, whose optimizer keeps a float32 copy of the weights, momentum and variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounting {
    /// Bytes of the value that the network computes with.
    pub parameter: u64,
    /// Bytes of its gradient.
    pub gradient: u64,
    /// Bytes of the optimizer's states; the paper's K.
    pub optimizer: u64,
}

impl Accounting {
    /// The paper's figures for Adam in mixed precision.
    pub const MIXED_ADAM: Self = Self { parameter: 2, gradient: 2, optimizer: 12 };

    /// Figures for a run with these settings.
    pub fn from_settings(settings: &DataParallelSettings) -> Self {
        let size = settings.run.trained_dtype().size();
        let (wide, master) = if settings.master_weights { (4, 4) } else { (size, 0) };
        Self { parameter: size, gradient: size, optimizer: states(&settings.run.optimizer) * wide + master }
    }

    /// Bytes of model states on each of `ranks` devices for `parameters` values, rounded up: what the stage divides is divided, the rest is whole.
    /// The paper's `P_os`, `P_os+g` and `P_os+g+p`; no padding, no rounding of blocks, no activations, buffers or temporaries.
    pub fn model_states(self, parameters: u64, ranks: u64, stage: Stage) -> ModelStates {
        let part = |bytes: u64, divided: bool| (bytes * parameters).div_ceil(if divided { ranks.max(1) } else { 1 });
        ModelStates {
            parameter_bytes: part(self.parameter, stage.divides_parameters()),
            gradient_bytes: part(self.gradient, stage.divides_gradients()),
            optimizer_bytes: part(self.optimizer, stage.divides_states()),
        }
    }
}

/// Number of values that the optimizer keeps for each trained one.
fn states(optimizer: &OptimizerSettings) -> u64 {
    optimizer.kind.states() + u64::from(optimizer.amsgrad)
}

/// Parameters of the model that [`TABLE_1`] is about.
pub const TABLE_1_PARAMETERS: u64 = 7_500_000_000;

/// The paper's table 1 for a model of 7.5 billion parameters, as printed: number of devices, and decimal gigabytes of model states on each under
/// stages 1, 2 and 3.
pub const TABLE_1: [(u64, [f64; 3]); 6] = [
    (1, [120.0, 120.0, 120.0]),
    (4, [52.5, 41.3, 30.0]),
    (16, [35.6, 21.6, 7.5]),
    (64, [31.4, 16.6, 1.88]),
    (256, [30.4, 15.4, 0.47]),
    (1024, [30.1, 15.1, 0.12]),
];

/// Rounds gigabytes as the paper prints them: three digits, two decimals at most.
pub fn printed(bytes: u64) -> f64 {
    let gigabytes = bytes as f64 / 1e9;
    let decimals = if gigabytes >= 100.0 {
        1.0
    } else if gigabytes >= 9.995 {
        10.0
    } else {
        100.0
    };
    (gigabytes * decimals).round() / decimals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_give_the_papers_table() {
        for (ranks, expected) in TABLE_1 {
            for (stage, expected) in Stage::ALL[1..].iter().zip(expected) {
                let bytes = Accounting::MIXED_ADAM.model_states(TABLE_1_PARAMETERS, ranks, *stage).total();
                assert_eq!(printed(bytes), expected, "{ranks} {stage:?}: {bytes}");
            }
        }
        assert_eq!(Accounting::MIXED_ADAM.model_states(10, 4, Stage::Replicated).total(), 160);
    }
}
