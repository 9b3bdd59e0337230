//! Which products with 4-bit weights run in one kernel of bitsandbytes, and which restore the weight first: the rule of its 0.50
//! (`_gemm_4bit_use_custom_cuda` in `backends/cuda/ops.py`), by the card and the sizes.

use crate::dtype::DType;
use crate::profile::Profile;

/// Values that share one scale.
pub(super) const BLOCK: usize = 64;
/// Rows above which the weight is always restored.
const MOST_ROWS: usize = 1536;
/// Rows up to which the kernel is always taken.
const FEW_ROWS: usize = 4;

/// Sizes of a product `[m, k] @ [n, k]ᵀ`, and the card.
struct Product {
    sm: u32,
    sms: usize,
    m: usize,
    n: usize,
    k: usize,
    /// Blocks of 64 outputs.
    blocks: usize,
}

/// True if one kernel computes the product without restoring the weight.
pub(super) fn is_fused(profile: &Profile, dtype: DType, m: usize, n: usize, k: usize) -> bool {
    let (Some(sm), Some(card)) = (profile.compute_capability, profile.multiprocessors) else { return false };
    if m > MOST_ROWS || !k.is_multiple_of(BLOCK) {
        return false;
    }
    if m <= FEW_ROWS {
        return true;
    }
    let one = Product { sm, sms: card.count, m, n, k, blocks: n.div_ceil(64) };
    let without_tensor_cores = dtype == DType::F32 || sm < 75 || (sm < 80 && dtype != DType::F16);
    if without_tensor_cores {
        return m < 8;
    }
    match sm {
        87 | 110..=119 => false,
        100..=109 => one.on_sm100(),
        _ if n * k < 4 << 20 => one.is_small(),
        _ if m > 512 => false,
        _ if m < 8 => one.of_few_rows(),
        75 => one.on_sm75(),
        80 => one.on_sm80(),
        86 => one.on_sm86(),
        90..=99 => one.on_sm90(),
        _ => one.on_others(),
    }
}

impl Product {
    /// At most so many rows.
    fn up_to(&self, rows: usize) -> bool {
        self.m <= rows
    }

    /// True if the blocks are at least `numerator/denominator` of the multiprocessors.
    fn waves(&self, numerator: usize, denominator: usize) -> bool {
        self.blocks * denominator >= self.sms * numerator
    }

    fn has_hbm(&self) -> bool {
        matches!(self.sm, 80 | 90..=99)
    }

    fn on_sm100(&self) -> bool {
        if self.waves(3, 1) {
            return self.up_to(32);
        }
        self.waves(1, 1) && self.k < self.n && self.up_to(8)
    }

    /// Weights of less than 4 Mi values.
    fn is_small(&self) -> bool {
        let Self { sm, sms, m, n, k, blocks } = *self;
        if k * 2 < n {
            let low = blocks * 3 < sms;
            return match sm {
                80 => self.up_to(if low { 1536 } else { 512 }),
                90..=99 => self.up_to(if low { 512 } else { 320 }),
                75 if self.waves(3, 1) => self.up_to(320),
                75 if k >= 1024 => self.up_to(64),
                75 if k >= 704 => self.up_to(96),
                75 => self.up_to(320),
                _ if self.waves(1, 1) => self.up_to(320),
                _ => self.up_to(if blocks * k > sms * 320 { 192 } else { 320 }),
            };
        }
        let quarter = blocks * 4 <= sms;
        if sm == 80 && quarter {
            return match k >= n {
                true => self.up_to(if blocks * 8 <= sms { 32 } else { 128 }),
                false => self.up_to(384),
            };
        }
        if sm == 75 && blocks < sms && m > 8 {
            return self.up_to(64);
        }
        if quarter {
            return self.up_to(if k < n || self.has_hbm() { 32 } else { 23 });
        }
        blocks * 2 <= sms && self.up_to(16)
    }

