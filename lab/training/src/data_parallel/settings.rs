//! Settings of a divided step.

use lab_base::error::{Error, Result};
use memcore::DType;
use serde::{Serialize, Serializer};

use crate::RunSettings;

/// What is divided among the ranks besides the batch. Each stage divides one thing more than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing: every rank has the whole model.
    #[default]
    Replicated,
    /// The optimizer's states: the paper's `P_os`.
    OptimizerStates,
    /// The gradients as well: `P_os+g`.
    Gradients,
    /// The parameters as well: `P_os+g+p`.
    Parameters,
}

impl Stage {
    /// All stages, by number.
    pub const ALL: [Self; 4] = [Self::Replicated, Self::OptimizerStates, Self::Gradients, Self::Parameters];

    /// Number of the stage: ZeRO-0 to ZeRO-3.
    pub fn number(self) -> usize {
        self as usize
    }

    /// Whether each rank keeps a shard of the optimizer's states.
    pub fn divides_states(self) -> bool {
        self >= Self::OptimizerStates
    }

    /// Whether each rank keeps a shard of the gradients.
    pub fn divides_gradients(self) -> bool {
        self >= Self::Gradients
    }

    /// Whether each rank keeps a shard of the parameters.
    pub fn divides_parameters(self) -> bool {
        self >= Self::Parameters
    }
}

impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.number() as u64)
    }
}

/// Settings of a step that is divided among ranks.
#[derive(Clone, Debug)]
pub struct DataParallelSettings {
    /// Settings as on one device. `batch` is the whole batch; each rank has an equal share of it.
    pub run: RunSettings,
    /// Number of ranks.
    pub ranks: usize,
    /// What is divided besides the batch.
    pub stage: Stage,
    /// True if the optimizer works on float32 copies of 16-bit parameters: mixed precision as in the ZeRO paper and in DeepSpeed.
    pub master_weights: bool,
    /// True if gradients are views of the buckets that they are reduced in (stage 0): the option of PyTorch's `DistributedDataParallel`.
    pub gradient_as_bucket_view: bool,
    /// True if every micro-batch's gradients are reduced, false if the reduction waits for the last one (`no_sync` for the others; stage 0).
    pub sync_each: bool,
}

impl DataParallelSettings {
    /// Fails for settings that cannot be combined.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the flag and why.
    pub fn check(&self) -> Result<()> {
        self.run.check()?;
        self.check_loop()?;
        let (batch, ranks) = (self.run.batch, self.ranks);
        if ranks == 0 || !batch.is_multiple_of(ranks) {
            let problem = format!(
                "{ranks} ranks and a batch of {batch}: the shares must be equal, or the mean of the gradients is not the batch's; --batch sets it"
            );
            return Err(Error::usage("data-parallel", problem));
        }
        if self.run.precision.scales_loss() && self.stage != Stage::Replicated {
            let problem = "autocast-fp16 scales the loss, and with ZeRO whether a step is skipped is one decision of all ranks, which \
                           divided runs do not make; autocast-bf16 needs no scale";
            return Err(Error::usage("precision", problem));
        }
        let kind = self.run.optimizer.kind;
        if kind.follows_shapes() && self.stage != Stage::Replicated {
            let problem =
                format!("{} with ZeRO: its states follow a parameter's shape, and a shard has none", kind.name());
            return Err(Error::usage("optimizer", problem));
        }
        if self.run.schedule.cast {
            return Err(Error::usage("data-parallel", "the schedule casts the model, whose parameters are flat here"));
        }
        if self.master_weights && self.run.precision.dtype() == DType::F32 {
            return Err(Error::usage("precision", "float32 parameters are their own master copy"));
        }
        if self.gradient_as_bucket_view && self.stage != Stage::Replicated {
            let problem =
                "buckets are DistributedDataParallel's; what a ZeRO stage from 1 on reduces into is not a gradient";
            return Err(Error::usage("gradient-as-bucket-view", problem));
        }
        if self.sync_each && self.stage != Stage::Replicated {
            let problem = "what a ZeRO stage from 1 on reduces is reduced after the last micro-batch here";
            return Err(Error::usage("sync-each", problem));
        }
        Ok(())
    }

    /// Refuses what the loop of a rank does not have.
    fn check_loop(&self) -> Result<()> {
        if self.stage != Stage::Replicated {
            return self.run.check_usual("with ZeRO");
        }
        let asked = [
            ("batches", !self.run.turns.batches.is_empty()),
            ("ema", self.run.ema.is_some()),
            ("channels-last", self.run.channels_last),
        ];
        if let Some((field, _)) = asked.into_iter().find(|(_, asked)| *asked) {
            return Err(Error::usage(field, "vramlab does not support it among several ranks"));
        }
        let evaluated = self.run.evaluation.map_or(0, |evaluation| evaluation.batch);
        if self.ranks > 0 && !evaluated.is_multiple_of(self.ranks) {
            let problem = format!("{evaluated} examples are not divided evenly among {} ranks", self.ranks);
            return Err(Error::usage("eval-batch", problem));
        }
        Ok(())
    }

    /// Number of examples per rank.
    pub fn share(&self) -> usize {
        self.run.batch / self.ranks.max(1)
    }

    /// Ranks that really run: the first and the last. The others hold the same as these, since shards are padded to one size; so any number of ranks
    /// takes the time of two.
    pub fn shown(&self) -> Vec<usize> {
        let mut shown = vec![0, self.ranks.saturating_sub(1)];
        shown.dedup();
        shown
    }
}
