//! MIG slices of cards: memory and multiprocessors of each profile, as `nvidia-smi mig -lgip` lists them. Where drivers differ, the smallest counts.

/// Name on the command line, the driver's name, memory in hundredths of a GiB, multiprocessors.
pub(super) type Slice = (&'static str, &'static str, u64, u16);

/// Slices of one card.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sliced {
    /// The card's name on the command line.
    pub(super) card: &'static str,
    /// Where memory and multiprocessors are from.
    pub(super) source: &'static str,
    /// Its slices.
    pub(super) slices: &'static [Slice],
}

/// All of them. Profiles with media engines (`+me`) have as much.
pub(super) const SLICED: [Sliced; 5] = [
    Sliced {
        card: "a100-40",
        source: "NVIDIA's MIG User Guide, Getting Started; 1g.5gb to 7g.40gb",
        slices: &[
            ("a100-40-1g.5gb", "A100 40GB MIG 1g.5gb", 475, 14),
            ("a100-40-1g.10gb", "A100 40GB MIG 1g.10gb", 962, 14),
            ("a100-40-2g.10gb", "A100 40GB MIG 2g.10gb", 962, 28),
            ("a100-40-3g.20gb", "A100 40GB MIG 3g.20gb", 1950, 42),
            ("a100-40-4g.20gb", "A100 40GB MIG 4g.20gb", 1950, 56),
            ("a100-40-7g.40gb", "A100 40GB MIG 7g.40gb", 3925, 98),
        ],
    },
    Sliced {
        card: "a100-80",
        source: "the listing of driver 515.86.01; XuehaiPan/nvitop#8 shows 2g.20gb with as much",
        slices: &[
            ("a100-80-1g.10gb", "A100 80GB MIG 1g.10gb", 950, 14),
            ("a100-80-2g.20gb", "A100 80GB MIG 2g.20gb", 1950, 28),
            ("a100-80-3g.40gb", "A100 80GB MIG 3g.40gb", 3925, 42),
            ("a100-80-4g.40gb", "A100 80GB MIG 4g.40gb", 3925, 56),
            ("a100-80-7g.80gb", "A100 80GB MIG 7g.80gb", 7900, 98),
        ],
    },
    Sliced {
        card: "h100",
        source: "jbarrow.ai/field_notes/nvidia-mig",
        slices: &[
            ("h100-1g.10gb", "H100 80GB MIG 1g.10gb", 975, 16),
            ("h100-1g.20gb", "H100 80GB MIG 1g.20gb", 1962, 26),
            ("h100-2g.20gb", "H100 80GB MIG 2g.20gb", 1962, 32),
            ("h100-3g.40gb", "H100 80GB MIG 3g.40gb", 3950, 60),
            ("h100-4g.40gb", "H100 80GB MIG 4g.40gb", 3950, 64),
            ("h100-7g.80gb", "H100 80GB MIG 7g.80gb", 7911, 132),
        ],
    },
    Sliced {
        card: "h200",
        source: "NVIDIA/mig-parted#120",
        slices: &[
            ("h200-1g.18gb", "H200 MIG 1g.18gb", 1600, 16),
            ("h200-1g.35gb", "H200 MIG 1g.35gb", 3225, 26),
            ("h200-2g.35gb", "H200 MIG 2g.35gb", 3225, 32),
            ("h200-3g.71gb", "H200 MIG 3g.71gb", 6950, 60),
            ("h200-4g.71gb", "H200 MIG 4g.71gb", 6950, 64),
            ("h200-7g.141gb", "H200 MIG 7g.141gb", 13972, 132),
        ],
    },
    Sliced {
        card: "b200",
        source: "NVIDIA/mig-parted#187",
        slices: &[
            ("b200-1g.23gb", "B200 MIG 1g.23gb", 2050, 18),
            ("b200-1g.45gb", "B200 MIG 1g.45gb", 4425, 30),
            ("b200-2g.45gb", "B200 MIG 2g.45gb", 4425, 36),
        ],
    },
];
