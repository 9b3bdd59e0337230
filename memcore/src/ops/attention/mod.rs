//! Attention, and the positions that it turns into its vectors.

pub(in crate::ops) mod algorithm;
pub(in crate::ops) mod math;
pub(in crate::ops) mod rope;
pub(in crate::ops) mod scaled_dot_product;
pub(in crate::ops) mod temporaries;

pub use rope::rope;
pub use scaled_dot_product::{
    AttentionOptions, attention_eager, attention_with_weights, causal_mask, scaled_dot_product_attention,
};
