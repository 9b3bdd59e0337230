//! Winograd's minimal filtering F(2 × 2, 3 × 3) (Lavin and Gray 2015, arXiv 1509.09308), for windows of 3 × 3 neighbours at stride 1, in f32. Four
//! outputs take sixteen multiplications a channel instead of 36.
//!
//! A block of 2 × 2 outputs sees a patch `d` of 4 × 4. With the window `g`, the block is `Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A`. The sum over channels goes
//! over the elementwise products, so each of their sixteen elements is a matrix product. Its packed operands and tiles are those of
//! [`crate::panels`]. The weight's gradient is the reverse: `Gᵀ[(A y Aᵀ) ⊙ (Bᵀ d B)]G`, summed over all blocks.
//!
//! The constants are 0, ±1 and ½, so errors are a small multiple of the plain sum's. An infinity or NaN reaches all outputs of the blocks that see
//! it.
//!
//! | file | contents |
//! |---|---|
//! | `transform.rs` | the transforms |
//! | `grid.rs` | the convolution and its input gradient |
//! | `weight_grad.rs` | the gradient for the weight |

mod grid;
mod transform;
mod weight_grad;

pub(super) use grid::Winograd;
pub(super) use weight_grad::WeightGrad;
