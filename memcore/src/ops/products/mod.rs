//! Products of vectors, matrices and batches of them.

pub(in crate::ops) mod cdist;
pub(in crate::ops) mod einsum;
pub(in crate::ops) mod grouped_mm;
pub(in crate::ops) mod linear;
pub(in crate::ops) mod matmul;
pub(in crate::ops) mod matrices;
pub(in crate::ops) mod vectors;

pub use cdist::cdist;
pub use einsum::{einsum, einsum_along};
pub use grouped_mm::{grouped_mm, grouped_mm_in_turn};
pub use linear::linear;
pub use matmul::matmul;
pub use matrices::{addmm, bmm, mm};
pub use vectors::{baddbmm, dot, mv};
