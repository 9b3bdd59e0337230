//! History: the operations that made a tensor, the values that they keep for their gradients, and the flow of gradients
//! back.
//!
//! ```text
//!   Tensor = Array + Edge ──► Node (function, what it saved, edges to its inputs' nodes) ──► … ──► Leaf (gradient slot)
//! ```
//!
//! - *Tensors own nodes; nodes own the values that they save.* Saved values are arrays, and arrays have no history, so
//!   a node cannot be part of a cycle. Ownership alone decides what is kept, and holding a loss keeps its whole graph.
//! - *Creation order is a topological order.* Of the nodes whose consumers have all run, backward runs the one created
//!   last.
//! - *Right after a node has run,* its incoming gradients are released, then its saved values, unless the graph is
//!   retained.
//! - The device's [`Tape`](crate::tape::Tape) observes (weak references); it owns nothing.

mod autocast;
mod checkpoint;
mod copy_slices;
mod engine;
mod hooks;
mod kept;
mod mode;
mod node;
mod offload;
mod record;
mod saved;
mod tensor;

pub use autocast::{Autocast, autocast_dtype};
pub(crate) use autocast::{cache_cast, cached_cast};
pub use checkpoint::{BlockGuard, checkpoint, checkpoint_all, checkpoint_until_dropped};
pub use copy_slices::{seen_anew, written_through};
pub use engine::backward;
pub use hooks::{Packed, SavedHooks, SavedHooksGuard};
pub use kept::{KeptOp, KeptOps, KeptOpsGuard};
pub(crate) use kept::{is_watched, result as kept_result, results as kept_results, unwatched};
pub use mode::{NoGrad, is_grad_enabled};
pub use node::{Edge, Function, GradHook, Grads, Leaf, Needs, Node};
pub use offload::save_on_cpu;
pub(crate) use record::records;
pub use record::{Recorder, record, record_inputs, record_many};
pub use saved::{Saved, SavedValue};
pub use tensor::Tensor;
