//! Windows of 3 × 3 neighbours at stride 1, in f32, by Winograd's minimal filtering F(2 × 2, 3 × 3) (Lavin and Gray 2015, arXiv 1509.09308): four outputs
//! take sixteen multiplications a channel instead of 36.
//!
//! A block of 2 × 2 outputs sees a patch `d` of 4 × 4; with the window `g`, it is `Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A`. The sum over channels goes over the
//! elementwise products, so that each of their sixteen elements is a matrix product: packed operands and tiles are those of [`crate::panels`].
//! For the weight's gradient the same is turned round: `Gᵀ[(A y Aᵀ) ⊙ (Bᵀ d B)]G`, summed over all blocks.
//!
//! The constants are 0, ±1 and ½: errors are a small multiple of the plain sum's. What is not finite reaches all outputs of the blocks that see it.
//!
//! | file | what it holds |
//! |---|---|
//! | `transform.rs` | the transforms |
//! | `grid.rs` | the convolution and its input gradient |
//! | `weight_grad.rs` | the gradient for the weight |

mod grid;
mod transform;
mod weight_grad;

pub(super) use grid::Winograd;
pub(super) use weight_grad::WeightGrad;
