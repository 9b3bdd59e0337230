//! Low-rank adapters (LoRA, DoRA) beside layers whose own weights are not trained: linear layers and convolutions, and tables of embeddings.

mod dora;
mod low_rank;
mod projections;
mod table;

pub use dora::Base;
pub use low_rank::LowRankAdapter;
pub(super) use table::TableAdapter;