    /// Five to seven rows.
    fn of_few_rows(&self) -> bool {
        let Self { sm, sms, m, n, k, blocks } = *self;
        let most = if matches!(sm, 90..=99) { 36 } else { 48 };
        if self.has_hbm() && m >= 6 && blocks >= most {
            let (below_three_quarters, below_three_fifths) = (blocks * 4 < sms * 3, blocks * 5 < sms * 3);
            if k > n && below_three_quarters {
                return false;
            }
            let square = if sm == 80 { below_three_fifths } else { below_three_quarters && !below_three_fifths };
            if k == n && square {
                return false;
            }
        }
        true
    }

    fn on_sm75(&self) -> bool {
        if self.waves(3, 1) {
            return self.up_to(if self.k < self.n { 128 } else { 64 });
        }
        self.up_to(if self.blocks >= self.sms / 2 { 64 } else { 32 })
    }

    fn on_sm80(&self) -> bool {
        let Self { sms, n, k, blocks, .. } = *self;
        if self.waves(3, 1) {
            return self.up_to(128);
        }
        if self.waves(1, 1) {
            return self.up_to(if k < n { 64 } else { 32 });
        }
        if (k >= n * 3 && blocks * 4 > sms) || (k == n && blocks >= 48 && blocks * 5 < sms * 3) {
            return false;
        }
        if blocks * 2 < sms {
            if k <= n {
                return self.up_to(128);
            }
            if blocks * 3 >= sms {
                return false;
            }
        }
        self.up_to(if blocks >= sms / 2 && k < n { 128 } else { 16 })
    }

    fn on_sm86(&self) -> bool {
        if self.waves(1, 1) {
            return self.up_to(128);
        }
        self.up_to(if self.blocks >= self.sms / 2 { 64 } else { 16 })
    }

    fn on_sm90(&self) -> bool {
        let Self { sms, n, k, blocks, .. } = *self;
        if self.waves(3, 1) {
            return self.up_to(64);
        }
        if self.waves(2, 1) {
            return self.up_to(48);
        }
        if self.waves(1, 1) {
            return self.up_to(32);
        }
        let tall_and_narrow = k >= n && blocks * 4 < sms * 3;
        blocks >= sms / 2 && !tall_and_narrow && self.up_to(16)
    }

    /// Compute capabilities 8.9, 12.0, 12.1, and any other.
    fn on_others(&self) -> bool {
        let Self { sm, sms, n, k, blocks, .. } = *self;
        let tall = k > n * 2;
        if sm == 121 && self.waves(1, 1) {
            return self.up_to(256);
        }
        if sm == 120 {
            return self.on_sm120(tall);
        }
        if self.waves(3, 1) {
            return self.up_to(256);
        }
        if self.waves(2, 1) {
            return self.up_to(128);
        }
        if self.waves(4, 5) {
            if tall || blocks >= 200 {
                return self.up_to(128);
            }
            return self.up_to(match k >= n {
                true if sms >= 60 => 128,
                true => 32,
                false => 64,
            });
        }
        if blocks >= sms / 2 {
            return self.up_to(match tall {
                true => 64,
                false if blocks >= 64 => 8,
                false => 32,
            });
        }
        if k > n && blocks <= 48 {
            return self.up_to(if k >= n * 3 { 12 } else { 10 });
        }
        self.up_to(if tall || blocks < 48 { 16 } else { 8 })
    }

