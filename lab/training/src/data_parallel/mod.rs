//! One training step divided among many devices, each with a share of the batch: data parallelism, and ZeRO, which divides the model states as well.
//!
//! A *rank* is a process with a device of its own. Each simulated rank really runs, on `meta`: its network, graph, optimizer and buffers are
//! allocated on a device of its own, and what it holds is read from that device's ledger. Only the communication among ranks is counted instead of
//! done. Ranks are alike, because shards are padded to one size: any number of ranks takes the time of two, the first and the last.
//!
//! - [`Stage::Replicated`] (0): PyTorch's `DistributedDataParallel`, gradients all-reduced in buckets (`reducer`). A single rank is the ordinary run.
//! - [`Stage::OptimizerStates`] (1), [`Stage::Gradients`] (2), [`Stage::Parameters`] (3): the stages of ZeRO (Rajbhandari et al. 2020, arXiv
//!   1910.02054). Parameters are in flat arrays, one per *unit*, padded and cut into one shard per rank, as in PyTorch's FSDP (Zhao et al. 2023,
//!   arXiv 2304.11277). A unit is a piece of the network; in stage 3 the first and the last piece are one unit if they share the token table. The
//!   optimizer works on shards. In stage 1 gradients are reduce-scattered unit by unit when the optimizer begins. From stage 2 on each gradient is
//!   copied into its unit's bucket as it comes, and freed; with the unit's last gradient the bucket is reduce-scattered and freed (DeepSpeed's
//!   `contiguous_gradients`, with a unit for a bucket). In stage 3 a unit's parameters are all-gathered before it runs and freed after it, forward
//!   and backward. Nothing is prefetched: a prefetched unit would take its memory once more.
//! - With `master_weights` the optimizer has float32 copies of the 16-bit parameters, as in the ZeRO paper and in DeepSpeed: its step widens the
//!   gradients, and narrows the updated copies.
//!
//! Frozen parameters have no gradients, buckets or states. In stage 3 those of a unit's type are a unit beside it: it is freed with the gradient of the
//! piece's input. In stages 1 and 2 they are whole on every rank.
//!
//! With accumulation, stages 0 and 1 communicate once per step (`no_sync`), stages 2 and 3 once per micro-batch, since they do not keep whole
//! gradients.

mod accounting;
mod broadcast;
mod build;
mod built;
mod collective;
mod optimizer;
mod partition;
mod rank;
mod reducer;
mod settings;
mod sharded;
mod tally;
mod unit;

pub use accounting::{Accounting, TABLE_1, TABLE_1_PARAMETERS, printed};
pub use collective::{Collective, Sent};
pub use partition::Partition;
pub use rank::{DataParallelResult, Rank, RankFigures, Share, train, train_each};
pub use settings::{DataParallelSettings, Stage};
pub use tally::ModelStates;
pub use unit::Gathering;
