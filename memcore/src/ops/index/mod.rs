//! Elements chosen, written or added by index.

pub(in crate::ops) mod by_tensors;
pub(in crate::ops) mod embedding;
pub(in crate::ops) mod gather;
pub(in crate::ops) mod masked;
pub(in crate::ops) mod scatter;
pub(in crate::ops) mod temporaries;

pub use by_tensors::{MAX_EACH, index_by, index_each};
pub use embedding::{embedding, index_select};
pub use gather::gather;
pub use masked::masked_scatter;
pub use scatter::{
    index_add, index_add_, index_copy, index_put, index_put_, scatter, scatter_add, scatter_add_, scatter_value,
};