    fn on_sm120(&self, tall: bool) -> bool {
        let Self { sms, n, k, blocks, .. } = *self;
        if self.waves(3, 1) {
            return self.up_to(256);
        }
        if self.waves(2, 1) {
            return self.up_to(128);
        }
        if self.waves(4, 5) {
            return self.up_to(if k >= n { 96 } else { 64 });
        }
        if blocks >= sms / 2 {
            return self.up_to(if k * 2 >= n && blocks >= 128 { 64 } else { 8 });
        }
        self.up_to(if tall && blocks > 64 { 16 } else { 8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compute capability, outputs, inputs, and the most rows for which the function of bitsandbytes 0.50 said yes, of those below.
    #[rustfmt::skip]
    const ANSWERS: [(u32, usize, usize, usize); 91] = [
        (75, 160, 28672, 32), (75, 512, 28672, 32), (75, 160, 4096, 64), (75, 11008, 28672, 64), (75, 28672, 11008, 128),
        (75, 28672, 256, 128), (75, 14336, 64, 320), (75, 512, 64, 320), (80, 4096, 4096, 5), (80, 4096, 14336, 5), (80, 2048, 11008, 7),
        (80, 2048, 28672, 7), (80, 1024, 11008, 16), (80, 512, 8192, 16), (80, 512, 1024, 32), (80, 11008, 11008, 32),
        (80, 8192, 1024, 64), (80, 11008, 1024, 64), (80, 2048, 2048, 128), (80, 28672, 14336, 128), (80, 512, 256, 384),
        (80, 1024, 512, 384), (80, 11008, 64, 512), (80, 11008, 256, 512), (80, 256, 64, 1536), (80, 2048, 64, 1536), (86, 1024, 8192, 16),
        (86, 2048, 4096, 16), (86, 256, 14336, 20), (86, 512, 512, 20), (86, 512, 256, 32), (86, 1024, 512, 32), (86, 4096, 28672, 64),
        (86, 4096, 1024, 64), (86, 8192, 4096, 128), (86, 8192, 11008, 128), (86, 4096, 512, 192), (86, 11008, 256, 320),
        (86, 160, 64, 320), (89, 4096, 8192, 7), (89, 4096, 2048, 7), (89, 2048, 4096, 9), (89, 2048, 11008, 12), (89, 2048, 14336, 12),
        (89, 2048, 2048, 16), (89, 160, 256, 20), (89, 256, 8192, 20), (89, 512, 256, 32), (89, 2048, 1024, 32), (89, 4096, 28672, 64),
        (89, 8192, 4096, 64), (89, 14336, 8192, 128), (89, 11008, 28672, 128), (89, 28672, 28672, 256), (89, 28672, 8192, 256),
        (89, 14336, 64, 320), (89, 4096, 512, 320), (90, 4096, 28672, 5), (90, 4096, 11008, 5), (90, 1024, 28672, 7), (90, 1024, 8192, 7),
        (90, 8192, 512, 16), (90, 8192, 8192, 16), (90, 14336, 512, 32), (90, 14336, 8192, 32), (90, 28672, 512, 64),
        (90, 28672, 1024, 64), (90, 4096, 256, 320), (90, 8192, 256, 320), (90, 1024, 64, 512), (90, 2048, 512, 512),
        (100, 8192, 11008, 0), (100, 14336, 14336, 0), (100, 14336, 8192, 7), (100, 14336, 11008, 7), (100, 28672, 14336, 32),
        (100, 28672, 11008, 32), (120, 2048, 11008, 7), (120, 512, 28672, 7), (120, 160, 14336, 20), (120, 64, 14336, 20),
        (120, 512, 256, 32), (120, 2048, 1024, 32), (120, 14336, 8192, 64), (120, 14336, 2048, 64), (120, 11008, 14336, 96),
        (120, 14336, 28672, 96), (120, 28672, 512, 128), (120, 28672, 4096, 128), (120, 4096, 256, 320), (120, 14336, 256, 320),
    ];
    const ROWS: [usize; 25] =
        [5, 6, 7, 9, 12, 16, 20, 24, 32, 40, 48, 64, 96, 100, 128, 192, 256, 300, 320, 384, 400, 512, 520, 1024, 1536];

    #[test]
    fn the_kernel_is_taken_where_bitsandbytes_takes_it() {
        for (sm, n, k, most) in ANSWERS {
            let profile = Profile::torch_2_11(sm);
            let taken = ROWS.into_iter().filter(|rows| is_fused(&profile, DType::F16, *rows, n, k)).max();
            assert_eq!(taken.unwrap_or(0), most, "{sm}: {n} x {k}");
        }
        let hopper = Profile::torch_2_11(90);
        assert!(is_fused(&hopper, DType::F32, 7, 64, 64) && !is_fused(&hopper, DType::F32, 8, 64, 64));
        assert!(!is_fused(&hopper, DType::BF16, 1537, 1024, 64) && !is_fused(&hopper, DType::BF16, 8, 64, 160));
    }
}
