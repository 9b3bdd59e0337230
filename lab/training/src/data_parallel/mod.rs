//! One training step divided among many devices that each have a share of the batch: data parallelism, and ZeRO, which divides what the model
//! takes as well.
//!
//! A *rank* is a process with a device of its own. Each is run for real, on `meta`: its network, its graph, its optimizer and its buffers are
//! allocated on a device of its own, and what it holds is read off that device's ledger. Only what ranks would tell each other is counted and not
//! told. Ranks are alike: shards are padded to one size, so any number of ranks takes the time of two, the first and the last.
//!
//! - [`Stage::Replicated`] (0): PyTorch's `DistributedDataParallel`, gradients all-reduced in buckets (`reducer`). One rank alone is the ordinary run.
//! - [`Stage::OptimizerStates`] (1), [`Stage::Gradients`] (2), [`Stage::Parameters`] (3): the stages of ZeRO (Rajbhandari et al. 2020,
//!   arXiv 1910.02054). Parameters lie in flat arrays, one per *unit*, padded and cut into one shard per rank, as in PyTorch's FSDP (Zhao et al. 2023,
//!   arXiv 2304.11277); a unit is a piece of the network (where the last piece has the first one's token table, both together, in stage 3). The optimizer works on shards. In stage 1 gradients are reduce-scattered unit by
//!   unit when the optimizer begins. From stage 2 on each is copied into its unit's bucket as it comes and freed; with the unit's last one the bucket
//!   is reduce-scattered and goes (DeepSpeed's `contiguous_gradients`, with a unit for a bucket). In stage 3 a unit's parameters are
//!   all-gathered before it runs and freed after it, forward and backward. Nothing is gathered ahead of its time: a prefetched unit would be there
//!   once more.
//! - With `master_weights` the optimizer has float32 copies of the 16-bit parameters, as in the ZeRO paper and in DeepSpeed: its step widens the
//!   gradients, and narrows what it made of the copies.
//!
//! With accumulation stages 0 and 1 communicate once per step (`no_sync`), stages 2 and 3 once per micro-batch, as they have no room for whole
//! gradients.

mod accounting;
mod build;
mod collective;
mod optimizer;
mod partition;
mod rank;
mod reducer;
mod settings;
mod tally;
mod unit;

pub use accounting::{Accounting, TABLE_1, TABLE_1_PARAMETERS, printed};
pub use collective::{Collective, Sent};
pub use partition::Partition;
pub use rank::{DataParallelResult, Rank, RankFigures, train};
pub use settings::{DataParallelSettings, Stage};
pub use tally::ModelStates;
