//! Loss functions.

pub(in crate::ops) mod binary_cross_entropy;
pub(in crate::ops) mod cross_entropy;
pub(in crate::ops) mod ctc;
pub(in crate::ops) mod margin;
pub(in crate::ops) mod regression;
pub(in crate::ops) mod similarity;
pub(in crate::ops) mod weighted_classes;

pub use binary_cross_entropy::{binary_cross_entropy, binary_cross_entropy_with_logits};
pub use cross_entropy::{
    Counting, IGNORE_INDEX, cross_entropy, cross_entropy_counting, cross_entropy_smooth, nll_loss, nll_loss_counting,
};
pub use ctc::{CtcOptions, ctc_loss};
pub use margin::{margin_ranking_loss, pairwise_distance, triplet_margin_loss};
pub use regression::{huber_loss, l1_loss, mse_loss, smooth_l1_loss};
pub use similarity::{cosine_similarity, kl_div};
